"""What the terminal can show. rich is an extra, and is imported only here and where a console is given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def live_console() -> Console | None:
    """Standard error, if it is a terminal where a line can be drawn over and rich is there to do it."""
    console = _console(stderr=True)
    can_redraw = console is not None and sys.stderr.isatty() and not console.is_dumb_terminal
    return console if can_redraw else None


def data_console() -> Console | None:
    """Standard output, if it is a terminal, or is to be treated as one (FORCE_COLOR), and rich is there."""
    console = _console(stderr=False)
    return console if console is not None and console.is_terminal else None


def _console(*, stderr: bool) -> Console | None:
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=stderr, highlight=False)
