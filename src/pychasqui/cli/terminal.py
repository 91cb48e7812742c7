"""Makes rich consoles. rich is an extra: it is imported only here and in code that has got a console."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_live_console_if_possible() -> Console | None:
    """Returns a console on standard error if rich is installed and the terminal can redraw a line, else None."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True, highlight=False)
    return console if sys.stderr.isatty() and not console.is_dumb_terminal else None
