"""Adding jobs and looking after queues from synchronous code: app.sync, task.sync and SyncQueue.

The names are those of App, Task, JobHandle and Queue; the calls block. Any thread may make them, before and after a
fork. All of a process share one event loop, see `_tasks/portal.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar

from ._core.checks import check_queue_name
from ._core.config import take_config_fields_as_arguments
from ._producer.config import QueueConfig
from ._tasks.blocking_calls import (
    CallsQueue,
    make_blocking_method,
    make_blocking_method_of_part,
    run_and_block,
    to_list_if_iterable,
    wrap_to_read_iterable_in_caller,
)
from ._tasks.foreign_option_names import METHODS_OF_HANDLES, make_attribute_error
from ._tasks.loop_queues import LoopQueues
from ._tasks.portal import portal
from .cancellation import Cancellation
from .dlq import DeadLetters
from .handles import JobHandle
from .queue import Queue
from .repeatables import Repeatables
from .settings import find_settings_not_given
from .tasks import BoundTask

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def _get_dlq(queue: Queue) -> DeadLetters:
    return queue.dlq


def _get_repeatables(queue: Queue) -> Repeatables:
    return queue.repeatables


class SyncDeadLetters:
    """`queue.dlq`, blocking. See DeadLetters."""

    def __init__(self, queue: CallsQueue) -> None:
        self.call_queue = queue.call_queue

    # mypy takes `self` for one of **which
    page = make_blocking_method_of_part(_get_dlq, DeadLetters.page)  # type: ignore[arg-type]
    count = make_blocking_method_of_part(_get_dlq, DeadLetters.count)  # type: ignore[arg-type]
    count_by_reason = make_blocking_method_of_part(_get_dlq, DeadLetters.count_by_reason)  # type: ignore[arg-type]
    dropped = make_blocking_method_of_part(_get_dlq, DeadLetters.dropped)
    replay = make_blocking_method_of_part(_get_dlq, DeadLetters.replay)  # type: ignore[arg-type]
    replay_with = make_blocking_method_of_part(_get_dlq, DeadLetters.replay_with)
    remove = make_blocking_method_of_part(_get_dlq, DeadLetters.remove)  # type: ignore[arg-type]
    purge = make_blocking_method_of_part(_get_dlq, DeadLetters.purge)
    restore = wrap_to_read_iterable_in_caller("letters", make_blocking_method_of_part(_get_dlq, DeadLetters.restore))


class SyncRepeatables:
    """`queue.repeatables`, blocking. See Repeatables."""

    def __init__(self, queue: CallsQueue) -> None:
        self.call_queue = queue.call_queue

    upsert = make_blocking_method_of_part(_get_repeatables, Repeatables.upsert)
    page = make_blocking_method_of_part(_get_repeatables, Repeatables.page)
    get = make_blocking_method_of_part(_get_repeatables, Repeatables.get)
    remove = make_blocking_method_of_part(_get_repeatables, Repeatables.remove)
    pause = make_blocking_method_of_part(_get_repeatables, Repeatables.pause)
    resume = make_blocking_method_of_part(_get_repeatables, Repeatables.resume)
    next_fires = make_blocking_method_of_part(_get_repeatables, Repeatables.next_fires)


class QueueMethods:
    """The methods of Queue, blocking: a part of SyncQueue and of app.sync.queue(name)."""

    def __init__(self, name: str, queues: LoopQueues) -> None:
        self._name = name
        self._queues = queues
        self._dlq = SyncDeadLetters(self)
        self._repeatables = SyncRepeatables(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def dlq(self) -> SyncDeadLetters:
        """The queue's dead letters."""
        return self._dlq

    @property
    def repeatables(self) -> SyncRepeatables:
        """The queue's repeatables."""
        return self._repeatables

    def call_queue(
        self, blocking_call: str, make_coroutine: Callable[[Queue], Coroutine[Any, Any, R]], *, needs_task: bool = True
    ) -> R:
        """Runs the coroutine that `make_coroutine(queue)` returns, and blocks until it has ended."""
        make = lambda: make_coroutine(self._queues(self._name))  # noqa: E731
        return run_and_block(self._queues, blocking_call, "await the method of Queue", make, needs_task=needs_task)

    add = make_blocking_method(Queue.add, needs_task=False)
    add_bulk = wrap_to_read_iterable_in_caller("jobs", make_blocking_method(Queue.add_bulk))
    add_unique = make_blocking_method(Queue.add_unique)
    fire_now = make_blocking_method(Queue.fire_now)
    cancel = make_blocking_method(Queue.cancel)
    cancel_delayed = make_blocking_method(Queue.cancel_delayed)
    cancel_delayed_bulk = wrap_to_read_iterable_in_caller("job_ids", make_blocking_method(Queue.cancel_delayed_bulk))
    reschedule = make_blocking_method(Queue.reschedule)
    run_now = make_blocking_method(Queue.run_now)
    get_job_result = make_blocking_method(Queue.get_job_result)
    get_job_result_bulk = wrap_to_read_iterable_in_caller("job_ids", make_blocking_method(Queue.get_job_result_bulk))
    get_job_progress = make_blocking_method(Queue.get_job_progress)
    get_job_logs = make_blocking_method(Queue.get_job_logs)
    read_job_log = make_blocking_method(Queue.read_job_log)
    wait_for_result = make_blocking_method(Queue.wait_for_result)
    wait_for_results = wrap_to_read_iterable_in_caller("job_ids", make_blocking_method(Queue.wait_for_results))
    counts = make_blocking_method(Queue.counts)
    jobs = make_blocking_method(Queue.jobs)
    get_job = make_blocking_method(Queue.get_job)
    status = make_blocking_method(Queue.status)
    workers = make_blocking_method(Queue.workers)
    oldest_age_ms = make_blocking_method(Queue.oldest_age_ms)
    pause = make_blocking_method(Queue.pause)
    resume = make_blocking_method(Queue.resume)
    is_paused = make_blocking_method(Queue.is_paused)
    purge = make_blocking_method(Queue.purge)
    forget_job = make_blocking_method(Queue.forget_job)
    drain = make_blocking_method(Queue.drain)
    obliterate = make_blocking_method(Queue.obliterate)
    peek_dlq = make_blocking_method(Queue.peek_dlq)
    replay_dlq = make_blocking_method(Queue.replay_dlq)
    upsert_repeatable_job = make_blocking_method(Queue.upsert_repeatable_job)  # type: ignore[arg-type]
    get_repeatable_jobs = make_blocking_method(Queue.get_repeatable_jobs)
    remove_repeatable_by_key = make_blocking_method(Queue.remove_repeatable_by_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


class SyncQueue(QueueMethods):
    """A Queue for synchronous code: the same options and names, blocking, from any thread, before and after a fork."""

    @take_config_fields_as_arguments(QueueConfig, find_settings_not_given)
    def __init__(self, config: QueueConfig) -> None:
        options = {field.name: getattr(config, field.name) for field in fields(config)}
        Queue(**options)  # refuses a wrong URL here, and not at the first use
        super().__init__(config.name, LoopQueues(lambda name: Queue(**options)))

    def close(self) -> None:
        """Closes its connections. Safe to call twice; a later call opens them again."""
        run_and_block(self._queues, "SyncQueue.close", "await Queue.close()", self._queues.close_queues_of_running_loop)
        portal.forget_holder_if_closed_and_unused(
            self._queues
        )  # a program may make and close a SyncQueue for each request

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncJobHandle(Generic[R_co]):
    """A JobHandle for synchronous code."""

    def __init__(self, handle: JobHandle[R_co], queues: LoopQueues) -> None:
        self._handle = handle
        self._queues = queues

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def is_new(self) -> bool:
        return self._handle.is_new

    @property
    def has_replaced(self) -> bool:
        return self._handle.has_replaced

    @property
    def queue_name(self) -> str:
        return self._handle.queue_name

    def result(self, timeout: float = 30.0) -> R_co:
        """Waits for what the task returns; see JobHandle.result()."""
        return self._call_blocking("result", lambda: self._handle.result(timeout))

    def cancel(self) -> Cancellation:
        """Cancels the job, wherever it is; see Queue.cancel()."""
        return self._call_blocking("cancel", self._handle.cancel)

    def progress(self) -> int | None:
        """Returns the progress that the task reported last, in per cent; None if it reported none."""
        return self._call_blocking("progress", self._handle.progress)

    def logs(self, *, limit: int = 100) -> list[str]:
        """Returns the last lines that the task logged, oldest first."""
        return self._call_blocking("logs", lambda: self._handle.logs(limit=limit))

    if not TYPE_CHECKING:  # type checkers would take it for a promise that every name exists

        def __getattr__(self, name: str) -> Any:
            raise make_attribute_error(self, name, METHODS_OF_HANDLES)

    def _call_blocking(self, method_name: str, make_coroutine: Callable[[], Coroutine[Any, Any, R]]) -> R:
        return run_and_block(
            self._queues, f"SyncJobHandle.{method_name}", f"await JobHandle.{method_name}()", make_coroutine
        )

    def __repr__(self) -> str:
        return f"Sync{self._handle!r}"


class Enqueues(Protocol[P, R_co]):
    """A task, with options or without."""

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]: ...


