"""A trace goes with its job, through delays, retries, dead letters and replays; without a provider there is none."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, Queue, QueueFull, RetryPolicy, Worker, logs, tracing
from pychasqui._core.limits import ADD_BATCH_JOBS
from pychasqui._wire.envelope import decode_envelope, encode_envelope, encode_extras, read_extra_or_none
from pychasqui._wire.msgpack import encode_data
from pychasqui.errors import InvalidArgument, InvalidType
from tests.support.waiting import eventually

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from pychasqui.integrations.opentelemetry import OpenTelemetry, TraceFilter

AT_ONCE = RetryPolicy(initial_ms=1, max_ms=1, jitter_ms=0)


class Spans:
    """The spans that the provider of this test got."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(start)]

    async def processed(self, count: int) -> list[ReadableSpan]:
        await eventually(lambda: len(self.named("process ")) >= count)
        return self.named("process ")

    def sent(self) -> ReadableSpan:
        (span,) = self.named("send ")
        return span


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.parent is not None
    assert parent.context is not None
    return (span.parent.trace_id, span.parent.span_id) == (parent.context.trace_id, parent.context.span_id)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def queue(redis_url: str, queue_name: str, spans: Spans) -> AsyncIterator[Queue]:
    async with Queue(queue_name, redis_url=redis_url, tracing=OpenTelemetry(spans.provider)) as queue:
        yield queue


@pytest.fixture
def make_worker(redis_url: str, queue_name: str, spans: Spans) -> Callable[..., Worker]:
    def make(handler: Any, **options: Any) -> Worker:
        usual: dict[str, Any] = {"redis_url": redis_url, "retry": AT_ONCE, "events_enabled": False}
        return Worker(queue_name, handler, **usual | {"tracing": OpenTelemetry(spans.provider)} | options)

    return make


@pytest.fixture
def add_raw(witness: redis.asyncio.Redis, queue_name: str) -> Callable[..., Any]:
    """Adds as another producer does."""

    async def add(envelope: bytes) -> None:
        client: Any = witness
        await client.xadd(f"{{chasqui:{queue_name}}}:stream", {b"d": envelope, b"n": b"mail"})

    return add


async def succeed(job: Job) -> None:
    pass


