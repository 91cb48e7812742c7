"""Events: workers write them to the event stream, and subscribers read them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic, time
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import redis.asyncio

from pychasqui import (
    Closed,
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    Job,
    Promoter,
    Queue,
    QueueEvent,
    QueueEvents,
    ReplyError,
    UnrecoverableError,
    Worker,
)
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

Written = dict[str, str]


class Log:
    """The event stream as redis-py sees it."""

    def __init__(self, witness: Any, queue_name: str) -> None:
        self._witness = witness
        self.key = f"{{chasqui:{queue_name}}}:events"

    async def all(self) -> list[Written]:
        entries = await self._witness.xrange(self.key)
        return [{field.decode(): value.decode() for field, value in fields.items()} for _, fields in entries]

    async def kinds(self) -> list[str]:
        """Without `drained`, which depends on how reads fall."""
        return [event["e"] for event in await self.all() if event["e"] != "drained"]

    async def has(self, kind: str, times: int = 1) -> list[Written]:
        """Waits for `count` events of a kind, and returns all events."""
        await eventually(lambda: self._count(kind, times))
        return [event for event in await self.all() if event["e"] != "drained"]

    async def _count(self, kind: str, times: int) -> bool:
        return (await self.kinds()).count(kind) >= times

    async def put(self, **fields: Any) -> str:
        event_id: bytes = await self._witness.xadd(self.key, fields)
        return event_id.decode()

    async def put_numbers(self, numbers: range) -> None:
        """One event of a job "0", "1", ... for each."""
        add = "redis.call('XADD', KEYS[1], '*', 'e', 'completed', 'id', id, 'ts', 1)"
        script = f"for id = tonumber(ARGV[1]), tonumber(ARGV[2]) do {add} end"
        await self._witness.eval(script, 1, self.key, numbers[0], numbers[-1])

    async def length(self) -> int:
        return int(await self._witness.xlen(self.key))


@pytest.fixture
def written(witness: redis.asyncio.Redis, queue_name: str) -> Log:
    return Log(witness, queue_name)


async def nothing(job: Job) -> None:
    pass


async def fails(job: Job) -> None:
    raise ValueError("no such user")


class TestWrittenEvents:
    async def test_a_run_is_active_and_completed_in_the_official_order_of_fields(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        before = time() * 1000
        async with Worker(queue_name, nothing, redis_url=redis_url):
            job = await queue.add("send", 1)
            active, completed = await written.has("completed")
        assert list(active) == ["e", "id", "ts", "n", "attempt"]
        assert list(completed) == ["e", "id", "ts", "n", "attempt", "duration_us", "stored"]
        assert (active["e"], active["id"], active["n"], active["attempt"]) == ("active", job.id, "send", "1")
        assert (completed["e"], completed["id"], completed["attempt"]) == ("completed", job.id, "1")
        assert before - 50 <= int(active["ts"]) <= int(completed["ts"]) <= time() * 1000 + 50
        assert 0 <= int(completed["duration_us"]) < 5_000_000

    async def test_the_duration_is_that_of_the_handler(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async def slow(job: Job) -> None:
            await asyncio.sleep(0.1)

        async with Worker(queue_name, slow, redis_url=redis_url):
            await queue.add("send")
            _, completed = await written.has("completed")
        assert 95_000 <= int(completed["duration_us"]) < 1_000_000

    async def test_a_job_without_a_name_has_none_in_its_events(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async with Worker(queue_name, nothing, redis_url=redis_url):
            await queue.add("", 1)
            events = await written.has("completed")
        assert all("n" not in event for event in events)

    async def test_each_step_of_a_retry_has_an_event_with_the_name(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async def fails_once(job: Job) -> None:
            if job.attempt == 0:
                raise ValueError("no such user")

        async with Worker(queue_name, fails_once, redis_url=redis_url):
            job = await queue.add("send", backoff=30)
            events = await written.has("completed")
        assert [(event["e"], event.get("attempt")) for event in events] == [
            ("active", "1"),
            ("failed", "1"),
            ("retry-scheduled", "2"),
            ("waiting", None),
            ("active", "2"),
            ("completed", "2"),
        ]
        assert {(event["id"], event["n"]) for event in events} == {(job.id, "send")}
        failed, scheduled = events[1], events[2]
        assert list(failed) == ["e", "id", "ts", "n", "attempt", "reason", "duration_us"]
        assert list(scheduled) == ["e", "id", "ts", "n", "attempt", "backoff_ms"]
        assert failed["reason"] == "no such user"
        assert 30 <= int(scheduled["backoff_ms"]) < 130

    async def test_a_job_without_runs_left_is_dead_with_its_reason_and_error(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, max_attempts=2):
            await queue.add("send", backoff=1)
            dead = (await written.has("dlq"))[-1]
        assert list(dead)[:6] == ["e", "id", "ts", "n", "attempt", "reason"]
        assert (dead["attempt"], dead["reason"]) == ("2", "retries_exhausted")
        assert (dead["error_type"], dead["error"]) == ("ValueError", "no such user")
        assert await queue.purge("dead") == 1

    async def test_a_job_that_gives_up_has_one_failed_event_with_the_bare_message(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async def gives_up(job: Job) -> None:
            raise UnrecoverableError("card is stolen")

        async with Worker(queue_name, gives_up, redis_url=redis_url):
            await queue.add("charge")
            events = await written.has("dlq")
        assert [event["e"] for event in events] == ["active", "failed", "dlq"]
        assert (events[1]["reason"], events[2]["reason"]) == ("card is stolen", "unrecoverable")
        assert await queue.purge("dead") == 1

    async def test_a_reason_is_bounded_and_may_be_empty(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async def fails_at_length(job: Job) -> None:
            raise ValueError("x" * job.data)

        async with Worker(queue_name, fails_at_length, redis_url=redis_url, max_attempts=1, concurrency=1):
            await queue.add_bulk({"name": "send", "data": length} for length in (5000, 0))
            events = await written.has("dlq", 2)
        assert [len(event["reason"]) for event in events if event["e"] == "failed"] == [500, 0]
        assert await queue.purge("dead") == 2

    @pytest.mark.parametrize(
        ("fields", "reason"),
        (
            ({"x": b"1"}, "malformed"),
            ({"d": b"\xc1"}, "decode_failed"),
            ({"d": msgpack.packb(["j", b"x" * 3000, 1, 0])}, "oversize_payload"),
        ),
    )
    async def test_an_entry_that_is_no_job_is_dead_without_an_id(
        self, redis_url: str, queue_name: str, queue: Queue, witness: Any, written: Log, fields: Any, reason: str
    ) -> None:
        await witness.xadd(f"{{chasqui:{queue_name}}}:stream", fields)
        async with Worker(queue_name, nothing, redis_url=redis_url, max_payload_bytes=2000):
            (dead,) = await written.has("dlq")
        assert list(dead) == ["e", "id", "ts", "attempt", "reason"]
        assert (dead["id"], dead["attempt"], dead["reason"]) == ("", "0", reason)
        assert await queue.purge("dead") == 1

    async def test_a_job_that_arrives_with_its_attempts_used_up_has_them_in_its_event(
        self, redis_url: str, queue_name: str, queue: Queue, witness: Any, written: Log
    ) -> None:
        spent = msgpack.packb(["spent", msgpack.packb(1), 1, 5])
        await witness.xadd(f"{{chasqui:{queue_name}}}:stream", {"d": spent, "n": "send"})
        async with Worker(queue_name, nothing, redis_url=redis_url, max_attempts=3):
            (dead,) = await written.has("dlq")
        assert (dead["id"], dead["n"], dead["attempt"], dead["reason"]) == ("spent", "send", "5", "retries_exhausted")
        assert await queue.purge("dead") == 1

    async def test_a_delayed_job_is_waiting_when_its_time_has_come_and_only_then(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async with Worker(queue_name, nothing, redis_url=redis_url):
            await queue.add("now")
            await queue.add("later", delay_ms=50)
            events = await written.has("completed", 2)
        assert [event["n"] for event in events if event["e"] == "waiting"] == ["later"]
        assert list(next(event for event in events if event["e"] == "waiting")) == ["e", "id", "ts", "n"]
        assert "delayed" not in {event["e"] for event in events}

    async def test_a_standalone_promoter_writes_waiting_events_too(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async with Promoter(queue_name, redis_url=redis_url):
            job = await queue.add("later", delay_ms=20)
            (waiting,) = await written.has("waiting")
        assert (waiting["id"], waiting["n"]) == (job.id, "later")
        assert await queue.purge("waiting") == 1

    async def test_a_promoter_with_events_disabled_writes_none(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        async with Promoter(queue_name, redis_url=redis_url, events_enabled=False):
            await queue.add("later", delay_ms=20)
            await eventually(lambda: _has_waiting(queue))
        assert await written.length() == 0
        assert await queue.purge("waiting") == 1

    async def test_a_queue_that_runs_dry_is_drained_once(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log
    ) -> None:
        await queue.add_bulk({"name": "send"} for _ in range(5))
        async with Worker(queue_name, nothing, redis_url=redis_url, read_block_ms=20):
            await written.has("completed", 5)
            await eventually(lambda: _has_drained(written))
            await asyncio.sleep(0.1)  # several empty reads
        (drained,) = [event for event in await written.all() if event["e"] == "drained"]
        assert list(drained) == ["e", "id", "ts"]
        assert drained["id"] == ""

    async def test_a_worker_with_events_disabled_writes_none(
        self, queue: Queue, redis_url: str, queue_name: str, written: Log, witness: redis.asyncio.Redis
    ) -> None:
        async with Worker(queue_name, fails, redis_url=redis_url, events_enabled=False, max_attempts=2):
            await queue.add("send", backoff=1, delay_ms=1)
            await eventually(queue.dlq.count)
        assert not await witness.exists(written.key)
        assert await queue.purge("dead") == 1

    async def test_producers_write_no_events(self, queue: Queue, witness: redis.asyncio.Redis, written: Log) -> None:
        job = await queue.add("later", delay_ms=50_000)
        await queue.add("now")
        await queue.cancel_delayed(job.id)
        assert await queue.purge("waiting") == 1
        assert not await witness.exists(written.key)

    async def test_the_stream_is_bounded(self, queue: Queue, redis_url: str, queue_name: str, written: Log) -> None:
        await queue.add_bulk({"name": "send", "data": number} for number in range(1000))
        async with Worker(queue_name, nothing, redis_url=redis_url, events_max_stream_len=100):
            await eventually(lambda: _is_empty(queue))
        assert 100 <= await written.length() <= 400  # of about 2,000; a server trims by whole nodes of 100

    async def test_completed_is_written_behind_the_ack(
        self, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        """A subscriber that gets it finds the job gone."""
        stream = Stream(witness, queue_name)
        async with (
            QueueEvents(queue_name, redis_url=redis_url, names=["completed"]) as events,
            Worker(queue_name, nothing, redis_url=redis_url),
        ):
            for number in range(50):
                await queue.add("send", number)
                await anext(events)
                assert await stream.length() == 0

    async def test_an_ack_whose_reply_is_lost_has_one_event(
        self, queue: Queue, proxy: Proxy, queue_name: str, written: Log
    ) -> None:
        runs: list[str] = []

        async def handle(job: Job) -> None:
            runs.append(job.id)

        async with Worker(queue_name, handle, redis_url=proxy.url, store_results=True):
            cut = proxy.cut_after_request(b"stores what their handlers returned")  # the script's text
            job = await queue.add("send")
            assert await queue.wait_for_result(job.id) is None
            await written.has("completed")
            assert cut.done.is_set()
        assert runs == [job.id]
        assert Counter(await written.kinds())["completed"] == 1

    async def test_events_are_dropped_and_counted_and_delay_no_job_without_memory(
        self, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        may_end = asyncio.Event()

        async def handle(job: Job) -> None:
            await may_end.wait()

        with RedisServer() as server:
            async with (
                Queue(queue_name, redis_url=server.url) as queue,
                Worker(queue_name, handle, redis_url=server.url) as worker,
            ):
                await queue.add_bulk({"name": "send"} for _ in range(20))
                await eventually(lambda: _is_active(queue, 20))
                await asyncio.sleep(0.05)  # that they are active is written
                server.execute("CONFIG", "SET", "maxmemory", 1)
                may_end.set()
                started = monotonic()
                await eventually(lambda: _is_empty(queue))
                assert monotonic() - started < 4
                assert worker._components is not None
                assert worker._components.event_writer is not None
                event_writer = worker._components.event_writer
                await eventually(lambda: event_writer.dropped >= 20)
                with pytest.raises(ReplyError, match=r"OOM.*maxmemory"):
                    await queue.add("send")
                server.execute("CONFIG", "SET", "maxmemory", 0)
                await queue.add("send")
                async with QueueEvents(queue_name, redis_url=server.url, last_event_id="0") as events:
                    kinds = [(await anext(events)).name for _ in range(22)]
                assert Counter(kinds)["active"] == 21
        assert len([line for line in caplog.messages if "events are dropped" in line]) == 1


async def _has_waiting(queue: Queue) -> bool:
    return (await queue.counts()).waiting > 0


async def _has_drained(written: Log) -> bool:
    return any(event["e"] == "drained" for event in await written.all())


async def _is_empty(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == counts.delayed == 0


async def _is_active(queue: Queue, count: int) -> bool:
    return (await queue.counts()).active == count


class TestSubscribers:
    async def test_a_subscriber_misses_no_event_from_its_beginning_on(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        """This includes events between the beginning and the first read, on a stream that does not exist yet."""
        async with QueueEvents(queue_name, redis_url=redis_url) as events:
            await written.put_numbers(range(3))
            assert [(await anext(events)).job_id for _ in range(3)] == ["0", "1", "2"]

    async def test_a_subscriber_does_not_see_earlier_events(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        await written.put(e="completed", id="old")
        async with QueueEvents(queue_name, redis_url=redis_url) as events:
            await written.put(e="completed", id="new")
            assert (await anext(events)).job_id == "new"

    async def test_a_subscriber_from_the_beginning_sees_all_events(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        await written.put_numbers(range(250))
        async with QueueEvents(queue_name, redis_url=redis_url, last_event_id="0", count=100) as events:
            assert [(await anext(events)).job_id for _ in range(250)] == [str(number) for number in range(250)]

    async def test_a_second_subscriber_continues_where_the_first_has_ended(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        await written.put_numbers(range(10))
        async with QueueEvents(queue_name, redis_url=redis_url, last_event_id="0", count=2) as first:
            seen = [await anext(first) for _ in range(4)]
        async with QueueEvents(queue_name, redis_url=redis_url, last_event_id=seen[-1].event_id) as second:
            seen += [await anext(second) for _ in range(6)]
        assert [event.job_id for event in seen] == [str(number) for number in range(10)]

    async def test_fields_are_numbers_where_they_should_be(self, redis_url: str, queue_name: str, written: Log) -> None:
        event_id = await written.put(
            e="failed", id="j", ts=7, n="send", attempt=1, reason="5", duration_us="x", backoff_ms="-3", note="ü"
        )
        async with QueueEvents(queue_name, redis_url=redis_url, last_event_id="0") as events:
            event = await anext(events)
        expected = {"ts": 7, "attempt": 1, "reason": "5", "duration_us": "x", "backoff_ms": "-3", "note": "ü"}
        assert event == QueueEvent("failed", "j", "send", expected, event_id)

    async def test_a_subscriber_reads_on_past_strange_entries(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log
    ) -> None:
        await witness.xadd(written.key, {b"\xff": b"\xfe"})
        await witness.xadd(written.key, {"e": "", "id": ""})
        await written.put(e="completed", id="good")
        async with QueueEvents(queue_name, redis_url=redis_url, last_event_id="0") as events:
            seen = [await anext(events) for _ in range(3)]
        assert [(event.name, event.job_id) for event in seen] == [("", None), ("", None), ("completed", "good")]

    async def test_a_subscriber_sees_only_the_kinds_and_jobs_it_asks_for(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        for kind in ("active", "completed"):
            for job_id in ("a", "b"):
                await written.put(e=kind, id=job_id)
        await written.put(e="end", id="b")
        async with QueueEvents(
            queue_name, redis_url=redis_url, last_event_id="0", names=["completed", "end"], job_ids={"b"}
        ) as events:
            assert [(await anext(events)).name for _ in range(2)] == ["completed", "end"]

    async def test_callbacks_are_called_in_order_and_an_error_stops_none(
        self, redis_url: str, queue_name: str, written: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[tuple[str, str | None]] = []
        events = QueueEvents(queue_name, redis_url=redis_url, last_event_id="0")

        def bad(event: QueueEvent) -> None:
            raise RuntimeError("a defect of the callback")

        async def on_completed(event: QueueEvent) -> None:
            await asyncio.sleep(0)
            seen.append(("completed", event.job_id))

        async def on_any(event: QueueEvent) -> None:
            seen.append(("any", event.job_id))
            if event.name == "end":
                await events.close()

        events.on("completed", bad)
        events.on("completed", on_completed)
        events.on(None, on_any)
        await written.put(e="active", id="1")
        await written.put(e="completed", id="2")
        await written.put(e="end", id="3")
        async with asyncio.timeout(40):
            await events.run()
        assert seen == [("any", "1"), ("completed", "2"), ("any", "2"), ("any", "3")]
        assert "a callback for events named 'completed' has failed" in caplog.text

    async def test_a_close_ends_the_iteration_at_once(self, redis_url: str, queue_name: str) -> None:
        events = QueueEvents(queue_name, redis_url=redis_url, block_ms=5000)

        async def iterate() -> int:
            return len([event async for event in events])

        iterating = asyncio.ensure_future(iterate())
        await asyncio.sleep(0.05)
        started = monotonic()
        await events.close()
        assert await iterating == 0
        assert monotonic() - started < 4
        await events.close()
        assert events.is_closed
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        with pytest.raises(Closed):
            await events.__aenter__()

    async def test_a_callback_that_closes_its_subscriber_is_not_called_again(
        self, redis_url: str, queue_name: str, witness: Any
    ) -> None:
        for number in range(3):
            await witness.xadd(f"{{chasqui:{queue_name}}}:events", {"e": "active", "id": str(number)})
        events = QueueEvents(queue_name, redis_url=redis_url, last_event_id="0")
        called: list[str | None] = []

        async def close(event: QueueEvent) -> None:
            called.append(event.job_id)
            await events.close()

        events.on("active", close)
        await asyncio.wait_for(events.run(), 20)
        assert called == ["0"]

    async def test_a_subscriber_that_stops_waiting_for_an_event_misses_none(
        self, redis_url: str, queue_name: str, written: Log
    ) -> None:
        """As with asyncio.wait_for() around each event."""
        seen: list[str | None] = []
        async with QueueEvents(queue_name, redis_url=redis_url, count=3) as events:

            async def write() -> None:
                for number in range(100):
                    await written.put(e="completed", id=str(number))

            writing = asyncio.ensure_future(write())
            while len(seen) < 100:
                try:
                    async with asyncio.timeout(0.001):
                        seen.append((await anext(events)).job_id)
                except TimeoutError:
                    await asyncio.sleep(0)
            await writing
        assert seen == [str(number) for number in range(100)]

    @pytest.mark.parametrize("last_event_id", ("$", "0"))
    async def test_reconnects_during_a_burst_miss_none(
        self, proxy: Proxy, queue_name: str, written: Log, last_event_id: str
    ) -> None:
        seen: list[str | None] = []
        async with QueueEvents(queue_name, redis_url=proxy.url, last_event_id=last_event_id) as events:

            async def write() -> None:
                for start in range(0, 8_000, 400):
                    await written.put_numbers(range(start, start + 400))
                    accepted = proxy.accepted
                    proxy.cut()
                    while proxy.accepted == accepted:
                        await asyncio.sleep(0.001)

            writing = asyncio.ensure_future(write())
            async with asyncio.timeout(50):
                while len(seen) < 8_000:
                    seen.append((await anext(events)).job_id)
            await writing
        assert seen == [str(number) for number in range(8_000)]
        assert proxy.accepted > 20

    async def test_events_that_were_trimmed_meanwhile_are_skipped(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log
    ) -> None:
        async with QueueEvents(queue_name, redis_url=redis_url, count=1) as events:
            await written.put_numbers(range(10))
            assert (await anext(events)).job_id == "0"
            await witness.xtrim(written.key, maxlen=3, approximate=False)
            assert [(await anext(events)).job_id for _ in range(3)] == ["7", "8", "9"]

    async def test_a_subscriber_that_reads_nothing_costs_the_worker_nothing(
        self, queue: Queue, redis_url: str, queue_name: str
    ) -> None:
        async with (
            QueueEvents(queue_name, redis_url=redis_url, last_event_id="0") as asleep,
            Worker(queue_name, nothing, redis_url=redis_url) as worker,
        ):
            await queue.add_bulk({"name": "send", "data": number} for number in range(500))
            await eventually(lambda: _is_empty(queue))
            assert worker._components is not None
            assert worker._components.event_writer is not None
            assert worker._components.event_writer.dropped == 0
            assert (await anext(asleep)).name == "active"

    async def test_a_subscriber_waits_for_a_server_that_is_away(
        self, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with RedisServer("--appendonly", "yes") as server, caplog.at_level(logging.INFO):
            async with QueueEvents(queue_name, redis_url=server.url) as events:
                event = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0.05)
                server.stop()
                await asyncio.sleep(0.1)
                server.start()
                server.execute("XADD", f"{{chasqui:{queue_name}}}:events", "*", "e", "completed", "id", "j")
                assert (await asyncio.wait_for(event, 40)).job_id == "j"

    @pytest.mark.parametrize("is_cancelled", (True, False))
    async def test_a_subscriber_that_cannot_begin_leaves_no_connection_behind(
        self, queue_name: str, is_cancelled: bool
    ) -> None:
        async def subscribe() -> None:
            async with QueueEvents(queue_name, redis_url="redis://127.0.0.1:1", block_ms=1):
                pass

        before = asyncio.all_tasks()
        beginning = asyncio.create_task(subscribe())
        if is_cancelled:
            await eventually(lambda: any(task.get_name() == "chasqui connect" for task in asyncio.all_tasks()))
            beginning.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else ConnectionLost):
            await beginning
        assert asyncio.all_tasks() == before

    async def test_a_key_of_a_wrong_type_raises_at_the_first_read(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log
    ) -> None:
        await witness.set(written.key, "not a stream", ex=60)
        events = QueueEvents(queue_name, redis_url=redis_url, last_event_id="0")
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            await anext(events)
        await events.close()

    async def test_a_subscriber_that_has_read_before_outlasts_a_stream_of_a_wrong_type(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log
    ) -> None:
        async with QueueEvents(queue_name, redis_url=redis_url, block_ms=50) as events:
            await witness.xadd(written.key, {"e": "completed", "id": "before"})
            assert (await asyncio.wait_for(anext(events), 40)).job_id == "before"
            after = asyncio.create_task(anext(events))
            await witness.set(written.key, "not a stream")
            await asyncio.sleep(0.2)  # for as long as it takes to meet it
            await witness.delete(written.key)
            await witness.xadd(written.key, {"e": "completed", "id": "after"})
            assert (await asyncio.wait_for(after, 40)).job_id == "after"

    @pytest.mark.parametrize("far", ("253402300800000-0", f"{2**64 - 1}-{2**64 - 1}"))
    async def test_a_stream_that_was_begun_again_behind_the_last_event_is_read_from_its_beginning(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log, far: str
    ) -> None:
        async with QueueEvents(queue_name, redis_url=redis_url, block_ms=50) as events:
            await witness.xadd(written.key, {"e": "completed", "id": "far"}, id=far)
            assert (await asyncio.wait_for(anext(events), 40)).event_id == far
            await witness.delete(written.key)
            for job_id in ("first", "second"):
                await witness.xadd(written.key, {"e": "completed", "id": job_id})
            for job_id in ("first", "second"):
                assert (await asyncio.wait_for(anext(events), 40)).job_id == job_id

    async def test_events_that_are_removed_are_not_taken_for_a_new_stream(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log
    ) -> None:
        async with QueueEvents(queue_name, redis_url=redis_url, block_ms=20, last_event_id="0") as events:
            ids = [await witness.xadd(written.key, {"e": "completed", "id": str(number)}) for number in range(2)]
            for number in range(2):
                assert (await asyncio.wait_for(anext(events), 40)).job_id == str(number)
            await witness.xdel(written.key, ids[1])
            following = asyncio.create_task(anext(events))
            await asyncio.sleep(0.1)  # several reads find nothing
            await witness.xadd(written.key, {"e": "completed", "id": "next"})
            assert (await asyncio.wait_for(following, 40)).job_id == "next"

    @pytest.mark.parametrize("is_read", (True, False), ids=("read before", "older than the subscriber"))
    async def test_a_failover_that_loses_the_last_events_repeats_none(
        self,
        redis_url: str,
        queue_name: str,
        witness: redis.asyncio.Redis,
        written: Log,
        is_read: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        for number in range(3):
            await written.put(e="completed", id=str(number))
        replicated = await witness.dump(written.key)
        if not is_read:
            await written.put(e="completed", id="lost")
        async with QueueEvents(queue_name, redis_url=redis_url, block_ms=20) as events:
            if is_read:
                await written.put(e="completed", id="lost")
                assert (await asyncio.wait_for(anext(events), 40)).job_id == "lost"
            following = asyncio.create_task(anext(events))
            await witness.restore(written.key, 0, replicated, replace=True)
            await eventually(lambda: any("the last one that it still has" in line for line in caplog.messages))
            await written.put(e="completed", id="next")
            assert (await asyncio.wait_for(following, 40)).job_id == "next"

    @pytest.mark.parametrize(
        "fields",
        (
            {b"e": b"\xff", b"id": b"\xff", b"ts": b"9" * 5000, b"attempt": b"-1"},
            {b"e": b"x" * 500_000, b"duration_us": "\u00b2".encode()},
            {b"%d" % number: b"" for number in range(1000)},
        ),
        ids=("numbers", "long", "many"),
    )
    async def test_any_entry_of_the_stream_is_read_as_an_event(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, written: Log, fields: dict[bytes, bytes]
    ) -> None:
        async with QueueEvents(queue_name, redis_url=redis_url) as events:
            await witness.xadd(written.key, fields)
            event = await asyncio.wait_for(anext(events), 40)
        assert len(event.name) <= 20_000
        assert len(event.fields) <= 64
        assert all(isinstance(value, str) for value in event.fields.values())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    (
        ({"queue_name": ""}, InvalidArgument, "queue name"),
        ({"queue_name": 7}, InvalidType, "queue name"),
        ({"last_event_id": 0}, InvalidType, "last_event_id must be a str"),
        ({"last_event_id": ""}, InvalidArgument, "last_event_id"),
        ({"last_event_id": "yesterday"}, InvalidArgument, "last_event_id 'yesterday'"),
        ({"last_event_id": "1-"}, InvalidArgument, "last_event_id '1-'"),
        ({"last_event_id": "1-2-3"}, InvalidArgument, "last_event_id '1-2-3'"),
        ({"last_event_id": "1-²"}, InvalidArgument, "last_event_id"),
        ({"last_event_id": "1" * 30}, InvalidArgument, "last_event_id"),
        ({"last_event_id": "+"}, InvalidArgument, "last_event_id"),
        ({"block_ms": 0}, InvalidArgument, "block_ms is 0, must be at least 1"),
        ({"block_ms": "5"}, InvalidType, "block_ms must be an int"),
        ({"count": 0}, InvalidArgument, "count is 0, must be at least 1"),
        ({"count": True}, InvalidType, "count must be an int"),
        ({"names": "completed"}, InvalidType, "names must be a collection of strs"),
        ({"names": [1]}, InvalidType, "names must be a collection of strs"),
        ({"job_ids": 7}, InvalidType, "job_ids must be a collection of strs"),
        ({"job_ids": b"abc"}, InvalidType, "job_ids must be a collection of strs"),
    ),
)
async def test_a_subscriber_refuses_bad_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        QueueEvents(**{"queue_name": "q", **arguments})


async def test_a_callback_must_be_one() -> None:
    events = QueueEvents("q")
    with pytest.raises(InvalidType, match="callback must be a function"):
        events.on("completed", None)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="name must be a str or None, not int"):
        events.on(7, print)  # type: ignore[arg-type]
    await events.close()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    (
        ({"events_enabled": 1}, InvalidType, "events_enabled must be True or False"),
        ({"events_max_stream_len": 0}, InvalidArgument, "events_max_stream_len is 0, must be at least 1"),
        ({"events_max_stream_len": 1.5}, InvalidType, "events_max_stream_len must be an int"),
        ({"events_max_stream_len": -1, "events_enabled": False}, InvalidArgument, "events_max_stream_len"),
        ({"store_results": None}, InvalidType, "store_results must be True or False"),
        ({"store_results": True, "result_ttl_ms": 0}, InvalidArgument, "result_ttl_ms is 0, must be from 1 to"),
        ({"result_ttl_ms": 0}, InvalidArgument, "result_ttl_ms is 0, must be from 1 to"),
        ({"store_results": True, "result_ttl_ms": 0.5}, InvalidType, "result_ttl_ms must be an int"),
        ({"store_results": True, "result_ttl_ms": 2**63}, InvalidArgument, "result_ttl_ms"),
    ),
)
def test_a_worker_refuses_bad_arguments_about_events_and_results(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Worker("q", nothing, **arguments)


async def test_a_caller_that_gives_up_again_and_again_costs_no_connection(
    proxy: Proxy, queue_name: str, make_worker: Callable[..., Worker], queue: Queue
) -> None:
    """Reads that were given up must not stand in the way of the next, which would look as if the line were dead."""

    async def succeed(job: Job) -> None: ...

    async with QueueEvents(queue_name, redis_url=proxy.url, block_ms=500, names={"completed"}) as events:
        for _ in range(60):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.05)
        assert proxy.accepted == 1
        assert proxy.count(b"XREAD") < 12
        async with make_worker(succeed):
            job = await queue.add("run")
            assert (await asyncio.wait_for(anext(events), 40)).job_id == job.id
