"""The exporter's pages harm no process, for any keys that other clients write."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, PrometheusSink, Queue, QueueExporter, RepeatPattern, Worker
from pychasqui._http import server as http
from pychasqui._http.text_format import MAX_LABEL_CHARS
from pychasqui.metrics import JobOutcome
from tests.support.waiting import eventually

HOUR_MS = 3_600_000


async def succeed(job: Job) -> None:
    """A handler with nothing to do."""


async def ask(port: int | None, path: str = "/metrics") -> tuple[int, str]:
    """Status and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        await _hang_up(writer)
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def commands(witness: redis.asyncio.Redis) -> int:
    return int((await witness.info("stats"))["total_commands_processed"])


class TestPort:
    async def test_clients_that_say_nothing_make_room_for_a_probe(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(succeed, metrics_port=0) as worker, AsyncExitStack() as stack:
            for _ in range(http.MAX_CONNECTIONS + 40):
                _, silent = await asyncio.open_connection("127.0.0.1", worker.metrics_port)
                stack.push_async_callback(_hang_up, silent)
                silent.write(b"GET /met")
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await ask(worker.metrics_port, path))[0] == 200

    async def test_slow_readers_of_a_page_never_take_a_probes_place(
        self, make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PrometheusSink, "render", lambda self, more: "x" * 20_000_000)
        monkeypatch.setattr(http, "ANSWER_WITHIN_S", 60.0)  # a busy machine is slow to open them all
        async with make_worker(succeed, metrics_port=0) as worker, AsyncExitStack() as stack:
            for _ in range(http.MAX_REQUESTS_PER_PAGE):
                _, slow = await asyncio.open_connection("127.0.0.1", worker.metrics_port, limit=10)
                stack.push_async_callback(_hang_up, slow)
                slow.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await eventually(lambda: _is(functools.partial(ask, worker.metrics_port), 503))
            assert (await ask(worker.metrics_port, "/healthz"))[0] == 200
            assert (await ask(worker.metrics_port, "/readyz"))[0] == 200


class TestNames:
    def test_names_are_cut_so_that_a_page_stays_small(self) -> None:
        sink = PrometheusSink("q")
        for number in range(400):
            sink.job_outcome(JobOutcome("ok", 1, 5, f"{number}-{'x' * 100_000}"))
        assert len(sink.render()) < 3_000_000

    def test_names_that_are_the_same_once_they_are_cut_are_one(self) -> None:
        sink = PrometheusSink("q")
        for end in ("a", "b"):
            sink.job_outcome(JobOutcome("ok", 1, 5, "n" * MAX_LABEL_CHARS + end))
        assert sink.render().count("chasquimq_jobs_completed_total{") == 1

    def test_a_name_cannot_forge_a_line(self) -> None:
        sink = PrometheusSink("q")
        sink.job_outcome(JobOutcome("ok", 1, 5, 'x"} 1\nchasquimq_forged 1\r\x1b[2J\u2028'))
        page = sink.render()
        assert "\nchasquimq_forged" not in page
        assert all(character.isprintable() or character == "\n" for character in page)


class TestScrape:
    @pytest.mark.leaves_keys("repeatables")
    async def test_a_scrape_costs_the_same_with_many_repeatables(
        self, queue: Queue, witness: redis.asyncio.Redis
    ) -> None:
        exporter = QueueExporter([queue])
        await exporter.render()

        async def cost() -> int:
            before = await commands(witness)
            await exporter.render()
            return await commands(witness) - before

        empty = await cost()
        for number in range(200):
            await queue.repeatables.upsert("n", repeat=RepeatPattern.every(HOUR_MS), key=f"k{number}")
        assert await cost() == empty <= 15
        assert (await exporter.render()).count("chasquimq_schedule_next_fire_timestamp_seconds{") == 200

    async def test_a_page_is_served_for_a_second(self, queue: Queue, witness: redis.asyncio.Redis) -> None:
        async with QueueExporter([queue]) as exporter:
            first = await ask(exporter.metrics_port)
            before = await commands(witness)
            pages = await asyncio.gather(*(ask(exporter.metrics_port) for _ in range(10)))
            assert await commands(witness) - before == 1  # the one that counts
        assert set(pages) == {first}

    @pytest.mark.leaves_keys("hostile records")
    @pytest.mark.parametrize(
        "words",
        (
            ("SET", "worker:w", b"\x87\xabconsumer_id\xa2\xff\xfe"),
            ("SET", "worker:w", b"\xc1"),
            ("SET", "worker:w", b"\x91" * 60_000),
            ("SET", "worker:w", b"x" * 1_000_000),
            ("ZADD", "repeat", "inf", b"\xff" * 100_000),
            ("ZADD", "delayed", "inf", b"\xc1"),
            ("SET", "stream", b"x"),
            ("LPUSH", "repeat", b"x"),
        ),
        ids=lambda words: f"{words[1]} {words[2][:4]!r}",
    )
    async def test_strange_keys_of_one_queue_do_not_hide_the_other_queues(
        self, queue: Queue, redis_url: str, witness: redis.asyncio.Redis, queue_name: str, words: tuple[Any, ...]
    ) -> None:
        prefix = f"{{chasqui:{queue_name}}}"
        await witness.zadd(f"{prefix}:workers", {"w": 9e15})
        await witness.execute_command(words[0], f"{prefix}:{words[1]}", *words[2:])
        async with Queue("other", redis_url=redis_url) as other:
            page = await QueueExporter([queue, other]).render()
        assert 'chasquimq_queue_up{queue="other"} 1' in page.splitlines()
        is_up = words[1] not in ("stream",) and words[0] != "LPUSH"
        assert f'chasquimq_queue_up{{queue="{queue_name}"}} {int(is_up)}' in page.splitlines()
        assert len(page) < 10_000


async def _is(ask_for: Callable[[], Any], status: int) -> bool:
    with suppress(OSError, IndexError):
        return bool((await ask_for())[0] == status)
    return False


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
