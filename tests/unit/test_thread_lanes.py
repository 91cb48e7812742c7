"""Thread lanes alone: every job ends and is reported beside any others, and short jobs share wake-ups."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pychasqui._core.clock import lease_clock
from pychasqui._core.delivery import Delivery
from pychasqui._worker import thread_lanes as module
from pychasqui._worker.plain_handler import wrap_to_leave_awaitables_to_loop
from pychasqui._worker.shared import Shared
from pychasqui._worker.thread_lanes import ThreadLanes
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared


def job(number: int, *, is_decoded: bool = True) -> Delivery:
    return Delivery(str(number), name="n", data=number, entry_id=b"%d-0" % number, is_decoded=is_decoded)


class Bench:
    """Thread lanes whose handler gets the numbers of jobs, and what they reported."""

    def __init__(self, handler: Callable[[int], Any], shared: Shared, *, reports_starts: bool = False) -> None:
        self.started: list[int] = []
        self.done: dict[int, Any] = {}
        self.failed: dict[int, BaseException] = {}
        self.decoded: list[int] = []
        self.deaths: list[BaseException] = []
        self.shared = shared
        run: Any = wrap_to_leave_awaitables_to_loop(handler)  # type: ignore[arg-type]
        self.lanes = ThreadLanes(
            lambda delivery: run(delivery.data),
            shared,
            on_start=self._see_start if reports_starts else None,
            on_done=self._see_done,
            on_failed=self._see_failed,
            decode_or_settle=self._decode,
            is_abandoned=lambda: False,
        )
        self.lanes.start()

    def _see_start(self, delivery: Delivery) -> None:
        assert delivery.data not in {**self.done, **self.failed}, "the end of a job was reported before its start"
        self.started.append(delivery.data)

    def _see_done(self, delivery: Delivery, result: Any) -> None:
        self.done[delivery.data] = result

    def _see_failed(self, delivery: Delivery, error: BaseException) -> None:
        self.failed[delivery.data] = error

    def _decode(self, delivery: Delivery) -> Awaitable[bool]:
        async def decode() -> bool:
            await asyncio.sleep(0)
            self.decoded.append(delivery.data)
            delivery.is_decoded = True
            return delivery.data % 2 == 0

        return decode()

    def put_and_wake(self, *numbers: int) -> None:
        self.lanes.put_and_wake([job(number) for number in numbers])

    async def run(self, *numbers: int) -> dict[int, Any]:
        """Runs the jobs to their ends."""
        self.put_and_wake(*numbers)
        async with asyncio.timeout(30):
            await self.lanes.wait_until_all_ran()
        return self.done


MakeBench = Callable[..., Bench]


@pytest.fixture
async def make() -> AsyncIterator[MakeBench]:
    made: list[Bench] = []

    def bench(
        handler: Callable[[int], Any], concurrency: int, *, shared: Shared | None = None, **options: Any
    ) -> Bench:
        made.append(Bench(handler, shared or make_shared(concurrency), **options))
        return made[-1]

    yield bench
    for each in made:
        each.lanes.let_go_of_threads()


class TestRunning:
    async def test_jobs_that_block_run_beside_each_other(self, make: MakeBench) -> None:
        barrier = threading.Barrier(20, timeout=20)
        bench = make(lambda _: barrier.wait(), 20)
        assert sorted((await bench.run(*range(20))).values()) == list(range(20))

    async def test_a_job_that_blocks_delays_no_other(self, make: MakeBench) -> None:
        release = threading.Event()
        bench = make(lambda number: release.wait(20) if number == 0 else None, 2)
        bench.put_and_wake(*range(1000))
        await eventually(lambda: len(bench.done) == 999)
        assert 0 not in bench.done
        release.set()
        await bench.lanes.wait_until_all_ran()

    async def test_an_outcome_waits_neither_for_jobs_that_block_nor_for_the_inbox_to_be_empty(
        self, make: MakeBench
    ) -> None:
        """Both threads go on to jobs that block, further ones wait in the inbox, and no thread ends a job."""
        release = threading.Event()
        bench = make(lambda number: None if number == 0 else release.wait(20), 2)
        bench.put_and_wake(*range(5))
        await eventually(lambda: 0 in bench.done)
        assert list(bench.done) == [0]
        assert bench.lanes.waiting_count == 2
        release.set()
        await bench.lanes.wait_until_all_ran()
        assert sorted(bench.done) == list(range(5))

    async def test_short_jobs_share_threads_and_wake_ups(
        self, make: MakeBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = make(lambda number: number, 100)
        wake_ups = 0
        loop = asyncio.get_running_loop()
        wake_loop = loop.call_soon_threadsafe

        def count(*arguments: Any, **options: Any) -> Any:
            nonlocal wake_ups
            wake_ups += 1
            return wake_loop(*arguments, **options)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        for turn in range(20):
            await bench.run(*range(turn * 100, turn * 100 + 100))
        assert bench.done == {number: number for number in range(2000)}
        assert wake_ups < 400, "each job woke the loop"
        assert bench.lanes._threads.count < 50, "each job got a thread"

    async def test_jobs_that_wait_are_taken_without_a_turn_of_the_loop(self, make: MakeBench) -> None:
        ran: list[int] = []
        bench = make(ran.append, 2)
        bench.put_and_wake(*range(100))
        deadline = time.monotonic() + 20
        while len(ran) < 100 and time.monotonic() < deadline:
            time.sleep(0.001)  # the loop stands still
        assert sorted(ran) == list(range(100))
        assert bench.done == {}
        await bench.lanes.wait_until_all_ran()
        assert len(bench.done) == bench.lanes.finished == 100

    async def test_jobs_of_random_lengths_all_end_and_every_one_is_held_until_it_is_reported(
        self, make: MakeBench
    ) -> None:
        dice = random.Random(7)
        pauses = [dice.choice((0.0, 0.0, 0.0, 0.0001, 0.001)) for _ in range(2000)]
        bench = make(lambda number: time.sleep(pauses[number]) if pauses[number] else None, 8, reports_starts=True)
        unseen: list[int] = []
        is_over = threading.Event()

        def watch() -> None:  # as the heartbeat's thread
            while not is_over.wait(0.0005):
                held = bench.shared.holdings.collect_held_delivery_numbers()
                unseen.extend(n for n in range(2000) if b"%d-0" % n not in held and n not in bench.done)

        bench.lanes.put_without_waking([job(number) for number in range(2000)])
        watching = asyncio.create_task(asyncio.to_thread(watch))
        try:
            await bench.run()
        finally:
            is_over.set()
            await watching
        assert sorted(bench.done) == list(range(2000))
        assert sorted(bench.started) == list(range(2000))
        assert unseen == []
        assert bench.shared.holdings.collect_held_delivery_numbers() == {}

    async def test_a_job_that_fails_is_reported_after_its_start(self, make: MakeBench) -> None:
        def fail(number: int) -> None:
            raise (StopIteration, SystemExit, GeneratorExit, asyncio.CancelledError)[number % 4](number)

        bench = make(fail, 3, reports_starts=True)
        await bench.run(*range(40))
        assert sorted(bench.failed) == sorted(bench.started) == list(range(40))
        kinds = [type(bench.failed[number]) for number in range(4)]
        assert kinds == [RuntimeError, SystemExit, GeneratorExit, asyncio.CancelledError]

    async def test_a_job_without_a_thread_fails_and_does_not_run_later(
        self, make: MakeBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        ran: list[int] = []
        bench = make(ran.append, 2)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            bench.put_and_wake(1)
        assert str(bench.failed[1]) == "no thread can be started"
        await bench.run(2)
        assert ran == [2]

    async def test_an_undecoded_job_waits_for_a_thread_and_those_behind_it_fail(
        self, make: MakeBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(module, "NO_THREAD_PAUSE_S", 0.02)
        ran: list[int] = []
        bench = make(ran.append, 2)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            bench.lanes.put_and_wake([job(2, is_decoded=False), job(3)])
            await asyncio.sleep(0.05)
        assert (list(bench.failed), ran) == ([3], [])
        await eventually(lambda: ran == [2])

    async def test_the_failure_of_the_last_job_without_a_thread_ends_the_wait_for_all_jobs(
        self, make: MakeBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        bench = make(lambda number: number, 2)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        bench.lanes.put_without_waking([job(1)])
        waiting = asyncio.create_task(bench.lanes.wait_until_all_ran())
        await asyncio.sleep(0)
        bench.lanes.wake_for_waiting_jobs()
        async with asyncio.timeout(10):
            await waiting
        assert list(bench.failed) == [1]


class TestTheInbox:
    async def test_a_job_that_a_free_thread_is_about_to_take_does_not_count_as_waiting(self, make: MakeBench) -> None:
        release = threading.Event()
        bench = make(lambda _: release.wait(20), 2)
        bench.put_and_wake(1)
        assert (bench.lanes.waiting_count, bench.lanes.free_minus_waiting) == (0, 1)
        bench.put_and_wake(2, 3)
        assert (bench.lanes.waiting_count, bench.lanes.free_minus_waiting) == (1, -1)
        release.set()
        await bench.lanes.wait_until_all_ran()

    async def test_a_job_that_is_taken_back_does_not_run(self, make: MakeBench) -> None:
        release, ran = threading.Event(), list[int]()

        def run(number: int) -> None:
            ran.append(number)
            release.wait(20)

        bench = make(run, 1)
        bench.put_and_wake(1, 2, 3, 4)
        await eventually(lambda: ran == [1])
        assert bench.lanes.drop_lost_waiting_and_undecoded_jobs({b"2-0"})
        assert [delivery.data for delivery in bench.lanes.take_out_unstarted_jobs(kept_count=1)] == [4]
        release.set()
        await bench.lanes.wait_until_all_ran()
        assert ran == [1, 3]

    async def test_a_large_job_that_was_lost_is_looked_for_once_it_is_not_held_here(self, make: MakeBench) -> None:
        bench = make(lambda number: number, 1)
        bench.lanes.put_and_wake([job(2, is_decoded=False)])
        await eventually(bench.shared.holdings.list_running_jobs, every=0.0)
        assert bench.lanes.drop_lost_waiting_and_undecoded_jobs({b"2-0"})
        assert await bench.run() == {}
        assert bench.shared.holdings.collect_held_delivery_numbers() == {}
        assert bench.shared.may_have_orphans.is_set, "it may have come back while it was held here"
        bench.lanes.put_and_wake([job(2, is_decoded=False)])
        assert await bench.run() == {2: 2}

    async def test_a_job_does_not_start_while_the_lease_is_over(self, make: MakeBench) -> None:
        shared = make_shared(2, lease_until=0.0)
        bench = make(lambda number: number, 2, shared=shared)
        bench.put_and_wake(1, 2, 3)
        await asyncio.sleep(0.05)
        assert (bench.done, len(shared.holdings.inbox)) == ({}, 3)
        shared.lease.renew_after_lapse(lease_clock() + 60)
        bench.lanes.wake_after_lapse()
        assert sorted(await bench.run()) == [1, 2, 3]

    async def test_a_large_job_whose_lease_is_over_when_it_is_decoded_is_decoded_again(self, make: MakeBench) -> None:
        bench = make(lambda number: number, 1)
        bench.lanes.put_and_wake([job(2, is_decoded=False)])
        await eventually(bench.shared.holdings.list_running_jobs, every=0.0)
        bench.shared.lease.renew(0.0)
        await eventually(lambda: bench.decoded == [2] and bench.shared.holdings.inbox)
        assert not bench.shared.holdings.inbox[0].is_decoded, "it may expire before it is to start"
        bench.shared.lease.renew_after_lapse(lease_clock() + 60)
        bench.lanes.wake_after_lapse()
        assert await bench.run() == {2: 2}
        assert bench.decoded == [2, 2]

    async def test_room_is_signalled_when_jobs_have_ended(self, make: MakeBench) -> None:
        bench = make(lambda number: number, 1)
        sizes: list[int] = []
        bench.shared.room.add_listener(lambda: sizes.append(bench.lanes.waiting_count))
        bench.lanes.set_low_water(50)
        await bench.run(*range(100))
        assert sizes
        assert sizes[-1] == 0

    async def test_a_large_job_is_decoded_by_the_loop_before_it_runs(self, make: MakeBench) -> None:
        bench: Bench = make(lambda number: number in bench.decoded, 3)
        bench.lanes.put_and_wake([job(number, is_decoded=False) for number in range(20)])
        await bench.run()
        assert bench.done == dict.fromkeys(range(0, 20, 2), True), "a job that is settled already has run"
        assert sorted(bench.decoded) == list(range(20))
        assert bench.lanes.free_minus_waiting == 3


class SlowlyTakenInbox(deque[Delivery]):
    """Once armed, lets a job be put back between the two steps in which a thread takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.between_steps: Callable[[], None] | None = None
        self.was_put_back = threading.Event()

    def __getitem__(self, index: Any) -> Any:
        first = super().__getitem__(index)
        if self.between_steps is not None:
            act, self.between_steps = self.between_steps, None
            act()
            self.was_put_back.wait(0.2)
        return first

    def appendleft(self, delivery: Delivery) -> None:
        super().appendleft(delivery)
        self.was_put_back.set()


