"""P9 and P16: an add is made once over any failure of the line and the server, and it never hangs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import hiredis
import pytest
import redis.asyncio

from pychasqui import AddUnknown, ConnectionLost, Job, Queue, QueueFull, RedisTrouble
from pychasqui._redis.adding import AddBroker, AddSession
from pychasqui._redis.keys import Keys
from pychasqui._redis.socket import Socket
from tests.support.fake_server import FakeServer, redis_that_says
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream, twice
from tests.support.waiting import eventually, first_below

SOON_S = 3.0  # the timeout of 0.3 s, and time for a busy machine; sooner than by a timeout of the connection's own
MOMENTS = ("cut_before_request", "cut_after_request", "cut_mid_reply")
Flow = Callable[[Queue], Coroutine[Any, Any, list[Job]]]


@pytest.fixture
async def queue(proxy: Proxy, queue_name: str) -> AsyncIterator[Queue]:
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        yield queue


async def one(queue: Queue) -> list[Job]:
    return [await queue.add("send", 1)]


async def one_after_another(queue: Queue) -> list[Job]:
    return [await queue.add("send", number) for number in range(5)]


async def a_bulk(queue: Queue) -> list[Job]:
    return await queue.add_bulk({"name": "send", "data": number} for number in range(50))


async def a_bulk_in_several_batches(queue: Queue) -> list[Job]:
    return await queue.add_bulk({"name": "send", "data": number} for number in range(7500))


async def many_tasks(queue: Queue) -> list[Job]:
    async def add(task: int) -> list[Job]:
        return [await queue.add("send", (task, number)) for number in range(5)]

    return [job for jobs in await asyncio.gather(*(add(task) for task in range(100))) for job in jobs]


async def everything_at_once(queue: Queue) -> list[Job]:
    flows = await asyncio.gather(*(flow(queue) for flow in (one, many_tasks, a_bulk, a_bulk_in_several_batches)))
    return [job for jobs in flows for job in jobs]


FLOWS = (one, one_after_another, a_bulk, a_bulk_in_several_batches, many_tasks, everything_at_once)


class TestCuts:
    @pytest.mark.parametrize("times", (1, 3))
    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("flow", FLOWS)
    async def test_a_connection_cut_at_an_add_adds_each_job_once(
        self, queue: Queue, stream: Stream, proxy: Proxy, flow: Flow, moment: str, times: int
    ) -> None:
        cut = getattr(proxy, moment)(b"EVAL", times=times)
        added = await flow(queue)
        ids = await stream.ids()
        assert sorted(ids) == sorted(job.id for job in added)
        assert cut.fallen == times or times > 1
        assert cut.fallen > 0

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_cut_after_the_first_call_adds_each_job_once(
        self, queue: Queue, stream: Stream, proxy: Proxy, moment: str
    ) -> None:
        """By then the script travels as a hash, and the ledger has other entries."""
        before = await many_tasks(queue)
        getattr(proxy, moment)(b"EVALSHA")
        after = await many_tasks(queue)
        assert sorted(await stream.ids()) == sorted(job.id for job in before + after)

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_consecutive_adds_keep_their_order_over_cuts(
        self, queue: Queue, stream: Stream, proxy: Proxy, moment: str
    ) -> None:
        added = []
        for number in range(30):
            if number % 3 == 0:
                getattr(proxy, moment)(b"EVAL")
            added.append((await queue.add("send", number)).id)
        assert await stream.ids() == added

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_bulk_keeps_its_order(self, queue: Queue, stream: Stream, proxy: Proxy, moment: str) -> None:
        getattr(proxy, moment)(b"EVAL", times=4)
        added = await queue.add_bulk({"name": "send", "data": number} for number in range(10_000))
        assert await stream.ids() == [job.id for job in added]

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_handshake_that_is_cut_is_made_again(
        self, queue: Queue, stream: Stream, proxy: Proxy, moment: str
    ) -> None:
        getattr(proxy, moment)(b"HELLO", times=3)
        added = await many_tasks(queue)
        assert sorted(await stream.ids()) == sorted(job.id for job in added)

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_bounded_queue_holds_its_bound_and_answers_each_caller_correctly(
        self, proxy: Proxy, queue_name: str, stream: Stream, moment: str
    ) -> None:
        async with Queue(queue_name, redis_url=proxy.url, max_stream_len=30) as queue:
            getattr(proxy, moment)(b"EVAL", times=2)
            results = await asyncio.gather(*(queue.add("send", n) for n in range(100)), return_exceptions=True)
        assert await stream.ids() == [result.id for result in results if isinstance(result, Job)]
        assert sum(isinstance(result, QueueFull) for result in results) == 70

    @pytest.mark.parametrize("moment", MOMENTS)
    async def test_a_bulk_that_finds_no_room_adds_none(
        self, proxy: Proxy, queue_name: str, stream: Stream, moment: str
    ) -> None:
        async with Queue(queue_name, redis_url=proxy.url, max_stream_len=2499) as queue:
            getattr(proxy, moment)(b"EVAL")
            with pytest.raises(QueueFull):
                await queue.add_bulk({"name": "send", "data": n} for n in range(2500))
        assert await stream.length() == 0

    @pytest.mark.parametrize("seed", range(3))
    async def test_cuts_at_random_add_each_job_once(
        self, queue: Queue, stream: Stream, proxy: Proxy, seed: int
    ) -> None:
        chance = random.Random(seed)

        def has_sent(count: int) -> bool:
            return len(proxy.requests) >= count

        async def cut_now_and_then() -> None:
            """Lets some calls through between cuts: on a slow machine, no call would pass between cuts by time."""
            while True:
                await eventually(
                    partial(has_sent, len(proxy.requests) + chance.randint(5, 15)), timeout=50, every=0.001
                )
                await asyncio.sleep(chance.random() * 0.01)
                if chance.random() < 0.5:
                    proxy.cut()
                else:
                    await getattr(proxy, chance.choice(MOMENTS))(b"EVAL").done.wait()

        cutting = asyncio.create_task(cut_now_and_then())
        added: list[Job] = []
        while proxy.accepted < 5:
            added += await everything_at_once(queue)
            assert not cutting.done()
        cutting.cancel()
        assert sorted(await stream.ids()) == sorted(job.id for job in added)

    @pytest.mark.parametrize("is_closed", (False, True))
    @pytest.mark.parametrize("flow", (one, a_bulk))
    async def test_a_request_that_arrives_late_after_it_was_sent_again_adds_nothing(
        self, queue: Queue, stream: Stream, proxy: Proxy, witness: Any, flow: Flow, is_closed: bool
    ) -> None:
        """Of a connection that was cut, bytes may be on their way: also when the queue has added more, or is closed."""
        await queue.add("first")
        cut = proxy.cut_before_request(b"send")
        sent = len(proxy.requests)
        await flow(queue)
        assert cut.fallen
        late = next(request for request in proxy.requests[sent:] if b"send" in request)
        for _ in range(120):  # a server that remembers numbers itself remembers 100
            await queue.add("more")
        if is_closed:
            await queue.close()
        before = await stream.ids()
        async with witness.client() as client:
            await client.execute_command(*_split_request(late))
        assert await stream.ids() == before


class TestServer:
    async def test_clients_killed_all_the_time_add_each_job_once(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        """T7: 20,000 jobs from 50 tasks."""
        kills, is_done = 0, False

        async def kill() -> None:
            nonlocal kills
            while not is_done:
                kills += await witness.client_kill_filter(_type="normal", skipme=True)
                await asyncio.sleep(0.01)

        async with Queue(queue_name, redis_url=redis_url) as queue:

            async def add(task: int) -> list[str]:
                return [(await queue.add("send", (task, number))).id for number in range(400)]

            killing = asyncio.create_task(kill())
            added = [job_id for ids in await asyncio.gather(*(add(task) for task in range(50))) for job_id in ids]
            is_done = True
            await killing
        assert len(added) == 20_000
        assert sorted(await stream.ids()) == sorted(added)
        assert kills >= 5

    @pytest.mark.parametrize("how", ("restart", "kill and start"))
    async def test_a_restart_in_the_middle_adds_each_job_once(self, queue_name: str, how: str) -> None:
        with RedisServer("--appendonly", "yes", "--appendfsync", "always") as own:
            async with Queue(queue_name, redis_url=own.url) as queue:

                async def add(task: int) -> list[str]:
                    return [(await queue.add("send", (task, number))).id for number in range(30)]

                adding = asyncio.gather(*(add(task) for task in range(50)))
                client = redis.asyncio.Redis.from_url(own.url)
                stream = Stream(client, queue_name)
                await eventually(lambda: _holds(stream, 200))
                await client.aclose()
                if how == "kill and start":
                    await asyncio.to_thread(own.kill)
                    await asyncio.to_thread(own.start)
                else:
                    await asyncio.to_thread(own.restart)
                added = [job_id for ids in await adding for job_id in ids]
                ids = await stream.ids()
                await client.aclose()
            assert sorted(ids) == sorted(added)
            assert len(added) == 1500

    async def test_a_lone_add_whose_answer_a_restart_swallows_is_added_once(self, queue_name: str) -> None:
        with RedisServer("--appendonly", "yes", "--appendfsync", "always") as own:
            async with Proxy(own.url) as line, Queue(queue_name, redis_url=line.url) as queue:
                added = [(await queue.add("send", number)).id for number in range(3)]
                line.freeze("replies")
                adding = asyncio.create_task(queue.add("send", 3))
                await eventually(lambda: own.execute("XLEN", Keys(queue_name).stream) == 4)
                await asyncio.to_thread(own.kill)
                line.thaw()
                await asyncio.to_thread(own.start)
                added.append((await adding).id)
                client = redis.asyncio.Redis.from_url(own.url)
                assert await Stream(client, queue_name).ids() == added
                await client.aclose()

    @pytest.mark.needs_all_rights("it takes rights away from the user that has all")
    @pytest.mark.parametrize("flow", (one, a_bulk))
    async def test_a_refusal_of_what_is_sent_again_leaves_it_unknown(self, queue_name: str, flow: Flow) -> None:
        """The first sending has added it."""
        with RedisServer() as own:
            async with Proxy(own.url) as line, Queue(queue_name, redis_url=line.url) as queue:
                await queue.add("send", 0)
                cut = line.cut_after_request(b"send")
                line.refuse()
                adding = asyncio.create_task(flow(queue))
                await cut.done.wait()
                own.execute("ACL", "SETUSER", "default", "-xadd", "-eval", "-evalsha")
                line.admit()
                with pytest.raises(AddUnknown, match="NOPERM") as unknown:
                    await adding
                own.execute("ACL", "SETUSER", "default", "+@all")
                assert own.execute("XLEN", Keys(queue_name).stream) == 1 + len(unknown.value.job_ids)

    async def test_a_server_that_does_not_remember_in_the_place_of_one_that_did_is_not_asked_again(
        self, queue_name: str, proxy: Proxy, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is no longer known whether it was added."""
        async with Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("send", 1)
            _skip_unless_idmp_is_used(queue)
            _make_further_servers_forgetful(monkeypatch)
            proxy.cut_after_request(b"XADD")
            with pytest.raises(AddUnknown) as unknown:
                await queue.add("send", 2)
        assert len(unknown.value.job_ids) == 1
        assert await stream.length() == 2

    async def test_a_server_that_does_not_remember_gets_what_the_one_before_it_has_refused(
        self, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with RedisServer() as own:
            async with Queue(queue_name, redis_url=own.url) as queue:
                await queue.add("send", 1)
                _skip_unless_idmp_is_used(queue)
                _make_further_servers_forgetful(monkeypatch)
                own.execute("REPLICAOF", "127.0.0.1", "1")
                adding = asyncio.create_task(queue.add("send", 2))
                await asyncio.sleep(0.1)
                own.execute("REPLICAOF", "NO", "ONE")
                await adding
                assert own.execute("XLEN", Keys(queue_name).stream) == 2

    async def test_a_server_emptied_in_the_middle_takes_jobs_again(
        self, queue: Queue, stream: Stream, witness: Any
    ) -> None:
        await many_tasks(queue)
        await witness.flushall()
        added = await many_tasks(queue)
        assert sorted(await stream.ids()) == sorted(job.id for job in added)


class TestNoAnswer:
    """An add succeeds or raises within its timeout; what it raises says whether the job may be there."""

    @pytest.mark.parametrize("answer", (b"+OK\r\n", b"$-1\r\n", b"*0\r\n", b"$1\r\n1\r\n"))
    async def test_an_answer_that_makes_no_sense_is_an_error(self, queue_name: str, answer: bytes) -> None:
        """From a proxy that rewrites, or from a server that only looks like Redis."""
        greet = redis_that_says("7.0.0")
        async with (
            FakeServer(lambda words: greet(words) if words[0] == b"HELLO" else answer) as fake,
            Queue(queue_name, redis_url=fake.url, timeout_s=0.3) as queue,
        ):
            for adding in (lambda: one(queue), lambda: a_bulk(queue)):
                async with asyncio.timeout(SOON_S):
                    with pytest.raises(RedisTrouble):
                        await adding()

    @pytest.fixture
    async def hasty(self, proxy: Proxy, queue_name: str, stream: Stream) -> AsyncIterator[Queue]:
        async with Queue(queue_name, redis_url=proxy.url, timeout_s=0.3) as queue:
            yield queue
            proxy.thaw()
            proxy.admit()

    async def test_a_server_that_was_never_there_raises_within_the_timeout(self, queue_name: str) -> None:
        async with Queue(queue_name, redis_url="unix:///nowhere/at/all.sock", timeout_s=0.3) as queue:
            for adding in (lambda: queue.add("send"), lambda: a_bulk(queue), lambda: a_bulk_in_several_batches(queue)):
                took, error = await _raised(adding())
                assert isinstance(error, ConnectionLost), error
                assert "/nowhere/at/all.sock" in str(error)
                assert took < SOON_S

    async def test_a_server_that_accepts_and_never_answers_raises_within_the_timeout(self, queue_name: str) -> None:
        async with FakeServer() as fake, Queue(queue_name, redis_url=fake.url, timeout_s=0.3) as queue:
            took, error = await _raised(queue.add("send"))
            assert isinstance(error, ConnectionLost)
            assert took < SOON_S

    async def test_a_line_that_refuses_raises_within_the_timeout(
        self, hasty: Queue, proxy: Proxy, stream: Stream
    ) -> None:
        await hasty.add("send", 0)
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: proxy.connections == 0)
        took, error = await _raised(hasty.add("send", 1))
        assert isinstance(error, ConnectionLost)
        assert took < SOON_S
        proxy.admit()
        await eventually(lambda: _succeeds(hasty.add("send", 2)))
        assert [entry.data for entry in await stream.entries()] == [0, 2]

    @pytest.mark.parametrize("direction", ("requests", "replies", None))
    async def test_an_add_on_a_frozen_line_is_unknown_and_names_the_jobs(
        self, hasty: Queue, proxy: Proxy, stream: Stream, direction: Any
    ) -> None:
        await hasty.add("send", 0)
        proxy.freeze(direction)
        took, error = await _raised(hasty.add("send", 1, job_id="the-one"))
        assert isinstance(error, AddUnknown), error
        assert error.job_ids == ["the-one"]
        assert "the-one" in str(error)
        assert took < SOON_S
        took, error = await _raised(hasty.add_bulk([{"name": "send", "data": 2, "job_id": "the-other"}]))
        assert took < SOON_S
        proxy.thaw()
        await hasty.add("send", 3)
        ids = await stream.ids()
        assert twice(ids) == []
        assert len(ids) in (2, 3)

    async def test_the_same_id_can_be_asked_for_again(self, hasty: Queue, proxy: Proxy, stream: Stream) -> None:
        await hasty.add("send", 0)
        proxy.freeze("requests")
        with pytest.raises(AddUnknown) as unknown:
            await hasty.add("send", 1)
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: proxy.connections == 0)
        proxy.thaw()
        proxy.admit()
        await hasty.add("send", 1, job_id=unknown.value.job_ids[0])
        assert [entry.data for entry in await stream.entries()] == [0, 1]

    async def test_a_late_arrival_of_what_was_given_up_does_not_push_out_what_came_after(
        self, queue_name: str, redis_url: str, stream: Stream
    ) -> None:
        """Bytes stuck on the old connection reach the server after the new connection has used the same slot."""
        async with Proxy(redis_url) as stuck:
            queue = Queue(queue_name, redis_url=stuck.url, timeout_s=1)
            await queue.add("send", 0)
            stuck.freeze()
            for number in (1, 2, 3):
                with pytest.raises(RedisTrouble):
                    await queue.add("send", number)
            stuck.thaw()
            for number in range(6, 20):
                await queue.add("send", number)
            await queue.close()
        data = [entry.data for entry in await stream.entries()]
        assert len(set(data)) == len(data)
        assert [number for number in data if number >= 6] == list(range(6, 20))

    async def test_an_add_raises_while_the_server_is_stopped_and_works_afterwards(self, queue_name: str) -> None:
        with RedisServer() as own:
            async with Queue(queue_name, redis_url=own.url, timeout_s=0.3) as queue:
                await queue.add("send", 0)
                own.stop()
                await eventually(lambda: not queue._get_or_open_loop_session().broker.is_connected)
                took, error = await _raised(queue.add("send", 1))
                assert isinstance(error, ConnectionLost)
                assert took < SOON_S
                own.start()
                await eventually(lambda: _succeeds(queue.add("send", 2)))
            assert own.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 1

    async def test_an_add_raises_while_the_server_hangs_and_works_afterwards(self, queue_name: str) -> None:
        with RedisServer() as own:
            async with Queue(queue_name, redis_url=own.url, timeout_s=0.3) as queue:
                await queue.add("send", 0)
                own.pause()
                took, error = await _raised(queue.add("send", 1))
                assert isinstance(error, AddUnknown)
                assert took < SOON_S
                took, error = await _raised(queue.add("send", 2))
                assert isinstance(error, ConnectionLost)
                assert took < SOON_S
                own.resume()
                await eventually(lambda: _succeeds(queue.add("send", 3)))
                client = redis.asyncio.Redis.from_url(own.url)
                data = [entry.data for entry in await Stream(client, queue_name).entries()]
                await client.aclose()
        assert data in ([0, 1, 3], [0, 3])

    async def test_each_of_many_adds_one_after_another_keeps_its_own_timeout(self, queue_name: str) -> None:
        """This holds for long outages too, when the pauses between attempts have grown."""

        async def longest() -> float:
            async with Queue(queue_name, redis_url="unix:///nowhere/at/all.sock", timeout_s=0.1) as queue:
                return max([(await _raised(queue.add("send", number)))[0] for number in range(12)])

        await first_below(0.6, longest)

    async def test_each_of_many_adds_at_different_times_keeps_its_own_timeout(self, hasty: Queue, proxy: Proxy) -> None:
        await hasty.add("send", 0)
        proxy.freeze("requests")
        adds = []
        for number in range(60):
            adds.append(asyncio.create_task(_raised(hasty.add("send", number))))
            await asyncio.sleep(0.02)
        results = await asyncio.gather(*adds)
        proxy.cut()
        assert max(took for took, _ in results) < SOON_S
        assert all(isinstance(error, (AddUnknown, ConnectionLost)) for _, error in results)

    async def test_an_add_is_given_its_whole_timeout(self, queue_name: str) -> None:
        """This holds also if other adds have waited for longer."""
        async with Queue(queue_name, redis_url="unix:///nowhere/at/all.sock", timeout_s=0.5) as queue:
            adds = []
            for number in range(25):
                adds.append(asyncio.create_task(_raised(queue.add("send", number))))
                await asyncio.sleep(0.02)
            times = [took for took, _ in await asyncio.gather(*adds)]
        assert min(times) > 0.4, times

    async def test_a_bulk_cut_off_in_the_middle_names_exactly_what_is_in_doubt(
        self, proxy: Proxy, queue_name: str, stream: Stream
    ) -> None:
        jobs = [{"name": "send", "data": number, "job_id": f"job-{number}"} for number in range(20_000)]
        async with Queue(queue_name, redis_url=proxy.url, timeout_s=2) as queue:
            await queue.add("first", job_id="first")
            adding = asyncio.ensure_future(queue.add_bulk(jobs))
            await eventually(lambda: proxy.count(b"EVAL") >= 10, every=0)
            proxy.freeze("replies")
            with pytest.raises(AddUnknown) as unknown:
                await adding
            in_doubt = unknown.value.job_ids
            proxy.thaw()
        ids = await stream.ids()
        assert twice(ids) == []
        assert 0 < len(in_doubt) < 20_000
        assert set(ids) >= {f"job-{number}" for number in range(20_000)} - set(in_doubt)
        assert [job_id for job_id in ids if job_id != "first"] == [f"job-{number}" for number in range(len(ids) - 1)]

    async def test_close_does_not_hang_on_a_frozen_line(self, proxy: Proxy, queue_name: str, stream: Stream) -> None:
        queue = Queue(queue_name, redis_url=proxy.url, timeout_s=0.3)
        await queue.add("send", 0)
        proxy.freeze()
        adds = [asyncio.ensure_future(_raised(queue.add("send", number))) for number in range(1, 10)]
        await asyncio.sleep(0)
        start = monotonic()
        await queue.close()
        assert monotonic() - start < SOON_S
        assert all(isinstance(error, RedisTrouble) for _, error in await asyncio.gather(*adds))
        proxy.thaw()

    async def test_a_program_that_cancels_all_tasks_of_its_loop_can_add_again(
        self, hasty: Queue, proxy: Proxy, stream: Stream
    ) -> None:
        await hasty.add("send", 0)
        proxy.refuse()
        proxy.cut()
        others = asyncio.all_tasks()
        adding = asyncio.create_task(_raised(hasty.add("send", 1)))
        await eventually(lambda: any("add again" in task.get_name() for task in asyncio.all_tasks()))
        for task in asyncio.all_tasks() - others - {adding}:
            if task.get_name().startswith("chasqui"):
                task.cancel()
        async with asyncio.timeout(SOON_S):
            await adding
            proxy.admit()
            await eventually(lambda: _succeeds(hasty.add("send", 2)))
        assert twice(await stream.ids()) == []

    async def test_a_provider_of_credentials_that_fails_does_not_hang_an_add(
        self, redis_url: str, queue_name: str
    ) -> None:
        async def provide(address: str | None) -> tuple[str | None, str | None]:
            raise LookupError("the vault is sealed")

        async with Queue(queue_name, redis_url=redis_url, timeout_s=0.3, credential_provider=provide) as queue:
            async with asyncio.timeout(SOON_S):
                with pytest.raises(RedisTrouble, match="credential provider"):
                    await queue.add("send")

    async def test_a_host_name_that_cannot_be_looked_up_does_not_hang_an_add(self, queue_name: str) -> None:
        async with Queue(queue_name, redis_url="redis://no..where:6379", timeout_s=0.3) as queue:
            async with asyncio.timeout(SOON_S):
                with pytest.raises(RedisTrouble):
                    await queue.add("send")


def _skip_unless_idmp_is_used(queue: Queue) -> None:
    session = queue._get_or_open_loop_session().sender._adder._add_broker.get_or_make_session_if_connected()
    assert session is not None
    if not session.can_use_idmp:
        pytest.skip("this server remembers no numbers: the ledger does, whichever server it is on")


def _make_further_servers_forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = AddSession.__init__

    def begin_forgetful(self: AddSession, adds: AddBroker, socket: Socket) -> None:
        begin(self, adds, socket)
        self.can_use_idmp = False

    monkeypatch.setattr(AddSession, "__init__", begin_forgetful)


def _split_request(packed: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(packed)
    words: list[bytes] = reader.gets()
    return words


async def _raised(adding: Coroutine[Any, Any, Any]) -> tuple[float, BaseException]:
    """How long it took, and what it raised."""
    start = monotonic()
    try:
        await adding
    except RedisTrouble as error:
        return monotonic() - start, error
    raise AssertionError("it did not raise")


async def _succeeds(adding: Coroutine[Any, Any, Any]) -> bool:
    with suppress(RedisTrouble):
        await adding
        return True
    return False


async def _holds(stream: Stream, count: int) -> bool:
    return await stream.length() >= count
