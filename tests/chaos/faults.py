"""Every fault that a round can bring about, each a coroutine that returns once the fault is over.

All randomness comes from the stage's own source, so that a seed gives the same faults at the same times. A fault
records which worker it hit and when; verdict.py decides what it may excuse.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any

from tests.chaos.adding import Producer
from tests.chaos.crew import Crew, Member
from tests.chaos.diary import Mishap
from tests.chaos.line import AbandonableProxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually


@dataclass
class ChaosStage:
    server: RedisServer
    crew: Crew
    producer: Producer
    rng: Random
    lease_s: float
    prefix: str  # of the queue's keys
    lines: list[AbandonableProxy] = field(
        default_factory=list
    )  # one for each seat, then the producer's; empty if not needed
    poisoned: int = 0
    server_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one fault of the server at a time
    cleanup: ExitStack = field(default_factory=ExitStack)  # closes what a fault has started

    async def anyone(self) -> Member:
        """A worker that is up and about."""
        return self.rng.choice(await eventually(self.crew.up, timeout=30, every=0.05))

    async def ask(self, *command: str | bytes | float) -> Any:
        return await asyncio.to_thread(self.server.execute, *command)

    def note(self, kind: Any, began: float, worker: str = "") -> None:
        self.crew.mishaps.append(Mishap(kind, began, monotonic(), worker))


SLOW_BYTES_PER_S = 1_000_000

Inflict = Callable[[ChaosStage], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    name: str
    inflict: Inflict
    needs_lines: bool = False
    needs_aof: bool = False
    needs_results: bool = False


FAULTS: dict[str, Fault] = {}


def fault(name: str, *, lines: bool = False, aof: bool = False, results: bool = False) -> Callable[[Inflict], Inflict]:
    def register(inflict: Inflict) -> Inflict:
        FAULTS[name] = Fault(name, inflict, lines, aof, results)
        return inflict

    return register


# Workers ------------------------------------------------------------------------------------------------------------


@fault("worker-kill")
async def kill_workers(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(1, 3)):
        stage.crew.kill(await stage.anyone())
        await asyncio.sleep(stage.rng.uniform(0.0, 0.8))


@fault("worker-stop-short")
async def stop_within_the_lease(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(1, 3)):
        member = await stage.anyone()
        stage.crew.stop(member)
        await asyncio.sleep(stage.lease_s * stage.rng.uniform(0.2, 0.5))
        stage.crew.resume(member)
        await asyncio.sleep(stage.rng.uniform(0.1, 0.5))


@fault("worker-stop-long")
async def stop_past_the_lease(stage: ChaosStage) -> None:
    member = await stage.anyone()
    stage.crew.stop(member)
    await asyncio.sleep(stage.lease_s * stage.rng.uniform(1.2, 2.6))
    stage.crew.resume(member)


@fault("worker-stop-kill")
async def stop_past_the_lease_and_kill(stage: ChaosStage) -> None:
    member = await stage.anyone()
    stage.crew.stop(member)
    await asyncio.sleep(stage.lease_s * stage.rng.uniform(0.5, 2.6))
    stage.crew.kill(member)


@fault("worker-term")
async def close_workers(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(1, 2)):
        await stage.crew.close(await stage.anyone())
        await asyncio.sleep(stage.rng.uniform(0.2, 0.6))


@fault("loop-blocked")
async def block_loops(stage: ChaosStage) -> None:
    await stage.producer.add_blocking(stage.rng.randint(1, 4), leases=stage.rng.uniform(1.2, 2.5))


# The server ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def outage(stage: ChaosStage) -> AsyncIterator[None]:
    async with stage.server_lock:
        began = monotonic()
        try:
            yield
        finally:
            stage.note("server away", began)


@fault("redis-kill", aof=True)
async def kill_redis(stage: ChaosStage) -> None:
    down_s = stage.rng.choice((stage.rng.uniform(0.2, 2.0), stage.lease_s * stage.rng.uniform(1.1, 2.0)))
    async with outage(stage):
        await asyncio.to_thread(stage.server.kill)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(stage.server.start)


@fault("redis-hang")
async def hang_redis(stage: ChaosStage) -> None:
    async with outage(stage):
        stage.server.pause()
        await asyncio.sleep(stage.lease_s * stage.rng.uniform(0.3, 2.5))
        stage.server.resume()


@fault("client-kill")
async def kill_clients(stage: ChaosStage) -> None:
    async with outage(stage):
        for _ in range(stage.rng.randint(5, 15)):
            await stage.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.sleep(stage.rng.uniform(0.05, 0.25))


@fault("client-pause")
async def pause_clients(stage: ChaosStage) -> None:
    pause_s = stage.lease_s * stage.rng.uniform(0.3, 2.0)
    async with outage(stage):
        await stage.ask("CLIENT", "PAUSE", int(pause_s * 1000), stage.rng.choice(("ALL", "WRITE")))
        await asyncio.sleep(pause_s)


@fault("script-flush")
async def flush_scripts(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(10, 20)):
        async with stage.server_lock:
            await stage.ask("SCRIPT", "FLUSH")
        await asyncio.sleep(stage.rng.uniform(0.0, 0.2))


@fault("group-destroy")
async def destroy_group(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(1, 3)):
        async with stage.server_lock:
            began = monotonic()
            await stage.ask("XGROUP", "DESTROY", f"{stage.prefix}:stream", "default")
            stage.note("group deleted", began)
        await asyncio.sleep(stage.rng.uniform(0.3, 1.0))


@fault("oom")
async def fill_memory(stage: ChaosStage) -> None:
    async with outage(stage):
        await stage.ask("CONFIG", "SET", "maxmemory", 1)
        await asyncio.sleep(stage.rng.uniform(1.5, 2.5))
        await stage.ask("CONFIG", "SET", "maxmemory", 0)


@fault("readonly")
async def demote(stage: ChaosStage) -> None:
    async with outage(stage):
        await stage.ask("REPLICAOF", "127.0.0.1", 1)  # where no server listens
        await asyncio.sleep(stage.lease_s * stage.rng.uniform(0.3, 2.0))
        await stage.ask("REPLICAOF", "NO", "ONE")


@fault("demoted-master", lines=True, aof=True)
async def fail_over(stage: ChaosStage) -> None:
    """The replica becomes the master behind the same addresses. The old one lives on and keeps its connections."""
    async with stage.server_lock:
        old = stage.server
        new = stage.cleanup.enter_context(RedisServer(*old.config, tcp=True))
        await asyncio.to_thread(new.execute, "REPLICAOF", "127.0.0.1", old.port)
        await eventually(
            lambda: old.execute("INFO", "replication").get("slave0", {}).get("state") == "online", timeout=20
        )
        began = monotonic()
        await stage.ask(
            "FAILOVER", "TO", "127.0.0.1", new.port, "TIMEOUT", 10_000
        )  # waits until nothing is missing there
        await eventually(lambda: new.execute("ROLE")[0] == b"master", timeout=20, every=0.02)
        for line in stage.lines:
            line.target = new.tcp_url
        stage.server = new
        stage.note("server away", began)


# Lines --------------------------------------------------------------------------------------------------------------


@fault("cut", lines=True)
async def cut_lines(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(3, 8)):
        stage.rng.choice(stage.lines).cut()
        await asyncio.sleep(stage.rng.uniform(0.02, 0.4))


@fault("refused", lines=True)
async def refuse_connections(stage: ChaosStage) -> None:
    """One worker finds no way to Redis for a while, sometimes for longer than its lease."""
    member = await stage.anyone()
    line = stage.lines[member.seat]
    began = monotonic()
    line.refuse()
    line.cut()
    await asyncio.sleep(stage.lease_s * stage.rng.choice((0.3, 0.5, 2.0)))
    line.admit()
    stage.note("cut off", began, member.name)


@fault("frozen", lines=True)
async def freeze_line(stage: ChaosStage) -> None:
    """One worker's bytes are held, sometimes for longer than its lease, and then they all arrive."""
    member = await stage.anyone()
    line = stage.lines[member.seat]
    began = monotonic()
    line.freeze(stage.rng.choice((None, None, "requests", "replies")))
    await asyncio.sleep(stage.lease_s * stage.rng.choice((0.3, 0.5, 2.0, 3.0)))
    line.thaw()
    stage.note("cut off", began, member.name)