async def test_a_job_that_is_put_back_while_a_thread_takes_another_makes_no_job_run_twice(make: MakeBench) -> None:
    shared, inbox = make_shared(2), SlowlyTakenInbox()
    shared.holdings.inbox = inbox
    loop, decoding, may_end = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    ran: list[int] = []
    bench = make(ran.append, 2, shared=shared)

    async def decode(delivery: Delivery) -> bool:
        decoding.set()
        await may_end.wait()
        delivery.is_decoded = True
        return True

    def end_lease_and_decoding() -> None:
        shared.lease.renew(0.0)
        loop.call_soon_threadsafe(may_end.set)

    bench.lanes._decode_or_settle = decode
    bench.lanes.put_and_wake([job(1, is_decoded=False)])
    await decoding.wait()
    inbox.between_steps = end_lease_and_decoding
    bench.put_and_wake(2)
    await eventually(inbox.was_put_back.is_set)
    shared.lease.renew_after_lapse(lease_clock() + 60)
    bench.lanes.wake_after_lapse()
    await bench.run()
    assert sorted(ran) == [1, 2]


class TestAwaitables:
    async def test_an_awaitable_that_a_plain_function_returns_is_awaited_in_the_loop(self, make: MakeBench) -> None:
        here = threading.get_ident()
        most = running = 0

        async def work(number: int) -> int:
            nonlocal most, running
            assert threading.get_ident() == here
            assert bench.lanes.is_lane_task(asyncio.current_task())
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            if number == 3:
                raise ValueError(number)
            return number

        bench = make(lambda number: work(number), 4)
        await bench.run(*range(30))
        assert bench.done == {number: number for number in range(30) if number != 3}
        assert type(bench.failed[3]) is ValueError
        assert most <= 4, "more jobs ran at once than there are lanes"

    async def test_a_stop_cancels_an_awaitable_and_its_job_has_no_outcome(self, make: MakeBench) -> None:
        bench = make(lambda _: asyncio.sleep(60), 2)
        bench.put_and_wake(1)
        await eventually(lambda: bench.lanes._loop_calls is not None and len(bench.lanes._loop_calls.tasks) == 1)
        assert [delivery.data for delivery in await bench.lanes.stop()] == [1]
        assert (bench.done, bench.failed, bench.deaths) == ({}, {}, [])

    async def test_an_awaitable_that_ends_well_when_it_is_cancelled_makes_its_job_done(self, make: MakeBench) -> None:
        async def work() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "rolled back"
            return ""

        bench = make(lambda _: work(), 2)
        bench.put_and_wake(1)
        await eventually(lambda: bench.lanes._loop_calls is not None and len(bench.lanes._loop_calls.tasks) == 1)
        await asyncio.sleep(0.01)
        assert await bench.lanes.stop() == []
        assert bench.done == {1: "rolled back"}


