"""Type checkers take the right calls of a user's program and refuse the wrong ones."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.server import PROJECT

PROGRAMS = [str(Path(__file__).with_name(name)) for name in ("user_code.py", "tasks_code.py")]


# Without what it kept of the standard library, mypy takes six times as long.
CACHE = PROJECT / ".mypy_cache" / "user_code"


def test_mypy_sees_every_option() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(CACHE), *PROGRAMS]
    ended = subprocess.run([*command, "--disable-error-code=ignore-without-code"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_sees_every_option() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--warnings", *PROGRAMS]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
