"""Every option with its default, the reason for it, and the check that a user's value has to pass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..errors import InvalidArgument, InvalidType

REDIS_URL = "redis://127.0.0.1:6379"

# Adding
ADD_TIMEOUT_S = 10.0  # an add succeeds or raises within this, also while Redis is away
ADD_WINDOW = 4  # batches on their way at once: two keep Redis and Python busy together, four ride out a hiccup
ADD_BATCH_JOBS = 1000  # past this a script call only grows latency for everybody else on the server
ADD_BATCH_BYTES = 4 * 1024 * 1024  # bounds the server's input buffer
LEDGER_TTL_MS = 120_000  # far longer than any add is sent again
MAX_DELAY_S = 30 * 24 * 3600  # the official cap: what lies further ahead is more often a mistake in units than a plan
MAX_NAME_BYTES = 256  # of a job
MAX_PAYLOAD_BYTES = 1024 * 1024  # the official consumers' limit: more would be dead on arrival there

# Working
GROUP = "default"  # the official group
CONCURRENCY = 100
MAX_ATTEMPTS = 25  # the official Python default
READ_BLOCK_MS = 5000  # how long an idle read waits before it asks again
WORK_TIMEOUT_S = 5.0  # a call of a worker that is not answered within this ends the connection: the line is dead
READ_COUNT = 1000  # entries in one read at the most; bounds the reply's size and the time it takes to decode it
PREFETCH_BYTES = 16 * 1024 * 1024  # of unstarted jobs that a worker may hold, encoded
PAGE_BYTES = 1024 * 1024  # of entries that one script call brings: some 5 ms of the server's time
ENTRY_EXTRA_BYTES = 64 * 1024  # what an entry may hold beside the largest payload: its name, fields of others
PREFETCH_S = 0.1  # unstarted jobs that a worker may hold, as seconds of its own work
ACK_BATCH = 1000  # ids in one ack at the most; Lua's unpack takes about 8,000
TURN_S = 0.005  # how long handlers that never await may keep the event loop to themselves
LEASE_MS = 6000  # how long a silent worker counts as alive: a killed one's jobs run again within 10 s
MAX_WORKER_LEASE_MS = 3_600_000  # an hour: what a killed worker held waits that long
MIN_LEASE_MS = 300  # shorter ones end by a hiccup
CLAIM_MIN_IDLE_MS = 30_000  # the official consumers' own limit: they have no lease, idleness is all they show
REGROUP_S = 0.05  # how often a worker looks whether a group that is gone is back
SCAN_S = 0.5  # how often a worker looks for what others have left behind
PROMOTE_EVERY_S = 0.5  # how often the leader looks while jobs are delayed: another may be due sooner than the known
PROMOTE_BATCH = 1000
PROMOTE_BYTES = 512 * 1024  # in one script call: about 3 ms of the server's time
PROMOTER_LEASE_MS = 1500  # a killed leader holds delayed jobs up for no longer than this
EVENTS_MAX_LEN = 100_000  # the official bound
RESULT_TTL_MS = 3_600_000  # the official default
MAX_RESULT_TTL_MS = 100 * 365 * 24 * 3600 * 1000  # 100 years: past it, the server's arithmetic ends somewhere
SCHEDULER_LEASE_MS = 3000  # a killed leader holds repeatables up for no longer than this
MAX_LEASE_MS = (
    10_000  # a leader's; another's that has no end or one beyond this gets this one. Official leases last 5 s
)
MAX_TICK_MS = 24 * 3600 * 1000
SCHEDULER_TICK_MS = 1500  # how often the leader looks for repeatables that it has not heard of
DLQ_MAX_LEN = 100_000  # the official bound; what it pushes out is counted
RESULT_BATCH_BYTES = 1024 * 1024  # results in one script call
OUTCOME_BATCH = 250  # failed jobs in one script call: each carries its payload
OUTCOME_BYTES = 512 * 1024  # and no more of them than this, beside the first: some 3 ms of the server's time
MAX_ERROR_CHARS = 2000
MAX_TRACEBACK_CHARS = 8000
RELEASED = "released"  # the consumer that holds what was handed back until somebody takes it
SHUTDOWN_DEADLINE_S = 30.0  # how long a closing worker waits for running handlers

METRICS_HOST = "127.0.0.1"  # nobody else is shown anything unless it is asked for

MAX_QUEUE_NAME_BYTES = 512
MAX_JOB_ID_BYTES = 4096  # enough for a URL, which is what long ids are


def check_queue_name(value: Any) -> str:
    """Any name that stands in one line and cannot reach another queue's keys."""
    if not isinstance(value, str):
        raise InvalidType(f"queue name must be a str, not {type(value).__name__}")
    if not value.strip():
        raise InvalidArgument(f"queue name {value[:20]!r} must not be blank")
    if "}" in value:  # {chasqui:a}:b} would lie among the keys of queue a
        raise InvalidArgument(f"queue name {value[:200]!r} must not hold a }}, which ends a queue's part of a key")
    if not value.isprintable():  # neither can what UTF-8 cannot hold
        raise InvalidArgument(f"queue name {value[:200]!r} holds a character that cannot be printed")
    if len(value.encode()) > MAX_QUEUE_NAME_BYTES:
        raise InvalidArgument(f"queue name {value[:40]!r}... is longer than {MAX_QUEUE_NAME_BYTES} bytes")
    return value


