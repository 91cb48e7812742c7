"""Stops runs that take longer than they may, or whose jobs are cancelled: one look at all lanes, no timer for a job.

A coroutine is cancelled, three times if it goes on; a thread cannot be stopped, and is only asked by
`job.is_cancelled`. A handler that goes on all the same is named in the log. It keeps its lane and its lease: nothing
counts as ended that still runs, so no job runs beside itself.

The next look is when the first deadline is over, or after the shortest timeout, but at most a minute: the deadline of a
job that starts meanwhile is later than that. So no look is too late by more than MAX_LATENESS_S.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from time import monotonic

from .._core.delivery import Delivery
from .._redis.cancellations import Cancellations
from .job_context import find_await_stack
from .job_stops import JobStops, StopRequest
from .shared import Shared

log = logging.getLogger("chasqui.worker")

MAX_LATENESS_S = 0.05  # how much later than its timeout a run may be stopped
MIN_CHECK_INTERVAL_S = 0.005
MAX_CHECK_INTERVAL_S = 60.0  # then the extensions of runs that have ended are forgotten
MAX_CANCELLATIONS = 3
CANCELLATIONS_APART_S = 0.5
MAX_FRAMES_SHOWN = 10

FindTask = Callable[[int], asyncio.Task[None] | None]


class RunWatch:
    """start() -> looks while a timeout is known -> stop().

    `find_task` returns the task of a lane; None while a handler runs in a thread. `on_unstarted` gets the jobs that are
    cancelled while they wait for a lane, under the lock of the inbox.
    """

    def __init__(
        self,
        shared: Shared,
        stops: JobStops,
        find_task: FindTask,
        *,
        on_unstarted: Callable[[Delivery], None],
    ) -> None:
        self._holdings, self._room = shared.holdings, shared.room
        self._on_unstarted = on_unstarted
        self._stops = stops
        self._find_task = find_task
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        stops.shorter_timeout_known.add_listener(self._schedule_check_if_timeout_is_known)

    def start(self) -> None:
        self._is_running = True
        self._schedule_check_if_timeout_is_known()

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_cancellations_and_stop_jobs(self, cancellations: Cancellations) -> None:
        """Stops the jobs of these notes that are here. The decoder sees those that come later."""
        self._stops.set_cancellations(cancellations)
        if not cancellations or not self._is_running:
            return
        waiting = self._holdings.settle_and_take_out_waiting_jobs(
            lambda job: job.is_decoded and cancellations.includes_job(job.entry_id, job.id), self._on_unstarted
        )
        if waiting:
            self._room.send()
        if self._timer is not None:
            self._timer.cancel()
        self._stop_runs_and_schedule_next_check()

    def _schedule_check_if_timeout_is_known(self) -> None:
        """A timeout is known that is shorter than those before it."""
        if self._is_running and self._stops.shortest_timeout_s < float("inf"):
            self._schedule_check_within(self._choose_longest_pause_s())

    def _choose_longest_pause_s(self) -> float:
        return min(max(self._stops.shortest_timeout_s, MAX_LATENESS_S), MAX_CHECK_INTERVAL_S)

    def _schedule_check_within(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(wait_s, self._stop_runs_and_schedule_next_check)

    def _stop_runs_and_schedule_next_check(self) -> None:
        self._timer = None
        now, soonest, running = monotonic(), float("inf"), self._holdings.list_running_jobs()
        self._stops.forget_ended_runs(running)
        for number, job in enumerate(self._holdings.running.copy()):
            if job is not None and job.started_at and not job.ended_at:
                soonest = min(soonest, self._stop_if_needed_and_choose_recheck_at(number, job, now))
        if soonest == float("inf") and not running and not self._holdings.inbox:
            self._stops.reset_shortest_timeout()
        if self._stops.shortest_timeout_s < float("inf"):
            soonest = min(soonest, now + self._choose_longest_pause_s())
        if soonest < float("inf"):
            self._schedule_check_within(max(soonest - monotonic(), MIN_CHECK_INTERVAL_S))

    def _stop_if_needed_and_choose_recheck_at(self, lane_number: int, job: Delivery, now: float) -> float:
        """Stops the run if its time is over. Returns when to look at it again."""
        stop = self._stops.find_stop(job)
        if stop is None and self._stops.cancellations and self._stops.cancellations.includes_job(job.entry_id, job.id):
            stop = self._stops.add_stop(job, None)
        if stop is None:
            timeout_s = self._stops.find_total_timeout_s(job)
            if timeout_s is None or now < job.started_at + timeout_s:
                return float("inf") if timeout_s is None else job.started_at + timeout_s
            stop = self._stops.add_stop(job, timeout_s)
        if now >= stop.again_at and not stop.is_given_up:
            self._cancel_again_or_give_up(lane_number, stop, now)
        return stop.again_at

    def _cancel_again_or_give_up(self, lane_number: int, stop: StopRequest, now: float) -> None:
        """Cancels the handler once more; after the last time, logs that it goes on."""
        task = self._find_task(lane_number)
        if stop.cancellations < MAX_CANCELLATIONS:
            if task is not None:
                task.cancel()
            stop.count_cancellation_and_set_next_at(now + CANCELLATIONS_APART_S)
            return
        stop.give_up()
        ran_s, job = now - stop.job.started_at, stop.job
        if task is None:
            why = "it runs in a thread, which cannot be stopped; it can look at job.is_cancelled"
        else:
            frames = traceback.StackSummary.extract((each, each.f_lineno) for each in find_await_stack(task))
            shown = "".join(traceback.format_list(frames[-MAX_FRAMES_SHOWN:])).rstrip()
            why = f"it has gone on through {MAX_CANCELLATIONS} cancellations\n{shown}"
        log.warning(
            "job %.100r (%.100r) is to stop and goes on after %.1f s; it keeps its lane and its lease: %s",
            job.id,
            job.name,
            ran_s,
            why,
        )