class Fails:
    """A handler that fails a given number of times."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def __call__(self, job: Job) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ValueError("no room " + "x" * 10_000)


class TestSpans:
    async def test_an_add_and_its_run_are_one_trace(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans, queue_name: str
    ) -> None:
        async with make_worker(succeed, consumer_id="w-1", max_attempts=7):
            with spans.provider.get_tracer("shop").start_as_current_span("order") as order:
                job = await queue.add("mail", {"to": "ada"})
            (run,) = await spans.processed(1)
        sent = spans.sent()
        assert (sent.name, sent.kind) == (f"send {queue_name}", SpanKind.PRODUCER)
        assert (run.name, run.kind) == (f"process {queue_name}", SpanKind.CONSUMER)
        assert isinstance(order, ReadableSpan)
        assert is_child(sent, order)
        assert is_child(run, sent)
        both: dict[str, Any] = {
            "messaging.system": "chasquimq",
            "messaging.destination.name": queue_name,
            "messaging.message.id": job.id,
            "messaging.chasquimq.job.name": "mail",
        }
        assert (both | {"messaging.operation.name": "send", "messaging.operation.type": "send"}).items() <= (
            attributes_of(sent).items()
        )
        own = {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": "default",
            "messaging.client.id": "w-1",
            "messaging.chasquimq.job.attempt": 0,
            "messaging.chasquimq.job.max_attempts": 7,
        }
        assert (both | own).items() <= attributes_of(run).items()
        assert attributes_of(run)["server.address"] == attributes_of(sent)["server.address"]
        assert "error.type" not in attributes_of(run)

    async def test_a_bulk_is_one_send_span(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        await queue.add_bulk([])
        assert spans.named("") == []
        count = ADD_BATCH_JOBS + 100  # in two calls
        await queue.add_bulk({"name": "mail", "data": number} for number in range(count))
        assert attributes_of(spans.sent())["messaging.batch.message_count"] == count
        assert attributes_of(spans.sent())["messaging.chasquimq.job.name"] == "mail"
        async with make_worker(succeed):
            runs = await spans.processed(count)
        assert len(runs) == count
        assert all(is_child(run, spans.sent()) for run in runs)

    async def test_a_bulk_in_which_some_jobs_have_a_timeout_or_expire_is_one_trace(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        minute = timedelta(minutes=1)
        await queue.add_bulk(
            [{"name": "mail", "timeout": minute}, {"name": "mail"}, {"name": "mail", "expires_in": minute}]
        )
        async with make_worker(succeed):
            assert all(is_child(run, spans.sent()) for run in await spans.processed(3))

    async def test_an_add_that_fails_says_so(self, redis_url: str, queue_name: str, spans: Spans) -> None:
        options: dict[str, Any] = {"redis_url": redis_url, "max_stream_len": 1}
        async with Queue(queue_name, tracing=OpenTelemetry(spans.provider), **options) as queue:
            with pytest.raises(QueueFull):
                await queue.add_bulk([{"name": "mail"}] * 2)
            await queue.obliterate()
        assert spans.sent().status.status_code is StatusCode.ERROR
        assert attributes_of(spans.sent())["error.type"] == "QueueFull"

    async def test_a_handler_in_a_thread_is_in_its_span(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        def handle(job: Job) -> None:
            spans.provider.get_tracer("shop").start_span("inside").end()

        async with make_worker(handle):
            await queue.add("mail")
            (run,) = await spans.processed(1)
        (inside,) = spans.named("inside")
        assert is_child(inside, run)

    async def test_jobs_side_by_side_keep_their_spans_apart(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        async def handle(job: Job) -> None:
            await asyncio.sleep(0)
            with spans.provider.get_tracer("shop").start_as_current_span(f"inside {job.id}"):
                await asyncio.sleep(0)

        async with make_worker(handle, concurrency=10):
            await asyncio.gather(*(queue.add("mail") for _ in range(20)))
            runs = {attributes_of(run)["messaging.message.id"]: run for run in await spans.processed(20)}
        for inside in spans.named("inside "):
            assert is_child(inside, runs[inside.name.removeprefix("inside ")])

    async def test_a_link_instead_of_a_parent(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        async with make_worker(succeed, tracing=OpenTelemetry(spans.provider, trace_parent="link")):
            await queue.add("mail")
            (run,) = await spans.processed(1)
        assert run.parent is None
        (link,) = run.links
        sender = spans.sent().context
        assert sender is not None
        assert (link.context.trace_id, link.context.span_id) == (sender.trace_id, sender.span_id)

    async def test_the_trace_state_goes_along_and_so_does_the_choice_not_to_sample(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        seen: list[SpanContext] = []

        async def handle(job: Job) -> None:
            seen.append(trace.get_current_span().get_span_context())

        unsampled = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(0), trace_state=TraceState([("a", "b")]))
        async with make_worker(handle):
            with trace.use_span(NonRecordingSpan(unsampled)):
                await queue.add("mail")
            await eventually(lambda: seen)
        assert (seen[0].trace_id, seen[0].trace_flags, seen[0].trace_state) == (7, 0, TraceState([("a", "b")]))
        assert spans.named("") == []

    async def test_lines_of_a_log_name_their_trace(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.handler.addFilter(logs.JobFilter())
        caplog.handler.addFilter(TraceFilter())

        async def handle(job: Job) -> None:
            logging.getLogger("shop").warning("here")

        async with make_worker(handle):
            job = await queue.add("mail")
            (run,) = await spans.processed(1)
        (line,) = [record.__dict__ for record in caplog.records if record.name == "shop"]
        assert run.context is not None
        assert line["trace_id"] == trace.format_trace_id(run.context.trace_id)
        assert line["span_id"] == trace.format_span_id(run.context.span_id)
        assert (line["job_id"], line["attempt"]) == (job.id, 0)


class TestTheWay:
    async def test_a_trace_survives_a_delay(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        async with make_worker(succeed):
            await queue.add("mail", delay_ms=50)
            (run,) = await spans.processed(1)
        assert is_child(run, spans.sent())
        assert attributes_of(spans.sent())["messaging.chasquimq.job.delay_ms"] == 50

    async def test_a_trace_survives_a_retry(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        async with make_worker(Fails(2)):
            await queue.add("mail", attempts=5)
            runs = await spans.processed(3)
        assert all(is_child(run, spans.sent()) for run in runs)
        assert [attributes_of(run)["messaging.chasquimq.job.attempt"] for run in runs] == [0, 1, 2]
        assert [attributes_of(run).get("error.type") for run in runs] == ["ValueError", "ValueError", None]
        assert [run.status.status_code for run in runs] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
        (error,) = runs[0].events
        attributes = dict(error.attributes or {})
        assert attributes["exception.type"] == "ValueError"
        assert 4000 >= len(str(attributes["exception.message"])) > 100
        assert len(str(attributes["exception.stacktrace"])) <= 4000
        assert len(runs[0].status.description or "") < 4100

    async def test_a_trace_survives_death_and_replay(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        async with make_worker(Fails(1), max_attempts=1):
            await queue.add("mail")
            await eventually(queue.dlq.count)
            assert await queue.replay_dlq() == 1
            runs = await spans.processed(2)
        assert all(is_child(run, spans.sent()) for run in runs)

    async def test_a_trace_survives_being_the_only_one_of_its_id(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        assert (await queue.add("mail", 1, job_id="one", delay_ms=100)).is_new
        assert (await queue.add("mail", 2, job_id="one", delay_ms=100, if_exists="replace")).has_replaced
        async with make_worker(succeed):
            (run,) = await spans.processed(1)
        assert is_child(run, spans.named("send ")[1])

    async def test_an_entry_of_an_official_producer_starts_a_trace(
        self, make_worker: Callable[..., Worker], spans: Spans, add_raw: Callable[..., Any]
    ) -> None:
        with spans.provider.get_tracer("shop").start_as_current_span("around the worker"):
            async with make_worker(succeed):
                await add_raw(encode_envelope("official", encode_data(1), 5, 0, None))
                (run,) = await spans.processed(1)
        assert run.parent is None
        assert run.links == ()

    @pytest.mark.parametrize(
        "extras",
        (
            encode_extras(t="nonsense"),
            encode_extras(t=5),
            encode_extras(t="00-" + "0" * 32 + "-" + "0" * 16 + "-01"),
            encode_extras(t="x" * 100_000),
            encode_extras(t=f"00-{7:032x}-{8:016x}-01", ts=[]),
            encode_extras(s=5),
            b"\x81",
            b"\x81\x00\x00junk",
            b"junk",
        ),
    )
    async def test_a_context_that_makes_no_sense_starts_a_trace(
        self, make_worker: Callable[..., Worker], spans: Spans, add_raw: Callable[..., Any], extras: bytes
    ) -> None:
        async with make_worker(succeed):
            await add_raw(encode_envelope("odd", encode_data(1), 5, 0, None, extras))
            (run,) = await spans.processed(1)
        assert run.parent is None
        assert run.status.status_code is StatusCode.UNSET

    async def test_a_job_that_fills_its_bound_goes_without_a_context(
        self, redis_url: str, queue_name: str, make_worker: Callable[..., Worker], spans: Spans
    ) -> None:
        options: dict[str, Any] = {"redis_url": redis_url, "max_payload_bytes": 200}
        worker = make_worker(succeed, max_payload_bytes=200)
        async with Queue(queue_name, tracing=OpenTelemetry(spans.provider), **options) as queue, worker:
            await queue.add("mail", b"x" * 150)
            (run,) = await spans.processed(1)
        assert run.parent is None


class TestTracingChoice:
    @pytest.fixture
    def entries(self, witness: redis.asyncio.Redis, queue_name: str) -> Callable[[], Any]:
        async def read() -> list[bytes]:
            client: Any = witness
            return [fields[b"d"] for _, fields in await client.xrange(f"{{chasqui:{queue_name}}}:stream")]

        return read

    async def test_no_span_is_created_without_a_provider(
        self, redis_url: str, queue_name: str, entries: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(*_: object) -> None:
            raise AssertionError("made for nobody")

        monkeypatch.setattr(OpenTelemetry, "__init__", forbidden)
        seen: list[trace.Span] = []

        async def handle(job: Job) -> None:
            seen.append(trace.get_current_span())

        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add("mail")
            await queue.add_bulk([{"name": "mail"}])
            assert [decode_envelope(envelope).extras for envelope in await entries()] == [b"", b""]
            async with Worker(queue_name, handle, redis_url=redis_url, events_enabled=False):
                await eventually(lambda: len(seen) == 2)
        assert seen == [trace.INVALID_SPAN] * 2

    async def test_a_provider_that_is_set_is_found(
        self,
        redis_url: str,
        queue_name: str,
        entries: Callable[[], Any],
        spans: Spans,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
        async with Queue(queue_name, redis_url=redis_url) as queue:
            await queue.add("mail")
            (envelope,) = await entries()
            assert len(read_extra_or_none(decode_envelope(envelope).extras, "t")) == 55
            async with Worker(queue_name, succeed, redis_url=redis_url, events_enabled=False):
                (run,) = await spans.processed(1)
        assert is_child(run, spans.sent())

    async def test_no_span_is_created_with_tracing_off(
        self, redis_url: str, queue_name: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
        done = asyncio.Event()

        async def handle(job: Job) -> None:
            done.set()

        worker = Worker(queue_name, handle, redis_url=redis_url, events_enabled=False, tracing="off")
        async with Queue(queue_name, redis_url=redis_url, tracing="off") as queue, worker:
            await queue.add("mail")
            await done.wait()
        assert spans.named("") == []

    def test_the_provider_is_found_unless_tracing_is_disabled(
        self, spans: Spans, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert tracing.find_tracing("auto") is None
        monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
        assert tracing.find_tracing("auto") is None
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
        assert isinstance(tracing.find_tracing("auto"), OpenTelemetry)
        monkeypatch.setitem(os.environ, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "redis, chasqui")
        assert tracing.find_tracing("auto") is None

    def test_options_are_checked(self, redis_url: str) -> None:
        for wrong in (None, True, "on", object()):
            with pytest.raises(InvalidType, match="tracing must be"):
                Queue("q", redis_url=redis_url, tracing=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="trace_parent"):
            OpenTelemetry(trace_parent="sibling")  # type: ignore[arg-type]

    async def test_a_tracer_that_raises_harms_no_job(
        self, queue: Queue, make_worker: Callable[..., Worker], spans: Spans, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Raises(SpanProcessor):
            def on_start(self, span: Any, parent_context: Any = None) -> None:
                if span.name.startswith("send"):
                    raise RuntimeError("start")

            def on_end(self, span: ReadableSpan) -> None:
                raise RuntimeError("end")

        spans.provider.add_span_processor(Raises())
        done: list[str] = []

        async def handle(job: Job) -> None:
            done.append(job.id)

        async with make_worker(handle):
            await queue.add_bulk([{"name": "mail"}] * 2)
            await queue.add("mail")
            await eventually(lambda: len(done) == 3)
        assert await queue.dlq.count() == 0
        lines = [record.message for record in caplog.records if record.name == "chasqui.tracing"]
        assert lines == [
            "a span could not be started; jobs go on without spans; this is logged once",
            "a span could not be ended and may be lost; this is logged once",
        ]

    async def test_a_span_whose_context_cannot_be_read_harms_no_job(
        self,
        queue: Queue,
        make_worker: Callable[..., Worker],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def raise_error(_: Any) -> None:
            raise RuntimeError("no context")

        monkeypatch.setattr(Span, "get_span_context", raise_error)
        done: list[str] = []

        async def handle(job: Job) -> None:
            done.append(job.id)

        async with make_worker(handle):
            jobs = [await queue.add("mail"), *await queue.add_bulk([{"name": "mail"}])]
            await eventually(lambda: done == [job.id for job in jobs])
        assert "the trace of a job cannot be sent with it; jobs go on without; this is logged once" in caplog.messages

    @pytest.mark.parametrize("at", ("start", "error", "end"))
    @pytest.mark.parametrize("kind", (KeyboardInterrupt, SystemExit, asyncio.CancelledError))
    def test_an_interrupt_of_an_add_is_not_swallowed(self, spans: Spans, at: str, kind: type[BaseException]) -> None:
        class Interrupts(SpanProcessor):
            def on_start(self, span: Any, parent_context: Any = None) -> None:
                if at == "start":
                    raise kind

            def on_end(self, span: ReadableSpan) -> None:
                if at == "end":
                    raise kind

        class Full(Exception):
            def __str__(self) -> str:
                raise kind

        def add() -> None:
            if at == "error":
                raise Full

        spans.provider.add_span_processor(Interrupts())
        origin, jobs = tracing.SpanOrigin("mails", None), tracing.SentJobs(["1"], [b"mail"])
        with pytest.raises(kind), OpenTelemetry(spans.provider).sending(origin, jobs):
            add()


@pytest.mark.parametrize("is_plain", (False, True))
async def test_the_span_of_a_run_that_has_timed_out_has_its_timeout_as_its_error(
    queue: Queue, make_worker: Callable[..., Worker], spans: Spans, is_plain: bool
) -> None:
    async def sleep_long(job: Job) -> None:
        await asyncio.sleep(60)

    def wait_until_cancelled(job: Job) -> None:
        while not job.is_cancelled:
            time.sleep(0.005)
        raise LookupError("interrupted")

    async with make_worker(wait_until_cancelled if is_plain else sleep_long, max_attempts=1):
        await queue.add("mail", timeout=timedelta(milliseconds=50))
        (run,) = await spans.processed(1)
    assert await queue.purge("dead") == 1
    assert attributes_of(run)["error.type"] == "JobTimeout"
    assert (run.status.description or "").startswith("JobTimeout: the run took longer than its timeout")
