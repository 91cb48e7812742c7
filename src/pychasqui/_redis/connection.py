"""A socket that is opened when a call needs one, and another after a loss, with growing pauses and jitter.

Connection is what the rest of the package holds. It never sends a call twice; whether that is safe only the caller
knows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ..errors import (
    AuthenticationFailed,
    ChasquiError,
    Closed,
    CommandTimeout,
    ConnectionLost,
    NotRedis,
    RedisTrouble,
    ReplyError,
    WrongLoop,
)
from .dialect import Dialect, parse_version, read_hello, refuse_too_old
from .endpoint import Endpoint
from .remedies import Remedy, remedy_for
from .socket import Socket, pack

CONNECT_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


def _without_echo(reply: ReplyError) -> str:
    """The text of a refusal, unless it may repeat what was sent: a server without AUTH shows the words behind it."""
    is_known = reply.code in ("NOAUTH", "WRONGPASS", "NOPERM") or "without any password" in str(reply)
    return str(reply) if is_known else f"{reply.code} (its text may hold the password and is not shown)"


class Connection:
    """A socket that is opened when needed, and again after a loss."""

    def __init__(
        self,
        find: Callable[[], Awaitable[Endpoint]],
        *,
        shown: str,
        timeout_s: float = 10.0,
        on_down: Callable[[Exception], None] | None = None,
        on_up: Callable[[], None] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.socket: Socket | None = None  # set while connected
        self._find = find  # asked before each attempt
        self._shown = shown  # the address for messages, without its secrets
        self._on_down = on_down
        self._on_up = on_up
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[ChasquiError | None] | None = None
        self._trouble: ChasquiError | None = None  # why the last attempt failed
        self._is_closed = False
        self.writes_before = 0
        self.openings = 0  # the first and those after a loss

    @property
    def writes(self) -> int:
        """How many writes all sockets so far have made."""
        return self.writes_before + (self.socket.writes if self.socket else 0)

    async def call(self, *words: Any, timeout_s: float | None = None) -> Any:
        """Send one command and wait for its reply; raises ReplyError, ConnectionLost or CommandTimeout."""
        deadline = self.deadline(timeout_s)
        socket = await self.ready(deadline)
        if socket.is_congested:
            await socket.uncongested()
        return await socket.ask(pack(*words), deadline)

    def deadline(self, timeout_s: float | None = None) -> float:
        return asyncio.get_running_loop().time() + (self.timeout_s if timeout_s is None else timeout_s)

    async def ready(self, deadline: float) -> Socket:
        """A live socket, by the deadline or not at all."""
        self._bind()
        while (socket := self.live_socket()) is None:
            if self._is_closed:
                raise Closed("the connection is closed")
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._open_somehow(), name="chasqui connect")
            opening = self._opening  # the one that is awaited here: by then another may have taken its place
            left = deadline - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait({opening}, timeout=max(left, 0))
            if not done:
                raise ConnectionLost(f"cannot reach {self._shown} in time: {self._trouble or 'no answer'}")
            if opening.cancelled():
                raise Closed("the connection was closed while it was being made")
            if (trouble := opening.result()) is not None:
                raise type(trouble)(*trouble.args)  # each caller its own: a shared one would gather tracebacks
        return socket

    def live_socket(self) -> Socket | None:
        socket = self.socket
        return socket if socket is not None and socket.lost is None else None

    def drop(self, reason: ChasquiError) -> None:
        """End the present socket; the next call opens another."""
        if self.socket is not None:
            self.socket.drop(reason)

    async def close(self) -> None:
        self._is_closed = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        self.drop(Closed("the connection was closed"))
        await asyncio.sleep(0)  # the transport ends in the next turn

    def _bind(self) -> None:
        """Futures and transports belong to one loop. If that has ended, start over; if it is another, refuse."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise WrongLoop("this connection belongs to another event loop; make one per loop, and after a fork")
        self._loop, self.socket, self._opening = loop, None, None

    async def _open_somehow(self) -> ChasquiError | None:
        """Try until a socket is open; give up only on what trying again would not mend."""
        if self.socket is not None and self.socket.lost is not None:
            self._is_down(self.socket.lost)
        pause = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    socket = await self._open()
            except (ConnectionLost, CommandTimeout, OSError) as error:  # TimeoutError is an OSError
                self._is_down(ConnectionLost(str(error) or "no answer to the handshake"))
            except ChasquiError as error:
                if not isinstance(error, ReplyError) or remedy_for(error) is Remedy.FATAL:
                    return error
                self._is_down(error)
            except Exception as error:  # noqa: BLE001  the border: a resolver or a TLS library may raise anything
                return RedisTrouble(f"cannot connect to {self._shown}: {type(error).__name__}: {error}")
            else:
                if self.socket is not None:
                    self.writes_before += self.socket.writes
                self.socket, self._trouble = socket, None
                self.openings += 1
                if self._on_up is not None:
                    self._on_up()
                return None
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _is_down(self, error: ChasquiError) -> None:
        self._trouble = error
        if self._on_down is not None:
            self._on_down(error)

    async def _open(self) -> Socket:
        loop = asyncio.get_running_loop()
        endpoint = await self._find()
        _, socket = await endpoint.open(partial(Socket, loop))
        try:
            socket.dialect = await self._shake_hands(socket, endpoint)
        except BaseException:
            socket.drop(ConnectionLost("the handshake failed"))
            raise
        return socket

    async def _shake_hands(self, socket: Socket, endpoint: Endpoint) -> Dialect:
        """AUTH, HELLO and SELECT in one write. AUTH stands alone so that a server without a password refuses one."""
        username, password = await endpoint.credentials()
        hello = ["HELLO", endpoint.protocol]
        if endpoint.client_name:
            hello += ["SETNAME", endpoint.client_name]
        commands = [hello, ["SELECT", endpoint.db]] if endpoint.db else [hello]
        if password is not None:
            by_name = username and username != "default"  # AUTH default would take any password where none is set
            commands.insert(0, ["AUTH", username, password] if by_name else ["AUTH", password])
        deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        asked = [socket.ask(pack(*words), deadline) for words in commands]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                await self._explain(socket, words, reply)
            elif isinstance(reply, BaseException):
                raise reply
        return read_hello(replies[commands.index(hello)])

    async def _explain(self, socket: Socket, words: list[Any], reply: ReplyError) -> None:
        """A refused handshake as an error that says what to do. Never shows what was sent: it holds secrets."""
        if words[0] == "AUTH" or reply.code in ("NOAUTH", "WRONGPASS", "NOPERM"):
            raise AuthenticationFailed(f"{self._shown} refused the credentials: {_without_echo(reply)}") from None
        if words[0] == "HELLO" and "unknown command" in str(reply).lower():
            try:
                info = await socket.ask(pack("INFO", "server"), self.deadline(CONNECT_TIMEOUT_S))
            except ReplyError:
                info = b""
            version = bytes(info).partition(b"redis_version:")[2].split(b"\r\n")[0].decode("ascii", "replace")
            if version:
                refuse_too_old("Redis", parse_version(version))
            raise NotRedis(f"{self._shown} does not know HELLO: {reply}") from None
        raise reply
