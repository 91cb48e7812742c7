"""Outcomes as a FailureHandler builds them, with everything filled in that a test does not care about."""

from __future__ import annotations

from pychasqui._core.outcome import Buried, FailedRun, Rescheduled

RUN = FailedRun(1, 100, "err", "LookupError", "no such customer")


def rescheduled(
    entry_id: bytes, delivery: int = 1, *, delay_ms: int = 100, member: bytes = b"member", job_id: str = "job"
) -> Rescheduled:
    return Rescheduled(entry_id, delivery, delay_ms, member, job_id, False, job_id, 5, RUN)


def buried(entry_id: bytes, delivery: int = 1, *, letter: list[bytes] | None = None, job_id: str = "job") -> Buried:
    letter = [b"d", b"x"] if letter is None else letter
    return Buried(entry_id, delivery, letter, job_id, False, job_id, 5, "unrecoverable", 1, RUN)
