"""Adds the fields of the running job to log records, and formats records as one JSON object a line.

    import logging
    from pychasqui import logs

    handler = logging.StreamHandler()
    handler.addFilter(logs.JobFilter())
    handler.setFormatter(logs.JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)

Each record that a handler logs, also from its own threads and tasks, then carries `queue`, `job_id`, `job_name` and
`attempt` (0 in the first run), and so do the worker's records about a job:

    {"ts":"2026-11-15T09:00:00.123Z","level":"INFO","logger":"shop","event":"mail sent","queue":"mails",...}

Workers that start before the first JobFilter is made do not set the fields, to save the cost. Put the filter on
handlers: a filter on a logger sees only records of that very logger. A format of your own needs a default for records
outside of a job: `logging.Formatter("%(job_id)s %(message)s", defaults={"job_id": "-"})`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from ._core.delivery import Delivery
from ._core.printable import printable
from ._core.user_objects import class_name_of, safe_str

__all__ = ["JobFilter", "JsonFormatter"]

P = ParamSpec("P")
T = TypeVar("T")

JOB_FIELDS = ("queue", "job_id", "job_name", "attempt")
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 4_000  # of a message or a value; escaped, a character may take twelve
MAX_LINE_CHARS = 64_000  # fields that do not fit are left out

# The queue's name and the job. Fields are read from the job only when a record is logged.
_running: ContextVar[tuple[str, Delivery] | None] = ContextVar("pychasqui_running_job", default=None)
_filters_made = 0


def bind_job_to_context(queue_name: str, handler: Callable[[Delivery], T]) -> Callable[[Delivery], T]:
    """Wraps a handler so that records logged in the context of the call, also later, carry the job's fields."""
    if not _filters_made:  # no record would show them
        return handler

    def run_in_context_of_job(job: Delivery) -> T:
        _running.set((queue_name, job))
        return handler(job)

    return run_in_context_of_job


def bind_job_to_call(queue_name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Wraps `function(job, ...)` so that records logged during the call carry the job's fields."""
    if not _filters_made:
        return function

    def run_and_unset_job(*arguments: P.args, **options: P.kwargs) -> T:
        job: Any = arguments[0]
        before = _running.set((queue_name, job))
        try:
            return function(*arguments, **options)
        finally:
            _running.reset(before)

    return run_and_unset_job


class JobFilter(logging.Filter):
    """Adds the fields of the running job to every record. Does not change fields that a record already has."""

    def __init__(self, name: str = "") -> None:
        global _filters_made
        super().__init__(name)
        _filters_made += 1

    def filter(self, record: logging.LogRecord) -> bool:
        running = _running.get()
        if running is not None:
            queue_name, job = running
            values = (queue_name, printable(job.id), printable(job.name), job.attempt)
            for field, value in zip(JOB_FIELDS, values, strict=True):
                if field not in record.__dict__:
                    setattr(record, field, value)
        return super().filter(record)


# The attributes of every record. Any other was set by `extra` or by a filter, and is shown.
_ORDINARY = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of ASCII JSON: ts, level, logger, event, the error if any, then all other fields.

    The line is bounded, and no object in it can make it raise; python-json-logger 4.2 does neither.
    """

    def format(self, record: logging.LogRecord) -> str:
        created = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "ts": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": _make_message(record),
        }
        for field in JOB_FIELDS:
            if field in record.__dict__:
                fields[field] = record.__dict__[field]
        fields |= self._make_error_fields(record)
        if record.stack_info:
            fields["stack"] = record.stack_info
        for field, value in record.__dict__.items():
            if field not in _ORDINARY:
                fields.setdefault(field, value)
        return _join_fields_that_fit_as_json(fields)

    def _make_error_fields(self, record: logging.LogRecord) -> dict[str, str]:
        if not record.exc_info or record.exc_info[0] is None:
            return {}
        kind, error, _ = record.exc_info
        try:
            stack = self.formatException(record.exc_info)
        except Exception:  # noqa: BLE001  a foreign __str__ or __cause__ may raise anything
            stack = "(the traceback cannot be formatted)"
        return {
            "error.type": kind.__qualname__ if error is None else class_name_of(error),
            "error.message": _to_cut_text(error),
            "error.stack": stack[-MAX_TEXT_CHARS:],  # its end names the line that failed
        }


def _make_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  a foreign __str__ may raise anything, and arguments may not fit the text
        return f"{_to_cut_text(record.msg)} (its arguments cannot be formatted)"


def _join_fields_that_fit_as_json(fields: dict[str, Any]) -> str:
    members, chars, is_cut = list[str](), 0, False
    for field, value in fields.items():
        member = f"{json.dumps(str(field)[:MAX_NAME_CHARS])}:{_encode_as_json_or_cut_text(value)}"
        if chars + len(member) > MAX_LINE_CHARS:
            is_cut = True
            continue
        members.append(member)
        chars += len(member) + 1
    if is_cut:
        members.append('"is_cut":true')
    return "{" + ",".join(members) + "}"


def _encode_as_json_or_cut_text(value: Any) -> str:
    """Returns JSON for any value; a value that JSON cannot hold, or that is too long, becomes text."""
    if isinstance(value, str):
        return json.dumps(value[:MAX_TEXT_CHARS])
    try:
        encoded = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_to_cut_text)
    except Exception:  # noqa: BLE001  a foreign object may raise anything
        return json.dumps(_to_cut_text(value))
    return encoded if len(encoded) <= MAX_TEXT_CHARS else json.dumps(encoded[:MAX_TEXT_CHARS])


def _to_cut_text(value: object) -> str:
    return safe_str(value)[:MAX_TEXT_CHARS]
