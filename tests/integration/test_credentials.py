"""Credential providers: every kind of them, late ones, and passwords that change on the server under load."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from redis.credentials import CredentialProvider as RedisPyProvider
from redis.credentials import UsernamePasswordCredentialProvider

from pychasqui import AuthenticationFailed, ConnectionLost, InvalidType, Job, Queue, RedisTrouble, Worker
from pychasqui._redis.connector import Connector
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.vault import Vault
from tests.support.waiting import eventually, first_below


@pytest.fixture
async def vault(server: RedisServer, redis_url: str) -> AsyncIterator[Vault]:
    vault = Vault(server)
    yield vault
    vault.remove_user_and_close_if_last()


class Plain:
    def get_credentials(self) -> tuple[str, str]:
        assert threading.current_thread() is not threading.main_thread(), "it would block the event loop"
        return "ann", "first"


class Async:
    async def get_credentials_async(self) -> tuple[str, str]:
        return "ann", "first"

    def get_credentials(self) -> tuple[str, str]:
        raise AssertionError("the other one is there")


class AsyncAlone:
    async def get_credentials_async(self) -> tuple[str, str]:
        return "ann", "first"


class LikeRedisPy(RedisPyProvider):  # type: ignore[misc]
    def get_credentials(self) -> tuple[str, str]:
        return "ann", "first"


class Called:
    async def __call__(self) -> tuple[str, str]:
        return "ann", "first"


async def with_address(address: str | None) -> tuple[str, str]:
    return "ann", "first"


KINDS: dict[str, Any] = {
    "async function": with_address,
    "plain function": lambda: ("ann", "first"),
    "plain function with the address": lambda address: ("ann", "first", None),
    "function that returns an awaitable": lambda: with_address(None),
    "object that is called": Called(),
    "object": Plain(),
    "async object": Async(),
    "object that can only be asked by a coroutine": AsyncAlone(),
    "object of a class of redis-py": LikeRedisPy(),
    "object of redis-py": UsernamePasswordCredentialProvider("ann", "first"),
}


@pytest.mark.parametrize("provider", KINDS.values(), ids=KINDS)
async def test_every_kind_of_provider_is_asked(
    vault: Vault, queue_name: str, redis_url: str, server: RedisServer, provider: Any
) -> None:
    async with Queue(queue_name, redis_url=redis_url, credential_provider=provider) as queue:
        await queue.counts()
        with server.client() as client:
            users = {one["name"]: one["user"] for one in client.client_list()}
    assert users[f"chasqui-queue-{queue_name}"] == "ann"


async def test_an_object_that_is_no_provider_is_refused_at_once() -> None:
    with pytest.raises(InvalidType, match=r"a function or an object with get_credentials\(\) or .*, not str"):
        Queue("emails", credential_provider="secret")  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ("secret", (), ("ann", b"secret"), ("ann", "secret", "1"), ("ann", "secret", -1)))
async def test_an_answer_of_another_shape_is_an_error_that_does_not_show_it(redis_url: str, answer: Any) -> None:
    async with Queue("emails", redis_url=redis_url, credential_provider=lambda: answer) as queue:
        with pytest.raises(AuthenticationFailed, match=r"must return \(username, password\)") as refused:
            await queue.add("send")
    assert "secret" not in str(refused.value)


async def test_a_provider_that_ends_its_thread_has_failed(redis_url: str) -> None:
    async with Queue("emails", redis_url=redis_url, timeout_s=0.5, credential_provider=sys.exit) as queue:
        with pytest.raises(RedisTrouble, match=r"credential provider for .* failed: SystemExit"):
            await queue.add("send")


@pytest.mark.parametrize("is_plain", (False, True))
@pytest.mark.parametrize("ending", (asyncio.CancelledError, SystemExit))
async def test_an_async_provider_that_ends_its_task_has_failed_and_is_asked_again(
    vault: Vault, queue_name: str, redis_url: str, ending: type[BaseException], is_plain: bool
) -> None:
    endings = [ending]

    async def provide() -> tuple[str, str]:
        if endings:
            raise endings.pop()
        return "ann", "first"

    provider: Any = (lambda: provide()) if is_plain else provide
    async with Queue(queue_name, redis_url=redis_url, credential_provider=provider) as queue:
        await queue.add("send")
        assert await queue.purge("waiting") == 1
    assert not endings


async def test_a_provider_that_has_failed_has_answered(redis_url: str) -> None:
    answer: Any = "of another shape"
    connector = Connector(redis_url, tls=False, client_name="chasqui-test", credential_provider=lambda: answer)
    connection = connector.make_connection(timeout_s=5)
    try:
        with pytest.raises(AuthenticationFailed, match=r"must return \(username, password\)"):
            await connection.call("PING")
        assert connection.trouble is None
    finally:
        await connection.close()


class TestLate:
    async def test_an_add_waits_for_a_provider_within_its_time(
        self, vault: Vault, queue_name: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also for longer than the handshake of a server may take."""
        monkeypatch.setattr("pychasqui._redis.connection.CONNECT_TIMEOUT_S", 0.1)

        async def provide() -> tuple[str, str]:
            await asyncio.sleep(0.4)
            return "ann", "first"

        async with Queue(queue_name, redis_url=redis_url, timeout_s=20, credential_provider=provide) as queue:
            await queue.add("send")
            assert await queue.purge("waiting") == 1

    async def test_an_add_names_the_provider_that_it_has_waited_for(self, queue_name: str, redis_url: str) -> None:
        async def provide() -> tuple[str, str]:
            await asyncio.sleep(60)
            return "ann", "first"

        start = time.monotonic()
        async with Queue(queue_name, redis_url=redis_url, timeout_s=0.2, credential_provider=provide) as queue:
            with pytest.raises(ConnectionLost, match="the credential provider has not answered yet"):
                await queue.add("send")
        assert time.monotonic() - start < 10

    async def test_an_add_waits_for_a_provider_that_fails_for_a_moment(
        self, vault: Vault, queue_name: str, redis_url: str
    ) -> None:
        asked = 0

        def provide() -> tuple[str, str]:
            nonlocal asked
            asked += 1
            if asked < 3:
                raise LookupError("the vault is sealed")
            return "ann", "first"

        async with Queue(queue_name, redis_url=redis_url, timeout_s=20, credential_provider=provide) as queue:
            await queue.add("send")
            assert await queue.purge("waiting") == 1
        assert asked == 3

    async def test_a_late_provider_is_asked_again_at_short_intervals(
        self, vault: Vault, queue_name: str, redis_url: str
    ) -> None:
        """So that jobs flow half a second after it knows the password, however late that is."""

        async def longest_interval_s() -> float:
            asked_at: list[float] = []

            def provide() -> tuple[str, str]:
                asked_at.append(time.monotonic())
                return "ann", "first" if asked_at[-1] > asked_at[0] + 2 else "wrong"

            async with Queue(queue_name, redis_url=redis_url, timeout_s=20, credential_provider=provide) as queue:
                await queue.counts()
            return max(after - before for before, after in pairwise(asked_at))

        assert await first_below(0.45, longest_interval_s) > 0

    async def test_a_process_ends_though_its_provider_hangs(self, redis_url: str) -> None:
        released = threading.Event()

        def provide() -> tuple[str, str]:
            released.wait()
            return "ann", "first"

        async with Queue("emails", redis_url=redis_url, timeout_s=0.1, credential_provider=provide) as queue:
            with pytest.raises(ConnectionLost):
                await queue.add("send")
        assert [one.daemon for one in threading.enumerate() if one.name == "chasqui credentials"] == [True]
        released.set()


