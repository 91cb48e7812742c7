"""Logs which jobs still run while a worker stops: what it waits for, and what becomes of the rest."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from .._core.delivery import Delivery
from .._core.guarded_log import GuardedLogger

log = GuardedLogger("chasqui.worker")

NAMES_SHOWN = 5


def log_drain_start(
    consumer: str, running: Sequence[Delivery], *, stopped_by: str, deadline_s: float, has_signals: bool
) -> None:
    """`stopped_by` is the signal or the cancellation that stops the worker; "" if the program has called close()."""
    by, hint = stopped_by or "close()", "; a second signal stops it at once" if has_signals else ""
    if not running:
        log.info("%s: worker %s stops, no job is running", by, consumer)
        return
    # A user that has pressed Ctrl-C does not expect a program that goes on; a program that has called close() does.
    log.log(
        logging.WARNING if stopped_by else logging.INFO,
        "%s: worker %s waits for %d running job%s (%s) for up to %g s%s",
        by,
        consumer,
        len(running),
        "" if len(running) == 1 else "s",
        describe_most_frequent_names(running),
        deadline_s,
        hint,
    )


def log_cut_off_jobs_if_any(consumer: str, running: Sequence[Delivery], *, reason: str, fate: str) -> None:
    if running:
        names = describe_most_frequent_names(running)
        log.warning(
            "worker %s: %s, and %d of its jobs still run (%s): %s",
            consumer,
            reason,
            len(running),
            names,
            fate,
        )


def log_uncancelled_jobs_if_any(consumer: str, running: Sequence[Delivery], *, lease_s: float) -> None:
    """`running` are the jobs whose handlers go on although they were cancelled, such as one that waits for a thread."""
    if running:
        log.warning(
            "worker %s: %d of its cancelled jobs still run (%s): they go on for as long as this process lives; the "
            "jobs run again elsewhere when the lease of %g s has ended, also beside these runs, and have used up "
            "an attempt",
            consumer,
            len(running),
            describe_most_frequent_names(running),
            lease_s,
        )


def describe_fate_of_coroutines(cleanup_s: float) -> str:
    return (
        f"their handlers are cancelled and have {cleanup_s:g} s to clean up; the jobs of those that end are handed "
        "back, run again elsewhere, and have used up no attempt"
    )


def describe_fate_of_threads(lease_s: float) -> str:
    return (
        "threads cannot be stopped and go on for as long as this process lives; the jobs run again elsewhere when the "
        f"lease of {lease_s:g} s has ended, and have used up an attempt"
    )


def describe_most_frequent_names(jobs: Sequence[Delivery]) -> str:
    """Returns the most frequent names, each with its number."""
    names = Counter(job.name for job in jobs)
    shown = [f"{count} of {name[:50]!r}" for name, count in names.most_common(NAMES_SHOWN)]
    others = len(names) - NAMES_SHOWN
    return ", ".join(shown) + (f" and {others} other name{'s' if others > 1 else ''}" if others > 0 else "")
