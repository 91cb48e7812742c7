"""What a worker process says to its supervisor: one line of JSON a message, over a socket that both inherit.

The supervisor says nothing in return: it sends signals. The socket's end shows each of them that the other has ended.
"""

from __future__ import annotations

import msgspec

from .._core.printable import printable
from ..errors import DecodeError

MAX_LINE_BYTES = 1024 * 1024


class HeldLease(msgspec.Struct, frozen=True):
    """A lease of a worker in the process, with all that is needed to renew and to end it."""

    redis_url: str
    tls: bool
    queue_name: str
    group: str
    consumer_id: str
    lease_ms: int
    has_provider: bool = False  # name and password come by Credentials

    def __repr__(self) -> str:  # the URL may hold a password
        return f"HeldLease({self.queue_name!r}, {self.consumer_id!r})"


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The process has found its workers, and starts them."""

    metrics_address: tuple[str, int] | None = None  # where the program of the workers wants their pages
    shutdown_deadline_s: float = 0.0  # the longest of its workers


class LeaseTaken(msgspec.Struct, frozen=True, tag="lease_taken"):
    """A worker of the process has its lease, and begins to read jobs."""

    lease: HeldLease


class Started(msgspec.Struct, frozen=True, tag="started"):
    """All workers of the process run jobs."""

    pages: list[str]  # the Unix sockets at which their pages are served


class Credentials(msgspec.Struct, frozen=True, tag="credentials"):
    """What a worker's provider of credentials returns now. Sent repeatedly: passwords are rotated."""

    redis_url: str
    username: str | None
    password: str | None

    def __repr__(self) -> str:
        return "Credentials(...)"


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The interpreter of the process runs. Sent each second, from a thread."""


class SuccessorRequest(msgspec.Struct, frozen=True, tag="wants_successor"):
    """The process has run as many jobs as it may, and asks to be replaced."""

    why: str


Message = Loaded | LeaseTaken | Started | Credentials | Alive | SuccessorRequest

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


def encode_message(message: Message) -> bytes:
    return _encode(message) + b"\n"


def decode_message(line: bytes) -> Message:
    try:
        message: Message = _decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DecodeError(f"a message of a worker process cannot be read: {printable(str(error))}") from error
    return message
