"""What a handler's error says, read once and with care: it is the user's, and may raise whenever it is touched."""

from __future__ import annotations

import os
import traceback
from functools import lru_cache
from types import CodeType, TracebackType
from typing import Any, Literal, NamedTuple

from ..errors import LONGEST_DELAY_S, RetryLater, UnrecoverableError
from .limits import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS
from .user_objects import class_name, text_of

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
MAX_FRAMES = 50

# As the interpreter knows it: a class may put something else in its place.
_traceback_of = BaseException.__dict__["__traceback__"].__get__

Line = tuple[CodeType, int]


class Failure(NamedTuple):
    """A run that has ended by an error."""

    error: BaseException  # for its traceback, which is made only if somebody wants it
    kind: Literal["err", "panic"]  # panic: it is not an Exception
    error_type: str
    text: str  # cut
    lines: tuple[Line, ...]  # where it was raised, without our own frames above the handler's; the last is what failed
    is_unrecoverable: bool = False
    delay_ms: int | None = None  # what the handler has asked for by RetryLater

    def traceback(self) -> str:
        """Its end names the line that failed."""
        try:
            return _trace(self)[-MAX_TRACEBACK_CHARS:]
        except BaseException:  # noqa: BLE001  a foreign __str__ or __cause__ may raise anything
            return stack(self.lines)


def read_failure(error: BaseException) -> Failure:
    kind = type(error)  # not its __class__, which may lie or raise
    return Failure(
        error,
        "err" if issubclass(kind, Exception) else "panic",
        class_name(error),
        text_of(error)[:MAX_ERROR_CHARS],
        _lines(_own_frames(error)),
        issubclass(kind, UnrecoverableError),
        _delay_ms(error) if issubclass(kind, RetryLater) else None,
    )


def stack(lines: tuple[Line, ...]) -> str:
    return _stack(lines[-MAX_FRAMES:])


def _delay_ms(error: BaseException) -> int | None:
    """None if a subclass has not set it, or not to a number: it is a failure like another then."""
    try:
        delay_ms = error.delay_ms  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001  a foreign property may raise anything
        return None
    return min(max(delay_ms, 0), 1000 * LONGEST_DELAY_S) if type(delay_ms) is int else None


def _own_frames(error: BaseException) -> TracebackType | None:
    """The handler's own; if there are none, the last of ours."""
    frames: TracebackType | None = _traceback_of(error)
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return frames


def _trace(failure: Failure) -> str:
    error = failure.error
    is_single = not issubclass(type(error), BaseExceptionGroup)
    if is_single and error.__cause__ is None and error.__context__ is None:
        return f"Traceback (most recent call last):\n{stack(failure.lines)}{_last_line(failure)}"
    return "".join(traceback.format_exception(type(error), error, _own_frames(error)))


def _last_line(failure: Failure) -> str:
    # hot: a job that is buried has one; the traceback module takes ten times as long
    error, kind, text = failure.error, type(failure.error), failure.text
    if issubclass(kind, SyntaxError) or len(text) == MAX_ERROR_CHARS or getattr(error, "__notes__", None):
        return "".join(traceback.format_exception_only(error))
    name = (
        failure.error_type if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {text}\n" if text else f"{name}\n"


def _lines(frames: TracebackType | None) -> tuple[Line, ...]:
    lines: list[Any] = []
    while frames is not None:
        lines.append((frames.tb_frame.f_code, frames.tb_lineno))
        frames = frames.tb_next
    return tuple(lines[-MAX_FRAMES:])


@lru_cache(maxsize=256)
def _stack(lines: tuple[Line, ...]) -> str:
    """Jobs tend to fail in the same places, and formatting a stack takes longer than burying a job."""
    found = (traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in lines)
    return "".join(traceback.StackSummary.from_list(list(found)).format())
