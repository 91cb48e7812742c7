"""What the terminal can show. rich is an extra, and is imported only here and where a console is given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def live_console() -> Console | None:
    """Standard error, if it is a terminal where a line can be drawn over and rich is there to do it."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True, highlight=False)
    return console if sys.stderr.isatty() and not console.is_dumb_terminal else None
