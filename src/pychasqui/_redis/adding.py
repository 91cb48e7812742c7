"""A producer's adds: numbered, so that sending a batch again is harmless.

The ledger in Redis remembers the numbers of a producer's last batches. A server that remembers numbers itself needs no
ledger for a job that travels alone. The caller numbers the batches, and decides what is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from struct import pack as pack_numbers
from typing import Any
from uuid import uuid4

from .._core.options import AddOptions
from .._wire.entry import ENVELOPE, NAME
from ..errors import ChasquiError, ReplyError
from . import scripts
from .add_transaction import AddTransactions
from .connection import Connection
from .delayed import INDEX_KEPT_MS
from .keys import Keys, make_shard_channel_name
from .registry import send_registration_without_waiting
from .replies import ADD_STATUSES, read_count
from .socket import OnReply, Socket, pack

log = logging.getLogger("chasqui.connection")
OnCount = Callable[[int | ChasquiError], None]


class AddSession:
    """The adds of one producer over one open socket. It ends with the socket.

    Each add is written at once. expect() must follow each write_...() in the same turn of the loop, with what
    gets the reply.
    """

    __slots__ = ("_broker", "_due_channel", "can_use_idmp", "expect", "socket", "transactions")

    def __init__(self, broker: AddBroker, socket: Socket) -> None:
        self._broker = broker
        self.socket = socket
        self.can_use_idmp = socket.dialect is not None and socket.dialect.idmp
        has_shards = socket.dialect is not None and socket.dialect.has_shards
        self._due_channel = make_shard_channel_name(broker.due_channel) if has_shards else broker.due_channel
        self.transactions = AddTransactions(socket, *broker.add_keys)
        self.expect = socket.expect_reply  # hot: a job that is alone is sent before it is recorded here

    def write_add_by_idmp(self, batch_number: int, envelope: bytes, name: bytes) -> None:
        """Adds one job under a number that the server itself remembers; only if `can_use_idmp`."""
        # hot: on an idle machine the script takes 40 us longer
        self.socket.write_if_open_without_reply_handler(self._broker.idmp_add.pack(batch_number, envelope, name))

    def stop_using_idmp(self, error: ReplyError) -> None:
        """Notes that the server refuses XADD with a number, whatever version it says it is: the ledger is used."""
        if self.can_use_idmp:
            log.info("XADD with IDMP is refused, so a script adds in its place: %s", error)
        self.can_use_idmp = False
        socket = self.socket
        if socket.dialect is not None:
            socket.set_dialect(replace(socket.dialect, idmp=False))

    def write_add_of_one(
        self, ledger_slot: int, batch_number: int, max_stream_len: int, envelope: bytes, name: bytes
    ) -> None:
        """Does what write_add_of_batch() does, for a single job."""
        self._write_add_call(
            (ledger_slot, batch_number, self._broker.ledger_ttl_ms, max_stream_len, 1, 1, 1, name, b"", envelope)
        )

    def write_add_of_batch(
        self,
        ledger_slot: int,
        batch_number: int,
        max_stream_len: int,
        needed_room: int,
        envelopes: list[bytes],
        names: list[bytes],
    ) -> None:
        """Adds a batch of plain jobs, if the stream has room for `needed_room` of them."""
        head = (ledger_slot, batch_number, self._broker.ledger_ttl_ms, max_stream_len, needed_room, len(envelopes))
        self._write_add_call((*head, *make_add_arguments(envelopes, names)))

    def send_batch_by_transaction(
        self,
        ledger_slot: int,
        batch_number: int,
        envelopes: list[bytes],
        names: list[bytes],
        deadline: float,
        on_reply: OnReply,
    ) -> None:
        """Adds a batch of plain jobs without a script, however long the stream is; only if `transactions.is_ready`.

        `on_reply` gets None if nothing was done.
        """
        ledger_entry = (ledger_slot, f"{batch_number} {len(envelopes)}")
        self.transactions.write_add_transaction(ledger_entry, self._broker.ledger_ttl_ms, envelopes, names)
        self.transactions.expect_transaction_replies(len(envelopes), deadline, on_reply)

    def _write_add_call(self, arguments: tuple[bytes | int, ...]) -> None:
        self.transactions.forget_ledger_watch()
        self.socket.write_if_open_without_reply_handler(
            scripts.ADD.pack_and_mark_loaded(self.socket, self._broker.add_keys, arguments)
        )

    def write_add_with_options(
        self,
        ledger_slot: int,
        batch_number: int,
        max_stream_len: int,
        needed_room: int,
        envelopes: list[bytes],
        names: list[bytes],
        ids: list[str],
        options: list[AddOptions],
    ) -> None:
        """Adds a batch of which some jobs are delayed or the only one of their id."""
        head = (
            ledger_slot,
            batch_number,
            self._broker.ledger_ttl_ms,
            max_stream_len,
            needed_room,
            self._broker.prefix,
            INDEX_KEPT_MS,
        )
        self.transactions.forget_ledger_watch()
        arguments = (*head, self._due_channel, *make_add_with_options_arguments(envelopes, names, ids, options))
        self.socket.write_if_open_without_reply_handler(
            scripts.ADD_WITH_OPTIONS.pack_and_mark_loaded(self.socket, self._broker.add_with_options_keys, arguments)
        )

    def request_replica_count(self, replicas: int, timeout_ms: int, on_count: OnCount) -> None:
        """Asks how many replicas have everything that was written on this socket, for up to `timeout_ms`.

        WAIT counts from the socket's last write. A batch that the ledger has seen before is not written again on this
        one, so the ledger itself is: replication keeps the order of writes.
        """
        ledger, deadline = self._broker.ledger, self._broker.connection.make_deadline()
        self.socket.send(pack("HSET", ledger, "replicas", replicas), deadline, _ignore_reply)
        self.socket.send(pack("PEXPIRE", ledger, self._broker.ledger_ttl_ms), deadline, _ignore_reply)
        answer = partial(_call_with_replica_count_or_error, on_count)
        self.socket.send(pack("WAIT", replicas, timeout_ms), deadline + timeout_ms / 1000, answer)


class AddBroker:
    """One producer, over one connection. It adds through get_or_make_session_if_connected()."""

    def __init__(self, connection: Connection, keys: Keys, *, ledger_ttl_ms: int) -> None:
        producer = uuid4().hex
        self.connection = connection
        self._keys = keys
        self.ledger = keys.ledger(producer)
        self.ledger_ttl_ms = ledger_ttl_ms
        self.prefix = keys.prefix
        self.due_channel = keys.due_channel
        self.idmp_add = IdmpAdd(keys.stream, producer)
        self.add_keys = (keys.stream, self.ledger)
        self.add_with_options_keys = (keys.stream, self.ledger, keys.delayed)
        self._session: AddSession | None = None

    def get_or_make_session_if_connected(self) -> AddSession | None:
        """Returns the session of the open socket; None while the connection is lost."""
        socket = self.connection.get_live_socket_or_none()
        if socket is None:
            return None
        session = self._session
        if session is None or session.socket is not socket:
            session = self._session = AddSession(self, socket)
            # Once a connection, and behind its first add.
            asyncio.get_running_loop().call_soon(
                send_registration_without_waiting, socket, self._keys, self.connection.make_deadline()
            )
        return session

    async def wait_for_connection(self, deadline: float) -> None:
        """Waits for a connection, until the loop's time `deadline`; raises ConnectionLost past it."""
        await self.connection.get_or_open_socket(deadline)

    def mark_add_scripts_unloaded(self) -> None:
        """Notes that the server has lost the scripts (SCRIPT FLUSH, failover): the next add carries the text again."""
        if (socket := self.connection.get_live_socket_or_none()) is not None:
            scripts.ADD.mark_unloaded(socket)
            scripts.ADD_WITH_OPTIONS.mark_unloaded(socket)

    async def delete_ledger(self) -> None:
        """Deletes the ledger of a producer that sends nothing again; otherwise its TTL ends it."""
        await self.connection.call("DEL", self.ledger)


