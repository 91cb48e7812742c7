"""A bar that shows how far a command is, on standard error where that is a terminal that can redraw a line."""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Self

from .standard_streams import print_to_stderr

BEGIN_LINE = "\r\x1b[K"
DRAW_EVERY_S = 0.1
MAX_BAR_CELLS = 40


class ProgressBar:
    """Shows `done` of `total` behind a label until the end of the `with`; without a total it shows only how many.

    With `past`, such as "removed", a command that is interrupted says how far it came, also where no bar is shown.
    """

    def __init__(self, label: str, total: int | None, *, is_shown: bool | None = None, past: str | None = None) -> None:
        self._label = label
        self._past = past
        self._done = 0
        self._total = total
        self._is_shown = can_redraw_stderr() if is_shown is None else is_shown
        self._next_at = 0.0

    def __enter__(self) -> Self:
        self.set_done_and_draw_if_due(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print_to_stderr(BEGIN_LINE, ends_line=False)
        if self._past is not None and kind is not None and not issubclass(kind, Exception):
            of_all = "" if self._total is None else f" of {self._total:,}"
            print_to_stderr(f"interrupted: {self._past} {self._done:,}{of_all}, and perhaps some more")

    def set_done_and_draw_if_due(self, done_count: int) -> None:
        self._done = done_count
        if not self._is_shown or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + DRAW_EVERY_S
        line = self._make_line(done_count, shutil.get_terminal_size((80, 24)).columns)
        print_to_stderr(BEGIN_LINE + line, ends_line=False)

    def _make_line(self, done_count: int, width: int) -> str:
        if not self._total:
            return f"{self._label} {done_count:,}"[: width - 1]
        share = min(1.0, done_count / self._total)
        text = f" {share:4.0%}  {done_count:,} of {self._total:,}"
        room = min(MAX_BAR_CELLS, width - len(self._label) - len(text) - 2)
        if room < 5:
            return f"{self._label}{text}"[: width - 1]
        filled = round(share * room)
        return f"{self._label} {'█' * filled}{'░' * (room - filled)}{text}"


def can_redraw_stderr() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
