"""Chooses the event loop that a command runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import asyncio

CHOICES = ("auto", "asyncio", "uvloop")


@dataclass(frozen=True)
class Loop:
    name: str
    factory: Callable[[], asyncio.AbstractEventLoop] | None  # None: asyncio's own


def choose_loop(choice: str) -> Loop:
    """ "auto" is uvloop where it is installed, else asyncio."""
    if choice == "asyncio" or (choice == "auto" and find_spec("uvloop") is None):
        return Loop("asyncio", None)
    try:
        import uvloop
    except ImportError:
        raise click.BadParameter(
            "uvloop is not installed here: pip install 'pychasqui[fast]'", param_hint="'--loop'"
        ) from None
    return Loop("uvloop", uvloop.new_event_loop)
