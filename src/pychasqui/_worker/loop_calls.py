"""Runs coroutines in the worker's event loop for threads that wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class CallCancelled(Exception):
    """The worker stops, or its loop is gone: the coroutine has not come to its end."""


class LoopCalls:
    """Made in the loop. run_and_wait() is for threads; close() lets all of them go on."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._calls: set[_Call] = set()
        self._is_closed = False

    def run_and_wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of the coroutine once the loop has run it; raises CallCancelled if it does not."""
        call = _Call(coroutine)
        self._calls.add(call)
        try:
            if not self._is_closed:  # after the call was added: close() sees it, or it sees close()
                self._loop.call_soon_threadsafe(self._start_call_unless_closed, call)
                call.ended.wait()
        except RuntimeError:  # the loop is closed
            pass
        finally:
            self._calls.discard(call)
        if call.task is None:
            coroutine.close()
        if call.task is None or not call.task.done() or call.task.cancelled():
            raise CallCancelled
        return call.task.result()

    def close(self) -> None:
        self._is_closed = True
        for call in list(self._calls):
            call.ended.set()

    def _start_call_unless_closed(self, call: _Call) -> None:
        if not self._is_closed:
            self.tasks.add(call.start(self._forget_task))

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)


class _Call:
    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.ended = threading.Event()
        self.task: asyncio.Task[Any] | None = None
        self._coroutine = coroutine

    def start(self, on_end: Any) -> asyncio.Task[Any]:
        self.task = asyncio.create_task(self._coroutine, name="chasqui lane")
        self.task.add_done_callback(on_end)
        self.task.add_done_callback(lambda _: self.ended.set())
        return self.task
