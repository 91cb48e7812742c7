"""The list of processes that other tests use is complete."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.processes import children_of, mentioning, still_running
from tests.support.waiting import eventually


async def test_a_command_is_shown_to_its_end_however_narrow_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    end = f"the-end-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", "input()", "x" * 5000, end], stdin=subprocess.PIPE) as process:
        found = await eventually(lambda: mentioning(end))
        assert [printable.pid for printable in found] == [process.pid]
        assert found[0] in children_of(os.getpid())
        process.communicate()
        assert still_running(found) == []
