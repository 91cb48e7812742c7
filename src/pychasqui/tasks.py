"""Tasks: functions that are sent as jobs. `@app.task` makes them.

A task is called as the function that it is, and enqueued with the same arguments. CoroutineTask and FunctionTask differ
in what a call returns, and in nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from ._core.checks import check_is_iterable
from ._tasks.current import current_job as current_job
from ._tasks.definition import TaskDefinition, Upgrade, make_add_options_for_call
from ._tasks.foreign_option_names import METHODS, SENDING
from ._tasks.loop_queues import LoopQueues
from ._tasks.pydantic_types import DataMismatchError
from ._tasks.send_options import SendOptions, check_send_options
from .errors import InvalidArgument, InvalidType, UnsupportedData, printable
from .handles import JobHandle, make_handle

if TYPE_CHECKING:
    from .sync import SyncTask

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
U = TypeVar("U", bound=Upgrade)


class BoundTask(msgspec.Struct, Generic[R_co], frozen=True, eq=False, repr_omit_defaults=True):
    """A task with its arguments, checked: what enqueue() would send. Two are equal if they would send the same."""

    name: str
    queue: str
    data: dict[str, Any]
    options: dict[str, Any]  # of Queue.add
    definition: TaskDefinition

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundTask):
            return NotImplemented
        return self._make_comparison_key() == other._make_comparison_key()

    def __hash__(self) -> int:
        return hash((self.name, self.queue))

    def _make_comparison_key(self) -> tuple[object, ...]:
        return (self.name, self.queue, self.data, self.options)

    def as_bulk_entry(self) -> dict[str, Any]:
        """The job as Queue.add_bulk takes it."""
        if not self.options:
            return {"name": self.name, "data": self.data}
        return {"name": self.name, "data": self.data, **self.options}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.data.items())
        options = f" on {self.queue!r} with {self.options!r}" if self.options else f" on {self.queue!r}"
        return f"<{self.name}({arguments}){options}>"


class TaskSender(Generic[P, R_co]):
    """Enqueues a task with one set of options: a Task itself, or what its with_options() returns."""

    def __init__(self, definition: TaskDefinition, find_queue: LoopQueues, options: Mapping[str, Any]) -> None:
        self._definition = definition
        self._find_queue = find_queue
        self._given = options
        self._options = make_add_options_for_call(definition, options)
        self._queue_name: str = options.get("queue", definition.queue)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Checks the arguments and adds a job; returns when Redis has it."""
        definition, queue_name = self._definition, self._queue_name
        data = definition.signature.check_arguments_and_make_data(args, kwargs)
        queue = self._find_queue(queue_name)
        try:
            if self._options:
                job = await queue.add(definition.name, data, **self._make_options_with_id_if_unique(args, kwargs))
            else:
                job = await queue.add(definition.name, data)
        except UnsupportedData:
            definition.signature.refuse_if_unencodable(data)
            raise
        return make_handle(job, definition, queue_name, self._find_queue)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundTask[R_co]:
        """Checks the arguments; returns what enqueue() would send, for App.enqueue_all() and for tests."""
        data = self._definition.signature.check_arguments_and_make_data(args, kwargs)
        options = {**self._make_options_with_id_if_unique(args, kwargs)} if self._options else {}
        return BoundTask(self._definition.name, self._queue_name, data, options, self._definition)

    def with_options(self, **options: Unpack[SendOptions]) -> TaskSender[P, R_co]:
        """The same task with other options.

        queue        the queue to send it to, instead of the task's own
        delay        run it that much later, a timedelta
        at           run it at this time, a datetime with a time zone
        attempts     how many runs it has in all
        backoff      the delays between its runs, a timedelta or a BackoffSpec
        timeout      how long each of its runs may take, a timedelta; only of a task that is an async def
        expires_in   how long it may wait for its start, a timedelta: then it is not run any more, and dead
        job_id       there is one job of this id until it is done
        unique_for   for how long there is one job of its id, instead of until it is done
        if_exists    what a second job of its id does to a first one that still waits: keep, replace or postpone
        """
        given = check_send_options(f"task {self._definition.name!r}", options)
        if "timeout" in given:
            self._definition.check_can_time_out()
        has_own_time = "at" in given or "delay" in given
        before = {name: value for name, value in self._given.items() if not (has_own_time and name in ("at", "delay"))}
        return TaskSender(self._definition, self._find_queue, {**before, **given})

    @property
    def sync(self) -> SyncTask[P, R_co]:
        """The same for synchronous code: `send_mail.sync.enqueue("ada")` blocks until Redis has the job."""
        from .sync import SyncTask  # here: most programs do not use it

        return SyncTask(self._definition.name, self, self._make_handle, self._find_queue)

    if not TYPE_CHECKING:  # type checkers would take it for a promise that every name exists

        def __getattr__(self, name: str) -> Any:
            if name in SENDING:
                sync, own = f"{self._definition.name}.sync.enqueue(...)", f"await {self._definition.name}.enqueue(...)"
                raise AttributeError(f"a task has no {name}(): {sync} sends it, or in async code {own}")
            if name in METHODS:
                raise AttributeError(f"a task has no {name}; instead: {METHODS[name]}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _make_handle(self, job_id: str) -> JobHandle[R_co]:
        return JobHandle(job_id, self._definition, self._queue_name, self._find_queue)

    def _make_options_with_id_if_unique(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if "job_id" in self._options and self._options["job_id"] is None:
            given = self._definition.signature.map_names_to_arguments(args, kwargs)
            return {**self._options, "job_id": self._definition.make_job_id_from_unique_by(given)}
        return self._options


class Task(TaskSender[P, R_co]):
    """A function that is sent as jobs: enqueue() sends it, a call runs it here.

    Attributes: `name` and `aliases` of its jobs, `queue_name`, `function`.
    """

    def __init__(self, definition: TaskDefinition, find_queue: LoopQueues) -> None:
        super().__init__(definition, find_queue, {})
        self.__name__ = definition.name
        self.__doc__ = definition.function.__doc__
        self.__module__ = definition.function.__module__
        self.__wrapped__ = definition.function

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def aliases(self) -> tuple[str, ...]:
        return self._definition.aliases

    @property
    def queue_name(self) -> str:
        return self._definition.queue

    @property
    def function(self) -> Callable[..., Any]:
        return self._definition.function

    @property
    def definition(self) -> TaskDefinition:
        return self._definition

    def handle(self, job_id: str, *, queue: str | None = None) -> JobHandle[R_co]:
        """Returns the handle of a job whose id was stored."""
        return JobHandle(job_id, self._definition, queue or self.queue_name, self._find_queue)

    def bind_data(self, data: Mapping[str, Any] | None) -> BoundTask[R_co]:
        """What bind() returns, made of the data of a job: arguments by name, as they travel. Raises InvalidArgument."""
        if isinstance(data, Mapping):  # a name that was mistyped says more than the parameter that is missing for it
            self._refuse_unknown_parameters(data)
        try:
            self._definition.signature.read(data)
        except DataMismatchError as error:
            raise InvalidArgument(f"task {self.name!r}: {error}") from None
        given = dict(data or {})
        options = {**self._make_options_with_id_if_unique((), given)} if self._options else {}
        return BoundTask(self.name, self.queue_name, given, options, self._definition)

    def _refuse_unknown_parameters(self, given: Mapping[str, Any]) -> None:
        known = self._definition.signature.names
        if unknown := given.keys() - known:
            from difflib import get_close_matches  # here, so that a process that only adds does not wait for the import

            name = str(min(map(str, unknown)))
            close = get_close_matches(name[:200], known, n=1)
            hint = f"did you mean {close[0]!r}? Its" if close else "its"
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidArgument(
                f"task {self.name!r} has no parameter {printable(name)!r}; {hint} parameters are: {listed}"
            )

    def upgrade(self, function: U) -> U:
        """Makes this function mend the data of older jobs: it gets data that does not fit, and returns data that does.

        As a decorator: `@send_mail.upgrade`. A task has one.
        """
        kind = "an async def" if inspect.iscoroutinefunction(function) else type(function).__name__
        if not callable(function) or kind == "an async def":
            raise InvalidType(f"an upgrade is a function from dict to dict, not {kind}")
        self._definition.upgrades[:] = [function]
        return function

    def __repr__(self) -> str:
        return f"<task {self.name!r} of queue {self.queue_name!r}>"


class CoroutineTask(Task[P, R_co]):
    """A task that is an `async def`."""

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        result: R_co = await self._definition.function(*args, **kwargs)
        return result


class FunctionTask(Task[P, R_co]):
    """A task that is a plain function, which a worker runs in a thread."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        result: R_co = self._definition.function(*args, **kwargs)
        return result


async def enqueue_bulks(calls: Iterable[BoundTask[R]], queues: LoopQueues) -> list[JobHandle[R]]:
    """See App.enqueue_all()."""
    check_is_iterable("calls", calls, "of what task.bind(...) returns")
    given = list(calls)  # the caller's list may change while they are sent
    by_queue: defaultdict[str, list[BoundTask[R]]] = defaultdict(list)
    for call in given:
        if type(call) is not BoundTask:
            raise InvalidType(f"enqueue_all takes what task.bind(...) returns, not {type(call).__name__}")
        by_queue[call.queue].append(call)
    found = {name: queues(name) for name in by_queue}  # before any coroutine is made: options may be refused
    bulks = [found[name].add_bulk([call.as_bulk_entry() for call in own]) for name, own in by_queue.items()]
    try:
        # hot: there is nearly always one
        added = [await bulks[0]] if len(bulks) == 1 else await asyncio.gather(*bulks)
    except UnsupportedData:
        for call in given:
            call.definition.signature.refuse_if_unencodable(call.data)
        raise
    if len(bulks) == 1:
        (name,) = by_queue
        return [
            JobHandle(job.id, call.definition, name, queues, job.is_new, job.has_replaced)
            for job, call in zip(added[0], given, strict=True)
        ]
    jobs = {name: iter(own) for name, own in zip(by_queue, added, strict=True)}
    return [make_handle(next(jobs[call.queue]), call.definition, call.queue, queues) for call in given]


AsyncFunction = Callable[P, Coroutine[Any, Any, R_co]]
