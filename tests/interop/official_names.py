"""Runs in the official package's own environment: prints its public names and their parameters, as JSON."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import chasquimq  # type: ignore[import-not-found]

SPECIAL = ("__aenter__", "__aexit__", "__aiter__", "__anext__")


def parameters(thing: Any) -> list[list[Any]] | None:
    """Name, kind, and whether there is a default, of each."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    return [[one.name, one.kind.name, one.default is not one.empty] for one in signature.parameters.values()]


def members(thing: type) -> dict[str, Any]:
    names = [name for name in vars(thing) if not name.startswith("_") or name in SPECIAL]
    return {name: parameters(getattr(thing, name)) for name in names}


found = {}
for public in chasquimq.__all__:
    thing = getattr(chasquimq, public)
    is_class = inspect.isclass(thing)
    found[public] = {
        "parameters": parameters(thing),
        "members": members(thing) if is_class else {},
        "bases": [base.__name__ for base in thing.__mro__] if is_class else [],
    }
json.dump(found, sys.stdout)
