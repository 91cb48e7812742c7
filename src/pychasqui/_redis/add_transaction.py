"""Adds a batch of large jobs without a script, in a transaction that a batch sent again cannot follow.

A script is given copies of its arguments, and the server hashes each of them: for 10 KiB that takes twice as long as
XADD itself. A transaction cannot look into the ledger, so WATCH guards it: the server has confirmed WATCH before the
transaction is sent. A batch is sent again only by the script, which writes to the ledger. So either the transaction is
executed first, and the script finds its number, or the script is, and the transaction does nothing, however late it
arrives. Of several producers that share a socket, the last one that sent WATCH may send a transaction; the others use
the script.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .._core.heap import keep_freed_memory
from .._wire.entry import ENVELOPE, NAME
from ..errors import ChasquiError, ReplyError
from .socket import OnReply, Socket, pack

WRITE_BYTES = 128 * 1024  # of one write: the server begins meanwhile, and the processor's cache holds it
_MULTI, _EXEC, _DISCARD, _UNWATCH = pack("MULTI"), pack("EXEC"), pack("DISCARD"), pack("UNWATCH")


class AddTransactions:
    """Of one producer over one socket: request_ledger_watch_if_allowed() -> is_ready -> write_add_transaction(), and so
    on."""

    __slots__ = (
        "_head",
        "_is_allowed",
        "_is_confirmed",
        "_ledger",
        "_named_tail",
        "_socket",
        "_watch",
        "is_watch_awaited",
    )

    def __init__(self, socket: Socket, stream: str, ledger: str) -> None:
        self._is_confirmed = False  # the server has said that it watches the ledger for this socket
        self.is_watch_awaited = False  # it is about to say so
        self._is_allowed: bool | None = None  # whether this user may begin a transaction; None: not known yet
        self._socket = socket
        self._ledger = ledger
        self._watch = 0  # the number of the last WATCH: the answer to an earlier one says nothing about it
        head = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in (b"XADD", stream.encode(), b"*", ENVELOPE))
        self._head = head.replace(b"%", b"%%") + b"$%d\r\n"
        self._named_tail = b"\r\n$%d\r\n%b\r\n" % (len(NAME), NAME) + b"$%d\r\n%b\r\n"

    @property
    def is_ready(self) -> bool:
        """Whether the server watches the ledger for this socket."""
        return self._is_confirmed and self._socket.watcher is self

    def request_ledger_watch_if_allowed(self, deadline: float, on_answer: Callable[[], None]) -> None:
        """Has the ledger watched, behind what was sent before. It is ready once the server has confirmed it."""
        if self._is_allowed is False:
            return
        if self._is_allowed is None:  # a user without the right to it would have each command executed by itself
            keep_freed_memory()
            self._socket.send(_MULTI, deadline, self._note_whether_allowed)
            self._socket.send(_DISCARD, deadline, self._note_whether_allowed)
        self._is_confirmed, self.is_watch_awaited, self._watch = False, True, self._watch + 1
        # A ledger that has changed since the last WATCH stays changed.
        self._socket.write_if_open_without_reply_handler(_UNWATCH + pack("WATCH", self._ledger))
        self._socket.set_watcher(self)
        # Strict deadlines, also on a line that is slow but not dead: batches wait for this answer.
        self._socket.expect_reply(deadline, _ignore_reply)
        self._socket.expect_reply(deadline, partial(self._note_whether_watched_and_answer, self._watch, on_answer))

    def forget_ledger_watch(self) -> None:
        """Forgets the watch, because the producer writes to its ledger in another way."""
        self._is_confirmed = self.is_watch_awaited = False

    def _note_whether_allowed(self, reply: Any) -> None:
        self._is_allowed = self._is_allowed is not False and not isinstance(reply, ChasquiError)

    def _note_whether_watched_and_answer(self, watch: int, on_answer: Callable[[], None], reply: Any) -> None:
        if watch != self._watch:
            return
        self._is_confirmed = self.is_watch_awaited and self._is_allowed is True and not isinstance(reply, ChasquiError)
        self.is_watch_awaited = False
        on_answer()

    def write_add_transaction(
        self, ledger_entry: tuple[int, str], ttl_ms: int, envelopes: list[bytes], names: list[bytes]
    ) -> None:
        """Adds jobs, and records the batch in the ledger: slot, and "number taken".

        expect_transaction_replies() must follow.
        """
        self._is_confirmed = False
        self._socket.set_watcher(None)
        head, named_tail, write = self._head, self._named_tail, self._socket.write_if_open_without_reply_handler
        parts, size = [_MULTI], 0
        for envelope, name in zip(envelopes, names, strict=True):
            # hot: the envelope is copied once, into what is written
            parts += (b"*7\r\n" if name else b"*5\r\n", head % len(envelope), envelope)
            parts.append(named_tail % (len(name), name) if name else b"\r\n")
            size += len(envelope)
            if size >= WRITE_BYTES:
                write(b"".join(parts))
                parts, size = [], 0
        parts += (pack("HSET", self._ledger, *ledger_entry), pack("PEXPIRE", self._ledger, ttl_ms), _EXEC)
        write(b"".join(parts))

    def expect_transaction_replies(self, jobs: int, deadline: float, on_reply: OnReply) -> None:
        """Passes on how many jobs were added, from the front; None if nothing was done, an error if none was added."""
        answer = TransactionAnswer(jobs, on_reply)
        for _ in range(jobs + 3):
            self._socket.expect_reply(deadline, answer.note_first_error)
        self._socket.expect_reply(deadline, answer.pass_on_added_count_or_error)


class TransactionAnswer:
    """Gathers the replies to MULTI, to each command in it, and to EXEC."""

    __slots__ = ("_jobs", "_on_reply", "_trouble")

    def __init__(self, jobs: int, on_reply: Callable[[Any], None]) -> None:
        self._jobs = jobs
        self._on_reply = on_reply
        self._trouble: ChasquiError | None = None

    def note_first_error(self, reply: Any) -> None:
        if self._trouble is None and isinstance(reply, ChasquiError):
            self._trouble = reply

    def pass_on_added_count_or_error(self, reply: Any) -> None:
        if isinstance(self._trouble or reply, ReplyError):  # refused before anything was executed
            self._on_reply(None)
        elif type(reply) is list:
            added = reply[: self._jobs]  # the rest is of the ledger, which nobody asks about a batch that is answered
            refusal = next((each for each in added if isinstance(each, ChasquiError)), None)
            self._on_reply(len(added) if refusal is None else added.index(refusal) or refusal)
        else:
            self._on_reply(self._trouble or reply)


def _ignore_reply(reply: object) -> None:
    """Ignores the reply: that to the WATCH behind it says what matters."""
