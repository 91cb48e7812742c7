"""Who is measured: every peer with its environment, what it can do, and about how fast it is.

The rates (jobs a second) only size the measurements, so that each takes about the same time; they are no results.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OURS, OURS_UVLOOP = "pychasqui", "pychasqui-uvloop"
WHEEL, WHEEL_UVLOOP = "chasquimq", "chasquimq-uvloop"
REDIS_BENCHMARK, BARE_LOOP = "redis-benchmark", "bare-loop"

ADDS = ("add", "add-100-tasks", "add-bulk-50", "add-bulk-1000")
WORK = ("work-1", "work-100", "work-sleep")
DEF = ("work-def",)
FAILING = ("retry", "burial")
MEASURED_PLAIN = ("work-events", "work-metrics", "work-traces")  # ours are measured without it as well
SHOWING = ("work-events", "work-results", "work-both")
METRICS = ("work-metrics",)
TRACES = ("work-traces",)
WAITS = ("wait-1000", "wait-burst")
DELAYED_ADDS = ("add-delayed", "add-delayed-bulk-50", "add-delayed-bulk-1000")
TIME = (*DELAYED_ADDS, "promote", "lateness", "fire")
REST = ("latency", "memory")
BACKLOG = ("backlog",)
WHEEL_DOES = ADDS + WORK + FAILING + SHOWING + WAITS + TIME + REST
OURS_DOES = WHEEL_DOES + DEF + METRICS + TRACES


@dataclass(frozen=True)
class Peer:
    """`kind` is python, node or tool; `home` names the environment under .bench, None is the project's own."""

    name: str
    label: str
    module: str
    scenarios: tuple[str, ...]
    rates: dict[str, int]
    home: str | None = None
    packages: tuple[str, ...] = ()
    printable: tuple[str, ...] = ()
    kind: str = "python"
    loop: str = "asyncio"
    needs_redis: tuple[int, int] = (6, 2)
    is_limit: bool = False
    is_other_python: bool = field(default=False)


def _rates(add: int, tasks: int, bulk: int, one: int, many: int, sleep: int, plain: int = 0) -> dict[str, int]:
    named = {"add": add, "add-100-tasks": tasks, "add-bulk-50": bulk, "add-bulk-1000": bulk, "memory": bulk}
    return named | {"work-1": one, "work-100": many, "work-sleep": sleep, "work-def": plain}


def _other(name: str, packages: tuple[str, ...], rates: dict[str, int], printable: tuple[str, ...] = ()) -> Peer:
    scenarios = ADDS + WORK + (DEF if rates["work-def"] else ()) + REST
    return Peer(
        name,
        name,
        name,
        scenarios,
        rates,
        home=f"venv-{name}",
        packages=packages,
        printable=printable or (name, "redis"),
        is_other_python=True,
    )


def _delayed_rates(add: int, bulk: int) -> dict[str, int]:
    return dict(zip(DELAYED_ADDS, (add, bulk, bulk), strict=True))


_OURS = _rates(14_000, 130_000, 300_000, 160_000, 200_000, 50_000, 25_000) | _delayed_rates(8_000, 80_000)
_OURS |= {"work-events": 90_000, "work-results": 120_000, "work-both": 70_000, "work-metrics": 200_000}
_OURS |= {"work-traces": 15_000}
_WHEEL = _rates(6_000, 15_000, 90_000, 12_000, 28_000, 22_000) | _delayed_rates(6_000, 12_000)
_WHEEL |= {"work-events": 10_000, "work-results": 15_000, "work-both": 8_000}
_OURS_SHOWN = ("pychasqui", "hiredis", "msgspec", "redis", "uvloop", "opentelemetry-sdk")
_WHEEL_PACKAGES = ("chasquimq==1.3.0", "uvloop")

PEERS: tuple[Peer, ...] = (
    Peer(OURS, "pychasqui", "pychasqui", OURS_DOES + BACKLOG, _OURS, printable=_OURS_SHOWN),
    Peer(OURS_UVLOOP, "pychasqui, uvloop", "pychasqui", OURS_DOES, _OURS, loop="uvloop"),
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
        ADDS + WORK + REST,
        _rates(4_500, 9_000, 16_000, 4_000, 9_000, 9_000),
        home="node",
        packages=("bullmq", "ioredis"),
        printable=("bullmq", "ioredis"),
        kind="node",
    ),
    _other("arq", ("arq", "hiredis", "uvloop"), _rates(4_500, 5_000, 5_000, 500, 2_000, 2_000)),
    _other(
        "saq",
        ("saq[redis,hiredis]", "typing_extensions", "uvloop"),
        _rates(5_000, 11_000, 11_000, 1_000, 3_000, 3_000, 2_500),
    ),
    _other(
        "taskiq",
        ("taskiq", "taskiq-redis", "hiredis", "uvloop"),
        _rates(4_000, 6_000, 6_000, 2_500, 4_000, 4_000, 3_000),
        ("taskiq", "taskiq-redis", "redis"),
    ),
    _other("dramatiq", ("dramatiq[redis]", "hiredis"), _rates(7_000, 5_000, 7_000, 4_000, 5_000, 5_000, 5_000)),
    _other("celery", ("celery[redis]", "hiredis"), _rates(2_200, 1_800, 2_300, 1_300, 1_100, 1_100, 1_100)),
    _other("rq", ("rq", "hiredis"), _rates(3_500, 3_000, 13_000, 400, 400, 300, 400)),
    _other("huey", ("huey", "redis", "hiredis"), _rates(6_000, 6_000, 8_000, 4_000, 4_500, 4_500, 4_500)),
    _other("bullmq", ("bullmq", "hiredis", "uvloop"), _rates(5_000, 6_000, 17_000, 1_800, 1_800, 1_800)),
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
