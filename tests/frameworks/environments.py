"""Folders of packages whose versions contradict those of the suite, for interpreters that it finds here.

Each is made once, by pip, under .frameworks/, and put before everything else on the path of a process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT / ".frameworks"
NEEDED = ("click>=8.1", "hiredis>=3.0", "msgspec>=0.19", "ulid-transform>=1.0", "pytest>=8.4")


class CannotInstall(Exception):
    """The reason why a test is skipped."""


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the variables of a process that has the packages."""

    python: str
    variables: dict[str, str]


def own_environment() -> Environment:
    """That of the suite."""
    return Environment(sys.executable, dict(os.environ))


def environment(versions: tuple[str, ...], *packages: str) -> Environment:
    """An interpreter of one of these versions, with these packages and what pychasqui needs."""
    python = next((path for version in versions for path in _tool("pythons").interpreters(version)), None)
    if python is None:
        raise CannotInstall(f"there is no Python {' or '.join(versions)} on PATH or under pyenv")
    wanted = "\n".join([python, *NEEDED, *packages])
    folder = FOLDERS / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    with _locked(folder.with_suffix(".lock")):
        if not (folder / ".installed").exists():
            _install(python, folder, packages)
    paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    return Environment(python, {**os.environ, "PYTHONPATH": paths})


def _install(python: str, folder: Path, packages: tuple[str, ...]) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile", "--no-input"]
    target = ["--only-binary", ":all:", "--upgrade", "--target", str(folder)]
    installed = subprocess.run([*pip, *target, *NEEDED, *packages], capture_output=True, text=True, timeout=200)
    if installed.returncode != 0:
        raise CannotInstall(f"{' '.join(packages)} cannot be installed here: {installed.stderr[-300:]}")
    (folder / ".installed").touch()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The processes of a test run share the folders."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tool(name: str) -> ModuleType:
    path = str(ROOT / "tools" / name)
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
