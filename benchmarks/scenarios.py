"""What is measured: every scenario with its parameters, and how many jobs one measurement takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from benchmarks.roster import FAILING, Peer


@dataclass(frozen=True)
class Scenario:
    """`kind` chooses how the runner goes about it; `parameters` go to the peer's process as they are."""

    key: str
    title: str
    kind: str  # add, work, fire, latency, lateness, wait, backlog or memory
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How much work a run puts into each measurement."""

    seconds: float  # how long a measurement should take, by the roster's rates
    latency_jobs: int  # a turn
    lateness_jobs: int
    # The same for everybody, because how many wait for their retry or their time is part of what that costs.
    failing_jobs: int
    promoted_jobs: int
    repeatables: int
    memory_jobs: int
    small_backlog: int
    large_backlog: int


FULL = Effort(
    seconds=1.0,
    latency_jobs=200,
    lateness_jobs=5000,
    promoted_jobs=100_000,
    repeatables=10_000,
    failing_jobs=50_000,
    memory_jobs=100_000,
    small_backlog=10_000,
    large_backlog=1_000_000,
)
QUICK = Effort(
    seconds=0.1,
    latency_jobs=20,
    lateness_jobs=1000,
    promoted_jobs=10_000,
    repeatables=1000,
    failing_jobs=5_000,
    memory_jobs=10_000,
    small_backlog=10_000,
    large_backlog=100_000,
)

NOOP = {"handler": "noop", "concurrency": 100}
RESULT = {"handler": "result", "concurrency": 100}  # returns the job's data
ENDS = {"handler": "end", "concurrency": 1000, "events": True, "results": True}  # returns when it has ended
WAITED_FOR = 1000
LATENCY_TURNS = 5  # that each peer has within a repeat
BACKLOG_TURNS = 3  # that each size has within a measurement
IN_AN_HOUR = {"delay_ms": 3_600_000}
AT_ONCE = {"delay_ms": 1}
RETRIED_ONCE = {"attempts": 2, "backoff": 1}  # of the job itself: the wheel's worker takes no retry policy in Python

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("add", "add, one after another", "add", {"style": "single"}),
    Scenario("add-100-tasks", "add, 100 tasks at once", "add", {"style": "tasks", "tasks": 100}),
    Scenario("add-bulk-50", "add_bulk(50)", "add", {"style": "bulk", "bulk": 50}),
    Scenario("add-bulk-1000", "add_bulk(1000)", "add", {"style": "bulk", "bulk": 1000}),
    Scenario("work-1", "worker, no-op, concurrency 1", "work", {"handler": "noop", "concurrency": 1}),
    Scenario("work-100", "worker, no-op, concurrency 100", "work", {"handler": "noop", "concurrency": 100}),
    Scenario("work-sleep", "worker, 1 ms sleep, concurrency 100", "work", {"handler": "sleep", "concurrency": 100}),
    Scenario("work-def", "worker, plain def, concurrency 100", "work", {"handler": "def", "concurrency": 100}),
    Scenario(
        "retry",
        "worker, every job is retried once",
        "work",
        {"handler": "retry", "concurrency": 100, "options": RETRIED_ONCE},
    ),
    Scenario(
        "burial",
        "worker, every job is buried",
        "work",
        {"handler": "bury", "concurrency": 100},
    ),
    Scenario("work-events", "worker, no-op, events on", "work", {**NOOP, "events": True}),
    Scenario("work-results", "worker, results stored", "work", {**RESULT, "results": True}),
    Scenario("work-both", "worker, results stored, events on", "work", {**RESULT, "results": True, "events": True}),
    Scenario("work-metrics", "worker, no-op, metrics served", "work", {**NOOP, "metrics": True}),
    Scenario("work-traces", "worker, no-op, traced by OpenTelemetry's SDK", "work", {**NOOP, "traces": True}),
    Scenario("wait-1000", "1,000 results waited for, which come within a second", "wait", {**ENDS, "spread_ms": 1000}),
    Scenario("wait-burst", "1,000 results waited for, which come all at once", "wait", {**ENDS, "spread_ms": 0}),
    Scenario("add-delayed", "delayed add, one after another", "add", {"style": "single", "options": IN_AN_HOUR}),
    Scenario(
        "add-delayed-bulk-50", "delayed add_bulk(50)", "add", {"style": "bulk", "bulk": 50, "options": IN_AN_HOUR}
    ),
    Scenario(
        "add-delayed-bulk-1000", "delayed add_bulk(1000)", "add", {"style": "bulk", "bulk": 1000, "options": IN_AN_HOUR}
    ),
    Scenario(
        "promote",
        "worker, delayed jobs, all due",
        "work",
        {"handler": "noop", "concurrency": 100, "options": AT_ONCE, "promotes": True},
    ),
    Scenario(
        "lateness",
        "due time to handler start at 1,000 delayed jobs a second",
        "lateness",
        {"handler": "stamp", "concurrency": 100, "promotes": True, "rate": 1000, "delays_ms": (100, 1000)},
    ),
    Scenario(
        "fire",
        "worker, repeatables, all due",
        "fire",
        {"handler": "noop", "concurrency": 100, "schedules": True},
    ),
    Scenario("latency", "add to handler start on an idle queue", "latency", {"handler": "stamp", "concurrency": 100}),
    Scenario("backlog", "a job at a standing backlog of 1M against 10k", "backlog", {"concurrency": 100}),
    Scenario("memory", "Redis bytes per waiting job", "memory", {"style": "bulk", "bulk": 1000}),
)
BY_KEY = {scenario.key: scenario for scenario in SCENARIOS}


def job_count(scenario: Scenario, peer: Peer, effort: Effort) -> int:
    """Jobs in the timed part: a whole number of batches, and a few hundred at the very least."""
    batch = int(scenario.parameters.get("bulk", scenario.parameters.get("tasks", 1)))
    if scenario.key in FAILING:
        return effort.failing_jobs
    if scenario.key == "promote":
        return effort.promoted_jobs
    if scenario.key == "fire":
        return effort.repeatables
    wanted = max(200, peer.rates[scenario.key] * effort.seconds)
    return math.ceil(wanted / batch) * batch


def memory_count(peer: Peer, effort: Effort) -> int:
    """Waiting jobs for the memory measurement: fewer for those who would take more than a few seconds to add them."""
    return min(effort.memory_jobs, max(1000, int(peer.rates["memory"] * 8 * effort.seconds)))


def warmup_count(count: int, parameters: dict[str, Any]) -> int:
    """A tenth of the timed part on top of it, in whole batches."""
    batch = int(parameters.get("bulk", 1))
    return math.ceil(count / 10 / batch) * batch


def gap_ms(peer: Peer) -> tuple[float, float]:
    """The pause before each add of the latency measurement: long enough that the queue is idle for this peer too."""
    least = max(2.0, 3000 / peer.rates["work-100"])
    return least, least + 3.0
