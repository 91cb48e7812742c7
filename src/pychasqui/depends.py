"""Depends: values that a worker gives to a task, such as a session: made for each job, or once for all of them.

    async def session(state: State = Depends(state)) -> AsyncIterator[Session]: ...

    @app.task
    async def charge(order_id: int, session: Session = Depends(session)) -> None: ...

A dependency is a default value, so that type checkers take a call without it. In a test pass the fake:
`await charge(17, session=fake)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar, overload

from .errors import InvalidType

T = TypeVar("T")


class Injected:
    """The default value of a parameter that a worker injects. Each use of it raises: the caller has to pass one."""

    __slots__ = ("_provider",)

    def __init__(self, provider: Callable[..., Any]) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._describe_wrong_use())

    def _refuse_use(self, *_: object) -> Any:
        raise TypeError(self._describe_wrong_use())

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __aiter__ = __len__ = __bool__ = _refuse_use
    __call__ = __await__ = __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse_use

    def _describe_wrong_use(self) -> str:
        provider = getattr(provider_of(self), "__name__", "the value")
        return f"{provider} is injected by a worker: pass it where you call the function yourself"

    def __repr__(self) -> str:
        return f"Depends({getattr(self._provider, '__name__', self._provider)})"


def is_depends_of_another_package(value: object) -> bool:
    """Whether this is what the Depends of FastAPI, or of another package, returns. An Injected is none."""
    return type(value).__name__ == "Depends"


def provider_of(injected: Injected) -> Callable[..., Any]:
    """The function that makes the value."""
    provider: Callable[..., Any] = object.__getattribute__(injected, "_provider")
    return provider


@overload
def Depends(provider: Callable[..., AsyncIterator[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., AbstractAsyncContextManager[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., AbstractContextManager[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., Awaitable[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., T], /) -> T: ...
def Depends(provider: Callable[..., Any], /) -> Any:  # noqa: N802  it reads as a type
    """The default of a parameter that a worker injects: what this function returns or yields, for each job once.

    provider   a function, an async function, a generator function, plain or async, whose rest runs behind the job, or
               a context manager's function; also the app's lifespan, whose value is made once in a process. Its own
               parameters have to be dependencies. A plain one runs in the event loop: it must not block
    """
    if not callable(provider) or isinstance(provider, Injected):
        raise InvalidType(f"Depends() takes a function, not {type(provider).__name__}")
    return Injected(provider)
