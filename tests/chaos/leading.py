"""Processes that may lead, faults of the leader, and the judgement of the windows that were fired meanwhile.

The fires are read from the stream itself, which no worker reads, by an independent client: an entry's id holds the
server's time at which it was added.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Literal

import msgpack  # type: ignore[import-untyped]

from pychasqui import MissedFiresPolicy, Queue, RepeatPattern
from tests.chaos.crew import Crew, Member
from tests.support.server import RedisServer
from tests.support.waiting import eventually

PROGRAM = Path(__file__).with_name("leader_process.py")
Role = Literal["Scheduler", "Promoter"]
HOUR_S = 3600.0
SKEWS_S = (0.0, HOUR_S, -HOUR_S)
SECOND_MS = 1000
FIRE_ALL = MissedFiresPolicy.fire_all(max_catchup=1000)


@dataclass
class Leaders(Crew):
    """Candidates of one role, a seat for each skew. With `faketime`, that library skews their clocks instead."""

    role: Role = "Scheduler"
    skews_s: tuple[float, ...] = SKEWS_S
    faketime: Path | None = None

    @property
    def program(self) -> Path:
        return PROGRAM

    def order(self, name: str, seat: int) -> dict[str, Any]:
        skew_s = 0.0 if self.faketime else self.skews_s[seat]
        mine = {"queue": self.queue, "url": self.urls[seat], "log": str(self.log), "consumer": name}
        return {**mine, "role": self.role, "skew_s": skew_s}

    def environment(self, seat: int) -> dict[str, str] | None:
        if self.faketime is None:
            return None
        skew = f"{self.skews_s[seat]:+.0f}s"
        return {"LD_PRELOAD": str(self.faketime), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    async def until_led(self, server: RedisServer) -> Member:
        """Waits for a leader that lives and runs, and returns it."""
        found: list[Member] = await eventually(lambda: self._leading(server), timeout=20, every=0.02)
        return found[0]

    def _leading(self, server: RedisServer) -> list[Member]:
        holder = server.execute("GET", f"{{chasqui:{self.queue}}}:{self.role.lower()}:lock")
        return [member for member in self.up() if member.name.encode() == holder]


@asynccontextmanager
async def leaders(
    server: RedisServer, folder: Path, queue: str, role: Role = "Scheduler", faketime: Path | None = None
) -> AsyncIterator[Leaders]:
    """Three candidates; one that ends is replaced."""
    crew = Leaders(folder, queue, [server.url] * len(SKEWS_S), role=role, faketime=faketime)
    manning = asyncio.create_task(crew.keep_manned())
    try:
        await eventually(lambda: len(crew.members) == len(SKEWS_S))
        await crew.until_up()
        yield crew
    finally:
        manning.cancel()
        await asyncio.gather(manning, return_exceptions=True)
        crew.end()


# Fires --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fire:
    """One job of a repeatable."""

    name: str
    job_id: str
    data: Any
    window_ms: int
    fired_ms: int  # when it joined the stream

    @property
    def late_ms(self) -> int:
        return self.fired_ms - self.window_ms


def read_fires(server: RedisServer, queue: str) -> list[Fire]:
    with server.client() as client:
        return [_fire(entry_id, fields) for entry_id, fields in client.xrange(f"{{chasqui:{queue}}}:stream")]


def _fire(entry_id: bytes, fields: dict[bytes, bytes]) -> Fire:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(fields[b"d"])
    job_id, payload, *_ = unpacker.unpack()
    window_ms = unpacker.unpack()["s"]
    data = msgpack.unpackb(payload, strict_map_key=False)
    return Fire(fields[b"n"].decode(), job_id, data, window_ms, int(entry_id.split(b"-")[0]))


@dataclass
class Judged:
    """How the windows of all repeatables were fired."""

    fires: int = 0
    late_ms: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)  # the figures in words


def judge_windows(fires: list[Fire], firsts: dict[str, int], interval_ms: int = SECOND_MS) -> Judged:
    """Every window from a repeatable's first one to its last fired exactly once, and none before its time."""
    judged = Judged(len(fires), sorted(fire.late_ms for fire in fires))
    windows: dict[str, Counter[int]] = defaultdict(Counter)
    for fire in fires:
        windows[fire.name][fire.window_ms] += 1
        if fire.late_ms < 0:
            judged.problems.append(f"{fire.name} fired {-fire.late_ms} ms early")
    if len({fire.job_id for fire in fires}) != len(fires):
        judged.problems.append("a job id is there twice")
    for name, first_ms in firsts.items():
        found = windows[name]
        judged.problems += [f"{name} fired {times} times for {at}" for at, times in found.items() if times > 1]
        if min(found, default=None) != first_ms:
            judged.problems.append(f"{name} fired first for {min(found, default=None)} instead of {first_ms}")
        judged.problems += [
            f"{name} missed {(later - former) // interval_ms - 1} windows after {former}"
            for former, later in pairwise(sorted(found))
            if later - former != interval_ms
        ]
    return judged


