"""Who is measured: every peer with its environment, what it can do, and about how fast it is.

The rates (jobs a second) only size the measurements, so that each takes about the same time; they are no results.
"""

from __future__ import annotations

from dataclasses import dataclass

OURS, OURS_UVLOOP = "pychasqui", "pychasqui-uvloop"
WHEEL, WHEEL_UVLOOP = "chasquimq", "chasquimq-uvloop"
REDIS_BENCHMARK, BARE_LOOP = "redis-benchmark", "bare-loop"

ADDS = ("add", "add-100-tasks", "add-bulk-50", "add-bulk-1000", "bulk-1k", "bulk-10k", "bulk-100k", "bulk-aof")
LATENCIES, LATENCIES_DEF = ("latency",), ("latency-def",)
WORK = ("work-1", "work-100", "work-sleep", "work-1k", "work-10k", "work-100k", "work-aof")
COROUTINES = ("defaults", *WORK, "processes-1", "processes-2", "neighbour", *LATENCIES)
LAG = ("loop-lag",)
DEF = ("defaults-def", "work-def", "def-1ms", "def-10ms", *LATENCIES_DEF)
FAILING = ("retry", "burial")
SHOWING = ("work-events", "work-results", "work-both", "neighbour-events")
METRICS, TRACES = ("work-metrics",), ("work-traces",)
NAMES = ("bulk-names",)
# Measured once more right behind it, without what is asked about.
BESIDE = {
    "work-events": "work-100",
    "work-metrics": "work-100",
    "work-traces": "work-100",
    "bulk-names": "add-bulk-50",
}
IN_TURN = ("wait-in-turn",)
WAITS = ("wait-1000", "wait-burst", *IN_TURN)
DELAYED_ADDS = ("add-delayed", "add-delayed-bulk-50", "add-delayed-bulk-1000")
TIME = (*DELAYED_ADDS, "promote", "lateness", "fire")
REST = ("memory", "cold-start")
BACKLOG = ("backlog",)
WHEEL_DOES = ADDS + COROUTINES + LAG + NAMES + FAILING + SHOWING + WAITS + TIME + REST
OURS_DOES = WHEEL_DOES + DEF + METRICS + TRACES


@dataclass(frozen=True)
class Peer:
    """`kind` is python, node or tool; `home` names the environment under .bench, None is the project's own. `source` is
    where that one imports pychasqui from, if not from this tree. `threads` are the numbers of threads of which the best
    counts, where handlers are plain functions. `default_processes` is how many worker processes its command starts.
    `note` is what a reader has to know beside every figure."""

    name: str
    label: str
    module: str
    scenarios: tuple[str, ...]
    rates: dict[str, int]
    home: str | None = None
    source: str | None = None
    packages: tuple[str, ...] = ()
    printable: tuple[str, ...] = ()
    kind: str = "python"
    loop: str = "asyncio"
    needs_redis: tuple[int, int] = (6, 2)
    threads: tuple[int, ...] = (100,)
    default_processes: int = 1
    note: str = ""
    is_limit: bool = False
    is_other_python: bool = False

    @property
    def title(self) -> str:
        return f"{self.label} [{self.note}]" if self.note else self.label


def _rates(add: int, tasks: int, bulk: int, one: int, many: int, sleep: int, plain: int = 0) -> dict[str, int]:
    named = {"add": add, "add-100-tasks": tasks, "add-bulk-50": bulk, "add-bulk-1000": bulk, "memory": bulk}
    return named | {"work-1": one, "work-100": many, "work-sleep": sleep, "work-def": plain}


def _other(
    name: str,
    packages: tuple[str, ...],
    does: tuple[str, ...],
    rates: dict[str, int],
    *,
    printable: tuple[str, ...] = (),
    threads: tuple[int, ...] = (100,),
    default_processes: int = 1,
    note: str = "",
) -> Peer:
    return Peer(
        name,
        name,
        name,
        ADDS + does + REST,
        rates,
        home=f"venv-{name}",
        packages=packages,
        printable=printable or (name, "redis"),
        threads=threads,
        default_processes=default_processes,
        note=note,
        is_other_python=True,
    )


def _delayed_rates(add: int, bulk: int) -> dict[str, int]:
    return dict(zip(DELAYED_ADDS, (add, bulk, bulk), strict=True))


_OURS = _rates(14_000, 130_000, 300_000, 160_000, 200_000, 50_000, 25_000) | _delayed_rates(8_000, 80_000)
_OURS |= {"work-events": 90_000, "work-results": 120_000, "work-both": 70_000, "work-metrics": 200_000}
_OURS |= {"work-traces": 15_000, "wait-in-turn": 1_000}
_WHEEL = _rates(6_000, 15_000, 90_000, 12_000, 28_000, 22_000) | _delayed_rates(6_000, 12_000)
_WHEEL |= {"work-events": 10_000, "work-results": 15_000, "work-both": 8_000, "wait-in-turn": 10}
_OURS_SHOWN = ("pychasqui", "hiredis", "msgspec", "redis", "uvloop", "opentelemetry-sdk")
_HIREDIS, _UVLOOP, _REDIS = "hiredis==3.5.0", "uvloop==0.23.0", "redis==8.1.0"
_WHEEL_PACKAGES = ("chasquimq==1.3.0", _UVLOOP)

