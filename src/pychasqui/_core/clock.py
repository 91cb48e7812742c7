"""The clocks: `lease_clock` for a worker's own lease, `monotonic` for pauses and deadlines, `now_ms` for dates.

Cold modules call `clock.monotonic()`, so that a test can replace it in this one place. Hot ones import it from `time`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# CLOCK_MONOTONIC stands still while a machine sleeps, and a lease does not. Only Linux has a clock that goes on then.
lease_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)

monotonic: Callable[[], float] = time.monotonic


def now_ms() -> int:
    """Returns the time of day, in ms since 1970."""
    return time.time_ns() // 1_000_000
