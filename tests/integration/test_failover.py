"""A failover behind one address: the former master becomes a replica and keeps every connection that it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any

import pytest

from pychasqui import Job, Queue, QueueEvents, Worker
from pychasqui._redis.connection import Connection
from pychasqui._redis.keys import Keys
from pychasqui._redis.socket import Redirected
from pychasqui.errors import AddUnknown, NotReplicated, RedisTrouble
from tests.support.fake_server import FakeServer, redis_that_says
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually

RECOVERED_S = 2.0  # of what the new master is reachable for
LATE_S = 1.0  # an add beyond its time; make chaos with --topology has 0.5, on a machine that is not busy


class Pair:
    """A master, its replica, and the one address of both."""

    def __init__(self, proxy: Proxy, old: RedisServer, new: RedisServer) -> None:
        self.proxy, self.old, self.new = proxy, old, new

    @property
    def url(self) -> str:
        return self.proxy.url

    async def demote(self) -> None:
        """The master becomes a replica of the other, and the address still leads to it."""
        await eventually(self._is_in_sync)
        self.new.execute("REPLICAOF", "NO", "ONE")
        self.old.execute("REPLICAOF", "127.0.0.1", str(self.new.port))

    async def fail_over(self) -> None:
        await self.demote()
        self.proxy.target = self.new.url

    def _is_in_sync(self) -> bool:
        offset = self.old.execute("INFO", "replication")["master_repl_offset"]
        follows: bool = self.new.execute("INFO", "replication").get("slave_repl_offset") == offset
        return follows


@asynccontextmanager
async def a_pair() -> AsyncIterator[Pair]:
    with RedisServer(tcp=True) as old, RedisServer(tcp=True) as new:
        new.execute("REPLICAOF", "127.0.0.1", str(old.port))
        await eventually(lambda: new.execute("INFO", "replication")["master_link_status"] == "up", timeout=20)
        async with Proxy(old.url) as proxy:
            yield Pair(proxy, old, new)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with a_pair() as pair:
        yield pair


class LongJobHandler:
    """Counts its jobs; the job "long" runs until the test lets it end."""

    def __init__(self) -> None:
        self.begun: Counter[Any] = Counter()
        self.may_end = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.begun[job.data] += 1
        if job.data == "long":
            await self.may_end.wait()


class TestWorkers:
    async def test_jobs_run_again_within_two_seconds_and_none_runs_twice(self, pair: Pair, queue_name: str) -> None:
        runs, others = LongJobHandler(), LongJobHandler()
        async with (
            Queue(queue_name, redis_url=pair.url) as queue,
            Worker(queue_name, runs, redis_url=pair.url, lease_ms=1500),
        ):
            await queue.add("run", "long")
            await eventually(lambda: runs.begun["long"])
            async with Worker(queue_name, others, redis_url=pair.url, lease_ms=1500):
                await pair.fail_over()
                start = monotonic()
                await queue.add_bulk([{"name": "run", "data": number} for number in range(5)])
                await eventually(lambda: (runs.begun + others.begun).total() == 6, timeout=40)
                assert monotonic() - start < RECOVERED_S
                await asyncio.sleep(2.5)  # longer than a lease and what others wait beyond it
                runs.may_end.set()
        assert runs.begun + others.begun == Counter({"long": 1} | dict.fromkeys(range(5), 1))
        assert pair.new.execute("XLEN", Keys(queue_name).stream) == 0

    async def test_an_idle_worker_holds_its_lease_at_the_new_master(self, pair: Pair, queue_name: str) -> None:
        async with Worker(queue_name, LongJobHandler(), redis_url=pair.url, lease_ms=1000) as worker:
            await pair.fail_over()
            key = Keys(queue_name).workers

            def lease() -> float:
                return float(pair.new.execute("ZSCORE", key, worker.consumer_id) or 0)

            before = lease()
            await eventually(lambda: lease() > before, timeout=RECOVERED_S + 1)

    async def test_a_worker_that_starts_on_the_former_master_finds_the_new_one(
        self, pair: Pair, queue_name: str
    ) -> None:
        runs = LongJobHandler()
        async with Queue(queue_name, redis_url=pair.old.url) as queue:
            await queue.add("run", 1)
        await pair.demote()
        worker = Worker(queue_name, runs, redis_url=pair.url)
        running = asyncio.create_task(worker.run())
        try:
            await asyncio.wait({running}, timeout=0.5)
            assert not running.done()
            pair.proxy.target = pair.new.url
            start = monotonic()
            await eventually(lambda: runs.begun[1], timeout=40)
            assert monotonic() - start < RECOVERED_S
        finally:
            await worker.close()
            await running

    async def test_the_log_says_once_that_the_server_is_a_replica(
        self, pair: Pair, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", logger="chasqui")

        def find_changes() -> list[str]:
            messages = [record.message for record in caplog.records]
            return [message for message in messages if "cannot reach" in message or "has reached" in message]

        async with Worker(queue_name, LongJobHandler(), redis_url=pair.url, lease_ms=600):
            await pair.demote()
            await asyncio.sleep(2)
            pair.proxy.target = pair.new.url
            await eventually(lambda: "READONLY" in caplog.text and "has reached" in find_changes()[-1])
            changes = find_changes()
        # Of several connections, one that the demoted server has closed may share that of another until READONLY comes.
        assert ["has reached" in message for message in changes] in ([False, True], [False, True, False, True])
        assert any("READONLY" in message for message in changes)


class TestQueues:
    async def test_every_call_recovers_by_itself(self, pair: Pair, queue_name: str) -> None:
        async with Queue(queue_name, redis_url=pair.url) as queue:
            await queue.pause()
            job = await queue.add("run", 1, delay_ms=60_000)
            await pair.fail_over()
            await queue.resume()
            assert await queue.cancel_delayed(job.id)
            assert not await queue.is_paused()
        assert pair.new.execute("EXISTS", Keys(queue_name).paused) == 0

    async def test_replicas_are_asked_for_by_the_server_that_took_the_add(self, pair: Pair, queue_name: str) -> None:
        async with Queue(queue_name, redis_url=pair.url, timeout_s=5) as queue:
            await queue.add("run", 1, wait_replicas=1)
            await pair.fail_over()
            for number in (2, 3):
                await queue.add("run", number, wait_replicas=1)
            await queue.add_bulk([{"name": "run", "data": 4}], wait_replicas=1)
        assert pair.new.execute("XLEN", Keys(queue_name).stream) == 4

    async def test_a_demotion_between_the_add_and_the_replicas_is_not_taken_for_an_answer(
        self, pair: Pair, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=pair.url, timeout_s=3) as queue:
            await queue.add("run", 1, wait_replicas=1)
            pair.new.pause()
            try:
                adding = asyncio.create_task(queue.add("run", 2, wait_replicas=1))
                await eventually(lambda: pair.old.execute("XLEN", Keys(queue_name).stream) == 2)
                pair.old.execute("REPLICAOF", "127.0.0.1", "1")
                with pytest.raises(NotReplicated, match="added, but nobody knows"):
                    await adding
            finally:
                pair.new.resume()

    @pytest.mark.needs_all_rights("a socket is retired with PING, which is a right in a cluster alone")
    async def test_an_add_whose_connection_has_moved_on_before_its_answer_does_not_hang(
        self, pair: Pair, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As when a slot moves while the former node is still a master: its socket answers what is under way."""
        retire_all = _note_connections_to_retire(monkeypatch)
        async with Queue(queue_name, redis_url=pair.url, timeout_s=3) as queue:
            await queue.add("run", 1, wait_replicas=1)
            adding = asyncio.create_task(queue.add("run", 2, wait_replicas=1))
            await asyncio.sleep(0)
            for retire in retire_all:
                retire()
            async with asyncio.timeout(5):
                with pytest.raises(NotReplicated, match="the connection has moved on"):
                    await adding
        assert pair.old.execute("XLEN", Keys(queue_name).stream) == 2

    async def test_replicas_that_are_away_hold_up_no_other_add(self, pair: Pair, queue_name: str) -> None:
        """All adds share one WAIT at a time, and each of them ends when its own time is up."""

        async def add(number: int) -> float:
            await asyncio.sleep(0.05 * number)
            start = monotonic()
            with pytest.raises(NotReplicated):
                await queue.add("run", number, wait_replicas=1)
            return monotonic() - start

        async with Queue(queue_name, redis_url=pair.url, timeout_s=1) as queue:
            await queue.add("run", 0, wait_replicas=1)
            pair.new.pause()
            try:
                took_s = await asyncio.gather(*map(add, range(12)))
            finally:
                pair.new.resume()
            assert max(took_s) < 1 + LATE_S
            assert pair.old.execute("XLEN", Keys(queue_name).stream) == 13

    async def test_events_go_on(self, pair: Pair, queue_name: str) -> None:
        async with (
            QueueEvents(queue_name, redis_url=pair.url, block_ms=200) as events,
            Queue(queue_name, redis_url=pair.url) as queue,
            Worker(queue_name, LongJobHandler(), redis_url=pair.url),
        ):
            await pair.fail_over()
            job = await queue.add("run", 1)
            async with asyncio.timeout(40):
                async for event in events:
                    if event.name == "completed":
                        assert event.job_id == job.id
                        break


