"""The lanes of handlers that are plain functions: N threads drain the inbox, and the event loop gathers their outcomes.

A thread takes its next job from the inbox itself, so a job costs no trip through the event loop, and waits for no
other while a thread is free. What ends while jobs wait in the inbox is gathered, and the loop looks for it once a
millisecond; a thread that finds the inbox empty wakes the loop at once. Nothing is started while the worker's lease is
over.

What only the loop can do for a thread (decoding a large job in parts, awaiting what a handler has returned) runs as a
task of the loop while the thread waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from copy import copy
from time import monotonic
from typing import Any

from .._core.clock import lease_clock
from .._core.delivery import Delivery
from .batch_scheduling import BatchScheduling
from .job_context import HandlerExit, SteppedCoroutine, await_rest_of_coroutine
from .lanes import Lanes
from .loop_calls import CallCancelled, LoopCalls
from .plain_handler import RunInThread
from .shared import Shared
from .task_ends import CLEANUP_S, LAST_CLEANUP_S, cancel_and_wait_with_timeout, get_current_task
from .thread_outcomes import DROPPED, Raised, run_handler_and_catch_errors
from .threads import Threads

GATHER_S = 0.001  # how long an outcome may wait for others while there are further jobs in the inbox
NO_THREAD_PAUSE_S = 1.0  # between two attempts to start a thread, if there is none and the system has none left


class ThreadLanes:
    """As Lanes: start() -> jobs are run -> take_out_unstarted_jobs(), wait_until_all_ran() -> stop(), close()."""

    def __init__(
        self,
        handler: RunInThread,
        shared: Shared,
        *,
        on_start: Callable[[Delivery], None] | None,
        on_done: Callable[[Delivery, Any], None],
        on_failed: Callable[[Delivery, BaseException], None],
        decode_or_settle: Callable[[Delivery], Awaitable[bool]],
        is_abandoned: Callable[[], bool],
    ) -> None:
        self.finished = 0  # runs that have ended, well or not
        self.has_uncancelled_handler = False  # a task of a handler that went on when it was cancelled
        self._low_water = -1
        self._room, self._lease, self._on_death = shared.room, shared.lease, shared.on_death
        self._handler, self._decode_or_settle, self._is_abandoned = handler, decode_or_settle, is_abandoned
        self._on_start, self._on_done, self._on_failed = on_start, on_done, on_failed
        self._holdings, self._may_have_orphans = shared.holdings, shared.may_have_orphans
        self._inbox, self._running = shared.holdings.inbox, shared.holdings.running
        self._ended, self._moving = shared.holdings.ended, shared.holdings.moving
        self._begun: deque[Delivery] = deque()  # of which on_start is not called yet
        self._coroutine_tasks: dict[int, asyncio.Task[None]] = {}  # by thread: what its handler has returned
        self._started = 0
        self._lost_undecoded: set[bytes] = set()  # entries that were lost while they were decoded
        self._threads = Threads(
            len(self._running), run_jobs=self._run_jobs_until_none_may_start, has_job=self._may_start_job
        )
        self._batch_scheduling = BatchScheduling(len(self._running))
        self._loop: asyncio.AbstractEventLoop  # from start() on
        self._context: Context
        self._loop_calls: LoopCalls | None = None
        self._wake_is_due = False  # the loop is about to gather
        self._timer_is_due = False  # it is within GATHER_S
        self._next_wake: asyncio.TimerHandle | None = None  # while there is no thread
        self._drained: asyncio.Future[None] | None = None
        self._is_stopping = self._is_stopped = False

    def start(self) -> None:
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        self._loop_calls = LoopCalls()

    # The inbox, as the event loop sees it ---------------------------------------------------------------------------

    def put_and_wake(self, jobs: list[Delivery]) -> None:
        self.put_without_waking(jobs)
        self.wake_for_waiting_jobs()

    def put_without_waking(self, jobs: list[Delivery]) -> None:
        """Is the first step of put_and_wake(): start_lone_job_or_wake() or wake_for_waiting_jobs() must follow."""
        self._inbox.extend(jobs)

    def start_lone_job_or_wake(self) -> None:
        self.wake_for_waiting_jobs()

    def wake_for_waiting_jobs(self) -> None:
        """Wakes a thread, which wakes the next one if it leaves jobs behind."""
        waiting = len(self._inbox)
        if not waiting:
            return
        if waiting > 1 or self._on_start is not None:
            self._schedule_outcome_delivery()
        if not self._threads.is_waking:
            self._threads.wake_or_start_one_unless_all_busy()
        if not self._threads.count and not self._is_stopping:
            self._fail_decoded_jobs_and_schedule_wake(RuntimeError("no thread can be started"))

    @property
    def free_minus_waiting(self) -> int:
        """Threads with nothing to do, less the jobs already waiting for one."""
        return len(self._running) - (self._started - self.finished) - len(self._inbox)

    @property
    def waiting_count(self) -> int:
        """Jobs for which there is no thread yet. A thread that is free takes its job as soon as it has woken up."""
        return min(len(self._inbox), max(0, -self.free_minus_waiting))

    @property
    def inbox_bytes(self) -> int:
        """How many bytes all jobs of the inbox take, encoded."""
        return sum(len(job.payload) for job in self._inbox.copy())

    def set_low_water(self, low_water: int) -> None:
        """From now on the room signal is sent when no more than this many jobs wait."""
        self._low_water = low_water

    def find_coroutine_task(self, thread_number: int) -> asyncio.Task[None] | None:
        """Returns the task of the coroutine that the handler has returned; None while it runs in its thread."""
        return self._coroutine_tasks.get(thread_number)

    def is_lane_task(self, task: asyncio.Task[Any] | None) -> bool:
        return self._loop_calls is not None and task in self._loop_calls.tasks

    def wake_after_lapse(self) -> None:
        """Starts jobs again after the lease was over."""
        self.wake_for_waiting_jobs()

    def drop_lost_waiting_and_undecoded_jobs(self, ids: set[bytes]) -> bool:
        """Forgets jobs that another worker has taken. One that runs goes on, and its outcome does not count.

        Returns whether any of them was still here.
        """
        with self._moving:
            running = self._holdings.list_running_jobs()
            waiting = [job for job in self._inbox if job.entry_id in ids]
            for job in waiting:
                self._inbox.remove(job)  # one by one: the heartbeat's thread must see the others all the time
            self._lost_undecoded |= {job.entry_id for job in running if not job.is_decoded and job.entry_id in ids}
        self._signal_if_room_or_drained()
        return bool(waiting) or any(job.entry_id in ids for job in running)

    def take_out_unstarted_jobs(self, kept_count: int = 0) -> list[Delivery]:
        """Takes all but the first `kept_count` jobs out of the inbox, so that other workers can run them."""
        with self._moving:
            return [self._inbox.pop() for _ in range(len(self._inbox) - kept_count)][::-1]

    # The end --------------------------------------------------------------------------------------------------------

    async def wait_until_all_ran(self) -> None:
        """Waits until every job that was offered has run."""
        while self._inbox or self._started > self.finished:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    async def stop(self, hurried: asyncio.Event | None = None) -> list[Delivery]:
        """Starts nothing more; returns the jobs that still run in threads, or whose tasks were cancelled.

        A thread cannot be stopped. A task is cancelled as the handlers of Lanes are.
        """
        self._is_stopping = True
        tasks = [] if self._loop_calls is None else list(self._loop_calls.tasks)
        await cancel_and_wait_with_timeout(tasks, CLEANUP_S, hurried)
        await cancel_and_wait_with_timeout([task for task in tasks if not task.done()], LAST_CLEANUP_S)
        self.has_uncancelled_handler = not all(task.done() for task in tasks)
        with self._moving:
            self._is_stopped = True  # from here on an outcome has no place to go
        self._deliver_outcomes()
        return self._holdings.list_running_jobs()

    def let_go_of_threads(self) -> None:
        """Ends idle threads, without waiting. What runs in others goes on, because a thread cannot be stopped."""
        self._is_stopping = True
        if self._loop_calls is not None:
            self._loop_calls.close()
        self._threads.close()

    # In a thread ----------------------------------------------------------------------------------------------------

    def _run_jobs_until_none_may_start(self, thread_number: int) -> None:
        """Runs one job after another, until there is none to start."""
        try:
            self._run_jobs_and_raise_defects(thread_number)
        except CallCancelled:
            pass  # its job stays where it is: it has no outcome
        except BaseException as defect:  # noqa: BLE001  errors of handlers are outcomes
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._on_death, "lane", defect)
        self._batch_scheduling.note_no_backlog(thread_number)

    def _run_jobs_and_raise_defects(self, thread_number: int) -> None:
        inbox, running, moving, threads = self._inbox, self._running, self._moving, self._threads
        loop_calls = self._loop_calls
        assert loop_calls is not None
        job: Delivery | None = None
        outcome: Any = None
        while True:
            # hot: one lock for the end of a job and the start of the next, 0.1 us
            with moving:
                if job is not None and not self._is_stopped:
                    self._ended.append((job, outcome))
                    running[thread_number] = None
                has_ended, job, outcome = job is not None, None, None
                if self._may_start_job():
                    job = running[thread_number] = inbox[0]
                    inbox.popleft()  # not before: the heartbeat's thread must see it in one place or the other
                    self._started += 1
            if has_ended and not (self._wake_is_due or (self._timer_is_due and inbox)):
                self._wake_loop()
            if job is None:
                return
            if inbox:
                self._batch_scheduling.note_backlog(thread_number)
                if not threads.is_waking:
                    threads.wake_or_start_one_unless_all_busy()
            if not job.is_decoded and not loop_calls.run_and_wait(self._decode_settle_or_put_back_job(job)):
                outcome = DROPPED
                continue
            job.started_at = monotonic()
            if self._on_start is not None:
                self._begun.append(job)
                if not (self._wake_is_due or self._timer_is_due):
                    self._wake_loop()
            outcome = run_handler_and_catch_errors(self._context.copy().run, self._handler, job)
            if type(outcome) is SteppedCoroutine:
                loop_calls.run_and_wait(self._finish_coroutine_in_loop(thread_number, job, outcome))
                job = None
            else:
                job.ended_at = monotonic()

    def _may_start_job(self) -> bool:
        return (
            bool(self._inbox)
            and not self._is_stopping
            and lease_clock() < self._lease.until
            and not self._loop.is_closed()
        )

    def _wake_loop(self) -> None:
        self._wake_is_due = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._deliver_outcomes_on_wake)

    # In the event loop ----------------------------------------------------------------------------------------------

    async def _decode_settle_or_put_back_job(self, job: Delivery) -> bool:
        """Decodes a job that was put off; whether it is still ours, the lease holds, and it is to run."""
        as_read = copy(job)
        is_to_run = await self._decode_or_settle(job) and job.entry_id not in self._lost_undecoded
        if is_to_run and self._lease.is_over:
            with self._moving:  # else it might come between the two steps in which a thread takes another job
                self._inbox.appendleft(as_read)  # it may expire before it is to start
            return False
        return is_to_run

    async def _finish_coroutine_in_loop(self, thread_number: int, job: Delivery, steps: SteppedCoroutine) -> None:
        outcome: Any
        self._coroutine_tasks[thread_number] = get_current_task()
        try:
            outcome = await await_rest_of_coroutine(*steps)
        except GeneratorExit:  # not the handler's: the loop is gone
            raise
        except BaseException as error:
            is_cancelled = issubclass(type(error), asyncio.CancelledError)  # it may lie about its __class__
            if is_cancelled and (self._is_stopping or self._is_abandoned()):
                raise
            outcome = Raised(error.error if type(error) is HandlerExit else error)
        finally:
            del self._coroutine_tasks[thread_number]
        job.ended_at = monotonic()
        with self._moving:
            self._ended.append((job, outcome))
            self._running[thread_number] = None
        self._deliver_outcomes()

    def _schedule_outcome_delivery(self) -> None:
        if not self._timer_is_due:
            self._timer_is_due = True
            self._loop.call_later(GATHER_S, self._deliver_outcomes_on_timer)

    def _deliver_outcomes_on_timer(self) -> None:
        self._timer_is_due = False  # before the first look: a job that ends after it wakes the loop
        self._deliver_outcomes()

    def _deliver_outcomes_on_wake(self) -> None:
        self._wake_is_due = False
        self._deliver_outcomes()

    def _deliver_outcomes(self) -> None:
        """Hands all gathered outcomes on."""
        ended, has_any = self._ended, bool(self._ended)
        while ended:
            self._report_begun_jobs()
            job, outcome = ended[0]
            try:
                if type(outcome) is Raised:
                    self._on_failed(job, outcome.error)
                elif outcome is not DROPPED:
                    self._on_done(job, outcome)
                elif job.entry_id in self._lost_undecoded:
                    self._lost_undecoded.discard(job.entry_id)
                    self._may_have_orphans.set()  # it may have come back, and was not taken in because it was here
            except Exception as defect:  # noqa: BLE001
                self._on_death("lane", defect)
            ended.popleft()  # not before: the heartbeat's thread must see it in one place or the other
            self.finished += 1
        self._report_begun_jobs()
        if has_any:
            self._signal_if_room_or_drained()
            if self._inbox:
                self._schedule_outcome_delivery()

    def _report_begun_jobs(self) -> None:
        while self._begun:
            job = self._begun.popleft()
            if self._on_start is not None:
                self._on_start(job)

    def _signal_if_room_or_drained(self) -> None:
        if not self._inbox or self.waiting_count <= self._low_water:
            self._room.send()
        is_drained = not self._inbox and self._started == self.finished
        if is_drained and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _fail_decoded_jobs_and_schedule_wake(self, error: Exception) -> None:
        """Fails the jobs of the inbox, because there is no thread for them; those not decoded yet wait for one."""
        for job in [job for job in self._inbox if job.is_decoded]:
            job.started_at = job.ended_at = monotonic()
            self._on_failed(job, error)
            self._inbox.remove(job)
            self._started += 1
            self.finished += 1
        if self._inbox:
            if self._next_wake is not None:
                self._next_wake.cancel()
            self._next_wake = self._loop.call_later(NO_THREAD_PAUSE_S, self.wake_for_waiting_jobs)
        self._signal_if_room_or_drained()


AnyLanes = Lanes | ThreadLanes
