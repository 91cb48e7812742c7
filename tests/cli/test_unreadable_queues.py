"""Commands about all queues show those that can be read, and name the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pychasqui import Queue
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
