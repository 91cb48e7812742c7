"""What the demo shows: progress on standard error while it runs, and a table on standard output at the end."""

from __future__ import annotations

import time
from collections import Counter
from typing import Self

import click

from ..standard_streams import print_to_stderr
from ..terminal import make_live_console_if_possible
from .jobs import KINDS

LINE_EVERY_S = 1.0
HEADER = ("jobs", "count", "once", "again after the kill", "twice", "missing")


class Screen:
    """Shows bars on a terminal where rich is installed, and elsewhere a line a second."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._console = make_live_console_if_possible()
        self._next_line_at = 0.0
        if self._console is not None:
            from rich.progress import BarColumn, Progress, TextColumn

            text = TextColumn("{task.completed:>10,.0f}", style="cyan")
            bar = BarColumn(max(10, min(40, self._console.width - 24)))
            self._bars = Progress(TextColumn("{task.description:<6}"), bar, text, console=self._console)
            self._added = self._bars.add_task("added", total=jobs)
            self._ended = self._bars.add_task("ended", total=jobs)

    def __enter__(self) -> Self:
        if self._console is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console is not None:
            self._bars.stop()

    def print_line(self, line: str) -> None:
        if self._console is not None:
            self._console.print(line, style="bold", markup=False)
        else:
            print_to_stderr(line)

    def show_progress(self, added: int, ended: int, seconds: float, *, is_last: bool) -> None:
        if self._console is not None:
            self._bars.update(self._added, completed=added)
            self._bars.update(self._ended, completed=ended)
        elif time.monotonic() >= self._next_line_at or is_last:
            self._next_line_at = time.monotonic() + LINE_EVERY_S
            self.print_line(f"added {added:,} of {self._jobs:,}, ended {ended:,} after {seconds:.1f} s")


def print_table(tally: Counter[tuple[str, str]]) -> None:
    rows: list[tuple[str, ...]] = [HEADER]
    for kind, title in [*((name, kind.title) for name, kind in KINDS.items()), ("all", "all jobs")]:
        counts = [tally[kind, outcome] for outcome in ("once", "again", "repeated", "missing")]
        rows.append((title, *(f"{count:,}" for count in (sum(counts), *counts))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        click.secho("  ".join([row[0].ljust(len(first)), *others]), bold=row is HEADER)
