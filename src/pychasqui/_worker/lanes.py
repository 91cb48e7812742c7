"""N lanes drain one inbox and run the handler.

The lanes are tasks that live as long as the worker; a job gets no task of its own. Handlers that never await would
keep the event loop for as long as the inbox holds jobs, so the lanes share a time slice: once it is used up they let
the loop turn, and the next turn brings the next slice. Nothing is started while the worker's lease is over, because
another worker may have taken the job. A job that comes alone does not wait for its lane to wake up: its first step is
taken where it arrives, in the lane's name, and the lane goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from copy import copy
from time import monotonic
from types import CoroutineType
from typing import Any, cast

from .._core.clock import lease_clock
from .._core.delivery import Delivery
from .._core.limits import TURN_S
from .first_step import RunHandler, StartedJob, run_first_step_and_keep_error
from .job_context import HandlerExit, as_coroutine, await_rest_of_coroutine
from .shared import Shared
from .task_ends import CLEANUP_S, LAST_CLEANUP_S, cancel_and_wait_with_timeout, get_current_task, uncancel_current_task


class Lanes:
    """start() -> jobs are run -> take_out_unstarted_jobs(), wait_until_all_ran() -> stop() cancels what runs."""

    def __init__(
        self,
        handler: RunHandler,
        shared: Shared,
        *,
        on_start: Callable[[Delivery], None] | None,
        on_done: Callable[[Delivery, Any], None],
        on_failed: Callable[[Delivery, BaseException], None],
        decode_or_settle: Callable[[Delivery], Awaitable[bool]],
        is_abandoned: Callable[[], bool],
    ) -> None:
        self.finished = 0  # runs that have ended, well or not
        self._low_water = -1  # the inbox size at which the lanes ask for more jobs; they also do when it is empty
        self._room, self._lease, self._on_death = shared.room, shared.lease, shared.on_death
        self._holdings, self._may_have_orphans = shared.holdings, shared.may_have_orphans
        self._is_abandoned = is_abandoned  # whether the loop ends without the worker having been stopped
        self._started, self._handler = 0, handler
        self._on_start, self._on_done, self._on_failed = on_start, on_done, on_failed
        self._decode_or_settle = decode_or_settle  # what was put off until it starts; whether it is to run
        self._inbox, self._running = shared.holdings.inbox, shared.holdings.running
        self._idle: deque[tuple[int, asyncio.Future[None]]] = deque()  # numbers of lanes, and what wakes them
        self._begun: dict[int, StartedJob] = {}  # by lane
        self._lost_undecoded: set[bytes] = set()  # entries that were lost while a lane decoded them
        self._tasks: list[asyncio.Task[None]] = []
        self._alive = 0  # how many of them have not ended
        self._loop: asyncio.AbstractEventLoop  # from start() on
        self._turn_is_open, self._turn_ends_at = False, 0.0
        self._handlers_wait = False  # since the lanes were last woken, a handler has not ended in its first step
        self._drained: asyncio.Future[None] | None = None
        self._is_stopping = False
        self.has_uncancelled_handler = False  # a handler that went on when it was cancelled

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(len(self._running)):
            lane = asyncio.create_task(self._run_lane(number), name=f"chasqui lane {number}")
            lane.add_done_callback(self._count_lane_end_and_report_death)
            self._tasks.append(lane)
        self._alive = len(self._tasks)

    def put_and_wake(self, jobs: list[Delivery]) -> None:
        self.put_without_waking(jobs)
        self.wake_for_waiting_jobs()

    def put_without_waking(self, jobs: list[Delivery]) -> None:
        """Is the first step of put_and_wake(): start_lone_job_or_wake() or wake_for_waiting_jobs() must follow."""
        self._inbox.extend(jobs)

    def start_lone_job_or_wake(self) -> None:
        """Starts a job that is alone here and now; wakes the lanes for others. Called outside of any task."""
        # hot: that is a turn of the loop earlier, 15 us on an idle machine
        now, idle = monotonic(), self._idle
        inbox = self._inbox
        is_alone = len(inbox) == 1 and inbox[0].is_decoded
        if not is_alone or lease_clock() >= self._lease.until or not idle or idle[0][1].done():
            self.wake_for_waiting_jobs()
            return
        number, me = idle.popleft()
        job = self._running[number] = self._inbox[0]
        self._inbox.popleft()
        job.started_at = now
        self._started += 1
        if self._on_start is not None:
            self._on_start(job)
        result, begun = run_first_step_and_keep_error(self._loop, self._tasks[number], self._handler, job)
        if begun is None:
            job.ended_at = monotonic()
            try:
                self._on_done(job, result)
            except Exception as defect:  # noqa: BLE001  the lane dies of it, not the caller
                if me.done():  # the handler has cancelled its own task: the lane wakes up by that, and lives
                    self._on_death("lane", defect)
                else:
                    me.set_exception(defect)
                return
            self._running[number] = None
            self.finished += 1
        else:
            self._begun[number] = begun
        if me.done():
            return
        if begun is None:
            idle.appendleft((number, me))
        else:
            me.set_result(None)

    @property
    def free_minus_waiting(self) -> int:
        """Lanes with nothing to do, less the jobs already waiting for one."""
        return len(self._running) - (self._started - self.finished) - len(self._inbox)

    @property
    def waiting_count(self) -> int:
        return len(self._inbox)

    @property
    def inbox_bytes(self) -> int:
        """How many bytes the waiting jobs take, encoded."""
        return sum(len(job.payload) for job in self._inbox)

    def set_low_water(self, low_water: int) -> None:
        """From now on the lanes send the room signal when the inbox falls to this size."""
        self._low_water = low_water

    def get_lane_task(self, lane_number: int) -> asyncio.Task[None]:
        return self._tasks[lane_number]

    def is_lane_task(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._tasks

    def wake_after_lapse(self) -> None:
        """Starts jobs again after the lease was over."""
        self._end_turn_and_wake()

    def drop_lost_waiting_and_undecoded_jobs(self, ids: set[bytes]) -> bool:
        """Forgets jobs that another worker has taken. One that runs goes on, and its outcome does not count.

        Returns whether any of them was still here.
        """
        running = self._holdings.list_running_jobs()
        were_here = any(job.entry_id in ids for job in (*self._inbox, *running))
        self._lost_undecoded |= {job.entry_id for job in running if not job.is_decoded and job.entry_id in ids}
        for job in [job for job in self._inbox if job.entry_id in ids]:
            self._inbox.remove(job)  # one by one: the heartbeat's thread must see the others all the time
        self._signal_if_room_or_drained()
        return were_here

    def take_out_unstarted_jobs(self, kept_count: int = 0) -> list[Delivery]:
        """Takes all but the first `kept_count` jobs out of the inbox, so that other workers can run them."""
        return [self._inbox.pop() for _ in range(len(self._inbox) - kept_count)][::-1]

    async def wait_until_all_ran(self) -> None:
        """Waits until every job that was offered has run."""
        while self._alive and (self._inbox or len(self._idle) < self._alive):
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    async def stop(self, hurried: asyncio.Event | None = None) -> list[Delivery]:
        """Ends the lanes; returns the jobs whose handlers were cancelled.

        A handler is cancelled once and has CLEANUP_S to roll back what it has begun, less once `hurried` is set.
        One that has swallowed that is cancelled once more, and left behind if it goes on all the same.
        """
        self._is_stopping, self._turn_ends_at = True, 0.0
        await cancel_and_wait_with_timeout(self._tasks, CLEANUP_S, hurried)
        await cancel_and_wait_with_timeout(self._tasks, LAST_CLEANUP_S)
        self.has_uncancelled_handler = not all(lane.done() for lane in self._tasks)
        ended = zip(self._tasks, self._running, strict=True)
        return [job for task, job in ended if job is not None and task.done()]

    async def _run_lane(self, lane_number: int) -> None:
        inbox, running, handler, on_done = self._inbox, self._running, self._handler, self._on_done
        on_start, now, cancelling = self._on_start, monotonic(), get_current_task().cancelling
        begun: StartedJob | None = None
        job = run = awaitable = rest = ending = cast("Any", None)
        while begun is not None or not self._is_stopping:
            # hot: 0.05 us; within a turn that is open there is no need to ask
            while begun is not None or (inbox and (now < self._turn_ends_at or self._try_begin_loop_turn(now))):
                if begun is None:
                    if cancelling():  # hot: 0.015 us; the last handler has cancelled its task, and then ended
                        _, now = await self._repeat_after_stray_cancellation(asyncio.sleep, 0), monotonic()
                        continue
                    job = running[lane_number] = inbox[0]
                    inbox.popleft()  # not before: the heartbeat's thread must see it in one place or the other
                    self._started += 1
                    if not job.is_decoded:
                        self._note_handler_waits_and_wake_lanes()
                        may_start, now = await self._decode_settle_or_put_back_job(job), monotonic()
                        if not may_start:
                            self._free_lane_without_run(lane_number)
                            continue
                    job.started_at = now
                    if on_start is not None:
                        on_start(job)
                else:
                    job = begun.job
                try:
                    if begun is None:
                        # hot: run_first_step_and_keep_error() written out, 0.2 us; most short jobs need no second step
                        run = copy_context().run
                        try:
                            awaitable = run(handler, job)
                            rest = awaitable if type(awaitable) is CoroutineType else as_coroutine(awaitable)
                            waits_for = run(rest.send, None)
                        except StopIteration as stop:
                            result = stop.value
                        except GeneratorExit as own:
                            raise HandlerExit(own) from None
                        else:
                            self._note_handler_waits_and_wake_lanes()
                            result = await await_rest_of_coroutine(run, rest, waits_for)
                    else:
                        ending, begun = begun.await_rest_or_raise_error(), None
                        result = await ending
                except GeneratorExit:  # not the handler's: this lane is closed
                    raise
                except BaseException as error:  # noqa: BLE001  a handler may raise anything, and only a signal ends us
                    now = job.ended_at = monotonic()
                    self._fail_job_or_raise_cancellation(job, error)
                else:
                    # hot: 0.08 us; the end of this job is the beginning of the next, so one reading serves both
                    now = job.ended_at = monotonic()
                    on_done(job, result)
                running[lane_number] = None
                self.finished += 1
                if len(inbox) == self._low_water:
                    self._room.send()
            job = run = awaitable = rest = waits_for = ending = result = None  # what has ended here must not live on
            begun = await self._become_idle_until_woken_or_given_job(lane_number)
            now = monotonic()

    async def _repeat_after_stray_cancellation(self, function: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        while True:
            try:
                return await function(argument)
            except asyncio.CancelledError:
                if self._is_stopping or self._is_abandoned():
                    raise
                # A cancellation that an earlier handler has left behind: the next job has nothing to do with it.
            finally:
                uncancel_current_task()

    async def _decode_settle_or_put_back_job(self, job: Delivery) -> bool:
        """Returns whether the job, once it is decoded, is to run and still ours. The decoding may take many turns."""
        as_read = copy(job)
        is_to_run: bool = await self._repeat_after_stray_cancellation(self._decode_or_settle, job)
        if job.entry_id in self._lost_undecoded:
            self._lost_undecoded.discard(job.entry_id)
            self._may_have_orphans.set()  # it may have come back meanwhile, and was not taken in because it was here
            return False
        if is_to_run and lease_clock() >= self._lease.until:
            self._inbox.appendleft(as_read)  # it may expire before it is to start
            return False
        return is_to_run

    def _free_lane_without_run(self, lane_number: int) -> None:
        """The lane's job does not run: it is settled already, waits again, or is another worker's."""
        self._running[lane_number] = None
        self.finished += 1
        if len(self._inbox) == self._low_water:
            self._room.send()

    def _try_begin_loop_turn(self, now: float) -> bool:
        """Returns whether this turn of the loop begins with this job: it had none yet, and may have one."""
        if self._turn_is_open or self._is_stopping or lease_clock() >= self._lease.until:
            return False
        self._turn_is_open = True
        self._turn_ends_at = now + TURN_S
        asyncio.get_running_loop().call_soon(self._end_turn_and_wake)
        return True

    def _end_turn_and_wake(self) -> None:
        self._turn_is_open, self._turn_ends_at = False, 0.0
        if self._inbox:
            self.wake_for_waiting_jobs()

    def wake_for_waiting_jobs(self) -> None:
        """Wakes the lanes that the inbox can feed; two if handlers do not wait, and one that does wakes the others."""
        # hot: 0.3 us a job; a lane that is woken and finds nothing to do costs 1.5 us
        self._wake_idle_lanes(len(self._idle) if self._handlers_wait else 2)
        self._handlers_wait = False

    def _wake_idle_lanes(self, count: int) -> None:
        idle = self._idle  # hot: 1.1 us a lane against 2.3 for asyncio.Queue.get
        for _ in range(min(count, len(self._inbox), len(idle))):
            _, lane = idle.popleft()
            if not lane.done():
                lane.set_result(None)

    def _note_handler_waits_and_wake_lanes(self) -> None:  # called by a lane whose handler waits
        self._handlers_wait = True
        if self._inbox and self._idle:
            self._wake_idle_lanes(len(self._idle))

    async def _become_idle_until_woken_or_given_job(self, lane_number: int) -> StartedJob | None:
        """Waits until there is something to do; returns a job that was started here meanwhile."""
        if self._is_stopping:
            return None
        me = asyncio.get_running_loop().create_future()
        self._idle.append((lane_number, me))
        self._signal_if_room_or_drained()
        try:
            await me
        except asyncio.CancelledError as error:
            if (begun := self._begun.pop(lane_number, None)) is not None:  # the handler is meant
                return begun if begun.error is not None else begun._replace(error=error)
            if self._is_stopping or self._is_abandoned():
                raise
            # A cancellation that a handler has left behind; the lane may have been woken in the same turn.
            uncancel_current_task()
            if (lane_number, me) in self._idle:
                self._idle.remove((lane_number, me))
        return self._begun.pop(lane_number, None)

    def _signal_if_room_or_drained(self) -> None:
        if not self._inbox:
            self._room.send()
            if len(self._idle) >= self._alive:
                self._wake_drain_waiter()

    def _wake_drain_waiter(self) -> None:
        if self._drained is not None and not self._drained.done():  # the waiting task may have been cancelled
            self._drained.set_result(None)

    def _count_lane_end_and_report_death(self, lane: asyncio.Task[None]) -> None:
        self._alive -= 1
        self._wake_drain_waiter()  # which looks whether there is another to wait for
        if not lane.cancelled() and (error := lane.exception()) is not None:
            self._on_death("lane", error)

    def _fail_job_or_raise_cancellation(self, job: Delivery, error: BaseException) -> None:
        """A handler's own cancellation is a failure like another; that of a worker that stops ends the lane."""
        if type(error) is HandlerExit:
            error = error.error
        is_cancelled = issubclass(type(error), asyncio.CancelledError)  # it may lie about its __class__
        if is_cancelled and (self._is_stopping or self._is_abandoned()):
            raise error
        self._on_failed(job, error)
