"""Commands about all queues show those that can be read, and name the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from pychasqui import Queue, Queues
from pychasqui.cli.exits import ExitCode
from tests.cli.conftest import Finished
from tests.support.server import RedisServer

WARNING = "Warning: queue broken cannot be read: WRONGTYPE "


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@pytest.fixture
def url() -> Iterator[str]:
    """A server on which another program has written the stream of a queue."""
    with RedisServer() as server:
        server.execute("SET", "{chasqui:broken}:stream", "x")
        yield server.url


@pytest.mark.parametrize("command", ("workers", "inspect", "job"))
async def test_a_queue_that_cannot_be_read_does_not_hide_the_others(chasqui: Finished, url: str, command: str) -> None:
    async with Queue("mail", redis_url=url) as queue:
        added = await queue.add("welcome")
    ended = chasqui(command, *([added.id] if command == "job" else []), CHASQUI_REDIS_URL=url)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(WARNING)
    shown = {"workers": "queue\tworker\t", "inspect": "mail\n", "job": "waiting\n"}[command]
    assert shown in ended.stdout


@pytest.mark.parametrize("arguments", (["workers", "broken"], ["inspect", "broken"], ["job", "x", "-q", "broken"]))
def test_a_queue_that_was_named_and_cannot_be_read_fails_the_command(
    chasqui: Finished, url: str, arguments: list[str]
) -> None:
    ended = chasqui(*arguments, CHASQUI_REDIS_URL=url)
    assert ended.returncode == ExitCode.REDIS
    assert ended.stderr.startswith("Error: WRONGTYPE ")


async def test_the_overview_of_a_queue_that_cannot_be_read_shows_no_empty_queue(url: str) -> None:
    async with Queue("mail", redis_url=url) as queue, Queues(url) as queues:
        await queue.add("welcome")
        broken, mail = await queues.overview(["broken", "mail"])
    assert "WRONGTYPE" in (broken.error or "")
    assert {value for field, value in asdict(broken).items() if field not in ("name", "error")} == {None}
    assert (mail.waiting, mail.running, mail.workers, mail.is_paused, mail.error) == (1, 0, 0, False, None)
