"""The README's code, run as it stands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.temporary import short_folder

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHON = [code for language, code in BLOCKS if language == "python"]
SHELL = [line.partition("#")[0].strip() for language, code in BLOCKS if language == "sh" for line in code.splitlines()]


@pytest.fixture
def home() -> dict[str, str]:
    """A home of its own, so that embedded:// starts a server of its own."""
    return {**os.environ, "XDG_DATA_HOME": str(short_folder()), "CHASQUI_EMBEDDED_LINGER_MS": "100"}


def test_the_readme_opens_with_how_to_install_the_package() -> None:
    assert SHELL[0].startswith("pip install ")


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python"}
    assert len(PYTHON) == 6


@pytest.mark.parametrize("command", SHELL)
def test_a_command_of_the_readme_is_there(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "pip":
        extra = re.fullmatch(r"pychasqui\[(\w+)\]", words[-1])
        assert extra
        assert extra[1] in PROJECT["optional-dependencies"]
        return
    assert words[0] == "make"
    if shutil.which("make") is None:
        pytest.skip("this machine has no make")
    dry = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


def run(code: str, home: dict[str, str]) -> str:
    program = subprocess.run(
        [sys.executable, "-c", code], env=home, capture_output=True, text=True, timeout=30, check=False
    )
    assert program.returncode == 0, program.stderr
    return program.stdout


def test_the_first_program_sends_a_task_and_gets_its_result(home: dict[str, str]) -> None:
    assert len(PYTHON[0].splitlines()) <= 25
    assert run(PYTHON[0], home) == "to ada@example.com: hello\nsent 5\n"


def test_the_program_of_a_test_needs_no_server(home: dict[str, str]) -> None:
    assert run(PYTHON[1], {**home, "CHASQUI_REDIS_URL": "redis://nowhere.invalid"}) == "['done', 'done']\n"


def test_the_program_that_adds_adds(home: dict[str, str]) -> None:
    assert re.fullmatch(r"added [0-9A-Z]{26}\n", run(PYTHON[2], home))


def test_the_program_that_runs_jobs_buries_one_and_brings_it_back(home: dict[str, str]) -> None:
    assert run(PYTHON[3], home) == "unrecoverable no retry would help {'amount': -1}\n0\n"


def test_the_program_about_time_delays_adds_once_and_repeats(home: dict[str, str]) -> None:
    cancelled, new, ran = run(PYTHON[4], home).splitlines()
    assert (cancelled, new) == ("cancelled: removed", "new: False")
    assert ran == "['charge 10', 'remind tea', 'beat 1', 'beat 1']"


def test_the_program_that_looks_gets_results_a_failure_events_and_counts(home: dict[str, str]) -> None:
    assert run(PYTHON[5], home).splitlines() == [
        "words: 6",
        "ValueError: nothing to count",
        "['completed', 'dlq']",
        "0 0 0 1",
    ]
