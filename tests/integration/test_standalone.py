"""Promoter and Scheduler as programs of their own, and how one of them leads.

standalone promoter, worker's own off       TestAlone
several promoters: one entry each           TestLease.test_several_leaders_move_each_job_once
the lock is let go of at the end            TestLease.test_the_lease_is_let_go_of
the lock of another is not                  TestLease.test_the_lease_of_another_is_left_alone
handover                                    TestLease.test_the_next_takes_over_at_once, ..._when_it_was_killed
a server that is away                       TestEnd
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import redis

from pychasqui import (
    AuthenticationFailed,
    Closed,
    InMemorySink,
    InvalidArgument,
    InvalidType,
    Promoter,
    Queue,
    RepeatPattern,
    Scheduler,
    Worker,
)
from pychasqui._redis import delayed
from pychasqui._redis import repeatables as repeats
from pychasqui._redis.scripts import DUE_REPEATABLES, PROMOTE
from pychasqui._worker import promoter, scheduler
from tests.support.handlers import RecordingHandler
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

LOCKS = {Promoter: "promoter:lock", Scheduler: "scheduler:lock"}
both = pytest.mark.parametrize("leader", (Promoter, Scheduler))
Leader = type[Promoter] | type[Scheduler]


@pytest.fixture
async def queue(queue: Queue, queue_name: str, stream: Stream, witness: Any) -> AsyncIterator[Queue]:
    yield queue
    for key in await stream.keys():
        if key.startswith(("repeat", "delayed")):
            await witness.delete(f"{{chasqui:{queue_name}}}:{key}")


@pytest.fixture
def lock(witness: Any, queue_name: str) -> Callable[[Leader], Any]:
    """The holder of the lease."""
    return lambda leader: witness.get(f"{{chasqui:{queue_name}}}:{LOCKS[leader]}")


async def give_work(queue: Queue, leader: Leader, count: int) -> None:
    if leader is Promoter:
        await queue.add_bulk({"name": "work", "data": n, "delay_ms": 200} for n in range(count))
    else:
        for number in range(count):
            await queue.upsert_repeatable_job(f"work-{number}", number, repeat=RepeatPattern.every(200), limit=1)


class TestAlone:
    @both
    async def test_a_standalone_leader_does_the_work_that_workers_leave_out(
        self, queue: Queue, redis_url: str, stream: Stream, leader: Leader
    ) -> None:
        runs = RecordingHandler()
        await give_work(queue, leader, 10)
        async with Worker(queue.name, runs, redis_url=redis_url, delayed_enabled=False, run_scheduler=False):
            await asyncio.sleep(0.4)
            assert runs.jobs == []
            async with leader(queue.name, redis_url=redis_url):
                await eventually(lambda: len(runs.jobs) == 10)
            await eventually(stream.is_settled)
        assert sorted(runs.data) == list(range(10))

    async def test_a_standalone_promoter_releases_unique_ids(
        self, queue: Queue, redis_url: str, stream: Stream
    ) -> None:
        runs = RecordingHandler()
        await queue.add_bulk({"name": "work", "data": n, "delay_ms": 100, "job_id": f"id-{n % 3}"} for n in range(9))
        async with (
            Worker(queue.name, runs, redis_url=redis_url, delayed_enabled=False),
            Promoter(queue.name, redis_url=redis_url),
        ):
            await eventually(lambda: len(runs.jobs) == 3)
            await eventually(stream.is_settled)
            assert [key for key in await stream.keys() if key.startswith(("unique", "dlid", "didx"))] == []

    @both
    async def test_a_standalone_leader_goes_on_when_the_server_has_lost_its_scripts(
        self, queue: Queue, redis_url: str, stream: Stream, witness: Any, lock: Any, leader: Leader
    ) -> None:
        async with leader(queue.name, redis_url=redis_url):
            await eventually(lambda: lock(leader))
            await witness.script_flush()
            await give_work(queue, leader, 3)

            async def all_moved() -> bool:
                return await stream.length() == 3

            await eventually(all_moved)

    @both
    async def test_a_standalone_leader_runs_until_it_is_closed(
        self, queue: Queue, redis_url: str, lock: Any, leader: Leader
    ) -> None:
        one = leader(queue.name, redis_url=redis_url)
        assert (one.is_running, one.is_closed) == (False, False)
        running = asyncio.create_task(one.run())
        await eventually(lambda: lock(leader))
        assert one.is_running
        await one.close()
        await one.close()
        await asyncio.wait_for(running, 40)
        assert (one.is_running, one.is_closed) == (False, True)
        with pytest.raises(Closed, match=queue.name):
            await one.run()

    @both
    async def test_a_standalone_leader_uses_one_connection_and_few_commands(
        self, redis_url: str, queue_name: str, lock: Any, leader: Leader
    ) -> None:
        """The seconds are the measurement, not a wait."""
        async with Proxy(redis_url) as proxy, leader(queue_name, redis_url=proxy.url):
            await eventually(lambda: lock(leader))
            before = len(proxy.requests)
            await asyncio.sleep(2)
            assert proxy.connections == 1
            assert len(proxy.requests) - before <= 4


class TestKnobs:
    async def test_a_promoter_looks_as_often_as_it_is_asked_to(
        self, queue: Queue, proxy: Proxy, queue_name: str
    ) -> None:
        """An official producer publishes nothing: a look finds what it has added."""
        await queue.add("later", delay_ms=3_600_000)

        async def looks_within_a_second(poll_interval_ms: int) -> int:
            async with Promoter(queue_name, redis_url=proxy.url, poll_interval_ms=poll_interval_ms):
                await eventually(lambda: proxy.count(PROMOTE.hash) > 2, timeout=30)
                before = proxy.count(PROMOTE.hash)
                await asyncio.sleep(1)
                return proxy.count(PROMOTE.hash) - before

        assert await looks_within_a_second(1000) <= 3
        assert await looks_within_a_second(20) >= 5

    async def test_a_promoter_moves_as_many_jobs_at_once_as_it_is_asked_to(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        sink = InMemorySink()
        await queue.add_bulk({"name": "later", "delay_ms": 1} for _ in range(10))
        await asyncio.sleep(0.05)
        async with Promoter(queue_name, redis_url=redis_url, promote_batch=3, metrics=sink):
            await eventually(lambda: sum(tick.promoted for tick in sink.promoter_ticks) == 10)
        assert max(tick.promoted for tick in sink.promoter_ticks) == 3
        assert await queue.purge("waiting") == 10

    async def test_a_scheduler_looks_as_often_as_it_is_asked_to(
        self, queue: Queue, proxy: Proxy, queue_name: str
    ) -> None:
        """An official producer publishes nothing: a look finds what it has stored."""
        await queue.upsert_repeatable_job("later", repeat=RepeatPattern.every(3_600_000))

        async def looks_within_a_second(tick_interval_ms: int) -> int:
            async with Scheduler(queue_name, redis_url=proxy.url, tick_interval_ms=tick_interval_ms):
                await eventually(lambda: proxy.count(DUE_REPEATABLES.hash) > 2, timeout=30)
                before = proxy.count(DUE_REPEATABLES.hash)
                await asyncio.sleep(1)
                return proxy.count(DUE_REPEATABLES.hash) - before

        assert await looks_within_a_second(1000) <= 3
        assert await looks_within_a_second(50) >= 5

    async def test_a_scheduler_reads_as_many_repeatables_at_once_as_it_is_asked_to(
        self, queue: Queue, proxy: Proxy, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        for number in range(10):
            job = await queue.upsert_repeatable_job(f"due-{number}", number, repeat=RepeatPattern.every(3_600_000))
            await witness.zadd(f"{{chasqui:{queue_name}}}:repeat", {job.id: int(time.time() * 1000)})
        async with Scheduler(queue_name, redis_url=proxy.url, tick_interval_ms=10_000, batch=3):
            await eventually(partial(_has_length, stream, 10))
        assert proxy.count(DUE_REPEATABLES.hash) >= 3  # the first of four sends the text of the script


class TestFlush:
    @both
    async def test_scripts_that_the_server_forgets_are_sent_again(
        self, queue: Queue, redis_url: str, stream: Stream, witness: Any, lock: Any, leader: Leader
    ) -> None:
        async with leader(queue.name, redis_url=redis_url):
            await eventually(lambda: lock(leader))
            for rounds in range(1, 4):
                await witness.script_flush()
                await give_work(queue, leader, 5)
                await eventually(partial(_has_length, stream, 5 * rounds))
        assert sorted(entry.data for entry in await stream.entries()) == sorted(list(range(5)) * 3)


async def _has_length(stream: Stream, length: int) -> bool:
    return await stream.length() >= length


class TestLease:
    @both
    async def test_several_leaders_move_each_job_once(
        self, queue: Queue, redis_url: str, stream: Stream, leader: Leader
    ) -> None:
        async with AsyncExitStack() as leaders:
            for _ in range(3):
                await leaders.enter_async_context(leader(queue.name, redis_url=redis_url))
            await give_work(queue, leader, 50)

            async def all_moved() -> bool:
                return await stream.length() >= 50

            await eventually(all_moved)
            await asyncio.sleep(0.3)
        assert sorted(entry.data for entry in await stream.entries()) == list(range(50))

    @both
    async def test_the_lease_is_let_go_of(self, redis_url: str, queue_name: str, lock: Any, leader: Leader) -> None:
        async with leader(queue_name, redis_url=redis_url, holder_id="me"):
            await eventually(lambda: lock(leader))
            assert await lock(leader) == b"me"
        assert await lock(leader) is None

    @both
    @pytest.mark.parametrize("kind", ("without an end", "with a far end", "of another type"))
    async def test_a_foreign_lease_holds_leaders_up_for_a_short_time(
        self,
        queue: Queue,
        redis_url: str,
        witness: Any,
        stream: Stream,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        leader: Leader,
        kind: str,
    ) -> None:
        for module in (delayed, repeats):
            monkeypatch.setattr(module, "MAX_LEADER_LEASE_MS", 500)
        key = f"{{chasqui:{queue.name}}}:{LOCKS[leader]}"
        if kind == "of another type":
            await witness.rpush(key, "x")
        else:
            await witness.set(key, "x", px=None if kind == "without an end" else 10**12)
        await give_work(queue, leader, 3)
        async with leader(queue.name, redis_url=redis_url):

            async def all_moved() -> bool:
                return await stream.length() == 3

            await eventually(all_moved)
        assert "without an end, or with one beyond" in caplog.text

    @both
    async def test_an_error_in_one_turn_does_not_end_the_leader(
        self,
        queue: Queue,
        redis_url: str,
        stream: Stream,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        leader: Leader,
    ) -> None:
        part: Any = promoter.PromoterService if leader is Promoter else scheduler.SchedulerService
        look, inspector_broker = part._subscribe_do_due_and_choose_pause_s, []

        async def fail_at_first(self: Any) -> float:
            inspector_broker.append(self)
            if len(inspector_broker) < 4:
                raise ZeroDivisionError("a defect")
            return float(await look(self))

        monkeypatch.setattr(part, "_subscribe_do_due_and_choose_pause_s", fail_at_first)
        await give_work(queue, leader, 3)
        async with leader(queue.name, redis_url=redis_url) as one:

            async def all_moved() -> bool:
                return await stream.length() == 3

            await eventually(all_moved)
            assert one.is_running
        assert len([record for record in caplog.records if "a defect" in record.getMessage()]) == 1
        assert "Traceback" in caplog.text

    @both
    async def test_the_lease_of_another_is_left_alone(
        self, queue: Queue, redis_url: str, witness: Any, lock: Any, stream: Stream, leader: Leader
    ) -> None:
        key = f"{{chasqui:{queue.name}}}:{LOCKS[leader]}"
        await witness.set(key, "somebody else", px=9_000)
        await give_work(queue, leader, 3)
        async with leader(queue.name, redis_url=redis_url):
            await asyncio.sleep(0.5)
            assert await stream.length() == 0
        assert await lock(leader) == b"somebody else"
        await witness.delete(key)

    @both
    async def test_the_next_takes_over_when_the_first_has_gone(
        self, queue: Queue, redis_url: str, lock: Any, stream: Stream, leader: Leader
    ) -> None:
        first = leader(queue.name, redis_url=redis_url, holder_id="first")
        async with first:
            await eventually(lambda: lock(leader))
            async with leader(queue.name, redis_url=redis_url, holder_id="second"):
                await give_work(queue, leader, 3)
                await first.close()

                async def all_moved() -> bool:
                    return await stream.length() == 3

                await eventually(all_moved)
                assert await lock(leader) == b"second"

    @both
    async def test_the_next_takes_over_when_the_first_is_cut_off(
        self, queue: Queue, redis_url: str, lock: Any, stream: Stream, leader: Leader
    ) -> None:
        """As if it was killed: its lease ends by itself."""
        async with Proxy(redis_url) as proxy, leader(queue.name, redis_url=proxy.url, holder_id="first"):
            await eventually(lambda: lock(leader))
            proxy.freeze()
            await give_work(queue, leader, 3)
            began = time.monotonic()
            async with leader(queue.name, redis_url=redis_url, holder_id="second"):

                async def all_moved() -> bool:
                    return await stream.length() == 3

                await eventually(all_moved)
                assert time.monotonic() - began < 10
                assert await lock(leader) == b"second"

    @pytest.mark.parametrize(("secs", "least_ms", "most_ms"), ((5, 3500, 5000), (3600, 8000, 10_000)))
    @both
    async def test_the_length_of_the_lease_can_be_set_up_to_a_bound(
        self, redis_url: str, queue_name: str, witness: Any, leader: Leader, secs: int, least_ms: int, most_ms: int
    ) -> None:
        key = f"{{chasqui:{queue_name}}}:{LOCKS[leader]}"
        async with leader(queue_name, redis_url=redis_url, lock_ttl_secs=secs):
            await eventually(lambda: witness.exists(key))
            assert least_ms < await witness.pttl(key) <= most_ms

    async def test_a_worker_leads_under_its_own_name(self, redis_url: str, queue_name: str, lock: Any) -> None:
        async with Worker(queue_name, RecordingHandler(), redis_url=redis_url, consumer_id="w-1"):
            await eventually(lambda: lock(Promoter))
            await eventually(lambda: lock(Scheduler))
            assert (await lock(Promoter), await lock(Scheduler)) == (b"w-1", b"w-1")
        assert (await lock(Promoter), await lock(Scheduler)) == (None, None)


class TestEnd:
    @both
    async def test_a_wrong_password_is_raised(self, queue_name: str, leader: Leader) -> None:
        """As the worker does: trying again would not mend it."""
        with RedisServer("--requirepass", "right", tcp=True) as server:
            url = server.tcp_url.replace("redis://", "redis://:wrong@")
            with pytest.raises(AuthenticationFailed):
                await asyncio.wait_for(leader(queue_name, redis_url=url).run(), 40)
            with pytest.raises(AuthenticationFailed):
                async with leader(queue_name, redis_url=url):
                    pass

    @both
    async def test_a_wrong_password_is_raised_also_if_the_server_is_away_at_first(
        self, queue_name: str, leader: Leader
    ) -> None:
        with RedisServer("--requirepass", "right", tcp=True) as server:
            server.stop()
            url = server.tcp_url.replace("redis://", "redis://:wrong@")
            for run in (Worker(queue_name, RecordingHandler(), redis_url=url), leader(queue_name, redis_url=url)):
                running = asyncio.create_task(run.run())
                await asyncio.sleep(0.2)
                assert not running.done()
                server.start()
                with pytest.raises(AuthenticationFailed):
                    await asyncio.wait_for(running, 20)
                server.stop()

    async def test_a_password_that_changes_while_they_run_stops_neither_leaders_nor_workers(
        self, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It may be changed back, and a credential provider has the new one: they go on then."""
        with RedisServer("--requirepass", "first", tcp=True) as server:
            url = server.tcp_url.replace("redis://", "redis://:first@")
            handler = RecordingHandler()
            leaders = (Promoter(queue_name, redis_url=url), Scheduler(queue_name, redis_url=url))
            off: dict[str, Any] = {"delayed_enabled": False, "run_scheduler": False}
            async with (
                leaders[0],
                leaders[1],
                Worker(queue_name, handler, redis_url=url, lease_ms=1000, **off) as worker,
                Queue(queue_name, redis_url=url) as queue,
            ):
                await queue.add("later", 1, delay_ms=3000)
                await queue.repeatables.upsert("tick", 2, repeat=RepeatPattern.every(500))
                admin = redis.Redis(port=server.port, password="first")
                admin.config_set("requirepass", "second")
                for kind in ("normal", "pubsub"):
                    admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                await eventually(lambda: caplog.text.count("refused the credentials") >= 3, timeout=30)
                await asyncio.sleep(1.5)
                assert [one.is_running for one in (*leaders, worker)] == [True] * 3
                assert caplog.text.count("refused the credentials") <= 12  # once for each part and connection
                admin.config_set("requirepass", "first")
                await eventually(lambda: handler.has_run(1) and handler.data.count(2) > 1, timeout=30)
                admin.close()

    @both
    async def test_a_server_that_is_away_is_waited_for(self, queue_name: str, leader: Leader) -> None:
        with RedisServer() as server:
            server.stop()
            async with leader(queue_name, redis_url=server.url, holder_id="me") as one:
                await asyncio.sleep(0.2)
                assert one.is_running
                server.start()
                lock = f"{{chasqui:{queue_name}}}:{LOCKS[leader]}"
                await eventually(lambda: server.execute("GET", lock) == b"me")
                server.restart()
                await eventually(lambda: server.execute("GET", lock) == b"me")

    @both
    async def test_a_standalone_leader_ends_at_once_also_while_the_server_is_away(
        self, queue_name: str, leader: Leader
    ) -> None:
        async with leader(queue_name, redis_url="unix:///nowhere/redis.sock"):
            await asyncio.sleep(0.1)
            began = time.monotonic()
        assert time.monotonic() - began < 3

    @both
    @pytest.mark.parametrize(
        ("options", "kind", "complaint"),
        (
            ({"holder_id": ""}, InvalidArgument, "holder_id '' must be printable and not blank"),
            ({"holder_id": " "}, InvalidArgument, "holder_id"),
            ({"holder_id": "a\nb"}, InvalidArgument, "holder_id"),
            ({"holder_id": 5}, InvalidType, "holder_id must be a str, not int 5"),
            ({"lock_ttl_secs": 0}, InvalidArgument, "lock_ttl_secs is 0, must be at least 1"),
            ({"redis_url": 5}, InvalidType, "redis_url must be a str, not int"),
            ({"redis_url": "nonsense://"}, InvalidArgument, "redis_url"),
        ),
    )
    def test_a_bad_option_is_named(self, leader: Leader, options: dict[str, Any], kind: Any, complaint: str) -> None:
        with pytest.raises(kind, match=complaint):
            leader("emails", **options)
        with pytest.raises(InvalidArgument, match="queue name"):
            leader("no}")
