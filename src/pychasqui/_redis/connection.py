"""Connection: opens a socket when a call needs one, and another after a loss, with growing pauses and jitter.

It sends a call again by itself only if a server has refused it because it is the wrong server, such as a former master,
or because a slot moves: that server has executed nothing. Whether a call without a reply may be sent again only the
caller knows.

After such a refusal a new socket is used only once its server accepts writes. So a failover is waited for in one place,
with its pauses and its log line, and callers wait as they do for an unreachable server. Several connections may use one
socket (shared_sockets.py): each leaves it by itself, and the last one ends it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .._core.pauses import JITTER, LONGEST_RESEND_PAUSE_S, GrowingPause, compute_longer_pause_s
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
from .credentials import Login, RefusedCredentials
from .destination import Destination
from .diagnosis import probe_for_tls_mismatch
from .endpoint import Endpoint
from .error_actions import ErrorAction, action_for, may_send_again_after
from .handshake import RoleCheck, perform_handshake
from .shared_sockets import SharedSockets
from .socket import Redirected, ReplyTooLarge, Socket, pack

CONNECT_TIMEOUT_S = 5.0
RESEND_PAUSE_S = 0.01
LATE_CREDENTIALS_S = 5.0  # a provider may know new credentials later than the server does
LATE_CREDENTIALS_PAUSE_S = 0.3  # at most, before it is asked again
STEADY_S = 2.0  # after a socket has worked for this long, the pauses start small again


class Connection:
    """A socket that is opened when a call needs it, and again after a loss."""

    def __init__(
        self,
        destination: Destination,
        *,
        printable_url: str,
        timeout_s: float = 10.0,
        on_down: Callable[[Exception], None] | None = None,
        on_up: Callable[[], None] | None = None,
        role_check: RoleCheck | None = None,
        get_or_make_sockets: Callable[[asyncio.AbstractEventLoop], SharedSockets] = SharedSockets,
    ) -> None:
        self.timeout_s = timeout_s
        self.socket: Socket | None = None  # set while connected
        self._destination = destination  # asked before each attempt
        self._endpoint: Endpoint | None = None  # of the socket, or of the attempt
        self._attempt_timeout: asyncio.Timeout | None = None  # of an attempt, or of the pause before it
        self._is_outdated = False  # the attempt: another server is the right one by now
        self._printable_url = printable_url  # the address for messages, without secrets
        self._on_down, self._on_up = on_down, on_up
        self._loop: asyncio.AbstractEventLoop | None = None
        self._get_or_make_sockets = get_or_make_sockets
        self._sockets: SharedSockets | None = None  # of the loop
        self._opening: asyncio.Task[ChasquiError | None] | None = None
        self.trouble: ChasquiError | None = None  # why the last attempt failed
        self._role_check = role_check or RoleCheck()
        self._backoff, self._opened_at = GrowingPause(), 0.0
        self._first_endpoint: Endpoint | None = None  # the endpoint of the very first attempt
        self._is_closed = False
        self._node_connections: dict[int, Connection] = {}  # to other nodes of a cluster, by slot
        self.sockets_opened = 0  # the first one and those after losses

    async def call(self, *words: Any, timeout_s: float | None = None) -> Any:
        """Sends one command and returns its reply; raises ReplyError, ConnectionLost or CommandTimeout."""
        return await self.call_packed(lambda socket: pack(*words), timeout_s)

    async def call_packed(self, pack_for: Callable[[Socket], bytes], timeout_s: float | None = None) -> Any:
        """Does what call() does, for a command that depends on the socket.

        The timeout of the reply begins when the socket is ready, because opening one takes several round trips.
        """
        give_up_at, pause_s = self.make_deadline(timeout_s), 0.0
        while True:
            socket = await self.get_or_open_socket(give_up_at)
            if socket.is_congested:
                await socket.wait_until_uncongested_or_ended()
            try:
                return await socket.ask(pack_for(socket), self.make_deadline(timeout_s))
            except ReplyError as error:
                if not may_send_again_after(error) or asyncio.get_running_loop().time() >= give_up_at:
                    raise
                await asyncio.sleep(pause_s if action_for(error) is ErrorAction.RETRY else 0.0)
                pause_s = compute_longer_pause_s(pause_s, RESEND_PAUSE_S, LONGEST_RESEND_PAUSE_S)

    def set_timeout(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        for other in self._node_connections.values():
            other.set_timeout(timeout_s)

    def make_deadline(self, timeout_s: float | None = None) -> float:
        return asyncio.get_running_loop().time() + (self.timeout_s if timeout_s is None else timeout_s)

    async def get_or_open_socket(self, deadline: float) -> Socket:
        """Returns a live socket; raises if there is none by the deadline."""
        self._bind_to_loop_and_get_sockets()
        while (socket := self.get_live_socket_or_none()) is None:
            if self._is_closed:
                raise Closed("the connection is closed")
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._retry_until_open_or_permanent_error(), name="chasqui connect")
            opening = self._opening  # the attempt that is awaited here; self._opening may be another one by then
            done, _ = await asyncio.wait({opening}, timeout=max(0, deadline - asyncio.get_running_loop().time()))
            if not done:
                reason = self.trouble or self._destination.explain_failure(self._endpoint, TimeoutError("no answer"))
                raise ConnectionLost(f"cannot reach {self._printable_url} in time: {reason}")
            if opening.cancelled():
                raise Closed("the connection was closed while it was being made")
            if (trouble := opening.result()) is not None:
                raise type(trouble)(*trouble.args)  # a new error for each caller: a shared one would collect tracebacks
        return socket

    def get_live_socket_or_none(self) -> Socket | None:
        socket = self.socket
        return socket if socket is not None and socket.end_reason is None else None

    @property
    def address(self) -> str:
        """Where the live socket leads; "" while there is none."""
        return "" if self.get_live_socket_or_none() is None or self._endpoint is None else self._endpoint.address

    def get_or_make_connection_for_slot(self, slot: int) -> Connection:
        """Returns the connection to the node that has the slot, which ends with this one; usually this one."""
        destination = self._destination.make_destination_if_slot_is_elsewhere(slot)
        if destination is None:
            return self
        if slot not in self._node_connections:
            self._node_connections[slot] = Connection(
                destination,
                printable_url=self._printable_url,
                timeout_s=self.timeout_s,
                on_down=self._on_down,
                on_up=self._on_up,
                role_check=self._role_check,
                get_or_make_sockets=lambda _: self._bind_to_loop_and_get_sockets(),
            )
        return self._node_connections[slot]

    def get_or_make_connections_to_masters(self) -> list[Connection]:
        return [
            self.get_or_make_connection_for_slot(slot) for slot in self._destination.list_one_slot_of_each_master()
        ] or [self]

    def drop_socket(self, reason: ChasquiError) -> None:
        """Ends the current socket, for all that use it; the next call opens another."""
        if self.socket is not None:
            self.socket.drop(reason)

    async def close(self) -> None:
        self._is_closed = True
        self._destination.stop_listening()
        for other in self._node_connections.values():
            await other.close()
        if self._loop is not None and self._loop.is_closed():
            self.socket = self._opening = None  # they have ended with the loop
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        self._leave_socket_and_close_if_last(Closed("the connection was closed"))
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop

    def _bind_to_loop_and_get_sockets(self) -> SharedSockets:
        """Binds the connection to the running loop; raises WrongLoop if it is bound to another that still runs."""
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._sockets is not None:
            return self._sockets
        if self._loop is not None and not self._loop.is_closed():
            raise WrongLoop("this connection belongs to another event loop; make one per loop, and after a fork")
        self._loop, self.socket, self._opening, self._sockets = loop, None, None, self._get_or_make_sockets(loop)
        return self._sockets

    async def _retry_until_open_or_permanent_error(self) -> ChasquiError | None:
        """Tries until a socket is open; returns an error that another attempt would not solve."""
        if self.socket is not None and self.socket.end_reason is not None:
            self._report_lost_socket_and_adjust_pauses(self.socket)
            self._leave_socket_and_close_if_last(self.socket.end_reason)
        credentials_due_at = self.make_deadline(LATE_CREDENTIALS_S)
        while True:
            await self._pause_and_lengthen_backoff()
            self._is_outdated = False
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S) as self._attempt_timeout:
                    socket = await self._find_or_open_socket()
            except Redirected:
                self._backoff.reset()
            except (ConnectionLost, CommandTimeout, OSError) as error:  # TimeoutError is an OSError
                if self._is_outdated:
                    continue
                self._report_failure(ConnectionLost(self._destination.explain_failure(self._endpoint, error)))
                if (wrong := await self._probe_first_attempt_for_tls_mismatch()) is not None:
                    return wrong
            except NotRedis as error:
                return await self._probe_first_attempt_for_tls_mismatch() or error
            except RefusedCredentials as error:
                if asyncio.get_running_loop().time() >= credentials_due_at:
                    return AuthenticationFailed(*error.args)
                self._report_failure(error)
                self._backoff.shorten_to_at_most(LATE_CREDENTIALS_PAUSE_S)
            except ChasquiError as error:
                if not isinstance(error, ReplyError) or action_for(error) is ErrorAction.FATAL:
                    return error
                self._report_failure(error)
            except Exception as error:  # noqa: BLE001  a resolver or a TLS library may raise anything
                return RedisTrouble(f"cannot connect to {self._printable_url}: {type(error).__name__}: {error}")
            else:
                self._use_socket_and_report_up(socket)
                return None

    async def _pause_and_lengthen_backoff(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._attempt_timeout:
                await asyncio.sleep(self._backoff.pause_s * random.uniform(*JITTER))
        self._backoff.lengthen_pause_s()

    def _leave_server_if_wrong(self) -> None:
        """Leaves a server that is no longer the right one, or an attempt to reach it.

        What is in flight at a former master may be executed there later, and lost with it: so it is not waited for.
        """
        endpoint, socket = self._endpoint, self.get_live_socket_or_none()
        if self._is_closed or endpoint is None or self._destination.may_be_right_server(endpoint):
            return
        reason = Redirected(f"{endpoint.address} is no longer the right server")
        if socket is not None and self._destination.may_wait_for_replies_of(endpoint):
            if self._has_been_open_for_long():
                self._backoff.reset()
            self._leave_socket_and_close_if_last(reason, waits_for_replies=True)
        elif socket is not None:
            socket.drop(reason)
        elif self._attempt_timeout is not None and self._opening is not None and not self._opening.done():
            self._backoff.reset()
            self._is_outdated = True
            with suppress(RuntimeError):  # it has ended in this turn
                self._attempt_timeout.reschedule(asyncio.get_running_loop().time())

    def _leave_socket_and_close_if_last(self, reason: ChasquiError, *, waits_for_replies: bool = False) -> None:
        """Leaves the socket to the other connections that use it; without any it ends."""
        socket, self.socket = self.socket, None
        if socket is not None and self._sockets is not None:
            close = socket.close_when_answered if waits_for_replies else socket.drop
            self._sockets.remove_user_and_close_if_last(socket, self, partial(close, reason))

    def _has_been_open_for_long(self) -> bool:
        return asyncio.get_running_loop().time() - self._opened_at >= STEADY_S

    async def _probe_first_attempt_for_tls_mismatch(self) -> NotRedis | None:
        """Finds out whether only one of URL and server uses TLS: after the very first attempt, and again if so."""
        wrong = None if self._first_endpoint is None else await probe_for_tls_mismatch(self._first_endpoint)
        self._first_endpoint = None if wrong is None else self._first_endpoint
        return wrong

    def _report_lost_socket_and_adjust_pauses(self, socket: Socket) -> None:
        """Reports the loss; resets the pauses, unless the server refused this socket as soon as it was opened."""
        assert socket.end_reason is not None
        if not isinstance(
            socket.end_reason, (ReplyTooLarge, Redirected)
        ):  # the caller logs the one, the route the other
            self._report_failure(socket.end_reason)
        if socket.wrong_server_reply is None or self._has_been_open_for_long():
            self._backoff.reset()
        if socket.wrong_server_reply is not None:
            self._role_check.require_check_if_server_was_wrong(socket.wrong_server_reply)
            if self._endpoint is not None:
                self._destination.report_trouble(self._endpoint, socket.wrong_server_reply)

    def _use_socket_and_report_up(self, socket: Socket) -> None:
        self.socket, self.trouble, self._opened_at = socket, None, asyncio.get_running_loop().time()
        self.sockets_opened += 1
        if self._on_up is not None:
            self._on_up()

    def _report_failure(self, error: ChasquiError) -> None:
        self.trouble = error
        if self._endpoint is not None:
            self._destination.report_trouble(self._endpoint, error)
        if self._on_down is not None:
            self._on_down(error)

    async def _find_or_open_socket(self) -> Socket:
        """Returns a socket to the server that is the right one now: another connection's, or one that it opens."""
        assert self._attempt_timeout is not None
        sockets, self._endpoint = self._bind_to_loop_and_get_sockets(), None
        endpoint = self._endpoint = await self._destination.find_endpoint_or_start_server(self._leave_server_if_wrong)
        if not self.sockets_opened and self.trouble is None:
            self._first_endpoint = endpoint
        self._attempt_timeout.reschedule(None)  # while another connection opens it, within its own time
        async with sockets.get_opening_lock(endpoint):
            if self._is_outdated:
                raise Redirected(f"{endpoint.address} is no longer the right server")
            self._attempt_timeout.reschedule(self.make_deadline(CONNECT_TIMEOUT_S))
            if (socket := sockets.find_open_socket(endpoint)) is not None:
                with sockets.forgetting_if_check_fails(socket):
                    await self._check_server(socket, endpoint)
            else:
                socket = await self._open_socket(endpoint, sockets)
            sockets.store_socket_and_add_user(endpoint, socket, self)
        return socket

    async def _open_socket(self, endpoint: Endpoint, sockets: SharedSockets) -> Socket:
        on_moved = partial(self._destination.note_moved_slot_and_see_if_may_stay, endpoint)
        _, socket = await endpoint.open_connection(partial(Socket, asyncio.get_running_loop(), on_moved))
        try:
            login = await self._ask_for_credentials_outside_timeout(endpoint)
            socket.set_dialect(await perform_handshake(socket, endpoint, login, self._printable_url))
            await self._check_server(socket, endpoint)
        except BaseException:
            socket.drop(ConnectionLost("the handshake failed"))
            raise
        sockets.schedule_renewal_if_credentials_end(endpoint, socket, login)
        return socket

    async def _check_server(self, socket: Socket, endpoint: Endpoint) -> None:
        """Raises if the server is not the right one, or if it must accept writes and does not."""
        assert socket.dialect is not None
        self._destination.check_server_and_switch_if_cluster(endpoint, socket.dialect)
        await self._role_check.check_if_required(socket)

    async def _ask_for_credentials_outside_timeout(self, endpoint: Endpoint) -> Login:
        """Waits for the provider for as long as the callers wait: its time is not that of the server."""
        if endpoint.credential_provider is None:
            return await endpoint.ask_for_credentials()
        assert self._attempt_timeout is not None
        trouble, self.trouble = self.trouble, AuthenticationFailed("the credential provider has not answered yet")
        self._attempt_timeout.reschedule(None)
        try:
            login = await endpoint.ask_for_credentials()
        finally:
            self.trouble = trouble
        self._attempt_timeout.reschedule(self.make_deadline(CONNECT_TIMEOUT_S))
        return login
