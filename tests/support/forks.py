"""Starts programs in forks of a process that has imported what they need: see fork_server.py."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support.fork_server import NUMBER
from tests.support.server import PROJECT

PROGRAM = Path(__file__).with_name("fork_server.py")


class ForkedProcess:
    """As much of subprocess.Popen as tests need. The server is the parent: it reports the exit code."""

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self.returncode: int | None = None
        self.pid = self._read()

    def poll(self) -> int | None:
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Returns the exit code, or None if it still runs after this time."""
        if self.returncode is None and select.select([self._reports], [], [], timeout_s)[0]:
            self.returncode = self._read()
            os.close(self._reports)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the report of that is still to come
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> int:
        read = os.read(self._reports, NUMBER.size)
        assert read, "the server of forks has ended"
        return int(NUMBER.unpack(read)[0])


class ForkServer:
    def __init__(self, python: str, imports: Sequence[str]) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (python, "-P", str(PROGRAM), str(theirs.fileno()), *imports)
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), cwd=PROJECT, stdin=subprocess.DEVNULL
            )
        atexit.register(self.close)

    def start(
        self,
        program: str | Path,
        *arguments: str,
        stdin: int,
        stdout: int,
        stderr: int = 2,
        folder: Path = PROJECT,
        environment: Mapping[str, str] | None = None,
        leads_session: bool = False,
    ) -> ForkedProcess:
        """Starts a file, a module as by `python -m`, or code as by `python -c`, with these descriptors.

        They stay open here.
        """
        order = {
            "program": str(program),
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "leads_session": leads_session,
        }
        reports, theirs = os.pipe()
        socket.send_fds(self._line, [json.dumps(order).encode()], [stdin, stdout, stderr, theirs])
        os.close(theirs)
        return ForkedProcess(reports)

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def fork_server(*imports: str, python: str = sys.executable) -> ForkServer:
    """The one of this process for this interpreter and these modules."""
    return ForkServer(python, imports)
