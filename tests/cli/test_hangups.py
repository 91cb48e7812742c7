"""A supervisor whose terminal is closed: it ends, unless it was started to outlive the terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND
from tests.cli.supervised import SupervisedProgram
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # a process takes long to start on a busy machine

# Runs a command on the terminal that is its standard input. "ignore" does what nohup does.
ON_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "ignore" else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ProgramOnTerminal:
    def __init__(self, program: SupervisedProgram, *, ignores_hangup: bool) -> None:
        self._log = program.folder / "log"
        self._terminal, theirs = pty.openpty()
        mode = "ignore" if ignores_hangup else "heed"
        words = [*COMMAND, "worker", "--log-format", "plain", "app:worker", "--processes", "1"]
        with self._log.open("wb") as log:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-c", ON_TERMINAL, mode, *words],
                stdin=theirs,
                stdout=log,
                stderr=log,
                cwd=program.folder,
                env=program.environment,
                start_new_session=True,
            )
        os.close(theirs)

    async def wait_for(self, text: str) -> None:
        await eventually(lambda: text in self._log.read_text(), timeout=100)

    def close_terminal(self) -> None:
        os.close(self._terminal)

    def close(self) -> None:
        self.supervisor.kill()
        self.supervisor.wait()


@pytest.fixture
def program(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, queue_name: str
) -> Iterator[ProgramOnTerminal]:
    program = ProgramOnTerminal(SupervisedProgram(tmp_path, redis_url, queue_name), ignores_hangup=request.param)
    yield program
    program.close()


@pytest.mark.parametrize("program", (False,), indirect=True)
async def test_a_supervisor_ends_when_its_terminal_is_closed(program: ProgramOnTerminal) -> None:
    await program.wait_for(" works\n")
    program.close_terminal()
    await eventually(lambda: program.supervisor.poll() is not None, timeout=100)
    assert program.supervisor.returncode == 0


@pytest.mark.parametrize("program", (True,), indirect=True)
async def test_a_supervisor_behind_nohup_outlives_its_terminal_and_replaces_its_processes_at_a_later_hangup(
    program: ProgramOnTerminal,
) -> None:
    await program.wait_for(" works\n")
    program.close_terminal()
    await program.wait_for("the terminal is gone, and the processes go on")
    program.supervisor.send_signal(signal.SIGHUP)
    await program.wait_for("all processes are replaced")
    program.supervisor.terminate()
    await eventually(lambda: program.supervisor.poll() is not None, timeout=100)
    assert program.supervisor.returncode == 0
