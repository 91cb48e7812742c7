"""A socket without a server: commands of a turn leave together, and each reply reaches its caller."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import hiredis
import pytest

from pychasqui._redis import socket as socket_module
from pychasqui._redis.socket import CONGESTED_BYTES, Socket, pack
from pychasqui.errors import ChasquiError, CommandTimeout, ConnectionLost, NotRedis, ReplyError


class FakeTransport(asyncio.Transport):
    """A transport that records the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_aborted = False
        self.high: int | None = None
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


def open_socket() -> tuple[Socket, FakeTransport]:
    socket, line = Socket(asyncio.get_running_loop()), FakeTransport()
    socket.connection_made(line)
    return socket, line


def ask(socket: Socket, word: str = "PING", *more: str, within_s: float = 60) -> asyncio.Future[Any]:
    packed: bytes = hiredis.pack_command((word, *more))  # type: ignore[arg-type]
    return socket.ask(packed, asyncio.get_running_loop().time() + within_s)


def receive(socket: Socket, data: bytes) -> None:
    """Passes bytes to the socket as a transport does."""
    while data:
        buffer = socket.get_buffer(-1)
        part, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(part)] = part
        socket.buffer_updated(len(part))


async def outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except ChasquiError as error:
        return error


async def test_all_commands_of_one_turn_leave_in_one_write() -> None:
    socket, line = open_socket()
    for number in range(1000):
        ask(socket, "SET", str(number))
    assert line.written == []
    await asyncio.sleep(0)
    assert len(line.written) == 1
    assert line.written[0].count(b"SET") == 1000


async def test_a_socket_is_congested_only_by_more_than_a_few_of_our_largest_batches() -> None:
    socket, line = open_socket()
    assert line.high == CONGESTED_BYTES
    assert not socket.is_congested
    socket.pause_writing()
    assert socket.is_congested
    socket.resume_writing()
    assert not socket.is_congested


async def test_turns_leave_in_writes_of_their_own_and_in_order() -> None:
    socket, line = open_socket()
    for number in range(3):
        ask(socket, str(number))
        await asyncio.sleep(0)
    assert line.written == [hiredis.pack_command((str(number),)) for number in range(3)]


async def test_a_flush_leaves_nothing_for_the_end_of_the_turn() -> None:
    socket, line = open_socket()
    ask(socket, "SET")
    socket.flush()
    assert len(line.written) == 1
    await asyncio.sleep(0)
    assert len(line.written) == 1


async def test_replies_come_back_in_the_order_of_the_calls() -> None:
    socket, _ = open_socket()
    calls = [ask(socket) for _ in range(100)]
    receive(socket, b"".join(b":%d\r\n" % number for number in range(100)))
    assert await asyncio.gather(*calls) == list(range(100))


async def test_replies_may_arrive_in_pieces_of_any_size() -> None:
    socket, _ = open_socket()
    stream = b"".join(b"*2\r\n$3\r\nabc\r\n:%d\r\n" % number for number in range(200))
    chance = random.Random(1)
    calls = [ask(socket) for _ in range(200)]
    while stream:
        size = chance.choice((1, 1, 2, 3, 7, 50))
        receive(socket, stream[:size])
        stream = stream[size:]
    assert await asyncio.gather(*calls) == [[b"abc", number] for number in range(200)]


async def test_a_refusal_reaches_its_caller_alone() -> None:
    socket, _ = open_socket()
    calls = [ask(socket) for _ in range(3)]
    receive(socket, b":1\r\n-NOPERM not you\r\n:3\r\n")
    first, second, third = [await outcome(call) for call in calls]
    assert (first, third) == (1, 3)
    assert isinstance(second, ReplyError)
    assert second.code == "NOPERM"
    assert socket.end_reason is None


async def test_a_refusal_inside_an_array_is_part_of_the_reply() -> None:
    socket, _ = open_socket()
    call = ask(socket)
    receive(socket, b"*2\r\n:1\r\n-ERR no\r\n")
    good, bad = await call
    assert good == 1
    assert isinstance(bad, ReplyError)


