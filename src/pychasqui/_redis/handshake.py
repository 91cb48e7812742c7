"""The handshake of a new connection: credentials, protocol, name and database, and what the server is."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from ..errors import AuthenticationFailed, ConnectionLost, NotRedis, RedisTrouble, ReplyError
from .credentials import Login, RefusedCredentials
from .dialect import Dialect, read_dialect
from .endpoint import TOO_MANY_CLIENTS, Endpoint
from .error_actions import ErrorAction, action_for, is_command_refused
from .hello_from_info import ask_info_for_hello_or_none
from .socket import Socket, pack

HANDSHAKE_TIMEOUT_S = 5.0

# A server that refuses writes refuses this script, which writes nothing. Redis 6.2 does not know the first line and
# refuses the text; there the role in HELLO must be enough.
_WRITE_PROBE = ("EVAL", "#!lua\nreturn 0", 0)


async def perform_handshake(socket: Socket, endpoint: Endpoint, login: Login, printable_url: str) -> Dialect:
    """Sends AUTH, HELLO and SELECT in one write. AUTH is separate: a server without a password must refuse one."""
    hello = ["HELLO", endpoint.protocol]
    if endpoint.client_name:
        hello += ["SETNAME", endpoint.client_name]
    auth = login.make_auth_words_or_none()
    commands: list[list[Any]] = [auth, hello] if auth else [hello]
    if endpoint.db:
        commands.append(["SELECT", endpoint.db])
    deadline = _make_deadline()
    asked = [socket.ask(pack(*words), deadline) for words in commands]
    replies = await asyncio.gather(*asked, return_exceptions=True)
    greeting: Any = replies[commands.index(hello)]
    if isinstance(greeting, ReplyError) and is_command_refused(greeting):
        greeting = await ask_info_for_hello_or_none(socket, deadline) or greeting
    for words, reply in zip(commands, replies, strict=True):
        if words is hello and not isinstance(greeting, BaseException):
            continue
        if isinstance(reply, ReplyError):
            _raise_handshake_error(words, reply, endpoint, printable_url)
        elif isinstance(reply, BaseException):
            raise reply
    return read_dialect(greeting)


class RoleCheck:
    """Whether a new connection must check that its server accepts writes: one at this address was not the master.

    A Connector's connections share it.
    """

    def __init__(self) -> None:
        self._is_required = False

    def require_check_if_server_was_wrong(self, refusal: ReplyError) -> None:
        """A server has refused a call because it is the wrong one. MOVED is about one slot of a master."""
        if refusal.code != "MOVED" and action_for(refusal) is ErrorAction.RECONNECT:
            self._is_required = True

    async def check_if_required(self, socket: Socket) -> None:
        if self._is_required:
            await _raise_unless_ready_master(socket)


async def _raise_unless_ready_master(socket: Socket) -> None:
    """Raises if the server refuses writes because it is the wrong one, as a replica does."""
    assert socket.dialect is not None
    if not socket.dialect.is_master:
        raise ConnectionLost(
            "the server is a replica, which accepts no writes (READONLY): use the address of its master, or "
            "redis+sentinel:// if Sentinels watch it"
        )
    try:
        await socket.ask(pack(*_WRITE_PROBE), _make_deadline())
    except ReplyError as error:
        if action_for(error) is ErrorAction.RECONNECT:
            raise


def _raise_handshake_error(words: list[Any], reply: ReplyError, endpoint: Endpoint, printable_url: str) -> NoReturn:
    """Raises an error that says what to change. Never shows what was sent, because that contains secrets."""
    if TOO_MANY_CLIENTS in str(reply):  # before it has read any command
        raise ConnectionLost(f"the server refused the connection: {reply}") from None
    if action_for(reply) in (ErrorAction.RETRY, ErrorAction.RECONNECT):
        raise reply
    if reply.code == "NOAUTH" and words[0] != "AUTH":
        way = "in redis_url, as redis://:PASSWORD@host or redis://USER:PASSWORD@host, or by credential_provider"
        raise AuthenticationFailed(f"{printable_url} wants a password: give it {way} ({reply})") from None
    if words[0] == "SELECT" and reply.code == "NOPERM":
        raise AuthenticationFailed(
            f"{printable_url} refuses SELECT, which a database other than 0 needs: {reply}"
        ) from None
    if words[0] == "AUTH" or reply.code in ("NOAUTH", "WRONGPASS", "NOPERM"):
        refused = AuthenticationFailed if endpoint.credential_provider is None else RefusedCredentials
        raise refused(f"{printable_url} refused the credentials: {_format_refusal_without_password(reply)}") from None
    if words[0] == "SELECT" and "cluster mode" in str(reply):
        raise RedisTrouble(
            f"{printable_url} is a node of a cluster, and a cluster has no databases but 0: remove the number from "
            "redis_url"
        ) from None
    if words[0] == "SELECT" and "DB index" in str(reply):
        raise RedisTrouble(
            f"{printable_url} names a database that the server does not have ({reply}): use a smaller number in "
            "redis_url, such as 0, or raise the server's setting databases"
        ) from None
    if words[0] == "HELLO" and is_command_refused(reply):
        raise NotRedis(f"{printable_url} knows neither HELLO nor INFO: {reply}") from None
    raise reply


def _format_refusal_without_password(reply: ReplyError) -> str:
    """Returns the text of a refusal, unless it may quote the password: some servers quote the arguments of AUTH."""
    is_known = reply.code in ("NOAUTH", "WRONGPASS", "NOPERM") or "without any password" in str(reply)
    return str(reply) if is_known else f"{reply.code} (its text may hold the password and is not shown)"


def _make_deadline() -> float:
    return asyncio.get_running_loop().time() + HANDSHAKE_TIMEOUT_S
