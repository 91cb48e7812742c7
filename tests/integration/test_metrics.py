"""The records that a worker passes to its sink, the pages on its port, and the exporter's pages."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import (
    CannotServe,
    InMemorySink,
    InvalidArgument,
    InvalidType,
    Job,
    PrometheusSink,
    Promoter,
    Queue,
    QueueExporter,
    QueueFull,
    RepeatPattern,
    RetryPolicy,
    UnrecoverableError,
    Worker,
)
from pychasqui._http import server as http
from pychasqui._redis.broker import Broker
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from pychasqui.metrics import DlqRouted, JobOutcome, JobsAdded, JobsCancelled, LockOutcome, PromoterTick, ReaderBatch
from tests.support.handlers import fail_by_name
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
QUICK = RetryPolicy(initial_ms=5, jitter_ms=0)
HOUR_MS = 3_600_000


@pytest.fixture
def sink() -> InMemorySink:
    return InMemorySink()


@pytest.fixture
def make_worker(redis_url: str, queue_name: str, sink: InMemorySink) -> Callable[..., Worker]:
    def make(handler: Any, **options: Any) -> Worker:
        usual: dict[str, Any] = {"redis_url": redis_url, "metrics": sink, "retry": QUICK, "events_enabled": False}
        return Worker(queue_name, handler, **usual | options)

    return make


async def succeed(job: Job) -> None:
    """A handler with nothing to do."""


async def fail(job: Job) -> None:
    raise ValueError(job.name)


async def ask(port: int | None, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, head and body of an answer."""
    return await say(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def say(port: int | None, request: bytes) -> tuple[int, str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


class TestOutcomes:
    async def test_a_job_that_succeeds_is_one_outcome(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async def nap(job: Job) -> None:
            await asyncio.sleep(0.02)

        async with make_worker(nap):
            await queue.add_bulk({"name": name} for name in ("mail", "video", "mail"))
            await eventually(lambda: len(sink.job_outcomes) == 3)
        assert sorted(outcome.name for outcome in sink.job_outcomes) == ["mail", "mail", "video"]
        assert {(outcome.kind, outcome.attempt) for outcome in sink.job_outcomes} == {("ok", 1)}
        assert all(15_000 < outcome.handler_duration_us < 5_000_000 for outcome in sink.job_outcomes)
        assert (sink.retries_scheduled, sink.dlq_routes) == ([], [])
        assert sum(batch.size for batch in sink.reader_batches) == 3

    @pytest.mark.leaves_keys("events")
    @pytest.mark.parametrize("options", ({}, {"events_enabled": True}, {"store_results": True}))
    async def test_jobs_of_every_kind_are_counted_once(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink, options: dict[str, Any]
    ) -> None:
        async with make_worker(succeed, **options):
            await queue.add("plain")
            await queue.add_unique("unique", job_id="the-only-one")
            await eventually(lambda: len(sink.job_outcomes) == 2)
        assert sorted(outcome.name for outcome in sink.job_outcomes) == ["plain", "unique"]
        assert {outcome.kind for outcome in sink.job_outcomes} == {"ok"}

    async def test_a_job_that_fails_twice_is_two_retries_and_three_outcomes(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async def fail_twice(job: Job) -> None:
            if job.attempt < 2:
                raise ValueError

        async with make_worker(fail_twice):
            await queue.add("mail")
            await eventually(lambda: len(sink.job_outcomes) == 3)
        outcomes = [(outcome.kind, outcome.attempt, outcome.name) for outcome in sink.job_outcomes]
        assert outcomes == [("err", 1, "mail"), ("err", 2, "mail"), ("ok", 3, "mail")]
        assert [retry.attempt for retry in sink.retries_scheduled] == [2, 3]
        backoffs = [retry.backoff_ms for retry in sink.retries_scheduled]
        assert 0 < backoffs[0] <= backoffs[1]
        assert sink.dlq_routes == []

    @pytest.mark.leaves_keys("dead letters")
    async def test_a_job_that_runs_out_of_attempts_is_dead_by_its_last(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async with make_worker(fail, max_attempts=2):
            await queue.add("mail")
            await eventually(lambda: sink.dlq_routes)
        assert sink.dlq_routes == [DlqRouted("retries_exhausted", 2, "mail")]
        assert [(outcome.kind, outcome.attempt) for outcome in sink.job_outcomes] == [("err", 1), ("err", 2)]
        assert len(sink.retries_scheduled) == 1

    @pytest.mark.leaves_keys("dead letters")
    async def test_an_unrecoverable_job_is_dead_by_its_first(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async def give_up(job: Job) -> None:
            raise UnrecoverableError("no use")

        async with make_worker(give_up):
            await queue.add("mail")
            await eventually(lambda: sink.dlq_routes)
        assert sink.dlq_routes == [DlqRouted("unrecoverable", 1, "mail")]
        assert [outcome.kind for outcome in sink.job_outcomes] == ["err"]

    async def test_a_handler_that_raises_what_is_no_exception_panics(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async def cancel_itself(job: Job) -> None:
            if not job.attempt:
                raise asyncio.CancelledError

        async with make_worker(cancel_itself):
            await queue.add("mail")
            await eventually(lambda: len(sink.job_outcomes) == 2)
        assert [outcome.kind for outcome in sink.job_outcomes] == ["panic", "ok"]
        assert len(sink.retries_scheduled) == 1

    async def test_a_sink_that_raises_stops_no_job(
        self, queue: Queue, make_worker: Callable[..., Worker], queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        def refuse(record: object) -> None:
            raise RuntimeError("no room for numbers")

        class Broken:
            def __getattr__(self, name: str) -> Callable[[object], None]:
                return refuse

        ran: list[str] = []

        async def fail_once(job: Job) -> None:
            ran.append(job.id)
            if not job.attempt:
                raise ValueError

        stream = Stream(witness, queue_name)
        async with make_worker(fail_once, metrics=Broken(), metrics_port=0) as worker:
            await queue.add_bulk({"name": "mail"} for _ in range(20))
            await eventually(lambda: len(ran) == 40)
            await eventually(stream.is_settled)
            _, _, text = await ask(worker.metrics_port)
        assert 'chasquimq_jobs_completed_total{queue="' in text
        refused = re.search(r"chasquimq_metrics_refused_total\{.*\} (\d+)", text)
        assert refused is not None
        assert int(refused[1]) >= 40  # 20 runs that failed and their retries

    async def test_a_worker_without_a_sink_and_a_port_has_no_metrics(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        async with make_worker(succeed, metrics=None) as worker:
            assert worker.metrics_port is None
            assert worker._components is not None
            assert worker._components.metrics is None


class TestArrival:
    async def route(self, stream: Stream, witness: Any, worker: Worker, fields: dict[str, bytes]) -> None:
        async with worker:
            await witness.xadd(stream.key, fields)
            await eventually(stream.is_settled)

    @pytest.mark.parametrize(
        ("fields", "reason"),
        (
            ({"x": b"no envelope", "n": b"mail"}, "malformed"),
            ({"d": b"\xc1\xc1", "n": b"mail"}, "decode_failed"),
            ({"d": b"x" * 2000, "n": b"mail"}, "oversize_payload"),
        ),
    )
    @pytest.mark.leaves_keys("dead letters")
    async def test_an_entry_that_cannot_be_run_is_dead_without_a_run(
        self,
        make_worker: Callable[..., Worker],
        sink: InMemorySink,
        witness: redis.asyncio.Redis,
        queue_name: str,
        fields: dict[str, bytes],
        reason: str,
    ) -> None:
        await self.route(Stream(witness, queue_name), witness, make_worker(succeed, max_payload_bytes=1000), fields)
        assert sink.dlq_routes == [DlqRouted(reason, 0, "mail")]
        assert sink.job_outcomes == []
        assert sink.reader_batches == [ReaderBatch(1, 0)]

    @pytest.mark.leaves_keys("dead letters")
    async def test_a_job_without_attempts_left_is_recorded_with_its_earlier_attempts(
        self, make_worker: Callable[..., Worker], sink: InMemorySink, witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        envelope = encode_envelope("01ARZ3NDEKTSV4RRFFQ69G5FAV", encode_data(None), 1, 5, None)
        fields = {"d": envelope, "n": b"mail"}
        await self.route(Stream(witness, queue_name), witness, make_worker(succeed, max_attempts=3), fields)
        assert sink.dlq_routes == [DlqRouted("retries_exhausted", 5, "mail")]
        assert sink.job_outcomes == []
        assert sink.reader_batches == [ReaderBatch(1, 0)]

    @pytest.mark.leaves_keys("dead letters and events")
    async def test_workers_that_take_over_from_each_other_bury_and_count_each_entry_once(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        sink: InMemorySink,
        witness: redis.asyncio.Redis,
        queue_name: str,
    ) -> None:
        stream = Stream(witness, queue_name)
        await witness.xgroup_create(stream.key, "default", "0", mkstream=True)
        for number in range(20):
            await witness.xadd(stream.key, {"d": b"\xc1%d" % number})
        await witness.xreadgroup("default", "official", {stream.key: ">"}, count=10)  # held by no live worker
        async with AsyncExitStack() as workers:
            for _ in range(3):
                await workers.enter_async_context(make_worker(succeed, claim_min_idle_ms=300, events_enabled=True))
            await eventually(stream.is_settled)
            await asyncio.sleep(0.1)  # many more looks for what may be taken over
        assert await queue.dlq.count() == 20
        assert sink.dlq_routes == [DlqRouted("decode_failed", 0, "")] * 20
        events = await witness.xrange(f"{{chasqui:{queue_name}}}:events")
        assert [fields[b"e"] for _, fields in events].count(b"dlq") == 20

    async def test_entries_that_another_worker_had_begun_are_counted_as_reclaimed(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        sink: InMemorySink,
        witness: redis.asyncio.Redis,
        queue_name: str,
    ) -> None:
        key = Stream(witness, queue_name).key
        await witness.xgroup_create(key, "default", "0", mkstream=True)
        await queue.add_bulk({"name": "mail"} for _ in range(3))
        await witness.xreadgroup("default", "official", {key: ">"})
        async with make_worker(succeed, claim_min_idle_ms=300):
            await eventually(lambda: len(sink.job_outcomes) == 3)
        assert sum(batch.reclaimed for batch in sink.reader_batches) == 3


class TestPromoter:
    async def test_ticks_add_up_to_what_was_promoted(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async with make_worker(succeed):
            await queue.add_bulk({"name": "mail", "delay_ms": 50} for _ in range(5))
            await eventually(lambda: len(sink.job_outcomes) == 5)
            await eventually(lambda: sum(tick.promoted for tick in sink.promoter_ticks) == 5)
        assert sink.promoter_ticks[-1].depth == 0
        assert {tick.oldest_pending_lag_ms for tick in sink.promoter_ticks} == {0}

    @pytest.mark.leaves_keys("a delayed job")
    async def test_a_job_that_is_not_due_counts_as_depth_and_not_as_lag(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        await queue.add("mail", delay_ms=HOUR_MS)
        async with make_worker(succeed):
            await eventually(lambda: sink.promoter_ticks)
        assert sink.promoter_ticks[0] == PromoterTick(0, 1, 0)

    async def test_jobs_that_are_due_and_not_promoted_yet_are_late(
        self,
        make_worker: Callable[..., Worker],
        sink: InMemorySink,
        witness: redis.asyncio.Redis,
        queue_name: str,
        redis_url: str,
    ) -> None:
        seconds, _ = await witness.time()
        for number in range(3):
            envelope = encode_envelope(f"id-{number}", encode_data(None), 1, 0, None)
            due_ms = (int(seconds) - 60) * 1000
            await witness.zadd(f"{{chasqui:{queue_name}}}:delayed", {make_delayed_member("mail", envelope): due_ms})
        alone = Promoter(queue_name, redis_url=redis_url, promote_batch=1, metrics=sink)
        async with make_worker(succeed, delayed_enabled=False), alone:
            await eventually(lambda: len(sink.promoter_ticks) > 3)
        assert [(tick.promoted, tick.depth) for tick in sink.promoter_ticks[:4]] == [(1, 2), (1, 1), (1, 0), (0, 0)]
        assert [tick.oldest_pending_lag_ms >= 59_000 for tick in sink.promoter_ticks[:4]] == [True, True, False, False]

    async def test_ticks_that_find_nothing_are_zero(
        self, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async with make_worker(succeed):
            await eventually(lambda: len(sink.promoter_ticks) >= 2)
        assert set(sink.promoter_ticks) == {PromoterTick(0, 0, 0)}

    async def test_the_lock_outcome_is_recorded_only_when_it_changes(
        self, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        other = InMemorySink()
        async with make_worker(succeed, metrics=other):
            async with make_worker(succeed):
                await eventually(lambda: len(sink.lock_outcomes) == 2)
                await eventually(lambda: len(other.promoter_ticks) >= 3)
                assert set(sink.lock_outcomes) == {LockOutcome("held"), LockOutcome("held", "scheduler")}
                assert sink.promoter_ticks == []
            assert set(other.lock_outcomes) == {LockOutcome("acquired"), LockOutcome("acquired", "scheduler")}
            assert len(other.lock_outcomes) == 2

    async def test_a_worker_that_takes_over_the_lead_records_it(
        self, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        first = make_worker(succeed, metrics=None)
        async with first, make_worker(succeed):
            await eventually(lambda: len(sink.lock_outcomes) == 2)
            await first.close()
            await eventually(lambda: LockOutcome("acquired") in sink.lock_outcomes)
        assert sink.lock_outcomes.count(LockOutcome("held")) == 1

    async def test_a_standalone_promoter_records_metrics_too(
        self, queue: Queue, redis_url: str, queue_name: str, sink: InMemorySink
    ) -> None:
        async with Promoter(queue_name, redis_url=redis_url, metrics=sink):
            await queue.add("mail", delay_ms=20)
            await eventually(lambda: sum(tick.promoted for tick in sink.promoter_ticks) == 1)
        assert sink.lock_outcomes == [LockOutcome("acquired")]
        await queue.drain()


class TestAdding:
    @pytest.mark.leaves_keys("a delayed job")
    async def test_a_queue_records_its_added_jobs(self, redis_url: str, queue_name: str, sink: InMemorySink) -> None:
        async with Queue(queue_name, redis_url=redis_url, metrics=sink) as queue:
            await queue.add("mail")
            await queue.add("mail", delay_ms=HOUR_MS)
            assert (await queue.add_unique("mail", job_id="one")).is_new
            assert not (await queue.add_unique("mail", job_id="one")).is_new
            await queue.add_bulk({"name": "video", "data": number} for number in range(2500))
            await queue.obliterate()
        alone, bulk = sink.additions[:3], sink.additions[3:]
        assert alone == [JobsAdded(1, "now", "mail"), JobsAdded(1, "delayed", "mail"), JobsAdded(1, "now", "mail")]
        assert [(added.mode, added.name) for added in bulk] == [("now", "video")] * 3
        assert sum(added.count for added in bulk) == 2500

    async def test_a_job_that_was_refused_does_not_count(
        self, redis_url: str, queue_name: str, sink: InMemorySink
    ) -> None:
        async with Queue(queue_name, redis_url=redis_url, metrics=sink, max_stream_len=1) as queue:
            await queue.add("mail")
            for refused in (queue.add("mail"), queue.add_bulk([{"name": "mail"}])):
                with pytest.raises(QueueFull):
                    await refused
            await queue.drain()
        assert sink.additions == [JobsAdded(1, "now", "mail")]

    async def test_an_add_whose_reply_was_lost_counts_once(
        self, server: RedisServer, redis_url: str, queue_name: str, sink: InMemorySink
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url, metrics=sink) as queue:
            await queue.add("mail")
            for add in (lambda: queue.add("mail"), lambda: queue.add_bulk([{"name": "mail"}])):
                cut = proxy.cut_mid_reply(b":stream")
                await add()
                assert cut.done.is_set()
            assert (await queue.counts()).waiting == 3
            await queue.drain()
        assert sink.additions == [JobsAdded(1, "now", "mail")] * 3

    async def test_a_sink_that_raises_harms_no_add(self, redis_url: str, queue_name: str) -> None:
        class Broken:
            def jobs_added(self, added: JobsAdded) -> None:
                raise RuntimeError("no room for numbers")

        sink: Any = Broken()
        async with Queue(queue_name, redis_url=redis_url, metrics=sink) as queue:
            assert (await queue.add("mail")).is_new
            assert len(await queue.add_bulk([{"name": "mail"}] * 3)) == 3
            assert await queue.drain() == 4

    async def test_a_repeatable_that_fires_adds_jobs_too(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        await queue.upsert_repeatable_job("nightly", repeat=RepeatPattern.every(50), limit=2)
        async with make_worker(succeed, scheduler_tick_ms=10):
            await eventually(lambda: len(sink.job_outcomes) == 2)
        assert sum(added.count for added in sink.additions) == 2
        assert {(added.mode, added.name) for added in sink.additions} == {("repeat", "nightly")}


class TestRedisTimes:
    @pytest.mark.leaves_keys("dead letters")
    async def test_the_sink_gets_the_time_of_redis_for_each_kind_of_batch(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        async with make_worker(fail_by_name):
            await queue.add_bulk({"name": name} for name in ("good", "bad", "flaky"))
            await queue.add_unique("good", job_id="one")
            await eventually(lambda: len(sink.job_outcomes) == 5)
        assert {answer.command for answer in sink.redis_answers} == {"ack", "finish", "reschedule", "bury", "promote"}
        assert all(0 < answer.seconds < 5 for answer in sink.redis_answers)

    async def test_no_call_is_timed_without_a_sink_that_wants_it(self, make_worker: Callable[..., Worker]) -> None:
        class Few:
            def job_outcome(self, outcome: JobOutcome) -> None:
                """Wants nothing else."""

        for metrics in (None, Few()):
            async with make_worker(succeed, metrics=metrics) as worker:
                assert worker._components is not None
                assert type(worker._components.broker) is Broker


class TestPort:
    async def test_a_worker_shows_its_numbers(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink, queue_name: str
    ) -> None:
        async with make_worker(succeed, metrics_port=0, concurrency=7) as worker:
            await queue.add_bulk({"name": "mail"} for _ in range(50))
            await eventually(lambda: len(sink.job_outcomes) == 50)
            status, head, text = await ask(worker.metrics_port)
        assert status == 200
        assert "Content-Type: text/plain; version=0.0.4" in head
        for line in (
            f'chasquimq_jobs_completed_total{{queue="{queue_name}",name="mail"}} 50',
            f'chasquimq_handler_duration_seconds_count{{queue="{queue_name}",name="mail"}} 50',
            f'chasquimq_worker_concurrency{{queue="{queue_name}"}} 7',
            f'chasquimq_worker_busy{{queue="{queue_name}"}} 0',
            f'chasquimq_worker_ready{{queue="{queue_name}"}} 1',
            f'chasquimq_redis_reconnects_total{{queue="{queue_name}"}} 0',
        ):
            assert line in text.splitlines()
        assert re.search(r'chasquimq_build_info\{queue=".*",version=".+",python="3\..*",redis="\w+ \d.*"\} 1', text)

    async def test_a_prometheus_sink_of_ones_own_is_the_one_that_is_shown(
        self, queue: Queue, make_worker: Callable[..., Worker], queue_name: str
    ) -> None:
        own = PrometheusSink(queue_name)
        async with make_worker(succeed, metrics=own, metrics_port=0) as worker:
            await queue.add("mail")
            await eventually(lambda: "jobs_completed_total" in own.render())
            _, _, text = await ask(worker.metrics_port)
        assert f'chasquimq_jobs_completed_total{{queue="{queue_name}",name="mail"}} 1' in text.splitlines()

    async def test_a_worker_that_runs_is_healthy_and_ready(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(succeed, metrics_port=0) as worker:
            assert (await ask(worker.metrics_port, "/healthz"))[::2] == (200, "ok\n")
            assert (await ask(worker.metrics_port, "/readyz"))[::2] == (200, "ok\n")
            assert (await ask(worker.metrics_port, "/readyz?verbose=1"))[0] == 200

    async def test_a_worker_that_waits_for_redis_is_healthy_and_not_ready(self, queue_name: str) -> None:
        worker = Worker(queue_name, succeed, redis_url="redis://127.0.0.1:1", metrics_port=0)
        running = asyncio.create_task(worker.run())
        await eventually(lambda: worker.metrics_port)
        assert (await ask(worker.metrics_port, "/healthz"))[0] == 200
        assert (await ask(worker.metrics_port, "/readyz"))[::2] == (503, "no connection to Redis\n")
        assert (await ask(worker.metrics_port))[0] == 200
        await worker.close()
        await running

    async def test_a_worker_that_has_lost_redis_is_not_ready_until_it_is_back(
        self, make_worker: Callable[..., Worker], server: RedisServer, redis_url: str
    ) -> None:
        async with (
            Proxy(redis_url) as proxy,
            make_worker(succeed, metrics_port=0, redis_url=proxy.url, lease_ms=300) as worker,
        ):
            ready = functools.partial(ask, worker.metrics_port, "/readyz")
            await eventually(lambda: _is(ready, 200))
            proxy.freeze()
            await eventually(lambda: _is(ready, 503))
            assert (await ask(worker.metrics_port, "/healthz"))[0] == 200
            proxy.thaw()
            await eventually(lambda: _is(ready, 200), timeout=40)

    async def test_a_worker_that_closes_is_not_ready_and_its_port_goes_with_it(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        gate, is_running = asyncio.Event(), asyncio.Event()

        async def wait(job: Job) -> None:
            is_running.set()
            await gate.wait()

        async with make_worker(wait, metrics_port=0) as worker:
            port = worker.metrics_port
            await queue.add("mail")
            await is_running.wait()
            closing = asyncio.create_task(worker.close())
            await eventually(lambda: _is(functools.partial(ask, port, "/readyz"), 503))
            assert (await ask(port))[0] == 200
            gate.set()
            await closing
        with pytest.raises(OSError, match="onnect"):
            await ask(port)

    async def test_the_port_answers_get_and_head_only(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(succeed, metrics_port=0) as worker:
            status, head, body = await ask(worker.metrics_port, "/healthz", "HEAD")
            assert (status, body) == (200, "")
            assert "Content-Length: 3" in head
            status, head, _ = await ask(worker.metrics_port, "/healthz", "POST")
            assert status == 405
            assert "Allow: GET, HEAD" in head
            assert (await ask(worker.metrics_port, "/"))[0] == 404

    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        (
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
            (b"\xff\xfe\r\n\r\n", 400),
            (b"G\r\n\r\n", 400),
        ),
        ids=("too large", "no text", "no path"),
    )
    async def test_a_malformed_request_is_refused(
        self, make_worker: Callable[..., Worker], request_bytes: bytes, status: int
    ) -> None:
        async with make_worker(succeed, metrics_port=0) as worker:
            assert (await say(worker.metrics_port, request_bytes))[0] == status

    async def test_a_slow_client_is_cut_off(
        self, make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "ANSWER_WITHIN_S", 0.05)
        async with make_worker(succeed, metrics_port=0) as worker:
            reader, writer = await asyncio.open_connection("127.0.0.1", worker.metrics_port)
            writer.write(b"GET /metrics HTTP/1.1\r\n")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    async def test_a_worker_ends_while_a_client_is_asking(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(succeed, metrics_port=0) as worker:
            _, writer = await asyncio.open_connection("127.0.0.1", worker.metrics_port)
            writer.write(b"GET /metrics")
            closed_at = monotonic()
            await worker.close()
            assert monotonic() - closed_at < http.ANSWER_WITHIN_S  # it does not wait until the client is given up
            assert not worker.is_running
            writer.close()

    async def test_a_port_that_is_taken_is_refused_by_name(self, make_worker: Callable[..., Worker]) -> None:
        async with make_worker(succeed, metrics_port=0) as worker:
            with pytest.raises(CannotServe, match=f"127.0.0.1:{worker.metrics_port} "):
                await make_worker(succeed, metrics_port=worker.metrics_port).run()

    @pytest.mark.parametrize(
        ("options", "error"),
        (
            ({"metrics_port": "80"}, InvalidType),
            ({"metrics_port": 65536}, InvalidArgument),
            ({"metrics_port": 0, "metrics_host": 5}, InvalidType),
        ),
    )
    def test_an_address_that_is_none_is_refused(self, options: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error, match=next(iter(options)) if len(options) == 1 else "metrics_host"):
            Worker("q", succeed, **options)


async def _is(ask_for: Callable[[], Any], status: int) -> bool:
    try:
        return bool((await ask_for())[0] == status)
    except (OSError, IndexError):
        return False


class TestExporter:
    @pytest.mark.leaves_keys("jobs in every state")
    async def test_the_exporter_shows_the_state_of_a_queue(
        self, queue: Queue, make_worker: Callable[..., Worker], queue_name: str, sink: InMemorySink
    ) -> None:
        async with make_worker(fail, max_attempts=1, run_scheduler=False) as worker:
            await queue.add("mail")
            await eventually(lambda: sink.dlq_routes)
            await queue.pause()
            await eventually(queue.workers)
            await queue.add("video", delay_ms=HOUR_MS)
            await queue.upsert_repeatable_job("nightly", repeat=RepeatPattern.every(HOUR_MS))
            async with QueueExporter([queue]) as exporter:
                status, _, text = await ask(exporter.metrics_port)
                for path in ("/healthz", "/readyz"):
                    assert (await ask(exporter.metrics_port, path))[::2] == (200, "ok\n")
            assert worker.is_running
        assert status == 200
        for line in (
            f'chasquimq_queue_up{{queue="{queue_name}"}} 1',
            f'chasquimq_queue_jobs{{queue="{queue_name}",state="dlq"}} 1',
            f'chasquimq_queue_jobs{{queue="{queue_name}",state="delayed"}} 1',
            f'chasquimq_queue_jobs{{queue="{queue_name}",state="waiting"}} 0',
            f'chasquimq_queue_paused{{queue="{queue_name}"}} 1',
            f'chasquimq_workers{{queue="{queue_name}"}} 1',
            f'chasquimq_repeatables{{queue="{queue_name}"}} 1',
        ):
            assert line in text.splitlines()
        assert re.search(r'chasquimq_schedule_next_fire_timestamp_seconds\{queue=".*",key=".+"\} \d{10}', text)

    async def test_a_queue_out_of_reach_does_not_hide_the_others(
        self, queue: Queue, queue_name: str, server: RedisServer, redis_url: str
    ) -> None:
        async with Proxy(redis_url) as proxy, Queue("lost", redis_url=proxy.url, timeout_s=1.0) as lost:
            proxy.refuse()
            async with QueueExporter([queue, lost]) as exporter:
                text = await exporter.render()
                assert (await ask(exporter.metrics_port, "/healthz"))[0] == 200
                assert (await ask(exporter.metrics_port, "/readyz"))[::2] == (503, "Redis does not answer for lost\n")
        assert f'chasquimq_queue_up{{queue="{queue_name}"}} 1' in text.splitlines()
        assert 'chasquimq_queue_up{queue="lost"} 0' in text.splitlines()
        assert 'queue_jobs{queue="lost"' not in text

    async def test_a_queue_that_is_closed_is_not_ready(self, queue: Queue, redis_url: str) -> None:
        async with Queue("closed", redis_url=redis_url) as closed:
            pass
        async with QueueExporter([queue, closed]) as exporter:
            assert (await ask(exporter.metrics_port, "/readyz"))[0] == 503

    def test_an_exporter_without_queues_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="queues"):
            QueueExporter([])


class TestDashboard:
    @pytest.mark.leaves_keys("a dead letter, a delayed job and a repeatable")
    async def test_every_metric_that_the_dashboard_and_the_alerts_name_exists(
        self, queue: Queue, make_worker: Callable[..., Worker], sink: InMemorySink
    ) -> None:
        await queue.upsert_repeatable_job("nightly", repeat=RepeatPattern.every(HOUR_MS))
        own = PrometheusSink("q")
        own.promoter_lock_outcome(LockOutcome("acquired"))
        own.promoter_lock_outcome(LockOutcome("held"))
        own.jobs_added(JobsAdded(1, "now"))
        own.jobs_cancelled(JobsCancelled(1, "stopped"))
        async with make_worker(fail_by_name, metrics_port=0) as worker:
            await queue.add_bulk({"name": name} for name in ("good", "bad", "flaky"))
            await eventually(lambda: len(sink.job_outcomes) == 4)
            await eventually(lambda: sink.promoter_ticks)
            _, _, text = await ask(worker.metrics_port)
            text += await QueueExporter([queue]).render() + own.render()
        exist: set[str] = set()
        for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
            exist |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
        page = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text()
        rows = [row for row in page.splitlines() if "| supervisor |" not in row]
        listed = re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`.*?) \|", "\n".join(rows), re.MULTILINE)))
        assert sorted(f"chasquimq_{name}" for name in listed) == sorted(set(re.findall(r"^# TYPE (\w+)", text, re.M)))
        for file in ("grafana/chasqui.json", "prometheus/alerts.yaml"):
            named = set(re.findall(r"chasquimq_\w+", (DEPLOY / file).read_text()))
            assert len(named) >= 10
            assert named <= exist, named - exist

    def test_the_dashboard_is_one(self) -> None:
        board = json.loads((DEPLOY / "grafana" / "chasqui.json").read_text())
        assert board["schemaVersion"] >= 39
        variables = [variable["name"] for variable in board["templating"]["list"]]
        assert variables == ["datasource", "queue", "name", "worker"]
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                expression = target["expr"]
                assert all(expression.count(left) == expression.count(right) for left, right in ("()", "{}", "[]"))
                assert set(re.findall(r"\$([a-z]+)\b", expression)) <= {*variables}

    def test_the_alerts_are_ones(self) -> None:
        yaml = pytest.importorskip("yaml")
        rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
        assert len({rule["alert"] for rule in rules}) == len(rules)
        for rule in rules:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"]["summary"]
            assert all(rule["expr"].count(left) == rule["expr"].count(right) for left, right in ("()", "{}", "[]"))


def test_outcomes_are_what_the_official_engine_calls_them() -> None:
    assert JobOutcome("ok", 1, 2).__struct_fields__ == ("kind", "attempt", "handler_duration_us", "name")
    assert PromoterTick(1, 2, 3).__struct_fields__ == ("promoted", "depth", "oldest_pending_lag_ms")
