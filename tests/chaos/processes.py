"""Kills and replaces worker processes under load, and counts the jobs. Run by hand; the suite has small versions.

    python -m tests.chaos.processes kill --rounds 50    kills one of 4 processes at random, each time that all work
    python -m tests.chaos.processes storm --rounds 50   kills without waiting for the others
    python -m tests.chaos.processes roll                SIGHUP under 2,000 jobs a second

It starts a server of its own. The times mean something on a quiet machine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from pychasqui import Queue
from tests.cli.supervised import Run, SupervisedProgram
from tests.support.server import RedisServer

PROCESSES = 4
WINDOW_S = 0.5


class Load:
    """Adds jobs at a steady rate; every so often one that takes long in its first run."""

    def __init__(self, queue: Queue, rate: int, long_one_in: int) -> None:
        self.added = 0
        self._queue = queue
        self._rate = rate
        self._long_one_in = long_one_in

    async def run(self) -> None:
        begun = time.monotonic()
        while True:
            due = int((time.monotonic() - begun) * self._rate)
            numbers = range(self.added, due)
            if numbers:
                await self._queue.add_bulk([{"name": self._name(number), "data": number} for number in numbers])
                self.added = due
            await asyncio.sleep(0.02)

    def _name(self, number: int) -> str:
        return "long" if self._long_one_in and number % self._long_one_in == 0 else "quick"


async def work(program: SupervisedProgram, queue: Queue, what: str, rounds: int) -> None:
    await program.start(processes=PROCESSES)
    load = Load(queue, *((2000, 0) if what == "roll" else (200, 20)))
    adding = asyncio.create_task(load.run())
    await asyncio.sleep(2)
    kills: dict[int, float] = {}
    began_at = time.time()
    if what == "roll":
        program.supervisor.send_signal(signal.SIGHUP)
        await program.wait_for("all processes are replaced")
    else:
        for number in range(rounds):
            if what == "kill":
                await program.wait_for(" works\n", PROCESSES + number)
            await asyncio.sleep(random.uniform(0.1, 0.5))
            while not (processes := program.processes()):
                await asyncio.sleep(0.05)
            kills[pid := random.choice(processes).pid] = time.time()
            os.kill(pid, signal.SIGKILL)
    ended_at = time.time()
    await asyncio.sleep(2)
    adding.cancel()
    deadline = time.monotonic() + 90
    while len({run.data for run in program.runs("end")}) < load.added and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    code = await program.stop()
    report_counts(program, load.added, code)
    if what == "roll":
        report_rate(program, began_at, ended_at)
    else:
        report_hand_overs(program, kills)


def report_counts(program: SupervisedProgram, added: int, code: int) -> None:
    done, begun = {run.data for run in program.runs("end")}, Counter(run.data for run in program.runs("begin"))
    twice = sum(count > 1 for count in begun.values())
    print(f"{added} added, {added - len(done)} lost, {twice} begun more than once, exit code {code}")


def report_rate(program: SupervisedProgram, began_at: float, ended_at: float) -> None:
    windows = Counter(int((run.at - began_at) // WINDOW_S) for run in program.runs("end"))
    rates = [windows[number] / WINDOW_S for number in range(-2, int((ended_at - began_at) // WINDOW_S) + 2)]
    print(f"replaced in {ended_at - began_at:.2f} s; jobs a second: {[round(rate) for rate in rates]}")


def report_hand_overs(program: SupervisedProgram, kills: dict[int, float]) -> None:
    """From the kill to the next run of each job that the process had begun and not ended."""
    ended = {(run.data, run.pid) for run in program.runs("end")}
    took, wrong = [], 0
    for run, following in pairs(program):
        if run.pid in kills and (run.data, run.pid) not in ended:
            took.append(following.at - max(kills[run.pid], run.at))
            wrong += following.attempt != run.attempt + 1
    took.sort()
    shown = ", ".join(f"{title} {took[min(int(part * len(took)), len(took) - 1)]:.3f}" for title, part in PARTS)
    print(f"{len(kills)} kills, {len(took)} runs cut off, {wrong} with a wrong attempt; s to the next run: {shown}")


PARTS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def pairs(program: SupervisedProgram) -> Iterator[tuple[Run, Run]]:
    """Each run with the next one of the same job."""
    by_job: dict[str, list[Run]] = {}
    for run in program.runs("begin"):
        by_job.setdefault(run.job_id, []).append(run)
    for runs in by_job.values():
        ordered = sorted(runs, key=lambda run: run.at)
        yield from pairwise(ordered)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("kill", "storm", "roll"))
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    with RedisServer("--save", "") as server, tempfile.TemporaryDirectory() as folder:
        program = SupervisedProgram(Path(folder), server.url, "chaos", lease_ms=6000, concurrency=50)
        try:
            async with Queue("chaos", redis_url=server.url) as queue:
                await work(program, queue, given.what, given.rounds)
        finally:
            program.close()


if __name__ == "__main__":
    asyncio.run(main())
