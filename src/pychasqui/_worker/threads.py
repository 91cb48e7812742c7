"""Keeps the threads of a worker: starts one when there is a job for it, parks it when there is none.

A thread that finds nothing to do parks on a lock of its own. wake_or_start_one_unless_all_busy() wakes one of them, or
starts one, and a thread that leaves jobs behind wakes the next. So a burst of short jobs costs one or two wake-ups, and
no job waits behind one that blocks.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress


class Threads:
    """wake_or_start_one_unless_all_busy() has a thread call `run_jobs` with its number; close() ends all.

    `run_jobs` returns when `has_job` is False.
    """

    def __init__(self, max_count: int, *, run_jobs: Callable[[int], None], has_job: Callable[[], bool]) -> None:
        self.is_waking = False  # a thread is about to look for a job
        self._max_count = max_count
        self._run_jobs = run_jobs
        self._has_job = has_job
        self._parked: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many have been started."""
        return len(self._threads)

    def wake_or_start_one_unless_all_busy(self) -> None:
        """Wakes a parked thread, or starts one. The event loop calls it, and so do threads."""
        if not self._parked and len(self._threads) == self._max_count:
            return  # hot: 1 us a job; all are busy, and each looks for the next job when its own has ended
        # hot: one at a time, 3 us a job against 18 if each job wakes a thread; benchmarks work-def
        self.is_waking = True
        try:
            self._parked.pop().release()
        except IndexError:
            with self._starting:
                if len(self._threads) == self._max_count or self._is_closed or not self._try_start_thread():
                    self.is_waking = False  # a busy thread looks for the next job when its own has ended

    def close(self) -> None:
        """Ends threads that are parked, and others once their job has ended: a thread cannot be stopped."""
        self._is_closed = True
        while self._parked:
            self._parked.pop().release()
        atexit.unregister(self._join_threads_at_exit)
        if any(thread.is_alive() for thread in self._threads):
            atexit.register(self._join_threads_at_exit)

    def _try_start_thread(self) -> bool:
        # A daemon, so that a worker that was never closed does not keep the process alive; see _join_threads_at_exit().
        number = len(self._threads)
        thread = threading.Thread(target=self._run_thread, args=(number,), name=f"chasqui-lane_{number}", daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # the system has none left
            self._threads.pop()
            return False
        if number == 0:
            atexit.register(self._join_threads_at_exit)
        return True

    def _join_threads_at_exit(self) -> None:
        """Lets running jobs end before the interpreter exits, as non-daemon threads would."""
        self.close()
        for thread in self._threads:
            thread.join()

    def _run_thread(self, number: int) -> None:
        parking = threading.Lock()
        parking.acquire()
        self.is_waking = False
        while not self._is_closed:
            self._run_jobs(number)
            self._park_until_woken_or_job(parking)

    def _park_until_woken_or_job(self, parking: threading.Lock) -> None:
        """Blocks until woken. A job that came between the last look and the parking is seen here."""
        self._parked.append(parking)
        if self._has_job() or self._is_closed:
            with suppress(ValueError):  # it was taken out to be woken: the lock is about to be released
                self._parked.remove(parking)
                return
        parking.acquire()
        self.is_waking = False
