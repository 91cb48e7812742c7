"""What a worker stores about the runs of a Django task. Pure.

At each start and each failure it adds a line of JSON to the job's log; the result of a job that is done is a record of
all its runs. TaskResult is made of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..._wire.job_log import MAX_LINE_BYTES

MAX_PATH_CHARS = 200


class StartLine(msgspec.Struct, tag_field="chasqui", tag="started"):
    """A run begins."""

    at_ms: int
    worker: str
    task: str


class RunError(msgspec.Struct):
    """What a run raised, as TaskError has it."""

    exception_class_path: str
    traceback: str


def make_run_error(exception_class_path: str, traceback: str) -> RunError:
    """Escapes what UTF-8 cannot hold."""
    return RunError(*(text.encode("utf-8", "backslashreplace").decode() for text in (exception_class_path, traceback)))


class FailureLine(msgspec.Struct, tag_field="chasqui", tag="failed"):
    """A run has failed. `is_last`: there will be no other."""

    at_ms: int
    is_last: bool
    error: RunError


class RunRecord(msgspec.Struct, kw_only=True):
    """The result of a job that is done."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    value: Any
    enqueued_at_ms: int
    started_at_ms: int
    last_attempted_at_ms: int
    finished_at_ms: int
    workers: list[str]
    errors: list[RunError]


@dataclass
class RunHistory:
    """What the log of a job says about its runs so far."""

    task: str = ""
    started_at_ms: int | None = None
    last_attempted_at_ms: int | None = None
    finished_at_ms: int | None = None  # of the last failure, if no run follows it
    workers: list[str] = field(default_factory=list)
    errors: list[RunError] = field(default_factory=list)
    is_running: bool = False

    def apply_line(self, line: StartLine | FailureLine) -> None:
        if isinstance(line, StartLine):
            self.task, self.is_running, self.finished_at_ms = line.task, True, None
            self.started_at_ms = self.started_at_ms or line.at_ms
            self.last_attempted_at_ms = line.at_ms
            self.workers.append(line.worker)
        else:
            self.is_running = False
            self.finished_at_ms = line.at_ms if line.is_last else None
            self.errors.append(line.error)


_lines: msgspec.json.Decoder[StartLine | FailureLine] = msgspec.json.Decoder(StartLine | FailureLine)


def parse_run_history(lines: Iterable[str]) -> RunHistory:
    """Reads a job's log. Lines that the task itself has logged are passed over."""
    history = RunHistory()
    for line in lines:
        try:
            history.apply_line(_lines.decode(line))
        except msgspec.DecodeError:
            continue
    return history


def encode_log_line_cutting_traceback(line: StartLine | FailureLine) -> str:
    """The line as it is logged, short enough not to be cut: of a long traceback its end, which names the error."""
    encoded = msgspec.json.encode(line)
    while len(encoded) > MAX_LINE_BYTES and isinstance(line, FailureLine):
        path, traceback = line.error.exception_class_path[:MAX_PATH_CHARS], line.error.traceback
        kept = len(traceback) * MAX_LINE_BYTES // (len(encoded) + MAX_PATH_CHARS)
        line = FailureLine(line.at_ms, line.is_last, RunError(path, traceback[-kept:] if kept else ""))
        encoded = msgspec.json.encode(line)
    return encoded.decode()


def copy_arguments(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copies what a job was sent with: a task may change what it is given."""
    copied: list[Any] = msgspec.to_builtins([args, kwargs])
    return copied[0], copied[1]


def record_to_dict(record: RunRecord) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(record)
    return written


def read_run_record_or_none(result: Any) -> RunRecord | None:
    """The record of a job that is done; None if something else has stored its result."""
    try:
        return msgspec.convert(result, RunRecord)
    except msgspec.ValidationError:
        return None
