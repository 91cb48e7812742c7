"""The registry of queues: what writes it and when, that no refusal costs anything, and how queues are found by it."""

from __future__ import annotations

import asyncio
import logging

import pytest
import redis.asyncio

from pychasqui import Job, Queue, ReplyError, Worker
from pychasqui._core.limits import REGISTER_EVERY_S
from pychasqui._redis.keys import REGISTRY
from pychasqui.queues import Queues
from tests.support.server import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.leaves_keys("jobs wait, and names stand in the registry")


async def handle(job: Job) -> None:
    pass


async def registered(witness: redis.asyncio.Redis) -> list[bytes]:
    return list(await witness.zrange(REGISTRY, 0, -1))


async def is_registered(witness: redis.asyncio.Redis, name: str) -> bool:
    return await registered(witness) == [name.encode()]


class TestWriting:
    """tests/integration/test_counts.py counts what it costs."""

    async def test_the_first_add_of_a_connection_writes_the_name(
        self, queue: Queue, witness: redis.asyncio.Redis
    ) -> None:
        await queue.counts()
        await queue.jobs("waiting")
        assert await registered(witness) == []
        await queue.add("job", delay_ms=3_600_000)
        await eventually(lambda: is_registered(witness, queue.name))

    async def test_a_connection_that_is_made_again_writes_it_again(
        self, queue: Queue, witness: redis.asyncio.Redis
    ) -> None:
        await queue.add("job")
        await eventually(lambda: is_registered(witness, queue.name))
        await witness.delete(REGISTRY)
        await witness.client_kill_filter(_type="normal", skipme=True)
        await queue.add("job")
        await eventually(lambda: is_registered(witness, queue.name))

    async def test_a_worker_writes_at_its_start_and_again_when_a_day_is_over(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert REGISTER_EVERY_S == 24 * 3600
        monkeypatch.setattr("pychasqui._worker.registry_writer.REGISTER_EVERY_S", 0.05)
        async with Worker(queue_name, handle, redis_url=redis_url, lease_ms=300):
            await eventually(lambda: is_registered(witness, queue_name))
            await witness.delete(REGISTRY)
            await eventually(lambda: is_registered(witness, queue_name))


class TestRefusals:
    """The queue and the worker go on as if nothing were wrong, and the log says so at the level debug alone."""

    async def test_a_key_of_another_type(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, caplog: pytest.LogCaptureFixture
    ) -> None:
        await witness.set(REGISTRY, "mine", ex=100)
        await self._run_a_job(redis_url, queue_name, caplog, "WRONGTYPE")
        assert await witness.get(REGISTRY) == b"mine"

    async def test_a_user_without_the_right(
        self, redis_url: str, queue_name: str, server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.execute("ACL", "SETUSER", "narrow", "on", ">word", "+@all", "~{chasqui:*", "&*")
        try:
            url = f"redis://narrow:word@127.0.0.1:{server.port}"
            await self._run_a_job(url, queue_name, caplog, "permission", "can't access")  # as Redis 6.2 says it
        finally:
            server.execute("ACL", "DELUSER", "narrow")
        assert server.execute("EXISTS", REGISTRY) == 0

    async def _run_a_job(self, url: str, queue_name: str, caplog: pytest.LogCaptureFixture, *why: str) -> None:
        caplog.set_level(logging.DEBUG, logger="chasqui")
        done = asyncio.Event()

        async def note(job: Job) -> None:
            done.set()

        async with Queue(queue_name, redis_url=url) as queue, Worker(queue_name, note, redis_url=url):
            await queue.add("job")
            await asyncio.wait_for(done.wait(), 30)
            await eventually(lambda: sum(any(word in line for word in why) for line in caplog.messages) == 2)
            assert (await queue.counts()).waiting == 0
        assert [record.name for record in caplog.records if record.levelno > logging.INFO] == []
        assert "keeps trying" not in caplog.text


class TestFinding:
    async def test_the_registry_finds_queues_that_a_search_has_no_time_for(
        self, redis_url: str, witness: redis.asyncio.Redis
    ) -> None:
        await witness.mset({f"other:{number}": "x" for number in range(20_000)})
        await witness.xadd("{chasqui:mail}:stream", {"d": "x"})
        await witness.zadd(REGISTRY, {"mail": 1})
        async with Queues(redis_url) as queues:
            found = await queues.find_names(within_s=0.0)
        assert found.names == ["mail"]
        assert not found.is_complete

    async def test_names_that_no_queue_can_have_and_queues_that_are_gone_are_left_out(
        self, redis_url: str, witness: redis.asyncio.Redis
    ) -> None:
        foreign = [b"gone", b"\xff\xfe", b"a}b", b"line\nbreak", b"\x1b[31mred", b"", b" ", b"x" * 100_000]
        await witness.zadd(REGISTRY, dict.fromkeys(foreign, 1), nx=True)
        await witness.xadd("{chasqui:mail}:stream", {"d": "x"})
        await witness.xadd(b"{chasqui:\xff}:stream", {"d": "x"})
        async with Queues(redis_url) as queues:
            assert await queues.find_names() == (["mail"], True)

    async def test_a_registry_of_another_type_is_passed_over(
        self, redis_url: str, witness: redis.asyncio.Redis
    ) -> None:
        await witness.set(REGISTRY, "mine")
        await witness.xadd("{chasqui:mail}:stream", {"d": "x"})
        async with Queues(redis_url) as queues:
            assert await queues.find_names() == (["mail"], True)

    async def test_a_user_who_may_not_scan_gets_the_queues_of_the_registry_that_it_may_read(
        self, redis_url: str, server: RedisServer, witness: redis.asyncio.Redis
    ) -> None:
        for name in ("a", "b"):
            await witness.xadd(f"{{chasqui:{name}}}:stream", {"d": "x"})
        rules = ("+@all", "-scan", "~{chasqui:a}:*", f"~{REGISTRY}")
        server.execute("ACL", "SETUSER", "narrow", "on", ">word", *rules)
        try:
            async with Queues(f"redis://narrow:word@127.0.0.1:{server.port}") as queues:
                with pytest.raises(ReplyError, match="NOPERM"):
                    await queues.find_names()
                await witness.zadd(REGISTRY, {"a": 1, "b": 2})
                assert await queues.find_names() == (["a"], False)
        finally:
            server.execute("ACL", "DELUSER", "narrow")

    async def test_ten_thousand_names_are_read_and_no_more(self, redis_url: str, witness: redis.asyncio.Redis) -> None:
        await witness.zadd(REGISTRY, {f"q{number}": number for number in range(10_050)})
        await witness.mset({f"{{chasqui:q{number}}}:delayed": "x" for number in (0, 49, 50, 10_049)})
        async with Queues(redis_url) as queues:
            names = (await queues.find_names(within_s=-1.0)).names
        assert {"q50", "q10049"} <= set(names)
