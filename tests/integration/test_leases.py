"""Leases: which worker may run jobs, on slow lines, after outages, under names that others have."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import ConsumerInUse, InvalidArgument, Queue, Worker
from pychasqui._redis.broker import Broker
from pychasqui._redis.keys import Keys
from pychasqui._worker import reclaimer as reclaimer_module
from pychasqui._worker.lease_renewal import LeaseRenewal
from tests.support.gate import Gate
from tests.support.handlers import RecordingHandler
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

MakeWorker = Callable[..., Worker]


async def add(queue: Queue, count: int) -> None:
    await queue.add_bulk([{"name": "run", "data": number} for number in range(count)])


class TestSlowLines:
    @pytest.mark.parametrize("trip_ms", (200, 500))
    async def test_a_lease_holds_with_a_round_trip_of_up_to_half_of_it(
        self, trip_ms: int, proxy: Proxy, queue: Queue, make_worker: MakeWorker
    ) -> None:
        runs, others = RecordingHandler(2.0), RecordingHandler()
        proxy.delay(trip_ms / 2)
        await add(queue, 5)
        async with make_worker(runs, redis_url=proxy.url, lease_ms=1000):
            await eventually(lambda: runs.begun.total() == 5, timeout=40)
            async with make_worker(others, lease_ms=1000):
                await asyncio.sleep(2.5)
        assert runs.begun == Counter(range(5))
        assert not others.begun

    async def test_a_lease_that_the_round_trip_cannot_hold_is_refused_and_others_get_the_jobs(
        self, proxy: Proxy, queue: Queue, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs, others = RecordingHandler(), RecordingHandler()
        proxy.delay(150)
        far = make_worker(runs, redis_url=proxy.url, lease_ms=300)
        running = asyncio.create_task(far.run())
        await eventually(lambda: "set lease_ms to at least" in caplog.text, timeout=40)
        await add(queue, 5)
        async with make_worker(others, lease_ms=300):
            await eventually(lambda: others.begun.total() == 5)
        assert not runs.begun
        proxy.delay(0)
        await eventually(lambda: far._started is not None and far._started.done(), timeout=40)
        await far.close()
        await running

    async def test_a_line_that_becomes_too_slow_leaves_nothing_stuck(
        self, proxy: Proxy, queue: Queue, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs, others = RecordingHandler(), RecordingHandler()
        async with make_worker(runs, redis_url=proxy.url, lease_ms=600, read_block_ms=1000):
            proxy.delay(300)
            await eventually(lambda: "set lease_ms to at least" in caplog.text, timeout=40)
            await add(queue, 5)
            async with make_worker(others, lease_ms=600):
                await eventually(lambda: (runs.begun + others.begun).total() == 5, timeout=40)
            proxy.delay(0)
            await add(queue, 5)
            await eventually(lambda: (runs.begun + others.begun).total() == 10, timeout=40)
        assert set((runs.begun + others.begun).values()) == {2}

    async def test_a_worker_that_closes_leaves_no_name_behind_though_a_renewal_is_on_its_way(
        self,
        proxy: Proxy,
        make_worker: MakeWorker,
        witness: redis.asyncio.Redis,
        queue_name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The renewal travels for 150 ms. What the worker sends on its other connection is there at once.

        A busy machine answers within the lease: a renewal that is given up may still arrive after the worker has left.
        """
        sent, renew = threading.Event(), Broker.renew_lease_and_held_entries

        async def renew_and_note(self: Broker, *words: Any, **options: Any) -> Any:
            sent.set()
            return await renew(self, *words, **options)

        monkeypatch.setattr(Broker, "renew_lease_and_held_entries", renew_and_note)
        async with make_worker(RecordingHandler(), redis_url=proxy.url, lease_ms=3000, read_block_ms=10_000):
            proxy.delay(150)
            await asyncio.sleep(0.7)  # until the read that blocks is at the server
            sent.clear()
            await eventually(sent.is_set, every=0.001)
            await asyncio.sleep(0.01)  # until it is in the hands of the proxy
            proxy.delay(0)
        await asyncio.sleep(0.3)
        assert await witness.xinfo_consumers(Keys(queue_name).stream, "default") == []
        assert await witness.zrange(Keys(queue_name).workers, 0, -1) == []


