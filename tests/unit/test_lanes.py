"""Lanes run offered jobs, outlast any handler, and start no job that another worker may own."""

from __future__ import annotations

import asyncio
import weakref
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._worker.lanes import Lanes
from pychasqui._worker.shared import Holdings
from pychasqui._worker.task_ends import CLEANUP_S
from tests.support.contexts import Suspension
from tests.support.jobs import job
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared

PATIENCE_S = 1.0


class LanesBench:
    """Lanes, and what becomes of the jobs that they are offered."""

    def __init__(self, handler: Callable[[Delivery], Awaitable[Any]], concurrency: int) -> None:
        self.done: list[int] = []
        self.failed: list[tuple[int, BaseException]] = []
        self.deaths: list[BaseException] = []
        self.rooms = 0
        self.changed = asyncio.Event()
        self.decoding = asyncio.Event()
        self.decoding.set()
        self.started: list[Delivery] = []
        self.shared = make_shared(concurrency, on_death=lambda _, error: self.deaths.append(error))
        self.lease, self.holdings = self.shared.lease, self.shared.holdings
        self.shared.room.add_listener(self._on_room)
        self.lanes = Lanes(
            handler,
            self.shared,
            on_start=self.started.append,
            on_done=self._on_done,
            on_failed=self._on_failed,
            decode_or_settle=self._decode,
            is_abandoned=bool,
        )

    async def _decode(self, job: Delivery) -> bool:
        await self.decoding.wait()
        job.is_decoded = True
        return bool(job.data)

    def _on_done(self, job: Delivery, result: Any) -> None:
        self.done.append(job.data)
        self.changed.set()

    def _on_failed(self, job: Delivery, error: BaseException) -> None:
        self.failed.append((job.data, error))
        self.changed.set()

    def _on_room(self) -> None:
        self.rooms += 1


