"""A lazy attribute holds no lock while it is computed: a child that is forked meanwhile would wait for it for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pychasqui
from pychasqui._core.cached_property import cached_property

both = Barrier(2)


class Slow:
    @cached_property
    def value(self) -> int:
        """A number."""
        both.wait(timeout=20)
        return 5


def test_two_objects_are_computed_at_once_and_each_is_computed_once() -> None:
    objects = [Slow(), Slow()]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda one: one.value, objects)) == [5, 5]
    assert [one.value for one in objects] == [5, 5]
    assert Slow.__dict__["value"].__doc__ == "A number."


def test_no_module_takes_the_one_of_functools() -> None:
    for module in Path(pychasqui.__file__).parent.rglob("*.py"):
        if module.stem != "cached_property":
            assert "from functools import cached_property" not in module.read_text(), module
