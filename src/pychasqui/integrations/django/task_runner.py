"""TaskRunner: runs the jobs of one queue as Django's tasks.

Coroutine functions run in the worker's event loop, plain functions in its threads. What may ask a database runs in a
thread: receivers of signals, and the closing of old connections before and after each task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutinefunction
from time import time_ns
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from ..._core.failure import read_failure
from ..._core.guarded_log import GuardedLogger
from ..._core.outcome import find_reason_of_death
from ..._core.user_objects import class_path_of
from ..._tasks.current import running_job
from ..._tasks.dispatch import make_unknown_task_error
from ..._tasks.thread_calls import ThreadCalls
from ..._wire.msgpack import decode_data, encode_data
from ...errors import InvalidData, UnrecoverableError
from ...job import Job, count_put_backs, find_timeout_error
from .backend import ChasquiBackend
from .declared_tasks import find_imported_task, list_declared_task_paths
from .framework import TaskContext, TaskResultStatus, normalize_json, signals
from .run_records import (
    FailureLine,
    RunHistory,
    RunRecord,
    StartLine,
    copy_arguments,
    encode_log_line_cutting_traceback,
    make_run_error,
    record_to_dict,
)
from .task_results import (
    make_result_id,
    make_task_errors,
    make_unstarted_result,
    read_call_arguments_or_none,
    set_result_fields,
    to_clamped_datetime,
)

log = GuardedLogger("chasqui.tasks")


class TaskRunner:
    """run(job) is the handler of a queue's worker.

    read_run_history   reads what earlier runs of a job have logged
    max_attempts   of the worker, for jobs that have no number of their own
    """

    def __init__(
        self,
        backend: ChasquiBackend,
        queue_name: str,
        *,
        thread_calls: ThreadCalls,
        read_run_history: Callable[[str], Awaitable[RunHistory]],
        max_attempts: int,
        worker_id: str,
    ) -> None:
        self._backend = backend
        self._queue_name = queue_name
        self._thread_calls = thread_calls
        self._read_run_history = read_run_history
        self._max_attempts = max_attempts
        self._worker_id = worker_id

    async def run(self, job: Job) -> dict[str, Any]:
        task, call = find_imported_task(job.name), read_call_arguments_or_none(job.data)
        if task is None:
            raise make_unknown_task_error(job.name, list_declared_task_paths(), count_put_backs(job))
        if call is None:
            raise InvalidData(f"task {job.name!r}: its data is not of the form args, kwargs")
        running_job.set(job)
        history = await self._read_run_history(job.id) if job.attempt or job.snoozes else RunHistory()
        task = task.using(queue_name=self._queue_name, backend=self._backend.alias)
        result = make_unstarted_result(task, make_result_id(self._queue_name, job.id), *call)
        own = job.data.get("attempts")
        attempts = own if isinstance(own, int) else self._max_attempts
        run = TaskRun(type(self._backend), job, result, history, attempts, self._worker_id)
        if not iscoroutinefunction(task.func):
            record: dict[str, Any] = await self._thread_calls.run_to_end_once_begun(partial(_run_plain_task, run, task))
            return record
        return await _run_coroutine_task(run, task)


class TaskRun:
    """One run of a task: its TaskResult, and what is logged and signalled about it. Its methods run in a thread."""

    def __init__(self, sender: type, job: Job, result: Any, history: RunHistory, attempts: int, worker_id: str) -> None:
        self.job = job
        self._sender = sender
        self._history = history
        self._attempts = attempts
        self._worker_id = worker_id
        self._result = result
        self._sent: tuple[list[Any], dict[str, Any]] = ([], {})

    @property
    def positional_arguments(self) -> list[Any]:
        """The arguments by position."""
        result = self._result
        return [TaskContext(task_result=result), *result.args] if result.task.takes_context else result.args

    @property
    def named_arguments(self) -> dict[str, Any]:
        named: dict[str, Any] = self._result.kwargs
        return named

    def log_and_signal_start(self) -> None:
        self._sent = copy_arguments(self._result.args, self._result.kwargs)
        line = StartLine(_now_ms(), self._worker_id, self._result.task.module_path)
        self.job.log(encode_log_line_cutting_traceback(line))
        self._history.apply_line(line)
        set_result_fields(
            self._result,
            status=TaskResultStatus.RUNNING,
            enqueued_at=to_clamped_datetime(self.job.created_at_ms),
            started_at=to_clamped_datetime(self._history.started_at_ms),
            last_attempted_at=to_clamped_datetime(line.at_ms),
            worker_ids=self._history.workers,
            errors=make_task_errors(self._history.errors),
        )
        with _log_and_suppress_errors(self._result):
            close_old_connections()
        with _log_and_suppress_errors(self._result):
            signals.task_started.send_robust(self._sender, task_result=self._result)

    def signal_success_and_make_record(self, value: Any) -> dict[str, Any]:
        """Returns the record that is stored as the job's result. Raises nothing: the task would run again."""
        record = self._make_record(value, _now_ms())
        finished_at = to_clamped_datetime(record.finished_at_ms)
        written = record_to_dict(record)  # before the receivers get the value, which they may change
        set_result_fields(
            self._result, status=TaskResultStatus.SUCCESSFUL, finished_at=finished_at, _return_value=value
        )
        with _log_and_suppress_errors(self._result):
            signals.task_finished.send_robust(self._sender, task_result=self._result)
        with _log_and_suppress_errors(self._result):
            close_old_connections()
        return written

    def _make_record(self, value: Any, now_ms: int) -> RunRecord:
        history, (args, kwargs) = self._history, self._sent
        return RunRecord(
            task=self._result.task.module_path,
            args=args,
            kwargs=kwargs,
            value=value,
            enqueued_at_ms=self.job.created_at_ms,
            started_at_ms=history.started_at_ms or now_ms,
            last_attempted_at_ms=history.last_attempted_at_ms or now_ms,
            finished_at_ms=now_ms,
            workers=history.workers,
            errors=history.errors,
        )

    def report_failure(self, error: BaseException) -> None:
        """Raises nothing: the job's end is decided by the error of the task."""
        with _log_and_suppress_errors(self._result):
            self._log_failure_and_signal_if_last(error)
        with _log_and_suppress_errors(self._result):
            close_old_connections()

    def _log_failure_and_signal_if_last(self, error: BaseException) -> None:
        failure = read_failure(error)
        is_last = find_reason_of_death(failure, self.job.attempt, self._attempts, self.job.snoozes) is not None
        if is_last or failure.delay_ms is None:  # else the task has asked to run later, which is no error
            raised = make_run_error(class_path_of(error), failure.format_traceback())
            line = FailureLine(_now_ms(), is_last, raised)
            self.job.log(encode_log_line_cutting_traceback(line))
            self._history.apply_line(line)
            set_result_fields(self._result, errors=make_task_errors(self._history.errors))
        if is_last:
            set_result_fields(self._result, status=TaskResultStatus.FAILED, finished_at=to_clamped_datetime(_now_ms()))
            self._send_task_finished_with_error(error)

    def _send_task_finished_with_error(self, error: BaseException) -> None:
        """Sends task_finished while the error is handled: Django's own receiver logs what sys.exc_info() says."""
        frames = error.__traceback__
        try:
            raise error
        except BaseException:  # noqa: BLE001  the caller raises it
            signals.task_finished.send_robust(self._sender, task_result=self._result)
        error.__traceback__ = frames


