"""Credentials: what a credential provider may be, how it is asked, and how a live connection gets its next ones.

A provider is a function, or an object with get_credentials() or get_credentials_async() as redis-py has them. It may be
async; a plain one runs in a thread of its own, because it may ask a service. It is asked before each connection, and
again before what it returned ends, if it says when: services close a connection whose token has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from ..errors import AuthenticationFailed, ChasquiError, ConnectionLost, InvalidType
from .socket import Socket, pack
from .url import Secret

log = logging.getLogger("chasqui.connection")

PROVIDER_TIMEOUT_S = 60.0  # a provider without an answer by then is asked again
RENEW_AT_SHARE = 0.75  # of the time that credentials last
EARLIEST_RENEWAL_S = 0.05
LONGEST_S = 100 * 365 * 86400.0

# A password; a name and a password; or both and for how many seconds from now they last.
Answer = tuple[str] | tuple[str | None, str | None] | tuple[str | None, str | None, float | None]


class CredentialSource(Protocol):
    """An object as redis-py takes it. One with get_credentials_async() is asked by that."""

    def get_credentials(self) -> Any: ...


class AsyncCredentialSource(Protocol):
    """An object that can only be asked by a coroutine."""

    def get_credentials_async(self) -> Awaitable[Any]: ...


CredentialProvider = (
    Callable[[str | None], Answer | Awaitable[Answer]]
    | Callable[[], Answer | Awaitable[Answer]]
    | CredentialSource
    | AsyncCredentialSource
)


class RefusedCredentials(AuthenticationFailed):
    """The provider failed, or the server refused what it returned: it may know the new credentials a moment later."""


class _ProviderExited(Exception):
    """A provider has raised what ends its thread or task, as SystemExit does; it must not end the connection too."""


class Login(NamedTuple):
    """A name and a password for a connection, and for how many seconds they last; None if that is not known."""

    username: str | None
    password: str | None
    lasts_s: float | None = None

    def make_auth_words_or_none(self) -> list[str] | None:
        """Returns the words of AUTH; None without a name and a password.

        A name alone is that of a user who needs no password, who is sent an empty one.
        """
        # AUTH default accepts any password on a server without one
        if self.username and self.username != "default":
            return ["AUTH", self.username, self.password or ""]
        return None if self.password is None else ["AUTH", self.password]


def check_provider(provider: Any) -> None:
    """Raises if this is no provider."""
    methods = (getattr(provider, name, None) for name in ("get_credentials", "get_credentials_async"))
    if not callable(provider) and not any(map(callable, methods)):
        raise InvalidType(
            "credential_provider must be a function or an object with get_credentials() or get_credentials_async(), "
            f"not {type(provider).__name__}"
        )


async def ask_provider(provider: CredentialProvider, address: str | None, printable_address: object) -> Login:
    """Returns what the provider answers. Waits for it, as long as the caller does, up to PROVIDER_TIMEOUT_S."""
    bound = asyncio.timeout(PROVIDER_TIMEOUT_S)
    try:
        async with bound:
            answer = await _call_provider(provider, address)
    except Exception as error:
        is_late = isinstance(error, TimeoutError) and bound.expired()
        raised = error.__cause__ if isinstance(error, _ProviderExited) else error
        why = f"has not answered within {PROVIDER_TIMEOUT_S:g} s" if is_late else f"failed: {type(raised).__name__}"
        raise RefusedCredentials(f"the credential provider for {printable_address} {why}") from error
    return _read_login(answer, printable_address)


async def keep_reauthenticating_before_expiry(
    socket: Socket, ask_provider: Callable[[], Awaitable[Login]], lasts_s: float | None
) -> None:
    """Sends AUTH with new credentials on a live socket before the last ones end, as long as the provider says when.

    A refusal ends the socket, as any refusal of credentials does, and the next one asks the provider again. A provider
    that fails is asked again until the credentials have ended; then it is up to the server to end the connection.
    """
    loop = asyncio.get_running_loop()
    while lasts_s is not None:
        ends_at = loop.time() + lasts_s
        await asyncio.sleep(max(RENEW_AT_SHARE * lasts_s, EARLIEST_RENEWAL_S))
        login = None
        while login is None and socket.end_reason is None:
            try:
                login = await ask_provider()
            except AuthenticationFailed as error:
                log.warning("a connection keeps its last credentials for now: %s", error)
                if loop.time() >= ends_at:
                    return
                await asyncio.sleep(max((ends_at - loop.time()) / 4, EARLIEST_RENEWAL_S))
        if login is None or (words := login.make_auth_words_or_none()) is None:
            return
        await _authenticate_again_or_drop_socket(socket, words)
        lasts_s = login.lasts_s


async def _authenticate_again_or_drop_socket(socket: Socket, words: list[str]) -> None:
    """Sends AUTH on a live socket, and ends the socket unless the reply is OK.

    Redis 8 sends no reply if it refuses AUTH behind other commands that it has read at once: each later reply would
    reach the wrong caller. So HELLO follows, whose reply is never OK, and takes the place of that reply.
    """
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drop_socket_unless_ok(reply: Any) -> None:
        if reply != b"OK":
            why = reply if isinstance(reply, ChasquiError) else "AUTH was refused without a reply"
            socket.drop(ConnectionLost(f"connecting to the server again: {why}"))
        if not answered.done():
            answered.set_result(None)

    # No deadlines: they wait behind a read that blocks, and have no caller.
    socket.send(pack(*words), float("inf"), drop_socket_unless_ok)
    socket.send(pack("HELLO"), float("inf"), lambda _: None)
    await answered


async def _call_provider(provider: Any, address: str | None) -> Any:
    own = getattr(provider, "get_credentials_async", None)
    # The base class of redis-py has one that blocks, and logs that it should be overridden.
    if own is not None and getattr(own, "__module__", "") == "redis.credentials":
        own = None
    call = own or getattr(provider, "get_credentials", None) or provider
    arguments = (address,) if _takes_address(call) else ()
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004  to look at it
        return await _await_answer(call(*arguments))
    answer = await _call_in_daemon_thread(lambda: call(*arguments))
    return await _await_answer(answer) if inspect.isawaitable(answer) else answer


async def _await_answer(answer: Awaitable[Any]) -> Any:
    """Awaits it. CancelledError of its own, as from a task that it awaits, is a failure; that of our task is not."""
    task = asyncio.current_task()
    try:
        return await answer
    except (asyncio.CancelledError, SystemExit) as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise _ProviderExited from error


def _takes_address(call: Callable[..., Any]) -> bool:
    try:
        inspect.signature(call).bind(None)
    except (TypeError, ValueError):  # no such parameter; or C code that does not say
        return False
    return True


async def _call_in_daemon_thread(call: Callable[[], Any]) -> Any:
    """Calls it in a thread that nobody waits for at the end of the process: a provider may hang."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def resolve_unless_done(answer: Any, error: BaseException | None) -> None:
        if not answered.done():
            answered.set_result((answer, error))

    def call_and_resolve() -> None:
        answer, error = None, None
        try:
            answer = call()
        except BaseException as raised:  # noqa: BLE001  the caller gets it
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(resolve_unless_done, answer, error)

    threading.Thread(target=call_and_resolve, name="chasqui credentials", daemon=True).start()
    answer, error = await answered
    if error is None:
        return answer
    if isinstance(error, Exception):
        raise error
    raise _ProviderExited from error


def _read_login(answer: Any, printable_address: object) -> Login:
    """Reads what a provider has returned. No error shows any of it."""
    words = answer if isinstance(answer, (tuple, list)) else ()
    username, password, lasts_s = (None, *words, None) if len(words) == 1 else (*words, None, None, None)[:3]
    has_texts = all(one is None or isinstance(one, str) for one in (username, password))
    is_time = lasts_s is None or (isinstance(lasts_s, (int, float)) and 0 <= lasts_s <= LONGEST_S)
    if not 1 <= len(words) <= 3 or not has_texts or not is_time:
        raise AuthenticationFailed(
            f"the credential provider for {printable_address} must return (username, password), or (username, "
            "password, for how many seconds they last)"
        )
    return Login(username, None if password is None else Secret(password), lasts_s)
