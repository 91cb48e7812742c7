"""LoopQueues: the queues of an app, one set for each event loop, because a Queue belongs to one loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..errors import WrongLoop
from ..queue import Queue
from .current import is_in_plain_function, running_job

T = TypeVar("T")


class LoopQueues:
    """`queues(name)` is the Queue of this name for the running loop, made when it is first asked for."""

    def __init__(self, make_queue: Callable[[str], Queue]) -> None:
        self._make_queue = make_queue
        self._replacement: Callable[[str], Queue] | None = None
        self._thread_of_test: int | None = None
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
        """A queue refers to its loop, so that neither would be freed. A program may run a loop for each call."""
        for reference in self._by_loop.keyrefs():  # a list: another thread may come with a loop meanwhile
            if (loop := reference()) is not None and loop.is_closed():
                self._by_loop.pop(loop, None)

    @property
    def has_open_queues(self) -> bool:
        """Whether any loop has queues that were not closed."""
        return bool(self._by_loop)

    @property
    def is_replaced(self) -> bool:
        return self._replacement is not None

    @contextmanager
    def replaced_by(self, make_queue: Callable[[str], Queue]) -> Iterator[None]:
        """While inside, every loop and every thread gets these queues: for tests."""
        before = self._replacement, self._thread_of_test
        self._replacement, self._thread_of_test = make_queue, threading.get_ident()
        try:
            yield
        finally:
            self._replacement, self._thread_of_test = before

    def may_block_loop_of_test(self) -> bool:
        """Whether a blocking call is right although a loop runs here: an async test may call synchronous code, and a
        plain task has no thread of its own in a test. In a coroutine task or in the loop of a server it is not.
        """
        if is_in_plain_function.get():
            return True
        return running_job.get(None) is None and threading.get_ident() == self._thread_of_test

    async def close_queues_of_running_loop(self) -> None:
        """Closes the queues of the running loop. Others stay open; one that is asked for later is made again.

        They close together, and go on to if the caller is cancelled; the next call waits for them.
        """
        if self._replacement is not None:  # those of a test stay open, and its synchronous code has no loop
            return
        loop = asyncio.get_running_loop()
        own = self._by_loop.get(loop, {})
        closing = [asyncio.ensure_future(queue.close()) for queue in own.values()]
        if closing:
            await asyncio.wait(closing)
        for name in [name for name, queue in own.items() if queue.is_closed]:
            del own[name]
        if not own:
            self._by_loop.pop(loop, None)
        for one in closing:
            one.result()


def run_coroutine_that_never_waits(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing: one that uses the queues of tests."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise WrongLoop("a test without a server cannot wait for a result from synchronous code: await jobs.run() first")
