"""Running `chasqui` as a user does: as a process of its own, in a folder of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from pychasqui._redis.server_checks import SILENCED_BY
from tests.support.server import PROJECT, server_binary

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


class ForkServer:
    """See fork_server.py. One command runs at a time."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = (sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno()))
        with theirs:
            self._process = subprocess.Popen(program, pass_fds=(theirs.fileno(),), cwd=PROJECT)

    def run(
        self, arguments: tuple[str, ...], folder: Path, stdin: str, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        order = {"arguments": arguments, "folder": str(folder), "environment": environment}
        with TemporaryFile("w+b") as given, TemporaryFile("w+b") as out, TemporaryFile("w+b") as err:
            given.write(stdin.encode())
            given.seek(0)
            socket.send_fds(self._line, [json.dumps(order).encode()], [given.fileno(), out.fileno(), err.fileno()])
            (process_id,) = struct.unpack("i", self._line.recv(4))
            with killed_after(process_id, 50):
                (code,) = struct.unpack("i", self._line.recv(4))
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(arguments, code, *texts)

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@contextmanager
def killed_after(process_id: int, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, os.kill, (process_id, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def chasqui(start: Chasqui) -> Finished:
    """Run a command in tmp_path to its end, as a user does."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, has_stdin=stdin is not None, **environment)
        out, err = process.communicate(stdin, timeout=50)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def forked(fork_server: ForkServer, tmp_path: Path) -> Finished:
    """The same in a fork of a process that has imported the command line, for what only asks Redis and writes."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return fork_server.run(arguments, tmp_path, stdin or "", plain_environment() | environment)

    return run


def plain_environment() -> dict[str, str]:
    """Our environment without variables that change the command; embedded servers run the suite's own program."""
    names = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if name not in names and not name.startswith("CHASQUI_")}
    kept[SILENCED_BY] = "1"
    return kept | {"CHASQUI_REDIS_SERVER": str(server_binary())}
