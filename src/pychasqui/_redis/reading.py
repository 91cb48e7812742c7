"""A read of new entries: what is asked for, and the answer that is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ..errors import ChasquiError
from .replies import Entry, read_entries_of_one_stream
from .socket import Socket


class ReadRequest(NamedTuple):
    max_count: int
    block_ms: int | None  # how long the server waits for the first entry; None: it does not wait
    max_reply_bytes: float  # a larger reply ends the connection with ReplyTooLarge before all of it is here
    on_small_batch: Callable[[list[Entry]], None]  # gets entries as they arrive
    small_below: int  # a batch of fewer entries is small; a larger one goes only to the caller that awaits it


class ReadInFlight:
    """A read that is on its way; `await reading` returns its entries. The caller of a large batch asks for the next
    one before it takes in the entries."""

    __slots__ = ("_arrived", "_on_small_batch", "_small_below", "_socket", "reply_bytes", "was_small")

    def __init__(self, socket: Socket, request: ReadRequest) -> None:
        self.reply_bytes = 0  # the size of the reply
        self.was_small = False  # on_small_batch has got the entries
        self._socket = socket
        # hot: taken out while nothing waits for it; a job that is alone waits for each look-up in pass_on_reply()
        self._on_small_batch, self._small_below = request.on_small_batch, request.small_below
        self._arrived: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, list[Entry]]:
        return self._arrived.__await__()

    def pass_on_reply(self, reply: Any) -> None:
        if type(reply) is not list and isinstance(reply, ChasquiError):
            self._fail_waiter_unless_done(reply)
            return
        self.reply_bytes = self._socket.arriving_bytes
        try:
            entries = read_entries_of_one_stream(reply)
            self.was_small = len(entries) < self._small_below
            if entries and self.was_small:
                # hot: a turn of the loop before the task that awaits them is awake
                self._on_small_batch(entries)
        except Exception as error:  # noqa: BLE001  the reader's defect, not the socket's: the reader gets it
            self._fail_waiter_unless_done(error)
        else:
            if not self._arrived.done():
                self._arrived.set_result(entries)

    def _fail_waiter_unless_done(self, error: Exception) -> None:
        if not self._arrived.done():
            self._arrived.set_exception(error)
