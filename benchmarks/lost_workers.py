"""How soon the jobs of workers that close, and of workers that are killed, run elsewhere among many idle workers.

    python -m benchmarks.lost_workers --workers 1000

Some workers have a process each and a job that does not end. Then the many start, in a few processes. Half of the first
are closed without patience, one by one, and the others are killed. Each job is timed from the signal to the first line
of its handler in another process: all read the same monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from asyncio import FIRST_COMPLETED
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.server import ROOT, find_server, running

QUEUE = "crowd"
SETTLE_S = 8.0  # after the last start: longer than a blocked read, and than a lease
BETWEEN_S = 0.7
PATIENCE_S = 12.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--lost", type=int, default=8, help="workers that are lost, half of them by a kill")
    parser.add_argument("--server", help="the binary")
    parser.add_argument("--member", nargs=3, metavar=("URL", "COUNT", "HOLDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        url, count, holds = options.member
        asyncio.run(be_member(url, int(count), holds=bool(int(holds))))
        return
    measure(options)


def measure(options: argparse.Namespace) -> None:
    with running(find_server(options.server)) as server:
        holders = [_start_member(server.url, 1, holds=True) for _ in range(options.lost)]
        crowd: list[subprocess.Popen[str]] = []
        lost_at: dict[int, tuple[str, float]] = {}
        try:
            held = asyncio.run(_hand_out_jobs(server.url, holders))
            share = options.workers // options.processes
            crowd = [_start_member(server.url, share, holds=False) for _ in range(options.processes)]
            for member in crowd:
                _next_line(member)  # its workers have started
            time.sleep(SETTLE_S)
            for number, holder in enumerate(holders):
                kind = "closed" if number % 2 else "killed"
                holder.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
                lost_at[held[number]] = (kind, time.monotonic())
                time.sleep(BETWEEN_S)
            time.sleep(PATIENCE_S)
        finally:
            started: dict[int, float] = {}
            for member in crowd:
                out, _ = member.communicate("\n")
                started.update(json.loads(out.splitlines()[-1]) if out.strip() else [])
            for holder in holders:
                holder.kill()
                holder.wait()
        for kind in ("closed", "killed"):
            waits = [started.get(job, float("inf")) - at for job, (how, at) in lost_at.items() if how == kind]
            shown = ", ".join(f"{wait:.3f}" for wait in sorted(waits))
            print(f"{options.workers} workers, {len(waits)} others {kind}: s until their jobs run elsewhere: {shown}")


async def _hand_out_jobs(url: str, holders: list[subprocess.Popen[str]]) -> list[int]:
    """Adds jobs until each holder runs one, the next once the last one runs. Returns which of them each runs."""
    from pychasqui import Queue

    for holder in holders:
        _next_line(holder)
    async with Queue(QUEUE, redis_url=url) as queue:
        lines = [asyncio.ensure_future(asyncio.to_thread(_next_line, holder)) for holder in holders]
        for number in count():  # a holder may have read a second one
            await queue.add("hold", number)
            await asyncio.wait([line for line in lines if not line.done()], timeout=2, return_when=FIRST_COMPLETED)
            if all(line.done() for line in lines):
                break
    return [int(line.result()) for line in lines]


def _next_line(member: subprocess.Popen[str]) -> str:
    assert member.stdout is not None
    return member.stdout.readline()


def _start_member(url: str, count: int, *, holds: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.lost_workers", "--member", url, str(count), str(int(holds))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(ROOT))


async def be_member(url: str, workers_here: int, *, holds: bool) -> None:
    """Runs workers until a line comes in; then prints when each job has started."""
    from pychasqui import Job, Worker

    logging.disable()  # many workers of one process start slowly, and each says that its loop was blocked
    started: list[tuple[int, float]] = []

    async def handle(job: Job) -> None:
        started.append((job.data, time.monotonic()))
        if holds:
            print(job.data, flush=True)
            await asyncio.sleep(3600)

    options: dict[str, Any] = {"concurrency": 1, "shutdown_deadline_s": 0.001} if holds else {}
    workers = [Worker(QUEUE, handle, redis_url=url, **options) for _ in range(workers_here)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    for worker in workers:
        await worker.wait_until_started()
    print("started", flush=True)
    loop = asyncio.get_running_loop()
    for worker in workers:
        loop.add_signal_handler(signal.SIGTERM, worker.shutdown)
    if not holds:
        await loop.run_in_executor(None, sys.stdin.readline)
        for worker in workers:
            worker.shutdown()
    await asyncio.wait(tasks, timeout=60 if not holds else None)
    print(json.dumps(started), flush=True)


if __name__ == "__main__":
    main()
