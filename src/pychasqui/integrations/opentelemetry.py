"""OpenTelemetry: makes the spans of queues and workers. Imported only if OpenTelemetry is in use.

add() makes a span `send mails`, add_bulk() one span for all its jobs; each run of a job makes a span `process mails`.
An error of the tracing library is logged, and the job goes on without a span.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .._core.delivery import Delivery
from .._core.user_objects import class_name_of, safe_str
from .._version import __version__
from .._wire.envelope import encode_extras
from .._wire.msgpack import decode_data
from ..errors import DecodeError, InvalidArgument
from ..tracing import RunHandler, SentJobs, SpanOrigin

log = logging.getLogger("chasqui.tracing")

# The keys of the extras that hold the W3C traceparent and tracestate.
TRACE_PARENT, TRACE_STATE = "t", "ts"
MAX_STATE_CHARS = 512
MAX_EXTRAS_BYTES = 4096
MAX_TEXT_CHARS = 4000

TraceParent = Literal["child", "link"]
Operation = Literal["send", "process"]
Attributes = dict[str, str | int]


def make_if_provider_is_set() -> OpenTelemetry | None:
    """Returns tracing for the global provider; None if none is set, or the environment disables this package."""
    if "chasqui" in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").replace(" ", "").split(","):
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return OpenTelemetry(provider)


class OpenTelemetry:
    """Makes the spans of queues and workers. Pass it as `tracing` to Queue and Worker.

    provider      the provider that gets the spans; by default the global one
    trace_parent  "child": the runs of a job belong to the trace that added it, so one trace shows a request and its
                  jobs. "link": each run starts a new trace with a link to the span that added the job, as the
                  conventions prefer; better for jobs that are added in bulk or run days later.
    """

    def __init__(self, provider: TracerProvider | None = None, *, trace_parent: TraceParent = "child") -> None:
        if trace_parent not in ("child", "link"):
            raise InvalidArgument(f'trace_parent is {trace_parent!r}, must be "child" or "link"'[:300])
        self._is_child = trace_parent == "child"
        self._tracer = trace.get_tracer("pychasqui", __version__, provider)
        self._propagator = TraceContextTextMapPropagator()
        self._logged: set[str] = set()

    @contextmanager
    def sending(self, origin: SpanOrigin, sent_jobs: SentJobs) -> Iterator[bytes]:
        span = self._start_span_or_return_invalid(
            origin, "send", SpanKind.PRODUCER, _make_sent_jobs_attributes(sent_jobs)
        )
        try:
            yield self._encode_span_extras_if_possible(span)
        except (Exception, asyncio.CancelledError) as error:
            self._add_error_to_span_if_recording("send", span, error)
            raise
        finally:
            self._end_span_ignoring_errors("send", span)

    def processing(self, origin: SpanOrigin, handler: RunHandler) -> RunHandler:
        async def run_in_span(job: Delivery) -> Any:
            span = self._start_run_span(origin, job)
            # Each job has its own context, which ends with the job, so nothing is detached.
            contexts.attach(trace.set_span_in_context(span))
            try:
                return await handler(job)
            except BaseException as error:
                # A run that has timed out was cancelled.
                timeout = origin.find_timeout_error and origin.find_timeout_error(job.entry_id, error)
                self._add_error_to_span_if_recording("process", span, error if timeout is None else timeout)
                raise
            finally:
                self._end_span_ignoring_errors("process", span)

        return run_in_span

    def _start_run_span(self, origin: SpanOrigin, job: Delivery) -> Span:
        sender = self._read_sender_context_if_valid(job)
        links = [] if sender is None or self._is_child else [Link(trace.get_current_span(sender).get_span_context())]
        # Without a sender the run starts a new trace: the context in which the worker was started is unrelated.
        parent = sender if sender is not None and self._is_child else Context()
        return self._start_span_or_return_invalid(
            origin, "process", SpanKind.CONSUMER, _make_run_attributes(origin, job), parent, links
        )

    def _start_span_or_return_invalid(
        self,
        origin: SpanOrigin,
        operation: Operation,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        links: list[Link] | None = None,
    ) -> Span:
        try:
            attributes = _make_origin_attributes(origin, operation) | attributes
            return self._tracer.start_span(
                f"{operation} {origin.queue_name}", parent, kind, attributes, links=links or ()
            )
        except BaseException as error:  # noqa: BLE001  a foreign sampler or processor may raise anything
            _raise_if_interrupt_of_add(operation, error)
            self._log_warning_once("a span could not be started; jobs go on without spans; this is logged once")
            return trace.INVALID_SPAN

    def _encode_span_extras_if_possible(self, span: Span) -> bytes:
        carrier: dict[str, str] = {}
        try:
            self._propagator.inject(carrier, trace.set_span_in_context(span, Context()))
            if "traceparent" not in carrier:
                return b""
            state = carrier.get("tracestate", "")
            more = {TRACE_STATE: state} if 0 < len(state) <= MAX_STATE_CHARS else {}
            return encode_extras(**{TRACE_PARENT: carrier["traceparent"]}, **more)
        except BaseException as error:  # noqa: BLE001  a foreign span or sampler makes the context
            _raise_if_interrupt_of_add("send", error)
            self._log_warning_once("the trace of a job cannot be sent with it; jobs go on without; this is logged once")
            return b""

    def _read_sender_context_if_valid(self, job: Delivery) -> Context | None:
        """Returns the trace context in which the job was added; None if it has none, or an invalid one."""
        if not 0 < len(job.extras) <= MAX_EXTRAS_BYTES:
            return None
        try:
            extras = decode_data(job.extras)
        except DecodeError:
            return None
        carrier = {"traceparent": extras.get(TRACE_PARENT), "tracestate": extras.get(TRACE_STATE, "")}
        if not all(isinstance(value, str) and len(value) <= MAX_STATE_CHARS for value in carrier.values()):
            return None
        context = self._propagator.extract(carrier, Context())
        return context if trace.get_current_span(context).get_span_context().is_valid else None

    def _add_error_to_span_if_recording(self, operation: Operation, span: Span, error: BaseException) -> None:
        """Adds the error to the span, cut to a bound: its text may quote all of a job's data."""
        try:
            if not span.is_recording():
                return
            text = safe_str(error)[:MAX_TEXT_CHARS]
            stack = "".join(traceback.format_exception(error))[-MAX_TEXT_CHARS:]
            span.set_attribute("error.type", class_name_of(error))
            span.record_exception(error, {"exception.message": text, "exception.stacktrace": stack})
            span.set_status(Status(StatusCode.ERROR, f"{class_name_of(error)}: {text}"))
        except BaseException as trouble:  # noqa: BLE001  a foreign __cause__ may raise anything
            _raise_if_interrupt_of_add(operation, trouble)
            self._log_warning_once("the error of a job could not be added to its span; this is logged once")

    def _end_span_ignoring_errors(self, operation: Operation, span: Span) -> None:
        try:
            span.end()
        except BaseException as error:  # noqa: BLE001  a foreign processor may raise anything
            _raise_if_interrupt_of_add(operation, error)
            self._log_warning_once("a span could not be ended and may be lost; this is logged once")

    def _log_warning_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text, exc_info=True)


