"""The clock by which a worker judges its own lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# CLOCK_MONOTONIC stands still while a machine sleeps, and a lease does not. Only Linux has a clock that goes on then.
lease_clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
