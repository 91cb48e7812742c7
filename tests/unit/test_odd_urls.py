"""A password in a URL is never shown, for any URL and any error."""

from __future__ import annotations

import logging
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from pychasqui import ChasquiError, Job, Promoter, Queue, QueueEvents, RedisTrouble, Scheduler, Worker
from pychasqui.cli import main as command
from pychasqui.cli.exits import run_to_exit_code
from pychasqui.errors import InvalidArgument
from tests.support.cases import in_one_test
from tests.support.odd_urls import HERE, ODD_URLS

SECRET = "hunter2SENTINEL"


async def handle(job: Job) -> None:
    pass


MAKERS: tuple[Callable[[str], Any], ...] = (
    lambda url: Queue("emails", redis_url=url, timeout_s=0.1),
    lambda url: Queue("emails", redis_url=url, tls=True),
    lambda url: Worker("emails", handle, redis_url=url),
    lambda url: QueueEvents("emails", redis_url=url),
    lambda url: Promoter("emails", redis_url=url),
    lambda url: Scheduler("emails", redis_url=url),
)


def everything_shown(error: BaseException) -> str:
    """All that a log, a terminal or an error tracker makes of it, the errors behind it included."""
    text = "".join(traceback.format_exception(error)) + repr(error) + repr(error.args)
    behind = error.__context__ or error.__cause__
    return text + (everything_shown(behind) if behind is not None else "")


@pytest.fixture(autouse=True)
def no_certificates() -> Iterator[None]:
    """Those of the system take a tenth of a second to load for each URL with TLS, and are not looked at."""
    with patch.object(ssl.SSLContext, "load_default_certs"):
        yield


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


def test_the_table_has_a_hundred_urls_that_differ() -> None:
    assert len(set(ODD_URLS)) == len(ODD_URLS) >= 100
    assert all("{}" in url for url in ODD_URLS)


@in_one_test("url", ODD_URLS)
def test_a_url_is_taken_or_refused_without_its_password(url: str, log: pytest.LogCaptureFixture) -> None:
    for make in MAKERS:
        try:
            made = make(url.format(*[SECRET] * 2))
        except ChasquiError as refused:
            printable = everything_shown(refused)
        else:
            printable = f"{made!r} {made!s} {made._connector!r} {made._connector!s} {made._connector._location!r}"
        assert SECRET not in printable
    assert SECRET not in log.text


def is_taken(url: str) -> bool:
    try:
        connector = MAKERS[0](url.format(*[SECRET] * 2))._connector
    except InvalidArgument:
        return False
    return connector._location is not None


with patch.object(ssl.SSLContext, "load_default_certs"):  # they take a tenth of a second each, and are not looked at
    TAKEN = [url for url in ODD_URLS if is_taken(url)]


def test_the_table_has_urls_of_both_kinds() -> None:
    assert len(TAKEN) >= 15
    assert len(ODD_URLS) - len(TAKEN) >= 50


@pytest.mark.parametrize("url", [url for url in TAKEN if HERE in url or url.startswith("unix")])
async def test_a_failure_to_connect_keeps_the_password_to_itself(url: str, log: pytest.LogCaptureFixture) -> None:
    async with Queue("emails", redis_url=url.format(*[SECRET] * 2), timeout_s=0.1) as queue:
        with pytest.raises(RedisTrouble) as failure:
            await queue.add("send")
    assert SECRET not in everything_shown(failure.value)
    assert SECRET not in log.text
    assert "cannot reach" in str(failure.value)


@in_one_test("url", [url for url in ODD_URLS if url not in TAKEN and not url.startswith("embedded://~")])
@in_one_test("name", ("demo", "exporter"))
def test_a_command_refuses_a_url_without_its_password(url: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [name, "--redis-url", url.format(*[SECRET] * 2), *(["emails"] if name == "exporter" else [])]
    code = run_to_exit_code(lambda: command.chasqui.main(arguments, prog_name="chasqui", standalone_mode=False))
    printable = capsys.readouterr()
    assert code == 2
    assert SECRET not in printable.out + printable.err
    assert "redis_url" in printable.err
