"""The Lua files beside this one, each read and hashed when it is first needed, and called by hash.

A process that adds one job needs none of them, or one. A worker reads all of them when it starts: files that are
replaced while it runs do not mix with those that it knows.

What several of them share stands in lua/lib/, and takes the place of the line `-- include lib/<name>.lua`.
"""

from __future__ import annotations

import os
import re
from typing import Any

import hiredis

from .._core.cached_property import cached_property
from .socket import Socket

_INCLUDE = re.compile(rb"^-- include (lib/\w+\.lua)\n", re.MULTILINE)


class Script:
    """One Lua file. The first call on a socket carries the text, the others its hash."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def text(self) -> bytes:
        return include_library_files(_read_lua_file(f"{self.name}.lua"))

    @cached_property
    def hash(self) -> bytes:
        from hashlib import sha1  # here: it loads OpenSSL

        return sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def read_and_hash(self) -> bytes:
        """Does now what the first call would do."""
        return self.hash

    def pack_and_mark_loaded(self, socket: Socket, keys: tuple[str | bytes, ...], arguments: tuple[Any, ...]) -> bytes:
        packed: bytes
        if self.hash in socket.scripts:
            packed = hiredis.pack_command((b"EVALSHA", self.hash, len(keys), *keys, *arguments))
        else:
            socket.scripts.add(self.hash)
            packed = hiredis.pack_command((b"EVAL", self.text, len(keys), *keys, *arguments))
        return packed

    def mark_unloaded(self, socket: Socket) -> None:
        """Notes that the server has lost the script (SCRIPT FLUSH, failover): the next call carries the text again."""
        socket.scripts.discard(self.hash)


def include_library_files(text: bytes) -> bytes:
    """Returns the text with the files of lib/ in place of the lines that name them."""
    return _INCLUDE.sub(lambda line: _read_lua_file(line[1].decode()), text)


def read_and_hash_all_scripts() -> None:
    """Reads and hashes every script now."""
    for value in globals().values():
        if isinstance(value, Script):
            value.read_and_hash()


def _read_lua_file(path: str) -> bytes:
    # hot: importlib.resources takes 10 ms to import; the loader reads from archives as well
    data: bytes = globals()["__loader__"].get_data(os.path.join(os.path.dirname(__file__), "lua", path))
    return data


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
CANCEL = Script("cancel")
READ_CANCELLATIONS = Script("read_cancellations")
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
REMOVE_PAUSE_OR_RESUME_REPEATABLE = Script("remove_pause_or_resume_repeatable")
RELEASE_LEADER_LEASE = Script("release_leader_lease")
REPLAY = Script("replay")
PAUSE = Script("pause")
PURGE_WAITING = Script("purge_waiting")
PURGE_DELAYED = Script("purge_delayed")
EMPTY_STREAM = Script("empty_stream")
REGISTER_QUEUE = Script("register_queue")
