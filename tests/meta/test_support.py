"""The suite's own tools do what the other tests rely on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import redis.asyncio

from pychasqui._core import clock
from pychasqui.embedded import LONGEST_SOCKET_PATH
from tests.support.cases import in_one_test
from tests.support.clock import FakeClock
from tests.support.leaks import leaked_keys
from tests.support.proxy import Proxy, _Frames
from tests.support.server import PROJECT, RedisServer
from tests.support.temporary import short_folder
from tests.support.waiting import eventually


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with RedisServer("--appendonly", "yes", "--appendfsync", "always", tcp=True) as server:
        yield server


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[redis.asyncio.Redis]:
    """A client that goes through the proxy and never tries anything twice."""
    client = redis.asyncio.Redis.from_url(proxy.url, retry=None, socket_timeout=5)
    yield client
    await client.aclose()


class TestServer:
    def test_a_server_answers_on_its_socket_and_its_port(self, own_server: RedisServer) -> None:
        own_server.execute("SET", "key", "value")
        with redis.Redis.from_url(own_server.tcp_url) as client:
            assert client.get("key") == b"value"

    def test_a_server_takes_another_port_if_its_own_was_taken_meanwhile(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            server = RedisServer(tcp=True)
            server.port = taken = other.getsockname()[1]
            with server:
                assert server.port != taken
                assert server.execute("PING")

    def test_a_server_reports_its_version(self, own_server: RedisServer) -> None:
        with own_server.client() as client:
            info = client.info("server")
        text = info.get("valkey_version") or info["redis_version"]
        assert ".".join(map(str, own_server.version)) == text

    def test_a_server_keeps_its_addresses_and_data_over_a_restart_and_a_kill(self, own_server: RedisServer) -> None:
        own_server.execute("SET", "key", "value")
        own_server.restart()
        own_server.kill()
        assert not own_server.is_running
        own_server.start()
        with redis.Redis.from_url(own_server.tcp_url) as client:
            assert client.get("key") == b"value"

    def test_a_paused_server_does_not_answer(self, own_server: RedisServer) -> None:
        own_server.pause()
        with (
            redis.Redis.from_url(own_server.url, socket_timeout=0.1, retry=None) as client,
            pytest.raises(redis.TimeoutError),
        ):
            client.ping()
        own_server.resume()
        assert own_server.execute("PING")

    def test_a_paused_server_can_be_stopped(self, own_server: RedisServer) -> None:
        own_server.pause()
        own_server.stop()
        assert not own_server.is_running

    def test_a_failed_start_raises_the_reason(self) -> None:
        server = RedisServer("--no-such-option", "1")
        with pytest.raises(RuntimeError, match="no-such-option"):
            server.start()
        server.close()

    async def test_a_server_ends_with_the_process_that_started_it(self) -> None:
        program = (
            "from tests.support.server import RedisServer\n"
            "server = RedisServer(); server.start(); print(server.pid, server.folder, flush=True); input()"
        )
        owner = subprocess.Popen(
            [sys.executable, "-c", program], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert owner.stdout
        pid, folder = owner.stdout.readline().split()
        assert is_alive(int(pid))
        owner.kill()
        owner.communicate()
        await eventually(lambda: not is_alive(int(pid)) and not os.path.exists(folder))


class TestProxy:
    async def test_the_proxy_passes_all_bytes_on_and_counts_requests(
        self, proxy: Proxy, client: redis.asyncio.Redis
    ) -> None:
        big = bytes(range(256)) * 1200  # every byte, and nothing that reads as a command
        await client.set("big", big, ex=60)
        assert await client.get("big") == big
        assert proxy.count(b"GET") == 1
        assert (proxy.accepted, proxy.connections) == (1, 1)

    async def test_the_proxy_works_over_tcp(self, server: RedisServer, redis_url: str) -> None:
        async with Proxy(server.tcp_url, tcp=True) as proxy, redis.asyncio.Redis.from_url(proxy.url) as client:
            assert await client.ping()

    async def test_a_cut_closes_open_connections_and_lets_new_ones_in(
        self, proxy: Proxy, client: redis.asyncio.Redis
    ) -> None:
        waiting = asyncio.ensure_future(client.blpop(["nothing"]))
        await eventually(lambda: proxy.count(b"BLPOP"))
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            await waiting
        assert await client.ping()

    async def test_a_cut_before_a_request_leaves_it_undone(
        self, proxy: Proxy, client: redis.asyncio.Redis, witness: redis.asyncio.Redis
    ) -> None:
        cut = proxy.cut_before_request(b"INCR")
        with pytest.raises(redis.ConnectionError):
            await client.incr("counter")
        assert cut.done.is_set()
        assert await witness.get("counter") is None

    async def test_a_cut_after_a_request_leaves_it_done_and_later_requests_undone(
        self, proxy: Proxy, client: redis.asyncio.Redis, witness: redis.asyncio.Redis
    ) -> None:
        cut = proxy.cut_after_request(b"second")
        async with client.pipeline(transaction=False) as pipeline:
            for key in ("first", "second", "third"):
                pipeline.set(key, 1, ex=60)
            with pytest.raises(redis.ConnectionError):
                await pipeline.execute()
        assert cut.done.is_set()
        assert await witness.mget("first", "second", "third") == [b"1", b"1", None]

    async def test_a_cut_inside_a_reply_delivers_half_of_it(self, proxy: Proxy, witness: redis.asyncio.Redis) -> None:
        await witness.set("key", "x" * 100, ex=60)
        proxy.cut_mid_reply(b"GET")
        reader, writer = await asyncio.open_unix_connection(proxy.url.removeprefix("unix://"))
        writer.write(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n")
        reply = await reader.read()
        writer.close()
        assert reply.startswith(b"$100\r\nxxx")
        assert len(reply) == len("$100\r\n\r\n") // 2 + 50

    async def test_a_cut_falls_as_often_as_asked(self, proxy: Proxy, client: redis.asyncio.Redis) -> None:
        cut = proxy.cut_before_request(b"INCR", times=2)
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                await client.incr("counter")
        assert cut.done.is_set()
        assert await client.incr("counter") == 1
        await client.delete("counter")

    @pytest.mark.parametrize("direction", ("requests", "replies", None))
    async def test_a_frozen_proxy_holds_bytes_and_closes_no_connection(
        self, proxy: Proxy, client: redis.asyncio.Redis, direction: str | None, witness: redis.asyncio.Redis
    ) -> None:
        await client.ping()
        proxy.freeze(direction)  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(client.set("key", 1, ex=60))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        assert await witness.exists("key") == (1 if direction == "replies" else 0)
        proxy.thaw()
        assert await waiting

    async def test_bytes_held_at_a_cut_are_lost(
        self, proxy: Proxy, client: redis.asyncio.Redis, witness: redis.asyncio.Redis
    ) -> None:
        await client.ping()
        proxy.freeze("requests")
        waiting = asyncio.ensure_future(client.set("key", 1, ex=60))
        await asyncio.wait([waiting], timeout=0.05)
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            await waiting
        proxy.thaw()
        assert not await witness.exists("key")

    async def test_a_refusing_proxy_keeps_old_connections(self, proxy: Proxy, client: redis.asyncio.Redis) -> None:
        await client.ping()
        proxy.refuse()
        async with redis.asyncio.Redis.from_url(proxy.url, retry=None) as late:
            with pytest.raises(redis.ConnectionError):
                await late.ping()
            assert await client.ping()
            proxy.admit()
            assert await late.ping()

    async def test_the_proxy_delays_each_direction(self, proxy: Proxy, client: redis.asyncio.Redis) -> None:
        await client.ping()
        proxy.delay(50)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await client.ping()
        assert loop.time() - start >= 0.1

    async def test_the_proxy_fragments_replies(self, proxy: Proxy) -> None:
        proxy.fragment(1)
        reader, writer = await asyncio.open_unix_connection(proxy.url.removeprefix("unix://"))
        writer.write(b"*1\r\n$4\r\nPING\r\n")
        pieces = [await reader.read(100)]
        while b"".join(pieces) != b"+PONG\r\n":
            pieces.append(await reader.read(100))
        writer.close()
        assert len(pieces) > 1

    async def test_the_proxy_limits_the_bytes_of_a_second_either_way(
        self, proxy: Proxy, client: redis.asyncio.Redis
    ) -> None:
        proxy.limit(1_000_000)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await client.set("key", bytes(200_000), ex=60)
        sent = loop.time()
        assert await client.get("key") == bytes(200_000)
        assert sent - start >= 0.2
        assert loop.time() - sent >= 0.2

    async def test_a_new_connection_goes_to_the_new_target(self, proxy: Proxy, client: redis.asyncio.Redis) -> None:
        with RedisServer() as other:
            other.execute("SET", "here", "other")
            proxy.target = other.url
            assert await client.get("here") == b"other"

    async def test_the_proxy_closes_the_client_when_the_server_is_away(
        self, proxy: Proxy, client: redis.asyncio.Redis
    ) -> None:
        proxy.target = "unix:///nowhere/at/all.sock"
        with pytest.raises(redis.ConnectionError):
            await client.ping()


@pytest.mark.parametrize("step", (1, 3, 1000))
def test_frames_are_split_where_they_end_however_they_arrive(step: int) -> None:
    frames = [
        b"+OK\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"$4\r\n\r\n\r\n\r\n",
        b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$0\r\n\r\n",
        b"%1\r\n+k\r\n~2\r\n#t\r\n,1.5\r\n",
        b"|1\r\n+a\r\n:1\r\n*0\r\n",
        b">2\r\n+invalidate\r\n_\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"PING\r\n",
    ]
    stream = b"".join(frames)
    splitter = _Frames()
    split = [frame for at in range(0, len(stream), step) for frame in splitter.feed(stream[at : at + step])]
    assert split == frames


class TestLeakCheck:
    @pytest.mark.leaves_keys("to show that they are found")
    async def test_the_leak_check_names_keys_without_an_expiry(
        self, server: RedisServer, witness: redis.asyncio.Redis
    ) -> None:
        await witness.set("with an end", 1, ex=60)
        await witness.set("without", 1)
        await witness.xadd("full", {"d": b"x"})
        await witness.xgroup_create("empty", "default", mkstream=True)
        leaked = leaked_keys(server)
        assert [line.partition(":")[0] for line in leaked] == ["b'full'", "b'without'"]

    @pytest.mark.leaves_keys("to show that they are found")
    async def test_the_leak_check_counts_pending_entries_that_are_deleted(
        self, server: RedisServer, witness: redis.asyncio.Redis
    ) -> None:
        await witness.xgroup_create("stream", "default", mkstream=True)
        entry_id = await witness.xadd("stream", {"d": b"x"})
        await witness.xreadgroup("default", "me", {"stream": ">"})
        await witness.xdel("stream", entry_id)
        assert "1 pending" in leaked_keys(server)[0]


class TestEventually:
    async def test_eventually_returns_the_true_value(self) -> None:
        values = iter([0, None, 7])
        assert await eventually(lambda: next(values)) == 7

    async def test_eventually_awaits_an_async_predicate(self) -> None:
        async def yes() -> str:
            return "yes"

        assert await eventually(yes) == "yes"

    async def test_eventually_shows_the_last_value_when_it_gives_up(self) -> None:
        with pytest.raises(AssertionError, match=r"within 0 s; the last value was \[\]"):
            await eventually(list, timeout=0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return True


class TestFakeClock:
    def test_a_fake_clock_stands_still_until_the_test_moves_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = FakeClock(5.0).install(monkeypatch)
        assert [clock.monotonic(), clock.lease_clock(), clock.monotonic()] == [5.0] * 3
        fake.now = 7.5
        assert clock.monotonic() == 7.5

    def test_a_fake_clock_with_a_step_moves_on_at_each_reading(self) -> None:
        fake = FakeClock(1.0, step_s=0.5)
        assert [fake(), fake(), fake()] == [1.0, 1.5, 2.0]


def test_every_case_that_fails_in_one_test_is_named() -> None:
    @in_one_test(("number", "word"), ((1, "a"), (2, "b"), (3, "c")))
    @in_one_test("limit", (0, 9))
    def check(number: int, word: str, limit: int) -> None:
        assert number < limit or number == 2, word

    with pytest.raises(AssertionError) as failure:
        check()
    assert str(failure.value).startswith("2 cases fail:\nnumber=1, word='a': AssertionError: 1 cases fail:\nlimit=0: ")
    assert "number=3, word='c'" in str(failure.value)
    assert "number=2" not in str(failure.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the system's folder for temporary files has a long name")
@pytest.mark.parametrize("folder", ("tmp_path", "short_folder"))
def test_no_folder_of_a_test_is_so_long_that_an_embedded_server_leaves_one_in_tmp(
    folder: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    longest = "x" * 31  # pytest's name of a test's folder
    if folder == "tmp_path":
        path = tmp_path_factory.getbasetemp() / longest / "embedded" / "redis.sock"
    else:
        path = short_folder() / "chasqui" / "embedded" / f"{longest}-01234567" / "redis.sock"
    assert len(os.fsencode(path)) <= LONGEST_SOCKET_PATH
