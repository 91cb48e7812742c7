"""Where traces come in: what a Queue and a Worker ask of whoever traces their jobs, and how they find it.

A trace's context travels behind the envelope as extras: official consumers pass over them, and they go along through
delays, retries, dead letters and replays. `integrations/opentelemetry.py` is the one that comes with this package.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from ._core.delivery import Delivery
from ._core.user_objects import text_of
from .errors import InvalidType

log = logging.getLogger("chasqui.tracing")

RunHandler = Callable[[Delivery], Awaitable[Any]]


@dataclass(frozen=True)
class SpanOrigin:
    """Where jobs are sent or run. The last three are known of a worker only."""

    queue_name: str
    server: tuple[str, int | None] | None  # host and port, or a socket's path; None: an embedded one
    group: str = ""
    consumer_id: str = ""
    max_attempts: int = 0


@dataclass(frozen=True)
class SentJobs:
    """What one call adds."""

    job_ids: Sequence[str]
    names: Sequence[bytes]
    is_bulk: bool = False
    due: str = ""  # as in Terms


@runtime_checkable
class Tracing(Protocol):
    def sending(self, scene: SpanOrigin, shipment: SentJobs) -> AbstractContextManager[bytes]:
        """Open while the jobs are sent; gives the extras to send with each, b"" for none."""

    def processing(self, scene: SpanOrigin, handler: RunHandler) -> RunHandler:
        """The handler with a trace around it. It is called in a context of its own for each job."""


TracingOption = Tracing | Literal["auto", "off"]


def check_tracing(wanted: Any) -> TracingOption:
    if (type(wanted) is str and wanted in ("auto", "off")) or isinstance(wanted, Tracing):
        return wanted  # type: ignore[return-value]
    raise InvalidType(f'tracing must be "auto", "off" or an OpenTelemetry, not {text_of(wanted)[:200]!r}')


def find_tracing(wanted: TracingOption) -> Tracing | None:
    """Who traces, if anybody: looked for when a worker starts, and when a queue is first used."""
    if wanted == "off":
        return None
    if wanted != "auto":
        return wanted
    # A provider that somebody has set has brought this module; who has none is spared the import.
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        integration = importlib.import_module(f"{__package__}.integrations.opentelemetry")
    except ImportError as error:
        log.warning("jobs are not traced: opentelemetry-api is there but too old or incomplete: %s", error)
        return None
    found: Tracing | None = integration.detect()
    return found
