"""The options of an app's queues: those of Queue and of Worker, by their own names. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from .._core.checks import check_is_iterable, check_queue_name, check_text
from .._core.retry_options import RetryPolicy
from .._redis.credentials import CredentialProvider
from ..errors import InvalidArgument, InvalidType
from ..metrics import MetricsSink
from ..settings import find_setting
from ..tracing import TracingOption


class QueueOptions(TypedDict, total=False):
    """The options of one queue of an app. Each is one of Queue, of Worker, or of both; see there for its meaning."""

    # Both
    tls: bool
    max_payload_bytes: int
    credential_provider: CredentialProvider
    metrics: MetricsSink
    tracing: TracingOption
    # Queue
    max_stream_len: int
    max_delay_secs: int
    timeout_s: float
    # Worker
    concurrency: int
    max_attempts: int
    retry: RetryPolicy
    timeout: timedelta
    group: str
    consumer_id: str
    read_block_ms: int
    read_count: int
    claim_min_idle_ms: int
    lease_ms: int
    prefetch_bytes: int
    dlq_max_stream_len: int
    strict: bool
    events_enabled: bool
    events_max_stream_len: int
    store_results: bool
    result_ttl_ms: int
    delayed_enabled: bool
    run_scheduler: bool
    scheduler_tick_ms: int
    metrics_port: int
    metrics_host: str
    shutdown_deadline_s: float


BOTH = frozenset({"tls", "max_payload_bytes", "credential_provider", "metrics", "tracing"})
QUEUE_ONLY = frozenset({"max_stream_len", "max_delay_secs", "timeout_s"})
NAMES = frozenset(QueueOptions.__annotations__)


@dataclass(frozen=True, repr=False)  # an option may hold a password
class AppQueueOptions:
    """What was given for all queues, and for each."""

    defaults: Mapping[str, Any]
    by_queue: Mapping[str, Mapping[str, Any]]


def check_app_url(redis_url: Any) -> str | None:
    """Refuses what is no URL, as a name in its place. Shows no part of it, which may be a password."""
    if redis_url is None or (isinstance(redis_url, str) and "://" in redis_url):
        return redis_url
    if not isinstance(redis_url, str):
        raise InvalidType(f"the first argument of App is the URL of Redis, a str, not {type(redis_url).__name__}")
    raise InvalidArgument(
        "the first argument of App is the URL of Redis, as in App('redis://localhost:6379'), and this is none; "
        "a name is given as App(name=...)"
    )


def check_is_iterable_and_not_str(option: str, names: Any) -> None:
    """Refuses a single name, whose letters would be taken for names."""
    if isinstance(names, str):
        raise InvalidType(f"{option} must be a list of names, not a str: write [{names[:100]!r}]")
    check_is_iterable(option, names, "of names")


def check_app_name(name: Any) -> str:
    """Refuses a slash: the schedules of an app are those whose keys begin with its name and a slash."""
    checked = check_text("name", name)
    if "/" in checked:
        raise InvalidArgument(f"name is {checked!r:.100}, must not contain a slash: keys of schedules begin with it")
    return checked


def check_names_and_make_queue_options(queues: Mapping[str, Any], defaults: Any) -> AppQueueOptions:
    """Checks the names; Queue and Worker check the values when they are made."""
    if not isinstance(queues, Mapping):
        raise InvalidType(f"queues must be a dict of queue names to options, not {type(queues).__name__}")
    for owner, options in (("defaults", defaults), *((f"queues[{name!r}]", own) for name, own in queues.items())):
        if not isinstance(options, Mapping):
            raise InvalidType(f"{owner} must be a dict of options, not {type(options).__name__}")
        if unknown := options.keys() - NAMES:
            raise InvalidArgument(f"{owner} has no option {_describe_unknown_queue_option(str(min(unknown, key=str)))}")
    return AppQueueOptions(defaults, {check_queue_name(name): own for name, own in queues.items()})


def _describe_unknown_queue_option(name: str) -> str:
    from difflib import get_close_matches  # here, so that a program without a mistake does not wait for the import

    known = sorted(NAMES)
    guess = get_close_matches(name[:100], known, n=1)
    hint = f"did you mean {guess[0]!r}? The" if guess else "the"
    return f"{name[:100]!r}; {hint} options are {', '.join(known)}"


def select_options_for_queue_class(options: AppQueueOptions, name: str) -> dict[str, Any]:
    """Returns the options of the Queue of this name."""
    return {option: value for option, value in _merge_options(options, name).items() if option in BOTH | QUEUE_ONLY}


def select_options_for_worker_class(options: AppQueueOptions, queue_name: str) -> dict[str, Any]:
    """Returns the options of the Worker of this queue."""
    return {option: value for option, value in _merge_options(options, queue_name).items() if option not in QUEUE_ONLY}


def shift_shared_metrics_port_by_position(
    options: dict[str, Any], options_of_queue: Mapping[str, Any], position: int
) -> None:
    """Each worker of a process serves its own pages: the first at the port for all queues, the others behind it."""
    port = find_setting("metrics_port", options.get("metrics_port")).value
    if port and "metrics_port" not in options_of_queue:
        options["metrics_port"] = port + position


def _merge_options(options: AppQueueOptions, name: str) -> dict[str, Any]:
    return {**options.defaults, **options.by_queue.get(name, {})}