class SyncTask(Generic[P, R_co]):
    """`task.sync`: enqueues a task from synchronous code."""

    def __init__(
        self, name: str, task: Enqueues[P, R_co], handle: Callable[[str], JobHandle[R_co]], queues: LoopQueues
    ) -> None:
        self._name = name
        self._task = task
        self._handle = handle
        self._queues = queues

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R_co]:
        """Checks the arguments and adds a job; returns when Redis has it."""
        blocking_call, instead = f"{self._name}.sync.enqueue", f"await {self._name}.enqueue(...)"
        make = lambda: self._task.enqueue(*args, **kwargs)  # noqa: E731
        handle = run_and_block(self._queues, blocking_call, instead, make, needs_task=False)
        return SyncJobHandle(handle, self._queues)

    def handle(self, job_id: str) -> SyncJobHandle[R_co]:
        """Returns the handle of a job whose id was stored."""
        return SyncJobHandle(self._handle(job_id), self._queues)


class SyncApp:
    """`app.sync`: an App for synchronous code."""

    def __init__(
        self,
        enqueue_all: Callable[[Iterable[BoundTask[Any]]], Coroutine[Any, Any, list[JobHandle[Any]]]],
        queues: LoopQueues,
    ) -> None:
        self._enqueue_all = enqueue_all
        self._queues = queues

    def enqueue_all(self, calls: Iterable[BoundTask[R]]) -> list[SyncJobHandle[R]]:
        """Adds many jobs, each made by a task's bind(); see App.enqueue_all()."""
        make = partial(self._enqueue_all, to_list_if_iterable(calls))  # here: see wrap_to_read_iterable_in_caller()
        handles = run_and_block(self._queues, "app.sync.enqueue_all", "await app.enqueue_all(...)", make)
        return [SyncJobHandle(handle, self._queues) for handle in handles]

    def queue(self, name: str) -> QueueMethods:
        """Returns the queue of this name: dlq, counts, pause, add by name ..., all of them blocking."""
        return QueueMethods(check_queue_name(name), self._queues)

    def close(self) -> None:
        """Closes the connections of synchronous code. Safe to call twice; a later call opens them again."""
        run_and_block(self._queues, "app.sync.close", "await app.close()", self._queues.close_queues_of_running_loop)