async def test_a_script_that_the_server_always_loses_is_asked_for_with_pauses(queue_name: str) -> None:
    hello = redis_that_says("7.0.0")

    def forgetful(command: list[bytes]) -> bytes | None:
        return hello(command) if command[0].upper() == b"HELLO" else b"-NOSCRIPT No matching script.\r\n"

    async with FakeServer(forgetful) as fake, Queue(queue_name, redis_url=fake.url, timeout_s=1) as queue:
        with pytest.raises(RedisTrouble):
            await queue.add("run", 1)
        with pytest.raises(RedisTrouble):
            await queue.cancel_delayed("x")
        assert len(fake.commands) < 50


@pytest.mark.parametrize(
    "refusal",
    (
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "ASK 3999 127.0.0.1:6381",
        "LOADING Redis is loading the dataset in memory",
        "ERR Script attempted to access a non local key in a cluster node",
    ),
)
async def test_an_add_that_a_node_refuses_is_sent_again_and_at_last_known_to_be_not_added(
    queue_name: str, refusal: str
) -> None:
    hello, is_over = redis_that_says("7.0.0"), False

    def node(command: list[bytes]) -> bytes | None:
        if command[0].upper() == b"HELLO":
            return hello(command)
        return b":1\r\n" if is_over else f"-{refusal}\r\n".encode()

    async with (
        FakeServer(node) as fake,
        Queue(queue_name, redis_url=fake.url, timeout_s=0.5) as queue,
        Queue(queue_name, redis_url=fake.url, timeout_s=30) as patient,
    ):
        with pytest.raises(RedisTrouble) as raised:
            await queue.add("run", 1)
        assert not isinstance(raised.value, AddUnknown)
        adding = asyncio.create_task(patient.add("run", 2))
        await asyncio.sleep(0.1)
        is_over = True
        await adding


