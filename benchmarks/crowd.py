"""What many idle workers of one queue cost the server, and how soon a lone job starts among them.

    python -m benchmarks.crowd --workers 10 1000      # fails if a thousand cost more than they may

Each crowd has a server of its own. Its workers run in a few processes. They first idle, while the commands and the CPU
of the server are counted. Then jobs are added one at a time; each is timed from the call of add to the first line of
its handler, which may be in any of the processes: all read the same monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.server import ROOT, find_server, running
from benchmarks.wire import Wire

QUEUE = "crowd"
SETTLE_S = 8.0  # after the last start: longer than a blocked read, and than a lease
GAP_S = (0.03, 0.07)  # between two lone adds
MANY = 1000  # workers, from which on the bounds hold
MAX_REQUESTS, MAX_CPU, MAX_LATE_MS = 1.0, 0.1, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds for which idle workers are watched")
    parser.add_argument("--adds", type=int, default=300, help="lone adds")
    parser.add_argument("--server", help="the binary")
    parser.add_argument("--member", nargs=2, metavar=("URL", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        asyncio.run(be_member(options.member[0], int(options.member[1]), options.concurrency))
        return
    found = [measure(workers, options) for workers in sorted(options.workers)]
    missed = find_missed_bounds(found)
    print("\n".join(missed) or "all within their bounds")
    sys.exit(1 if missed else 0)


class Crowd(NamedTuple):
    """What was measured of a crowd."""

    workers: int
    requests: float  # a second of each worker
    cpu: float  # of the server while all are idle, in cores
    started: float  # of the lone adds, the share that has run
    p99_ms: float  # until a lone add starts


def find_missed_bounds(crowds: list[Crowd]) -> list[str]:
    """Says what a crowd of many costs more than it may. The first crowd is the small one to compare it with."""
    few = crowds[0]
    missed = [
        f"{each.workers} workers: only {each.started:.0%} of the lone adds ran" for each in crowds if each.started < 1
    ]
    for many in (each for each in crowds if each.workers >= MANY):
        late_ms = many.p99_ms - few.p99_ms
        bounds = (
            (many.requests > MAX_REQUESTS, f"{many.requests:.2f} requests a second each, at most {MAX_REQUESTS:.0f}"),
            (many.cpu > MAX_CPU, f"{many.cpu:.1%} of a core of the server, at most {MAX_CPU:.0%}"),
            (late_ms > MAX_LATE_MS, f"p99 {late_ms:.1f} ms above that of {few.workers}, at most {MAX_LATE_MS:.0f}"),
        )
        missed += [f"{many.workers} workers: {text}" for is_missed, text in bounds if is_missed]
    return missed


def measure(workers: int, options: argparse.Namespace) -> Crowd:
    with running(find_server(options.server)) as server:
        processes = min(options.processes, workers)
        shares = [workers // processes + (number < workers % processes) for number in range(processes)]
        members = [_start_member(server.url, share, options.concurrency) for share in shares]
        try:
            for member in members:
                assert member.stdout is not None
                member.stdout.readline()  # its workers have started
            time.sleep(SETTLE_S)
            with Wire(server.url) as wire:
                used = _cpu_of(members)
                requests, cpu = _show_idle(wire, workers, options.idle)
                used = (_cpu_of(members) - used) / options.idle
                print(f"  the processes of the workers: {100 * used:.0f} % of a core")
            asyncio.run(_add_alone(server.url, options.adds))
            time.sleep(1.0)
        finally:
            delays: list[float] = []
            for member in members:
                out, _ = member.communicate("\n")
                delays += json.loads(out.splitlines()[-1]) if out.strip() else []
        delays.sort()
        shown = {name: round(1000 * delays[int(share * (len(delays) - 1))], 2) for name, share in QUANTILES.items()}
        print(f"  {len(delays)} lone adds of {options.adds}, ms until they start: {shown}", flush=True)
        return Crowd(workers, requests, cpu, len(delays) / options.adds, shown["p99"])


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def _show_idle(wire: Wire, workers: int, seconds: float) -> tuple[float, float]:
    """Returns the requests a second of each worker, and the share of a core that the server has used."""
    calls_before, cpu_before, stats_before = _calls(wire), _cpu_s(wire), _reads(wire)
    blocked = []
    for _ in range(10):
        time.sleep(seconds / 10)
        blocked.append(int(wire.info("clients")["blocked_clients"]))
    calls = _calls(wire) - calls_before
    cpu, reads = (_cpu_s(wire) - cpu_before) / seconds, (_reads(wire) - stats_before) / seconds
    print(f"{workers} workers, idle: {reads / workers:.2f} requests a second each, {100 * cpu:.1f} % of a core")
    print(f"  blocked reads: {blocked}")
    rates = {name: round(number / seconds, 1) for name, number in calls.most_common(12)}
    print(f"  commands a second, those of scripts included: {rates}")
    return reads / workers, cpu


def _cpu_of(processes: list[subprocess.Popen[str]]) -> float:
    """The CPU that these processes have used, in seconds, by /proc."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _calls(wire: Wire) -> Counter[str]:
    stats = wire.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): int(value.split(",")[0][6:]) for name, value in stats.items()})


def _cpu_s(wire: Wire) -> float:
    cpu = wire.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def _reads(wire: Wire) -> int:
    """How many times clients have written: an idle worker sends one command in each write."""
    return int(wire.info("stats")["total_reads_processed"])


async def _add_alone(url: str, count: int) -> None:
    from pychasqui import Queue

    async with Queue(QUEUE, redis_url=url) as queue:
        await queue.is_paused()
        for _ in range(count):
            await asyncio.sleep(random.uniform(*GAP_S))
            await queue.add("lone", time.monotonic())


def _start_member(url: str, count: int, concurrency: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.crowd", "--member", url, str(count), "--concurrency", str(concurrency)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(ROOT))


async def be_member(url: str, count: int, concurrency: int) -> None:
    """Runs workers until a line comes in; then prints how long each job took to start."""
    from pychasqui import Job, Worker

    logging.disable()  # 250 workers of one process start slowly, and each says that its loop was blocked
    delays: list[float] = []

    async def handle(job: Job) -> None:
        delays.append(time.monotonic() - job.data)

    workers = [Worker(QUEUE, handle, redis_url=url, concurrency=concurrency) for _ in range(count)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    for worker in workers:
        await worker.wait_until_started()
    print("started", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for worker in workers:
        worker.shutdown()
    await asyncio.wait(tasks, timeout=60)
    print(json.dumps(delays), flush=True)


if __name__ == "__main__":
    main()
