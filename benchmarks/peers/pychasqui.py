"""pychasqui as its users write it: one Queue, one Worker, nothing tuned but the concurrency.

Events are off, as they are for the wheel, unless they are what is measured, and so are traces. As it comes (`defaults`)
events are on, and 100 jobs run at once.

Measured on asyncio and on uvloop; the order says which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.payload import DELAYED, REPEAT, STREAM
from benchmarks.peers.roles import QUEUE, REPEAT_MS, AsyncPeer, Failures, Order, Producer, sum_of
from pychasqui import MissedFiresPolicy, Queue, RepeatPattern, UnrecoverableError, Worker
from pychasqui.tracing import Tracing


@asynccontextmanager
async def producer(order: Order) -> AsyncIterator[Producer]:
    async with Queue(QUEUE, redis_url=order.url) as queue:

        def bulk(batch: list[dict[str, Any]], **options: Any) -> Callable[[], Any]:
            jobs = [{"name": order.name(number), "data": data, **options} for number, data in enumerate(batch)]
            return partial(queue.add_bulk, jobs)

        def repeat(number: int, data: dict[str, Any]) -> Awaitable[Any]:
            pattern, once = RepeatPattern.every(REPEAT_MS), MissedFiresPolicy.fire_once()
            return queue.upsert_repeatable_job(f"bench-{number}", data, repeat=pattern, limit=1, missed_fires=once)

        yield Producer(partial(queue.add, "bench"), bulk, repeat, lambda job: job.wait_for_result(timeout=60))


async def work(order: Order, handler: Callable[..., Any]) -> None:
    options: dict[str, Any] = {
        "concurrency": order.concurrency,
        "events_enabled": order.events,
        "store_results": order.results,
        "metrics_port": 0 if order.metrics else None,
        "tracing": _tracing() if order.traces else "off",
    }
    await Worker(QUEUE, handler, redis_url=order.url, **({} if order.defaults else options)).run()


def _tracing() -> Tracing:
    """OpenTelemetry's SDK as it comes, with an exporter that throws every span away as soon as it has ended."""
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    from pychasqui.integrations.opentelemetry import OpenTelemetry

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    return OpenTelemetry(provider)


# Jobs leave the stream when they are acked, so what is not finished is there, or waits for its time or its retry.
PEER = AsyncPeer(
    producer,
    work,
    lambda job: job.data,
    sum_of(("XLEN", STREAM.decode()), ("ZCARD", DELAYED.decode()), ("ZCARD", REPEAT.decode())),
    failures=Failures(lambda job: job.attempt, UnrecoverableError),
)
