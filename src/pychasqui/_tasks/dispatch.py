"""Runs jobs by their names: one handler for the worker of a queue, made of all tasks of an app.

What can be decided at the start is: each task becomes one coroutine function that takes the Job.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol

from msgspec.structs import astuple

from .._core.failure import GivenUp
from .._worker.handlers import returning_awaitable
from ..errors import JobTimeout, RetryLater, Snooze, UnknownTask, UnrecoverableError, printable
from ..job import Job, count_put_backs
from .current import running_job
from .data_error import UNRELATED_ERRORS
from .definition import TaskDefinition
from .direct_calls import CallWithData, make_direct_call
from .injection import (
    InjectionPlan,
    Provider,
    SingleGeneratorPlan,
    close_dependencies,
    make_yields_nothing_error,
    make_yields_twice_error,
)
from .lifespan import AppRuntime, Lifespan, Middleware
from .results import pack_result_if_possible
from .unfinished_results import close_if_coroutine, is_awaitable_refusing_generators
from .wire_values import SCALARS

log = logging.getLogger("chasqui.tasks")


class RunsFunctions(Protocol):
    """Runs plain functions: in threads, or in a test where it is. What they return is awaited if it is awaitable."""

    async def run_to_end_once_begun(self, function: Callable[[], Any]) -> Any: ...


RunTask = Callable[[Job], Awaitable[Any]]
MAX_UNKNOWN_KEYS_LOGGED = 100
LONGEST_PUT_BACK_S = 30


class Dispatcher:
    """start(job) runs the task of this name; a job of an unknown name is put back, and dead in the end."""

    def __init__(
        self,
        definitions: Iterable[TaskDefinition],
        thread_calls: RunsFunctions,
        runtime: AppRuntime,
        *,
        stores_results: bool,
    ) -> None:
        self._runners: dict[str, RunTask] = {}
        self._direct_calls: dict[str, CallWithData] = {}
        for definition in definitions:
            call = _plan_direct_call_if_possible(definition, runtime, stores_results)
            if call is not None:
                self._direct_calls |= dict.fromkeys(definition.names, call)
            run = _make_runner(definition, thread_calls, runtime, stores_results, tries_direct_call=call is None)
            self._runners |= dict.fromkeys(definition.names, run)

    @returning_awaitable
    def start(self, job: Job) -> Awaitable[Any]:
        """Returns what runs the task, to be awaited in the context in which this was called."""
        call = self._direct_calls.get(job.name)
        if call is not None:
            # hot: most tasks are called from here. The coroutine of the task itself, without one of ours around it, and
            # its values without a function that reads them: 0.15 us of 3.5
            running_job.set(job)
            try:
                coroutine = call(job.data)
            except UNRELATED_ERRORS:
                raise
            except Exception:  # noqa: BLE001  whatever it is, the runner says it
                coroutine = None
            if coroutine is not None:
                return coroutine
        run = self._runners.get(job.name)
        if run is None:
            raise make_unknown_task_error(job.name, self._runners, count_put_backs(job))
        running_job.set(job)
        return run(job)


def check_dependencies(definitions: Iterable[TaskDefinition], lifespan: Lifespan | None) -> None:
    """Raises InvalidArgument if a task depends on what cannot be provided."""
    for definition in definitions:
        _make_injection_plan(definition, {} if lifespan is None else {lifespan: None})


def _make_injection_plan(definition: TaskDefinition, constants: Mapping[Provider, Any]) -> InjectionPlan:
    return InjectionPlan(f"task {definition.name!r}", definition.function, constants)


def _make_runner(
    definition: TaskDefinition,
    thread_calls: RunsFunctions,
    runtime: AppRuntime,
    stores_results: bool,
    *,
    tries_direct_call: bool,
) -> RunTask:
    plan = _make_injection_plan(definition, runtime.constants)
    if plan.is_constant:
        run = _make_runner_with_constants_only(
            definition, thread_calls, plan.constants, tries_direct_call=tries_direct_call
        )
    elif plan.single_generator is not None and definition.is_async and definition.signature.convert_positional:
        run = _make_runner_with_generator_dependency(definition, plan.single_generator)
    else:
        run = _make_injecting_runner(definition, thread_calls, plan)
    for middleware in reversed(runtime.middlewares):  # the first is around all others
        run = _wrap_in_middleware(middleware, run)
    if definition.give_up_on:
        run = _wrap_to_raise_given_up(definition, run)
    return _wrap_to_pack_result(run) if stores_results else run


def _plan_direct_call_if_possible(
    definition: TaskDefinition, runtime: AppRuntime, stores_results: bool
) -> CallWithData | None:
    """Returns a task as Dispatcher.start() calls it, with nothing around it.

    None if it needs a runner: it has dependencies for each job, or something is around it.
    """
    signature = definition.signature
    if not _is_coroutine_function(definition.function) or signature.convert_positional is None:
        return None
    if runtime.middlewares or definition.give_up_on or (stores_results and definition.may_have_result):
        return None
    plan = _make_injection_plan(definition, runtime.constants)
    if not plan.is_constant:
        return None
    constants = plan.constants
    return make_direct_call(signature, partial(definition.function, **constants) if constants else definition.function)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether to call it runs nothing of its body. inspect.iscoroutinefunction() also trusts functions that say so."""
    while isinstance(function, partial):
        function = function.func
    if type(function) is MethodType:
        function = function.__func__
    return type(function) is FunctionType and bool(function.__code__.co_flags & inspect.CO_COROUTINE)