@fault("half-open", lines=True)
async def abandon_connections(stage: ChaosStage) -> None:
    """Connections die silently; new ones work at once. No excuse for losing a lease."""
    for seat in stage.rng.sample(range(len(stage.lines)), stage.rng.randint(1, len(stage.lines))):
        began = monotonic()
        stage.lines[seat].abandon()
        for member in stage.crew.living():
            if member.seat == seat:
                stage.note("half open", began, member.name)
        await asyncio.sleep(stage.rng.uniform(0.0, 0.5))


@fault("slow-line", lines=True)
async def slow_lines(stage: ChaosStage) -> None:
    """Every trip takes 300 ms and every line carries 1 MB/s. No excuse but for a late ack when a kill comes."""
    began = monotonic()
    for line in stage.lines:
        line.delay(150)
        line.limit(SLOW_BYTES_PER_S)
    await asyncio.sleep(stage.rng.uniform(3.0, 6.0))
    for line in stage.lines:
        line.delay(0)
        line.limit(0)
    stage.note("slow line", began)


# Handlers -----------------------------------------------------------------------------------------------------------


@fault("hostile-handlers", results=True)
async def run_hostile_handlers(stage: ChaosStage) -> None:
    for _ in range(stage.rng.randint(3, 6)):
        await stage.producer.add_hostile(stage.rng.randint(5, 15))
        await asyncio.sleep(stage.rng.uniform(0.0, 0.4))