class TestTheEnd:
    async def test_a_stop_returns_what_still_runs_and_starts_nothing_more(self, make: MakeBench) -> None:
        release, ran = threading.Event(), list[int]()

        def run(number: int) -> None:
            ran.append(number)
            release.wait(20)

        bench = make(run, 1)
        bench.put_and_wake(1, 2)
        await eventually(lambda: ran == [1])
        assert [delivery.data for delivery in await bench.lanes.stop()] == [1]
        release.set()
        bench.lanes.let_go_of_threads()
        for thread in bench.lanes._threads._threads:
            await asyncio.to_thread(thread.join, 10)
        await asyncio.sleep(0.01)
        assert (ran, bench.done) == ([1], {}), "an outcome came after the worker had settled all that it could"

    async def test_threads_end_with_close(self, make: MakeBench) -> None:
        bench = make(lambda number: number, 4)
        await bench.run(*range(4))
        bench.lanes.let_go_of_threads()
        for thread in bench.lanes._threads._threads:
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


PROGRAM = """
import asyncio, os, sys, time
from pychasqui._core.delivery import Delivery
from pychasqui._worker.plain_handler import wrap_to_leave_awaitables_to_loop
from pychasqui._worker.shared import Holdings, Lease, Shared
from pychasqui._worker.thread_lanes import ThreadLanes

def run(job):
    if job.data == 4:
        return asyncio.sleep(60)
    time.sleep((0.0, 0.01, 0.5)[job.data])
    os.write(1, b"ended\\n")

async def main():
    shared = Shared(
        group="g", consumer="c", holdings=Holdings(4, "c"), on_death=lambda *_: None, lease=Lease(float("inf"))
    )
    ignore = lambda *_: None
    lanes = ThreadLanes(
        wrap_to_leave_awaitables_to_loop(run), shared, on_start=None, on_done=ignore, on_failed=ignore,
        decode_or_settle=ignore, is_abandoned=lambda: True,
    )
    lanes.start()
    lanes.put_and_wake([Delivery("a", data=0), Delivery("b", data=1)])
    await lanes.wait_until_all_ran()
    lanes.put_and_wake([Delivery("c", data=2), Delivery("d", data=4)])
    await asyncio.sleep(0.1)
    if "close" in sys.argv:
        lanes.let_go_of_threads()

asyncio.run(main())
"""


@pytest.mark.parametrize("ending", ("close", "nothing"))
def test_a_process_ends_after_the_jobs_that_run(ending: str) -> None:
    """It waits neither for parked threads nor for one that waits for the loop, and interrupts no function."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ending], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.split() == ["ended"] * 3
    assert done.stderr == ""
