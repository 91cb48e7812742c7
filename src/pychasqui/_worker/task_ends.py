"""Cancels tasks and waits for their ends; takes back cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

CLEANUP_S = 5.0  # how long a cancelled handler may take to roll back its work
LAST_CLEANUP_S = 0.5


async def cancel_and_wait_with_timeout(
    tasks: Collection[asyncio.Task[Any]], timeout_s: float, stop_waiting: asyncio.Event | None = None
) -> None:
    """Cancels them and waits for that long until all have ended; it does not wait once `stop_waiting` is set."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    waits: set[asyncio.Task[Any]] = {asyncio.ensure_future(asyncio.wait(tasks))}
    if stop_waiting is not None:
        waits.add(asyncio.ensure_future(stop_waiting.wait()))
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)


async def wait_despite_cancellation(futures: Collection[asyncio.Future[Any]]) -> bool:
    """Waits until all have ended; returns whether it was cancelled meanwhile. A scope of anyio cancels in each turn."""
    was_cancelled = False
    while not all(future.done() for future in futures):
        try:
            await asyncio.wait(futures)
        except asyncio.CancelledError:
            was_cancelled = True
    return was_cancelled


def get_current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def uncancel_current_task() -> None:
    """Takes back all cancellations: asyncio.timeout() and TaskGroup of the next job of this task would count them."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