class IdmpAdd:
    """XADD of one job with its producer's number, which the server remembers."""

    # hot: on an idle machine hiredis.pack_command takes 8 us longer over it

    def __init__(self, stream: str, producer: str) -> None:
        def render(*words: str) -> bytes:
            return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in map(str.encode, words))

        head = render("XADD", stream, "IDMP", producer).replace(b"%", b"%%")
        job = head + b"$%d\r\n%b\r\n" + render("*", ENVELOPE.decode())
        self._nameless = b"*8\r\n" + job + b"$%d\r\n%b\r\n"
        self._named = b"*10\r\n" + job + b"$%d\r\n%b\r\n" + render(NAME.decode()) + b"$%d\r\n%b\r\n"

    def pack(self, number: int, envelope: bytes, name: bytes) -> bytes:
        digits = b"%d" % number
        if name:
            return self._named % (len(digits), digits, len(envelope), envelope, len(name), name)
        return self._nameless % (len(digits), digits, len(envelope), envelope)


def make_add_arguments(envelopes: list[bytes], names: list[bytes]) -> list[bytes | int]:
    """Returns jobs as add.lua takes them: number of names, name..., the place of each job's name, envelope..."""
    # hot: nearly every batch has one name; 1,000 arguments fewer are 0.3 us a job less, on both sides together
    if names.count(names[0]) == len(names):
        return [1, names[0], b"", *envelopes]
    place_of = {name: place for place, name in enumerate(dict.fromkeys(names))}
    places = pack_numbers(f"<{len(names)}H", *map(place_of.__getitem__, names))
    return [len(place_of), *place_of, places, *envelopes]


def make_add_with_options_arguments(
    envelopes: list[bytes], names: list[bytes], ids: list[str], options: list[AddOptions]
) -> list[bytes | str | int]:
    """Returns the jobs as add_with_options.lua takes them."""
    arguments: list[bytes | str | int] = []
    for envelope, name, job_id, own in zip(envelopes, names, ids, options, strict=True):
        arguments += (name, envelope, job_id, *own)
    return arguments


def read_idmp_added_count_or_none(reply: Any) -> int | None:
    """Returns 1 for the entry's id that XADD answers with; None if this is no answer to it."""
    return 1 if type(reply) is bytes else None


def read_added_count_or_none(reply: Any, jobs: int) -> int | None:
    """Returns how many of a batch add.lua took, from its front; None if this is no answer to it."""
    return reply if type(reply) is int and 0 <= reply <= jobs else None


def read_add_statuses_or_none(reply: Any, jobs: int) -> bytes | None:
    """Returns what became of each job, as add_with_options.lua says it; None if this is no answer to it."""
    is_answer = type(reply) is bytes and len(reply) == jobs and not reply.strip(ADD_STATUSES)
    return reply if is_answer else None


def _call_with_replica_count_or_error(on_count: OnCount, reply: Any) -> None:
    """What is no number becomes an error, because a callback of a socket must not raise."""
    count: int | ChasquiError
    try:
        count = reply if isinstance(reply, ChasquiError) else read_count(reply)
    except ReplyError as error:
        count = error
    on_count(count)


def _ignore_reply(reply: object) -> None:
    """Ignores the reply: a later one on the same socket says what matters."""