class TestOutages:
    async def test_no_running_job_is_started_again_after_an_outage(self) -> None:
        """Every lease is over by far when Redis is back, and each of 20 workers could take the others for dead."""
        runs = RecordingHandler(10.0)
        options: dict[str, Any] = {"lease_ms": 300, "concurrency": 1, "run_scheduler": False}
        with RedisServer("--appendonly", "yes") as server:
            async with Queue("outage", redis_url=server.url) as queue, AsyncExitStack() as stack:
                await add(queue, 20)
                for _ in range(20):
                    await stack.enter_async_context(Worker(queue.name, runs, redis_url=server.url, **options))
                await eventually(lambda: runs.begun.total() == 20)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(4.0)
                await asyncio.to_thread(server.start)
                await asyncio.sleep(5.0)
        assert runs.begun == Counter(range(20))


class TestNames:
    async def test_a_name_that_is_in_use_is_refused(self, make_worker: MakeWorker) -> None:
        async with make_worker(RecordingHandler(), consumer_id="pod-0", lease_ms=600):
            with pytest.raises(ConsumerInUse, match="'pod-0' is in use by another living worker"):
                await make_worker(RecordingHandler(), consumer_id="pod-0", lease_ms=600).run()

    async def test_one_of_several_workers_that_start_in_the_same_moment_has_the_name(
        self, make_worker: MakeWorker, queue: Queue
    ) -> None:
        for number in range(3):
            runs = RecordingHandler(0.2)
            name = f"pod-{number}"
            workers = [make_worker(runs, consumer_id=name, lease_ms=1000, concurrency=2) for _ in range(4)]
            running = [asyncio.create_task(worker.run()) for worker in workers]
            while sum(task.done() for task in running) < 3:
                await asyncio.sleep(0.05)
            await add(queue, 5)
            while runs.begun.total() < 5:
                await asyncio.sleep(0.05)
            for worker in workers:
                await worker.close()
            assert runs.begun == Counter(range(5))
            ends = await asyncio.gather(*running, return_exceptions=True)
            assert sorted(type(end).__name__ for end in ends) == ["ConsumerInUse"] * 3 + ["NoneType"]

    async def test_a_start_that_outlasts_its_claim_does_not_run_beside_another(
        self, make_worker: MakeWorker, proxy: Proxy, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        claim = Keys(queue_name).name_claim("default", "pod-0")
        proxy.delay(50)
        slow = make_worker(RecordingHandler(), redis_url=proxy.url, consumer_id="pod-0", lease_ms=800)
        starting = asyncio.create_task(slow.run())
        await eventually(lambda: witness.exists(claim), every=0.005, timeout=30)
        proxy.freeze()
        assert slow._started is not None
        assert not slow._started.done()
        async with make_worker(RecordingHandler(), consumer_id="pod-0", lease_ms=800):
            proxy.thaw()
            with pytest.raises(ConsumerInUse):
                await asyncio.wait_for(starting, 30)
        assert not slow._started.done()

    async def test_a_worker_that_is_closed_while_it_starts_leaves_no_name(
        self, make_worker: MakeWorker, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        """Closed after each of the first milliseconds: before the claim, behind it, with a lease, and once started."""
        keys = Keys(queue_name)
        for ms in range(16):
            worker = make_worker(RecordingHandler(), consumer_id="pod-0")
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(ms / 1000)
            await worker.close()
            await asyncio.wait({running})
            assert await witness.exists(keys.name_claim("default", "pod-0"), keys.worker("pod-0")) == 0, (
                f"after {ms} ms"
            )
            assert await witness.zrange(keys.workers_of("default"), 0, -1) == [], f"after {ms} ms"
            if await witness.exists(keys.stream):
                assert await witness.xinfo_consumers(keys.stream, "default") == [], f"after {ms} ms"

    async def test_a_start_that_is_given_up_while_it_waits_for_a_name_leaves_the_others_lease(
        self, make_worker: MakeWorker, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        keys = Keys(queue_name)
        async with make_worker(RecordingHandler(), consumer_id="pod-0"):
            await witness.delete(keys.name_claim("default", "pod-0"))  # as after a week
            second = make_worker(RecordingHandler(), consumer_id="pod-0")
            waiting = asyncio.create_task(second.run())
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await second.close()
            assert await witness.zrange(keys.workers_of("default"), 0, -1) == [b"pod-0"]
            assert await witness.exists(keys.worker("pod-0"))

    async def test_a_claim_without_an_end_keeps_no_worker_out(
        self, make_worker: MakeWorker, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        claim = Keys(queue_name).name_claim("default", "pod-0")
        await witness.set(claim, "foreign")
        async with asyncio.timeout(30), make_worker(RecordingHandler(), consumer_id="pod-0") as worker:
            assert worker.is_running
            assert await witness.get(claim) != b"foreign"

    async def test_the_name_of_a_killed_process_is_free_when_its_lease_ends(
        self, make_worker: MakeWorker, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        seconds, micros = await witness.time()
        await witness.zadd(Keys(queue_name).workers, {"pod-0": seconds * 1000 + micros // 1000 + 800})
        start = monotonic()
        async with make_worker(RecordingHandler(), consumer_id="pod-0", lease_ms=800):
            assert 0.7 < monotonic() - start < 6.0

    async def test_the_name_of_a_closed_worker_is_free_at_once(self, make_worker: MakeWorker) -> None:
        async with make_worker(RecordingHandler(), consumer_id="pod-0"):
            pass
        start = monotonic()
        async with make_worker(RecordingHandler(), consumer_id="pod-0"):
            assert monotonic() - start < 5.0  # sooner than by a lease

    async def test_two_groups_may_use_the_same_name(self, make_worker: MakeWorker, queue: Queue) -> None:
        async with (
            make_worker(RecordingHandler(), consumer_id="pod-0"),
            make_worker(RecordingHandler(), consumer_id="pod-0", group="other"),
            make_worker(RecordingHandler(), consumer_id="pod-1", group="other"),
        ):
            await eventually(lambda: _names(queue, {"pod-0", "pod-1"}))


async def _names(queue: Queue, wanted: set[str]) -> bool:
    return {worker.consumer_id for worker in await queue.workers()} == wanted


class TestForeignLeases:
    async def test_a_lease_without_end_does_not_keep_a_group_from_being_made(
        self,
        make_worker: MakeWorker,
        queue: Queue,
        witness: redis.asyncio.Redis,
        queue_name: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        runs = RecordingHandler()
        await add(queue, 1)
        await witness.zadd(Keys(queue_name).workers, {"ghost": float("inf")})
        async with asyncio.timeout(40), make_worker(runs, lease_ms=600):
            await eventually(lambda: runs.begun.total() == 1)
            await eventually(lambda: "'ghost' has a lease that ends more than 1 h from now" in caplog.text)

    @pytest.mark.parametrize("has_started", (False, True), ids=("a worker that starts", "a worker that runs"))
    async def test_a_foreign_lease_that_holds_up_the_group_is_named_in_the_log_and_by_readyz(
        self,
        make_worker: MakeWorker,
        queue: Queue,
        witness: redis.asyncio.Redis,
        queue_name: str,
        caplog: pytest.LogCaptureFixture,
        has_started: bool,
    ) -> None:
        """It ends in half an hour, as the lease of a worker may, so it is believed until then."""
        keys, runs = Keys(queue_name), RecordingHandler()
        worker = make_worker(runs, lease_ms=600, metrics_port=0)
        await queue.pause()
        running = asyncio.create_task(worker.run()) if has_started else None
        if has_started:
            await eventually(lambda: worker._started is not None and worker._started.done())
        await witness.zadd(keys.workers, {"ghost\n": time.time() * 1000 + 1_800_000})
        await add(queue, 1)
        if has_started:
            await witness.xgroup_destroy(keys.stream, "default")
        await queue.resume()
        running = running or asyncio.create_task(worker.run())
        await eventually(lambda: "waits for 'ghost\\n', whose lease ends in 1" in caplog.text)
        assert "waits for 'ghost\\n', whose lease ends in 1" in await _readyz(worker)
        await witness.zrem(keys.workers, "ghost\n")
        await eventually(lambda: _is_ready(worker))
        await eventually(lambda: runs.begun.total() == 1)
        assert caplog.text.count("waits for 'ghost") == 1
        await worker.close()
        await running

    async def test_a_group_does_not_forget_the_dead_workers_of_another(
        self,
        make_worker: MakeWorker,
        stream: Stream,
        queue: Queue,
        witness: redis.asyncio.Redis,
        queue_name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(reclaimer_module, "SWEEP_S", 0.1)
        keys, runs = Keys(queue_name), RecordingHandler()
        await witness.xgroup_create(keys.stream, "other", "0", mkstream=True)
        await add(queue, 1)
        await witness.xreadgroup("other", "dead", {keys.stream: ">"})
        await witness.zadd(keys.workers_of("other"), {"dead": 1})
        async with make_worker(RecordingHandler(0.2), lease_ms=300):
            await asyncio.sleep(2)
            assert await witness.zscore(keys.workers_of("other"), "dead") == 1
        await witness.xgroup_destroy(keys.stream, "other")
        await witness.delete(keys.workers_of("other"))
        assert not runs.begun


async def _readyz(worker: Worker) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.metrics_port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2].strip()


async def _is_ready(worker: Worker) -> bool:
    return await _readyz(worker) == "ok"


class TestDeaths:
    async def test_a_heartbeat_that_cannot_begin_ends_the_start(
        self, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def out_of_descriptors() -> asyncio.Runner:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(asyncio, "Runner", out_of_descriptors)
        async with asyncio.timeout(40):
            with pytest.raises(OSError, match="Too many open files"):
                await make_worker(RecordingHandler()).run()

    async def test_a_heartbeat_that_dies_later_ends_its_worker(
        self, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        worker = make_worker(RecordingHandler(), lease_ms=300)
        running = asyncio.create_task(worker.run())
        await eventually(lambda: worker._started is not None and worker._started.done())
        monkeypatch.setattr(LeaseRenewal, "_take_entries_due_for_renewal", lambda *_: 1 / 0)
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await asyncio.wait_for(running, 40)
        assert "the heartbeat of worker" in caplog.text


@pytest.mark.parametrize("options", ({"claim_min_idle_ms": 1}, {"lease_ms": 299}, {"lease_ms": 3_600_001}))
def test_times_that_no_lease_can_hold_are_refused(make_worker: MakeWorker, options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        make_worker(RecordingHandler(), **options)


class TestManyWorkers:
    async def test_the_jobs_of_a_dead_worker_run_again_as_soon_as_among_few(
        self, queue: Queue, make_worker: MakeWorker, witness: redis.asyncio.Redis
    ) -> None:
        """The others are their leases. No worker of a thousand looks at all of them in every scan."""
        runs, keys = RecordingHandler(), Keys(queue.name)
        await witness.xgroup_create(keys.stream, "default", "0", mkstream=True)
        await add(queue, 3)
        await witness.xreadgroup("default", "dead", {keys.stream: ">"})
        now_ms = int(time.time() * 1000) + 1
        await witness.zadd(keys.workers, {f"other-{number}": now_ms + 600_000 for number in range(999)})
        await witness.zadd(keys.workers, {"dead": now_ms})
        async with make_worker(runs, lease_ms=600):
            await eventually(lambda: runs.begun == Counter(range(3)), timeout=20)
            await eventually(lambda: _is_gone(witness, keys.workers, "dead"))

    async def test_a_job_that_a_closing_worker_hands_back_starts_at_one_of_many_others(
        self, queue: Queue, make_worker: MakeWorker
    ) -> None:
        """Long before its lease would end. More than eight share the looks at what others have left."""
        gate, runs = Gate(), RecordingHandler()
        closing = make_worker(gate, shutdown_deadline_s=0.001, lease_ms=60_000)
        async with AsyncExitStack() as stack:
            async with closing:
                await queue.add("run", 1)
                await eventually(lambda: gate.running)
                others = [make_worker(runs, lease_ms=3000) for _ in range(10)]
                await asyncio.gather(*map(stack.enter_async_context, others))
            await eventually(lambda: runs.begun == Counter([1]), timeout=20)


async def _is_gone(witness: redis.asyncio.Redis, key: str, member: str) -> bool:
    return await witness.zscore(key, member) is None
