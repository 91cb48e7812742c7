"""What a job costs the server, and whether that predicts the server's load.

    python -m benchmarks.capacity costs       # CPU of the server for each call, by batch size and by pending entries
    python -m benchmarks.capacity check       # predicts what jobs cost 1, 2 and 3 servers, and fails if one is 20 % off

The model: each batch is one call, each call costs the CPU time that was measured for its size, and the calls of a
server follow each other. A job is added, read and acked once. So a server is busy for the sum of its calls, and the
most jobs a second are those at which that sum is a second. Calls go through the library's own broker, one after
another, so that each has its own trip: many clients at once cost the server less a call.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from benchmarks.server import ROOT, Server, find_server, running
from benchmarks.wire import Wire
from pychasqui._core.limits import ACK_BATCH, ACK_BATCH_WITH_EVENTS, READ_BATCH, READ_BATCH_WITH_EVENTS

SIZES = (1, 10, 50, 80, 160, 200)
PENDING = (0, 10_000, 100_000)
DATA = {"user": 1234, "email": "somebody@example.com", "subject": "Welcome", "retry": False}
ME, OTHER, GROUP = "me", "other", "default"
JOBS, ADDS = 50_000, 50
MAX_ERROR = 0.2  # of a prediction
PARTS = 9  # the median of these counts: other processes use the same caches


class Costs(NamedTuple):
    """CPU of the server in us a call, by the number of jobs in the call."""

    add: dict[int, float]
    read: dict[int, float]
    ack: dict[int, float]
    ack_with_events: dict[int, float]
    ack_with_results: dict[int, float]
    ack_with_both: dict[int, float]


def per_job(costs: dict[int, float], size: int) -> float:
    """Between two sizes that were measured, a call costs what lies between theirs."""
    if size in costs:
        return costs[size] / size
    lower, upper = max(one for one in costs if one < size), min(one for one in costs if one > size)
    share = (size - lower) / (upper - lower)
    return (costs[lower] * (1 - share) + costs[upper] * share) / size


def cost_of_job(costs: Costs, adds: int, *, events: bool, results: bool) -> float:
    """In us of the server's CPU, if jobs wait: a worker beside other clients then reads and acks as many at once."""
    reads, acks = (READ_BATCH_WITH_EVENTS, ACK_BATCH_WITH_EVENTS) if events else (READ_BATCH, ACK_BATCH)
    kinds = {
        (False, False): costs.ack,
        (True, False): costs.ack_with_events,
        (False, True): costs.ack_with_results,
        (True, True): costs.ack_with_both,
    }
    return per_job(costs.add, adds) + per_job(costs.read, reads) + per_job(kinds[events, results], acks)


# Measuring a call -----------------------------------------------------------------------------------------------------


def cpu_s(wire: Wire) -> float:
    cpu = wire.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


