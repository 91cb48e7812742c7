"""WorkerConfig: every option of a Worker with its default, its bounds and its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any
from uuid import uuid4

from .._core import checks, defaults
from .._core.config import Option, accept_any_value, make_minimum_check, make_optional_check, make_range_check
from .._core.limits import MAX_RESULT_TTL_MS, MAX_TICK_MS, MAX_U32, MAX_WORKER_LEASE_MS, MIN_WORKER_LEASE_MS
from .._core.retry_options import RetryPolicy
from .._core.run_timeouts import GivenTimeout, RunTimeouts, check_and_make_run_timeouts
from .._redis.credentials import CredentialProvider
from ..errors import InvalidArgument
from ..metrics import MetricsSink
from ..tracing import TracingOption, check_tracing
from .handlers import Handler, check_handler, is_async_handler


def _check_or_make_consumer_id(_: str, value: Any) -> str:
    return f"c-{uuid4()}" if value is None else checks.check_consumer_id(value)


def _check_tracing(_: str, value: Any) -> TracingOption:
    return check_tracing(value)


@dataclass(frozen=True, repr=False)  # its URL may hold a password
class WorkerConfig:
    """What a worker was asked to do, checked. The text below each field stands in the docstring of Worker as well."""

    queue_name: str
    """the queue whose jobs it runs"""
    handler: Handler
    """called with each Job: an `async def`, or a plain function, which then runs in a thread"""
    _: KW_ONLY

    # Where Redis is. The Connector checks these together.
    redis_url: Option[str | None, str] = Option(defaults.REDIS_URL, accept_any_value, none_is_default=True)
    """redis://, rediss:// (TLS), unix://, embedded://, redis+sentinel:// or redis+cluster://"""
    tls: bool = False
    """use TLS although the URL says redis://"""

    # What runs, and how often
    concurrency: Option[int, int] = Option(defaults.CONCURRENCY, make_minimum_check(1))
    """how many handlers may run at the same time"""
    max_attempts: Option[int, int] = Option(defaults.MAX_ATTEMPTS, make_range_check(0, MAX_U32))
    """how many runs a job has in all, crashes included, unless the job sets its own number"""
    retry: Option[RetryPolicy | None, RetryPolicy] = Option(RetryPolicy(), accept_any_value, none_is_default=True)
    """the delays between runs, unless the job sets its own"""

    timeout: Option[GivenTimeout | RunTimeouts | None, RunTimeouts] = Option(None, check_and_make_run_timeouts)
    """how long a run may take (seconds, a timedelta, or either for each name), unless the job sets its own time"""

    # Who it is
    group: Option[str, str] = Option(defaults.GROUP, checks.check_consumer_name)
    """the consumer group; official workers are in "default\""""
    consumer_id: Option[str | None, str] = Option(None, _check_or_make_consumer_id)
    """its name in the group, one for each living worker; None makes one up"""

    # Reading
    read_block_ms: Option[int | None, int] = Option(defaults.READ_BLOCK_MS, make_minimum_check(1), none_is_default=True)
    """how long an idle read waits before it asks again"""
    read_count: Option[int | None, int] = Option(defaults.READ_COUNT, make_minimum_check(1), none_is_default=True)
    """how many entries one read brings at most; 200 beside other clients of the server"""
    # The default is the official consumers' own: they have no lease, idleness is all they show.
    claim_min_idle_ms: Option[int | None, int] = Option(
        30_000, make_minimum_check(MIN_WORKER_LEASE_MS), none_is_default=True
    )
    """how long an official consumer's entry lies idle before this worker takes it over"""
    # The default lets a killed worker's jobs run again within 10 s.
    lease_ms: Option[int, int] = Option(6000, make_range_check(MIN_WORKER_LEASE_MS, MAX_WORKER_LEASE_MS))
    """how long this worker counts as alive after its last heartbeat"""
    max_payload_bytes: Option[int | None, int] = Option(
        defaults.MAX_PAYLOAD_BYTES, make_minimum_check(1), none_is_default=True
    )
    """a larger encoded job is buried instead of run"""
    prefetch_bytes: Option[int, int] = Option(16 * 1024 * 1024, make_minimum_check(1))
    """how many bytes of encoded jobs may wait here for a free handler"""

    # What it writes
    dlq_max_stream_len: Option[int | None, int] = Option(100_000, make_minimum_check(0), none_is_default=True)
    """how many dead letters are kept; those that a new one pushes out are counted"""
    strict: Option[bool, bool] = Option(False, checks.check_bool)
    """refuse a server whose settings put jobs at risk, instead of logging a warning"""
    events_enabled: Option[bool, bool] = Option(True, checks.check_bool)
    """whether to write events to the queue's event stream"""
    events_max_stream_len: Option[int, int] = Option(defaults.EVENTS_MAX_LEN, make_minimum_check(1))
    """about how many events that stream keeps"""
    store_results: Option[bool, bool] = Option(False, checks.check_bool)
    """whether to keep what handlers return"""
    result_ttl_ms: Option[int | None, int] = Option(
        defaults.RESULT_TTL_MS, make_range_check(1, MAX_RESULT_TTL_MS), none_is_default=True
    )
    """for how long results are kept, and with them progress and job logs"""

    # What it does for the whole queue
    delayed_enabled: Option[bool, bool] = Option(True, checks.check_bool)
    """whether it may be the worker that promotes delayed jobs and retries"""
    run_scheduler: Option[bool, bool] = Option(True, checks.check_bool)
    """whether it may be the worker that fires repeatables"""
    scheduler_tick_ms: Option[int | None, int] = Option(
        defaults.SCHEDULER_TICK_MS, make_range_check(10, MAX_TICK_MS), none_is_default=True
    )
    """how often it then looks for repeatables that it was not notified of"""

    # What it shows
    metrics: MetricsSink | Sequence[MetricsSink] | None = None
    """a sink that receives a record of what happens, or several; see MetricsSink"""
    metrics_port: Option[int | None, int | None] = Option(None, make_optional_check(make_range_check(0, 65535)))
    """the port for /metrics, /healthz and /readyz; 0 takes any free port, None serves nothing"""
    metrics_host: Option[str, str] = Option(defaults.METRICS_HOST, checks.check_text)
    """the address to serve them on, or the path of a Unix socket"""

    shutdown_deadline_s: Option[float, float] = Option(defaults.SHUTDOWN_DEADLINE_S, checks.check_seconds)
    """how long close() waits for running handlers before it cancels them; each then has 5 s to clean up"""
    credential_provider: CredentialProvider | None = None
    """a function, or an object with get_credentials(): asked for user name and password before each connection is
    made"""
    tracing: Option[TracingOption, TracingOption] = Option("auto", _check_tracing)
    """"auto" traces runs if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own"""

    def __post_init__(self) -> None:
        checks.check_queue_name(self.queue_name)
        check_handler(self.handler)
        if self.timeout.shortest_timeout_s is not None and not is_async_handler(self.handler):
            raise InvalidArgument(
                "timeout contradicts a handler that is a plain function: a thread cannot be stopped. "
                "Make it an async def, or give the timeout with each job, and look at job.is_cancelled"
            )

    @property
    def events_max_len_or_zero(self) -> int:
        """The length of the event stream; 0 if no events are written."""
        return self.events_max_stream_len if self.events_enabled else 0

    @property
    def result_ttl_ms_or_zero(self) -> int:
        """For how long results are stored; 0 if they are not."""
        return self.result_ttl_ms if self.store_results else 0

    @property
    def metrics_sinks(self) -> list[MetricsSink]:
        given = self.metrics
        if given is None:
            return []
        return list(given) if isinstance(given, Sequence) else [given]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the pages; None if nothing is served."""
        return None if self.metrics_port is None else (self.metrics_host, self.metrics_port)

    @property
    def renew_interval_s(self) -> float:
        """How often the lease is renewed, and with it everything that is renewed as often."""
        return min(self.lease_ms, self.claim_min_idle_ms) / 3000

    @property
    def renew_hold_interval_s(self) -> float:
        """How often the hold on entries is renewed: before consumers without a lease would take them over."""
        return self.claim_min_idle_ms / 3000
