"""One method per thing that is asked of Redis. Whatever is sent can be sent again: each method says why."""

from __future__ import annotations

from typing import Any

from ..errors import ReplyError
from . import scripts
from .connection import Connection, OnReply, Socket
from .keys import Keys
from .remedies import Remedy, remedy_for
from .replies import Entry, read_entries


class Broker:
    """The conversation about one queue over one connection."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self.connection = connection
        self._keys = keys

    # Adding ---------------------------------------------------------------------------------------------------------

    def add(
        self, socket: Socket, ledger: str, arguments: tuple[bytes | int, ...], deadline: float, on_reply: OnReply
    ) -> None:
        """Send a numbered batch, as add.lua wants it; the ledger makes sending it again harmless."""
        packed = scripts.ADD.pack(socket, (self._keys.stream, ledger), arguments)
        socket.send(packed, deadline, on_reply)
        socket.flush()  # it is the end of the turn already

    def forget_add_script(self) -> None:
        """The server has lost it (SCRIPT FLUSH, failover)."""
        if (socket := self.connection.live_socket()) is not None:
            scripts.ADD.forget(socket)

    def ledger_of(self, producer: str) -> str:
        return self._keys.ledger(producer)

    async def forget_ledger(self, ledger: str) -> None:
        """Nothing of this producer will be sent again; otherwise its TTL ends it."""
        await self.connection.call("DEL", ledger)

    # Working --------------------------------------------------------------------------------------------------------

    async def ensure_group(self, group: str) -> None:
        """From the start of the stream, so that jobs added before the first worker came are run too."""
        try:
            await self.connection.call("XGROUP", "CREATE", self._keys.stream, group, "0", "MKSTREAM")
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def read(self, group: str, consumer: str, count: int, block_ms: int) -> list[Entry]:
        """New entries for this consumer. If the reply is lost, they stay in its pending list, for a reclaim to find."""
        timeout_s = block_ms / 1000 + 2.0  # past this the line is dead: a live server answers at the end of BLOCK
        words = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "BLOCK", block_ms, "STREAMS", self._keys.stream, ">")
        return read_entries(await self.connection.call(*words, timeout_s=timeout_s))

    async def unblock(self, client_id: int) -> None:
        """Make another connection's blocked read return now, as if its time were up."""
        await self.connection.call("CLIENT", "UNBLOCK", client_id)

    async def ack(self, group: str, ids: list[bytes]) -> None:
        """Finish entries. An id that is gone already is passed over, so sending it again is harmless."""
        socket = await self.connection.ready(self.connection.deadline())
        assert socket.dialect is not None
        if socket.dialect.xackdel:
            await self.connection.call(b"XACKDEL", self._keys.stream, group, b"IDS", len(ids), *ids)
        else:
            await self.run(scripts.ACK, (self._keys.stream,), (group, *ids))

    async def drop_consumer(self, group: str, consumer: str) -> None:
        """Only for a consumer that holds nothing: its pending entries would go with it."""
        await self.connection.call("XGROUP", "DELCONSUMER", self._keys.stream, group, consumer)

    async def pending(self, group: str, consumer: str) -> int:
        """How many entries this consumer holds, counted no further than one."""
        return len(await self.connection.call("XPENDING", self._keys.stream, group, "-", "+", 1, consumer))

    async def run(self, script: scripts.Script, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        while True:
            deadline = self.connection.deadline()
            socket = await self.connection.ready(deadline)
            try:
                return await socket.ask(script.pack(socket, keys, arguments), deadline)
            except ReplyError as error:
                if remedy_for(error) is not Remedy.NO_SCRIPT:
                    raise
                script.forget(socket)
