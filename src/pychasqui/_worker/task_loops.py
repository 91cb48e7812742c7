"""Whose event loop a task belongs to: to wait in another loop for a task would never end, or raise what says little."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import WrongLoop


def has_ended_or_lost_its_loop(task: asyncio.Task[Any]) -> bool:
    """Returns whether the task does nothing any more. One whose loop was closed under it never ends."""
    return task.done() or task.get_loop().is_closed()


def refuse_other_loop(task: asyncio.Task[Any], owner: str) -> None:
    """Raises WrongLoop unless the task belongs to the running loop."""
    if task.get_loop() is not asyncio.get_running_loop():
        raise WrongLoop(f"{owner} runs in another event loop: asyncio.run_coroutine_threadsafe() calls it there")


def belongs_to_running_loop(task: asyncio.Task[Any]) -> bool:
    try:
        return task.get_loop() is asyncio.get_running_loop()
    except RuntimeError:  # a thread without a loop
        return False
