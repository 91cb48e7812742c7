"""Watches the files of a program, for `--reload`. Needs watchfiles, which comes with the extra `reload`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

HOW_TO_INSTALL = "watchfiles is not installed here: pip install 'pychasqui[reload]'"


def can_reload() -> bool:
    return find_spec("watchfiles") is not None


async def keep_watching_python_files(folders: Sequence[Path], on_change: Callable[[list[Path]], None]) -> None:
    """Calls `on_change` with the Python files below the folders that have changed, again and again."""
    from watchfiles import PythonFilter, awatch

    async for changes in awatch(*folders, watch_filter=PythonFilter()):
        on_change(sorted({Path(path) for _, path in changes}))