@pytest.fixture(autouse=True, params=["in batches", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How jobs come: as they are offered by a task, or each for itself and outside of any task."""
    if request.param == "one by one":
        monkeypatch.setattr(Lanes, "put_and_wake", bring_one_by_one)
    return str(request.param)


def bring_one_by_one(lanes: Lanes, jobs: list[Delivery]) -> None:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    if me is not None:
        _leave_task(loop, me)
    try:
        for one in jobs:
            lanes.put_without_waking([one])
            lanes.start_lone_job_or_wake()
    finally:
        if me is not None:
            _enter_task(loop, me)


@asynccontextmanager
async def running(handler: Callable[[Delivery], Awaitable[Any]], concurrency: int = 1) -> AsyncIterator[LanesBench]:
    record = LanesBench(handler, concurrency)
    record.lanes.start()
    await asyncio.sleep(0)
    try:
        yield record
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await record.lanes.stop()


def broken(*_: object) -> None:
    raise AssertionError("a defect")


async def succeed(job: Delivery) -> None:
    await asyncio.sleep(0)


class TestRunning:
    async def test_offered_jobs_run_in_order(self) -> None:
        async with running(succeed) as record:
            record.lanes.put_and_wake([job(number) for number in range(10)])
            await eventually(lambda: len(record.done) == 10, every=0.001)
            assert record.done == list(range(10))
            assert record.lanes.finished == 10

    async def test_no_more_run_at_once_than_there_are_lanes(self) -> None:
        now, most = 0, 0

        async def handler(_: Delivery) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            now -= 1

        async with running(handler, 3) as record:
            record.lanes.put_and_wake([job(number) for number in range(20)])
            await eventually(lambda: len(record.done) == 20, every=0.001)
            assert most == 3

    async def test_waiting_and_running_jobs_are_held(self) -> None:
        async with running(lambda _: asyncio.sleep(60)) as record:
            record.lanes.put_and_wake([job(1), job(2, deliveries=2)])
            await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
            assert record.holdings.collect_held_delivery_numbers() == {b"1-0": 1, b"2-0": 3}
            assert (record.lanes.free_minus_waiting, record.lanes.waiting_count) == (-1, 1)

    async def test_unstarted_jobs_can_be_taken_back(self) -> None:
        async with running(lambda _: asyncio.sleep(60)) as record:
            record.lanes.put_and_wake([job(1), job(2), job(3)])
            await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
            assert [unstarted.data for unstarted in record.lanes.take_out_unstarted_jobs()] == [2, 3]
            assert list(record.holdings.collect_held_delivery_numbers()) == [b"1-0"]

    async def test_handlers_that_never_await_let_the_loop_turn(self) -> None:
        async def handler(_: Delivery) -> None:
            until = monotonic() + 0.001
            while monotonic() < until:
                pass

        async with running(handler) as record:
            record.lanes.put_without_waking([job(number) for number in range(100)])
            record.lanes.wake_for_waiting_jobs()
            turns = 0
            while len(record.done) < 100:
                await asyncio.sleep(0)
                turns += 1
            assert turns >= 10


class TestFailing:
    @pytest.mark.parametrize("error", (ValueError("x"), StopIteration(), asyncio.CancelledError(), TimeoutError()))
    async def test_any_raised_error_is_a_failure_and_the_lane_goes_on(self, error: BaseException) -> None:
        async def handler(job: Delivery) -> None:
            if job.data == 1:
                raise error

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1), job(2)])
            await eventually(lambda: record.done == [2], every=0.001)
            assert [number for number, _ in record.failed] == [1]
            assert record.deaths == []

    async def test_a_handler_that_cancels_itself_has_failed_and_the_lane_goes_on(self) -> None:
        async def handler(job: Delivery) -> None:
            if job.data == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(1)

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1), job(2)])
            await eventually(lambda: record.done == [2], every=0.001)
            assert [number for number, _ in record.failed] == [1]

    async def test_a_cancellation_that_one_handler_swallowed_is_forgotten_by_the_next(self) -> None:
        async def handler(job: Delivery) -> None:
            task = asyncio.current_task()
            assert task is not None
            if job.data == 1:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(1)
            elif job.data == 2:
                raise asyncio.CancelledError

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1), job(2), job(3)])
            await eventually(lambda: record.done == [1, 3], every=0.001)
            assert [number for number, _ in record.failed] == [2]

    async def test_a_cancellation_that_one_handler_swallowed_does_not_upset_the_next_ones_task_group(self) -> None:
        async def handler(job: Delivery) -> None:
            if job.data == 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(1)
            else:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(60))
                    raise LookupError

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1), job(2)])
            await eventually(lambda: len(record.failed) == 1, every=0.001)
            assert isinstance(record.failed[0][1], ExceptionGroup)

    async def test_timeouts_and_groups_inside_a_handler_leave_the_lane_alone(self) -> None:
        async def handler(job: Delivery) -> None:
            if job.data == 1:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await asyncio.sleep(60)
            elif job.data == 2:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(60))
                    raise LookupError

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1), job(2), job(3)])
            await eventually(lambda: record.done == [1, 3], every=0.001)
            assert [number for number, _ in record.failed] == [2]


@pytest.mark.parametrize("way", ("one by one",), indirect=True)
class TestLoneJob:
    """A job that comes alone, and not through a task, does not wait for its lane."""

    async def test_a_lone_job_takes_its_first_step_at_once(self) -> None:
        begun: list[int] = []

        async def handler(job: Delivery) -> None:
            begun.append(job.data)
            await asyncio.sleep(0)

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1)])
            assert begun == [1]
            assert list(record.holdings.collect_held_delivery_numbers()) == [b"1-0"]
            assert (record.lanes.free_minus_waiting, record.lanes.waiting_count, record.done) == (0, 0, [])
            await eventually(lambda: record.done == [1], every=0.001)

    async def test_a_lone_job_that_waits_for_nothing_is_done_at_once_and_its_lane_is_free(self) -> None:
        async def handler(_: Delivery) -> None:
            pass

        async with running(handler) as record:
            started = record.started
            for number in range(3):
                record.lanes.put_and_wake([job(number)])
            assert record.done == [one.data for one in started] == [0, 1, 2]
            assert all(0 < one.started_at <= one.ended_at for one in started)
            assert (
                record.lanes.free_minus_waiting,
                record.lanes.finished,
                record.holdings.collect_held_delivery_numbers(),
            ) == (1, 3, {})
            async with asyncio.timeout(PATIENCE_S):
                await record.lanes.wait_until_all_ran()

    async def test_a_lone_job_runs_in_the_task_of_its_lane_from_the_first_step_on(self) -> None:
        tasks: list[asyncio.Task[Any] | None] = []

        async def handler(_: Delivery) -> None:
            tasks.append(asyncio.current_task())
            await asyncio.sleep(0)
            tasks.append(asyncio.current_task())

        async with running(handler) as record:
            me = asyncio.current_task()
            record.lanes.put_and_wake([job(1)])
            assert asyncio.current_task() is me
            await eventually(lambda: record.done == [1], every=0.001)
            assert tasks[0] is tasks[1]
            assert record.lanes.is_lane_task(tasks[0])

    async def test_a_lone_job_gets_the_values_that_it_awaits(self) -> None:
        answers: list[str] = []
        question: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def handler(_: Delivery) -> None:
            answers.append(await question)
            answers.append(await asyncio.sleep(0.001, "later"))

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1)])
            question.set_result("in the turn before the lane is awake")
            await eventually(lambda: record.done == [1], every=0.001)
            assert answers == ["in the turn before the lane is awake", "later"]

    async def test_a_lone_job_fails_by_an_error_in_its_first_step(self) -> None:
        async def handler(job: Delivery) -> None:
            raise LookupError(job.data)

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1)])
            await eventually(lambda: len(record.failed) == 1, every=0.001)
            number, error = record.failed[0]
            assert (number, type(error), error.args) == (1, LookupError, (1,))
            assert record.holdings.collect_held_delivery_numbers() == {}

    async def test_a_lone_job_is_cancelled_by_a_stop_before_its_lane_is_awake(self) -> None:
        seen: list[type[BaseException]] = []

        async def handler(_: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except BaseException as error:
                seen.append(type(error))
                raise

        record = LanesBench(handler, 1)
        record.lanes.start()
        await asyncio.sleep(0)
        record.lanes.put_and_wake([job(1)])
        assert [cut.data for cut in await record.lanes.stop()] == [1]  # in the same turn
        assert seen == [asyncio.CancelledError]
        assert (record.done, record.failed) == ([], [])

    async def test_a_lone_job_gets_a_cancellation_that_comes_before_its_lane_is_awake(self) -> None:
        async def handler(_: Delivery) -> str:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                task.uncancel()
            await asyncio.sleep(0)
            return await asyncio.sleep(0.001, "went on")

        async with running(handler) as record:
            loop = asyncio.get_running_loop()
            loop.call_soon(record.lanes.put_and_wake, [job(1)])
            await eventually(lambda: record.done == [1], every=0.001)
            assert record.failed == []

    @pytest.mark.parametrize("cancelled_by", ("a stop", "itself"))
    async def test_a_lone_job_fails_by_its_own_error_though_it_is_cancelled_before_its_lane_is_awake(
        self, cancelled_by: str
    ) -> None:
        """A cancelled job would run again."""

        async def handler(_: Delivery) -> None:
            task = asyncio.current_task()
            assert task is not None
            if cancelled_by == "itself":
                task.cancel()
            raise LookupError

        record = LanesBench(handler, 1)
        record.lanes.start()
        await asyncio.sleep(0)
        record.lanes.put_and_wake([job(1)])
        if cancelled_by == "itself":
            await eventually(lambda: len(record.failed) == 1, every=0.001)
        assert await record.lanes.stop() == []
        assert [(number, type(error)) for number, error in record.failed] == [(1, LookupError)]
        assert record.done == []

    async def test_a_lone_job_that_cancels_itself_and_waits_for_nothing_is_done(self) -> None:
        async def handler(_: Delivery) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1)])
            await asyncio.sleep(0.001)
            record.lanes.put_and_wake([job(2)])
            await eventually(lambda: record.done == [1, 2], every=0.001)

    async def test_a_lone_job_waits_if_others_wait_or_the_worker_stops(self) -> None:
        async with running(succeed) as record:
            record.lanes.put_without_waking([job(1), job(2)])
            record.lanes.start_lone_job_or_wake()
            assert record.lanes.waiting_count == 2
            await eventually(lambda: record.done == [1, 2], every=0.001)
            await stopped(record.lanes)
            record.lanes.put_and_wake([job(3)])
            assert (record.lanes.waiting_count, record.holdings.list_running_jobs()) == (1, [])


async def stopped(lanes: Lanes) -> list[Delivery]:
    """The value of stop(), within a timeout."""
    stopping = asyncio.create_task(lanes.stop())
    await asyncio.wait({stopping}, timeout=0.5)
    ended = stopping.done()
    for task in lanes._tasks:
        task.cancel()
    cut_off = await stopping
    assert ended, "stop() did not end"
    return cut_off


async def test_a_lane_that_is_closed_halfway_closes_its_handler_and_fails_nothing() -> None:
    """As it happens when its event loop is gone."""
    steps: list[str] = []

    async def handler(_: Delivery) -> None:
        try:
            await Suspension()
        finally:
            steps.append("closed")

    record = LanesBench(handler, 1)
    record.lanes.put_without_waking([job(1)])
    lane = record.lanes._run_lane(0)
    lane.send(None)
    lane.close()
    assert (steps, record.failed, record.done) == (["closed"], [], [])


@pytest.mark.parametrize("is_late", (False, True))
async def test_a_handler_that_raises_generator_exit_has_failed(is_late: bool) -> None:
    async def handler(_: Delivery) -> None:
        if is_late:
            await asyncio.sleep(0)
        raise GeneratorExit

    async with running(handler) as record:
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: len(record.failed) == 1, every=0.001)
    assert [(number, type(error)) for number, error in record.failed] == [(1, GeneratorExit)]


async def test_a_cancellation_that_is_left_behind_costs_no_job_that_is_to_be_decoded() -> None:
    async def decode(job: Delivery) -> bool:
        await asyncio.sleep(0)
        job.is_decoded = True
        return True

    async def handler(job: Delivery) -> None:
        if job.data == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async with running(handler) as record:
        record.lanes._decode_or_settle = decode
        late = job(2)
        late.is_decoded = False
        record.lanes.put_and_wake([job(1), late])
        await eventually(lambda: record.done == [1, 2], every=0.001)
    assert record.failed == []


@pytest.mark.parametrize("awaits_before", (False, True))
@pytest.mark.parametrize("raises", (False, True))
async def test_a_cancellation_that_is_left_behind_costs_no_job_that_awaits(awaits_before: bool, raises: bool) -> None:
    async def handler(job: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        if job.data == 1:
            if awaits_before:
                await asyncio.sleep(0)
            task.cancel()
            if raises:
                raise ValueError
        else:
            assert not task.cancelling()
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            await asyncio.sleep(0)

    async with running(handler) as record:
        record.lanes.put_and_wake([job(1), job(2), job(3)])
        await eventually(lambda: len(record.done) + len(record.failed) == 3, every=0.001)
    assert [number for number, _ in record.failed] == ([1] if raises else [])


async def test_a_job_that_cancels_its_own_task_and_awaits_is_cancelled() -> None:
    async def handler(job: Delivery) -> None:
        task = asyncio.current_task()
        assert task is not None
        if job.data == 1:
            task.cancel()
        await asyncio.sleep(0)

    async with running(handler) as record:
        record.lanes.put_and_wake([job(1), job(2)])
        await eventually(lambda: record.done == [2], every=0.001)
    assert [(number, type(error)) for number, error in record.failed] == [(1, asyncio.CancelledError)]


class Thing:
    pass


async def test_an_idle_lane_keeps_nothing_of_its_last_jobs_alive() -> None:
    things: list[weakref.ref[Thing]] = []

    async def handler(job: Delivery) -> Thing:
        thing = Thing()
        things.append(weakref.ref(thing))
        if job.data % 2:
            await asyncio.sleep(0)
        return thing

    async with running(handler, 3) as record:
        record.lanes.put_and_wake([job(number) for number in range(9)])
        await eventually(lambda: len(record.done) == 9, every=0.001)
        await asyncio.sleep(0)
        assert [thing() for thing in things] == [None] * 9


class TestStopping:
    async def test_a_handler_that_is_cancelled_has_time_to_roll_back(self) -> None:
        steps: list[str] = []

        async def handler(_: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.8)
                steps.append("rolled back")
                raise

        record = LanesBench(handler, 1)
        record.lanes.start()
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
        assert [cut.data for cut in await record.lanes.stop()] == [1]
        assert steps == ["rolled back"]
        assert not record.lanes.has_uncancelled_handler

    async def test_a_hurried_stop_does_not_wait_for_the_cleanup(self) -> None:
        async def handler(_: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)

        record, hurried = LanesBench(handler, 1), asyncio.Event()
        record.lanes.start()
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
        asyncio.get_running_loop().call_later(0.1, hurried.set)
        async with asyncio.timeout(CLEANUP_S - 1):
            assert [cut.data for cut in await record.lanes.stop(hurried)] == [1]

    async def test_a_lane_that_has_died_is_not_waited_for(self) -> None:
        record = LanesBench(succeed, 2)
        record.lanes._on_done = broken
        record.lanes.start()
        await asyncio.sleep(0)
        record.lanes.put_and_wake([job(1)])
        async with asyncio.timeout(40):
            await record.lanes.wait_until_all_ran()
            assert [cut.data for cut in await record.lanes.stop()] == [1]
        assert [str(error) for error in record.deaths] == ["a defect"]

    async def test_a_defect_behind_a_handler_that_has_cancelled_its_own_task_is_a_death(self) -> None:
        async def handler(_: Delivery) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        record = LanesBench(handler, 1)
        record.lanes._on_done = broken
        record.lanes.start()
        await asyncio.sleep(0)
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: record.deaths, every=0.001)
        assert [cut.data for cut in await record.lanes.stop()] == [1]
        assert [str(error) for error in record.deaths] == ["a defect"]

    async def test_cancelled_jobs_are_returned_and_neither_done_nor_failed(self) -> None:
        record = LanesBench(lambda _: asyncio.sleep(60), 2)
        record.lanes.start()
        record.lanes.put_and_wake([job(1), job(2)])
        await eventually(lambda: len(record.holdings.list_running_jobs()) == 2, every=0.001)
        assert sorted(cut.data for cut in await record.lanes.stop()) == [1, 2]
        assert (record.done, record.failed) == ([], [])

    async def test_a_handler_that_finishes_while_it_is_cancelled_is_done(self) -> None:
        async def handler(_: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

        record = LanesBench(handler, 1)
        record.lanes.start()
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
        assert await stopped(record.lanes) == []
        assert record.done == [1]

    async def test_a_handler_that_fails_while_it_is_cancelled_has_failed(self) -> None:
        async def handler(_: Delivery) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise LookupError from None

        record = LanesBench(handler, 1)
        record.lanes.start()
        record.lanes.put_and_wake([job(1)])
        await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
        assert await stopped(record.lanes) == []
        assert [number for number, _ in record.failed] == [1]

    async def test_draining_waits_for_the_offered_jobs(self) -> None:
        async with running(lambda _: asyncio.sleep(0.01), 2) as record:
            record.lanes.put_and_wake([job(number) for number in range(6)])
            async with asyncio.timeout(PATIENCE_S):
                await record.lanes.wait_until_all_ran()
            assert sorted(record.done) == list(range(6))


class TestLease:
    async def test_no_job_is_started_while_the_lease_is_over(self) -> None:
        async with running(succeed) as record:
            record.lease.renew(monotonic() - 1)
            record.lanes.put_and_wake([job(1)])
            await asyncio.sleep(0.02)
            assert record.holdings.list_running_jobs() == []
            assert record.done == []
            assert list(record.holdings.collect_held_delivery_numbers()) == [b"1-0"]

    async def test_waiting_jobs_are_started_when_the_lease_begins_again(self) -> None:
        async with running(succeed) as record:
            record.lease.renew(monotonic() - 1)
            record.lanes.put_and_wake([job(1), job(2)])
            await asyncio.sleep(0.01)
            assert record.done == []
            record.lease.renew(monotonic() + 60)
            record.lanes.wake_after_lapse()
            await eventually(lambda: record.lanes.finished == 2, every=0.001)
            assert record.done == [1, 2]
            assert record.holdings.collect_held_delivery_numbers() == {}

    async def test_a_job_that_is_lost_is_not_started(self) -> None:
        async with running(succeed) as record:
            record.lease.renew(monotonic() - 1)
            record.lanes.put_and_wake([job(1), job(2), job(3)])
            assert record.lanes.drop_lost_waiting_and_undecoded_jobs({b"2-0"})
            record.lease.renew(monotonic() + 60)
            record.lanes.wake_after_lapse()
            await eventually(lambda: record.holdings.collect_held_delivery_numbers() == {}, every=0.001)
            assert record.done == [1, 3]

    def test_a_large_job_that_goes_back_to_the_inbox_is_held_all_the_time(self) -> None:
        """The lease was over when it was decoded. The heartbeat's thread looks while it moves."""
        holdings = Holdings(1, "me")

        class Lane(list[Delivery | None]):
            def copy(self) -> list[Delivery | None]:
                if self[0] is not None:
                    holdings.inbox.appendleft(self[0])
                self[0] = None
                return super().copy()

        holdings.running = Lane([job(1)])
        assert list(holdings.collect_held_delivery_numbers()) == [b"1-0"]

    async def test_a_job_is_never_out_of_sight_of_the_heartbeats_thread(self) -> None:
        """The thread may look between any two steps, and an entry that it does not see counts as not held."""
        record = LanesBench(succeed, 1)
        lanes, unseen = record.lanes, list[bytes]()

        class Watched(deque[Delivery]):
            """After each removal it looks as that thread would."""

            def popleft(self) -> Delivery:
                taken = super().popleft()
                unseen.extend({taken.entry_id} - record.holdings.collect_held_delivery_numbers().keys())
                return taken

            def remove(self, value: Delivery) -> None:
                super().remove(value)
                unseen.extend({b"1-0", b"4-0"} - record.holdings.collect_held_delivery_numbers().keys())

            def clear(self) -> None:
                super().clear()
                unseen.append(b"all")

        lanes._inbox = record.holdings.inbox = Watched()
        record.lease.renew(monotonic() - 1)
        lanes.start()
        lanes.put_and_wake([job(1), job(2), job(3), job(4)])
        lanes.drop_lost_waiting_and_undecoded_jobs({b"2-0", b"3-0"})
        record.lease.renew(monotonic() + 60)
        lanes.wake_after_lapse()
        await eventually(lambda: record.done == [1, 4], every=0.001)
        await lanes.stop()
        assert unseen == []

    async def test_a_job_that_is_lost_while_it_runs_goes_on(self) -> None:
        gate = asyncio.Event()

        async def handler(_: Delivery) -> None:
            await gate.wait()

        async with running(handler) as record:
            record.lanes.put_and_wake([job(1)])
            await eventually(lambda: len(record.holdings.list_running_jobs()) == 1, every=0.001)
            assert record.lanes.drop_lost_waiting_and_undecoded_jobs({b"1-0"})
            assert [running.data for running in record.holdings.list_running_jobs()] == [1]
            gate.set()
            await eventually(lambda: record.holdings.list_running_jobs() == [], every=0.001)
            assert (record.done, record.failed) == ([1], [])

    async def test_a_loss_of_what_is_not_here_any_more_is_none(self) -> None:
        async with running(succeed) as record:
            record.lanes.put_and_wake([job(1)])
            await eventually(lambda: record.done == [1], every=0.001)
            assert not record.lanes.drop_lost_waiting_and_undecoded_jobs({b"1-0", b"2-0"})
            assert not record.lanes.drop_lost_waiting_and_undecoded_jobs(set())

    async def test_a_lost_job_signals_free_room(self) -> None:
        async with running(succeed) as record:
            record.lease.renew(monotonic() - 1)
            record.lanes.put_and_wake([job(1)])
            await asyncio.sleep(0.01)
            assert record.lanes.free_minus_waiting == 0
            rooms = record.rooms
            record.lanes.drop_lost_waiting_and_undecoded_jobs({b"1-0"})
            record.lease.renew(monotonic() + 60)
            record.lanes.wake_after_lapse()
            await asyncio.sleep(0.01)
            assert record.rooms > rooms

    async def test_a_drain_ends_when_what_it_waits_for_is_lost(self) -> None:
        async with running(succeed) as record:
            record.lease.renew(monotonic() - 1)
            record.lanes.put_and_wake([job(1)])
            await asyncio.sleep(0.01)
            draining = asyncio.create_task(record.lanes.wait_until_all_ran())
            await asyncio.sleep(0.01)
            record.lanes.drop_lost_waiting_and_undecoded_jobs({b"1-0"})
            done, waiting = await asyncio.wait({draining}, timeout=0.5)
            for task in waiting:
                task.cancel()
            assert done


async def test_each_run_has_a_beginning_and_an_end() -> None:
    async def handler(job: Delivery) -> None:
        await asyncio.sleep(0.002)
        if job.data == 2:
            raise LookupError

    jobs, before = [job(1), job(2)], monotonic()
    async with running(handler) as record:
        record.lanes.put_and_wake(jobs)
        await eventually(lambda: record.done == [1] and len(record.failed) == 1, every=0.001)
    times = [(one.started_at, one.ended_at) for one in jobs]
    assert before <= times[0][0] < times[0][1] <= times[1][0] < times[1][1] <= monotonic()


class TestLateDecoding:
    """Large jobs are decoded when they are to start."""

    @staticmethod
    def undecoded(number: int) -> Delivery:
        late = job(number)
        late.is_decoded = False
        return late

    async def test_a_job_that_is_decoded_late_runs_in_its_turn(self) -> None:
        async with running(succeed) as lanes:
            lanes.lanes.put_and_wake([job(1), self.undecoded(2), job(3)])
            await eventually(lambda: lanes.done == [1, 2, 3], every=0.001)

    async def test_a_job_that_cannot_be_decoded_does_not_run_and_its_lane_goes_on(self) -> None:
        async with running(succeed) as lanes:
            lanes.lanes.put_and_wake([self.undecoded(0), job(1)])
            await eventually(lambda: lanes.done == [1], every=0.001)
            assert (lanes.lanes.free_minus_waiting, lanes.holdings.collect_held_delivery_numbers()) == (1, {})

    async def test_a_job_is_held_while_it_is_decoded(self) -> None:
        async with running(succeed) as lanes:
            lanes.decoding.clear()
            lanes.lanes.put_and_wake([self.undecoded(7)])
            await eventually(lambda: lanes.lanes.waiting_count == 0, every=0.001)
            assert lanes.holdings.collect_held_delivery_numbers() == {b"7-0": 1}
            assert lanes.lanes.free_minus_waiting == 0
            lanes.decoding.set()
            await eventually(lambda: lanes.done == [7], every=0.001)

    async def test_a_job_that_was_lost_meanwhile_does_not_start(self) -> None:
        async with running(succeed) as lanes:
            lanes.decoding.clear()
            lanes.lanes.put_and_wake([self.undecoded(7)])
            await eventually(lambda: lanes.lanes.waiting_count == 0, every=0.001)
            assert lanes.lanes.drop_lost_waiting_and_undecoded_jobs({b"7-0"})
            lanes.decoding.set()
            lanes.lanes.put_and_wake([job(8)])
            await eventually(lambda: lanes.done == [8], every=0.001)
            assert lanes.holdings.collect_held_delivery_numbers() == {}
            assert lanes.shared.may_have_orphans.is_set, "it may have come back while it was held here"

    async def test_a_job_that_was_lost_and_could_not_be_decoded_starts_when_it_comes_back(self) -> None:
        async with running(succeed) as lanes:
            lanes.decoding.clear()
            bad = self.undecoded(7)
            bad.data = 0
            lanes.lanes.put_and_wake([bad])
            await eventually(lambda: lanes.lanes.waiting_count == 0, every=0.001)
            assert lanes.lanes.drop_lost_waiting_and_undecoded_jobs({b"7-0"})
            lanes.decoding.set()
            lanes.lanes.put_and_wake([job(8)])
            await eventually(lambda: lanes.done == [8], every=0.001)
            lanes.lanes.put_and_wake([self.undecoded(7)])
            await eventually(lambda: lanes.done == [8, 7], every=0.001)

    async def test_a_job_whose_lease_is_over_by_then_waits_until_the_renewal(self) -> None:
        async with running(succeed) as lanes:
            lanes.decoding.clear()
            lanes.lanes.put_and_wake([self.undecoded(7)])
            await eventually(lambda: lanes.lanes.waiting_count == 0, every=0.001)
            lanes.lease.renew(0.0)
            lanes.decoding.set()
            await eventually(lambda: lanes.lanes.waiting_count == 1, every=0.001)
            assert (lanes.done, lanes.holdings.collect_held_delivery_numbers()) == ([], {b"7-0": 1})
            assert not lanes.holdings.inbox[0].is_decoded, "it is judged again when it starts: it may have expired"
            lanes.lease.renew(float("inf"))
            lanes.lanes.wake_after_lapse()
            await eventually(lambda: lanes.done == [7], every=0.001)

    async def test_a_lone_job_does_not_hold_up_the_socket(self) -> None:
        async with running(succeed) as lanes:
            await asyncio.sleep(0)
            lanes.lanes.put_without_waking([self.undecoded(7)])
            lanes.lanes.start_lone_job_or_wake()
            assert lanes.done == []
            await eventually(lambda: lanes.done == [7], every=0.001)