async def test_a_cancelled_call_takes_its_reply_with_it() -> None:
    socket, _ = open_socket()
    calls = [ask(socket) for _ in range(5)]
    calls[0].cancel()
    calls[3].cancel()
    receive(socket, b":0\r\n:1\r\n:2\r\n")
    calls[4].cancel()
    receive(socket, b":3\r\n:4\r\n")
    assert [await calls[1], await calls[2]] == [1, 2]
    late = ask(socket)
    receive(socket, b":5\r\n")
    assert await late == 5


async def test_pushed_messages_answer_no_call() -> None:
    socket, _ = open_socket()
    calls = [ask(socket), ask(socket)]
    receive(socket, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n:1\r\n>1\r\n$1\r\nx\r\n:2\r\n")
    assert await asyncio.gather(*calls) == [1, 2]


async def test_a_loss_fails_every_call_that_waits_and_every_later_one() -> None:
    socket, _ = open_socket()
    calls = [ask(socket) for _ in range(3)]
    receive(socket, b":0\r\n")
    socket.connection_lost(OSError("cable"))
    calls.append(ask(socket))
    assert await calls[0] == 0
    for call in calls[1:]:
        with pytest.raises(ConnectionLost, match="cable"):
            await call


async def test_a_loss_with_half_a_reply_fails_the_call() -> None:
    socket, _ = open_socket()
    call = ask(socket)
    receive(socket, b"$10\r\nhalf")
    socket.connection_lost(None)
    with pytest.raises(ConnectionLost, match="the server closed it"):
        await call


async def test_no_command_is_written_after_a_loss() -> None:
    socket, line = open_socket()
    call = ask(socket)
    socket.drop(ConnectionLost("dropped"))
    assert isinstance(await outcome(call), ConnectionLost)
    await asyncio.sleep(0)
    assert line.written == []
    assert line.is_aborted


async def test_a_call_past_its_deadline_ends_the_connection_for_all() -> None:
    """It would be unknown which call a late reply belongs to, and whether the line is dead."""
    socket, line = open_socket()
    late, patient = ask(socket, within_s=0.01), ask(socket, within_s=60)
    for call in (late, patient):
        with pytest.raises(CommandTimeout):
            await call
    assert line.is_aborted


async def test_a_deadline_in_the_past_is_noticed() -> None:
    socket, _ = open_socket()
    with pytest.raises(CommandTimeout):
        await ask(socket, within_s=-1)


async def test_an_early_deadline_behind_late_ones_is_kept() -> None:
    socket, _ = open_socket()
    calls = [ask(socket, within_s=within_s) for within_s in (60, 30, 0.02)]
    loop = asyncio.get_running_loop()
    start = loop.time()
    for call in calls:
        with pytest.raises(CommandTimeout):
            await call
    assert loop.time() - start < 5


async def test_a_call_that_is_answered_in_time_never_ends_the_connection() -> None:
    socket, _ = open_socket()
    quick, slow = ask(socket, within_s=0.02), ask(socket, within_s=60)
    receive(socket, b":1\r\n")
    assert await quick == 1
    marker = ask(socket, within_s=0.05)
    receive(socket, b":2\r\n:3\r\n")
    assert [await slow, await marker] == [2, 3]
    overdue = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.08, overdue.set_result, None)
    await overdue
    assert socket.end_reason is None


@pytest.mark.parametrize(
    "greeting", (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"<html>", b"220 mail\r\n", b"SSH-2.0-x\r\n", b"\0\0\0")
)
async def test_bytes_that_are_not_redis_are_named_as_such(greeting: bytes) -> None:
    socket, line = open_socket()
    call = ask(socket)
    receive(socket, greeting)
    with pytest.raises(NotRedis):
        await call
    assert line.is_aborted


async def test_a_reply_without_a_call_ends_the_connection() -> None:
    socket, line = open_socket()
    receive(socket, b"+OK POP3 ready\r\n")
    assert line.is_aborted
    with pytest.raises(NotRedis, match="a reply without a command"):
        await ask(socket)


async def test_callers_wait_while_the_peer_is_slow() -> None:
    socket, _ = open_socket()
    socket.pause_writing()
    assert socket.is_congested
    waiting = asyncio.ensure_future(socket.wait_until_uncongested_or_ended())
    await asyncio.sleep(0)
    assert not waiting.done()
    socket.resume_writing()
    await waiting
    assert not socket.is_congested


