"""Sends commands and scripts over one connection, about one queue. The brokers build on it.

Nothing above `_redis/` sees a socket, a dialect or a raw reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .._core.pauses import FIRST_PAUSE_S, LONGEST_RESEND_PAUSE_S, compute_longer_pause_s
from ..errors import ConnectionLost, ReplyError
from .connection import Connection
from .error_actions import ErrorAction, action_for, may_send_again_after
from .event_batch import EventsOnSend, send_or_drop_events
from .keys import Keys, make_shard_channel_name
from .scripts import Script
from .socket import OnReply, pack
from .topology.node_map import compute_slot_of_key

MAX_HINT_BYTES = 32  # of a message that says in how many ms something is due


class RedisCalls:
    """call() and run_script() wait for the reply; send() does not."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys

    @property
    def is_connected(self) -> bool:
        return self._connection.get_live_socket_or_none() is not None

    @property
    def is_congested(self) -> bool:
        """Whether the server is slow to take what is written: what no caller waits for is dropped meanwhile."""
        socket = self._connection.get_live_socket_or_none()
        return socket is not None and socket.is_congested

    @property
    def client_id(self) -> int | None:
        """The server's number for the open connection, as CLIENT UNBLOCK takes it; None while it is lost."""
        socket = self._connection.get_live_socket_or_none()
        return None if socket is None or socket.dialect is None else socket.dialect.client_id

    @property
    def server_name_and_version(self) -> str:
        """The name and version of the server, such as "redis 8.6.0"; "" while there is no connection."""
        socket = self._connection.get_live_socket_or_none()
        return "" if socket is None or socket.dialect is None else str(socket.dialect)

    @property
    def is_in_cluster(self) -> bool:
        """Whether the connected server is a node of a cluster."""
        socket = self._connection.get_live_socket_or_none()
        return socket is not None and socket.dialect is not None and socket.dialect.mode == "cluster"

    @property
    def has_shard_channels(self) -> bool:
        """Whether messages go by shard channels: in a cluster, from Redis 7.0 on."""
        socket = self._connection.get_live_socket_or_none()
        return socket is not None and socket.dialect is not None and socket.dialect.has_shards

    @property
    def server_address(self) -> str:
        """Where the open connection leads; "" while there is none."""
        return self._connection.address

    @property
    def reconnects(self) -> int:
        """How many times the connection was opened again after a loss."""
        return max(0, self._connection.sockets_opened - 1)

    def set_timeout(self, timeout_s: float) -> None:
        """Sets how long each later call waits for its reply."""
        self._connection.set_timeout(timeout_s)

    async def close(self) -> None:
        await self._connection.close()

    def drop_connection(self, reason: str) -> None:
        """Ends what is in flight; the next call opens another connection."""
        self._connection.drop_socket(ConnectionLost(reason))

    def make_calls_to_node_of_key(self, key: str) -> RedisCalls:
        """Returns the calls to the node that has the key. Elsewhere than in a cluster it is the same server."""
        return RedisCalls(self._connection.get_or_make_connection_for_slot(compute_slot_of_key(key)), self._keys)

    def make_calls_to_each_master(self) -> list[RedisCalls]:
        """Returns the calls to each master of a cluster. Elsewhere there is one server."""
        return [
            RedisCalls(connection, self._keys) for connection in self._connection.get_or_make_connections_to_masters()
        ]

    async def call(self, *words: Any) -> Any:
        """Sends one command and waits for its reply; raises ReplyError, ConnectionLost or CommandTimeout."""
        return await self._connection.call(*words)

    async def run_script(
        self,
        script: Script,
        keys: tuple[str | bytes, ...],
        arguments: tuple[Any, ...],
        events: EventsOnSend | None = None,
    ) -> Any:
        """Calls a script. Sends its text if the server has lost it.

        After a refusal that proves that nothing was executed it is called again, with growing pauses, until its time is
        up.
        """
        give_up_at, pause_s = self._connection.make_deadline(), 0.0
        while True:
            socket = await self._connection.get_or_open_socket(give_up_at)
            asked = socket.ask(script.pack_and_mark_loaded(socket, keys, arguments), self._connection.make_deadline())
            if events is not None:
                send_or_drop_events(socket, self._keys, events(), self._connection.make_deadline())
            try:
                return await asked
            except ReplyError as error:
                if is_lost := action_for(error) is ErrorAction.NO_SCRIPT:
                    script.mark_unloaded(socket)
                may_try_again = is_lost or may_send_again_after(error)
                if not may_try_again or asyncio.get_running_loop().time() >= give_up_at:
                    raise
            await asyncio.sleep(pause_s)
            # The second call comes at once.
            pause_s = compute_longer_pause_s(pause_s, FIRST_PAUSE_S, LONGEST_RESEND_PAUSE_S)

    def send(self, words: tuple[Any, ...], on_reply: OnReply) -> None:
        """Sends one command in this turn's write. `on_reply` gets its reply, or at once why it cannot be sent."""
        socket = self._connection.get_live_socket_or_none()
        if socket is None or socket.is_congested:
            on_reply(ConnectionLost("the server does not take it now"))
        else:
            socket.send(pack(*words), self._connection.make_deadline(), on_reply)

    async def try_to_subscribe(self, channel: str, on_message: Callable[[bytes], None]) -> bool:
        """Has `on_message` called with each message of a channel.

        False if this connection cannot listen, or if the server has refused the channel. The subscription ends with the
        socket, so callers renew it. Messages can be lost.
        """
        deadline = self._connection.make_deadline()
        socket = await self._connection.get_or_open_socket(deadline)
        assert socket.dialect is not None
        if socket.dialect.protocol < 3:  # there a connection that listens can do nothing else
            return False
        if socket.dialect.has_shards:
            return socket.subscribe_unless_refused(
                make_shard_channel_name(channel), on_message, deadline, is_shard=True
            )
        return socket.subscribe_unless_refused(channel, on_message, deadline)

    async def find_channel_name_at_server(self, channel: str) -> str:
        """Returns the channel that is used at the connected server, for a script that publishes to it."""
        await self._connection.get_or_open_socket(self._connection.make_deadline())
        return make_shard_channel_name(channel) if self.has_shard_channels else channel

    async def publish_and_wait(self, channel: str, message: str) -> None:
        """Publishes, and waits until the server has the message. Its subscribers may miss it."""
        if (name := await self.find_channel_name_at_server(channel)) != channel:
            await self.call("SPUBLISH", name, message)
        else:
            await self.call("PUBLISH", name, message)

    def publish(self, channel: str, message: str | int) -> None:
        """Publishes in this turn's write. No caller waits for it, and it may be lost."""
        if self.has_shard_channels:
            self.send(("SPUBLISH", make_shard_channel_name(channel), message), ignore_reply)
        else:
            self.send(("PUBLISH", channel, message), ignore_reply)

    async def try_to_subscribe_to_due_channel(self, channel: str, on_due_in_s: Callable[[float], None]) -> bool:
        """Does what try_to_subscribe() does, for messages that say in how many ms something is due, in seconds."""
        return await self.try_to_subscribe(channel, partial(_parse_due_hint_and_call_if_valid, on_due_in_s))


def ignore_reply(reply: object) -> None:
    """Ignores the reply: no caller waits for it."""


def _parse_due_hint_and_call_if_valid(on_due_in_s: Callable[[float], None], message: bytes) -> None:
    """Ignores a message that is no number: any client may publish anything."""
    if len(message) < MAX_HINT_BYTES:
        with suppress(ValueError):
            on_due_in_s(float(message) / 1000)
