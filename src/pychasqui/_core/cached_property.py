"""cached_property without a lock.

That of functools in Python 3.11 holds a lock while it computes a value, one for all objects of the class. A process
that is forked meanwhile by another thread would wait for that lock for ever. Later versions have none.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    from collections.abc import Callable

    class cached_property:  # noqa: N801  the name that readers know
        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._function(instance)
            return value