async def test_callers_that_wait_for_a_slow_peer_learn_of_its_end() -> None:
    socket, _ = open_socket()
    socket.pause_writing()
    waiting = asyncio.ensure_future(socket.wait_until_uncongested_or_ended())
    await asyncio.sleep(0)
    socket.connection_lost(None)
    await waiting
    assert isinstance(await outcome(ask(socket)), ConnectionLost)


async def test_dropping_twice_keeps_the_first_reason() -> None:
    socket, _ = open_socket()
    socket.drop(ConnectionLost("first"))
    socket.drop(ConnectionLost("second"))
    socket.connection_lost(None)
    assert str(socket.end_reason) == "first"


class TestWriting:
    """A lone add does not wait for the end of the turn."""

    def send_now(self, socket: Socket, word: str, answers: list[Any], within_s: float = 60) -> None:
        socket.write_if_open_without_reply_handler(pack(word))
        socket.expect_reply(asyncio.get_running_loop().time() + within_s, answers.append)

    async def test_a_command_is_written_at_once(self) -> None:
        socket, line = open_socket()
        self.send_now(socket, "ADD", [])
        assert line.written == [pack("ADD")]
        await asyncio.sleep(0)
        assert len(line.written) == 1

    async def test_a_command_is_written_behind_those_that_the_turn_has_gathered(self) -> None:
        socket, line = open_socket()
        ask(socket, "FIRST")
        ask(socket, "SECOND")
        self.send_now(socket, "ADD", [])
        assert b"".join(line.written) == pack("FIRST") + pack("SECOND") + pack("ADD")
        await asyncio.sleep(0)
        assert len(line.written) == 2

    async def test_the_reply_has_its_place_among_the_others(self) -> None:
        socket, _ = open_socket()
        answers: list[Any] = []
        self.send_now(socket, "ADD", answers)
        call = ask(socket, "PING")
        self.send_now(socket, "ADD", answers)
        receive(socket, b":1\r\n:2\r\n:3\r\n")
        assert (answers, await call) == ([1, 3], 2)

    async def test_a_write_on_a_lost_socket_fails_at_once(self) -> None:
        socket, line = open_socket()
        socket.drop(ConnectionLost("gone"))
        answers: list[Any] = []
        self.send_now(socket, "ADD", answers)
        assert [str(answer) for answer in answers] == ["gone"]
        assert line.written == []

    async def test_a_command_without_an_answer_at_its_deadline_ends_the_socket(self) -> None:
        socket, line = open_socket()
        answers: list[Any] = []
        self.send_now(socket, "ADD", answers, within_s=0.01)
        async with asyncio.timeout(20):
            while not answers:
                await asyncio.sleep(0.005)
        assert isinstance(answers[0], CommandTimeout)
        assert line.is_aborted


