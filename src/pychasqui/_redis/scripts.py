"""The Lua files beside this one, hashed once and called by hash.

What several of them share stands in lua/lib/, and takes the place of the line `-- include lib/<name>.lua`.
"""

from __future__ import annotations

import re
from hashlib import sha1
from importlib.resources import files
from typing import Any

import hiredis

from .socket import Socket

_INCLUDE = re.compile(rb"^-- include (lib/\w+\.lua)\n", re.MULTILINE)


class Script:
    """One Lua file. The first call on a socket carries the text, the others its hash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = include(_read(f"{name}.lua"))
        self.hash = sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def pack(self, socket: Socket, keys: tuple[str | bytes, ...], arguments: tuple[Any, ...]) -> bytes:
        packed: bytes
        if self.hash in socket.scripts:
            packed = hiredis.pack_command((b"EVALSHA", self.hash, len(keys), *keys, *arguments))
        else:
            socket.scripts.add(self.hash)
            packed = hiredis.pack_command((b"EVAL", self.text, len(keys), *keys, *arguments))
        return packed

    def mark_unloaded(self, socket: Socket) -> None:
        """The server has lost the script (SCRIPT FLUSH, failover): the next call carries the text again."""
        socket.scripts.discard(self.hash)


def include(text: bytes) -> bytes:
    """The text with the files of lib/ in place of the lines that name them."""
    return _INCLUDE.sub(lambda line: _read(line[1].decode()), text)


def _read(path: str) -> bytes:
    return files(__package__).joinpath("lua", path).read_bytes()


ADD = Script("add")
ADD_WITH_OPTIONS = Script("add_with_options")
ACK = Script("ack")
WRITE_EVENTS = Script("write_events")
WRITE_COMPLETED = Script("write_completed")
ACK_WITH_RESULT = Script("ack_with_result")
ACK_UNIQUE = Script("ack_unique")
RESCHEDULE = Script("reschedule")
BURY = Script("bury")
PROMOTE = Script("promote")
MOVE_DELAYED = Script("move_delayed")
CLAIM_NAME = Script("claim_name")
RENEW_WORKER_LEASE = Script("renew_worker_lease")
HOLD_LEASE = Script("hold_lease")
RELEASE_ENTRIES = Script("release_entries")
LEAVE_GROUP = Script("leave_group")
REBUILD_GROUP = Script("rebuild_group")
CLAIM_HELD = Script("claim_held")
TAKE_OVER = Script("take_over")
CLAIM_IDLE = Script("claim_idle")
READ = Script("read")
LIST_PENDING = Script("list_pending")
COUNT_DELIVERY = Script("count_delivery")
DUE_REPEATABLES = Script("due_repeatables")
FIRE = Script("fire")
BURY_REPEATABLE = Script("bury_repeatable")
UPSERT_REPEATABLE = Script("upsert_repeatable")
MOVE_REPEATABLE = Script("move_repeatable")
RELEASE_LEADER_LEASE = Script("release_leader_lease")
REPLAY = Script("replay")
PURGE_WAITING = Script("purge_waiting")
PURGE_DELAYED = Script("purge_delayed")
EMPTY_STREAM = Script("empty_stream")
REGISTER_QUEUE = Script("register_queue")
