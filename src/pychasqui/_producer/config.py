"""QueueConfig: every option of a Queue with its default, its bounds and its meaning."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from .._core import checks, defaults
from .._core.config import Option, accept_any_value, make_minimum_check, make_optional_check
from .._redis.credentials import CredentialProvider
from ..metrics import MetricsSink
from ..tracing import TracingOption, check_tracing

MAX_DELAY_S = 30 * 24 * 3600  # the official cap: a longer delay is more often a mistake in units than a plan


def _check_tracing(_: str, value: Any) -> TracingOption:
    return check_tracing(value)


@dataclass(frozen=True, repr=False)  # its URL may hold a password
class QueueConfig:
    """What a queue was asked to do, checked. The text below each field stands in the docstring of Queue as well."""

    name: str
    """the queue's name, the same for everybody who adds or runs its jobs"""
    _: KW_ONLY

    # Where Redis is. The Connector checks these together.
    redis_url: Option[str | None, str] = Option(defaults.REDIS_URL, accept_any_value, none_is_default=True)
    """redis://, rediss:// (TLS), unix://, embedded://, redis+sentinel:// or redis+cluster://"""
    tls: bool = False
    """use TLS although the URL says redis://"""

    max_stream_len: Option[int | None, int | None] = Option(None, make_optional_check(make_minimum_check(1)))
    """how many jobs may wait or run: past it an add raises QueueFull. Nothing is ever trimmed"""
    max_delay_secs: Option[int | None, int] = Option(MAX_DELAY_S, make_minimum_check(0), none_is_default=True)
    """how far in the future a job may be due; 0 lifts the bound"""
    max_payload_bytes: Option[int, int] = Option(defaults.MAX_PAYLOAD_BYTES, make_minimum_check(1))
    """how large one encoded job may be; the official consumers take 1 MiB"""
    timeout_s: Option[float, float] = Option(10.0, checks.check_seconds)
    """an add succeeds or raises within this time, also while Redis is away"""
    credential_provider: CredentialProvider | None = None
    """a function, or an object with get_credentials(): asked for user name and password before each connection is
    made"""
    metrics: MetricsSink | None = None
    """a sink that receives a record of the jobs that are added, as PrometheusSink; see MetricsSink"""
    tracing: Option[TracingOption, TracingOption] = Option("auto", _check_tracing)
    """"auto" traces adds if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own"""

    def __post_init__(self) -> None:
        checks.check_queue_name(self.name)