def _raise_if_interrupt_of_add(operation: Operation, error: BaseException) -> None:
    """A program's handlers of signals raise wherever it is, so also here. A worker has handlers that do not raise."""
    if operation == "send" and not isinstance(error, Exception):
        raise error


def _make_origin_attributes(origin: SpanOrigin, operation: str) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "chasquimq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": origin.queue_name,
    }
    if origin.server is not None:
        address, port = origin.server
        attributes["server.address"] = address
        if port is not None:
            attributes["server.port"] = port
    return attributes


def _make_sent_jobs_attributes(sent_jobs: SentJobs) -> Attributes:
    attributes: Attributes = {}
    if sent_jobs.is_bulk:
        attributes["messaging.batch.message_count"] = len(sent_jobs.job_ids)
    else:
        attributes["messaging.message.id"] = sent_jobs.job_ids[0]
    names = set(sent_jobs.names)
    if len(names) == 1:
        attributes["messaging.chasquimq.job.name"] = names.pop().decode()
    if sent_jobs.due.startswith("+"):
        attributes["messaging.chasquimq.job.delay_ms"] = int(sent_jobs.due)
    return attributes


def _make_run_attributes(origin: SpanOrigin, job: Delivery) -> Attributes:
    own = job.retry.max_attempts if job.retry is not None else None
    return {
        "messaging.message.id": job.id[:MAX_TEXT_CHARS],
        "messaging.consumer.group.name": origin.group,
        "messaging.client.id": origin.consumer_id,
        "messaging.chasquimq.job.name": job.name[:MAX_TEXT_CHARS],
        "messaging.chasquimq.job.attempt": job.attempt,
        "messaging.chasquimq.job.max_attempts": origin.max_attempts if own is None else own,
        "messaging.chasquimq.stream.id": job.entry_id.decode(),
        "messaging.chasquimq.worker.id": origin.consumer_id,
    }


class TraceFilter(logging.Filter):
    """Adds the `trace_id` and `span_id` of the current span to log records. Use it together with logs.JobFilter."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            record.trace_id = trace.format_trace_id(context.trace_id)
            record.span_id = trace.format_span_id(context.span_id)
        return super().filter(record)
