"""Connection: opens a socket when a call needs one, and another after a loss, with growing pauses and jitter.

It sends a call again by itself only if a server has refused it because it is the wrong server, such as a former master,
or because a slot moves: that server has executed nothing. Whether a call without a reply may be sent again only the
caller knows.

After such a refusal a new socket is used only once its server accepts writes. So a failover is waited for in one place,
with its pauses and its log line, and callers wait as they do for an unreachable server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .._core.pauses import LONGEST_RESEND_PAUSE_S, GrowingPause, longer_pause_s
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
from .diagnosis import find_other_protocol
from .dialect import Dialect, parse_version, read_hello, refuse_too_old
from .endpoint import Endpoint, explain_failure
from .error_actions import ErrorAction, action_for, is_not_executed
from .socket import ReplyTooLarge, Socket, pack

CONNECT_TIMEOUT_S = 5.0
RESEND_PAUSE_S = 0.01
LATE_CREDENTIALS_S = 5.0  # a provider may know new credentials later than the server does
STEADY_S = 2.0  # after a socket has worked for this long, the pauses start small again

# A server that refuses writes refuses this script, which writes nothing. Redis 6.2 does not know the first line and
# refuses the text; there the role in HELLO must be enough.
_WRITE_PROBE = ("EVAL", "#!lua\nreturn 0", 0)


class RefusedCredentials(AuthenticationFailed):
    """The server refused what the credential provider returned, which may know the new credentials a moment later."""


class RoleCheck:
    """Whether a new connection must check that its server accepts writes: one at this address was not the master.

    A Connector's connections share it.
    """

    def __init__(self) -> None:
        self.is_required = False

    def require(self) -> None:
        self.is_required = True


def _without_echo(reply: ReplyError) -> str:
    """Returns the text of a refusal, unless it may quote the password: some servers quote the arguments of AUTH."""
    is_known = reply.code in ("NOAUTH", "WRONGPASS", "NOPERM") or "without any password" in str(reply)
    return str(reply) if is_known else f"{reply.code} (its text may hold the password and is not shown)"


class Connection:
    """A socket that is opened when a call needs it, and again after a loss."""

    def __init__(
        self,
        find: Callable[[], Awaitable[Endpoint]],
        *,
        printable: str,
        timeout_s: float = 10.0,
        on_down: Callable[[Exception], None] | None = None,
        on_up: Callable[[], None] | None = None,
        role_check: RoleCheck | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.socket: Socket | None = None  # set while connected
        self._find = find  # called before each attempt
        self._shown = printable  # the address for messages, without secrets
        self._on_down = on_down
        self._on_up = on_up
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[ChasquiError | None] | None = None
        self._trouble: ChasquiError | None = None  # why the last attempt failed
        self._role_check = role_check or RoleCheck()
        self._backoff = GrowingPause()
        self._opened_at = 0.0
        self._untried: Endpoint | None = None  # the endpoint of the very first attempt
        self._is_closed = False
        self.writes_before = 0
        self.openings = 0  # sockets opened, the first and those after losses

    @property
    def writes(self) -> int:
        """How many writes all its sockets have made."""
        return self.writes_before + (self.socket.writes if self.socket else 0)

    async def call(self, *words: Any, timeout_s: float | None = None) -> Any:
        """Sends one command and returns its reply; raises ReplyError, ConnectionLost or CommandTimeout."""
        return await self.ask(lambda socket: pack(*words), timeout_s)

    async def ask(self, pack_for: Callable[[Socket], bytes], timeout_s: float | None = None) -> Any:
        """Does what call() does, for a command that depends on the socket.

        The timeout of the reply begins when the socket is ready, because opening one takes several round trips.
        """
        give_up_at, pause_s = self.deadline(timeout_s), 0.0
        while True:
            socket = await self.ready(give_up_at)
            if socket.is_congested:
                await socket.uncongested()
            try:
                return await socket.ask(pack_for(socket), self.deadline(timeout_s))
            except ReplyError as error:
                if not is_not_executed(error) or asyncio.get_running_loop().time() >= give_up_at:
                    raise
                await asyncio.sleep(pause_s if action_for(error) is ErrorAction.RETRY else 0.0)
                pause_s = longer_pause_s(pause_s, RESEND_PAUSE_S, LONGEST_RESEND_PAUSE_S)

    def set_timeout(self, timeout_s: float) -> None:
        """Sets the timeout of the following commands."""
        self.timeout_s = timeout_s

    def deadline(self, timeout_s: float | None = None) -> float:
        return asyncio.get_running_loop().time() + (self.timeout_s if timeout_s is None else timeout_s)

    async def ready(self, deadline: float) -> Socket:
        """Returns a live socket; raises if there is none by the deadline."""
        self._bind_to_loop()
        while (socket := self.live_socket()) is None:
            if self._is_closed:
                raise Closed("the connection is closed")
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._open_with_retries(), name="chasqui connect")
            opening = self._opening  # the attempt that is awaited here; self._opening may be another one by then
            left = deadline - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait({opening}, timeout=max(left, 0))
            if not done:
                raise ConnectionLost(f"cannot reach {self._shown} in time: {self._trouble or 'no answer'}")
            if opening.cancelled():
                raise Closed("the connection was closed while it was being made")
            if (trouble := opening.result()) is not None:
                raise type(trouble)(*trouble.args)  # a new error for each caller: a shared one would collect tracebacks
        return socket

    def live_socket(self) -> Socket | None:
        socket = self.socket
        return socket if socket is not None and socket.lost is None else None

    def drop(self, reason: ChasquiError) -> None:
        """Ends the current socket; the next call opens another."""
        if self.socket is not None:
            self.socket.drop(reason)

    async def close(self) -> None:
        self._is_closed = True
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        self.drop(Closed("the connection was closed"))
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop

    def _bind_to_loop(self) -> None:
        """Binds the connection to the running loop; raises WrongLoop if it is bound to another that still runs."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise WrongLoop("this connection belongs to another event loop; make one per loop, and after a fork")
        self._loop, self.socket, self._opening = loop, None, None

    async def _open_with_retries(self) -> ChasquiError | None:
        """Tries until a socket is open; returns an error that another attempt would not solve."""
        if self.socket is not None and self.socket.lost is not None:
            self._note_loss(self.socket)
        credentials_due_at = self.deadline(LATE_CREDENTIALS_S)
        while True:
            await asyncio.sleep(self._backoff.pause_s * random.uniform(0.5, 1.0))
            self._backoff.next_pause_s()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    socket = await self._open()
            except (ConnectionLost, CommandTimeout, OSError) as error:  # TimeoutError is an OSError
                self._note_failure(ConnectionLost(explain_failure(error) or "no answer to the handshake"))
                if (wrong := await self._find_wrong_protocol()) is not None:
                    return wrong
            except NotRedis as error:
                return await self._find_wrong_protocol() or error
            except RefusedCredentials as error:
                if asyncio.get_running_loop().time() >= credentials_due_at:
                    return AuthenticationFailed(*error.args)
                self._note_failure(error)
            except ChasquiError as error:
                if not isinstance(error, ReplyError) or action_for(error) is ErrorAction.FATAL:
                    return error
                self._note_failure(error)
            except Exception as error:  # noqa: BLE001  a resolver or a TLS library may raise anything
                return RedisTrouble(f"cannot connect to {self._shown}: {type(error).__name__}: {error}")
            else:
                self._use_socket(socket)
                return None

    async def _find_wrong_protocol(self) -> NotRedis | None:
        """Finds out, after the very first attempt, whether only one of URL and server uses TLS."""
        endpoint, self._untried = self._untried, None
        hint = None if endpoint is None else await find_other_protocol(endpoint)
        return None if hint is None else NotRedis(hint)

    def _note_loss(self, socket: Socket) -> None:
        """Resets the pauses, unless the server refused this socket right after it was opened: it may do so again."""
        assert socket.lost is not None
        if not isinstance(socket.lost, ReplyTooLarge):  # the caller logs it
            self._note_failure(socket.lost)
        if socket.refused_by is None or asyncio.get_running_loop().time() - self._opened_at >= STEADY_S:
            self._backoff.reset()
        if socket.refused_by is not None and action_for(socket.refused_by) is ErrorAction.RECONNECT:
            self._role_check.require()

    def _use_socket(self, socket: Socket) -> None:
        if self.socket is not None:
            self.writes_before += self.socket.writes
        self.socket, self._trouble = socket, None
        self._opened_at = asyncio.get_running_loop().time()
        self.openings += 1
        if self._on_up is not None:
            self._on_up()

    def _note_failure(self, error: ChasquiError) -> None:
        self._trouble = error
        if self._on_down is not None:
            self._on_down(error)

    async def _open(self) -> Socket:
        loop = asyncio.get_running_loop()
        endpoint = await self._find()
        if not self.openings and self._trouble is None:
            self._untried = endpoint
        _, socket = await endpoint.open(partial(Socket, loop))
        try:
            socket.dialect = await self._shake_hands(socket, endpoint)
            if self._role_check.is_required:
                await self._check_accepts_writes(socket)
        except BaseException:
            socket.drop(ConnectionLost("the handshake failed"))
            raise
        return socket

    async def _shake_hands(self, socket: Socket, endpoint: Endpoint) -> Dialect:
        """Sends AUTH, HELLO and SELECT in one write. AUTH is separate: a server without a password must refuse one."""
        username, password = await endpoint.credentials()
        hello = ["HELLO", endpoint.protocol]
        if endpoint.client_name:
            hello += ["SETNAME", endpoint.client_name]
        commands = [hello, ["SELECT", endpoint.db]] if endpoint.db else [hello]
        if password is not None:
            by_name = username and username != "default"  # AUTH default accepts any password on a server without one
            commands.insert(0, ["AUTH", username, password] if by_name else ["AUTH", password])
        deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        asked = [socket.ask(pack(*words), deadline) for words in commands]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                await self._raise_handshake_error(socket, words, reply, endpoint)
            elif isinstance(reply, BaseException):
                raise reply
        return read_hello(replies[commands.index(hello)])

    async def _check_accepts_writes(self, socket: Socket) -> None:
        """Raises if the server refuses writes, as a replica does."""
        assert socket.dialect is not None
        if not socket.dialect.is_master:
            raise ConnectionLost("the server is a replica, which accepts no writes (READONLY)")
        try:
            await socket.ask(pack(*_WRITE_PROBE), self.deadline(CONNECT_TIMEOUT_S))
        except ReplyError as error:
            if action_for(error) is ErrorAction.RECONNECT:
                raise

    async def _raise_handshake_error(
        self, socket: Socket, words: list[Any], reply: ReplyError, endpoint: Endpoint
    ) -> None:
        """Raises an error that says what to change. Never shows what was sent, because that contains secrets."""
        if reply.code == "NOAUTH" and words[0] != "AUTH":
            way = "in redis_url, as redis://:PASSWORD@host or redis://USER:PASSWORD@host, or by credential_provider"
            raise AuthenticationFailed(f"{self._shown} wants a password: give it {way} ({reply})") from None
        if words[0] == "AUTH" or reply.code in ("NOAUTH", "WRONGPASS", "NOPERM"):
            refused = AuthenticationFailed if endpoint.credential_provider is None else RefusedCredentials
            raise refused(f"{self._shown} refused the credentials: {_without_echo(reply)}") from None
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
