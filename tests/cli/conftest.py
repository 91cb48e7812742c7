"""Running `chasqui` as a user does: as a process of its own, in a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from pychasqui._redis.server_checks import SILENCED_BY
from pychasqui.cli.main import COMMANDS
from tests.support.forks import ForkServer, fork_server
from tests.support.server import server_binary

Chasqui = Callable[..., "subprocess.Popen[str]"]
Finished = Callable[..., "subprocess.CompletedProcess[str]"]

COMMAND = (sys.executable, "-P", "-m", "pychasqui.cli")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Chasqui]:
    """Starts a command in tmp_path, as a user does. Processes that still run at the end of the test are killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(
        *arguments: str, command: tuple[str, ...] = COMMAND, has_stdin: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tmp_path,
            env=plain_environment() | environment,
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def chasqui(spawned: Finished) -> Finished:
    """Runs a command to its end; files whose commands only ask Redis and write have it run as `forked`."""
    return spawned


@pytest.fixture
def spawned(start: Chasqui) -> Finished:
    """Runs a command in tmp_path to its end, as a user does."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, has_stdin=stdin is not None, **environment)
        out, err = process.communicate(stdin, timeout=50)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def forked(tmp_path: Path) -> Finished:
    """The same in a fork of a process that has imported the command line."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        with TemporaryFile("w+b") as given, TemporaryFile("w+b") as out, TemporaryFile("w+b") as err:
            given.write((stdin or "").encode())
            given.seek(0)
            process = command_line_server().start(
                "pychasqui.cli",
                *arguments,
                stdin=given.fileno(),
                stdout=out.fileno(),
                stderr=err.fileno(),
                folder=tmp_path,
                environment=plain_environment() | environment,
            )
            code = process.wait(50)
            if code is None:
                process.kill()
                raise subprocess.TimeoutExpired(arguments, 50)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(arguments, code, *texts)

    return run


def command_line_server() -> ForkServer:
    """Starts processes that have imported every command."""
    return fork_server("pychasqui", *sorted({entry.module for entry in COMMANDS.values()}))


def plain_environment() -> dict[str, str]:
    """Our environment without variables that change the command; embedded servers run the suite's own program."""
    names = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if name not in names and not name.startswith("CHASQUI_")}
    kept[SILENCED_BY] = "1"
    return kept | {"CHASQUI_REDIS_SERVER": str(server_binary())}