def _make_runner_with_constants_only(
    definition: TaskDefinition, thread_calls: RunsFunctions, constants: Mapping[str, Any], *, tries_direct_call: bool
) -> RunTask:
    read, names, convert = (
        definition.read_arguments_with_upgrade_if_needed,
        definition.signature.names,
        definition.signature.convert_positional,
    )
    function = partial(definition.function, **constants) if constants else definition.function
    warn_once = _UnknownKeyWarner(definition.name)
    call = None if convert is None else make_direct_call(definition.signature, function)

    def start_by_position(job: Job) -> Awaitable[Any]:
        # hot: a tuple of values, and no dict; most tasks are called like this
        try:
            coroutine = call(job.data)  # type: ignore[misc]
        except UNRELATED_ERRORS:
            raise
        except Exception:  # noqa: BLE001  whatever it is, run_coroutine() says it
            coroutine = None
        return run_coroutine(job) if coroutine is None else coroutine

    async def run_coroutine(job: Job) -> Any:
        args, kwargs = read(job.data)
        if job.data and not names.issuperset(job.data):
            warn_once(job.data.keys() - names)
        return await function(*args, **kwargs)

    async def run_in_thread(job: Job) -> Any:
        args, kwargs = read(job.data)
        if job.data and not names.issuperset(job.data):
            warn_once(job.data.keys() - names)
        return await thread_calls.run_to_end_once_begun(partial(function, *args, **kwargs))

    if not definition.is_async:
        return run_in_thread
    is_direct = tries_direct_call and convert is not None and _is_coroutine_function(function)
    return start_by_position if is_direct else run_coroutine


def _make_runner_with_generator_dependency(definition: TaskDefinition, dependency: SingleGeneratorPlan) -> RunTask:
    read, names, convert = (
        definition.read_arguments_with_upgrade_if_needed,
        definition.signature.names,
        definition.signature.convert_positional,
    )
    make, is_async, name, constants = dependency
    function = partial(definition.function, **constants) if constants else definition.function
    warn_once = _UnknownKeyWarner(definition.name)

    async def run_with_generator(job: Job) -> Any:
        # hot: what run_with_dependencies does, without its lists and its coroutines, which take 4 us
        data = job.data
        try:
            values = astuple(convert(data))  # type: ignore[misc]
        except UNRELATED_ERRORS:
            raise
        except Exception:  # noqa: BLE001  whatever it is, read() says it
            values = read(data).args
        if data and not names.issuperset(data):
            warn_once(data.keys() - names)
        generator = make()
        try:
            value = await generator.__anext__() if is_async else next(generator)
        except (StopAsyncIteration, StopIteration):
            raise make_yields_nothing_error(generator) from None
        try:
            result = await function(*values, **{name: value})
        except BaseException as error:
            await close_dependencies([generator], error)
            raise
        try:
            await generator.__anext__() if is_async else next(generator)
        except (StopAsyncIteration, StopIteration):
            return result
        raise make_yields_twice_error(generator)

    return run_with_generator


