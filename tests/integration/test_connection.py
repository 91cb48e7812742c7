"""The connection: addresses, the handshake, and replies that reach the right caller on any line."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

import pytest
import redis.asyncio

from pychasqui._redis import endpoint
from pychasqui._redis.connection import Connection
from pychasqui._redis.connector import Connector
from pychasqui.errors import (
    AuthenticationFailed,
    ChasquiError,
    Closed,
    CommandTimeout,
    ConnectionLost,
    NotRedis,
    RedisTrouble,
    ServerTooOld,
    WrongLoop,
)
from tests.support.fake_server import FakeServer, redis_that_says, redis_without_hello, refusal
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually, first_below

SECRET = "hunter2-and-more"


@asynccontextmanager
async def connected(url: str, *, timeout_s: float = 10, **options: Any) -> AsyncIterator[Connection]:
    connection = Connector(url, tls=False, client_name="chasqui-test", **options).make_connection(timeout_s=timeout_s)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with users, whose default user needs no password."""
    with RedisServer(tcp=True) as server:
        server.execute("ACL", "SETUSER", "ann", "on", f">{SECRET}", "~*", "&*", "+@all")
        server.execute("ACL", "SETUSER", "carl", "off", f">{SECRET}", "~*", "+@all")
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    """A server whose default user needs a password."""
    with RedisServer("--requirepass", SECRET, tcp=True) as server:
        yield server


async def provide_secret_late() -> tuple[str]:
    await asyncio.sleep(0.02)  # the server has refused the connection by then
    return (SECRET,)


@contextmanager
def silent_address(port: int) -> Iterator[str]:
    """An address that leaves connections waiting, because as many wait there as it has room for."""
    with socket.create_server(("127.0.0.9", port), backlog=0) as listener, ExitStack() as stack:
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield "127.0.0.9"


