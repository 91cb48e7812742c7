"""Traces of jobs for OpenTelemetry, by its conventions for messaging; needs the extra `otel`.

Queues and workers find a tracer provider that is set by themselves. To choose one, or how spans hang together:

    tracing = OpenTelemetry(provider, trace_parent="link")
    Queue("mails", tracing=tracing)
    Worker("mails", send_mail, tracing=tracing)
"""

from __future__ import annotations

from .._otel import OpenTelemetry, TraceFilter

__all__ = ["OpenTelemetry", "TraceFilter"]
