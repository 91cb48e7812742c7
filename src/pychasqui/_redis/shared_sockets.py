"""SharedSockets: one socket to a server, or to each node of a cluster, for all connections that share it.

All queues of a process that have the same URL and options share one in each event loop. A Connection opens, follows the
master and gives up by itself; what it shares is the socket. One connection at a time opens a socket to an address, and
the others use it then. The last one that leaves a socket ends it; one that was collected as garbage has left, and if
all were, the socket ends as well. A connection that shares with no other has sockets of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakSet, WeakValueDictionary

from ..errors import ChasquiError, Closed
from .credentials import Login, keep_reauthenticating_before_expiry
from .endpoint import Endpoint
from .socket import Socket


class SharedSockets:
    """get_opening_lock() -> find_open_socket(), or a socket that the caller opens -> store_socket_and_add_user() ->
    remove_user_and_close_if_last()."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop  # kept: the number of a loop that lives belongs to no other
        self._opening_locks: dict[str, asyncio.Lock] = {}
        self._sockets: dict[str, Socket] = {}  # by address
        self._users: dict[Socket, WeakSet[object]] = {}
        self._renewals: dict[Socket, asyncio.Task[None]] = {}  # of credentials that end

    def get_opening_lock(self, endpoint: Endpoint) -> asyncio.Lock:
        """Returns the lock that a connection holds while it looks for a socket to this address, and opens one."""
        return self._opening_locks.setdefault(endpoint.address, asyncio.Lock())

    def find_open_socket(self, endpoint: Endpoint) -> Socket | None:
        """Returns the open socket to this address; None if there is none."""
        socket = self._sockets.get(endpoint.address)
        return socket if socket is not None and socket.end_reason is None else None

    def store_socket_and_add_user(self, endpoint: Endpoint, socket: Socket, user: object) -> None:
        self._sockets[endpoint.address] = socket
        self._users.setdefault(socket, WeakSet()).add(user)

    @contextmanager
    def forgetting_if_check_fails(self, socket: Socket) -> Iterator[None]:
        """If the check inside fails, the next attempt opens another socket. Those that only read keep this one.

        It may lead to a former master, or to a server that has become the master since.
        """
        try:
            yield
        except ChasquiError:
            self._forget_socket(socket)
            raise

    def _forget_socket(self, socket: Socket) -> None:
        for address in [address for address, one in self._sockets.items() if one is socket]:
            del self._sockets[address]

    def schedule_renewal_if_credentials_end(self, endpoint: Endpoint, socket: Socket, login: Login) -> None:
        """Has the socket log in again before its credentials end, if it is known when they do."""
        if login.lasts_s is not None:
            renewal = keep_reauthenticating_before_expiry(socket, endpoint.ask_for_credentials, login.lasts_s)
            self._renewals[socket] = self._loop.create_task(renewal)

    def remove_user_and_close_if_last(self, socket: Socket, user: object, close_socket: Callable[[], None]) -> None:
        """Calls `close_socket` if no other connection uses the socket."""
        users = self._users[socket]
        users.discard(user)
        if users:
            return
        del self._users[socket]
        self._forget_socket(socket)
        if (renewal := self._renewals.pop(socket, None)) is not None:
            renewal.cancel()
        close_socket()

    def __del__(self) -> None:
        """The last connection was collected as garbage, perhaps in another thread: what it left open ends."""
        if self._users and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop is closed meanwhile
                self._loop.call_soon_threadsafe(
                    _end_sockets_and_renewals, list(self._users), list(self._renewals.values())
                )


def _end_sockets_and_renewals(sockets: list[Socket], renewals: list[asyncio.Task[None]]) -> None:
    for renewal in renewals:
        renewal.cancel()
    for socket in sockets:
        socket.drop(Closed("the connection was not closed, and nothing uses it any more"))


_shared: WeakValueDictionary[tuple[Hashable, int], SharedSockets] = WeakValueDictionary()
_shared_lock = threading.Lock()


def get_or_make_shared_sockets(key: Hashable, loop: asyncio.AbstractEventLoop) -> SharedSockets:
    """Returns the sockets of a key in an event loop; they are there while a connection uses them."""
    with _shared_lock:
        sockets = _shared.get((key, id(loop)))
        if sockets is None:
            sockets = _shared[key, id(loop)] = SharedSockets(loop)
        return sockets


def _forget_shared_sockets_in_child() -> None:
    """The sockets are those of the parent, and a thread of it may have held the lock when it forked."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_shared_sockets_in_child)
