"""ChasquiBackend: enqueues Django's tasks as jobs, and reads what became of them.

A job's name is the path of its task, its data {"args": [...], "kwargs": {...}}, and the id of a result is
<queue>:<job id>. task_runner.py runs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from ..._core import ids
from ..._core.cached_property import cached_property
from ..._core.options import JobOptions
from ..._tasks.blocking_calls import run_and_block
from ..._tasks.portal import refuse_if_loop_runs_here
from ..._tasks.send_options import make_add_options
from ...app import App
from ...errors import InvalidArgument, InvalidType
from ...job_status import JobStatus
from ...queue import Queue
from ...retry import BackoffSpec
from .backend_options import BackendOptions, check_and_read_options, process_apps
from .declared_tasks import find_imported_task, import_task_modules
from .framework import BaseTaskBackend, InvalidTask, Task, TaskResultDoesNotExist, signals
from .run_records import RunHistory, parse_run_history, read_run_record_or_none
from .task_results import (
    make_done_result,
    make_result_from_status,
    make_result_id,
    make_unstarted_result,
    set_result_fields,
    split_result_id,
)

LOG_LINES = 1000  # one call reads; a log may have more, because Redis trims it about there


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedTask(Task):
    """A Task with attempts and backoff of its own: `@task(attempts=5)`, from Django 6.1 on."""

    attempts: int | None = None
    backoff: timedelta | BackoffSpec | None = None


class ChasquiBackend(BaseTaskBackend):
    """The BACKEND of an entry of TASKS; see BackendOptions for its OPTIONS."""

    task_class = RetriedTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params

    @cached_property
    def chasqui_options(self) -> BackendOptions:
        try:
            return check_and_read_options(self._params)
        except (InvalidArgument, InvalidType) as error:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {error}") from None

    @property
    def app(self) -> App:
        """The App whose queues it uses; all backends of one alias have the same."""
        return process_apps.get_or_make_app(self.alias, self.chasqui_options)

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        try:
            self._find_retry_options(task)
        except (InvalidArgument, InvalidType) as error:
            raise InvalidTask(str(error)) from None

    def _find_retry_options(self, task: Any) -> dict[str, Any]:
        own = {name: getattr(task, name, None) for name in ("attempts", "backoff")}
        return self.chasqui_options.choose_and_check_retry_options(task.module_path, own)

    # Enqueuing ------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Adds a job, at once or when the transaction of the database `on_commit` is committed.

        What cannot be sent is refused here: an error after the commit could not roll the transaction back.
        """
        self.validate_task(task)
        _refuse_arguments_that_do_not_fit(task, args, kwargs)
        job_id = ids.new_id()
        result = make_unstarted_result(task, make_result_id(task.queue_name, job_id), args, kwargs)
        data, options = self._make_data_and_options(result)
        send = partial(self._add_job_and_signal_enqueued, result, job_id, data, options)
        if self.chasqui_options.on_commit is None:
            send()
        else:
            refuse_if_loop_runs_here(f"{task.name}.enqueue", f"await {task.name}.aenqueue(...)")
            self.chasqui_options.make_encoder(task.queue_name).check_and_encode(task.module_path, data, job_id, options)
            transaction.on_commit(send, using=self.chasqui_options.on_commit)
        return result

    def _make_data_and_options(self, result: Any) -> tuple[dict[str, Any], JobOptions]:
        task, retry = result.task, self._find_retry_options(result.task)
        data = {"args": result.args, "kwargs": result.kwargs}
        if "attempts" in retry:
            data["attempts"] = retry["attempts"]  # a handler does not see the job's own number
        options: Any = make_add_options(retry)
        if task.run_after is not None:
            options["delay_ms"] = _make_aware_if_naive(task.run_after)
        return data, options

    def _add_job_and_signal_enqueued(self, result: Any, job_id: str, data: dict[str, Any], options: JobOptions) -> None:
        task = result.task
        self._call_queue_blocking(
            f"{task.name}.enqueue",
            f"await {task.name}.aenqueue(...)",
            task.queue_name,
            lambda queue: queue.add(task.module_path, data, job_id=job_id, **options),
        )
        set_result_fields(result, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)

    def _call_queue_blocking(
        self, call_named_in_error: str, alternative_named_in_error: str, queue_name: str, make_coroutine: Any
    ) -> Any:
        """Runs a coroutine of a queue on the loop that all synchronous code of the process shares."""
        queues = self.app.loop_queues
        return run_and_block(
            queues, call_named_in_error, alternative_named_in_error, lambda: make_coroutine(queues(queue_name))
        )

    # Results --------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> Any:
        """Finds out what became of a task. A result is kept for `result_ttl_ms` of its queue."""
        queue_name, job_id = split_result_id(str(result_id))
        if not job_id or (self.queues and queue_name not in self.queues):
            raise TaskResultDoesNotExist(result_id)
        look_up = partial(_read_status_then_history_if_no_result, job_id=job_id)
        status, history = self._call_queue_blocking("get_result", "await task.aget_result(...)", queue_name, look_up)
        record = read_run_record_or_none(status.result) if status.has_result else None
        task = self._find_task_importing_if_needed((record.task if record else "") or status.name or history.task)
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        task = task.using(queue_name=queue_name, backend=self.alias)
        if record is not None:
            return make_done_result(task, result_id, record)
        if status.state == "done" or (status.state == "unknown" and history.finished_at_ms is None):
            raise TaskResultDoesNotExist(result_id)
        return make_result_from_status(task, result_id, status, history)

    def _find_task_importing_if_needed(self, path: str) -> Any | None:
        if path and find_imported_task(path) is None:
            import_task_modules(self.chasqui_options.modules)
        return find_imported_task(path)

    # Checks ---------------------------------------------------------------------------------------------------------

    def check(self, **kwargs: Any) -> Iterator[Any]:
        """The system checks of `manage.py check`."""
        where = f"TASKS[{self.alias!r}]"
        try:
            options = self.chasqui_options
        except ImproperlyConfigured as error:
            yield checks.Error(str(error), id="chasqui.E001")
            return
        if not self.queues:
            yield checks.Error(f"{where}: QUEUES is empty: a worker has to know its queues", id="chasqui.E002")
        if options.on_commit is not None and options.on_commit not in settings.DATABASES:
            yield checks.Error(f"{where}: on_commit names {options.on_commit!r}, no database", id="chasqui.E003")
        atomic = [alias for alias, database in settings.DATABASES.items() if database.get("ATOMIC_REQUESTS")]
        if atomic and options.on_commit is None:
            yield checks.Warning(
                f"{where}: a task that a view enqueues may run before the view's transaction is committed",
                hint=f'Set OPTIONS["on_commit"] to {atomic[0]!r}: tasks are then enqueued when it is committed.',
                id="chasqui.W001",
            )


