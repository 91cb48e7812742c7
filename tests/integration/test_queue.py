"""Adding jobs: what is stored, in which order, within which bounds, and how a queue ends."""

from __future__ import annotations

import asyncio
import gc
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import (
    AddUnknown,
    BackoffSpec,
    Closed,
    ConnectionLost,
    InvalidArgument,
    Job,
    NotReplicated,
    PayloadTooLarge,
    Queue,
    QueueFull,
    RedisTrouble,
    RepeatPattern,
    ReplyError,
    WrongLoop,
)
from pychasqui._redis.keys import REGISTRY, Keys
from tests.support.acl import refusals
from tests.support.delayed import Delayed
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream, twice
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """A server that tests may configure, for as long as they put it back."""
    with RedisServer(tcp=True) as server:
        yield server


class TestAdd:
    async def test_a_job_is_stored_and_returned(self, queue: Queue, stream: Stream) -> None:
        before_ms = time.time_ns() // 1_000_000
        job = await queue.add("send", {"to": "ada"})
        (stored,) = await stream.entries()
        assert (stored.job_id, stored.name, stored.data, stored.attempt) == (job.id, "send", {"to": "ada"}, 0)
        assert before_ms <= stored.created_at_ms == job.created_at_ms <= time.time_ns() // 1_000_000
        assert stored.retry is None
        assert isinstance(job, Job)
        assert (job.name, job.data, job.attempt, job.attempts_made) == ("send", {"to": "ada"}, 0, 0)

    async def test_data_may_be_left_out(self, queue: Queue, stream: Stream) -> None:
        await queue.add("tick")
        assert [(entry.name, entry.data) for entry in await stream.entries()] == [("tick", None)]

    async def test_a_blank_name_is_stored_as_none(self, queue: Queue, stream: Stream) -> None:
        await queue.add("", 1)
        assert [(entry.name, entry.data) for entry in await stream.entries()] == [(None, 1)]

    async def test_an_id_of_ones_own_is_kept(self, queue: Queue, stream: Stream) -> None:
        job = await queue.add("send", job_id="order-17")
        assert job.id == "order-17"
        assert await stream.ids() == ["order-17"]

    async def test_ids_are_made_up_and_never_the_same(self, queue: Queue, stream: Stream) -> None:
        jobs = await asyncio.gather(*(queue.add("send", number) for number in range(500)))
        assert len({job.id for job in jobs}) == 500

    async def test_no_attempt_at_all_is_refused_wherever_it_can_be_asked_for(self, queue: Queue, witness: Any) -> None:
        text = "attempts is 0, must be at least 1"
        with pytest.raises(InvalidArgument, match=text):
            await queue.add("send", attempts=0)
        with pytest.raises(InvalidArgument, match=text):
            await queue.add_bulk([{"name": "send"}, {"name": "send", "attempts": 0}])
        with pytest.raises(InvalidArgument, match=text):
            await queue.repeatables.upsert("send", repeat=RepeatPattern.every(1000), attempts=0)
        assert await witness.dbsize() == 0

    async def test_retry_options_travel_with_the_job(self, queue: Queue, stream: Stream) -> None:
        await queue.add("send", attempts=3)
        await queue.add("send", backoff=BackoffSpec.exponential(100, max_ms=5000))
        await queue.add("send", attempts=1, backoff=250)
        await queue.add("send", backoff={"kind": "fixed", "delay_ms": 7})
        retries = [entry.retry for entry in await stream.entries()]
        assert retries[0] is not None
        assert retries[0][0] == 3
        assert retries[1] is not None
        assert retries[1][1][:3] == ["exponential", 100, 5000]
        assert retries[2] is not None
        assert (retries[2][0], retries[2][1][:2]) == (1, ["fixed", 250])
        assert retries[3] is not None
        assert retries[3][1][:2] == ["fixed", 7]

    async def test_adds_one_after_another_keep_their_order(self, queue: Queue, stream: Stream) -> None:
        added = [(await queue.add("send", number)).id for number in range(200)]
        assert await stream.ids() == added

    async def test_adds_started_in_one_turn_keep_their_order(self, queue: Queue, stream: Stream) -> None:
        jobs = await asyncio.gather(*(queue.add("send", number) for number in range(5000)))
        assert await stream.ids() == [job.id for job in jobs]

    async def test_thousands_of_names_are_kept_apart(self, queue: Queue, stream: Stream) -> None:
        names = [f"name-{number % 2500}" for number in range(5000)]
        await asyncio.gather(*(queue.add(name) for name in names))
        assert [entry.name for entry in await stream.entries()] == names

    async def test_a_job_may_be_as_large_as_the_limit(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        """Counted as the official consumers count: with the envelope."""

        async def stored_bytes() -> int:
            ((_, fields),) = await witness.xrevrange(stream.key, count=1)
            return len(fields[b"d"])

        async with Queue(queue_name, redis_url=redis_url, max_payload_bytes=1000) as queue:
            await queue.add("send", b"x" * 500)
            room = 500 + 1000 - await stored_bytes()
            await queue.add("send", b"x" * room)
            assert await stored_bytes() == 1000
            with pytest.raises(PayloadTooLarge, match=r"1001 bytes.*max_payload_bytes.*1000"):
                await queue.add("send", b"x" * (room + 1))
        assert await stream.length() == 2

    async def test_nearly_a_mebibyte_passes_by_default(self, queue: Queue, stream: Stream) -> None:
        await queue.add("send", b"x" * (2**20 - 100))
        (stored,) = await stream.entries()
        assert len(stored.data) == 2**20 - 100

    async def test_data_changed_after_the_call_is_not_in_the_job(self, queue: Queue, stream: Stream) -> None:
        data = {"n": 1}
        adding = asyncio.ensure_future(queue.add("send", data))
        await asyncio.sleep(0)
        data["n"] = 2
        await adding
        assert (await stream.entries())[0].data == {"n": 1}

    @pytest.mark.parametrize("option", ("", "?protocol=3", "?db=2"))
    async def test_a_queue_connects_by_any_kind_of_address(
        self, server: RedisServer, redis_url: str, queue_name: str, option: str
    ) -> None:
        for url in (server.url, server.tcp_url):
            async with (
                Queue(queue_name, redis_url=f"{url}{option}") as queue,
                redis.asyncio.Redis.from_url(f"{url}{option.replace('?protocol=3', '')}") as client,
            ):
                stream = Stream(client, queue_name)
                added = await queue.add_bulk({"name": "send", "data": number} for number in range(10))
                assert await stream.ids() == [job.id for job in added]
                await stream.clear()

    async def test_the_connection_says_whose_it_is(self, queue: Queue, stream: Stream, witness: Any) -> None:
        await queue.add("send")
        assert f"chasqui-queue-{queue.name}" in {client["name"] for client in await witness.client_list()}

    async def test_a_cancelled_add_harms_no_other(self, queue: Queue, stream: Stream) -> None:
        adds = [asyncio.ensure_future(queue.add("send", number)) for number in range(100)]
        await asyncio.sleep(0)
        for number in range(0, 100, 3):
            adds[number].cancel()
        results = await asyncio.gather(*adds, return_exceptions=True)
        added = [result.id for result in results if isinstance(result, Job)]
        ids = await stream.ids()
        assert len(added) == 66
        assert set(added) <= set(ids)
        assert twice(ids) == []


class TestAddBulk:
    async def test_jobs_are_stored_and_returned_in_order(self, queue: Queue, stream: Stream) -> None:
        added = await queue.add_bulk([{"name": f"n-{number % 3}", "data": number} for number in range(100)])
        stored = await stream.entries()
        assert [(entry.job_id, entry.name, entry.data) for entry in stored] == [
            (job.id, f"n-{number % 3}", number) for number, job in enumerate(added)
        ]

    async def test_a_bulk_with_any_mix_of_options_goes_in_one_trip(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add_bulk(
                [
                    {"name": "a", "data": 1},
                    {"name": "b", "data": 2, "attempts": 3},
                    {"name": "", "data": 3, "backoff": 100},
                    {"name": "c", "data": None, "job_id": "mine"},
                    {"name": "a", "data": 4, "job_id": None, "attempts": None, "backoff": None},
                    {"name": "d"},
                ]
            )
            assert proxy.count(b"EVAL") - proxy.count(REGISTRY.encode()) == 1
        stored = await stream.entries()
        assert [entry.name for entry in stored] == ["a", "b", None, "c", "a", "d"]
        assert [entry.data for entry in stored] == [1, 2, 3, None, 4, None]
        assert stored[3].job_id == "mine"
        assert [entry.retry is not None for entry in stored] == [False, True, True, False, False, False]

    @pytest.mark.parametrize("option", ({"job_id": "mine"}, {"attempts": 3}, {"backoff": 5}))
    async def test_data_may_be_left_out_beside_any_option(
        self, queue: Queue, stream: Stream, option: dict[str, Any]
    ) -> None:
        await queue.add_bulk([{"name": "send"} | option])
        assert [(entry.name, entry.data) for entry in await stream.entries()] == [("send", None)]

    async def test_a_bulk_of_none_adds_none(self, queue: Queue, stream: Stream) -> None:
        assert await queue.add_bulk([]) == []
        assert await stream.keys() == []

    async def test_a_bulk_may_be_any_iterable_of_any_mapping(self, queue: Queue, stream: Stream) -> None:
        from types import MappingProxyType

        await queue.add_bulk(MappingProxyType({"name": "send", "data": number}) for number in range(3))
        await queue.add_bulk(iter([{"name": "send", "data": 3}]))
        assert [entry.data for entry in await stream.entries()] == [0, 1, 2, 3]

    async def test_thousands_arrive_complete_and_in_order(self, queue: Queue, stream: Stream) -> None:
        added = await queue.add_bulk({"name": "send", "data": number} for number in range(12_345))
        assert await stream.ids() == [job.id for job in added]

    async def test_bulks_at_the_same_time_arrive_complete_and_each_in_order(self, queue: Queue, stream: Stream) -> None:
        bulks = await asyncio.gather(
            *(queue.add_bulk([{"name": f"bulk-{bulk}", "data": number} for number in range(2500)]) for bulk in range(4))
        )
        stored = await stream.entries()
        assert len(stored) == 10_000
        for bulk, added in enumerate(bulks):
            assert [entry.job_id for entry in stored if entry.name == f"bulk-{bulk}"] == [job.id for job in added]

    async def test_large_payloads_travel_in_batches_of_bounded_size(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add_bulk({"name": "send", "data": b"x" * 1_000_000} for _ in range(20))
            calls = [0]  # the bytes of each script call, and of each transaction
            for request in proxy.requests:
                calls[-1] += len(request)
                if b"EVAL" in request[:40] or b"EXEC" in request[:40]:
                    calls.append(0)
        assert sum(calls) > 20_000_000
        assert max(calls) < 6_000_000
        assert await stream.length() == 20

    async def test_a_large_bulk_is_sent_in_parts(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url) as queue:
            await queue.add("first")
            proxy.freeze("replies")
            bulk = asyncio.ensure_future(queue.add_bulk({"name": "send", "data": n} for n in range(20_000)))
            await eventually(lambda: proxy.count(b"EVAL") > 2)  # one is that of the registry
            await asyncio.wait({bulk}, timeout=0.1)
            assert proxy.count(b"EVAL") <= 2 + 4
            proxy.thaw()
            await bulk
        assert await stream.length() == 20_001

    async def test_a_list_that_grows_meanwhile_is_added_as_it_was(self, queue: Queue, stream: Stream) -> None:
        jobs = [{"name": "send", "data": number} for number in range(6000)]
        adding = asyncio.create_task(queue.add_bulk(jobs))
        await asyncio.sleep(0)
        jobs.append({"name": "send"})
        assert [job.id for job in await adding] == await stream.ids()

    async def test_mappings_that_change_meanwhile_are_returned_as_they_were_sent(
        self, queue: Queue, stream: Stream
    ) -> None:
        jobs: list[dict[str, Any]] = [{"name": "send", "data": number} for number in range(6000)]
        adding = asyncio.create_task(queue.add_bulk(jobs))
        await asyncio.sleep(0)
        for job in jobs:
            job.clear()
        added = await adding
        assert [(job.name, job.data) for job in added] == [("send", number) for number in range(6000)]
        assert [job.id for job in added] == await stream.ids()

    async def test_a_cancelled_bulk_leaves_no_error_that_asyncio_logs(
        self, redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with Queue(queue_name, redis_url="unix:///nowhere/at/all.sock", timeout_s=0.1) as queue:
            adding = asyncio.create_task(queue.add_bulk([{"name": "send"}] * 6000))
            await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            with pytest.raises(ConnectionLost):
                await queue.add("send")
        gc.collect()
        assert not [record for record in caplog.records if record.name == "asyncio"]


class TestBounds:
    async def test_an_add_past_the_bound_is_refused_and_no_job_is_trimmed(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=10) as queue:
            added = [(await queue.add("send", number)).id for number in range(10)]
            for _ in range(3):
                with pytest.raises(QueueFull, match="max_stream_len of 10"):
                    await queue.add("send")
        assert await stream.ids() == added

    async def test_concurrent_adds_fill_the_queue_up_to_its_bound(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=50) as queue:
            results = await asyncio.gather(*(queue.add("send", n) for n in range(120)), return_exceptions=True)
        added = [result.id for result in results if isinstance(result, Job)]
        assert sum(isinstance(result, QueueFull) for result in results) == 70
        assert await stream.ids() == added
        assert len(added) == 50

    @pytest.mark.parametrize("size", (11, 1001, 2500, 10_000))
    async def test_a_bulk_gets_in_whole_or_not_at_all(
        self, redis_url: str, queue_name: str, stream: Stream, size: int
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=size) as queue:
            await queue.add("first")
            with pytest.raises(QueueFull):
                await queue.add_bulk({"name": "send", "data": number} for number in range(size))
            assert await stream.length() == 1
            await queue.add_bulk({"name": "send", "data": number} for number in range(size - 1))
            assert await stream.length() == size
            with pytest.raises(QueueFull):
                await queue.add("last")
        assert await stream.length() == size

    async def test_a_full_queue_has_room_again_once_jobs_are_gone(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=2) as queue:
            await queue.add_bulk([{"name": "send", "data": 1}, {"name": "send", "data": 2}])
            with pytest.raises(QueueFull):
                await queue.add("send")
            await witness.xtrim(stream.key, maxlen=1, approximate=False)
            await queue.add("send", 3)
        assert [entry.data for entry in await stream.entries()] == [2, 3]

    async def test_queues_of_other_processes_count_too(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with (
            Queue(queue_name, redis_url=redis_url) as unbounded,
            Queue(queue_name, redis_url=redis_url, max_stream_len=5) as bounded,
        ):
            await unbounded.add_bulk({"name": "send", "data": n} for n in range(7))
            with pytest.raises(QueueFull):
                await bounded.add("send")
            await unbounded.add("send")
        assert await stream.length() == 8

    async def test_a_full_queue_takes_adds_again_on_the_same_object(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=1) as queue:
            for number in range(20):
                await queue.add("send", number)
                with pytest.raises(QueueFull):
                    await queue.add("send", number)
                await stream.clear()

    async def test_a_queue_over_its_bound_takes_delayed_jobs(
        self, redis_url: str, queue_name: str, stream: Stream, delayed: Delayed
    ) -> None:
        async with (
            Queue(queue_name, redis_url=redis_url) as unbounded,
            Queue(queue_name, redis_url=redis_url, max_stream_len=1) as bounded,
        ):
            await unbounded.add_bulk([{"name": "send"}, {"name": "send"}])
            await bounded.add("later", delay_ms=60_000)
            await bounded.add("later", job_id="the-one", delay_ms=60_000)
            assert not (await bounded.add("now", job_id="the-one")).is_new
            with pytest.raises(QueueFull):
                await bounded.add("now", job_id="another")
        assert await delayed.count() == 2

    async def test_a_full_queue_without_replicas_does_not_say_that_a_job_was_added(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, max_stream_len=1) as queue:
            await queue.add("first")
            for adding in (queue.add("second", wait_replicas=1), queue.add_bulk([{"name": "x"}], wait_replicas=1)):
                with pytest.raises(QueueFull):
                    await adding
        assert await stream.length() == 1

    async def test_a_bulk_that_was_not_sent_whole_for_lack_of_replicas_is_unknown(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        """NotReplicated would say that all of it is on the master."""
        async with Queue(queue_name, redis_url=redis_url, timeout_s=0.1) as queue:
            with pytest.raises(AddUnknown, match="lack replicas") as unknown:
                await queue.add_bulk(({"name": "send"} for _ in range(5000)), wait_replicas=1)
            with pytest.raises(NotReplicated) as lacking:
                await queue.add_bulk(({"name": "send"} for _ in range(1001)), wait_replicas=1)
            assert len(set(lacking.value.job_ids)) == 1001
            copied = pickle.loads(pickle.dumps(lacking.value))
            assert (str(copied), copied.job_ids) == (str(lacking.value), lacking.value.job_ids)
        assert len(unknown.value.job_ids) == 5000
        assert await stream.length() < 6000

    @pytest.mark.parametrize("options", ({}, {"job_id": "first"}))
    async def test_a_bulk_of_which_the_stream_takes_a_part_is_unknown(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any, options: dict[str, Any]
    ) -> None:
        await witness.xadd(stream.key, {"d": "x"}, id=f"{2**64 - 1}-{2**64 - 3}")
        async with Queue(queue_name, redis_url=redis_url) as queue:
            with pytest.raises(AddUnknown, match="took 2 of 5") as unknown:
                await queue.add_bulk([{"name": "send", **options}, *[{"name": "send"}] * 4])
        assert len(unknown.value.job_ids) == 5
        await witness.delete(stream.key)


class TestServerTrouble:
    """A refusal of the server is raised at once with its own text; a passing trouble is waited for."""

    @pytest.fixture
    async def own(self, own_server: RedisServer) -> AsyncIterator[redis.asyncio.Redis]:
        own_server.start()
        own_server.execute("FLUSHALL")
        client = redis.asyncio.Redis.from_url(own_server.url)
        yield client
        await client.aclose()

    async def test_a_server_without_memory_refuses_at_once_and_takes_jobs_again_later(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        stream = Stream(own, queue_name)
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await queue.add("send", 1)
            await own.config_set("maxmemory", 1)
            start = monotonic()
            with pytest.raises(ReplyError, match=r"OOM.*maxmemory"):
                await queue.add("send", 2)
            with pytest.raises(ReplyError, match=r"OOM.*maxmemory"):
                await queue.add_bulk({"name": "send", "data": number} for number in range(5000))
            assert monotonic() - start < 4
            await own.config_set("maxmemory", 0)
            await queue.add("send", 3)
        assert [entry.data for entry in await stream.entries()] == [1, 3]

    async def test_a_queue_is_paused_and_resumed_on_a_server_without_memory(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await own.config_set("maxmemory", 1)
            await queue.pause()
            assert await queue.is_paused()
            await queue.resume()
            assert not await queue.is_paused()
            await own.config_set("maxmemory", 0)

    async def test_the_code_of_a_refusal_is_the_same_on_every_server(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await own.config_set("maxmemory", 1)
            try:
                with pytest.raises(ReplyError) as refused:
                    await queue.add("send")
            finally:
                await own.config_set("maxmemory", 0)
        assert refused.value.code == "OOM"

    async def test_too_few_replicas_refuse_at_once(self, own_server: RedisServer, own: Any, queue_name: str) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await own.config_set("min-replicas-to-write", 1)
            start = monotonic()
            try:
                with pytest.raises(ReplyError, match="NOREPLICAS"):
                    await queue.add("send", 1)
            finally:
                await own.config_set("min-replicas-to-write", 0)
            assert monotonic() - start < 4
            await queue.add("send", 2)
        assert [entry.data for entry in await Stream(own, queue_name).entries()] == [2]

    async def test_replicas_are_waited_for_until_they_have_the_job(self, queue_name: str) -> None:
        with RedisServer(tcp=True) as first, RedisServer(tcp=True) as second:
            second.execute("REPLICAOF", "127.0.0.1", str(first.port))
            # The master counts a replica from its first acknowledgement on, up to a second after its link is up.
            await eventually(lambda: first.execute("INFO", "replication").get("slave0", {}).get("state") == "online")
            await eventually(lambda: first.execute("WAIT", 1, 1000) == 1)
            async with Queue(queue_name, redis_url=first.url, timeout_s=1.0) as queue:
                for _ in range(3):  # the first opens a connection, the others travel alone
                    await queue.add("send", 1, wait_replicas=1)
                second.pause()
                try:
                    with pytest.raises(NotReplicated, match="only 0 of 1 replicas") as lacking:
                        await queue.add("send", 2, wait_replicas=1, job_id="second")
                    assert lacking.value.job_ids == ["second"]
                finally:
                    second.resume()
                await eventually(lambda: second.execute("XLEN", Keys(queue_name).stream) == 4)

    async def test_a_key_of_another_type_is_named(self, own_server: RedisServer, own: Any, queue_name: str) -> None:
        stream = Stream(own, queue_name)
        await own.set(stream.key, "a string")
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            for _ in range(6):  # more often than there are slots for batches on their way
                with pytest.raises(ReplyError, match="WRONGTYPE"):
                    await queue.add("send")
                with pytest.raises(ReplyError, match="WRONGTYPE"):
                    await queue.add_bulk({"name": "send", "data": number} for number in range(3000))
            await own.delete(stream.key)
            await queue.add("send", 2)
        assert [entry.data for entry in await stream.entries()] == [2]

    async def test_a_user_without_permission_to_add_gets_the_refusal(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        await own.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "-@all", "+@read", "+@connection")
        async with Queue(queue_name, redis_url=f"{own_server.url}?username=reader&password=pw") as queue:
            with pytest.raises(ReplyError, match="NOPERM"):
                await queue.add("send")

    async def test_a_user_confined_to_the_queue_can_add(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        """S8, S10: no key but the queue's own is ever touched."""
        rights = "hello auth select client|setname eval evalsha xadd xlen hget hset pexpire del".split()  # noqa: SIM905
        await own.execute_command("ACL", "LOG", "RESET")
        await own.execute_command(
            "ACL",
            "SETUSER",
            "producer",
            "on",
            ">pw",
            f"~{{chasqui:{queue_name}}}:*",
            "-@all",
            *(f"+{right}" for right in rights),
        )
        async with Queue(
            queue_name, redis_url=f"{own_server.url}?username=producer&password=pw", max_stream_len=9
        ) as queue:
            await queue.add("send", 1)
            await queue.add_bulk([{"name": "send", "data": 2}])
        assert [entry.data for entry in await Stream(own, queue_name).entries()] == [1, 2]
        assert await refusals(own) == []
        assert await Stream(own, queue_name).keys() == ["stream"]

    async def test_a_script_that_keeps_the_server_busy_is_waited_for(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await queue.add("send", 0)
            await own.config_set("lua-time-limit", 5)
            async with redis.asyncio.Redis.from_url(own_server.url, retry=None) as hog:
                busy = asyncio.ensure_future(hog.eval("while true do end", 0))
                await eventually(lambda: _is_busy(own))
                adding = asyncio.ensure_future(queue.add("send", 1))
                await asyncio.wait({adding}, timeout=0.1)
                assert not adding.done()
                await own.script_kill()
                await adding
                with pytest.raises(redis.ResponseError):
                    await busy
            await own.config_set("lua-time-limit", 5000)
        assert [entry.data for entry in await Stream(own, queue_name).entries()] == [0, 1]

    async def test_a_server_that_has_become_a_replica_is_waited_for(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await queue.add("send", 0)
            await own.replicaof("127.0.0.1", 1)
            adding = asyncio.ensure_future(queue.add("send", 1))
            await asyncio.wait({adding}, timeout=0.2)
            assert not adding.done()
            await own.replicaof("NO", "ONE")
            await adding
        assert [entry.data for entry in await Stream(own, queue_name).entries()] == [0, 1]

    async def test_a_replica_that_stays_one_costs_the_timeout(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        await own.replicaof("127.0.0.1", 1)
        try:
            async with Queue(queue_name, redis_url=own_server.url, timeout_s=0.5) as queue:
                start = monotonic()
                with pytest.raises(RedisTrouble):
                    await queue.add("send")
                assert monotonic() - start < 4
        finally:
            await own.replicaof("NO", "ONE")
        assert await Stream(own, queue_name).length() == 0

    async def test_an_add_that_a_replica_refused_to_the_end_says_so(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        await own.replicaof("127.0.0.1", 1)
        try:
            async with Queue(queue_name, redis_url=own_server.url, timeout_s=0.2) as queue:
                with pytest.raises(RedisTrouble, match="READONLY"):
                    await queue.add("send")
        finally:
            await own.replicaof("NO", "ONE")

    async def test_a_pause_of_all_clients_is_waited_for(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            await queue.add("send", 0)
            await own.client_pause(200)
            await queue.add("send", 1)
        assert [entry.data for entry in await Stream(own, queue_name).entries()] == [0, 1]

    async def test_scripts_that_the_server_forgets_are_sent_again(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        stream = Stream(own, queue_name)
        async with Queue(queue_name, redis_url=own_server.url) as queue:
            for number in range(10):
                await queue.add("send", number)
                await own.script_flush()
        assert [entry.data for entry in await stream.entries()] == list(range(10))

    async def test_scripts_forgotten_among_many_adds_lose_none(
        self, own_server: RedisServer, own: Any, queue_name: str
    ) -> None:
        async with Queue(queue_name, redis_url=own_server.url) as queue:

            async def add(task: int) -> list[str]:
                return [(await queue.add("send", (task, number))).id for number in range(40)]

            adding = asyncio.gather(*(add(task) for task in range(50)))
            while not adding.done():
                await own.script_flush()
            added = [job_id for ids in await adding for job_id in ids]
        ids = await Stream(own, queue_name).ids()
        assert sorted(ids) == sorted(added)


class TestEnd:
    async def test_a_queue_is_closed_by_close_and_by_the_end_of_its_block(
        self, redis_url: str, queue_name: str
    ) -> None:
        queue = Queue(queue_name, redis_url=redis_url)
        assert not queue.is_closed
        async with queue:
            assert not queue.is_closed
        assert queue.is_closed
        await queue.close()
        assert queue.is_closed

    async def test_a_closed_queue_refuses_adds(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        queue = Queue(queue_name, redis_url=redis_url)
        await queue.add("send")
        await queue.close()
        for use in (lambda: queue.add("send"), lambda: queue.add_bulk([{"name": "send", "data": 1}]), queue.__aenter__):
            with pytest.raises(Closed, match=queue_name):
                await use()
        assert await stream.length() == 1

    async def test_close_waits_for_adds_on_their_way(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with Proxy(redis_url) as proxy:
            queue = Queue(queue_name, redis_url=proxy.url)
            await queue.add("send", 0)
            proxy.delay(50)
            adds = [asyncio.ensure_future(queue.add("send", number)) for number in range(1, 100)]
            await asyncio.sleep(0)
            await queue.close()
            assert all(isinstance(job, Job) for job in await asyncio.gather(*adds))
        assert await stream.length() == 100

    async def test_a_second_close_waits_for_what_a_cancelled_one_began(
        self, proxy: Proxy, queue_name: str, stream: Stream
    ) -> None:
        queue = Queue(queue_name, redis_url=proxy.url)
        await queue.add("send", 0)
        proxy.freeze()
        adding = asyncio.create_task(queue.add("send", 1))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.close(), 0.1)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        proxy.thaw()
        await closing
        await adding
        await eventually(lambda: proxy.connections == 0)

    async def test_close_does_not_wait_for_the_replicas_of_a_cancelled_add(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        queue = Queue(queue_name, redis_url=redis_url)
        adding = asyncio.create_task(queue.add("send", wait_replicas=1))
        await eventually(stream.length)
        await asyncio.sleep(0.05)  # the reply arrives
        adding.cancel()
        async with asyncio.timeout(3):
            await queue.close()

    async def test_close_waits_for_the_whole_of_a_bulk(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with Proxy(redis_url) as proxy:
            queue = Queue(queue_name, redis_url=proxy.url)
            await queue.add("first")
            proxy.delay(20)
            bulk = asyncio.ensure_future(queue.add_bulk({"name": "send", "data": n} for n in range(10_000)))
            await asyncio.sleep(0)
            await queue.close()
            assert len(await bulk) == 10_000
        assert await stream.length() == 10_001

    async def test_close_forgets_the_ledger(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add("send")
            assert len(await stream.ledgers()) == 1
        assert await stream.keys() == ["stream"]

    async def test_a_ledger_that_was_not_closed_expires(self, queue: Queue, stream: Stream, witness: Any) -> None:
        await queue.add("send")
        (ledger,) = await stream.ledgers()
        assert 0 < await witness.pttl(ledger) <= 600_000

    async def test_a_ledger_outlives_every_add_that_may_still_be_sent_again(
        self, redis_url: str, queue_name: str, stream: Stream, witness: Any
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, timeout_s=600) as queue:
            await queue.add("send")
            (ledger,) = await stream.ledgers()
            assert await witness.pttl(ledger) > 600_000

    async def test_a_ledger_lives_as_long_after_replicas_were_waited_for(self, queue_name: str) -> None:
        with RedisServer(tcp=True) as first, RedisServer(tcp=True) as second:
            second.execute("REPLICAOF", "127.0.0.1", str(first.port))
            await eventually(lambda: second.execute("INFO", "replication")["master_link_status"] == "up", timeout=20)
            async with Queue(queue_name, redis_url=first.url, timeout_s=600) as queue:
                await queue.add("send", wait_replicas=1)
                (ledger,) = first.execute("KEYS", Keys(queue_name).ledger("*"))
                assert first.execute("PTTL", ledger) > 600_000

    async def test_the_server_sees_it_go(self, redis_url: str, queue_name: str, stream: Stream, witness: Any) -> None:
        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add("send")

        async def is_gone() -> bool:
            return not any(queue_name in client["name"] for client in await witness.client_list())

        await eventually(is_gone)

    def test_a_queue_shows_its_address_and_not_its_password(self) -> None:
        queue = Queue("emails", redis_url="redis://ann:hunter2@example.org:7000/3")
        assert repr(queue) == "Queue('emails', redis_url='redis://example.org:7000/3')"


class TestLoops:
    def test_a_queue_serves_two_loops_one_after_the_other(
        self, server: RedisServer, redis_url: str, queue_name: str
    ) -> None:
        queue = Queue(queue_name, redis_url=redis_url)

        async def add(number: int, *, last: bool = False) -> None:
            await queue.add("send", number)
            await queue._get_or_open_loop_session().broker.close()  # so that no socket is left to a loop that has ended
            if last:
                await queue.close()

        asyncio.run(add(1))
        asyncio.run(add(2))
        asyncio.run(add(3, last=True))
        with server.client() as client:
            assert client.xlen(f"{{chasqui:{queue_name}}}:stream") == 3
            client.delete(f"{{chasqui:{queue_name}}}:stream")

    async def test_another_loop_at_the_same_time_is_refused(self, queue: Queue, stream: Stream) -> None:
        await queue.add("send", 1)
        with pytest.raises(WrongLoop, match=queue.name):
            await asyncio.to_thread(lambda: asyncio.run(queue.add("send", 2)))
        await queue.add("send", 3)
        assert [entry.data for entry in await stream.entries()] == [1, 3]


async def _is_busy(client: Any) -> bool:
    try:
        await client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False
