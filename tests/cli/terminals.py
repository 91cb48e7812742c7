"""Runs commands on a pseudo-terminal, as a person does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.conftest import COMMAND, command_line_server, plain_environment
from tests.support.forks import ForkedProcess

WITHOUT_RICH = (
    *(sys.executable, "-P", "-c"),
    "import sys; sys.modules['rich'] = None; from pychasqui.cli.main import main; sys.exit(main())",
)


SILENCE_S = 40.0  # a command that shows nothing for that long is killed


class TerminalRun:
    """A command whose streams are a terminal of `columns` columns; `stdin` is another standard input.

    It is killed at the end of the `with`.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        columns: int = 80,
        command: tuple[str, ...] = COMMAND,
        stdin: int | None = None,
        **environment: str,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        its_in = theirs if stdin is None else stdin
        variables = {**plain_environment(), "TERM": "xterm-256color", **environment}
        self.process: ForkedProcess | subprocess.Popen[bytes]
        if command is COMMAND:
            self.process = command_line_server().start(
                *("pychasqui.cli", *arguments),
                stdin=its_in,
                stdout=theirs,
                stderr=theirs,
                folder=folder,
                environment=variables,
                leads_session=True,
            )
        else:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=its_in,
                stdout=theirs,
                stderr=theirs,
                cwd=folder,
                env=variables,
                start_new_session=True,
            )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def read_until(self, wanted: str, timeout_s: float = 30) -> str:
        """Reads until the text has been shown; returns all that was shown, without escape sequences."""
        deadline = time.monotonic() + timeout_s
        while wanted not in plain(self.text):
            assert time.monotonic() < deadline, f"{wanted!r} was not shown: {self.text!r}"
            chunk = self._read()
            assert chunk, f"the command has ended without {wanted!r}: {self.text!r}"
            self.text += chunk
        return plain(self.text)

    def finish(self, timeout_s: float = 30) -> tuple[int, str]:
        """Reads to the end; returns the exit code and all that was shown, with its escape sequences."""
        while chunk := self._read():
            self.text += chunk
        code = self.process.wait(timeout_s)
        assert code is not None, "it has closed the terminal and runs on"
        return code, self.text.replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def answer(self, text: str) -> None:
        """Types text and presses Enter."""
        os.write(self._ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def _read(self) -> str:
        ready, _, _ = select.select([self._ours], [], [], SILENCE_S)
        if not ready:
            self.process.kill()
            return ""
        try:
            return os.read(self._ours, 65536).decode()
        except OSError:  # how Linux says that the other side has closed it
            return ""


def plain(text: str) -> str:
    """The text without escape sequences."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


def on_terminal(
    *arguments: str, folder: Path, columns: int = 80, command: tuple[str, ...] = COMMAND, **environment: str
) -> tuple[int, str]:
    """Runs a command on a terminal to its end; returns its exit code and what it showed."""
    with TerminalRun(*arguments, folder=folder, columns=columns, command=command, stdin=None, **environment) as run:
        return run.finish()
