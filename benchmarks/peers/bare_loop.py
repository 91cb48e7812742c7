"""The limit for a worker: XREADGROUP and XACKDEL in a loop that decodes nothing and runs nothing.

A blocking socket, hiredis for the protocol, a thousand entries a trip, and two reads under way, so that the server
fetches the next batch while this side collects the ids of the last one. On servers before 8.2, which have no XACKDEL,
it sends XACK and XDEL. `fill` adds entries with the fields and sizes of a pychasqui job.

The limit for latency is the same with one entry at a time: a blocking XADD on one side, a blocking XREADGROUP on the
other, JSON between them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import hiredis

from benchmarks.payload import NAME, STREAM, entry_fields
from benchmarks.peers.meter import Clock, memory
from benchmarks.peers.roles import Order, Producer, ThreadPeer, sum_of
from benchmarks.wire import Wire

GROUP, BATCH = b"default", b"1000"
READ = (b"XREADGROUP", b"GROUP", GROUP, b"bare", b"COUNT", BATCH, b"STREAMS", STREAM, b">")
WAIT = (b"XREADGROUP", b"GROUP", GROUP, b"bare", b"COUNT", b"1", b"BLOCK", b"5000", b"STREAMS", STREAM, b">")


class Pipe:
    """Commands out and replies in, on one blocking socket; counts the replies still to come."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 6379), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._buffer = memoryview(bytearray(1 << 18))
        self.owed = 0

    def send(self, *commands: bytes) -> None:
        self._socket.sendall(b"".join(commands))
        self.owed += len(commands)

    def reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            size = self._socket.recv_into(self._buffer)
            if not size:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]  # its stub knows no buffers
        self.owed -= 1
        return reply


def pack(words: tuple[bytes | str, ...]) -> bytes:
    return hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub takes one word


@contextmanager
def producer(order: Order) -> Iterator[Producer]:
    pipe = Pipe(order.url)
    command = pack((b"XADD", STREAM, b"*", *entry_fields(len(order.data.get("body", "")))))

    def add_many(count: int) -> None:
        pipe.send(*[command] * count)
        while pipe.owed:
            pipe.reply()

    def add(data: dict[str, Any]) -> None:
        pipe.send(pack((b"XADD", STREAM, b"*", b"d", json.dumps(data), b"n", NAME)))
        pipe.reply()

    yield Producer(add, lambda batch: lambda: add_many(len(batch)))


def work(order: Order, handler: Callable[..., Any]) -> None:
    with Wire(order.url) as wire:
        wire.call("XGROUP", "CREATE", STREAM, GROUP, 0, "MKSTREAM")
        acks = acks_with_xackdel if has_xackdel(wire) else acks_without_xackdel
    if order.handler == "stamp":
        listen(Pipe(order.url), acks, handler)
    result = drain(Pipe(order.url), acks, order)
    os.write(1, json.dumps(result | memory()).encode() + b"\n")
    os._exit(0)


def listen(pipe: Pipe, acks: Callable[[list[bytes]], list[bytes]], handler: Callable[..., Any]) -> None:
    """One job at a time until the meter ends the process."""
    wait = pack(WAIT)
    while True:
        pipe.send(wait)
        for entry_id, fields in (pipe.reply() or [(STREAM, [])])[0][1]:
            handler(json.loads(fields[1]))
            pipe.send(*acks([entry_id]))
            while pipe.owed:
                pipe.reply()


def drain(pipe: Pipe, acks: Callable[[list[bytes]], list[bytes]], order: Order) -> dict[str, Any]:
    read = pack(READ)
    acks_a_batch = len(acks([b"0-0"]))
    handled, started, clock = 0, 0, Clock()
    pipe.send(read, read)
    for trip in range(order.total):
        for _ in range(acks_a_batch if trip >= 2 else 0):
            pipe.reply()
        ((_, entries),) = pipe.reply()
        pipe.send(*acks([entry[0] for entry in entries]), read)
        handled += len(entries)
        if not started and handled >= order.warmup:
            started, clock = handled, Clock()
        if handled >= order.total:
            break
    while pipe.owed:
        pipe.reply()
    return clock.read(handled - started)


def has_xackdel(wire: Wire) -> bool:
    return wire.call("COMMAND", "INFO", "XACKDEL") != [None]


def acks_with_xackdel(ids: list[bytes]) -> list[bytes]:
    return [pack((b"XACKDEL", STREAM, GROUP, b"IDS", b"%d" % len(ids), *ids))]


def acks_without_xackdel(ids: list[bytes]) -> list[bytes]:
    return [pack((b"XACK", STREAM, GROUP, *ids)), pack((b"XDEL", STREAM, *ids))]


PEER = ThreadPeer(producer, work, lambda data: data, sum_of(("XLEN", STREAM.decode())))
