"""Running jobs: handlers of every kind, lanes, prefetch, workers beside each other, and how a worker ends."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sized
from contextlib import AsyncExitStack
from contextvars import ContextVar
from time import monotonic, thread_time
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Closed, ConnectionLost, Job, Queue, RetryPolicy, Worker
from tests.support.acl import refusals
from tests.support.gate import Gate
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually, first_below

SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


@pytest.fixture
async def stream(witness: redis.asyncio.Redis, queue_name: str) -> Stream:
    return Stream(witness, queue_name)


async def add_numbers(queue: Queue, count: int) -> list[str]:
    return [job.id for job in await queue.add_bulk({"name": "count", "data": number} for number in range(count))]


class TestHandlers:
    async def test_a_handler_gets_the_job_as_it_was_added(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        jobs: list[Job] = []

        async def handle(job: Job) -> None:
            jobs.append(job)

        data = {"to": "ada", "n": [1, 2.5, None, True], "raw": b"\0\xff", "nested": {"ü": {"x": []}}}
        async with make_worker(handle):
            added = await queue.add("send", data)
            await queue.add("")
            await eventually(lambda: len(jobs) == 2)
        assert isinstance(jobs[0], Job)
        assert (jobs[0].id, jobs[0].name, jobs[0].data) == (added.id, "send", data)
        assert (jobs[0].attempt, jobs[0].attempts_made, jobs[0].created_at_ms) == (0, 0, added.created_at_ms)
        assert (jobs[1].name, jobs[1].data) == ("", None)
        assert await stream.is_settled()

    async def test_every_kind_of_callable_is_a_handler(self, queue: Queue, redis_url: str) -> None:
        ran: list[str] = []

        async def coroutine(job: Job) -> None:
            ran.append(job.data)

        def function(job: Job) -> None:
            ran.append(job.data)

        class Callables:
            async def method(self, job: Job) -> None:
                ran.append(job.data)

            def plain_method(self, job: Job) -> None:
                ran.append(job.data)

            async def __call__(self, job: Job) -> None:
                ran.append(job.data)

        async def with_more(more: str, job: Job) -> None:
            ran.append(job.data)

        handlers: dict[str, Any] = {
            "coroutine": coroutine,
            "function": function,
            "method": Callables().method,
            "plain-method": Callables().plain_method,
            "object": Callables(),
            "partial": functools.partial(with_more, "more"),
            "lambda": lambda job: ran.append(job.data),
        }
        for kind, handler in handlers.items():
            name = f"{queue.name}-{kind}"
            async with Queue(name, redis_url=redis_url) as own, Worker(name, handler, redis_url=redis_url):
                await own.add("run", kind)
                await eventually(functools.partial(_has, ran, kind))
        assert sorted(ran) == sorted(handlers)

    async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """A lambda around a handler, or a decorator that forgot to be async: the job must not be lost in silence."""
        ran = []

        async def handle(job: Job, more: str) -> None:
            await asyncio.sleep(0)
            ran.append((job.data, more))

        async with make_worker(lambda job: handle(job, "more")):
            await queue.add("run", 1)
            await eventually(stream.is_settled)
        assert ran == [(1, "more")]

    async def test_the_returned_value_of_a_handler_does_not_matter(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        ran: list[int] = []

        async def handle(job: Job) -> Any:
            ran.append(job.data)
            return object() if job.data else ValueError("returned, not raised")

        async with make_worker(handle):
            await add_numbers(queue, 10)
            await eventually(stream.is_settled)
        assert sorted(ran) == list(range(10))
        assert await queue.counts() == (0, 0, 0, 0, 0)

    async def test_plain_functions_run_in_threads_beside_each_other(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        meeting = threading.Barrier(8, timeout=40)
        threads: set[str] = set()

        def handle(job: Job) -> None:
            meeting.wait()
            threads.add(threading.current_thread().name)

        async with make_worker(handle, concurrency=8):
            await add_numbers(queue, 16)
            await eventually(stream.is_settled)
        assert len(threads) == 8
        assert threading.main_thread().name not in threads

    async def test_a_plain_function_that_blocks_does_not_block_the_loop(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        async with make_worker(lambda job: time.sleep(0.3), concurrency=2):

            async def longest_gap() -> float:
                await add_numbers(queue, 2)
                await eventually(stream.pending)
                return await _longest_gap(until=stream.is_settled, clock=monotonic)

            await first_below(0.25, longest_gap)

    async def test_a_timeout_inside_a_handler_is_the_handlers_own(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        timeouts = 0

        async def handle(job: Job) -> None:
            nonlocal timeouts
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            except TimeoutError:
                timeouts += 1
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))

        async with make_worker(handle, concurrency=4):
            await add_numbers(queue, 20)
            await eventually(stream.is_settled)
        assert timeouts == 20

    @pytest.mark.parametrize("delay_ms", (0, 1, 2))
    async def test_a_cancellation_that_a_handler_leaves_behind_does_not_end_the_worker(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, delay_ms: int
    ) -> None:
        """A hand-made timeout that was not cancelled: it fires when its job has long been done."""
        loop, ran = asyncio.get_running_loop(), Counter[int]()

        async def handle(job: Job) -> None:
            ran[job.data] += 1
            task = asyncio.current_task()
            assert task is not None
            if job.attempt == 0:
                loop.call_later(delay_ms / 1000, task.cancel)

        async with make_worker(handle, concurrency=3, retry=RetryPolicy(initial_ms=1, jitter_ms=1)) as worker:
            for start in range(0, 200, 5):
                await queue.add_bulk({"name": "count", "data": start + number} for number in range(5))
            await eventually(lambda: len(ran) == 200)
            await eventually(stream.is_settled)
            assert worker.is_running

    @pytest.mark.parametrize("kind", ("async", "plain"))
    async def test_a_context_variable_that_one_job_sets_the_next_does_not_see(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, kind: str
    ) -> None:
        before: list[str] = []

        def handle(job: Job) -> None:
            before.append(SEEN.get())
            SEEN.set(f"by job {job.data}")

        async def handle_async(job: Job) -> None:
            handle(job)
            await asyncio.sleep(0)
            assert SEEN.get() == f"by job {job.data}"

        async with make_worker(handle if kind == "plain" else handle_async, concurrency=1):
            await add_numbers(queue, 20)
            await eventually(stream.is_settled)
        assert before == ["nothing"] * 20

    @pytest.mark.parametrize("concurrency", (1, 10))
    async def test_context_variables_set_where_a_worker_starts_are_seen_by_its_jobs(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, concurrency: int
    ) -> None:
        """The jobs arrive alone, in a batch, and over a connection that was opened again."""
        seen: list[str] = []

        async def handle(job: Job) -> None:
            seen.append(SEEN.get())
            await asyncio.sleep(0)

        SEEN.set("outside")
        async with make_worker(handle, concurrency=concurrency) as worker:
            SEEN.set("later")
            await queue.add("alone")
            await eventually(lambda: len(seen) == 1)
            await add_numbers(queue, 5)
            await eventually(lambda: len(seen) == 6)
            assert worker._components is not None
            worker._components.reading._connection.drop_socket(ConnectionLost("for a test"))
            await queue.add("alone")
            await eventually(lambda: len(seen) == 7)
        assert seen == ["outside"] * 7

    async def test_a_mebibyte_of_data_arrives_whole(self, queue: Queue, make_worker: Callable[..., Worker]) -> None:
        got: list[Any] = []

        async def handle(job: Job) -> None:
            got.append(job.data)

        big = b"x" * (2**20 - 100)
        async with make_worker(handle):
            await queue.add_bulk({"name": "big", "data": big} for _ in range(5))
            await eventually(lambda: len(got) == 5)
        assert all(data == big for data in got)


class TestLanes:
    @pytest.mark.parametrize("concurrency", (1, 3, 100))
    async def test_the_concurrency_is_reached_and_never_exceeded(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, concurrency: int
    ) -> None:
        gate = Gate()
        await add_numbers(queue, 2 * concurrency + 5)
        async with make_worker(gate, concurrency=concurrency):
            await eventually(lambda: gate.running == concurrency)
            await asyncio.sleep(0.05)  # would be enough for one too many
            gate.opened.set()
            await eventually(stream.is_settled)
        assert gate.peak == concurrency
        assert sorted(gate.finished) == list(range(2 * concurrency + 5))

    async def test_one_lane_runs_jobs_in_the_order_of_their_adds(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        order: list[int] = []

        async def handle(job: Job) -> None:
            order.append(job.data)

        async with make_worker(handle, concurrency=1):
            for number in range(100):
                await queue.add("count", number)
            await queue.add_bulk({"name": "count", "data": number} for number in range(100, 2600))
            await eventually(stream.is_settled)
        assert order == list(range(2600))

    async def test_a_handler_that_never_awaits_starves_no_other_task(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """150 jobs of 5 ms of pure work: others get their turn, and what is done is acked meanwhile."""
        ran = 0

        async def handle(job: Job) -> None:
            nonlocal ran
            end = monotonic() + 0.005
            while monotonic() < end:
                pass
            ran += 1

        await add_numbers(queue, 150)
        async with make_worker(handle, concurrency=50):
            lagging: list[int] = []

            async def look() -> bool:
                lagging.append(ran - (150 - await stream.length()))
                return await stream.is_settled()

            assert await _longest_gap(until=look) < 0.15
        assert ran == 150
        assert max(lagging) < 50

    async def test_a_flood_of_instant_jobs_starves_no_other_task(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        async def handle(job: Job) -> None:
            pass

        await add_numbers(queue, 20_000)
        async with make_worker(handle):
            assert await _longest_gap(until=stream.is_settled) < 0.25

    async def test_a_slow_job_holds_up_only_its_own_lane(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        quick: list[int] = []

        async def handle(job: Job) -> None:
            if job.name == "slow":
                await gate(job)
            else:
                quick.append(job.data)

        async with make_worker(handle, concurrency=2):
            await queue.add("slow", "slow")
            await eventually(lambda: gate.running == 1)
            await add_numbers(queue, 500)
            try:
                await eventually(lambda: len(quick) == 500)
            finally:
                gate.opened.set()
                await eventually(stream.is_settled)

    @pytest.mark.parametrize("busy", (5, 6, 9))
    async def test_the_lanes_that_are_left_take_what_comes_later(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, busy: int
    ) -> None:
        gate = Gate()
        await add_numbers(queue, busy)
        async with make_worker(gate, concurrency=10):
            await eventually(lambda: gate.running == busy)
            await add_numbers(queue, 10 - busy)
            try:
                await eventually(lambda: gate.running == 10)
            finally:
                gate.opened.set()
                await eventually(stream.is_settled)


class TestManyWorkers:
    async def test_jobs_added_before_the_first_worker_came_are_run(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        await add_numbers(queue, 100)
        async with make_worker(gate):
            await eventually(stream.is_settled)
        assert sorted(gate.finished) == list(range(100))

    async def test_two_workers_share_the_jobs_and_each_runs_once(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        ran: list[tuple[str, int]] = []

        def handler_of(worker: str) -> Callable[[Job], Any]:
            async def handle(job: Job) -> None:
                await asyncio.sleep(0.005)
                ran.append((worker, job.data))

            return handle

        async with make_worker(handler_of("a"), concurrency=10), make_worker(handler_of("b"), concurrency=10):
            await add_numbers(queue, 1000)
            await eventually(stream.is_settled)
        assert sorted(number for _, number in ran) == list(range(1000))
        shares = Counter(worker for worker, _ in ran)
        assert min(shares.values()) > 200, shares

    async def test_ten_workers_of_one_process_share_the_jobs(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with AsyncExitStack() as workers:
            for _ in range(10):
                await workers.enter_async_context(make_worker(gate, concurrency=5))
            await add_numbers(queue, 2000)
            await eventually(lambda: len(gate.finished) == 2000)
        assert sorted(gate.finished) == list(range(2000))
        assert await stream.is_settled()
        assert await stream.consumers() == []

    async def test_a_second_worker_halves_the_time_of_slow_jobs(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """F2, ten times as fast: 60 jobs of 50 ms on two workers with one lane each."""
        ran: list[int] = []

        async def handle(job: Job) -> None:
            ran.append(job.data)
            await asyncio.sleep(0.05)

        async def all_run() -> float:
            ran.clear()
            start = monotonic()
            await add_numbers(queue, 60)
            await eventually(stream.is_settled)
            assert sorted(ran) == list(range(60))
            return monotonic() - start

        async with make_worker(handle, concurrency=1), make_worker(handle, concurrency=1):
            await first_below(0.75 * 60 * 0.05, all_run)

    @pytest.mark.parametrize("last_ms", (0, 100))
    async def test_a_worker_that_was_fast_leaves_slow_jobs_to_others(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, last_ms: int
    ) -> None:
        """A read that waits must not ask for what the speed before it allowed, nor must the next one; also if the last
        fast job still ran when it was sent."""
        ran: list[str] = []

        def handler_of(worker: str) -> Callable[[Job], Any]:
            async def handle(job: Job) -> None:
                if job.name == "slow":
                    ran.append(worker)
                    await asyncio.sleep(0.05)
                elif job.data >= 2998:
                    await asyncio.sleep(last_ms / 1000)

            return handle

        async with make_worker(handler_of("a"), concurrency=1), make_worker(handler_of("b"), concurrency=1):
            await queue.add_bulk({"name": "fast", "data": number} for number in range(3000))
            await eventually(stream.is_settled)
            await asyncio.sleep(0.3)  # the idle spell that both workers spend in a blocked read
            await queue.add_bulk({"name": "slow", "data": number} for number in range(30))
            await eventually(stream.is_settled)
        shares = Counter(ran)
        assert sum(shares.values()) == 30
        assert len(shares) == 2, shares
        assert min(shares.values()) >= 10, shares

    async def test_a_worker_whose_lanes_finish_together_soon_holds_no_more_than_it_starts_soon(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """20 lanes that finish in one moment look fast. With jobs of 0.6 s they start 3 in 100 ms, and may hold 3."""
        running, started_at, unstarted = 0, 0.0, []

        async def handle(job: Job) -> None:
            nonlocal running, started_at
            running, started_at = running + 1, monotonic()
            await asyncio.sleep(0.6)
            running -= 1

        await add_numbers(queue, 60)
        async with make_worker(handle, concurrency=20):

            async def look() -> bool:
                pending = await stream.pending()
                if running == 20 and monotonic() - started_at > 0.45:
                    unstarted.append(pending - running)
                return await stream.is_settled()

            await eventually(look, timeout=40)
        assert max(unstarted) <= 10, max(unstarted)

    async def test_a_worker_that_comes_back_under_its_old_name_runs_what_it_held(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        """As a process with a fixed consumer_id that was killed and started again."""
        ran: list[int] = []

        async def handle(job: Job) -> None:
            ran.append(job.data)

        await witness.xgroup_create(stream.key, "default", "0", mkstream=True)
        await add_numbers(queue, 5)
        await witness.xreadgroup("default", "me", {stream.key: ">"}, count=3)
        async with make_worker(handle, consumer_id="me", lease_ms=500):
            try:
                await eventually(lambda: len(ran) == 5)
            finally:
                await stream.clear()
        assert sorted(ran) == list(range(5))

    @pytest.mark.parametrize("may_listen", (True, False))
    async def test_a_user_confined_to_the_queue_can_work(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        stream: Stream,
        witness: Any,
        redis_url: str,
        may_listen: bool,
    ) -> None:
        """S8, S10: no key but the queue's own is ever touched. Its channels only make delayed jobs more punctual."""
        await witness.execute_command("ACL", "LOG", "RESET")
        own = f"{{chasqui:{queue.name}}}:*"
        channels = ("resetchannels", f"&{own}") if may_listen else ("resetchannels",)
        await witness.execute_command("ACL", "SETUSER", "w", "reset", "on", ">pw", f"~{own}", *channels, "+@all")
        gate = Gate()
        gate.opened.set()
        url = f"{redis_url}?username=w&password=pw"
        async with make_worker(gate, redis_url=url), Queue(queue.name, redis_url=url) as confined:
            await add_numbers(confined, 20)
            await confined.add("later", 20, delay_ms=100, job_id="one")
            await confined.upsert_repeatable_job("tick", 21, repeat={"kind": "every", "interval_ms": 100}, limit=1)
            await eventually(lambda: sorted(gate.finished) == list(range(22)))
            await eventually(stream.is_settled)
        refused = {entry["reason"] for entry in await refusals(witness)}
        assert refused == (set() if may_listen else {"channel"})
        await witness.execute_command("ACL", "DELUSER", "w")


