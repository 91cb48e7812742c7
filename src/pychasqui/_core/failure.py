"""Reads a handler's error once. The error is the user's object, and may raise whenever it is touched."""

from __future__ import annotations

import os
import traceback
from functools import lru_cache
from types import TracebackType
from typing import Literal

import msgspec

from ..errors import LONGEST_DELAY_S, JobTimeout, RetryLater, Snooze, UnknownTask, UnrecoverableError
from .limits import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS
from .user_objects import class_name_of, safe_str

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
MAX_FRAMES = 50
_WITH_MEANING = (UnrecoverableError, RetryLater, Snooze, UnknownTask)

# The interpreter's own attribute: a class may define another one of that name.
_traceback_of = BaseException.__dict__["__traceback__"].__get__

Line = tuple[str, int, str]  # file, line number, function
# panic: it is not an Exception; timeout and cancelled: its run was stopped
FailureClass = Literal["err", "panic", "timeout", "cancelled"]


class GivenUp(UnrecoverableError):
    """An error after which its task gives up: it is read as that error, and no retry follows."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"gives up after {class_name_of(error)}")
        self.error = error


class Failure(msgspec.Struct, frozen=True):
    """What the error of a run says."""

    error: BaseException  # for format_traceback(), which is formatted only if the job is buried
    kind: FailureClass
    error_type: str
    text: str  # cut
    frames: TracebackType | None  # the handler's, without ours above them
    raised_at: Line | None  # the last of them
    is_unrecoverable: bool = False
    delay_ms: int | None = None  # what the handler asked for by RetryLater or Snooze
    snooze_limit: int | None = None  # how often a job may be put back by Snooze; None: it is no Snooze
    is_unknown_task: bool = False  # it is put back because its name is unknown, which uses up no Snooze of its task

    def format_traceback(self) -> str:
        """Formats the traceback; its end, which names the line that failed, is kept."""
        try:
            return _format_traceback(self)[-MAX_TRACEBACK_CHARS:]
        except BaseException:  # noqa: BLE001  a foreign __str__ or __cause__ may raise anything
            return format_stack(self.list_handler_lines())

    def list_handler_lines(self) -> tuple[Line, ...]:
        """Returns the handler's frames; the last one raised."""
        found: list[Line] = []
        frames = self.frames
        while frames is not None:
            found.append(_frame_to_line(frames))
            frames = frames.tb_next
        return tuple(found[-MAX_FRAMES:])


def read_failure(error: BaseException) -> Failure:
    """Reads all that is needed of an error, without trusting any of its methods."""
    kind = type(error)  # not its __class__, which may lie or raise
    if kind is GivenUp:
        return msgspec.structs.replace(read_failure(error.error), is_unrecoverable=True)  # type: ignore[attr-defined]
    frames = raising = _find_handler_frames(error)
    while raising is not None and raising.tb_next is not None:
        raising = raising.tb_next
    failure_class: FailureClass = (
        "timeout" if issubclass(kind, JobTimeout) else "err" if issubclass(kind, Exception) else "panic"
    )
    raised_at = None if raising is None else _frame_to_line(raising)
    own = (error, failure_class, class_name_of(error), safe_str(error)[:MAX_ERROR_CHARS], frames, raised_at)
    if not issubclass(kind, _WITH_MEANING):  # hot: 0.15 us; most errors only say what went wrong
        return Failure(*own)
    return Failure(
        *own,
        issubclass(kind, UnrecoverableError),
        _read_retry_delay_ms(error) if issubclass(kind, (RetryLater, Snooze)) else None,
        _read_snooze_limit(error) if issubclass(kind, Snooze) else None,
        issubclass(kind, UnknownTask),
    )


def format_stack(lines: tuple[Line, ...]) -> str:
    """Formats frames as a traceback shows them."""
    return _format_frames(lines[-MAX_FRAMES:])


def _read_retry_delay_ms(error: BaseException) -> int | None:
    """Returns the delay of a RetryLater or Snooze; None if a subclass has set no int: it counts as any other."""
    try:
        delay_ms = error.delay_ms  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001  a foreign property may raise anything
        return None
    return min(max(delay_ms, 0), 1000 * LONGEST_DELAY_S) if type(delay_ms) is int else None


def _read_snooze_limit(error: BaseException) -> int | None:
    try:
        limit = error.limit  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001  a foreign property may raise anything
        return None
    return limit if type(limit) is int else None


def _find_handler_frames(error: BaseException) -> TracebackType | None:
    """Returns the handler's own frames; if there are none, the last of ours."""
    frames: TracebackType | None = _traceback_of(error)
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return frames


def _format_traceback(failure: Failure) -> str:
    error = failure.error
    is_single = not issubclass(type(error), BaseExceptionGroup)
    if is_single and error.__cause__ is None and error.__context__ is None:
        frames = format_stack(failure.list_handler_lines())
        return f"Traceback (most recent call last):\n{frames}{_format_last_line(failure)}"
    return "".join(traceback.format_exception(type(error), error, failure.frames))


def _format_last_line(failure: Failure) -> str:
    # hot: each job that is buried has one; the traceback module takes ten times as long
    error, kind, text = failure.error, type(failure.error), failure.text
    if issubclass(kind, SyntaxError) or len(text) == MAX_ERROR_CHARS or getattr(error, "__notes__", None):
        return "".join(traceback.format_exception_only(error))
    name = (
        failure.error_type if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{name}: {text}\n" if text else f"{name}\n"


def _frame_to_line(frame: TracebackType) -> Line:
    code = frame.tb_frame.f_code
    return code.co_filename, frame.tb_lineno, code.co_name


@lru_cache(maxsize=256)
def _format_frames(lines: tuple[Line, ...]) -> str:
    """Formats frames. Cached: jobs fail in the same lines, and formatting takes longer than burying a job."""
    found = [traceback.FrameSummary(*line) for line in lines]
    return "".join(traceback.StackSummary.from_list(found).format())
