"""What becomes of a job whose handler failed: decided here, done elsewhere. Pure but for the jitter it is given."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, TracebackType

from ..codec import encode_envelope, join_member
from ..config import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS
from ..errors import LONGEST_DELAY_S, RetryLater, UnrecoverableError
from ..retry import RetryPolicy, retry_delay_ms
from .delivery import Delivery

_ENGINE = os.path.dirname(__file__)
MAX_FRAMES = 50


@dataclass(frozen=True)
class Retry:
    delay_ms: int


@dataclass(frozen=True)
class Dead:
    reason: str


def judge(
    job: Delivery, error: BaseException, max_attempts: int, policy: RetryPolicy, jitter: Callable[[int], int]
) -> Retry | Dead:
    """A retry after a delay, or the dead letters for a reason."""
    if isinstance(error, UnrecoverableError):
        return Dead("unrecoverable")
    if job.attempt + 1 >= runs_allowed(job, max_attempts):
        return Dead("retries_exhausted")
    if isinstance(error, RetryLater) and type(delay_ms := getattr(error, "delay_ms", None)) is int:
        return Retry(delay_ms)  # a subclass may not have set it, and is a failure like another then
    backoff = job.retry.backoff if job.retry is not None else None
    delay_ms = retry_delay_ms(policy, backoff, job.attempt, jitter)
    return Retry(min(delay_ms, 1000 * LONGEST_DELAY_S))  # past it, the server's arithmetic ends somewhere


def runs_allowed(job: Delivery, max_attempts: int) -> int:
    """How many runs this job has in all: its own setting, else the worker's."""
    own = job.retry.max_attempts if job.retry is not None else None
    return max_attempts if own is None else own


def delayed_member(job: Delivery) -> bytes:
    """The failed job as it waits for its next run."""
    envelope = encode_envelope(job.id, job.payload, job.created_at_ms, job.attempt + 1, job.retry, job.extras)
    return join_member(job.name, envelope)


def dead_letter(job: Delivery, reason: str, error: BaseException | None, runs: int, worker: str) -> list[bytes]:
    """The fields of a dead job: the official ones, then what went wrong."""
    envelope = encode_envelope(job.id, job.payload, job.created_at_ms, job.attempt, job.retry, job.extras)
    fields = [b"d", envelope]
    if job.name:
        fields += (b"n", job.name.encode())
    fields += (b"source_id", job.entry_id, b"reason", reason.encode(), b"attempts", b"%d" % runs)
    if error is not None:
        fields += (
            b"error_type",
            _bounded(type(error).__qualname__, 200),
            b"error",
            _bounded(error_text(error), MAX_ERROR_CHARS),
        )
        fields += (b"traceback", _bounded(_trace(error), MAX_TRACEBACK_CHARS))
    return [*fields, b"worker", worker.encode()]


def rejected_letter(entry_id: bytes, fields: list[bytes] | None, reason: str, detail: str, worker: str) -> list[bytes]:
    """The fields of an entry that could not even become a job; its bytes and name are kept as they were."""
    pairs = dict(zip((fields or [])[::2], (fields or [])[1::2], strict=False))
    letter = [b"d", pairs.get(b"d", b"")]
    if pairs.get(b"n"):
        letter += (b"n", pairs[b"n"])
    letter += (b"source_id", entry_id, b"reason", reason.encode(), b"detail", _bounded(detail, MAX_ERROR_CHARS))
    if b"d" not in pairs and pairs:
        letter += (b"raw", b" ".join(word.hex().encode() for word in (fields or []))[:MAX_TRACEBACK_CHARS])
    return [*letter, b"attempts", b"0", b"worker", worker.encode()]


def error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a foreign __str__ may raise anything
        return "(its text cannot be made)"


def _trace(error: BaseException) -> str:
    """The end of the traceback, without our own frames: it names the line that failed."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_ENGINE):
        frames = frames.tb_next
    try:
        is_single = not isinstance(error, BaseExceptionGroup)
        if is_single and error.__cause__ is None and error.__context__ is None:
            text = f"Traceback (most recent call last):\n{_stack(_lines(frames))}{_last_line(error)}"
        else:
            text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001  a foreign __str__ may raise anything
        return ""
    return text[-MAX_TRACEBACK_CHARS:]


def _last_line(error: BaseException) -> str:
    # hot: a job that is buried has one; the traceback module takes ten times as long
    if isinstance(error, SyntaxError) or getattr(error, "__notes__", None):
        return "".join(traceback.format_exception_only(error))
    kind, text = type(error), str(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {text}\n" if text else f"{name}\n"


def _lines(frames: TracebackType | None) -> tuple[tuple[CodeType, int], ...]:
    lines = []
    while frames is not None:
        lines.append((frames.tb_frame.f_code, frames.tb_lineno))
        frames = frames.tb_next
    return tuple(lines[-MAX_FRAMES:])


@lru_cache(maxsize=256)
def _stack(lines: tuple[tuple[CodeType, int], ...]) -> str:
    """Jobs tend to fail in the same places, and formatting a stack takes longer than burying a job."""
    found = (traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in lines)
    return "".join(traceback.StackSummary.from_list(list(found)).format())


def _bounded(text: str, chars: int) -> bytes:
    return text[:chars].encode("utf-8", "backslashreplace")