class TestEnd:
    async def test_a_worker_is_running_from_its_start_to_its_close(self, make_worker: Callable[..., Worker]) -> None:
        worker = make_worker(Gate())
        states = [(worker.is_running, worker.is_closed)]
        async with worker:
            states.append((worker.is_running, worker.is_closed))
        states.append((worker.is_running, worker.is_closed))
        assert states == [(False, False), (True, False), (False, True)]
        assert worker.name == worker.queue_name

    async def test_close_ends_run(self, make_worker: Callable[..., Worker]) -> None:
        worker = make_worker(Gate())
        running = asyncio.create_task(worker.run())
        await eventually(lambda: worker.is_running)
        await worker.close()
        await asyncio.wait_for(running, 40)
        await worker.close()
        assert (worker.is_running, worker.is_closed) == (False, True)

    async def test_a_second_run_waits_for_the_first(self, make_worker: Callable[..., Worker]) -> None:
        worker = make_worker(Gate())
        runs = [asyncio.create_task(worker.run()) for _ in range(3)]
        await eventually(lambda: worker.is_running)
        await asyncio.sleep(0.05)
        assert not any(run.done() for run in runs)
        await worker.close()
        await asyncio.wait_for(asyncio.gather(*runs), 40)

    async def test_run_inside_the_block_of_a_worker_waits_for_its_end(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(Gate()) as worker:
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(0.05)
            assert not running.done()
            assert worker.is_running
        await asyncio.wait_for(running, 40)
        assert worker.is_closed

    async def test_cancelling_run_stops_the_worker(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        worker = make_worker(gate)
        running = asyncio.create_task(worker.run())
        await add_numbers(queue, 3)
        await eventually(lambda: gate.running == 3)
        running.cancel()
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert worker.is_closed
        assert len(gate.finished) == 3
        assert await stream.is_settled()

    async def test_a_closed_worker_cannot_be_started_again(self, make_worker: Callable[..., Worker]) -> None:
        worker = make_worker(Gate())
        async with worker:
            pass
        with pytest.raises(Closed):
            await worker.run()
        with pytest.raises(Closed):
            await worker.__aenter__()

    async def test_an_idle_worker_closes_at_once(self, make_worker: Callable[..., Worker], stream: Stream) -> None:
        async with make_worker(Gate(), read_block_ms=60_000) as worker:
            await eventually(lambda: _is_blocked(stream))
            start = monotonic()
            await worker.close()
            assert monotonic() - start < 10

    async def test_a_job_added_right_after_close_is_run_by_the_next_worker_at_once(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        """Spec 10.A5: an abandoned read must not swallow it."""
        first, second = Gate(), Gate()
        second.opened.set()
        async with make_worker(second) as next_worker:
            for number in range(5):
                async with make_worker(first, read_block_ms=60_000):
                    pass
                await queue.add("count", number)
                await eventually(functools.partial(_has, second.finished, number), timeout=4)
            assert next_worker.is_running
        assert first.jobs == []
        assert await stream.is_settled()

    async def test_running_jobs_are_finished_and_acked_before_the_block_ends(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        async with make_worker(gate, concurrency=10):
            await add_numbers(queue, 10)
            await eventually(lambda: gate.running == 10)
            asyncio.get_running_loop().call_later(0.1, gate.opened.set)
        assert len(gate.finished) == 10
        assert await stream.is_settled()

    async def test_unstarted_jobs_are_left_to_the_next_worker_at_once(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        attempts: list[tuple[int, int]] = []

        async def handle(job: Job) -> None:
            if job.name == "slow":
                await gate(job)

        async def note(job: Job) -> None:
            attempts.append((job.data, job.attempt))

        await queue.add_bulk({"name": "fast", "data": number} for number in range(2000))
        await queue.add_bulk({"name": "slow", "data": number} for number in range(30))
        async with make_worker(handle, concurrency=2):
            await eventually(lambda: gate.running == 2)
            assert await stream.pending() > 2, "it has read ahead, because it was fast"
            asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        assert sorted(gate.finished) == [0, 1]
        assert await stream.length() == 28
        start = monotonic()
        async with make_worker(note):
            await eventually(stream.is_settled)
        assert monotonic() - start < 5  # sooner than by a lease
        assert sorted(attempts) == [(number, 0) for number in range(2, 30)]

    async def test_a_handler_may_close_its_own_worker(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        finished: list[Any] = []
        worker: Worker

        async def handle(job: Job) -> None:
            await worker.close()
            await asyncio.sleep(0.01)
            finished.append(job.data)

        async def closed() -> float:
            nonlocal worker
            worker = make_worker(handle)
            finished.clear()
            await queue.add("count", 1)
            began = monotonic()
            await asyncio.wait_for(worker.run(), 30)
            assert finished == [1]
            assert await stream.is_settled()
            return monotonic() - began

        await first_below(2, closed)

    async def test_a_closed_worker_leaves_no_consumer_and_no_connection(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate, consumer_id="me"):
            await add_numbers(queue, 5)
            await eventually(stream.is_settled)
            assert await stream.consumers() == ["me"]
            assert f"chasqui-worker-{queue.name}" in {each["name"] for each in await witness.client_list()}
        assert await stream.consumers() == []
        await eventually(lambda: _has_no_client(witness, f"chasqui-worker-{queue.name}"))

    async def test_no_thread_is_left(self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream) -> None:
        before = set(threading.enumerate())  # a loop for synchronous code that an earlier test has started stays

        def own_threads() -> list[str]:
            return [thread.name for thread in set(threading.enumerate()) - before if "chasqui" in thread.name]

        async with make_worker(lambda job: None, concurrency=5):
            await add_numbers(queue, 20)
            await eventually(stream.is_settled)
            assert own_threads()
        await eventually(lambda: not own_threads())

    async def test_no_task_is_left(self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream) -> None:
        before = asyncio.all_tasks()
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate):
            await add_numbers(queue, 20)
            await eventually(stream.is_settled)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() - before == set()

    async def test_an_error_inside_the_block_comes_out_after_the_drain(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        with pytest.raises(LookupError, match="mine"):  # noqa: PT012
            async with make_worker(gate):
                await add_numbers(queue, 3)
                await eventually(lambda: gate.running == 3)
                gate.opened.set()
                raise LookupError("mine")
        assert len(gate.finished) == 3
        assert await stream.is_settled()

    async def test_jobs_that_outlast_the_deadline_are_handed_back_and_cost_no_attempt(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate, attempts = Gate(), []

        async def handle(job: Job) -> None:
            attempts.append((job.data, job.attempt))

        await add_numbers(queue, 3)
        async with make_worker(gate, shutdown_deadline_s=0.1):
            await eventually(lambda: gate.running == 3)
        assert gate.running == 0
        assert gate.finished == []
        start = monotonic()
        async with make_worker(handle):
            await eventually(stream.is_settled)
        assert monotonic() - start < 5  # sooner than by a lease
        assert sorted(attempts) == [(0, 0), (1, 0), (2, 0)]


class TestRedis:
    @pytest.mark.parametrize("option", ("", "?protocol=3", "?db=5"))
    async def test_a_worker_connects_by_any_kind_of_address(
        self, server: RedisServer, redis_url: str, queue_name: str, option: str
    ) -> None:
        for url in (f"{server.url}{option}", f"{server.tcp_url}{option}"):
            gate = Gate()
            gate.opened.set()
            async with Queue(queue_name, redis_url=url) as queue, Worker(queue_name, gate, redis_url=url):
                await add_numbers(queue, 300)
                await eventually(functools.partial(_holds, gate.finished, 300))
            assert sorted(gate.finished) == list(range(300))

    async def test_a_worker_may_name_its_group_and_its_consumer(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate, group="others", consumer_id="me"):
            await add_numbers(queue, 10)
            await eventually(lambda: stream.is_settled("others"))
            assert await stream.consumers("others") == ["me"]

    @pytest.mark.parametrize("blow", ("flushall", "delete the stream", "destroy the group", "rename the stream"))
    async def test_a_worker_runs_jobs_again_within_two_seconds_of_any_loss(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any, blow: str
    ) -> None:
        ran: list[int] = []

        async def handle(job: Job) -> None:
            ran.append(job.data)

        async def run_of(number: int) -> float:
            start = monotonic()
            await queue.add("count", number)
            await eventually(lambda: number in ran)
            return monotonic() - start

        times_s: list[float] = []
        async with make_worker(handle):
            for round_number in range(3):
                times_s.append(await run_of(round_number))
                await eventually(lambda: _is_blocked(stream))
                if blow == "flushall":
                    await witness.flushall()
                elif blow == "delete the stream":
                    await witness.delete(stream.key)
                elif blow == "rename the stream":
                    await witness.rename(stream.key, "elsewhere")
                    await witness.delete("elsewhere")
                else:
                    await witness.xgroup_destroy(stream.key, "default")
            times_s.append(await run_of(99))
            await eventually(stream.is_settled)
        assert ran == [0, 1, 2, 99]
        assert min(times_s[1:]) < 2, times_s  # a busy machine may be late once

    async def test_jobs_added_while_the_group_was_gone_are_run(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate):
            await witness.pipeline(transaction=True).flushall().execute()
            await add_numbers(queue, 500)
            await eventually(lambda: len(gate.finished) >= 500)
            await eventually(stream.is_settled)
        assert sorted(gate.finished) == list(range(500))

    async def test_scripts_that_the_server_forgets_are_sent_again(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with make_worker(gate):
            for number in range(10):
                await queue.add("count", number)
                await witness.script_flush()
            await eventually(stream.is_settled)
        assert sorted(gate.finished) == list(range(10))

    async def test_clients_killed_all_the_time_lose_no_job_and_run_none_twice(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, witness: Any
    ) -> None:
        ran: Counter[int] = Counter()
        is_done = False

        async def handle(job: Job) -> None:
            ran[job.data] += 1
            await asyncio.sleep(0.005)

        async def kill() -> None:
            while not is_done:
                await asyncio.sleep(0.05)
                await witness.client_kill_filter(_type="normal", skipme=True)

        async with make_worker(handle, concurrency=20):
            killing = asyncio.create_task(kill())
            await add_numbers(queue, 3000)
            await eventually(lambda: len(ran) == 3000, timeout=20)
            is_done = True
            await killing
            await eventually(stream.is_settled)
        assert set(ran.values()) == {1}

    @pytest.mark.parametrize("moment", ("cut_before_request", "cut_after_request", "cut_mid_reply"))
    @pytest.mark.parametrize("command", (b"XREADGROUP", b"XACK"))
    async def test_a_cut_read_or_ack_loses_no_job_and_runs_none_twice(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        stream: Stream,
        redis_url: str,
        command: bytes,
        moment: str,
    ) -> None:
        ran: Counter[int] = Counter()

        async def handle(job: Job) -> None:
            ran[job.data] += 1

        async with Proxy(redis_url) as proxy:
            cut = getattr(proxy, moment)(command, times=3)
            async with make_worker(handle, redis_url=proxy.url, concurrency=10):
                for start in range(0, 300, 10):
                    await queue.add_bulk({"name": "count", "data": start + number} for number in range(10))
                    await eventually(functools.partial(_holds, ran, start + 10))
                await eventually(stream.is_settled)
            assert cut.fallen > 0
        assert ran == Counter(range(300))

    async def test_a_slow_and_fragmented_line_only_costs_time(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, redis_url: str
    ) -> None:
        gate = Gate()
        gate.opened.set()
        async with Proxy(redis_url) as proxy:
            proxy.fragment(3)
            proxy.delay(20)
            async with make_worker(gate, redis_url=proxy.url):
                await add_numbers(queue, 200)
                await eventually(stream.is_settled)
            proxy.delay(0)
        assert sorted(gate.finished) == list(range(200))

    async def test_a_frozen_line_is_left_for_a_new_one(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, redis_url: str
    ) -> None:
        """T8: half-open, noticed because a blocked read is overdue."""
        gate = Gate()
        gate.opened.set()
        async with Proxy(redis_url) as frozen, make_worker(gate, redis_url=frozen.url, read_block_ms=200):
            await queue.add("count", 0)
            await eventually(lambda: gate.finished == [0])
            frozen.freeze()
            frozen_at = monotonic()
            await queue.add("count", 1)
            await eventually(lambda: frozen.accepted > 3)
            assert monotonic() - frozen_at < 10
            frozen.thaw()
            await eventually(lambda: 1 in gate.finished, timeout=40)
            await eventually(stream.is_settled)
        assert gate.finished == [0, 1]

    async def test_a_restarted_server_is_worked_for_again(self, queue_name: str) -> None:
        ran: Counter[int] = Counter()

        async def handle(job: Job) -> None:
            ran[job.data] += 1
            await asyncio.sleep(0.001)

        with RedisServer("--appendonly", "yes", "--appendfsync", "always") as own:
            async with Queue(queue_name, redis_url=own.url) as queue, Worker(queue_name, handle, redis_url=own.url):
                await add_numbers(queue, 500)
                await eventually(lambda: len(ran) > 50)
                await asyncio.to_thread(own.restart)
                await eventually(lambda: len(ran) == 500)
                start = monotonic()
                await queue.add("count", 500)
                await eventually(lambda: 500 in ran)
                assert monotonic() - start < 5
            assert own.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 0
        assert set(ran.values()) == {1}

    async def test_a_worker_that_came_before_its_server_waits_for_it(self, queue_name: str) -> None:
        gate = Gate()
        gate.opened.set()
        with RedisServer() as own:
            own.stop()
            worker = Worker(queue_name, gate, redis_url=own.url)
            running = asyncio.create_task(worker.run())
            await asyncio.wait({running}, timeout=0.2)
            assert not running.done()
            own.start()
            async with Queue(queue_name, redis_url=own.url) as queue:
                await queue.add("count", 1)
                await eventually(lambda: gate.finished == [1])
            await worker.close()
            await running

    async def test_a_worker_that_waits_for_its_server_closes_soon(self, queue_name: str) -> None:
        worker = Worker(queue_name, Gate(), redis_url="unix:///nowhere/at/all.sock")
        running = asyncio.create_task(worker.run())
        await asyncio.wait({running}, timeout=0.2)
        start = monotonic()
        await worker.close()
        await running
        assert monotonic() - start < 6

    async def test_a_worker_whose_server_is_gone_closes_in_bounded_time(
        self, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui._worker.shutdown.SETTLE_S", 0.2)  # 5 s, which is too long for a test
        gate = Gate()
        with RedisServer() as own:
            async with Queue(queue_name, redis_url=own.url) as queue:
                worker = Worker(queue_name, gate, redis_url=own.url, shutdown_deadline_s=0.5)
                running = asyncio.create_task(worker.run())
                await add_numbers(queue, 3)
                await eventually(lambda: gate.running == 3)
            own.stop()
            gate.opened.set()
            start = monotonic()
            await worker.close()
            await running
            assert monotonic() - start < 6

    async def test_a_provider_of_credentials_that_fails_for_a_while_is_asked_again(
        self, queue: Queue, make_worker: Callable[..., Worker], stream: Stream, redis_url: str
    ) -> None:
        gate = Gate()
        gate.opened.set()
        is_sealed = False

        async def provide(address: str | None) -> tuple[str | None, str | None]:
            if is_sealed:
                raise LookupError("the vault is sealed")
            return None, None

        async with Proxy(redis_url) as proxy, make_worker(gate, redis_url=proxy.url, credential_provider=provide):
            await queue.add("count", 0)
            await eventually(lambda: gate.finished == [0])
            is_sealed = True
            proxy.cut()
            await asyncio.sleep(0.3)  # attempts that fail
            is_sealed = False
            await queue.add("count", 1)
            await eventually(lambda: gate.finished == [0, 1])
            await eventually(stream.is_settled)


async def test_a_server_restored_from_an_older_copy_hands_out_nothing_beside_what_runs(queue_name: str) -> None:
    """The copy knows the group and the job, and not that the job was delivered: it comes again as new."""
    with RedisServer("--dbfilename", "older.rdb") as server:
        async with Queue(queue_name, redis_url=server.url) as queue:
            await queue.add("held", 1)
            server.execute("XGROUP", "CREATE", f"{{chasqui:{queue_name}}}:stream", "default", "0")
            server.execute("SAVE")
            gate = Gate()
            async with Worker(queue_name, gate, redis_url=server.url):
                await eventually(lambda: gate.data == [1])
                server.kill()
                server.start()
                await queue.add("behind", 2)
                await eventually(lambda: 2 in gate.data)
                assert gate.data == [1, 2]
                gate.opened.set()
                await eventually(lambda: server.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 0)
            assert gate.data == [1, 2]


async def _longest_gap(*, until: Callable[[], Any], clock: Callable[[], float] = thread_time) -> float:
    """The longest that a task beside the worker had to wait for its turn, until something is true.

    By default in the time that this thread has worked: what other processes take is not the worker's doing.
    """
    longest, last = 0.0, clock()
    looking = asyncio.create_task(eventually(until, timeout=40))
    while not looking.done():
        await asyncio.sleep(0.001)
        now = clock()
        longest, last = max(longest, now - last), now
    await looking
    return longest


async def _is_blocked(stream: Stream) -> bool:
    """Whether a worker waits in a blocked read."""
    return any(
        client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in await stream._client.client_list()
    )


async def _has_no_client(witness: Any, name: str) -> bool:
    return name not in {client["name"] for client in await witness.client_list()}


def _has(items: list[Any], item: Any) -> bool:
    return item in items


def _holds(items: Sized, count: int) -> bool:
    return len(items) >= count
