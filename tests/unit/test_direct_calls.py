"""A task that is called directly with a job's data gets what reading the data would give it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import pytest

from pychasqui import Job
from pychasqui._tasks.data_error import DataMismatch
from pychasqui._tasks.definition import TaskDefinition, define_task
from pychasqui._tasks.direct_calls import make_direct_call
from pychasqui._tasks.dispatch import Dispatcher, RunsFunctions
from pychasqui._tasks.lifespan import AppRuntime
from pychasqui._tasks.pydantic_types import DataMismatchError
from tests.support.signatures import signature

SCALARS: tuple[Any, ...] = (1, 1.5, True, None, "text", b"raw", 2**64 - 1)
DATA: tuple[Any, ...] = (
    None,
    {},
    [],
    ["a"],
    "a",
    "ab",
    3,
    b"abc",
    *({"a": one} for one in SCALARS),
    *({"a": one, "b": other} for one in SCALARS for other in SCALARS),
    *({"b": 2, "a": one} for one in ("x", 1)),
    *({"a": one, "b": 2, "c": third} for one in SCALARS for third in SCALARS),
    {"b": 1},
    {"c": 1},
    {"a": "x", "z": 1},
    {"a": "x", "b": 1, "z": 1},
    {"a": "x", "b": 1, "c": 1.5, "z": 1},
    {"a": "x", "b": 1, "c": 1.5, "d": True},
    {"a": "x", "b": 1, "c": 1.5, "d": b"raw"},
)


async def none() -> str:
    return "none"


async def one(a: str) -> Any:
    return a


async def one_raw(a: bytes) -> Any:
    return a


async def one_with_default(a: int = 7) -> Any:
    return a


async def two(a: str, b: int) -> Any:
    return a, b


async def two_with_default(a: str, b: float = 0.5) -> Any:
    return a, b


async def three(a: str, b: int, c: float) -> Any:
    return a, b, c


async def three_with_default(a: str, b: int = 3, c: bool = False) -> Any:
    return a, b, c


async def four(a: str, b: int, c: float, d: bool) -> Any:
    return a, b, c, d


async def two_of_which_one_is_a_list(a: str, b: list[int]) -> Any:
    return a, b


def run(call: Callable[[Any], Awaitable[Any] | None], data: Any) -> Any:
    """Returns what the task returns, with the types, or "a closer look" where Dispatcher.start() takes one."""

    async def await_it() -> Any:
        try:
            coroutine = call(data)
        except Exception:  # noqa: BLE001  whatever it is, a runner says it
            return "a closer look"
        if coroutine is None:
            return "a closer look"
        found = await coroutine
        return found, [type(value) for value in found] if type(found) is tuple else type(found)

    return asyncio.run(await_it())


TASKS = (
    *(none, one, one_raw, one_with_default, two, two_with_default, three, three_with_default, four),
    two_of_which_one_is_a_list,
)


@pytest.mark.parametrize("task", TASKS)
def test_data_is_passed_as_reading_it_would_pass_it(task: Callable[..., Awaitable[Any]]) -> None:
    own = signature(task)
    call = make_direct_call(own, task)

    def call_with_read_data(data: Any) -> Awaitable[Any]:
        if not own.names.issuperset(data):
            raise DataMismatchError(DataMismatch("$", "an unknown name, of which a warning is due"))
        arguments = own.read(data)
        return task(*arguments.args, **arguments.kwargs)

    for data in DATA:
        assert run(call, data) == run(call_with_read_data, data), data


@pytest.mark.parametrize(
    ("task", "data"), ((one, {"a": "x"}), (two, {"a": "x", "b": 1}), (three, {"a": "x", "b": 1, "c": 1.5}))
)
def test_scalars_of_the_right_types_are_read_by_no_struct(task: Callable[..., Awaitable[Any]], data: Any) -> None:
    own = signature(task)

    def refuse(data: Any) -> Any:
        raise AssertionError(data)

    own.convert_positional = refuse
    assert run(make_direct_call(own, task), data) == run(lambda data: task(**data), data)
    assert run(make_direct_call(own, task), data | {"b": None}) == "a closer look"


async def two_and_a_pool(a: str, b: int, pool: str) -> Any:
    return a, b, pool


def test_values_of_a_lifespan_are_passed_by_name_behind_the_data() -> None:
    call = make_direct_call(signature(two), partial(two_and_a_pool, pool="pool"))
    assert run(call, {"a": "x", "b": 1}) == (("x", 1, "pool"), [str, int, str])
    assert run(call, {"b": 1, "a": "x"}) == (("x", 1, "pool"), [str, int, str])


@dataclass
class Address:
    city: str

    makes: ClassVar[int] = 0
    raises: ClassVar[Exception | None] = None

    def __post_init__(self) -> None:
        type(self).makes += 1
        error, type(self).raises = self.raises, None
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("error", "makes"),
    ((OSError("the list of cities is away"), 1), (MemoryError(), 1), (ValueError("no such city"), 2)),
    ids=("OSError", "MemoryError", "ValueError"),
)
def test_a_class_of_the_user_that_raises_is_not_called_more_often_than_its_error_needs(
    error: Exception, makes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two say nothing about the data, and end the run. After others the data is read to say what is wrong."""
    monkeypatch.setattr(Address, "makes", 0)
    monkeypatch.setattr(Address, "raises", error)
    sent: list[Address] = []

    async def send(to: Address) -> None:
        sent.append(to)

    dispatcher = Dispatcher([define(send)], cast(RunsFunctions, None), AppRuntime(), stores_results=False)

    async def run_job() -> None:
        await dispatcher.start(Job("id", "send", {"to": {"city": "Oslo"}}))

    if makes == 1:
        with pytest.raises(type(error)):
            asyncio.run(run_job())
    else:  # it raises once, and is right then
        asyncio.run(run_job())
        assert [to.city for to in sent] == ["Oslo"]
    assert Address.makes == makes


def define(function: Callable[..., Any]) -> TaskDefinition:
    return define_task(
        function, name=None, aliases=(), unique_by=(), give_up_on=(), is_injected=lambda default: False, options={}
    )