def _make_injecting_runner(definition: TaskDefinition, thread_calls: RunsFunctions, plan: InjectionPlan) -> RunTask:
    read, function, names = (
        definition.read_arguments_with_upgrade_if_needed,
        definition.function,
        definition.signature.names,
    )
    warn_once, is_async = _UnknownKeyWarner(definition.name), definition.is_async

    async def run_with_dependencies(job: Job) -> Any:
        args, kwargs = read(job.data)
        if job.data and not names.issuperset(job.data):
            warn_once(job.data.keys() - names)
        opened: list[Any] = []
        try:
            kwargs.update(await plan.open_dependencies(opened))
            if is_async:
                result = await function(*args, **kwargs)
            else:
                result = await thread_calls.run_to_end_once_begun(partial(function, *args, **kwargs))
        except BaseException as error:
            await close_dependencies(opened, error)
            raise
        await close_dependencies(opened, None)
        return result

    return run_with_dependencies


def _wrap_in_middleware(middleware: Middleware, run_task: RunTask) -> RunTask:
    async def run_through_middleware(job: Job) -> Any:
        def call() -> Awaitable[Any]:
            return run_task(job)

        result = await middleware(job, call)
        if result is None or type(result) in SCALARS or not is_awaitable_refusing_generators(result):
            return result
        close_if_coroutine(result)  # the job has not run, and must not count as done
        name = getattr(middleware, "__name__", "of this app")
        raise TypeError(
            f"the middleware {name} returned what it did not await: `return await call()` runs the job. "
            "If that is what it does, the task returned a coroutine without awaiting it"
        )

    return run_through_middleware


def _wrap_to_raise_given_up(definition: TaskDefinition, run_task: RunTask) -> RunTask:
    gives_up_on_timeout = issubclass(JobTimeout, definition.give_up_on)

    async def run_raising_given_up_on_listed_errors(job: Job) -> Any:
        try:
            return await run_task(job)
        except (RetryLater, Snooze, UnrecoverableError):  # the task itself says what follows
            raise
        except BaseException as error:
            if gives_up_on_timeout and job.is_cancelled:  # a job that was cancelled ends as such, whatever is raised
                raise GivenUp(JobTimeout("the run took longer than its timeout, and was stopped")) from error
            if issubclass(type(error), definition.give_up_on):
                raise GivenUp(error) from error
            raise

    return run_raising_given_up_on_listed_errors


def _wrap_to_pack_result(run_task: RunTask) -> RunTask:
    async def run_and_pack_result_if_possible(job: Job) -> Any:
        result = await run_task(job)
        return result if type(result) in SCALARS else pack_result_if_possible(result)

    return run_and_pack_result_if_possible


class _UnknownKeyWarner:
    """Warns once of each key that no parameter of the task has."""

    def __init__(self, task_name: str) -> None:
        self._task_name = task_name
        self._seen: set[object] = set()

    def __call__(self, keys: Iterable[object]) -> None:
        for key in keys:
            if key not in self._seen and len(self._seen) < MAX_UNKNOWN_KEYS_LOGGED:
                self._seen.add(key)
                log.warning("task %r ignores %r: it has no such parameter", self._task_name, printable(str(key)))


def make_unknown_task_error(name: str, known: Iterable[str], put_backs: int) -> UnknownTask:
    """The error for a job of this name: it waits for 1, 2, 4 ... 30 s, in case a worker that knows it comes."""
    guess = _find_closest_name_if_any(name, sorted(known))
    hint = f"; did you mean {guess!r}?" if guess else ""
    return UnknownTask(min(2 ** min(put_backs, 10), LONGEST_PUT_BACK_S), f"no task {printable(name)!r} here{hint}")


def _find_closest_name_if_any(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    words = sorted(re.findall(r"[a-z0-9]+", name.lower()))
    same_words = (one for one in known if sorted(re.findall(r"[a-z0-9]+", one.lower())) == words)
    return next(same_words, "") or next(iter(get_close_matches(name[:200], known, n=1)), "")
