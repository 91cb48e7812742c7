"""LoopQueues: the queues of an app, one set for each event loop, because a Queue belongs to one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..errors import WrongLoop
from ..queue import Queue

T = TypeVar("T")


class LoopQueues:
    """`queues(name)` is the Queue of this name for the running loop, made when it is first asked for."""

    def __init__(self, make_queue: Callable[[str], Queue]) -> None:
        self._make_queue = make_queue
        self._replacement: Callable[[str], Queue] | None = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Queue]] = WeakKeyDictionary()

    def __call__(self, name: str) -> Queue:
        if self._replacement is not None:
            return self._replacement(name)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoop(f"queue {name!r} needs a running event loop; without one use app.sync") from None
        own = self._by_loop.get(loop)
        if own is None:
            self._forget_closed_loops()
            own = self._by_loop[loop] = {}
        queue = own.get(name)
        if queue is None or queue.is_closed:
            queue = own[name] = self._make_queue(name)
        return queue

    def _forget_closed_loops(self) -> None:
        """A program may call asyncio.run() for each job. Queues keep their loop alive, and so do not go with it."""
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            del self._by_loop[loop]

    @property
    def is_open(self) -> bool:
        """Whether any loop has queues that were not closed."""
        return bool(self._by_loop)

    @property
    def is_replaced(self) -> bool:
        return self._replacement is not None

    @contextmanager
    def replaced_by(self, make_queue: Callable[[str], Queue]) -> Iterator[None]:
        """While inside, every loop and every thread gets these queues: for tests."""
        before, self._replacement = self._replacement, make_queue
        try:
            yield
        finally:
            self._replacement = before

    async def close(self) -> None:
        """Closes the queues of the running loop. Others stay open; one that is asked for later is made again.

        Every call waits for that. A caller that is cancelled does not end it.
        """
        loop = asyncio.get_running_loop()
        own = self._by_loop.get(loop, {})
        closing = {asyncio.ensure_future(queue.close()) for queue in own.values()}
        if closing:
            await asyncio.wait(closing)
        if all(queue.is_closed for queue in own.values()):  # else one was made meanwhile
            self._by_loop.pop(loop, None)
        for ended in closing:
            ended.result()


def run_coroutine_that_never_waits(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing: one that uses the queues of tests."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise WrongLoop("a test without a server cannot wait for a result from synchronous code: await jobs.run() first")
