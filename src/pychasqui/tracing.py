"""The tracing interface of Queue and Worker, and how an implementation is found.

The trace context travels as extras behind the envelope. Official consumers ignore them, and they survive delays,
retries, dead letters and replays. `integrations/opentelemetry.py` is the implementation in this package.
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
from ._core.user_objects import safe_str
from .errors import InvalidType

log = logging.getLogger("chasqui.tracing")

RunHandler = Callable[[Delivery], Awaitable[Any]]


@dataclass(frozen=True)
class SpanOrigin:
    """The queue and server of a span. A worker's spans also have the last four fields."""

    queue_name: str
    server: tuple[str, int | None] | None  # host and port, or a socket's path; None for an embedded server
    group: str = ""
    consumer_id: str = ""
    max_attempts: int = 0
    # Takes the entry id of a run and what it raised; returns the error if its time was over, else None.
    find_timeout_error: Callable[[bytes, BaseException], BaseException | None] | None = None


@dataclass(frozen=True)
class SentJobs:
    """The jobs that one call adds."""

    job_ids: Sequence[str]
    names: Sequence[bytes]
    is_bulk: bool = False
    due: str = ""  # as in AddOptions


@runtime_checkable
class Tracing(Protocol):
    """What the option `tracing` takes beside "auto" and "off"."""

    def sending(self, origin: SpanOrigin, sent_jobs: SentJobs) -> AbstractContextManager[bytes]:
        """Opens a span while the jobs are sent; gives the extras to send with each of them, b"" for none."""

    def processing(self, origin: SpanOrigin, handler: RunHandler) -> RunHandler:
        """Wraps the handler in a span. The worker calls it in a separate context for each job.

        A handler that is a plain function runs in a thread, and so does what wraps it: it awaits only the handler.
        """


TracingOption = Tracing | Literal["auto", "off"]


def check_tracing(wanted: Any) -> TracingOption:
    if (type(wanted) is str and wanted in ("auto", "off")) or isinstance(wanted, Tracing):
        return wanted  # type: ignore[return-value]
    raise InvalidType(f'tracing must be "auto", "off" or an OpenTelemetry, not {safe_str(wanted)[:200]!r}')


def find_tracing(wanted: TracingOption) -> Tracing | None:
    """Returns the tracing to use, or None. Called when a worker starts, and when a queue is first used."""
    if wanted == "off":
        return None
    if wanted != "auto":
        return wanted
    # A program that has set a provider has imported this module; any other program is spared the import.
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        integration = importlib.import_module(f"{__package__}.integrations.opentelemetry")
    except ImportError as error:
        log.warning("jobs are not traced: the installed opentelemetry-api is too old or incomplete: %s", error)
        return None
    found: Tracing | None = integration.make_if_provider_is_set()
    return found