class TestRotation:
    async def test_no_add_fails_and_no_job_is_lost_while_passwords_change(
        self, vault: Vault, queue_name: str, redis_url: str
    ) -> None:
        """Connections break off as well, and each time the provider knows the new password later than the server."""
        ran: set[int] = set()

        async def handle(job: Job) -> None:
            ran.add(job.data)

        options: dict[str, Any] = {"redis_url": redis_url, "credential_provider": vault.provide}
        added, is_over = 0, False

        async def add(queue: Queue) -> None:
            nonlocal added
            while not is_over:
                number, added = added, added + 1
                await queue.add("count", number)

        async with Queue(queue_name, timeout_s=30, **options) as queue, Worker(queue_name, handle, **options):
            adding = [asyncio.create_task(add(queue)) for _ in range(5)]
            for password in ("second", "third", "fourth"):
                vault.rotate(password)
                vault.drop_connections()
                await asyncio.sleep(0.1)
                vault.set_password(password)
                seen = added + 100
                while added < seen:
                    await asyncio.sleep(0.01)
            is_over = True
            await asyncio.gather(*adding)
            await eventually(lambda: len(ran) == added, timeout=30)
        assert ran == set(range(added))

    async def test_a_live_connection_stays_when_the_password_changes(
        self, vault: Vault, queue_name: str, redis_url: str
    ) -> None:
        async with (
            Proxy(redis_url) as proxy,
            Queue(queue_name, redis_url=proxy.url, credential_provider=vault.provide) as queue,
        ):
            await queue.counts()
            vault.rotate("second")
            await queue.counts()
            assert (proxy.accepted, vault.asked) == (1, 1)

    async def test_live_connections_get_the_next_token_before_the_last_one_ends(
        self, vault: Vault, queue_name: str, redis_url: str, server: RedisServer
    ) -> None:
        """Of a queue that is idle, and of a worker whose read blocks."""

        async def provide() -> tuple[str, str, float]:
            vault.asked += 1
            server.ask("ACL", "SETUSER", "ann", f">token-{vault.asked}")
            return "ann", f"token-{vault.asked}", 0.4

        done: asyncio.Queue[Job] = asyncio.Queue()
        async with (
            Proxy(redis_url) as proxy,
            Queue(queue_name, redis_url=proxy.url, credential_provider=provide) as queue,
            Worker(queue_name, done.put, redis_url=proxy.url, credential_provider=provide, read_block_ms=100),
        ):
            await queue.add("send", 1)
            await done.get()
            before, calls = proxy.accepted, _calls_of(server, "auth")
            await eventually(lambda: _calls_of(server, "auth") >= calls + 2 * before, timeout=30)
            await queue.add("send", 2)
            assert (await done.get()).data == 2
            assert proxy.accepted == before

    async def test_a_provider_that_fails_costs_no_live_connection(
        self, vault: Vault, queue_name: str, redis_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def provide() -> tuple[str, str, float]:
            vault.asked += 1
            if vault.asked > 1:
                raise LookupError("the vault is sealed")
            return "ann", "first", 0.1

        async with (
            Proxy(redis_url) as proxy,
            Queue(queue_name, redis_url=proxy.url, credential_provider=provide) as queue,
        ):
            await queue.counts()
            await eventually(lambda: "keeps its last credentials" in caplog.text)
            await queue.counts()
            assert proxy.accepted == 1


def _calls_of(server: RedisServer, command: str) -> int:
    text = server.ask("INFO", "commandstats").decode()
    line = next((line for line in text.splitlines() if line.startswith(f"cmdstat_{command}:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])
