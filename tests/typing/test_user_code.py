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
# What it kept counts for the same options only.
MYPY = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(CACHE))
OPTIONS = ("--disable-error-code=ignore-without-code",)


def test_mypy_sees_every_option() -> None:
    ended = subprocess.run([*MYPY, *OPTIONS, *PROGRAMS], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


PLAIN_FUNCTION_OF_ANY = """
from typing import Any
from pychasqui import App
app = App()
@app.task
def shrink(number: int) -> Any: ...
@app.task
def grow(number: int) -> object: ...
reveal_type(shrink)
reveal_type(grow)
"""


def test_mypy_checks_no_plain_function_that_returns_any_and_one_that_returns_object(tmp_path: Path) -> None:
    """Any fits both kinds of task. The handbook says so, and what to write instead."""
    program = tmp_path / "program.py"
    program.write_text(PLAIN_FUNCTION_OF_ANY)
    ended = subprocess.run([*MYPY, *OPTIONS, str(program)], capture_output=True, text=True)
    found = [line.partition("Revealed type is ")[2] for line in ended.stdout.splitlines() if "Revealed" in line]
    assert found == ['"Any"', '"pychasqui.tasks.FunctionTask[[number: int], object]"'], ended.stdout + ended.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_sees_every_option() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--warnings", *PROGRAMS]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