class TestListening:
    """Messages come between replies, and answer no call."""

    def listen(self, socket: Socket, channel: str, heard: list[bytes]) -> bool:
        return socket.subscribe_unless_refused(channel, heard.append, asyncio.get_running_loop().time() + 60)

    async def test_messages_reach_the_listener_and_replies_their_callers(self) -> None:
        socket, line = open_socket()
        heard: list[bytes] = []
        calls = [ask(socket)]
        assert self.listen(socket, "due", heard)
        calls.append(ask(socket))
        await asyncio.sleep(0)
        assert b"".join(line.written) == pack("PING") + pack("SUBSCRIBE", "due") + pack("PING")
        subscribed = b">3\r\n$9\r\nsubscribe\r\n$3\r\ndue\r\n:1\r\n"
        message = b">3\r\n$7\r\nmessage\r\n$3\r\ndue\r\n$1\r\n%d\r\n"
        receive(socket, b":1\r\n" + subscribed + message % 5 + b":2\r\n" + message % 6)
        assert await asyncio.gather(*calls) == [1, 2]
        assert heard == [b"5", b"6"]

    async def test_messages_of_a_shard_reach_the_listener_until_the_slot_leaves(self) -> None:
        """Then it is called once more, and the next call subscribes again."""
        socket, line = open_socket()
        heard: list[bytes] = []
        deadline = asyncio.get_running_loop().time() + 60
        socket.subscribe_unless_refused("due", heard.append, deadline, is_shard=True)
        call = ask(socket)
        await asyncio.sleep(0)
        subscribed = b">3\r\n$10\r\nssubscribe\r\n$3\r\ndue\r\n:1\r\n"
        receive(socket, subscribed + b":1\r\n" + b">3\r\n$8\r\nsmessage\r\n$3\r\ndue\r\n$1\r\n5\r\n")
        receive(socket, b">3\r\n$12\r\nsunsubscribe\r\n$3\r\ndue\r\n:0\r\n")
        assert (await call, heard) == (1, [b"5", b"0"])
        socket.subscribe_unless_refused("due", heard.append, deadline, is_shard=True)
        await asyncio.sleep(0)
        assert b"".join(line.written).count(b"SSUBSCRIBE") == 2

    async def test_a_subscription_that_a_node_refuses_because_a_slot_moves_is_sent_again(self) -> None:
        socket, line = open_socket()
        for _ in range(2):
            assert self.listen(socket, "due", [])
            await asyncio.sleep(0)
            receive(socket, b"-TRYAGAIN later\r\n")
        assert b"".join(line.written).count(b"SUBSCRIBE") == 2

    async def test_a_second_listener_replaces_the_first_without_another_subscribe(self) -> None:
        socket, line = open_socket()
        first: list[bytes] = []
        second: list[bytes] = []
        self.listen(socket, "due", first)
        self.listen(socket, "due", second)
        await asyncio.sleep(0)
        assert b"".join(line.written) == pack("SUBSCRIBE", "due")
        receive(socket, b">3\r\n$9\r\nsubscribe\r\n$3\r\ndue\r\n:1\r\n")
        receive(socket, b">3\r\n$7\r\nmessage\r\n$3\r\ndue\r\n$1\r\n5\r\n")
        assert (first, second) == ([], [b"5"])

    async def test_each_channel_has_a_listener_of_its_own(self) -> None:
        socket, _ = open_socket()
        due: list[bytes] = []
        repeat: list[bytes] = []
        self.listen(socket, "due", due)
        self.listen(socket, "repeat", repeat)
        receive(socket, b">3\r\n$9\r\nsubscribe\r\n$3\r\ndue\r\n:1\r\n")
        receive(socket, b">3\r\n$9\r\nsubscribe\r\n$6\r\nrepeat\r\n:2\r\n")
        receive(socket, b">3\r\n$7\r\nmessage\r\n$6\r\nrepeat\r\n$1\r\n5\r\n")
        receive(socket, b">3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\n5\r\n")
        assert (due, repeat) == ([], [b"5"])
        assert socket.end_reason is None

    async def test_a_refused_subscription_is_remembered_and_not_sent_again(self) -> None:
        socket, line = open_socket()
        assert self.listen(socket, "due", [])
        call = ask(socket)
        await asyncio.sleep(0)
        receive(socket, b"-NOPERM not this channel\r\n:1\r\n")
        assert await call == 1
        assert not self.listen(socket, "due", [])
        await asyncio.sleep(0)
        assert b"".join(line.written).count(b"SUBSCRIBE") == 1
        assert socket.end_reason is None

    async def test_a_subscription_without_an_answer_in_time_ends_the_socket(self) -> None:
        socket, line = open_socket()
        socket.subscribe_unless_refused("due", print, asyncio.get_running_loop().time() + 0.01)
        async with asyncio.timeout(20):
            while socket.end_reason is None:
                await asyncio.sleep(0.005)
        assert line.is_aborted

    async def test_other_pushes_are_ignored(self) -> None:
        socket, _ = open_socket()
        call = ask(socket)
        receive(socket, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n:1\r\n")
        assert await call == 1


PIECES = (
    *(b"*", b"$", b":", b"+", b"-", b"%", b"~", b">", b"_", b"#t", b",", b"(", b"=", b"!", b"|", b"\r\n"),
    *(b"0", b"1", b"2", b"-1", b"99999999999", b"999999999999999999999", b"nan", b"abc", b"txt:", b"\0", b"\xff", b"?"),
)


async def test_every_call_is_answered_once_for_any_bytes() -> None:
    chance = random.Random(5)
    loop = asyncio.get_running_loop()
    for _ in range(3000):
        socket, _ = open_socket()
        answers: list[Any] = []
        for _ in range(3):
            socket.send(b"x", loop.time() + 60, answers.append)
        receive(socket, b"".join(chance.choices(PIECES, k=chance.randrange(1, 12))))
        socket.drop(ConnectionLost("the end"))
        assert len(answers) == 3


class TestSlowLines:
    @pytest.fixture(autouse=True)
    def _short_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket_module, "PROGRESS_PERIOD_S", 0.05)

    async def test_a_reply_that_is_arriving_is_not_silence(self) -> None:
        socket, line = open_socket()
        call = ask(socket, within_s=0.02)
        receive(socket, b"$20000\r\n")
        for _ in range(10):
            receive(socket, b"x" * 2000)
            await asyncio.sleep(0.02)
        assert not (call.done())
        assert not (line.is_aborted)
        receive(socket, b"\r\n")
        assert await call == b"x" * 20000

    async def test_a_trickle_is_silence(self) -> None:
        socket, line = open_socket()
        call = ask(socket, within_s=0.02)
        receive(socket, b"$20000\r\n")
        for _ in range(20):
            receive(socket, b"x")
            await asyncio.sleep(0.01)
        assert line.is_aborted
        with pytest.raises(CommandTimeout):
            await call

    async def test_a_large_write_that_the_peer_is_taking_is_not_silence(self) -> None:
        socket, line = open_socket()
        line.unsent = 20_000
        call = ask(socket, within_s=0.02)
        for _ in range(9):
            line.unsent -= 2000
            await asyncio.sleep(0.02)
        assert not (call.done())
        assert not (line.is_aborted)
        receive(socket, b"+OK\r\n")
        assert await call == b"OK"

    async def test_a_large_write_that_is_stuck_is_silence(self) -> None:
        socket, line = open_socket()
        line.unsent = 20_000
        with pytest.raises(CommandTimeout):
            await ask(socket, within_s=0.02)
        assert line.is_aborted

    async def test_a_strict_deadline_is_kept_and_its_reply_is_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket_module, "PROGRESS_PERIOD_S", 30)
        socket, line = open_socket()
        answers: list[Any] = []
        socket.write_if_open_without_reply_handler(b"first")
        socket.expect_reply(asyncio.get_running_loop().time() + 0.02, answers.append)
        behind = ask(socket, within_s=60)
        receive(socket, b"$4000\r\n" + b"x" * 3000)
        await asyncio.sleep(0.04)
        assert [type(answer) for answer in answers] == [CommandTimeout]
        assert not line.is_aborted
        receive(socket, b"x" * 1000 + b"\r\n+mine\r\n")
        assert await behind == b"mine"
        assert len(answers) == 1

    async def test_an_impatient_call_does_not_end_a_line_that_moves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket_module, "PROGRESS_PERIOD_S", 30)
        socket, line = open_socket()
        answers: list[Any] = []
        call = ask(socket, within_s=0.02)
        receive(socket, b"$4000\r\n" + b"x" * 3000)
        await asyncio.sleep(0.04)
        impatient = ask(socket, within_s=0.01)
        socket.write_if_open_without_reply_handler(b"strict")
        socket.expect_reply(asyncio.get_running_loop().time() + 0.02, answers.append)
        async with asyncio.timeout(20):
            while not answers:
                await asyncio.sleep(0.01)
        assert isinstance(answers[0], CommandTimeout)
        assert not line.is_aborted
        receive(socket, b"x" * 1000 + b"\r\n+mine\r\n+dropped\r\n")
        assert [await call, await impatient] == [b"x" * 4000, b"mine"]

    async def test_impatient_calls_do_not_keep_a_trickle_alive(self) -> None:
        socket, line = open_socket()
        call = ask(socket, within_s=0.02)
        receive(socket, b"$20000\r\n")
        for _ in range(20):
            receive(socket, b"x")
            ask(socket, within_s=0.005).add_done_callback(lambda done: done.exception())
            await asyncio.sleep(0.01)
        assert line.is_aborted
        with pytest.raises(CommandTimeout):
            await call

    async def test_a_strict_deadline_between_two_checks_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket_module, "PROGRESS_PERIOD_S", 30)
        socket, line = open_socket()
        answers: list[Any] = []
        call = ask(socket, within_s=0.02)
        socket.write_if_open_without_reply_handler(b"strict")
        socket.expect_reply(asyncio.get_running_loop().time() + 0.05, answers.append)
        receive(socket, b"$4000\r\n" + b"x" * 3000)
        async with asyncio.timeout(20):
            while not answers:
                await asyncio.sleep(0.01)
        assert isinstance(answers[0], CommandTimeout)
        assert not line.is_aborted
        receive(socket, b"x" * 1000 + b"\r\n")
        assert await call == b"x" * 4000

    async def test_strict_deadlines_are_kept_behind_a_call_that_sends_another_when_it_is_late(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(socket_module, "PROGRESS_PERIOD_S", 30)
        socket, line = open_socket()
        answers: list[Any] = []
        sent: list[asyncio.Future[Any]] = []
        socket.write_if_open_without_reply_handler(b"first")
        socket.expect_reply(asyncio.get_running_loop().time() + 0.02, lambda _: sent.append(ask(socket, "AGAIN")))
        socket.write_if_open_without_reply_handler(b"second")
        socket.expect_reply(asyncio.get_running_loop().time() + 0.02, answers.append)
        receive(socket, b"$4000\r\n" + b"x" * 3000)
        await asyncio.sleep(0.04)
        assert [type(answer) for answer in answers] == [CommandTimeout]
        assert not line.is_aborted
        receive(socket, b"x" * 1000 + b"\r\n+OK\r\n+mine\r\n")
        assert await sent[0] == b"mine"


class TestWrongServers:
    @pytest.mark.parametrize("code", ("READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS", "NOAUTH"))
    async def test_a_refusal_reaches_its_caller_and_ends_the_socket_for_the_others(self, code: str) -> None:
        socket, line = open_socket()
        refused, other = ask(socket), ask(socket)
        receive(socket, f"-{code} says the server\r\n".encode())
        with pytest.raises(ReplyError, match=code):
            await refused
        with pytest.raises(ConnectionLost, match=code):
            await other
        assert line.is_aborted

    async def test_moved_retires_the_socket_and_what_is_in_flight_is_answered(self) -> None:
        socket, line = open_socket()
        moved, other = ask(socket), ask(socket)
        receive(socket, b"-MOVED 3999 127.0.0.1:6381\r\n")
        with pytest.raises(ReplyError, match="MOVED"):
            await moved
        await asyncio.sleep(0)
        assert isinstance(socket.end_reason, ConnectionLost)
        assert isinstance(await outcome(ask(socket)), ConnectionLost)  # nothing more is sent
        assert not line.is_aborted
        receive(socket, b"+OK\r\n")
        assert await other == b"OK"
        receive(socket, b"+PONG\r\n")
        assert line.is_aborted

    @pytest.mark.parametrize("code", ("OOM", "MISCONF", "BUSY", "WRONGTYPE", "ERR", "NOGROUP", "NOSCRIPT"))
    async def test_any_other_refusal_leaves_it_open(self, code: str) -> None:
        socket, line = open_socket()
        refused, other = ask(socket), ask(socket)
        receive(socket, f"-{code} says the server\r\n+OK\r\n".encode())
        assert isinstance(await outcome(refused), ReplyError)
        assert await other == b"OK"
        assert not line.is_aborted


async def test_a_call_that_a_signal_cancels_while_it_is_answered_does_not_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class FutureCancelledBySignal(asyncio.Future[Any]):
        """It is cancelled right after it was asked: asyncio cancels the main task inside the handler of SIGINT."""

        def done(self) -> bool:
            is_done = super().done()
            self.cancel()
            return is_done

    socket, _ = open_socket()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "create_future", FutureCancelledBySignal)
        cancelled = ask(socket)
    answered = ask(socket)
    receive(socket, b"+PONG\r\n+PONG\r\n")
    assert cancelled.cancelled()
    assert await answered == b"PONG"
    assert socket.end_reason is None
