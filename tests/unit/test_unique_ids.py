"""The ids of unique_by: equal values have one id, in every process, and different values have two."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from typing import Any

import pytest

from pychasqui import App, InvalidArgument
from pychasqui.testing import inline


def make_id(annotation: Any, value: Any) -> str:
    return str(make_task(annotation).bind(value).options["job_id"])


def make_task(annotation: Any) -> Any:
    async def send(x: Any) -> None: ...

    send.__annotations__["x"] = annotation
    return App("redis://no-server.invalid").task(unique_by=("x",))(send)


@pytest.mark.parametrize(
    ("annotation", "value", "written"),
    (
        (int, 17, "17"),
        (str, "card", '"card"'),
        (bool, True, "true"),
        (float, 1.5, "1.5"),
        (bytes, b"ab", '"YWI="'),
        (int | None, None, "null"),
        (list[int], [3, 1], "[3,1]"),
        (list[str], ["b", "a"], '["b","a"]'),
        (Any, [1, "a", None], '[1,"a",null]'),
        (date, date(2026, 1, 31), '"2026-01-31"'),
    ),
)
def test_the_ids_of_common_values_stay_what_they_are(annotation: Any, value: Any, written: str) -> None:
    assert make_id(annotation, value) == f"send(x={written})"


@pytest.mark.parametrize(
    ("annotation", "one", "other"),
    (
        (float, 1, 1.0),
        (float | None, 1, 1.0),
        (dict[str, int], {"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (dict[int, int], {1: 1, 2: 2}, {2: 2, 1: 1}),
        (set[str], {"b", "a"}, ["b", "a"]),
        (Any, {1: 1, "a": 2}, {"a": 2, 1: 1}),
        (Any, {1: {2, "b"}, "a": 2}, {"a": 2, 1: {"b", 2}}),
    ),
)
def test_equal_values_have_one_id(annotation: Any, one: Any, other: Any) -> None:
    assert make_id(annotation, one) == make_id(annotation, other)


def test_values_that_json_does_not_have_differ() -> None:
    inf, nan = float("inf"), float("nan")
    assert len({make_id(float | None, value) for value in (inf, -inf, nan, None)}) == 4
    assert len({make_id(list[float | None], [value]) for value in (inf, -inf, nan, None)}) == 4
    assert len({make_id(dict[str, float | None], {"a": value}) for value in (inf, None)}) == 2
    assert make_id(float | str, inf) != make_id(float | str, "inf")


PROGRAM = """
from dataclasses import dataclass
from pychasqui import App
@dataclass(frozen=True)
class Point:
    x: object
@dataclass
class Post:
    tags: set[str]
async def draw(one, other: set[Point], third: dict): ...
mixed = {1, "a", None, 2.5, ("b", None), ("b", 1), "c"}
draw = App("redis://x").task(unique_by=("one", "other", "third"))(draw)
print(draw.bind(mixed, {Point("a"), Point(1)}, {"k": [mixed]}).options["job_id"])
async def send(tags, post: Post, keys: set[str] = frozenset({"red", "green", "blue", "white"})): ...
task = App("redis://x").task(unique_by=("tags", "post", "keys"))(send)
tags = {"red", "green", "blue", "white"}
print(task.bind(tags, Post(tags)).options["job_id"])
"""


def test_a_set_has_one_id_in_all_processes() -> None:
    ids = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    sorted_tags = '["blue","green","red","white"]'
    sorted_values = '["a","c",1,2.5,["b",1],["b",null],null]'
    drawn = f'draw(one={sorted_values}, other=[{{"x":"a"}},{{"x":1}}], third={{"k":[{sorted_values}]}})'
    assert ids == {f'{drawn}\nsend(tags={sorted_tags}, post={{"tags":{sorted_tags}}}, keys={sorted_tags})\n'}


def test_a_set_of_a_model_is_sorted() -> None:
    pydantic = pytest.importorskip("pydantic")
    post = pydantic.create_model("Post", tags=(set[str], ...))
    assert make_id(post, post(tags={"b", "c", "a"})) == 'send(x={"tags":["a","b","c"]})'


async def test_text_that_is_not_unicode_is_refused_by_its_parameter() -> None:
    app = App("redis://no-server.invalid")

    @app.task(unique_by=("to",))
    async def send(to: str) -> None: ...

    with inline(app), pytest.raises(InvalidArgument, match="send: to: "):
        await send.enqueue("\ud800")


def test_values_without_an_order_that_differ_have_two_ids() -> None:
    assert len({make_id(Any, value) for value in ({1, "a"}, {1, "b"}, {"1", "a"}, {(1, "a")}, {("a", 1)})}) == 5
    pydantic = pytest.importorskip("pydantic")
    post = pydantic.create_model("Post", tags=(set[int | str], ...))
    assert make_id(post, post(tags={"b", 1})) == 'send(x={"tags":["b",1]})'
