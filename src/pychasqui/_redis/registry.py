"""The registry of queues: a sorted set of the names of all queues of a server, by the time each was last seen.

Processes write it when they begin to add, and workers once a day. It only helps to find queues: no job depends on it,
nothing waits for it, and a write that is refused costs a debug line. A client that may write the key may write anything
into it, so its names are foreign bytes.
"""

from __future__ import annotations

import logging
from typing import Any

from .._core.limits import MAX_REGISTERED, REGISTERED_MS
from .._core.printable import printable
from . import scripts
from .keys import REGISTRY, Keys
from .socket import Socket

log = logging.getLogger("chasqui.registry")


def make_registration_arguments(keys: Keys) -> tuple[str | int, ...]:
    """Returns the arguments of register_queue.lua."""
    return REGISTRY, keys.queue_name, REGISTERED_MS, MAX_REGISTERED


def send_registration_without_waiting(socket: Socket, keys: Keys, deadline: float) -> None:
    """Writes the queue's name in this turn's write. No caller waits for it."""
    socket.send(
        scripts.REGISTER_QUEUE.pack_and_mark_loaded(socket, (), make_registration_arguments(keys)),
        deadline,
        log_if_registration_refused,
    )


def log_if_registration_refused(reply: Any) -> None:
    """Logs what a registration was answered with, unless the name is in the registry now."""
    if reply != b"":
        text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
        log.debug("the queue is not in the registry of queues, so chasqui ps has to search for it: %s", printable(text))