def check_job_name(value: Any) -> bytes:
    """The name's bytes."""
    if not isinstance(value, str):
        raise InvalidType(f"name must be a str, not {type(value).__name__}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"name {value[:200]!r} holds half of a surrogate pair, which UTF-8 cannot hold") from None
    if len(encoded) > MAX_NAME_BYTES:
        raise InvalidArgument(f"name {value[:40]!r}... has {len(encoded)} bytes, at most {MAX_NAME_BYTES} are allowed")
    return encoded


def check_job_ids(value: Any) -> list[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidType(f"job_ids must be several ids, not {type(value).__name__} {value!r}"[:300])
    return [check_job_id(job_id) for job_id in value]


def check_job_id(value: Any) -> str:
    """The id of a job that may exist: whatever another producer can have written."""
    if not isinstance(value, str):
        raise InvalidArgument(f"job_id must be a str, not {value!r}"[:300])
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"job_id {value[:40]!r} holds half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
    return value


def check_new_job_id(value: Any) -> str:
    """The id of a job that is added."""
    if not isinstance(value, str):
        raise InvalidArgument(f"job_id must be a str that is not blank, not {value!r}"[:300])
    if not value.strip():
        raise InvalidArgument(f"job_id {value[:20]!r} must not be blank")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_JOB_ID_BYTES:
        raise InvalidArgument(f"job_id {value[:40]!r}... is longer than {MAX_JOB_ID_BYTES} bytes")
    if not value.isprintable():
        raise InvalidArgument(f"job_id {value[:200]!r} holds a character that cannot be printed")
    return value


def check_int(field: str, value: Any, low: int, high: int | None = None, *, default: int | None = None) -> int:
    """None stands for the default, if there is one."""
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{field} must be an int, not {type(value).__name__} {value!r}"[:300])
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidArgument(f"{field} is {value}, must be {bound}")
    return value


def check_bool(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidType(f"{field} must be True or False, not {type(value).__name__} {value!r}"[:300])
    return value


def check_seconds(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidType(f"{field} must be a number of seconds, not {type(value).__name__} {value!r}"[:300])
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:  # also false for nan
        raise InvalidArgument(f"{field} is {seconds:g}, must be a finite number above 0")
    return seconds


def check_consumer_name(field: str, value: Any) -> str:
    """The name of a consumer or a group of them."""
    if not isinstance(value, str):
        raise InvalidType(f"{field} must be a str, not {type(value).__name__} {value!r}"[:300])
    if not value.strip() or not value.isprintable():
        raise InvalidArgument(f"{field} {value[:100]!r} must be printable and not blank")
    return value


def check_consumer_id(value: Any) -> str:
    """A worker's name in its group."""
    name = check_consumer_name("consumer_id", value)
    if name == RELEASED:
        raise InvalidArgument(f"consumer_id {name!r} is the name under which jobs are handed back; take another")
    return name


def check_metrics_address(host: Any, port: Any) -> tuple[str, int]:
    """Where to listen; port 0 takes any that is free."""
    if not isinstance(host, str):
        raise InvalidType(f"metrics_host must be a str, not {type(host).__name__} {host!r}"[:300])
    return host, check_int("metrics_port", port, 0, 65535)
