"""Makes methods that block of those of a Queue, for synchronous code; see portal.py for where the coroutines run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ..queue import Queue
from .loop_queues import LoopQueues, run_coroutine_that_never_waits
from .portal import portal, refuse_if_loop_runs_here

P = ParamSpec("P")
R = TypeVar("R")
Part = TypeVar("Part")


class CallsQueue(Protocol):
    def call_queue(
        self, blocking_call: str, make_coroutine: Callable[[Queue], Coroutine[Any, Any, R]], *, needs_task: bool = True
    ) -> R: ...


def make_blocking_method(
    method: Callable[Concatenate[Queue, P], Coroutine[Any, Any, R]], *, needs_task: bool = True
) -> Callable[Concatenate[CallsQueue, P], R]:
    """The method of Queue, blocking; see Portal.run_and_wait()."""

    name = method.__name__  # by its name: a test's queue has its own
    blocking_call = f"SyncQueue.{name}"

    @wraps(method)
    def call(self: CallsQueue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.call_queue(
            blocking_call, lambda queue: getattr(queue, name)(*args, **kwargs), needs_task=needs_task
        )
        return result

    return call


def make_blocking_method_of_part(
    get_part: Callable[[Queue], Part], method: Callable[Concatenate[Part, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[CallsQueue, P], R]:
    """The method of a part of Queue, blocking."""

    @wraps(method)
    def call(self: CallsQueue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call_queue(method.__qualname__, lambda queue: method(get_part(queue), *args, **kwargs))

    return call


def wrap_to_read_iterable_in_caller(parameter: str, method: Callable[P, R]) -> Callable[P, R]:
    """The blocking method, which makes a list of its first argument before it blocks.

    A generator is the user's code: on the loop Django would refuse its queries, another thread may run it, and the
    calls of all threads would wait for it.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        changed_args: Any = (*args[:1], *map(to_list_if_iterable, args[1:2]), *args[2:])
        changed: Any = kwargs
        if parameter in kwargs:
            changed = {**kwargs, parameter: to_list_if_iterable(kwargs[parameter])}
        return method(*changed_args, **changed)

    return call


def to_list_if_iterable(value: Any) -> Any:
    """Returns what is no iterable of items as it is: the method refuses it."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else value


def run_and_block(
    queues: LoopQueues,
    blocking_call: str,
    instead: str,
    make_coroutine: Callable[[], Coroutine[Any, Any, R]],
    *,
    needs_task: bool = True,
) -> R:
    """Runs a coroutine on the loop of the process's portal; in a test with inline(app), which needs none, here."""
    if queues.is_replaced:
        if not queues.may_block_loop_of_test():
            refuse_if_loop_runs_here(blocking_call, instead)
        return run_coroutine_that_never_waits(make_coroutine())
    refuse_if_loop_runs_here(blocking_call, instead)
    return portal.run_and_wait(make_coroutine, queues, needs_task=needs_task)
