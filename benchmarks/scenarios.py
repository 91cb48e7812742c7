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
    kind: str  # add, work, latency, backlog or memory
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How much work a run puts into each measurement."""

    seconds: float  # how long a measurement should take, by the roster's rates
    latency_jobs: int
    failing_jobs: int  # the same for everybody: what waits for its retry is part of what a retry costs
    memory_jobs: int
    small_backlog: int
    large_backlog: int


FULL = Effort(
    seconds=1.0,
    latency_jobs=1000,
    failing_jobs=50_000,
    memory_jobs=100_000,
    small_backlog=10_000,
    large_backlog=1_000_000,
)
QUICK = Effort(
    seconds=0.1,
    latency_jobs=100,
    failing_jobs=5_000,
    memory_jobs=10_000,
    small_backlog=10_000,
    large_backlog=100_000,
)

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
        "worker, every job fails once and succeeds 1 ms later, concurrency 100",
        "work",
        {"handler": "retry", "concurrency": 100, "options": RETRIED_ONCE},
    ),
    Scenario(
        "burial",
        "worker, every job raises UnrecoverableError, concurrency 100",
        "work",
        {"handler": "bury", "concurrency": 100},
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
