"""A run that takes longer than it may is stopped: a coroutine is cancelled, a thread asked."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._core.run_timeouts import RunTimeouts
from pychasqui._redis.cancellations import Cancellations
from pychasqui._worker import run_watch as module
from pychasqui._worker.job_stops import JobStops
from pychasqui._worker.lanes import Lanes
from pychasqui._worker.plain_handler import wrap_to_leave_awaitables_to_loop
from pychasqui._worker.run_watch import RunWatch
from pychasqui._worker.thread_lanes import ThreadLanes
from pychasqui.errors import JobTimeout, Snooze
from tests.support.jobs import job
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared

Handler = Callable[[Delivery], Any]


class WatchBench:
    """Lanes under a RunWatch, and how their runs end."""

    def __init__(self, handler: Handler, concurrency: int, timeouts: RunTimeouts, kind: Any = Lanes) -> None:
        self.done: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.late_s: list[float] = []
        self.cancelled: list[str] = []
        self.shared = make_shared(concurrency)
        self.stops = JobStops(timeouts)
        self.lanes = kind(
            handler,
            self.shared,
            on_start=None,
            on_done=lambda job, _: self.done.append(job.id),
            on_failed=self._fail,
            decode_or_settle=self._decode,
            is_abandoned=bool,
        )
        self.unstarted: list[str] = []
        self.watch = RunWatch(
            self.shared,
            self.stops,
            self.lanes.get_lane_task if kind is Lanes else self.lanes.find_coroutine_task,
            on_unstarted=lambda job: self.unstarted.append(job.id),
        )

    async def _decode(self, job: Delivery) -> bool:
        return True

    def _fail(self, job: Delivery, error: BaseException) -> None:
        stop = self.stops.pop_stop(job)
        if stop is not None:
            self.late_s.append(monotonic() - job.started_at - (stop.timeout_s or 0.0))
        if stop is not None and stop.is_for_cancelled_job:
            self.cancelled.append(job.id)
        else:
            self.errors[job.id] = error if stop is None else stop.choose_error_for_timed_out_run(error)

    def put_and_wake(self, *jobs: Delivery) -> None:
        for one in jobs:
            if one.timeout_s:
                self.stops.note_timeout_and_signal_if_shortest(one.timeout_s)
        self.lanes.put_and_wake(list(jobs))


@asynccontextmanager
async def watching(
    handler: Handler, concurrency: int = 1, timeouts: RunTimeouts | None = None, kind: Any = Lanes
) -> AsyncIterator[WatchBench]:
    bench = WatchBench(handler, concurrency, timeouts or RunTimeouts(), kind)
    bench.lanes.start()
    bench.watch.start()
    try:
        yield bench
    finally:
        bench.watch.stop()
        await bench.lanes.stop()
        if kind is ThreadLanes:
            bench.lanes.let_go_of_threads()


async def sleep_long(_: Delivery) -> None:
    await asyncio.sleep(60)


async def test_a_run_is_stopped_when_its_time_is_over() -> None:
    async with watching(sleep_long, 2) as bench:
        bench.put_and_wake(job(1, timeout_s=0.05), job(2, timeout_s=0.1))
        await eventually(lambda: len(bench.errors) == 2)
        assert all(type(error) is JobTimeout for error in bench.errors.values())
        assert str(bench.errors["job-1"]) == "the run took longer than its timeout of 0.05 s, and was stopped"


async def test_no_run_is_stopped_early() -> None:
    async with watching(sleep_long, 200) as bench:
        bench.put_and_wake(*(job(number, timeout_s=random.uniform(0.02, 0.5)) for number in range(200)))
        await eventually(lambda: len(bench.errors) == 200)
        assert min(bench.late_s) >= 0


async def test_the_worker_has_a_time_for_all_jobs_and_for_some_names() -> None:
    timeouts = RunTimeouts(0.05, {"report": 60.0})
    async with watching(sleep_long, 3, timeouts) as bench:
        bench.put_and_wake(job(1), job(2, name="report"), job(3, timeout_s=60.0))
        await eventually(lambda: bench.errors)
        await asyncio.sleep(0.1)
        assert set(bench.errors) == {"job-1"}


async def test_the_next_job_of_the_lane_is_not_cancelled() -> None:
    seen: list[int] = []

    async def handler(delivery: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append(task.cancelling())
        if delivery.id == "job-1":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async with watching(handler) as bench:
        bench.put_and_wake(job(1, timeout_s=0.02), job(2))
        await eventually(lambda: bench.errors)
        assert bench.done == ["job-1"]
        assert type(bench.errors["job-2"]) is TimeoutError
        assert seen == [0, 0]
        await eventually(lambda: not bench.stops.is_asked_to_stop(b"1-0"))


async def test_a_timeout_of_the_handlers_own_is_its_own_error() -> None:
    async def handler(delivery: Delivery) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async with watching(handler) as bench:
        bench.put_and_wake(job(1, timeout_s=60.0))
        await eventually(lambda: bench.errors)
        assert type(bench.errors["job-1"]) is TimeoutError


async def test_an_error_of_the_cleanup_is_the_cause_of_the_timeout() -> None:
    async def handler(delivery: Delivery) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise LookupError("while it cleaned up")

    async with watching(handler) as bench:
        bench.put_and_wake(job(1, timeout_s=0.02))
        await eventually(lambda: bench.errors)
        assert isinstance(bench.errors["job-1"].__cause__, LookupError)


async def test_a_handler_may_still_ask_for_a_later_run() -> None:
    async def handler(delivery: Delivery) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Snooze(5) from None

    async with watching(handler) as bench:
        bench.put_and_wake(job(1, timeout_s=0.02))
        await eventually(lambda: bench.errors)
        assert type(bench.errors["job-1"]) is Snooze


async def test_a_handler_that_goes_on_keeps_its_lane_and_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CANCELLATIONS_APART_S", 0.02)
    cancellations, ends = 0, asyncio.Event()

    async def swallow(delivery: Delivery) -> None:
        nonlocal cancellations
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                cancellations += 1

    with caplog.at_level(logging.WARNING, "chasqui.worker"):
        async with watching(swallow) as bench:
            bench.put_and_wake(job(1, timeout_s=0.02), job(2))
            await eventually(lambda: caplog.records)
            assert [one.id for one in bench.shared.holdings.list_running_jobs()] == ["job-1"]
            assert (cancellations, bench.errors, bench.done) == (3, {}, [])
            await asyncio.sleep(0.1)
            assert len(caplog.records) == 1
            ends.set()
            await eventually(lambda: bench.done == ["job-1", "job-2"])
    assert "'job-1' ('mail') is to stop and goes on" in caplog.text
    assert "in swallow" in caplog.text


async def test_a_thread_is_asked_and_its_result_counts() -> None:
    def wait_until_asked(delivery: Delivery) -> None:
        while not bench.stops.is_asked_to_stop(delivery.entry_id):
            time.sleep(0.002)

    async with watching(wait_until_asked, kind=ThreadLanes) as bench:
        bench.put_and_wake(job(1, timeout_s=0.02))
        await eventually(lambda: bench.done == ["job-1"])


async def test_a_coroutine_that_a_thread_leaves_to_the_loop_is_cancelled() -> None:
    plain: Any = wrap_to_leave_awaitables_to_loop(lambda delivery: sleep_long(delivery))  # type: ignore[arg-type]
    async with watching(plain, concurrency=2, kind=ThreadLanes) as bench:
        bench.put_and_wake(job(1, timeout_s=0.02), job(2, timeout_s=0.02))
        await eventually(lambda: len(bench.errors) == 2)
        assert {type(error) for error in bench.errors.values()} == {JobTimeout}
        bench.put_and_wake(job(3, timeout_s=60.0), job(4, timeout_s=0.02))
        await eventually(lambda: "job-4" in bench.errors)
        assert "job-3" not in bench.errors


async def test_a_run_that_is_given_more_time_has_it() -> None:
    async with watching(sleep_long) as bench:
        one = job(1, timeout_s=0.05)
        bench.put_and_wake(one)
        await eventually(lambda: one.started_at)
        bench.stops.extend_timeout_if_any_is_set(one.entry_id, 0.1)
        await eventually(lambda: bench.errors)
        assert one.ended_at - one.started_at >= 0.15


@pytest.mark.parametrize("timeouts", (RunTimeouts(), RunTimeouts(3600.0)))
async def test_extensions_of_runs_that_have_ended_are_not_kept(
    timeouts: RunTimeouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CHECK_INTERVAL_S", 0.01)
    ended = 0

    async def handler(delivery: Delivery) -> None:
        nonlocal ended
        bench.stops.extend_timeout_if_any_is_set(delivery.entry_id, 5.0)
        ended += 1

    async with watching(handler, timeouts=timeouts) as bench:
        bench.put_and_wake(*(job(number) for number in range(20)))
        await eventually(lambda: ended == 20 and not bench.stops._extensions)


async def test_a_watch_without_a_timeout_has_no_timer() -> None:
    async with watching(sleep_long) as bench:
        bench.put_and_wake(job(1))
        await asyncio.sleep(0)
        assert bench.watch._timer is None


async def test_the_timer_ends_with_the_last_job_that_has_a_timeout() -> None:
    async with watching(lambda _: asyncio.sleep(0)) as bench:
        bench.put_and_wake(job(1, timeout_s=0.01))
        assert bench.watch._timer is not None
        await eventually(lambda: bench.watch._timer is None)


class TestCancellations:
    async def test_a_noted_run_is_cancelled_at_once(self) -> None:
        async with watching(sleep_long, 2) as bench:
            one, other = job(1), job(2)
            bench.put_and_wake(one, other)
            await eventually(lambda: other.started_at)
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"1-0"})))
            await eventually(lambda: bench.cancelled == ["job-1"])
            assert [each.id for each in bench.shared.holdings.list_running_jobs()] == ["job-2"]

    async def test_a_noted_job_of_the_inbox_is_taken_out(self) -> None:
        async with watching(sleep_long) as bench:
            bench.put_and_wake(job(1), job(2), job(3))
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(ids={"job-2": (2, 0), "job-3": (2, 5)}))
            assert bench.unstarted == ["job-2"]
            assert "job-3" in [each.id for each in bench.shared.holdings.inbox]

    async def test_a_noted_job_is_held_in_the_inbox_until_it_is_settled(self) -> None:
        async with watching(sleep_long) as bench:
            held: list[bool] = []
            bench.watch._on_unstarted = lambda job: held.append(
                job.entry_id in bench.shared.holdings.collect_held_delivery_numbers()
            )
            bench.put_and_wake(job(1), job(2))
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"2-0"})))
            assert held == [True]
            assert "job-2" not in [each.id for each in bench.shared.holdings.inbox]

    async def test_a_thread_is_asked_and_a_job_that_waits_for_one_is_taken_out(self) -> None:
        def wait_until_asked(delivery: Delivery) -> None:
            while not bench.stops.is_asked_to_stop(delivery.entry_id):
                time.sleep(0.002)
            raise RuntimeError("asked")

        async with watching(wait_until_asked, kind=ThreadLanes) as bench:
            one = job(1)
            bench.put_and_wake(one, job(2))
            await eventually(lambda: one.started_at)
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"1-0", b"2-0"})))
            await eventually(lambda: bench.cancelled == ["job-1"])
            assert bench.unstarted == ["job-2"]

    async def test_a_run_that_returns_all_the_same_is_done_and_is_forgotten(self) -> None:
        async def swallow(delivery: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

        async with watching(swallow) as bench:
            one = job(1)
            bench.put_and_wake(one)
            await eventually(lambda: one.started_at)
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"1-0"})))
            await eventually(lambda: bench.done == ["job-1"])
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"9-9"})))
            assert not bench.stops.is_asked_to_stop(b"1-0")

    async def test_a_job_with_a_timeout_is_cancelled_for_the_first_of_both_reasons(self) -> None:
        async with watching(sleep_long) as bench:
            one = job(1, timeout_s=60.0)
            bench.put_and_wake(one)
            await eventually(lambda: one.started_at)
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"1-0"})))
            await eventually(lambda: bench.cancelled == ["job-1"])

    async def test_notes_that_are_gone_stop_no_job(self) -> None:
        async with watching(sleep_long) as bench:
            bench.watch.set_cancellations_and_stop_jobs(Cancellations(frozenset({b"1-0"})))
            bench.watch.set_cancellations_and_stop_jobs(Cancellations())
            one = job(1)
            bench.put_and_wake(one)
            await eventually(lambda: one.started_at)
            await asyncio.sleep(0.06)
            assert (bench.cancelled, bench.unstarted) == ([], [])


def test_a_note_about_an_id_is_about_entries_up_to_one() -> None:
    notes = Cancellations(frozenset({b"7-7"}), {"job": (5, 1)})
    assert [notes.includes_job(entry_id, "job") for entry_id in (b"4-9", b"5-1", b"5-2", b"7-7")] == [
        True,
        True,
        False,
        True,
    ]
    assert not notes.includes_job(b"4-9", "another")
    assert notes
    assert not Cancellations()