# Faults -------------------------------------------------------------------------------------------------------------


async def kill_leader(crew: Leaders, server: RedisServer) -> None:
    crew.kill(await crew.until_led(server))


async def stop_leader(crew: Leaders, server: RedisServer, seconds: float) -> None:
    """Suspends the leader; it wakes up when another process has led for a while."""
    leader = await crew.until_led(server)
    crew.stop(leader)
    await asyncio.sleep(seconds)
    crew.resume(leader)


async def harry(crew: Leaders, server: RedisServer, *, seconds: float, every_s: float, rng: Random) -> list[str]:
    """Kills and suspends the leader by turns, again and again; returns the list of faults."""
    began = monotonic()
    done: list[str] = []
    while (next_at := began + every_s * (len(done) + 1)) < began + seconds:
        await asyncio.sleep(max(0.0, next_at - monotonic() - rng.uniform(0, 0.5)))
        if len(done) % 2:
            await stop_leader(crew, server, rng.uniform(3.2, 4.2))
            done.append("stop")
        else:
            await kill_leader(crew, server)
            done.append("kill")
    await asyncio.sleep(max(0.0, began + seconds - monotonic()))
    return done


# A story ------------------------------------------------------------------------------------------------------------


async def store_every_second(queue: Queue) -> dict[str, int]:
    """Four repeatables that fire every second; the first window of each by its jobs' name."""
    every, cron = RepeatPattern.every(SECOND_MS), RepeatPattern.cron("* * * * * *")
    kinds = {
        "every, skip": (every, None),
        "every, fire all": (every, FIRE_ALL),
        "cron, skip": (cron, None),
        "cron, fire all": (cron, FIRE_ALL),
    }
    metas = [
        await queue.repeatables.upsert(name, repeat=pattern, missed_fires=policy)
        for name, (pattern, policy) in kinds.items()
    ]
    return {meta.job_name: meta.next_fire_ms for meta in metas}


async def until_caught_up(server: RedisServer, queue: str, names: set[str]) -> None:
    """Until each has been fired for a window after now."""
    seconds, _ = server.execute("TIME")

    def is_caught_up() -> bool:
        latest = {fire.name: fire.window_ms for fire in read_fires(server, queue)}
        return all(latest.get(name, 0) > 1000 * int(seconds) for name in names)

    await eventually(is_caught_up, timeout=20, every=0.1)


async def harry_leaders(seconds: float, *, every_s: float, seed: int, faketime: Path | None = None) -> Judged:
    """Runs three schedulers with faults of the leader, and prints how the windows were fired."""
    with RedisServer() as server, tempfile.TemporaryDirectory(prefix="chasqui-chaos-") as folder:
        async with (
            Queue("leaders", redis_url=server.url) as queue,
            leaders(server, Path(folder), queue.name, faketime=faketime) as crew,
        ):
            await crew.until_led(server)
            firsts = await store_every_second(queue)
            done = await harry(crew, server, seconds=seconds, every_s=every_s, rng=Random(seed))
            await until_caught_up(server, queue.name, set(firsts))
            printed = crew.errors()
        judged = judge_windows(read_fires(server, queue.name), firsts)
    judged.problems += printed
    late_ms = judged.late_ms
    judged.figures = [
        f"{server.label}, {seconds:.0f} s, clocks {', '.join(f'{skew:+.0f} s' for skew in SKEWS_S)}",
        f"the leader was killed {done.count('kill')} times and suspended {done.count('stop')} times",
        f"{judged.fires} windows of {len(firsts)} repeatables: late by {late_ms[len(late_ms) // 2]} ms (p50), "
        f"{late_ms[-1]} ms or less, never less than {late_ms[0]} ms",
    ]
    return judged