class Meter:
    """Sends calls of one size and returns what each has cost the server."""

    def __init__(self, server: Server) -> None:
        from pychasqui import Queue
        from pychasqui._redis.connector import Connector
        from pychasqui._redis.keys import Keys

        self.wire = Wire(server.url)
        self.queue = Queue("capacity", redis_url=server.url)
        self.keys = Keys("capacity")
        self.broker = Connector(server.url, tls=False, client_name="capacity").make_broker(self.keys, timeout_s=60)

    async def fill(self, count: int) -> None:
        for start in range(0, count, 1000):
            await self.queue.add_bulk([{"name": "send", "data": DATA}] * min(1000, count - start))

    async def read(self, consumer: str, size: int) -> list[bytes]:
        from pychasqui._redis.reading import ReadRequest

        request = ReadRequest(size, None, 2**30, lambda _: None, 0)
        return [entry[0] for entry in await (await self.broker.send_read(GROUP, consumer, request))]

    async def begin(self, pending: int) -> None:
        self.wire.call("FLUSHALL")
        self.wire.call("XGROUP", "CREATE", self.keys.stream, GROUP, "0", "MKSTREAM")
        await self.fill(pending)
        for _ in range(0, pending, 1000):
            await self.read(OTHER, 1000)

    async def cost(self, call: Callable[[], Awaitable[object]], calls: int) -> float:
        await call()  # the script travels, and connections are made
        parts: list[float] = []
        for _ in range(PARTS):
            before = cpu_s(self.wire)
            for _ in range(calls // PARTS):
                await call()
            parts.append((cpu_s(self.wire) - before) * 1e6 / (calls // PARTS))
        return statistics.median(parts)

    async def cost_of_add(self, size: int) -> float:
        jobs = [{"name": "send", "data": DATA}] * size
        add = (lambda: self.queue.add("send", DATA)) if size == 1 else (lambda: self.queue.add_bulk(jobs))
        cost = await self.cost(add, calls_of(size))
        self.wire.call("XTRIM", self.keys.stream, "MAXLEN", 0)
        return cost

    async def costs_of_read_and_ack(self, size: int, kind: str) -> tuple[float, float]:
        calls = calls_of(size)
        await self.fill(size * (calls + 1))
        batches: list[list[bytes]] = []

        async def read() -> None:
            batches.append(await self.read(ME, size))

        read_cost = await self.cost(read, calls)
        turns = itertools.count()
        return read_cost, await self.cost(lambda: self.ack(kind, batches[next(turns)]), calls)

    async def ack(self, kind: str, ids: list[bytes]) -> None:
        from pychasqui._redis.event_batch import EventBatch
        from pychasqui._wire.event import CompletedEvent

        names = [f"01HZZZZZZZZZZZZZ{entry_id.decode()[-12:]:0>12}" for entry_id in ids]
        has_results, now_ms = kind in ("results", "both"), int(time.time() * 1000)

        def events() -> EventBatch:
            completed: list[CompletedEvent] = [(name, "send", 1, now_ms, now_ms + 1, 1000) for name in names]
            return EventBatch(100_000, lambda *_: None, [], completed, has_results)

        wanted = events if kind in ("events", "both") else None
        if has_results:
            results = [(name, b"\xa4sent") for name in names]
            await self.broker.ack_and_store_results(GROUP, 3_600_000, ids, results, [], wanted)
        else:
            await self.broker.ack(GROUP, ids, wanted)


def calls_of(size: int) -> int:
    return max(PARTS * 20, min(PARTS * 100, 10_000 // size))


async def measure(
    server: Server, pending: int = 0, kinds: tuple[str, ...] = ("plain", "events", "results", "both")
) -> Costs:
    meter = Meter(server)
    adds: dict[int, float] = {}
    reads: dict[int, float] = {}
    acks: dict[str, dict[int, float]] = {kind: {} for kind in ("plain", "events", "results", "both")}
    await meter.begin(pending)
    for size in SIZES:
        for kind in kinds:
            reads[size], acks[kind][size] = await meter.costs_of_read_and_ack(size, kind)
        if not pending:
            adds[size] = await meter.cost_of_add(size)
    await meter.queue.close()
    await meter.broker.close()
    return Costs(adds, reads, *acks.values())


def with_aof(server: Server) -> None:
    """Switches the append-only file on, written to disk every second."""
    with Wire(server.url) as wire:
        wire.call("CONFIG", "SET", "appendfsync", "everysec")
        wire.call("CONFIG", "SET", "appendonly", "yes")
        while wire.info("persistence")["aof_rewrite_in_progress"] == "1":
            time.sleep(0.05)


@contextmanager
def cores_awake() -> Iterator[None]:
    """Keeps cores from sleeping, as load does, in time that nobody else wants: to wake one costs a call 25 us more."""
    program = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def show_costs(options: argparse.Namespace) -> None:
    with cores_awake():
        found = _measure_all(options)
    print("jobs a second at which one core of the server is full; adds of 50 and of 1")
    for aof, costs in found.items():
        for events, results in itertools.product((False, True), repeat=2):
            each = [cost_of_job(costs, adds, events=events, results=results) for adds in (50, 1)]
            print(f"  aof {aof}, events {events}, results {results}:", *(f"{1e6 / one:,.0f}" for one in each))
    with open(options.out, "w") as file:
        json.dump({aof: costs._asdict() for aof, costs in found.items()}, file)


def _measure_all(options: argparse.Namespace) -> dict[str, Costs]:
    found: dict[str, Costs] = {}
    with running(find_server(options.server)) as server:
        print(f"redis {server.version}, us of the server's CPU a job")
        for pending in PENDING:
            costs = asyncio.run(
                measure(server, pending, ("plain",) if pending else ("plain", "events", "results", "both"))
            )
            found.setdefault("off", costs)
            _show(f"{pending} entries pending", costs)
    with running(find_server(options.server)) as server:
        with_aof(server)
        found["everysec"] = asyncio.run(measure(server))
        _show("append-only file", found["everysec"])
    return found


def _show(title: str, costs: Costs) -> None:
    print(title)
    for name, by_size in costs._asdict().items():
        if by_size:
            print(f"  {name:18}", *(f"{size}: {cost / size:.2f}" for size, cost in by_size.items()), flush=True)


# Checking the model ---------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """What was predicted for one load, and the median of what was measured."""

    load: str
    predicted: float  # us of the server's CPU a job
    measured: float
    spread: float  # between the runs, as a share of the median
    busy: float  # share of the time, of the busiest server

    @property
    def error(self) -> float:
        return self.measured / self.predicted - 1

    def __str__(self) -> str:
        return (
            f"{self.load}: predicted {self.predicted:.2f} us a job, measured {self.measured:.2f} ({self.error:+.0%}; "
            f"the runs differ by {self.spread:.0%}), busy for {self.busy:.0%} of the time"
        )


def check(options: argparse.Namespace) -> int:
    """Predicts the load of each server, then runs it and compares. 1 if a prediction is too far off."""
    with open(options.out) as file:
        stored = json.load(file)
    costs = {
        aof: Costs(*({int(size): cost for size, cost in by_size.items()} for by_size in one.values()))
        for aof, one in stored.items()
    }
    found = []
    for shards, (events, results, aof) in itertools.product(
        (1, 2, 3), ((False, False, "off"), (True, False, "off"), (False, True, "off"), (True, True, "everysec"))
    ):
        expected = cost_of_job(costs[aof], ADDS, events=events, results=results)
        order = json.dumps({"events": events, "results": results})
        with cores_awake():
            runs = [run for _ in range(options.runs) for run in _run_load(options, shards, aof, order)]
        found.append(compare(f"{shards} servers, events {events}, results {results}, aof {aof}", expected, runs))
        print(found[-1], flush=True)
    errors = [abs(each.error) for each in found]
    good = sum(error <= MAX_ERROR for error in errors)
    print(f"{good} of {len(found)} are within {MAX_ERROR:.0%}, the worst is {max(errors):.0%} off")
    return int(good < len(found))


def compare(load: str, predicted: float, runs: list[tuple[float, float]]) -> Comparison:
    costs = [cost for cost, _ in runs]
    median = statistics.median(costs)
    return Comparison(load, predicted, median, (max(costs) - min(costs)) / median, max(busy for _, busy in runs))


def _run_load(options: argparse.Namespace, shards: int, aof: str, order: str) -> list[tuple[float, float]]:
    """Returns what a job has cost each server in us, and how busy the server was while jobs ran."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running(find_server(options.server))) for _ in range(shards)]
        if aof != "off":
            for server in servers:
                with_aof(server)
        command = [sys.executable, "-m", "benchmarks.capacity", "load", "--order", order, "--url"]
        members = [
            subprocess.Popen([*command, server.url], stdout=subprocess.PIPE, text=True, cwd=ROOT) for server in servers
        ]
        return [tuple(json.loads(member.communicate()[0])) for member in members]


async def be_load(url: str, order: dict[str, bool]) -> None:
    """Adds jobs, then runs them, both as fast as it can; prints what a job has cost the server, and how busy it was."""
    from pychasqui import Job, Queue, Worker

    done, all_done = 0, asyncio.Event()

    async def handle(job: Job) -> str:
        nonlocal done
        done += 1
        if done == JOBS:
            all_done.set()
        return "sent"

    with Wire(url) as wire:
        async with Queue("load", redis_url=url) as queue:
            await queue.is_paused()
            before = cpu_s(wire)
            for _ in range(JOBS // ADDS):
                await queue.add_bulk([{"name": "send", "data": DATA}] * ADDS)
            adding_s = cpu_s(wire) - before
        before, begun = cpu_s(wire), time.monotonic()
        async with Worker(
            "load", handle, redis_url=url, events_enabled=order["events"], store_results=order["results"]
        ):
            await all_done.wait()
        running_s, ran_s = cpu_s(wire) - before, time.monotonic() - begun
    print(json.dumps([(adding_s + running_s) * 1e6 / JOBS, running_s / ran_s]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("costs", "check", "load"))
    parser.add_argument("--server", help="the binary")
    parser.add_argument("--out", default="/tmp/capacity.json", help="where the costs are kept between the two")
    parser.add_argument("--runs", type=int, default=3, help="of each load, of which the median counts")
    parser.add_argument("--order", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "costs":
        show_costs(options)
    elif options.what == "check":
        sys.exit(check(options))
    else:
        asyncio.run(be_load(options.url, json.loads(options.order)))


if __name__ == "__main__":
    main()
