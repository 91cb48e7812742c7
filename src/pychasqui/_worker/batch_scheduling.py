"""Has threads run under Linux's SCHED_BATCH while jobs wait for them: one that wakes up then interrupts no other.

Threads of a process take turns with the GIL. One whose sleep or read has ended interrupts the thread that runs on its
core, finds the GIL taken, and sleeps again; with handlers of 1 ms this costs a quarter of the throughput. Under
SCHED_BATCH it waits until the core is free, or the time slice of what runs there (about 3 ms) is over.

Where other programs keep all cores busy that wait costs more than it saves. So one of the threads measures how long it
waits for a core, and if that is too long, all go on under the normal policy for a while.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import NamedTuple

MIN_JOBS = 8  # that a thread has taken from a backlog, so that a few jobs at once cost no system calls
LOOK_S = 0.25
PAUSE_S = 30.0
MAX_WAIT_NS = 700_000  # on average, for a core: 0.05 ms on idle cores, 2 where other programs keep all of them busy
MIN_WAITS = 10  # fewer say nothing
WAITS = "/proc/thread-self/schedstat"  # ns on a core, ns waited for one, how often


class Waits(NamedTuple):
    """How long the calling thread has waited for a core, and how often."""

    total_ns: int
    times: int

    def is_long_since(self, last: Waits) -> bool:
        times = self.times - last.times
        return times >= MIN_WAITS and self.total_ns - last.total_ns > MAX_WAIT_NS * times


class BatchScheduling:
    """A thread calls note_backlog() when it takes a job and others wait, and note_no_backlog() when none is left."""

    def __init__(self, max_threads: int) -> None:
        self._is_useful = _has_normal_policy() and _read_waits_or_none() is not None
        self._is_refused = not self._is_useful
        self._jobs = [0] * max_threads  # by thread: how many it has taken while others waited
        self._is_batch = [False] * max_threads
        self._measuring_thread = -1
        self._last: Waits | None = None  # of that thread
        self._next_look_at = 0.0

    def note_backlog(self, thread_number: int) -> None:
        # hot: once a job while others wait, 0.1 us
        jobs = self._jobs[thread_number] = self._jobs[thread_number] + 1
        if self._is_batch[thread_number] is not self._is_useful and jobs >= MIN_JOBS:
            self._set_policy_of_thread(thread_number, is_batch=self._is_useful)
        if thread_number == self._measuring_thread and monotonic() >= self._next_look_at:
            self._pause_if_waits_are_long_or_end_pause()

    def note_no_backlog(self, thread_number: int) -> None:
        self._jobs[thread_number] = 0
        if self._is_batch[thread_number]:
            self._set_policy_of_thread(thread_number, is_batch=False)

    def _set_policy_of_thread(self, thread_number: int, *, is_batch: bool) -> None:
        """Sets the policy of the calling thread. Threads and processes that it starts inherit it."""
        self._is_batch[thread_number] = is_batch
        if is_batch:
            self._measuring_thread, self._last = thread_number, None
        if sys.platform == "linux":
            policy = os.SCHED_BATCH if is_batch else os.SCHED_OTHER
            try:
                os.sched_setscheduler(0, policy, os.sched_param(0))
            except OSError:
                self._is_useful, self._is_refused = False, True

    def _pause_if_waits_are_long_or_end_pause(self) -> None:
        last, waits, now = self._last, _read_waits_or_none(), monotonic()
        self._last, self._next_look_at = waits, now + LOOK_S
        if not self._is_useful:
            self._is_useful = not self._is_refused
        elif last is not None and waits is not None and waits.is_long_since(last):
            self._is_useful, self._next_look_at = False, now + PAUSE_S


def _has_normal_policy() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return os.sched_getscheduler(0) == os.SCHED_OTHER
    except OSError:  # a container may forbid it, and musl does not have it
        return False


def _read_waits_or_none() -> Waits | None:
    try:
        with open(WAITS, "rb") as file:
            _on_core, total_ns, times = file.read().split()
    except (OSError, ValueError):  # not every kernel counts them; or too many files are open
        return None
    return Waits(int(total_ns), int(times))