@pytest.mark.needs_all_rights("a socket is retired with PING, which is a right in a cluster alone")
async def test_replicas_are_counted_on_two_connections_at_once(
    redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a slot moves: the end of the former connection's round does not end that of the new one."""
    retire_all = _note_connections_to_retire(monkeypatch)
    async with Queue(queue_name, redis_url=redis_url, timeout_s=0.4) as queue:
        replicated = queue._get_or_open_loop_session().sender._replica_adder
        adds = [asyncio.create_task(queue.add("run", 1, wait_replicas=1))]
        await eventually(lambda: len(replicated._awaiting_replicas) == 1, every=0)
        for retire in retire_all:
            retire()
        adds.append(asyncio.create_task(queue.add("run", 2, wait_replicas=1)))
        await eventually(lambda: len(replicated._awaiting_replicas) == 2, every=0)
        with pytest.raises(NotReplicated, match="nobody knows"):
            await adds[0]
        adds.append(asyncio.create_task(queue.add("run", 3, wait_replicas=1)))
        for adding in adds[1:]:
            with pytest.raises(NotReplicated, match="only 0 of 1"):
                await adding
        await queue.obliterate()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def _note_connections_to_retire(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Returns what makes each connection leave its socket, which answers what is under way."""
    retire_all: list[Callable[[], None]] = []

    class Noted(Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            retire_all.append(
                partial(self._leave_socket_and_close_if_last, Redirected("the slot has moved"), waits_for_replies=True)
            )

    monkeypatch.setattr("pychasqui._redis.connector.Connection", Noted)
    return retire_all
