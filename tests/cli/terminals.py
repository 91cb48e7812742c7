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

from tests.cli.conftest import COMMAND, plain_environment

WITHOUT_RICH = (
    *(sys.executable, "-P", "-c"),
    "import sys; sys.modules['rich'] = None; from pychasqui.cli.main import main; sys.exit(main())",
)


SILENCE_S = 40.0  # a command that shows nothing for that long is killed


def _answer_ctrl_c() -> None:
    """Undoes what a shell does to commands in its background, such as this test run: they ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**plain_environment(), "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=_answer_ctrl_c,
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
        return self.process.wait(timeout=timeout_s), self.text.replace("\r\n", "\n")

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