class TestAddresses:
    async def test_a_unix_socket(self, redis_url: str) -> None:
        async with connected(redis_url) as connection:
            assert await connection.call("PING") == b"PONG"

    async def test_a_tcp_port(self, server: RedisServer, redis_url: str) -> None:
        async with connected(server.tcp_url) as connection:
            assert await connection.call("ECHO", "x" * 1_000_000) == b"x" * 1_000_000

    async def test_a_bare_host_and_port(self, server: RedisServer, redis_url: str) -> None:
        async with connected(f"127.0.0.1:{server.port}") as connection:
            assert await connection.call("PING") == b"PONG"

    async def test_a_host_whose_first_address_is_silent(
        self, server: RedisServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with silent_address(server.port) as silent:
            monkeypatch.setattr(endpoint, "look_up_addresses", AsyncMock(return_value=[silent, "127.0.0.1"]))
            async with connected(server.tcp_url.replace("127.0.0.1", "localhost")) as connection:
                assert await connection.call("PING", timeout_s=5) == b"PONG"

    async def test_a_database_is_selected(self, redis_url: str, witness: redis.asyncio.Redis) -> None:
        async with connected(f"{redis_url}?db=3") as connection:
            await connection.call("SET", "here", 1, "EX", 60)
            assert not await witness.exists("here")
            assert b"db=3" in await connection.call("CLIENT", "INFO")

    async def test_a_database_that_does_not_exist_is_an_error(self, redis_url: str) -> None:
        async with connected(f"{redis_url}?db=999") as connection:
            with pytest.raises(RedisTrouble, match=r"DB index is out of range.*use a smaller number in redis_url"):
                await connection.call("PING")

    @pytest.mark.parametrize("protocol", (2, 3))
    async def test_a_connection_speaks_both_protocols(self, redis_url: str, protocol: int) -> None:
        async with connected(f"{redis_url}?protocol={protocol}") as connection:
            await connection.call("HSET", "map", "field", "value")
            expected = {2: [b"field", b"value"], 3: {b"field": b"value"}}
            assert await connection.call("HGETALL", "map") == expected[protocol]
            await connection.call("DEL", "map")

    async def test_pushed_messages_are_skipped(self, redis_url: str, witness: redis.asyncio.Redis) -> None:
        async with connected(f"{redis_url}?protocol=3") as connection:
            await connection.call("CLIENT", "TRACKING", "ON", "BCAST")
            for number in range(100):
                await witness.set("tracked", number, ex=60)
                assert await connection.call("ECHO", number) == b"%d" % number

    async def test_the_client_has_a_name(self, redis_url: str, witness: redis.asyncio.Redis) -> None:
        async with connected(redis_url) as connection:
            await connection.call("PING")
            assert "chasqui-test" in {client["name"] for client in await witness.client_list()}

    async def test_no_connection_is_opened_before_it_is_needed(self, proxy: Proxy) -> None:
        async with connected(proxy.url):
            pass
        assert proxy.accepted == 0

    async def test_many_first_calls_share_one_connection(self, proxy: Proxy) -> None:
        async with connected(proxy.url) as connection:
            assert await asyncio.gather(*(connection.call("ECHO", number) for number in range(100))) == [
                b"%d" % number for number in range(100)
            ]
        assert proxy.accepted == 1


class TestCredentials:
    async def test_a_password(self, locked: RedisServer) -> None:
        async with connected(f"redis://:{SECRET}@127.0.0.1:{locked.port}") as connection:
            assert await connection.call("PING") == b"PONG"

    async def test_a_user_and_a_password(self, guarded: RedisServer) -> None:
        async with connected(f"redis://ann:{SECRET}@127.0.0.1:{guarded.port}?protocol=3") as connection:
            assert await connection.call("ACL", "WHOAMI") == b"ann"

    async def test_credentials_in_the_url_of_a_unix_socket_are_used(self, guarded: RedisServer) -> None:
        async with connected(f"{guarded.url}?username=ann&password={SECRET}") as connection:
            assert await connection.call("ACL", "WHOAMI") == b"ann"

    async def test_a_credential_provider_is_asked_for_each_connection(self, guarded: RedisServer) -> None:
        asked = []

        async def provide(address: str | None) -> tuple[str | None, str | None]:
            asked.append(address)
            return "ann", SECRET

        async with connected(guarded.tcp_url, credential_provider=provide) as connection:
            assert await connection.call("ACL", "WHOAMI") == b"ann"
            connection.drop_socket(ConnectionLost("for the test"))
            assert await connection.call("ACL", "WHOAMI") == b"ann"
        assert asked == [f"127.0.0.1:{guarded.port}"] * 2

    @pytest.mark.parametrize(
        ("where", "login"),
        (
            ("locked", f":{SECRET}-not"),
            ("locked", ""),
            ("guarded", f"ann:{SECRET}-not"),
            ("guarded", f"nobody:{SECRET}"),
            ("guarded", f"carl:{SECRET}"),
            ("guarded", f":{SECRET}"),
        ),
        ids=(
            "wrong",
            "missing",
            "wrong of a user",
            "no such user",
            "user is off",
            "none set",
        ),
    )
    async def test_refused_credentials_raise_at_once_and_stay_secret(
        self, where: str, login: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        port = request.getfixturevalue(where).port
        start = monotonic()
        async with connected(f"redis://{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}") as connection:
            with pytest.raises(AuthenticationFailed, match=r"refused the credentials|wants a password") as refused:
                await connection.call("PING")
            printable = "".join(traceback.format_exception(refused.value)) + repr(connection) + caplog.text
        assert monotonic() - start < 4
        assert SECRET not in printable

    async def test_a_name_without_a_password_is_that_of_a_user_who_needs_none(self, guarded: RedisServer) -> None:
        guarded.execute("ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all")
        async with connected(f"redis://open@127.0.0.1:{guarded.port}") as connection:
            assert await connection.call("ACL", "WHOAMI") == b"open"

    async def test_a_missing_password_is_asked_for_with_the_ways_to_give_it(self, locked: RedisServer) -> None:
        async with connected(locked.tcp_url) as connection:
            with pytest.raises(AuthenticationFailed, match=r"redis://:PASSWORD@host .*credential_provider"):
                await connection.call("PING")

    async def test_a_superfluous_password_of_the_default_user_is_refused_too(self, guarded: RedisServer) -> None:
        async with connected(f"redis://default:{SECRET}@127.0.0.1:{guarded.port}") as connection:
            with pytest.raises(AuthenticationFailed):
                await connection.call("PING")

    async def test_a_provider_that_knows_new_credentials_late_is_waited_for(self, guarded: RedisServer) -> None:
        answers = iter([("ann", "outdated"), ("ann", "outdated"), ("ann", SECRET)])

        async def provide(address: str | None) -> tuple[str | None, str | None]:
            return next(answers)

        async with connected(guarded.tcp_url, credential_provider=provide) as connection:
            assert await connection.call("ACL", "WHOAMI") == b"ann"

    async def test_new_credentials_are_tried_by_the_next_call(
        self, guarded: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui._redis.connection.LATE_CREDENTIALS_S", 0)
        answers = iter([("ann", "outdated"), ("ann", SECRET)])

        async def provide(address: str | None) -> tuple[str | None, str | None]:
            return next(answers)

        async with connected(guarded.tcp_url, credential_provider=provide) as connection:
            with pytest.raises(AuthenticationFailed):
                await connection.call("PING")
            assert await connection.call("ACL", "WHOAMI") == b"ann"

    @pytest.mark.parametrize(("patience_s", "kind"), ((5, ConnectionLost), (0, AuthenticationFailed)))
    async def test_a_provider_that_fails_is_an_error_of_ours(
        self, guarded: RedisServer, monkeypatch: pytest.MonkeyPatch, patience_s: float, kind: type[Exception]
    ) -> None:
        """It is asked again for a while, and no longer than the call may take."""
        monkeypatch.setattr("pychasqui._redis.connection.LATE_CREDENTIALS_S", patience_s)

        async def provide(address: str | None) -> tuple[str | None, str | None]:
            raise LookupError("the vault is sealed")

        async with connected(guarded.tcp_url, timeout_s=0.5, credential_provider=provide) as connection:
            with pytest.raises(kind, match=r"credential provider .*LookupError"):
                await connection.call("PING")


class TestOtherServers:
    @pytest.mark.parametrize("version", ("5.0.14", "6.0.9"))
    async def test_a_server_that_is_too_old_is_named_with_the_version_needed(self, version: str) -> None:
        for answer in (redis_that_says(version), redis_without_hello(version)):
            async with FakeServer(answer) as fake, connected(fake.url) as connection:
                with pytest.raises(ServerTooOld, match=rf"{version}.* 6\.2"):
                    await connection.call("PING")

    @pytest.mark.parametrize(
        "fake",
        (
            FakeServer(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>"),
            FakeServer(b"<!DOCTYPE HTML>"),
            FakeServer(greeting=b"220 mail.example.org ESMTP\r\n"),
            FakeServer(greeting=b"SSH-2.0-OpenSSH_9.6\r\n"),
            FakeServer(greeting=b"+OK POP3 server ready\r\n"),
            FakeServer(greeting=bytes(range(256))),
            FakeServer(b"\x15\x03\x01\x00\x02\x02\x46"),
            FakeServer(lambda command: b"+OK\r\n"),
            FakeServer(lambda command: b"*0\r\n"),
            FakeServer(lambda command: b"$-1\r\n"),
            FakeServer(refusal),
        ),
        ids=("http", "html", "smtp", "ssh", "pop3", "noise", "tls", "+OK", "an empty list", "nil", "knows no command"),
    )
    async def test_a_server_that_is_not_redis_is_recognized_at_once(self, fake: FakeServer) -> None:
        start = monotonic()
        async with fake, connected(fake.url) as connection:
            with pytest.raises(NotRedis):
                await connection.call("PING")
        assert monotonic() - start < 4

    @pytest.mark.parametrize("has_provider", (False, True))
    async def test_a_server_with_too_many_clients_is_waited_for(self, locked: RedisServer, has_provider: bool) -> None:
        """It refuses the connection before it has read a command: that is no answer about the password."""
        url = locked.tcp_url if has_provider else locked.tcp_url.replace("redis://", f"redis://:{SECRET}@")
        options: dict[str, Any] = {"credential_provider": provide_secret_late} if has_provider else {}
        async with connected(f"unix://:{SECRET}@{locked.socket_path}") as first, connected(url, **options) as second:
            await first.call("CONFIG", "SET", "maxclients", 1)
            try:
                call = asyncio.create_task(second.call("PING"))
                await eventually(lambda: "raise maxclients" in str(second.trouble) or call.done())
                assert not call.done()
            finally:
                await first.call("CONFIG", "SET", "maxclients", 1000)
            assert await call == b"PONG"

    async def test_a_server_that_never_answers_costs_the_timeout(self) -> None:
        async with FakeServer() as fake, connected(fake.url, timeout_s=0.3) as connection:
            start = monotonic()
            with pytest.raises(ConnectionLost, match="in time"):
                await connection.call("PING")
            assert 0.2 < monotonic() - start < 3

    async def test_a_server_that_is_not_there_costs_the_timeout(self) -> None:
        async with connected("unix:///nowhere/at/all.sock", timeout_s=0.3) as connection:
            start = monotonic()
            with pytest.raises(ConnectionLost, match=r"/nowhere/at/all\.sock"):
                await connection.call("PING")
            assert 0.2 < monotonic() - start < 3

    @pytest.mark.parametrize(
        "url",
        (
            "redis://no..where:6379",
            f"redis://{'x' * 70}.example:6379",
            "unix:///a\0b",
            f"unix:///{'x' * 200}",
            "redis://[::1%25none]:1",
            "redis://127.0.0.1:1",
        ),
    )
    async def test_an_address_that_cannot_even_be_looked_up_is_an_error_of_ours(self, url: str) -> None:
        with pytest.raises(ChasquiError):
            async with connected(url, timeout_s=0.3) as connection:
                await connection.call("PING")

    async def test_the_error_names_the_address_and_not_the_password(self) -> None:
        async with FakeServer() as fake:
            url = fake.url.replace("redis://", f"redis://ann:{SECRET}@")
            async with connected(url, timeout_s=0.2) as connection:
                with pytest.raises(ConnectionLost) as lost:
                    await connection.call("PING")
            printable = "".join(traceback.format_exception(lost.value))
            assert fake.url.removeprefix("redis://") in printable
            assert SECRET not in printable


class TestReplies:
    @pytest.mark.parametrize("protocol", (2, 3))
    async def test_replies_in_single_bytes_are_read_right(self, proxy: Proxy, protocol: int) -> None:
        proxy.fragment(1)
        async with connected(f"{proxy.url}?protocol={protocol}") as connection:
            calls = [connection.call("ECHO", f"{number}\r\n$5\r\n") for number in range(100)]
            assert await asyncio.gather(*calls) == [b"%d\r\n$5\r\n" % number for number in range(100)]

    async def test_replies_over_a_slow_line_come_late_and_right(self, proxy: Proxy) -> None:
        async with connected(proxy.url) as connection:
            await connection.call("PING")
            proxy.delay(100)
            start = monotonic()
            calls = [connection.call("ECHO", number) for number in range(500)]
            assert await asyncio.gather(*calls) == [b"%d" % number for number in range(500)]
            assert 0.2 <= monotonic() - start < 20  # one after the other, they would take 100 s

    async def test_a_large_backlog_waits_for_a_slow_peer_instead_of_filling_memory(self, proxy: Proxy) -> None:
        async with connected(proxy.url) as connection:
            await connection.call("PING")
            proxy.freeze()
            big = b"x" * 1_000_000
            calls = [asyncio.ensure_future(connection.call("ECHO", big)) for _ in range(30)]
            socket = connection.socket
            assert socket is not None
            await eventually(lambda: socket.is_congested)
            later = [asyncio.ensure_future(connection.call("ECHO", number)) for number in range(30)]
            await asyncio.sleep(0)
            proxy.thaw()
            assert {len(reply) for reply in await asyncio.gather(*calls)} == {1_000_000}
            assert await asyncio.gather(*later) == [b"%d" % number for number in range(30)]

    async def test_calls_that_are_cancelled_at_any_point_never_shift_the_others(self, proxy: Proxy) -> None:
        """S16: the fault that once showed people each other's chats."""
        chance = random.Random(20)
        proxy.fragment(7)
        loop = asyncio.get_running_loop()
        async with connected(proxy.url) as connection:
            wrong, answered = [], 0

            async def ask(number: int) -> None:
                nonlocal answered
                reply = await connection.call("ECHO", f"tag-{number}")
                answered += 1
                if reply != b"tag-%d" % number:
                    wrong.append((number, reply))

            tasks = []
            for number in range(2000):
                task = asyncio.create_task(ask(number))
                tasks.append(task)
                fate = chance.random()
                if fate < 0.1:
                    task.cancel()
                elif fate < 0.5:
                    loop.call_later(chance.random() * 0.02, task.cancel)
                if chance.random() < 0.05:
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = sum(task.cancelled() for task in tasks)
            assert wrong == []
            assert cancelled > 100
            assert answered + cancelled == 2000
            assert await connection.call("ECHO", "last") == b"last"
        assert proxy.accepted == 1

    async def test_calls_that_time_out_never_shift_the_others(self, proxy: Proxy) -> None:
        async with connected(proxy.url) as connection:
            await connection.call("PING")
            proxy.freeze("replies")
            with pytest.raises(CommandTimeout):
                await connection.call("ECHO", "late", timeout_s=0.05)
            proxy.thaw()
            assert await connection.call("ECHO", "next") == b"next"
        assert proxy.accepted == 2


class TestLosses:
    @pytest.mark.parametrize("moment", ("cut_before_request", "cut_after_request", "cut_mid_reply"))
    async def test_a_cut_fails_the_waiting_calls_and_the_next_call_connects_again(
        self, proxy: Proxy, moment: str
    ) -> None:
        async with connected(proxy.url) as connection:
            await connection.call("PING")
            getattr(proxy, moment)(b"third")
            words = ("first", "second", "third", "fourth")
            replies = await asyncio.gather(*(connection.call("ECHO", word) for word in words), return_exceptions=True)
            for word, reply in zip(words[:2], replies[:2], strict=True):  # what was answered was answered right
                assert isinstance(reply, ConnectionLost) or reply == word.encode()
            assert all(isinstance(reply, ConnectionLost) for reply in replies[2:])
            assert await connection.call("ECHO", "again") == b"again"
        assert proxy.count(b"third") == 1, "a call is never sent twice"

    async def test_a_frozen_line_costs_the_timeout_and_the_next_call_connects_again(self, proxy: Proxy) -> None:
        async with connected(proxy.url, timeout_s=0.2) as connection:
            await connection.call("PING")
            proxy.freeze()
            start = monotonic()
            with pytest.raises(CommandTimeout):
                await connection.call("PING")
            assert monotonic() - start < 3
            proxy.cut()
            proxy.thaw()
            assert await connection.call("PING", timeout_s=5) == b"PONG"

    async def test_a_connection_that_the_server_kills_comes_back(
        self, redis_url: str, witness: redis.asyncio.Redis
    ) -> None:
        async with connected(redis_url) as connection:
            await connection.call("PING")
            for _ in range(5):
                await witness.client_kill_filter(_type="normal", skipme=True)
                await eventually(lambda: connection.get_live_socket_or_none() is None)
                assert await connection.call("PING") == b"PONG"

    async def test_the_pauses_between_attempts_grow_while_the_server_is_away(self, proxy: Proxy) -> None:
        tries = 0

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal tries
            tries += 1
            writer.transport.abort()

        async with await asyncio.start_server(refuse, "127.0.0.1") as listener:
            port = listener.sockets[0].getsockname()[1]
            async with connected(f"redis://127.0.0.1:{port}", timeout_s=1.0) as connection:
                with pytest.raises(ConnectionLost):
                    await connection.call("PING")
        assert 3 <= tries <= 12

    async def test_the_connection_is_back_within_a_second_of_the_server(self) -> None:
        with RedisServer() as own:
            async with connected(own.url) as connection:
                await connection.call("PING")

                async def back() -> float:
                    own.stop()
                    waiting = asyncio.ensure_future(connection.call("PING"))
                    await asyncio.wait({waiting}, timeout=0.5)
                    own.start()
                    start = monotonic()
                    try:
                        await waiting
                    except ConnectionLost:
                        await connection.call("PING")
                    return monotonic() - start

                assert await first_below(1.5, back) < 1.5
                assert await connection.call("PING") == b"PONG"


class TestEnd:
    async def test_a_call_after_close_is_refused(self, redis_url: str) -> None:
        async with connected(redis_url) as connection:
            await connection.call("PING")
        with pytest.raises(Closed):
            await connection.call("PING")

    async def test_close_fails_the_calls_on_their_way(self, proxy: Proxy) -> None:
        async with connected(proxy.url) as connection:
            await connection.call("PING")
            proxy.freeze()
            calls = [asyncio.ensure_future(connection.call("PING")) for _ in range(10)]
            await asyncio.sleep(0)
        for call in calls:
            with pytest.raises(Closed):
                await call

    async def test_close_fails_the_calls_that_wait_for_a_connection(self) -> None:
        async with FakeServer() as fake, connected(fake.url) as connection:
            call = asyncio.ensure_future(connection.call("PING"))
            await eventually(lambda: fake.accepted)
            await connection.close()
            with pytest.raises(Closed):
                await call

    async def test_close_is_safe_twice_and_before_the_first_call(self, redis_url: str) -> None:
        async with connected(redis_url) as unused, connected(redis_url) as used:
            await used.call("PING")
            socket = used.get_live_socket_or_none()
            for connection in (unused, used):
                await connection.close()
                await connection.close()
                with pytest.raises(Closed):
                    await connection.call("PING")
            assert socket is not None
            assert isinstance(socket.end_reason, Closed)

    async def test_the_server_sees_it_go(self, redis_url: str, witness: redis.asyncio.Redis) -> None:
        async with connected(redis_url) as connection:
            await connection.call("PING")

        async def is_gone() -> bool:
            return "chasqui-test" not in {client["name"] for client in await witness.client_list()}

        await eventually(is_gone)


class TestLoops:
    def test_another_loop_is_refused_while_the_first_lives(self, redis_url: str) -> None:
        connection = Connector(redis_url, tls=False, client_name="chasqui-test").make_connection(timeout_s=5)
        with asyncio.Runner() as first, asyncio.Runner() as second:
            first.run(connection.call("PING"))
            with pytest.raises(WrongLoop):
                second.run(connection.call("PING"))
            assert first.run(connection.call("PING")) == b"PONG"
            first.run(connection.close())

    @pytest.mark.filterwarnings("ignore::ResourceWarning")  # the first loop's socket was never closed
    def test_a_loop_that_has_ended_makes_way_for_the_next(self, redis_url: str) -> None:
        connection = Connector(redis_url, tls=False, client_name="chasqui-test").make_connection(timeout_s=5)
        for _ in range(3):
            assert asyncio.run(_call(connection.call)) == b"PONG"
        with asyncio.Runner() as last:
            last.run(connection.call("PING"))
            last.run(connection.close())
        gc.collect()


async def _call(call: Callable[..., Any]) -> Any:
    return await call("PING")
