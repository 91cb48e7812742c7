"""A line on the terminal that shows how things are, below what a child process writes.

The child writes to a terminal of its own, whose output is copied: so the line is cleared before each of the child's
lines, and is not drawn into a line that the child has begun.
"""

from __future__ import annotations

import asyncio
import os
import sys

from .output import Output
from .progress import BEGIN_LINE, can_redraw_stderr
from .standard_streams import print_to_stderr

CHUNK_BYTES = 64 * 1024


class StatusLine:
    """open_output_terminal_if_shown() -> the child writes to `output_fd`, show_if_at_line_start() draws the line ->
    close(). It needs a terminal."""

    def __init__(self) -> None:
        self.is_shown = can_redraw_stderr()
        self.output_fd: int | None = None  # None: the child has our own streams
        self._read_fd: int | None = None
        self._is_at_line_start = True

    def open_output_terminal_if_shown(self) -> None:
        if self.is_shown and sys.stdout.isatty():
            self._read_fd, self.output_fd = _open_terminal_like(sys.stderr.fileno())
            os.set_blocking(self._read_fd, False)
            asyncio.get_running_loop().add_reader(self._read_fd, self._copy_chunk_to_stderr)

    def close(self) -> None:
        if self._read_fd is not None and self.output_fd is not None:
            asyncio.get_running_loop().remove_reader(self._read_fd)
            while self._copy_chunk_to_stderr():  # what the child has written last
                pass
            os.close(self.output_fd)
            os.close(self._read_fd)
            self._read_fd = self.output_fd = None

    def show_if_at_line_start(self, text: str) -> None:
        """Draws the line. The cursor goes back to its start, so that the next output replaces it."""
        if self.is_shown and self._is_at_line_start:
            width = Output.make_for_stdout(as_json=False, no_color=True).width
            print_to_stderr(f"{BEGIN_LINE}{text[: width - 1]}\r", ends_line=False)

    def print_line(self, text: str) -> None:
        """Prints a line above the status line."""
        print_to_stderr(f"{BEGIN_LINE if self.is_shown else ''}{text}")
        self._is_at_line_start = True

    def _copy_chunk_to_stderr(self) -> bool:
        """Copies what one read brings, so that a child that never stops writing does not occupy the event loop."""
        assert self._read_fd is not None
        try:
            chunk = os.read(self._read_fd, CHUNK_BYTES)
        except OSError:  # nothing is there, or the child's side is closed
            return False
        begin = BEGIN_LINE.encode() if self._is_at_line_start else b""
        sys.stderr.buffer.write(begin + chunk)
        sys.stderr.buffer.flush()
        self._is_at_line_start = chunk.endswith(b"\n")
        return bool(chunk)


def _open_terminal_like(terminal_fd: int) -> tuple[int, int]:
    """Opens a terminal of the same size; returns the end to read from and the end to write to."""
    import fcntl  # these three exist only where there are such terminals
    import pty
    import termios

    read_fd, write_fd = pty.openpty()
    fcntl.ioctl(write_fd, termios.TIOCSWINSZ, fcntl.ioctl(terminal_fd, termios.TIOCGWINSZ, bytes(8)))
    settings = termios.tcgetattr(write_fd)
    settings[1] &= ~termios.OPOST  # the outer terminal turns line feeds into line ends
    termios.tcsetattr(write_fd, termios.TCSANOW, settings)
    return read_fd, write_fd
