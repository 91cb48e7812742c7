"""The handshake of a new connection: credentials, protocol, name and database, and what the server is."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import AuthenticationFailed, ConnectionLost, NotRedis, RedisTrouble, ReplyError
from .credentials import Login, RefusedCredentials
from .dialect import Dialect, parse_version, read_hello, refuse_too_old
from .endpoint import Endpoint
from .error_actions import ErrorAction, action_for
from .socket import Socket, pack

HANDSHAKE_TIMEOUT_S = 5.0

# A server that refuses writes refuses this script, which writes nothing. Redis 6.2 does not know the first line and
# refuses the text; there the role in HELLO must be enough.
_WRITE_PROBE = ("EVAL", "#!lua\nreturn 0", 0)


async def shake_hands(socket: Socket, endpoint: Endpoint, login: Login, shown: str) -> Dialect:
    """Sends AUTH, HELLO and SELECT in one write. AUTH is separate: a server without a password must refuse one."""
    hello = ["HELLO", endpoint.protocol]
    if endpoint.client_name:
        hello += ["SETNAME", endpoint.client_name]
    auth = login.auth_words()
    commands: list[list[Any]] = [auth, hello] if auth else [hello]
    if endpoint.db:
        commands.append(["SELECT", endpoint.db])
    deadline = _deadline()
    asked = [socket.ask(pack(*words), deadline) for words in commands]
    replies = await asyncio.gather(*asked, return_exceptions=True)
    for words, reply in zip(commands, replies, strict=True):
        if isinstance(reply, ReplyError):
            await _raise_handshake_error(socket, words, reply, endpoint, shown)
        elif isinstance(reply, BaseException):
            raise reply
    return read_hello(replies[commands.index(hello)])


async def check_accepts_writes(socket: Socket) -> None:
    """Raises if the server refuses writes, as a replica does."""
    assert socket.dialect is not None
    if not socket.dialect.is_master:
        raise ConnectionLost(
            "the server is a replica, which accepts no writes (READONLY): use the address of its master, or "
            "redis+sentinel:// if Sentinels watch it"
        )
    try:
        await socket.ask(pack(*_WRITE_PROBE), _deadline())
    except ReplyError as error:
        if action_for(error) is ErrorAction.RECONNECT:
            raise


async def _raise_handshake_error(
    socket: Socket, words: list[Any], reply: ReplyError, endpoint: Endpoint, shown: str
) -> None:
    """Raises an error that says what to change. Never shows what was sent, because that contains secrets."""
    if reply.code == "NOAUTH" and words[0] != "AUTH":
        way = "in redis_url, as redis://:PASSWORD@host or redis://USER:PASSWORD@host, or by credential_provider"
        raise AuthenticationFailed(f"{shown} wants a password: give it {way} ({reply})") from None
    if words[0] == "AUTH" or reply.code in ("NOAUTH", "WRONGPASS", "NOPERM"):
        refused = AuthenticationFailed if endpoint.credential_provider is None else RefusedCredentials
        raise refused(f"{shown} refused the credentials: {_without_echo(reply)}") from None
    if words[0] == "SELECT" and "cluster mode" in str(reply):
        raise RedisTrouble(
            f"{shown} is a node of a cluster, and a cluster has no databases but 0: remove the number from redis_url"
        ) from None
    if words[0] == "HELLO" and "unknown command" in str(reply).lower():
        try:
            info = await socket.ask(pack("INFO", "server"), _deadline())
        except ReplyError:
            info = b""
        version = bytes(info).partition(b"redis_version:")[2].split(b"\r\n")[0].decode("ascii", "replace")
        if version:
            refuse_too_old("Redis", parse_version(version))
        raise NotRedis(f"{shown} does not know HELLO: {reply}") from None
    raise reply


def _without_echo(reply: ReplyError) -> str:
    """Returns the text of a refusal, unless it may quote the password: some servers quote the arguments of AUTH."""
    is_known = reply.code in ("NOAUTH", "WRONGPASS", "NOPERM") or "without any password" in str(reply)
    return str(reply) if is_known else f"{reply.code} (its text may hold the password and is not shown)"


def _deadline() -> float:
    return asyncio.get_running_loop().time() + HANDSHAKE_TIMEOUT_S
