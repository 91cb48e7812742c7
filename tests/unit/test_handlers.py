"""A worker takes any callable that takes a job, and refuses others with a reason."""

from __future__ import annotations

import functools
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest

from pychasqui import InvalidType, Job, Worker
from pychasqui._worker.handlers import check_handler, is_async_handler
from tests.support.cases import in_one_test


async def coroutine(job: Job) -> None: ...


def function(job: Job, more: str = "") -> None: ...


def anything(*arguments: Any, **options: Any) -> None: ...


@types.coroutine
def old_coroutine(job: Job) -> Iterator[Any]:
    yield from ()


class Handlers:
    async def method(self, job: Job) -> None: ...

    def __call__(self, job: Job) -> None: ...


class Unreadable:
    """Does not show its signature."""

    def __call__(self, *arguments: Any) -> None: ...

    @property
    def __signature__(self) -> NoReturn:
        raise RuntimeError("do not look")


def injecting(handler: Callable[[Job, str], None]) -> Callable[[Job], None]:
    """A decorator that brings the second argument along."""

    @functools.wraps(handler)
    def run(job: Job) -> None:
        handler(job, "database")

    return run


@injecting
def injected(job: Job, database: str) -> None: ...


@in_one_test(
    "handler",
    (
        coroutine,
        function,
        anything,
        old_coroutine,
        injected,
        Handlers(),
        Handlers().method,
        Handlers.__call__.__get__(Handlers()),
        functools.partial(function, more="x"),
        functools.partial(lambda more, job: None, "x"),
        Unreadable(),
        Mock(),
        print,
        dict.fromkeys,  # a function of C
        max,  # one without a signature
    ),
)
def test_any_callable_that_takes_a_job_is_a_handler(handler: Any) -> None:
    assert check_handler(handler) is handler
    Worker("q", handler)


def generator(job: Job) -> Iterator[int]:
    yield 1


async def async_generator(job: Job) -> AsyncIterator[int]:
    yield 1


class Generators:
    def method(self, job: Job) -> Iterator[int]:
        yield 1

    async def __call__(self, job: Job) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize(
    "handler",
    (generator, async_generator, Generators().method, Generators(), functools.partial(generator), lambda job: (yield)),
)
def test_a_generator_function_is_refused_with_the_reason(handler: Any) -> None:
    with pytest.raises(InvalidType, match="is a generator function: to call it runs nothing of its body"):
        Worker("q", handler)


def nothing() -> None: ...


def two(job: Job, x: int) -> None: ...


def keyword(job: Job, *, x: int) -> None: ...


async def two_async(job: Job, x: int) -> None: ...


class TwoArguments:
    def __call__(self, job: Job, x: int) -> None: ...


class EvilDefault:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no")


def evil(x: int, y: int, z: object = EvilDefault()) -> None: ...


@pytest.mark.parametrize(
    "handler",
    (nothing, two, keyword, two_async, TwoArguments(), functools.partial(two_async), lambda: None, evil),
    ids=lambda handler: getattr(handler, "__name__", "object"),
)
def test_a_callable_that_takes_no_job_or_more_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidType, match="cannot be called with a job as its only argument"):
        Worker("q", handler)


@pytest.mark.parametrize("handler", (None, 7, "handler", coroutine.__code__))
def test_an_object_that_cannot_be_called_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidType, match="must be a function that takes a job"):
        Worker("q", handler)


def test_an_async_handler_is_known_in_every_dress() -> None:
    handlers: tuple[Any, ...] = (coroutine, Handlers().method, functools.partial(functools.partial(coroutine)))
    assert [is_async_handler(handler) for handler in (*handlers, function, Handlers(), injected)] == [True] * 3 + [
        False
    ] * 3
