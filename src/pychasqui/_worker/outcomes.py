"""What becomes of a job whose handler failed: decided here, done elsewhere. Pure but for the jitter it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .._core.delivery import Delivery
from .._core.failure import Failure
from .._core.limits import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS
from .._wire.envelope import encode_envelope, join_member
from ..errors import LONGEST_DELAY_S
from ..retry import MAX_U32, RetryPolicy, retry_delay_ms


@dataclass(frozen=True)
class Retry:
    delay_ms: int


@dataclass(frozen=True)
class Dead:
    reason: str


def judge(
    job: Delivery, failure: Failure, max_attempts: int, policy: RetryPolicy, jitter: Callable[[int], int]
) -> Retry | Dead:
    """A retry after a delay, or the dead letters for a reason."""
    if failure.is_unrecoverable:
        return Dead("unrecoverable")
    if job.attempt + 1 >= runs_allowed(job, max_attempts):
        return Dead("retries_exhausted")
    if failure.delay_ms is not None:
        return Retry(failure.delay_ms)
    backoff = job.retry.backoff if job.retry is not None else None
    delay_ms = retry_delay_ms(policy, backoff, job.attempt, jitter)
    return Retry(min(delay_ms, 1000 * LONGEST_DELAY_S))  # past it, the server's arithmetic ends somewhere


def runs_allowed(job: Delivery, max_attempts: int) -> int:
    """How many runs this job has in all: its own setting, else the worker's."""
    own = job.retry.max_attempts if job.retry is not None else None
    return max_attempts if own is None else own


def delayed_member(job: Delivery) -> bytes:
    """The failed job as it waits for its next run."""
    attempt = min(job.attempt + 1, MAX_U32)  # deliveries count as attempts, and others may set their number
    envelope = encode_envelope(job.id, job.payload, job.created_at_ms, attempt, job.retry, job.extras)
    return join_member(job.name, envelope)


def dead_letter(job: Delivery, reason: str, failure: Failure | None, runs: int, worker: str) -> list[bytes]:
    """The fields of a dead job: the official ones, then what went wrong."""
    attempt = min(job.attempt, MAX_U32)
    envelope = encode_envelope(job.id, job.payload, job.created_at_ms, attempt, job.retry, job.extras)
    fields = [b"d", envelope]
    if job.name:
        fields += (b"n", job.name.encode())
    fields += (b"source_id", job.entry_id, b"reason", reason.encode(), b"attempts", b"%d" % runs)
    if failure is not None:
        fields += (b"error_type", _bounded(failure.error_type, 200))
        fields += (b"error", _bounded(failure.text, MAX_ERROR_CHARS))
        fields += (b"traceback", _bounded(failure.traceback(), MAX_TRACEBACK_CHARS))
    return [*fields, b"worker", worker.encode()]


def rejected_letter(entry_id: bytes, fields: list[bytes] | None, reason: str, detail: str, worker: str) -> list[bytes]:
    """The fields of an entry that could not even become a job; its bytes and name are kept as they were.

    Without its fields, because they were too large to be sent here, bury.lua takes both from the entry.
    """
    pairs = dict(zip((fields or [])[::2], (fields or [])[1::2], strict=False))
    letter = [b"", b""] if fields is None else [b"d", pairs.get(b"d", b"")]
    if pairs.get(b"n"):
        letter += (b"n", pairs[b"n"])
    letter += (b"source_id", entry_id, b"reason", reason.encode(), b"detail", _bounded(detail, MAX_ERROR_CHARS))
    if b"d" not in pairs and pairs:
        letter += (b"raw", b" ".join(word.hex().encode() for word in (fields or []))[:MAX_TRACEBACK_CHARS])
    return [*letter, b"attempts", b"0", b"worker", worker.encode()]


def _bounded(text: str, chars: int) -> bytes:
    return text[:chars].encode("utf-8", "backslashreplace")