def _run_plain_task(run: TaskRun, task: Any) -> dict[str, Any]:
    """In a thread."""
    run.log_and_signal_start()
    try:
        value = _normalize_json_or_give_up(task.func(*run.positional_arguments, **run.named_arguments))
    except BaseException as error:
        run.report_failure(error)
        raise
    return run.signal_success_and_make_record(value)


async def _run_coroutine_task(run: TaskRun, task: Any) -> dict[str, Any]:
    """In the event loop."""
    await sync_to_async(run.log_and_signal_start)()
    try:
        value = _normalize_json_or_give_up(await task.func(*run.positional_arguments, **run.named_arguments))
    except asyncio.CancelledError as raised:  # its time is over, it is cancelled, or the worker closes
        if (timeout_error := find_timeout_error(run.job, raised)) is not None:
            await sync_to_async(run.report_failure)(timeout_error)
        raise
    except BaseException as raised:  # noqa: BLE001  raised below: sync_to_async adds frames to an error that is handled
        error = raised
    else:
        record: dict[str, Any] = await sync_to_async(run.signal_success_and_make_record)(value)
        return record
    try:
        await sync_to_async(run.report_failure)(error)
        raise error
    finally:
        del error  # otherwise it would be part of a reference cycle


def _normalize_json_or_give_up(value: Any) -> Any:
    problem = "is not JSON"
    try:
        normalized = normalize_json(value)
        problem = "cannot be stored"
        return decode_data(encode_data(normalized))  # values of subclasses become plain ones
    except (TypeError, ValueError) as error:  # another run would return the same
        raise UnrecoverableError(f"the task returned what {problem}: {error}") from error


@contextmanager
def _log_and_suppress_errors(result: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:  # in a thread, where no signal arrives
        log.exception("what surrounds the task %.100r has raised; its job goes on", result.task.module_path)


def _now_ms() -> int:
    return time_ns() // 1_000_000
