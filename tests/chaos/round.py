"""One round: a server of its own, two workers, a producer, a fault, and the wait until every job is done or dead."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import msgpack  # type: ignore[import-untyped]
import redis

from pychasqui import Queue
from tests.chaos.adding import ATTEMPTS, Producer
from tests.chaos.crew import Crew, Engine
from tests.chaos.diary import DeadLetter, Diary, read_runs
from tests.chaos.faults import FAULTS, ChaosStage
from tests.chaos.line import AbandonableProxy
from tests.chaos.verdict import Figures, judge
from tests.support.server import RedisServer

QUEUE = "chaos"
PREFIX = "{chasqui:chaos}"
AOF = ("--appendonly", "yes", "--appendfsync", "always")
SEATS = 2
ADD_TIMEOUT_S = 8.0
ALLOWED_KEYS = {f"{PREFIX}:{name}" for name in ("stream", "dlq", "events")}  # empty, or bounded by a cap


@dataclass(frozen=True)
class Order:
    """The parameters of a round. The seed decides everything random in it."""

    fault: str
    seed: str
    engine: Engine = "pychasqui"
    jobs: int = 1000
    rate: float = 250.0
    lease_ms: int = 1500
    claim_ms: int = 5000  # how long the wheel lets an entry lie idle: longer than any handler takes
    patience_s: float = 60.0


@dataclass
class Report:
    order: Order
    figures: Figures
    seconds: float
    problems: list[str]
    diary: Diary = field(repr=False, default_factory=Diary)


async def run_round(order: Order, keep_in: Path | None = None) -> Report:
    """With `keep_in`, the files of a round that went wrong are kept in there."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="chasqui-chaos-") as name:
        folder = Path(name)
        diary = await _play(order, folder)
        figures = judge(diary)
        problems = figures.problems()
        if problems and keep_in is not None:
            _keep(folder, keep_in / f"{order.engine}-{order.fault}-{order.seed.replace(':', '-')}", problems, diary)
    return Report(order, figures, monotonic() - began, problems, diary)


async def _play(order: Order, folder: Path) -> Diary:
    rng = random.Random(order.seed)
    async with _stage(order, folder, rng) as stage:
        manned = asyncio.create_task(stage.crew.keep_manned())
        adding = asyncio.create_task(stage.producer.run())
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        await FAULTS[order.fault].inflict(stage)
        healed_at = max((mishap.end for mishap in stage.crew.mishaps), default=monotonic())
        await adding
        await _wait_until_settled(stage, order.patience_s)
        manned.cancel()
        await asyncio.gather(manned, return_exceptions=True)
        diary = Diary(
            added=stage.producer.added,
            poisoned=stage.poisoned,
            healed_at=healed_at,
            lease_s=(order.lease_ms if order.engine == "pychasqui" else order.claim_ms) / 1000,
        )
        await stage.crew.until_up(*stage.crew.living())  # before that a signal ends a process the hard way
        for member in stage.crew.living():
            if await stage.crew.close(member) != 0:
                diary.leftovers.append(f"{member.name} ended with exit code {member.process.returncode}")
        diary.leftovers += stage.crew.errors()
        with stage.server.client() as client:
            diary.still_stored = _stored(client)
            diary.dead = _dead_letters(client)
            diary.leftovers += _left_behind(client, stage.crew)
        diary.mishaps = stage.crew.mishaps
        diary.runs = read_runs(stage.crew.log)
        return diary


@asynccontextmanager
async def _stage(order: Order, folder: Path, rng: random.Random) -> AsyncIterator[ChaosStage]:
    fault = FAULTS[order.fault]
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer(*(AOF if fault.needs_aof else ()), tcp=True))
        lines = []
        if fault.needs_lines:
            lines = [await stack.enter_async_context(AbandonableProxy(server.tcp_url)) for _ in range(SEATS + 1)]
        urls = [line.url for line in lines] or [server.tcp_url] * (SEATS + 1)
        queue = await stack.enter_async_context(Queue(QUEUE, redis_url=urls[-1], timeout_s=ADD_TIMEOUT_S))
        producer = Producer(queue, rng, jobs=order.jobs, rate=order.rate, lease_s=order.lease_ms / 1000)
        options: dict[str, Any] = {"store_results": fault.needs_results or rng.random() < 0.5}
        options |= (
            {"lease_ms": order.lease_ms} if order.engine == "pychasqui" else {"claim_min_idle_ms": order.claim_ms}
        )
        crew = Crew(folder, QUEUE, urls[:SEATS], order.engine, max_attempts=ATTEMPTS, options=options)
        stack.callback(crew.end)
        for seat in range(SEATS):
            crew.start(seat)
        await crew.until_up()
        stage = ChaosStage(server, crew, producer, rng, order.lease_ms / 1000, PREFIX, lines)
        stack.enter_context(stage.cleanup)
        yield stage


async def _wait_until_settled(stage: ChaosStage, patience_s: float) -> None:
    """Until all that was added is done or dead; in a round that went wrong, until patience ends."""
    deadline = monotonic() + patience_s
    while monotonic() < deadline and not await asyncio.to_thread(_is_empty, stage.server):
        await asyncio.sleep(0.1)


def _is_empty(server: RedisServer) -> bool:
    with server.client() as client, client.pipeline(transaction=True) as both:  # a job may move from one to the other
        both.xlen(f"{PREFIX}:stream")
        both.zcard(f"{PREFIX}:delayed")
        try:
            return both.execute() == [0, 0]
        except redis.RedisError:
            return False


def _stored(client: Any) -> set[int]:
    """The numbers of jobs that are neither done nor dead."""
    entries = [fields.get(b"d", b"") for _, fields in client.xrange(f"{PREFIX}:stream")]
    members = client.zrange(f"{PREFIX}:delayed", 0, -1)
    envelopes = entries + [member[4 + int.from_bytes(member[:4], "little") :] for member in members]
    return {number for envelope in envelopes if (number := _number(envelope)) is not None}


def _number(envelope: bytes) -> int | None:
    """The job's number, or None if these bytes are no job of ours."""
    try:
        data = msgpack.unpackb(msgpack.unpackb(envelope, strict_map_key=False)[1])
        return int(data["n"])
    except (ValueError, TypeError, LookupError, msgpack.UnpackException):
        return None


def _dead_letters(client: Any) -> list[DeadLetter]:
    return [
        DeadLetter(_number(fields.get(b"d", b"")), fields.get(b"reason", b"").decode())
        for _, fields in client.xrange(f"{PREFIX}:dlq")
    ]


def _left_behind(client: Any, crew: Crew) -> list[str]:
    """Keys without an end, and names in the group that do not belong to a worker that was killed."""
    keys = [key.decode() for key in client.scan_iter(count=1000) if client.pttl(key) < 0]
    left = [f"key {key}" for key in keys if key not in ALLOWED_KEYS]
    killed = {mishap.worker for mishap in crew.mishaps if mishap.kind == "killed"}
    try:
        consumers = {
            each["name"].decode(): each["pending"] for each in client.xinfo_consumers(f"{PREFIX}:stream", "default")
        }
    except redis.ResponseError:
        return left  # the stream or the group is gone
    return left + [f"consumer {name} ({pending} pending)" for name, pending in consumers.items() if name not in killed]


def _keep(folder: Path, to: Path, problems: list[str], diary: Diary) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    lines = [*problems, "", *(repr(mishap) for mishap in sorted(diary.mishaps, key=lambda mishap: mishap.begin))]
    (to / "verdict.txt").write_text("\n".join([*lines, f"healed at {diary.healed_at}", ""]))
