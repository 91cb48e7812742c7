"""Finds tasks by their paths: only those that a module of the project declares. A job's name imports nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from django.utils.module_loading import autodiscover_modules

from .framework import Task


def import_task_modules(modules: Iterable[str]) -> None:
    """Imports the modules `tasks` of all installed apps, and these."""
    autodiscover_modules("tasks")
    for module in modules:
        importlib.import_module(module)


def find_imported_task(path: str) -> Any | None:
    """The task of this path, if a module that is imported declares it."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, Task) and found.module_path == path else None


def list_declared_task_paths() -> set[str]:
    """The paths of all tasks that modules of this process declare."""
    return {
        value.module_path
        for module in list(sys.modules.values())
        for value in list(getattr(module, "__dict__", {}).values())
        if issubclass(type(value), Task)  # not isinstance: a lazy object would be made
    }
