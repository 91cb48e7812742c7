"""What is measured: every scenario with its parameters, and how many jobs one measurement takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.roster import FAILING, IN_TURN, Peer


@dataclass(frozen=True)
class Scenario:
    """`kind` chooses how the runner goes about it; `parameters` go to the peer's process as they are. `like` is the
    scenario whose rates size this one. `section` is the report's heading; `drawn` is the number that has a panel in the
    picture, if one has."""

    key: str
    title: str
    kind: str  # add, work, drain, fire, latency, lateness, wait, neighbour, lag, cold, backlog or memory
    parameters: dict[str, Any] = field(default_factory=dict)
    like: str = ""
    section: str = ""
    drawn: str = ""

    @property
    def is_rate(self) -> bool:
        return self.kind in ("add", "work", "drain", "fire")


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
    cold_starts: int


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
    cold_starts=10,
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
    cold_starts=3,
)

NOOP = {"handler": "noop", "concurrency": 100}
PLAIN = NOOP | {"form": "def"}
RESULT = {"handler": "result", "concurrency": 100}  # returns the job's data
ENDS = {"handler": "end", "concurrency": 1000, "events": True, "results": True}  # returns when it has ended
WAITED_FOR = 1000
LATENCY_TURNS = 5  # that each peer has within a repeat
BACKLOG_TURNS = 3  # that each size has within a measurement
IN_AN_HOUR = {"delay_ms": 3_600_000}
AT_ONCE = {"delay_ms": 1}
RETRIED_ONCE = {"attempts": 2, "backoff": 1}  # of the job itself: the wheel's worker takes no retry policy in Python
LATE = {"handler": "stamp", "concurrency": 100, "promotes": True, "rate": 1000, "delays_ms": (100, 1000)}
BULK_50, BULK_1000 = {"style": "bulk", "bulk": 50}, {"style": "bulk", "bulk": 1000}
PERCENTILES = 3  # times longer than others takes what is asked for its p99
CARRIED = 150_000_000  # bytes a second
KIB = {"1k": 1024, "10k": 10_240, "100k": 102_400}


def _section(name: str, *scenarios: Scenario) -> tuple[Scenario, ...]:
    return tuple(replace(scenario, section=name) for scenario in scenarios)


SCENARIOS: tuple[Scenario, ...] = (
    *_section(
        "Everybody as it comes",
        Scenario(
            "defaults",
            "worker, coroutine no-op, everybody's defaults",
            "drain",
            {"defaults": True},
            "work-100",
            drawn="value",
        ),
        Scenario(
            "defaults-def",
            "worker, plain no-op, everybody's defaults",
            "drain",
            {"defaults": True, "form": "def"},
            "work-def",
            drawn="value",
        ),
        Scenario("cold-start", "a fresh process: import and one add", "cold", drawn="p50_us"),
    ),
    *_section(
        "Adding",
        Scenario("add", "add, one after another", "add", {"style": "single"}, drawn="value"),
        Scenario("add-100-tasks", "add, 100 tasks at once", "add", {"style": "tasks", "tasks": 100}, drawn="value"),
        Scenario("add-bulk-50", "add_bulk(50)", "add", BULK_50, drawn="value"),
        Scenario("add-bulk-1000", "add_bulk(1000)", "add", BULK_1000),
        Scenario("bulk-names", "add_bulk(50), ten names mixed", "add", BULK_50 | {"names": 10}, "add-bulk-50"),
        *(
            Scenario(
                f"bulk-{size}",
                f"add_bulk(50), {count // 1024} KiB a job",
                "add",
                BULK_50 | {"body_bytes": count},
                "add-bulk-50",
                drawn="value" if size == "10k" else "",
            )
            for size, count in KIB.items()
        ),
        Scenario("bulk-aof", "add_bulk(50), AOF everysec", "add", BULK_50 | {"aof": True}, "add-bulk-50"),
    ),
    *_section(
        "Running coroutines",
        Scenario("work-1", "worker, no-op, concurrency 1", "work", NOOP | {"concurrency": 1}),
        Scenario("work-100", "worker, no-op, concurrency 100", "work", NOOP, drawn="value"),
        Scenario("work-sleep", "worker, 1 ms sleep, concurrency 100", "work", NOOP | {"handler": "sleep"}),
        *(
            Scenario(
                f"work-{size}",
                f"worker, no-op, {count // 1024} KiB a job",
                "work",
                NOOP | {"body_bytes": count},
                "work-100",
                drawn="value" if size == "10k" else "",
            )
            for size, count in KIB.items()
        ),
        Scenario("work-aof", "worker, no-op, AOF everysec", "work", NOOP | {"aof": True}, "work-100"),
        Scenario("processes-1", "one worker process, no-op", "drain", NOOP | {"processes": 1}, "work-100"),
        Scenario("processes-2", "two worker processes, no-op", "drain", NOOP | {"processes": 2}, "work-100"),
    ),
    *_section(
        "Running plain functions",
        Scenario("work-def", "worker, plain def, no-op", "work", PLAIN, drawn="value"),
        Scenario("def-1ms", "worker, plain def of 1 ms", "work", PLAIN | {"handler": "sleep"}, "work-def"),
        Scenario(
            "def-10ms",
            "worker, plain def of 10 ms",
            "work",
            PLAIN | {"handler": "sleep", "sleep_ms": 10},
            "work-def",
            drawn="value",
        ),
    ),
    *_section(
        "From add to handler",
        Scenario(
            "latency", "add to handler start on an idle queue", "latency", NOOP | {"handler": "stamp"}, drawn="p50_us"
        ),
        Scenario(
            "latency-def",
            "add to the start of a plain def on an idle queue",
            "latency",
            PLAIN | {"handler": "stamp"},
            drawn="p50_us",
        ),
    ),
    *_section(
        "Neighbours",
        Scenario(
            "neighbour", "another client's SET while the worker drains", "neighbour", NOOP, "work-100", drawn="p99_us"
        ),
        Scenario(
            "neighbour-events",
            "another client's SET while the worker drains, events on",
            "neighbour",
            NOOP | {"events": True},
            "work-events",
        ),
        Scenario(
            "loop-lag",
            "lag of the worker's loop while it drains",
            "lag",
            NOOP | {"lag": True},
            "work-100",
            drawn="p99_us",
        ),
    ),
    *_section(
        "Showing what happens",
        Scenario("work-events", "worker, no-op, events on", "work", {**NOOP, "events": True}),
        Scenario("work-results", "worker, results stored", "work", {**RESULT, "results": True}),
        Scenario("work-both", "worker, results stored, events on", "work", {**RESULT, "results": True, "events": True}),
        Scenario("work-metrics", "worker, no-op, metrics served", "work", {**NOOP, "metrics": True}),
        Scenario("work-traces", "worker, no-op, traced by OpenTelemetry's SDK", "work", {**NOOP, "traces": True}),
        Scenario(
            "wait-in-turn",
            "results one by one: add, wait for the result, add the next",
            "wait",
            {**ENDS, "in_turn": True},
        ),
        Scenario(
            "wait-1000", "1,000 results waited for, which come within a second", "wait", {**ENDS, "spread_ms": 1000}
        ),
        Scenario("wait-burst", "1,000 results waited for, which come all at once", "wait", {**ENDS, "spread_ms": 0}),
    ),
    *_section(
        "Failures, delays and repeatables",
        Scenario(
            "retry", "worker, every job is retried once", "work", NOOP | {"handler": "retry", "options": RETRIED_ONCE}
        ),
        Scenario("burial", "worker, every job is buried", "work", NOOP | {"handler": "bury"}),
        Scenario("add-delayed", "delayed add, one after another", "add", {"style": "single", "options": IN_AN_HOUR}),
        Scenario("add-delayed-bulk-50", "delayed add_bulk(50)", "add", BULK_50 | {"options": IN_AN_HOUR}),
        Scenario("add-delayed-bulk-1000", "delayed add_bulk(1000)", "add", BULK_1000 | {"options": IN_AN_HOUR}),
        Scenario("promote", "worker, delayed jobs, all due", "work", NOOP | {"options": AT_ONCE, "promotes": True}),
        Scenario("lateness", "due time to handler start at 1,000 delayed jobs a second", "lateness", LATE),
        Scenario("fire", "worker, repeatables, all due", "fire", NOOP | {"schedules": True}),
    ),
    *_section(
        "Memory",
        Scenario("backlog", "a job at a standing backlog of 1M against 10k", "backlog", {"concurrency": 100}),
        Scenario("memory", "Redis bytes per waiting job", "memory", BULK_1000, drawn="value"),
    ),
)
BY_KEY = {scenario.key: scenario for scenario in SCENARIOS}


def rate(scenario: Scenario, peer: Peer, threads: int = 100) -> float:
    """About how many jobs a second this peer does here: no faster than bytes can be carried and handlers can sleep."""
    known = peer.rates.get(scenario.key) or peer.rates[scenario.like or scenario.key]
    seconds = 1 / known + scenario.parameters.get("body_bytes", 0) / CARRIED
    if scenario.parameters.get("handler") == "sleep":
        seconds = max(seconds, scenario.parameters.get("sleep_ms", 1) / 1000 / threads)
    return 1 / float(seconds)


def job_count(scenario: Scenario, peer: Peer, effort: Effort, threads: int = 100) -> int:
    """Jobs in the timed part: a whole number of batches, and a few hundred at the very least."""
    batch = int(scenario.parameters.get("bulk", scenario.parameters.get("tasks", 1)))
    if scenario.key in FAILING:
        return effort.failing_jobs
    if scenario.key == "promote":
        return effort.promoted_jobs
    if scenario.key == "fire":
        return effort.repeatables
    if scenario.kind == "wait":
        return max(20, int(peer.rates[scenario.key] * effort.seconds)) if scenario.key in IN_TURN else WAITED_FOR
    seconds = effort.seconds * (PERCENTILES if scenario.kind in ("neighbour", "lag") else 1)
    return math.ceil(max(200, rate(scenario, peer, threads) * seconds) / batch) * batch


def memory_count(peer: Peer, effort: Effort) -> int:
    """Waiting jobs for the memory measurement: fewer for those who would take more than a few seconds to add them."""
    return min(effort.memory_jobs, max(1000, int(peer.rates["memory"] * 8 * effort.seconds)))


def warmup_count(count: int, parameters: dict[str, Any]) -> int:
    """A tenth of the timed part on top of it, in whole batches."""
    batch = int(parameters.get("bulk", 1))
    return math.ceil(count / 10 / batch) * batch


def gap_ms(scenario: Scenario, peer: Peer) -> tuple[float, float]:
    """The pause before each add of the latency measurement: long enough that the queue is idle for this peer too."""
    least = max(2.0, 3000 / peer.rates["work-def" if scenario.parameters.get("form") == "def" else "work-100"])
    return least, least + 3.0
