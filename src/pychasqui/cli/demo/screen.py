"""What is seen while the demo runs, all of it on standard error: bars on a terminal, elsewhere a line a second."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

import click

from ..terminal import live_console
from .messages import Progress

LINE_EVERY_S = 1.0


class Bar(Protocol):
    def show(self, progress: Progress) -> None: ...


class Screen(Protocol):
    """A bar is shown from its making until the screen is left."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(self, line: str) -> None: ...
    def bar(self, name: str, goal: int, *, has_rate: bool = True) -> Bar: ...


def make_screen() -> Screen:
    console = live_console()
    if console is None:
        return LineScreen()
    from .bars import BarScreen  # here, because it needs rich

    return BarScreen(console)


class LineScreen:
    """Prints where the bars of the present act stand: once a second, and when all have reached their goals."""

    def __init__(self) -> None:
        self._bars: list[LineBar] = []
        self._next_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def bar(self, name: str, goal: int, *, has_rate: bool = True) -> LineBar:
        if all(bar.is_full for bar in self._bars):
            self._bars = []
            self._next_at = time.monotonic() + LINE_EVERY_S
        bar = LineBar(self, name, goal, has_rate)
        self._bars.append(bar)
        return bar

    def refresh(self) -> None:
        is_over = all(bar.is_full for bar in self._bars)
        if is_over or time.monotonic() >= self._next_at:
            self.say(", ".join(str(bar) for bar in self._bars))
            self._next_at = float("inf") if is_over else time.monotonic() + LINE_EVERY_S


class LineBar:
    def __init__(self, screen: LineScreen, name: str, goal: int, has_rate: bool) -> None:
        self._screen = screen
        self._name = name
        self._goal = goal
        self._has_rate = has_rate
        self._progress = Progress()

    @property
    def is_full(self) -> bool:
        return self._progress.count >= self._goal

    def show(self, progress: Progress) -> None:
        if progress != self._progress:
            self._progress = progress
            self._screen.refresh()

    def __str__(self) -> str:
        text = f"{self._name} {self._progress.count:,} of {self._goal:,}"
        return f"{text} ({self._progress.rate:,.0f}/s)" if self._has_rate and self._progress.rate else text
