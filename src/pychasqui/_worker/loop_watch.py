"""Notices from another thread that the worker's event loop is blocked, and logs where it is blocked."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic

from .._core.guarded_log import GuardedLogger
from .shared import Holdings

log = GuardedLogger("chasqui.worker")

ASKS_APART_S = 0.5  # between two signs of life of the loop of a worker that runs jobs
IDLE_ASKS_APART_S = 2.0  # the same for a worker that runs none: each wakes its loop
FRAMES_SHOWN = 12
OTHER_CODE = "other code of the process: this worker runs no job"
BLOCKED_S = 1.5  # a loop that has not turned for this long is reported


class LoopWatch:
    """Made in the worker's loop.

    log_if_blocked_and_measure_if_due() is for the watching thread, at least once in ASKS_APART_S.
    """

    def __init__(
        self,
        consumer: str,
        holdings: Holdings,
        *,
        call_soon_in_worker_loop_if_running: Callable[[Callable[[], None]], None],
    ) -> None:
        self.lag_s = 0.0  # how long the loop took for its last sign of life
        self._consumer = consumer
        self._holdings = holdings
        self._call_soon_in_worker_loop_if_running = call_soon_in_worker_loop_if_running
        self._thread = threading.get_ident()
        self._asked_at: float | None = None  # when the loop was last asked for a sign of life, if it owes one
        self._last_asked_at = float("-inf")
        self._is_blocked = False

    def log_if_blocked_and_measure_if_due(self) -> None:
        self._log_if_newly_blocked()
        apart_s = ASKS_APART_S if self._holdings.list_running_jobs() else IDLE_ASKS_APART_S
        if self._asked_at is None and monotonic() >= self._last_asked_at + apart_s:
            self._request_lag_measurement()

    def _request_lag_measurement(self) -> None:
        self._asked_at = self._last_asked_at = monotonic()
        self._call_soon_in_worker_loop_if_running(self._measure_lag_and_log_if_unblocked)

    def _measure_lag_and_log_if_unblocked(self) -> None:
        """Runs in the worker's loop, which shows that the loop turns."""
        if self._asked_at is not None:
            self.lag_s = monotonic() - self._asked_at
        if self._is_blocked:
            log.warning("the event loop of worker %s turns again after %.1f s", self._consumer, self.lag_s)
        self._is_blocked, self._asked_at = False, None

    def _log_if_newly_blocked(self) -> None:
        """Logs once for each blockage how long it lasts, which jobs run, and the stack of the loop's thread."""
        asked_at = self._asked_at
        silent_s = 0.0 if asked_at is None else monotonic() - asked_at
        if silent_s < BLOCKED_S or self._is_blocked:
            return
        self._is_blocked = True
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame, FRAMES_SHOWN)) if frame is not None else "(no stack)\n"
        names = sorted({job.name for job in self._holdings.list_running_jobs()})
        log.error(
            "the event loop of worker %s has been blocked for %.1f s by %s; its leases are kept. Make such a handler a "
            "plain function, or call what blocks by asyncio.to_thread(). It stands at:\n%s",
            self._consumer,
            silent_s,
            f"a handler that does not await (running: {', '.join(map(repr, names[:10]))})" if names else OTHER_CODE,
            stack,
        )
