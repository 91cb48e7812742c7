"""The demo's screen on a terminal: a bar that grows, with its rate. Needs rich."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from .messages import Progress

WIDEST_BAR = 40
BESIDE_BAR = 42  # columns that the texts beside it take


class BarScreen:
    def __init__(self, console: Console) -> None:
        self._live = RichProgress(
            TextColumn("{task.description:<10}"),
            BarColumn(max(10, min(WIDEST_BAR, console.width - BESIDE_BAR))),
            TextColumn("{task.completed:>9,.0f}"),
            TextColumn("{task.fields[rate]:>12}", style="cyan"),
            console=console,
            refresh_per_second=10,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._live.console.print(line, style="bold")

    def bar(self, name: str, goal: int, *, has_rate: bool = True) -> RichBar:
        return RichBar(self._live, self._live.add_task(name, total=goal, rate=""), has_rate)


class RichBar:
    def __init__(self, live: RichProgress, task: TaskID, has_rate: bool) -> None:
        self._live = live
        self._task = task
        self._has_rate = has_rate

    def show(self, progress: Progress) -> None:
        rate = f"{progress.rate:,.0f}/s" if self._has_rate and progress.rate else ""
        self._live.update(self._task, completed=progress.count, rate=rate)