# Each of ours is followed by the wheel on the same loop: pairs that are compared are neighbours in a round.
PEERS: tuple[Peer, ...] = (
    Peer(OURS, "pychasqui", "pychasqui", OURS_DOES + BACKLOG, _OURS, printable=_OURS_SHOWN),
    Peer(
        WHEEL,
        "chasquimq wheel",
        "chasquimq",
        WHEEL_DOES + BACKLOG,
        _WHEEL,
        home="venv-chasquimq",
        packages=_WHEEL_PACKAGES,
        printable=("chasquimq", "msgpack", "uvloop"),
        needs_redis=(8, 6),
    ),
    Peer(OURS_UVLOOP, "pychasqui, uvloop", "pychasqui", OURS_DOES, _OURS, loop="uvloop"),
    Peer(
        WHEEL_UVLOOP,
        "chasquimq wheel, uvloop",
        "chasquimq",
        WHEEL_DOES,
        _WHEEL,
        home="venv-chasquimq",
        packages=_WHEEL_PACKAGES,
        loop="uvloop",
        needs_redis=(8, 6),
    ),
    Peer(
        "bullmq-node",
        "BullMQ (node)",
        "bullmq_node.cjs",
        ADDS + COROUTINES + REST,
        _rates(4_500, 20_000, 20_000, 4_000, 14_000, 11_000) | {"defaults": 3_000},
        home="node",
        packages=("bullmq@6.7.0", "ioredis@6.0.0"),
        printable=("bullmq", "ioredis"),
        kind="node",
    ),
    _other(
        "arq",
        ("arq==0.28.0", _HIREDIS, _UVLOOP),
        COROUTINES + LAG + IN_TURN,
        _rates(4_500, 5_000, 5_000, 500, 2_000, 2_000) | {"defaults": 200, "wait-in-turn": 400},
    ),
    _other(
        "saq",
        ("saq[redis,hiredis]==0.26.4", "typing_extensions", _UVLOOP),
        COROUTINES + LAG + DEF + IN_TURN,
        _rates(5_000, 11_000, 11_000, 1_000, 3_000, 3_000, 2_500) | {"wait-in-turn": 300},
        note="at most once",
    ),
    _other(
        "streaq",
        ("streaq==7.2.0", _UVLOOP),
        COROUTINES + LAG + DEF + IN_TURN,
        _rates(2_000, 3_000, 6_000, 500, 1_500, 1_500, 1_000) | {"wait-in-turn": 200},
        printable=("streaq", "coredis"),
    ),
    _other(
        "taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", _REDIS, _HIREDIS, _UVLOOP),
        COROUTINES + LAG + DEF,
        _rates(4_000, 6_000, 6_000, 2_500, 4_000, 4_000, 3_000),
        printable=("taskiq", "taskiq-redis", "redis"),
        default_processes=2,
    ),
    _other(
        "bullmq",
        ("bullmq==3.4.4", _HIREDIS, _UVLOOP),
        COROUTINES + LAG,
        _rates(5_000, 6_000, 17_000, 1_800, 1_800, 1_800),
    ),
    _other(
        "dramatiq",
        ("dramatiq[redis]==2.2.1", _REDIS, _HIREDIS),
        DEF,
        _rates(7_000, 5_000, 7_000, 4_000, 5_000, 5_000, 5_000),
        threads=(1, 8, 100),
    ),
    _other(
        "celery",
        ("celery[redis]==5.7.0", _REDIS, _HIREDIS),
        DEF,
        _rates(2_200, 1_800, 2_300, 1_300, 1_100, 1_100, 1_100),
        threads=(1, 100),
        note="acks before the run",
    ),
    _other(
        "rq",
        ("rq==2.12.0", _REDIS, _HIREDIS),
        DEF,
        _rates(3_500, 3_000, 13_000, 400, 400, 300, 400) | {"defaults-def": 40},
        threads=(1,),
        note="one job at a time, at most once",
    ),
    _other(
        "huey",
        ("huey==3.5.4", _REDIS, _HIREDIS),
        DEF,
        _rates(6_000, 6_000, 8_000, 4_000, 4_500, 4_500, 4_500),
        threads=(2, 100),
        note="no acks, at most once",
    ),
    Peer(
        REDIS_BENCHMARK,
        "redis-benchmark, XADD",
        "",
        ADDS,
        {"add": 20_000, "add-100-tasks": 90_000, "add-bulk-50": 500_000, "add-bulk-1000": 700_000},
        kind="tool",
        is_limit=True,
    ),
    Peer(
        BARE_LOOP,
        "bare read-ack loop",
        "bare_loop",
        ("work-100", "latency"),
        {"work-100": 350_000},
        is_limit=True,
    ),
)

BY_NAME = {peer.name: peer for peer in PEERS}
OTHER_PYTHON = tuple(peer.name for peer in PEERS if peer.is_other_python)
