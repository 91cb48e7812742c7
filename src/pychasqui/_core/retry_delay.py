"""Computes the delay between a failed run of a job and its next run. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from .retry_options import BackoffFields, BackoffSpec, RetryPolicy


def compute_retry_delay_ms(
    policy: RetryPolicy, backoff: BackoffFields | None, attempt: int, jitter: Callable[[int], int]
) -> int:
    """Returns the delay after the run with this (0-based) attempt number has failed.

    `jitter(n)` returns an integer from 0 to n - 1. It is added on top of the bound, as in the official engine.
    """
    if backoff is None:
        backoff = BackoffSpec("exponential", policy.initial_ms)
    max_delay_ms = policy.max_ms if backoff.max_delay_ms is None else backoff.max_delay_ms
    spread = policy.jitter_ms if backoff.jitter_ms is None else backoff.jitter_ms
    if backoff.kind == "fixed":
        base: float = backoff.delay_ms
    else:
        factor = policy.multiplier if backoff.multiplier is None else backoff.multiplier
        try:
            base = backoff.delay_ms * float(factor) ** attempt
        except OverflowError:
            base = math.inf
        if math.isnan(base):  # 0 times infinity: use the longest delay
            base = math.inf
    delay = int(max(0, min(base, max_delay_ms)))
    return delay + (jitter(spread) if spread else 0)
