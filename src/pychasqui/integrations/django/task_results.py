"""Makes Django's TaskResult of what is stored about a job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ... import errors
from ..._wire.lenient import LATEST_MS, read_entry_id
from ...job_status import JobStatus
from .framework import TaskError, TaskResult, TaskResultStatus, normalize_json
from .run_records import RunError, RunHistory, RunRecord


def to_clamped_datetime(ms: int | None) -> datetime | None:
    """The time, or the last one that a datetime holds: other programs add tasks with times of their own."""
    return None if ms is None else datetime.fromtimestamp(min(max(ms, 0), LATEST_MS - 999) / 1000, UTC)


def make_result_id(queue_name: str, job_id: str) -> str:
    return f"{queue_name}:{job_id}"


def split_result_id(given: str) -> tuple[str, str]:
    """The queue's name and the job's id, which is "" if this is no id of a result."""
    queue_name, _, job_id = given.rpartition(":")
    return queue_name, job_id if queue_name else ""


def read_call_arguments_or_none(data: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments in a job's data; None if the data is not of a Django task."""
    if not isinstance(data, dict) or data.keys() - {"args", "kwargs", "attempts"}:
        return None
    args, kwargs = data.get("args", []), data.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        return None
    try:
        return normalize_json(args), normalize_json(kwargs)
    except (TypeError, ValueError, RecursionError):  # other programs may send what is not JSON
        return None


def make_unstarted_result(task: Any, id_: str, args: Any, kwargs: Any) -> Any:
    """The result of a task that was just enqueued, or is about to be."""
    return TaskResult(
        task=task,
        id=id_,
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def set_result_fields(result: Any, **values: Any) -> None:
    """Sets fields of a TaskResult, which is frozen; Django's own backends do the same."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def make_done_result(task: Any, id_: str, record: RunRecord) -> Any:
    """The result of a job that is done."""
    result = make_unstarted_result(task, id_, record.args, record.kwargs)
    set_result_fields(
        result,
        status=TaskResultStatus.SUCCESSFUL,
        enqueued_at=to_clamped_datetime(record.enqueued_at_ms),
        started_at=to_clamped_datetime(record.started_at_ms),
        last_attempted_at=to_clamped_datetime(record.last_attempted_at_ms),
        finished_at=to_clamped_datetime(record.finished_at_ms),
        worker_ids=record.workers,
        errors=make_task_errors(record.errors),
        _return_value=record.value,
    )
    return result


def make_result_from_status(task: Any, id_: str, status: JobStatus, history: RunHistory) -> Any:
    """The result of a job that waits, runs, is dead or was cancelled."""
    args, kwargs = read_call_arguments_or_none(status.data) or ([], {})
    result = make_unstarted_result(task, id_, args, kwargs)
    has_failed = status.state in ("dead", "cancelled") or _has_failed_for_good(status, history)
    if has_failed:
        state = TaskResultStatus.FAILED
    else:
        # Of a long log the first lines are gone; then its event says that it has begun.
        has_begun = history.is_running or (not history.task and status.since_ms is not None)
        is_running = status.state == "running" and has_begun
        state = TaskResultStatus.RUNNING if is_running else TaskResultStatus.READY
    found = list(history.errors)
    if has_failed and (not found or history.is_running):
        found.append(_make_error_of_end(status))
    set_result_fields(
        result,
        status=state,
        enqueued_at=to_clamped_datetime(status.created_at_ms),
        started_at=to_clamped_datetime(history.started_at_ms),
        last_attempted_at=to_clamped_datetime(history.last_attempted_at_ms),
        finished_at=to_clamped_datetime(history.finished_at_ms or status.since_ms) if has_failed else None,
        worker_ids=history.workers,
        errors=make_task_errors(found),
    )
    return result


def _has_failed_for_good(status: JobStatus, history: RunHistory) -> bool:
    """Whether its last run has failed since it was looked for. The entry of a replayed job is newer than that."""
    if history.finished_at_ms is None:
        return False
    return status.entry_id is None or read_entry_id(status.entry_id)[0] <= history.finished_at_ms


def _make_error_of_end(status: JobStatus) -> RunError:
    """Why a job has ended whose last run has logged no error: it was stopped, or its data cannot be read."""
    name = "JobCancelled" if status.state == "cancelled" else status.error_type or ""
    own = name if hasattr(errors, name) else "JobFailed"
    return RunError(f"{errors.__name__}.{own}", status.traceback or status.error or status.reason or status.state)


def make_task_errors(run_errors: list[RunError]) -> list[Any]:
    return [TaskError(exception_class_path=one.exception_class_path, traceback=one.traceback) for one in run_errors]
