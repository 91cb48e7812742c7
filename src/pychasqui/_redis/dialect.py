"""Dialect: which commands a server supports, read once from its reply to HELLO. No other module checks versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .._core.printable import printable
from .._wire.lenient import read_cut_text, read_int
from ..errors import NotRedis, ServerTooOld

OLDEST = (6, 2)


@dataclass(frozen=True)
class Dialect:
    server: str
    version: tuple[int, ...]
    client_id: int
    protocol: int  # RESP version
    is_master: bool  # at the time of HELLO
    mode: str  # standalone, cluster or sentinel
    xackdel: bool  # XACKDEL acks and deletes in one command
    msetex: bool  # MSETEX sets many keys with an expiry
    idmp: bool  # XADD IDMP ignores an entry that was added before
    has_shards: bool  # it is a node of a cluster, and SPUBLISH reaches the nodes of one slot alone

    def __str__(self) -> str:
        return f"{self.server} {'.'.join(map(str, self.version))}"


def read_dialect(reply: Any) -> Dialect:
    """Reads the dialect from the reply to HELLO: a map under RESP3, a flat list under RESP2."""
    if isinstance(reply, list) and len(reply) % 2 == 0:
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    if not isinstance(reply, dict) or b"server" not in reply or b"version" not in reply:
        raise NotRedis("the server's reply to HELLO is not that of Redis")
    server = printable(read_cut_text(reply[b"server"]) or "", 40)
    version = parse_version(read_cut_text(reply[b"version"]) or "")
    raise_if_server_too_old(server, version)
    mode = printable(read_cut_text(reply.get(b"mode")) or "standalone", 40)
    redis = version if server == "redis" else (0,)
    valkey = version if server == "valkey" else (0,)
    return Dialect(
        server=server,
        version=version,
        client_id=read_int(reply.get(b"id")) or 0,
        protocol=read_int(reply.get(b"proto"), 2, 3) or 2,
        is_master=reply.get(b"role", b"master") == b"master",
        mode=mode,
        xackdel=redis >= (8, 2),
        msetex=redis >= (8, 4),
        idmp=redis >= (8, 6),
        has_shards=mode == "cluster" and max(redis, valkey) >= (7, 0),
    )


def parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", text)[:3])


def raise_if_server_too_old(server: str, version: tuple[int, ...]) -> None:
    if version < OLDEST:
        found, needed = ".".join(map(str, version)), ".".join(map(str, OLDEST))
        raise ServerTooOld(f"{server} {found} is too old: pychasqui needs Redis {needed} or newer, or any Valkey")