@fault("hanging-handlers")
async def run_hanging_handlers(stage: ChaosStage) -> None:
    """Handlers that never return, until their workers are killed."""
    await stage.producer.add_hanging(stage.rng.randint(2, 6))
    await asyncio.sleep(stage.lease_s * stage.rng.uniform(0.5, 1.5))
    for member in stage.crew.up():
        stage.crew.kill(member)


@fault("large-jobs", lines=True)
async def add_large_jobs(stage: ChaosStage) -> None:
    """Megabytes on lines that carry a few of them a second. No excuse for anything."""
    for line in stage.lines:
        line.limit(5 * SLOW_BYTES_PER_S)
    await stage.producer.add_batch_by_transaction(stage.rng.randint(20, 40))
    await asyncio.sleep(stage.rng.uniform(3.0, 6.0))
    for line in stage.lines:
        line.limit(0)


# Contents -----------------------------------------------------------------------------------------------------------

ENVELOPE = b"\x95\xd9\x1a" + b"0" * 26 + b"\xc4\x01\xc1" + b"\x00\x00\xc0"  # its data is no MessagePack


@fault("poison")
async def poison(stage: ChaosStage) -> None:
    stream, delayed = f"{stage.prefix}:stream", f"{stage.prefix}:delayed"
    entries: list[tuple[str | bytes, ...]] = [
        ("x", "y"),
        ("d", ""),
        ("d", os.urandom(20)),
        ("d", b"\x95\xa1x", "n", b"\xff\xfe"),
        ("d", b"\x00" * (1024 * 1024 + 1)),
        ("d", ENVELOPE),
        ("n", "a name", "e", "no envelope"),
    ]
    members = [b"", b"x", b"\xff\xff\xff\x7fabc", b"\x02\x00\x00\x00ab", b"\x01\x00\x00\x00n\xc1\xc1", bytes(4)]
    stage.rng.shuffle(entries)
    for entry in entries:
        async with stage.server_lock:
            await stage.ask("XADD", stream, "*", *entry)
        stage.poisoned += 1
        await asyncio.sleep(stage.rng.uniform(0.0, 0.1))
    for member in members:
        async with stage.server_lock:
            await stage.ask("ZADD", delayed, 1, member)
        stage.poisoned += 1


# Together -----------------------------------------------------------------------------------------------------------


@fault("mixed", lines=True, aof=True)
async def several(stage: ChaosStage) -> None:
    """Two to four of the others, begun within two seconds of each other."""
    names = [name for name in FAULTS if name not in ("mixed", "group-destroy")]
    chosen = stage.rng.sample(names, stage.rng.randint(2, 4))

    async def one(name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await FAULTS[name].inflict(stage)

    await asyncio.gather(*(one(name, stage.rng.uniform(0.0, 2.0)) for name in chosen))