def _refuse_arguments_that_do_not_fit(task: Any, args: Any, kwargs: Any) -> None:
    """Raises what the call in the worker would raise, in each of its runs."""
    signature = _read_own_signature_if_any(task.func)
    if signature is None:
        return
    context = (None,) if task.takes_context else ()
    try:
        signature.bind(*context, *args, **kwargs)
    except TypeError as error:
        raise InvalidType(f"task {task.module_path!r}: {error}") from None


@lru_cache(maxsize=1024)
def _read_own_signature_if_any(function: Any) -> inspect.Signature | None:
    """Not that of what a decorator wraps, which may be called with other arguments."""
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # many functions of C have none
        return None


async def _read_status_then_history_if_no_result(queue: Queue, job_id: str) -> tuple[JobStatus, RunHistory]:
    """Reads where the job is, then its log: one that fails in between has its last line there."""
    status = await queue.status(job_id)
    return status, RunHistory() if status.has_result else await read_run_history(queue, job_id)


async def read_run_history(queue: Queue, job_id: str) -> RunHistory:
    """Reads what the runs of a job have logged."""
    lines = page = await queue.read_job_log(job_id, limit=LOG_LINES)
    while len(page) == LOG_LINES:
        page = await queue.read_job_log(job_id, after=page[-1].id, limit=LOG_LINES)
        lines = lines + page
    return parse_run_history(line.text for line in lines)


def _make_aware_if_naive(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
