"""Every example runs, and prints the expected lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "delays": ["lunch is cancelled: True", "the walk comes first: True", "remind: a walk", "remind: tea"],
    "unique": ["new: True False", "charge order-17: {'amount': 10}", "index page-7: {'revision': 4}"],
    "schedules": ["the next reports: 3", "beat 1", "beat 1", "beat 1", "goodbye 2", "removed: True"],
    "events": ["failed: send, run 1: the mail server is away", "completed: send, run 2", "again: [1, 2]"],
    "sync": ["welcome ada", "welcome bo"],
    "results": [
        "words: 12",
        "progress: 100 %",
        "log: page 2: 12 words so far",
        "of many: [1, 2, 3]",
        "failed: UnrecoverableError there is nothing to count after 1 run",
    ],
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_an_example_says_what_it_should(name: str, redis_url: str) -> None:
    program = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        env={**os.environ, "CHASQUI_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    lines = program.stdout.splitlines()
    assert [line for line in lines if line in SAID[name]] == SAID[name]
    assert sum("index" in line for line in lines) <= 1
