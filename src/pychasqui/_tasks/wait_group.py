"""WaitGroup: threads that wait for the same event and are woken together, by one system call."""

from __future__ import annotations

import os
from contextlib import suppress

IS_SUPPORTED = hasattr(os, "eventfd")  # Linux


class WaitGroup:
    """join() -> wait(), once in each thread -> wake_all(), once -> leave_and_see_if_reusable() in each.

    hot: a release of a lock wakes a thread while this one holds the GIL, for which the woken one has to wait at once;
    sixteen threads took three quarters of the time that one held the GIL for that. A write lets go of the GIL first.
    """

    __slots__ = ("_fd", "_is_awake", "_members")

    def __init__(self) -> None:
        self._fd = -1
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._members = 0
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        return self._is_awake

    def join(self) -> None:
        self._members += 1

    def wait(self) -> None:
        os.read(self._fd, 8)  # eventfd_read() raises InterruptedError when the system passes a signal to this thread

    def wake_all(self) -> None:
        """Wakes all that have joined, also those who do not wait yet. None may join after that."""
        self._is_awake = True
        os.eventfd_write(self._fd, self._members)

    def leave_and_see_if_reusable(self, has_waited: bool) -> bool:
        """Returns whether the group is empty and can be used again: not if a thread has left without its wake-up."""
        if has_waited:
            self._members -= 1
        if self._members:
            return False
        self._is_awake = False
        return True

    def __del__(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
