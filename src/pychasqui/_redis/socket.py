"""One TCP or unix connection to the server, from its handshake to its end: many calls in flight, replies in order.

Commands that are sent during one turn of the event loop leave in one write. Every call is answered exactly once: by its
reply, or by the error that ended the socket. A call without a reply at its deadline ends the socket, because a slow
server looks like a dead connection, and the replies that follow must never reach the wrong caller. A connection on
which bytes still move, in either direction, is not dead, and is checked again a moment later.

A reply that says that this is the wrong server (see error_actions.py) ends the socket as well, for every caller: the
next socket goes to the server that the address names by then. MOVED is about one slot: those that need it leave the
socket. If the new node cannot be known, the socket is retired: nothing more is sent on it, and what is in flight gets
its own answer.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import hiredis

from ..errors import ChasquiError, CommandTimeout, ConnectionLost, NotRedis, ReplyError
from .dialect import Dialect
from .error_actions import may_send_again_after, should_reconnect_after
from .send_buffer import count_bytes_in_send_buffer

CONGESTED_BYTES = 1024 * 1024  # written and not yet read by the peer: a few of our largest batches
BUFFER_BYTES = 64 * 1024  # of one read; a batch of a thousand jobs takes a few, a larger buffer would leave the cache
LARGE_WRITE_BYTES = 16 * 1024  # unsent bytes; fewer would have been sent within any deadline
PROGRESS_PERIOD_S = 1.0  # past a deadline, a connection must move MIN_PROGRESS_BYTES in each period of this length
RETIRE_TIMEOUT_S = 0.25  # a server that is well answers what is in flight before that, unless it is a read that waits
MIN_PROGRESS_BYTES = 1024  # slower than this it counts as dead: a broken proxy must not hold a call for ever

OnReply = Callable[[Any], None]
_INCOMPLETE = object()
_PushNotification = hiredis.PushNotification  # hot: a job that is alone waits for each look-up

# hot: a tenth less CPU for a bulk of 1,000 jobs. glibc would give its memory back and ask for it again, bulk by bulk;
# after a block of this size was freed, which nobody has touched, it keeps twice as much.
bytearray(2 * 1024 * 1024)


class ReplyTooLarge(ConnectionLost):
    """A reply was larger than its caller has room for; the socket was closed before all of it had arrived."""


class Redirected(ConnectionLost):
    """Another server is the right one. Nothing is wrong with this one."""


class Socket(asyncio.BufferedProtocol):
    """One connection, from open to close.

    `on_reply` callbacks run inside buffer_updated(). They must not raise, and must be short: later replies wait for
    them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_moved: Callable[[ReplyError], bool] | None = None) -> None:
        self.dialect: Dialect | None = None
        self.scripts: set[bytes] = set()  # hashes of the scripts that were sent on this socket
        self.end_reason: ChasquiError | None = None  # why nothing more can be sent
        self._is_retired = False  # it is lost, and what is in flight is still answered
        self.wrong_server_reply: ReplyError | None = None  # the reply of a server that is the wrong one
        self._loop = loop
        self._on_moved = on_moved  # has those leave that need the slot; False if they cannot
        self._parser = hiredis.Reader(
            protocolError=NotRedis, replyError=self._make_error_and_end_socket_if_wrong, notEnoughData=_INCOMPLETE
        )
        # hot: one buffer for all reads; a plain Protocol gets new bytes from each, which takes 20 us longer when idle
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._pending: deque[tuple[OnReply, float, bool]] = deque()  # each with its deadline, and whether that is hard
        self._received = 0  # bytes
        self.arriving_bytes = 0  # bytes of the reply that is arriving, or that is being passed on
        self._max_reply_bytes = math.inf  # a larger reply ends the socket before it fills our memory
        self._bytes_at_last_check: tuple[int, int] | None = None  # bytes received and bytes unsent at the last check
        self._next_check_at = 0.0  # of what has moved: no earlier, however early the deadline of a new call is
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_timer_at = float("inf")
        self._congestion_end: asyncio.Future[None] | None = None
        self.watcher: object | None = None  # whose keys the server watches for this socket
        self._listeners: dict[bytes, Callable[[bytes], None]] = {}  # by channel
        self._refused: set[bytes] = set()  # channels to which the server refused the subscription

    def set_dialect(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def set_max_reply_bytes(self, max_bytes: float) -> None:
        self._max_reply_bytes = max_bytes

    def send(self, packed: bytes, deadline: float, on_reply: OnReply) -> None:
        """Queues a packed command for the write of this turn. `deadline` is in the loop's time."""
        if self.end_reason is not None:
            on_reply(self.end_reason)
            return
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(packed)
        self._pending.append((on_reply, deadline, False))
        if deadline < self._deadline_timer_at:
            self._set_deadline_timer(deadline)

    def write_if_open_without_reply_handler(self, packed: bytes) -> None:
        """Writes a packed command now, behind the commands that this turn has queued; expect_reply() must follow."""
        # hot: the server starts while the caller does its bookkeeping
        if self.end_reason is None and self._transport is not None:
            if self._unsent:
                self.flush()
            self._transport.write(packed)

    def expect_reply(self, deadline: float, on_reply: OnReply) -> None:
        """Registers the callback for the command that was just written.

        This deadline is hard: past it on_reply gets CommandTimeout, also if the connection is slow but not dead.
        """
        if self.end_reason is not None:
            on_reply(self.end_reason)
            return
        self._pending.append((on_reply, deadline, True))
        if deadline < self._deadline_timer_at:
            self._set_deadline_timer(deadline)

    def ask(self, packed: bytes, deadline: float) -> asyncio.Future[Any]:
        """Does what send() does, for a caller that awaits the reply."""
        future = self._loop.create_future()
        self.send(packed, deadline, partial(_resolve_future, future))
        return future

    def subscribe_unless_refused(
        self, channel: str, on_message: Callable[[bytes], None], deadline: float, *, is_shard: bool = False
    ) -> bool:
        """Subscribes to a channel; under RESP3 messages come between replies. False if the server has refused it.

        When the slot of a shard channel leaves the node, `on_message` gets b"0": messages may be missed.
        """
        name = channel.encode()
        if name not in self._listeners:
            packed = pack("SSUBSCRIBE", channel) if is_shard else pack("SUBSCRIBE", channel)
            self.send(packed, deadline, partial(self._note_if_subscription_refused, name))
        self._listeners[name] = on_message
        return name not in self._refused

    def _note_if_subscription_refused(self, channel: bytes, reply: Any) -> None:
        """Gets the confirmation of a subscription, or an error, as for a user without the right to the channel."""
        if not isinstance(reply, ReplyError):
            return
        if may_send_again_after(reply):  # the next call subscribes again
            self._listeners.pop(channel, None)
        else:
            self._refused.add(channel)

    def _is_reply_else_deliver_push(self, push: Any) -> bool:
        """The confirmation of a subscription takes the place of a reply."""
        kind = push[0]
        if kind in (b"message", b"smessage") and push[1] in self._listeners:
            self._listeners[push[1]](push[2])
        elif kind == b"sunsubscribe" and push[1] in self._listeners:  # by the server: the slot has left this node
            self._listeners.pop(push[1])(b"0")
        return kind in (b"subscribe", b"ssubscribe")

    def set_watcher(self, watcher: object | None) -> None:
        """UNWATCH and EXEC end every WATCH of the socket: the keys of the last one that sent WATCH are watched."""
        self.watcher = watcher

    def flush(self) -> None:
        """Writes the commands that this turn has queued."""
        if self._unsent and self._transport is not None:
            self._transport.write(self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent))
            self._unsent.clear()

    @property
    def is_congested(self) -> bool:
        return self._congestion_end is not None

    async def wait_until_uncongested_or_ended(self) -> None:
        """Waits until the peer has read enough of what was written, or the socket has ended."""
        if self._congestion_end is not None:
            await asyncio.shield(self._congestion_end)

    def drop(self, reason: ChasquiError) -> None:
        """Closes this socket at once; every call in flight fails with `reason`."""
        if self.end_reason is None or self._is_retired:
            self.end_reason, self._is_retired = reason, False
            if self._transport is not None:
                self._transport.abort()
            self._fail_pending_and_wake_writers(reason)

    def close_when_answered(self, reason: ChasquiError) -> None:
        """Takes no more commands, and closes once everything in flight is answered, or RETIRE_TIMEOUT_S later."""
        if self.end_reason is None:
            deadline = self._loop.time() + RETIRE_TIMEOUT_S
            self.send(pack("PING"), deadline, self._close_after_last_reply)  # the last in the order
            self.flush()
            self.end_reason, self._is_retired = reason, True

    def _close_after_last_reply(self, reply: Any) -> None:
        if self._is_retired and self.end_reason is not None:
            self.drop(self.end_reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=CONGESTED_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        arriving_bytes = self.arriving_bytes = self.arriving_bytes + nbytes
        if arriving_bytes > self._max_reply_bytes:
            self.drop(ReplyTooLarge(f"a reply takes more than {self._max_reply_bytes} bytes"))
            return
        self._parser.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]
        gets, pending, reply = self._parser.gets, self._pending, None
        try:
            while (reply := gets()) is not _INCOMPLETE:
                if type(reply) is _PushNotification and not self._is_reply_else_deliver_push(reply):
                    self.arriving_bytes = 0
                    continue
                on_reply, _, _ = pending.popleft()
                on_reply(reply)
                self.arriving_bytes = 0
        except NotRedis as error:
            self.drop(NotRedis(f"the server does not speak the Redis protocol: {error}"))
        except IndexError:
            self.drop(_make_unasked_reply_error(reply))
        self._received += nbytes

    def _make_error_and_end_socket_if_wrong(self, message: str) -> ReplyError:
        """Makes the error for an error reply. The caller gets it first; then the socket ends, if it must."""
        error = ReplyError(message)
        if should_reconnect_after(error) and self.wrong_server_reply is None:
            if error.code == "MOVED" and self._on_moved is not None and self._on_moved(error):
                return error
            self.wrong_server_reply = error
            if error.code == "MOVED":  # of one slot; the node is well, and answers what it has got already
                self._loop.call_soon(self.close_when_answered, Redirected(f"connecting to another node: {error}"))
            else:
                self._loop.call_soon(self.drop, ConnectionLost(f"connecting to the server again: {error}"))
        return error

    def connection_lost(self, exc: Exception | None) -> None:
        self.drop(ConnectionLost(f"the connection was lost: {exc or 'the server closed it'}"))

    def pause_writing(self) -> None:
        if self._congestion_end is None:
            self._congestion_end = self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._congestion_end = self._congestion_end, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _enforce_deadlines(self) -> None:
        """Runs when the timer fires. One timer serves all calls: a reply does not move it."""
        self._deadline_timer_at, now = float("inf"), self._loop.time()
        deadline = min((due for _, due, _ in self._pending), default=self._deadline_timer_at)
        if deadline > now:
            self._bytes_at_last_check = None
            if self._pending:
                self._set_deadline_timer(deadline)
        elif self._measure_progress_and_see_if_any(now):
            self._time_out_calls_past_hard_deadline(now)
            hard = min((due for _, due, is_hard in self._pending if is_hard), default=self._next_check_at)
            self._set_deadline_timer(min(hard, self._next_check_at))
        else:
            self.drop(CommandTimeout("the server did not answer in time"))

    def _measure_progress_and_see_if_any(self, now: float) -> bool:
        """Returns whether bytes have moved since the last check, or whether it is too early for the next one.

        At the first check: whether part of a reply has arrived, or a large write is unsent.
        """
        if self._bytes_at_last_check is not None and now < self._next_check_at:
            return True
        self._next_check_at = now + PROGRESS_PERIOD_S
        unsent, before = self._count_unreceived_written_bytes(), self._bytes_at_last_check
        self._bytes_at_last_check = (self._received, unsent)
        if before is None:
            return self._parser.has_data() or unsent >= LARGE_WRITE_BYTES
        return self._received - before[0] >= MIN_PROGRESS_BYTES or before[1] - unsent >= MIN_PROGRESS_BYTES

    def _count_unreceived_written_bytes(self) -> int:
        """Returns how many bytes are not received yet: in the transport's buffer and, where known, in the system's."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + count_bytes_in_send_buffer(
            self._transport.get_extra_info("socket")
        )

    def _time_out_calls_past_hard_deadline(self, now: float) -> None:
        """Fails calls past a hard deadline. Their replies keep their places in the order and are dropped.

        Their deadlines stay: until the replies have come, the line must move, or those who wait to write never could.
        """
        late: list[OnReply] = []
        for position, (on_reply, deadline, is_hard) in enumerate(self._pending):
            if is_hard and deadline <= now:
                self._pending[position] = (_drop_reply, deadline, False)
                late.append(on_reply)
        for on_reply in late:  # now, because one of them may send another command
            on_reply(CommandTimeout("the server did not answer in time"))

    def _set_deadline_timer(self, deadline: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer_at = deadline
        self._deadline_timer = self._loop.call_at(deadline, self._enforce_deadlines)

    def _fail_pending_and_wake_writers(self, reason: ChasquiError) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.resume_writing()
        self._unsent.clear()
        while self._pending:
            on_reply, _, _ = self._pending.popleft()
            on_reply(reason)


def pack(*words: Any) -> bytes:
    packed: bytes = hiredis.pack_command(words)
    return packed


def _make_unasked_reply_error(reply: Any) -> ChasquiError:
    """A server that takes no more connections says why before any command, and closes."""
    if isinstance(reply, ReplyError):
        return ConnectionLost(f"the server refused the connection: {reply}")
    return NotRedis("the server sent a reply without a command")


def _resolve_future(future: asyncio.Future[Any], reply: Any) -> None:
    """Is the on_reply of ask(). Drops the reply of a cancelled call, in its place in the order."""
    if future.done():
        return
    try:
        if isinstance(reply, ChasquiError):
            future.set_exception(reply)
        else:
            future.set_result(reply)
    except asyncio.InvalidStateError:  # at Ctrl-C asyncio cancels inside a signal handler, so also in between
        return


def _drop_reply(reply: Any) -> None:
    """Is the on_reply of a call that was given up."""
