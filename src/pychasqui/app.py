"""App: the tasks of a program, the queues that they are sent to, and the workers that run them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, overload

from ._core import checks
from ._tasks.app_options import (
    QueueOptions,
    check_app_name,
    check_app_url,
    check_is_iterable_and_not_str,
    check_names_and_make_queue_options,
    select_options_for_queue_class,
    select_options_for_worker_class,
)
from ._tasks.crew_plan import AppParts, CrewPlan
from ._tasks.definition import TaskDefinition, define_task
from ._tasks.foreign_option_names import METHODS_OF_APPS, make_attribute_error
from ._tasks.lifespan import Lifespan, Middleware, check_lifespan, check_middleware
from ._tasks.loop_queues import LoopQueues
from ._tasks.schedules import Schedule, make_schedule_key
from ._tasks.send_options import IfExists
from .crew import Crew
from .depends import Injected
from .errors import InvalidArgument, InvalidType
from .handles import JobHandle
from .queue import Queue
from .retry import BackoffSpec
from .schedule import MissedFiresPolicy, RepeatPattern
from .tasks import BoundTask, CoroutineTask, FunctionTask, Task, enqueue_bulks

if TYPE_CHECKING:
    from .sync import SyncApp

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])
L = TypeVar("L", bound=Lifespan)
M = TypeVar("M", bound=Middleware)

THREADS = 40


class TaskDecorator(Protocol):
    """What `@app.task(...)` returns: it makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap] # a coroutine is a return value, too
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class App:
    """The tasks of a program. `async with app:` closes its queues at the end.

    redis_url   redis://, rediss:// (TLS), unix:// or embedded://; None takes CHASQUI_REDIS_URL, REDIS_URL or the file
                of settings, at first use and not at import
    name        whose schedules are whose: two apps that share queues need two names, without a slash
    modules     modules with tasks, imported when a worker starts: they may import the app
    queues      by queue: the options of its Worker and its Queue, as {"mail": {"concurrency": 20}}
    defaults    the options of all queues that do not set their own
    threads     how many plain functions may run at the same time
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        name: str = "app",
        modules: Iterable[str] = (),
        queues: Mapping[str, QueueOptions] | None = None,
        defaults: QueueOptions | None = None,
        threads: int = THREADS,
    ) -> None:
        self._redis_url = check_app_url(redis_url)
        self._name = check_app_name(name)
        check_is_iterable_and_not_str("modules", modules)
        self._modules = tuple(modules)
        self._queue_options = check_names_and_make_queue_options(queues or {}, defaults or {})
        self._threads = checks.check_int("threads", threads, 1)
        self._tasks: dict[str, Task[..., Any]] = {}
        self._owners: dict[str, TaskDefinition] = {}  # by name and alias
        self._loop_queues = LoopQueues(self._make_queue)
        self._schedules: dict[str, Schedule] = {}
        self._middlewares: list[Middleware] = []
        self._lifespan: Lifespan | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The tasks by their names."""
        return MappingProxyType(self._tasks)

    @property
    def loop_queues(self) -> LoopQueues:
        """Finds the Queue of the running loop; pychasqui.testing replaces it."""
        return self._loop_queues

    # Tasks ----------------------------------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap] # a coroutine is a return value, too
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        queue: str | None = None,
        attempts: int | None = None,
        backoff: timedelta | BackoffSpec | None = None,
        timeout: timedelta | None = None,
        expires_in: timedelta | None = None,
        unique_by: tuple[str, ...] = (),
        unique_for: timedelta | None = None,
        if_exists: IfExists | None = None,
        give_up_on: tuple[type[Exception], ...] = (),
    ) -> TaskDecorator: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        unique_by: tuple[str, ...] = (),
        give_up_on: tuple[type[Exception], ...] = (),
        **options: Any,
    ) -> Any:
        """Makes a task of a function: `@app.task`, or `@app.task(...)` with options.

        name         the name of its jobs, instead of the function's own
        aliases      former names: workers run jobs of these names, too
        queue        the queue that it is sent to; "default" if not given
        attempts     how many runs a job has in all, instead of the worker's max_attempts
        backoff      the delays between its runs: a timedelta or a BackoffSpec
        timeout      how long each of its runs may take; only of an async def
        expires_in   how long a job may wait for its start: then it is not run any more, and dead
        unique_by    names of parameters: there is one job of their values until it is done
        unique_for   for how long, instead of until it is done
        if_exists    what a second one does to a first that still waits: keep, replace or postpone
        give_up_on   exceptions after which no retry would help: the job is dead at once
        """

        def make_task(function: Any) -> Any:
            definition = define_task(
                function,
                name=name,
                aliases=aliases,
                unique_by=unique_by,
                give_up_on=give_up_on,
                is_injected=lambda default: isinstance(default, Injected),
                options=options,
            )
            return self._register_task(definition)

        return make_task if function is None else make_task(function)

    def _register_task(self, definition: TaskDefinition) -> Task[..., Any]:
        for name in definition.names:
            if (other := self._owners.get(name)) is not None:
                raise InvalidArgument(
                    f"two tasks have the name {name!r}: one at {other.source_position}, one at "
                    f"{definition.source_position}; give one of them another: @app.task(name=...)"
                )
        kind = CoroutineTask if definition.is_async else FunctionTask
        task: Task[..., Any] = kind(definition, self._loop_queues)
        self._owners.update(dict.fromkeys(definition.names, definition))
        self._tasks[definition.name] = task
        return task

    # Around tasks ---------------------------------------------------------------------------------------------------

    def cron(
        self,
        expression: str,
        *,
        tz: str | None = None,
        data: Mapping[str, Any] | None = None,
        key: str | None = None,
        missed_fires: MissedFiresPolicy | None = None,
    ) -> Callable[[T], T]:
        """Sends a task by a wall clock: `@app.cron("0 3 * * *", tz="Europe/Berlin")` above `@app.task`.

        data           its arguments by name; their types are checked when a worker starts
        key            its name among the schedules of the task; made of the times if not given
        missed_fires   what to do about times that passed while no worker ran; the default skips them
        """
        return self._make_schedule_decorator(RepeatPattern.cron(expression, tz), data, key, missed_fires)

    def every(
        self,
        span: timedelta,
        *,
        data: Mapping[str, Any] | None = None,
        key: str | None = None,
        missed_fires: MissedFiresPolicy | None = None,
    ) -> Callable[[T], T]:
        """Sends a task at intervals: `@app.every(timedelta(minutes=5))` above `@app.task`. See cron()."""
        if not isinstance(span, timedelta):
            hint = ": write timedelta(seconds=...)" if isinstance(span, int | float) else ""
            raise InvalidType(f"every() takes a timedelta, not {type(span).__name__}{hint}")
        return self._make_schedule_decorator(RepeatPattern.every(span), data, key, missed_fires)

    def _make_schedule_decorator(
        self,
        pattern: RepeatPattern,
        data: Mapping[str, Any] | None,
        key: str | None,
        missed_fires: MissedFiresPolicy | None,
    ) -> Callable[[T], T]:
        def add_schedule(task: T) -> T:
            if not isinstance(task, Task):
                raise InvalidType("a schedule stands above @app.task, not below it, and not on a plain function")
            whole_key = make_schedule_key(self._name, task.name, key, pattern)
            if whole_key in self._schedules:
                raise InvalidArgument(f"two schedules have the key {whole_key!r}: give one of them another key")
            policy = missed_fires or MissedFiresPolicy.skip()
            schedule = Schedule(task.definition, pattern, {} if data is None else data, whole_key, policy)
            schedule.check_argument_names()
            self._schedules[whole_key] = schedule
            return task

        return add_schedule

    def lifespan(self, function: L) -> L:
        """Makes this async generator function the lifespan: its first half runs before the first job of a process, the
        rest after the last. `Depends` on it gives what it yields. An app has one.
        """
        check_lifespan(function)
        if self._lifespan is not None:
            raise InvalidArgument("an app has one lifespan, and this is the second")
        self._lifespan = function
        return function

    def middleware(self, function: M) -> M:
        """Makes this function, async, of the Job and of a call, run around each run: `return await call()` goes on.

        The first one is around all others.
        """
        check_middleware(function)
        self._middlewares.append(function)
        return function

    # Sending --------------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """Returns the Queue of this name for the running loop: dlq, counts, pause, add by name ..."""
        return self._loop_queues(checks.check_queue_name(name))

    async def enqueue_all(self, calls: Iterable[BoundTask[R]]) -> list[JobHandle[R]]:
        """Adds many jobs, each made by a task's bind(), in one bulk for each queue; returns when Redis has them.

        If a bulk fails, its error is raised, and the other bulks may have been added.
        """
        return await enqueue_bulks(calls, self._loop_queues)

    @property
    def sync(self) -> SyncApp:
        """The same for synchronous code: `app.sync.enqueue_all(...)`, `app.sync.queue(name)`; from any thread."""
        from .sync import SyncApp  # here: most programs do not use it

        return SyncApp(self.enqueue_all, self._loop_queues)

    def _make_queue(self, name: str) -> Queue:
        return Queue(name, redis_url=self._redis_url, **select_options_for_queue_class(self._queue_options, name))

    # Running --------------------------------------------------------------------------------------------------------

    def worker(self, queues: Iterable[str] | None = None) -> Crew:
        """Returns the workers of these queues, or of all that the app knows: one for each, run as one.

        `async with app.worker():` beside other things, or `await app.worker().run(handle_signals=True)`.
        """
        if queues is not None:
            check_is_iterable_and_not_str("queues", queues)
        names = None if queues is None else [checks.check_queue_name(name) for name in queues]
        if names == []:
            raise InvalidArgument("queues is empty: name the queues, or leave it out for all that the app knows")
        plan = CrewPlan(
            load_parts=self.load_parts,
            make_queue=self._make_queue,
            queue_options=self._queue_options,
            redis_url=self._redis_url,
            threads=self._threads,
            queue_names=names,
        )
        return Crew(plan.open_app_with_workers_and_schedules)

    def load_parts(self) -> AppParts:
        """Imports the modules of the app, and returns what it has declared."""
        for module in self._modules:
            importlib.import_module(module)
        return AppParts(
            name=self._name,
            modules=self._modules,
            definitions=[task.definition for task in self._tasks.values()],
            schedules=list(self._schedules.values()),
            lifespan=self._lifespan,
            middlewares=tuple(self._middlewares),
        )

    def worker_options(self, queue: str) -> dict[str, Any]:
        """Returns the options that the Worker of this queue gets."""
        return select_options_for_worker_class(self._queue_options, queue)

    # From its first use to its close --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the queues of the running loop. Safe to call twice."""
        await self._loop_queues.close_queues_of_running_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # type checkers would take it for a promise that every name exists

        def __getattr__(self, name: str) -> Any:
            raise make_attribute_error(self, name, METHODS_OF_APPS)

    def __repr__(self) -> str:
        return f"<App {self._name!r} with {len(self._tasks)} tasks>"
