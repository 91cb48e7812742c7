"""Runs the demo: adds the jobs, kills a worker process, waits for the end, and counts the runs of each job."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import reduce
from operator import or_
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

import click

from ... import Queue, __version__, embedded
from ...errors import InvalidArgument, RedisTrouble
from ..exits import CommandFailure, ExitCode
from ..options import TIMEOUT_S
from ..output import Output
from ..standard_streams import print_to_stderr
from ..tables import Column, format_for_terminal
from ..terminal import make_live_console_if_possible
from ..values import Kind
from .process import KINDS, Runs, WorkerProcess, choose_kind, run_worker_process

if TYPE_CHECKING:
    from rich.progress import Progress

BULK_JOBS = 1000
LOOK_EVERY_S = 0.02
LINE_EVERY_S = 1.0
STUCK_S = 20.0  # longer than an add takes to fail, whose error says more
SERVER_ENDS_S = 5.0  # a private server that takes longer is left behind
EMPTY_S = 2.0  # counts are read one after the other, and may miss a job that moves meanwhile
OUTCOMES = {"once": "once", "again": "again after the kill", "repeated": "twice", "missing": "missing"}
COLUMNS = [Column("jobs", "jobs"), *(Column(*each, Kind.COUNT) for each in (("count", "count"), *OUTCOMES.items()))]
TABLE_WIDTH = 100


def run_demo(jobs: int, redis_url: str | None) -> None:
    """Without a URL on a private server, which is gone afterwards."""
    with ExitStack() as at_end:
        folder = Path(at_end.enter_context(TemporaryDirectory(prefix="chasqui-demo-", ignore_cleanup_errors=True)))
        url = at_end.enter_context(_private_server(folder / "server")) if redis_url is None else redis_url
        try:
            queue = Queue(f"demo-{uuid4().hex[:12]}", redis_url=url)
        except InvalidArgument as error:
            raise click.BadParameter(str(error), param_hint="'--redis-url'") from None
        print_to_stderr(f"pychasqui {__version__} on {'a private server' if redis_url is None else queue}")
        try:
            asyncio.run(_run_on_server(jobs, queue, url, folder))
        except asyncio.CancelledError:
            raise CommandFailure("terminated", ExitCode.TERMINATED) from None


@contextmanager
def _private_server(folder: Path) -> Iterator[str]:
    """Runs a server in the folder, and waits for its end, so that the folder can be removed."""
    from ...embedded.supervisor import ServerFiles, try_lock  # here, because Windows lacks what it imports

    os.environ[embedded.LINGER_NAMED_BY] = "0"
    url = f"{embedded.SCHEME}{quote(str(folder))}"
    server = embedded.start_or_join_server(url)
    try:
        yield url
    finally:
        server.leave()
        deadline = time.monotonic() + SERVER_ENDS_S
        while (lock := try_lock(ServerFiles(folder).supervisor_lock)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if lock is not None:
            os.close(lock)


async def _run_on_server(jobs: int, queue: Queue, url: str, folder: Path) -> None:
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Queue(queue.name, redis_url=url, timeout_s=TIMEOUT_S) as probe:
        await probe.is_paused()  # raises if the server cannot be reached
    async with queue:
        try:
            where = (url, queue.name, jobs, folder)
            async with run_worker_process(1, *where) as first, run_worker_process(2, *where) as second:
                run = DemoRun(jobs, queue, [first, second])
                summary = await run.run_and_time()
            # The workers have ended: no job can run any more.
            dead = Counter([letter.data async for letter in queue.dlq.search()])
            tally = tally_outcomes(jobs, run.killed.runs, run.other.runs, dead)
        finally:
            with suppress(RedisTrouble):
                await queue.obliterate()
    click.echo(format_table(tally) + summary)
    click.echo(describe_tally_or_raise(tally))


class DemoRun:
    """Adds the jobs, kills a worker process when half of them are done, and waits until all have ended.

    Shows bars on a terminal where rich is installed, and elsewhere a line a second.
    """

    def __init__(self, jobs: int, queue: Queue, workers: list[WorkerProcess]) -> None:
        self._jobs, self._queue = jobs, queue
        self._records = [worker.runs for worker in workers]
        self._alive = workers
        self._added = 0
        self._next_line_s = 0.0
        self._bars: Progress | None = None
        if (console := make_live_console_if_possible()) is not None:
            from rich.progress import BarColumn, Progress

            count = "[cyan]{task.completed:>10,.0f}"
            self._bars = Progress("{task.description:<6}", BarColumn(), count, console=console)
            for title in ("added", "ended"):
                self._bars.add_task(title, total=jobs)

    async def run_and_time(self) -> str:
        """Returns a line that says how long it took."""
        self._began = time.monotonic()
        self._adding = asyncio.create_task(self._add_jobs())
        try:
            with self._bars or nullcontext():
                ended, half_s = await self._show_progress_until_goal_or_stuck(self._jobs // 2)
                self.other, self.killed = sorted(
                    self._alive, key=lambda each: count_jobs_done_at_least_once([each.runs])
                )
                self._alive = [self.other]
                self.killed.process.kill()
                self._print_line(f"killed worker process {self.killed.number}; the other one takes over its jobs")
                _, total_s = await self._show_progress_until_goal_or_stuck(self._jobs)
        finally:
            self._adding.cancel()
        rate = f"{ended / half_s:,.0f} jobs a second"
        return f"{self._jobs:,} jobs took {total_s:.2f} s; up to the kill {ended:,} took {half_s:.2f} s: {rate}."

    async def _add_jobs(self) -> None:
        for first in range(0, self._jobs, BULK_JOBS):
            numbers = range(first, min(first + BULK_JOBS, self._jobs))
            named = [(number, choose_kind(number, self._jobs)) for number in numbers]
            await self._queue.add_bulk(
                [{"name": kind, "data": number, **KINDS[kind].options} for number, kind in named]
            )
            self._added = numbers.stop

    async def _show_progress_until_goal_or_stuck(self, goal: int) -> tuple[int, float]:
        """Shows the progress until `goal` jobs are done or dead and, if that is all, until Redis holds no other job.

        Returns how many have ended, and after how many seconds. Gives up if nothing changes for STUCK_S, or for EMPTY_S
        while Redis holds no job: the table then shows that jobs are missing.
        """
        before, changed_s = None, 0.0
        while True:
            for worker in self._alive:
                worker.raise_if_ended()
            if self._adding.done():
                self._adding.result()  # raises what add_bulk raised
            counts = await self._queue.counts()
            ended = count_jobs_done_at_least_once(self._records) + counts.dead
            seconds = time.monotonic() - self._began
            if (self._added, ended, counts) != before:
                before, changed_s = (self._added, ended, counts), seconds
            is_empty = self._added == self._jobs and not (counts.waiting or counts.active or counts.delayed)
            is_there = ended >= goal and (goal < self._jobs or is_empty)
            self._show_progress(ended, seconds, is_last=is_there)
            if is_there or seconds - changed_s > (EMPTY_S if is_empty else STUCK_S):
                return ended, seconds
            await asyncio.sleep(LOOK_EVERY_S)

    def _show_progress(self, ended: int, seconds: float, *, is_last: bool) -> None:
        if self._bars is not None:
            for task, count in zip(self._bars.task_ids, (self._added, ended), strict=True):
                self._bars.update(task, completed=count)
        elif seconds >= self._next_line_s or is_last:
            self._next_line_s = seconds + LINE_EVERY_S
            self._print_line(f"added {self._added:,} of {self._jobs:,}, ended {ended:,} after {seconds:.1f} s")

    def _print_line(self, line: str) -> None:
        if self._bars is not None:
            self._bars.console.print(line, style="bold", markup=False)
        else:
            print_to_stderr(line)


def count_jobs_done_at_least_once(records: Sequence[Runs]) -> int:
    """How many different jobs any of the processes has finished."""
    size = len(records[0].done)
    merged = reduce(or_, (int.from_bytes(runs.done, "little") for runs in records))
    return size - merged.to_bytes(size, "little").count(0)


def classify_runs_of_job(planned_runs: int, ends: int, killed_runs: int, other_runs: int) -> str:
    """How a job ended that is done or dead `ends` times, and that each of the two processes began that often.

    A job that was taken over before it began has one run fewer than planned: its delivery to the killed process counts
    as an attempt.
    """
    surplus = killed_runs + other_runs - planned_runs
    if ends == 0:
        return "missing"
    if ends == 1 and surplus <= 0:
        return "once"
    return "again" if surplus == 1 and killed_runs and other_runs else "repeated"


def tally_outcomes(jobs: int, killed: Runs, other: Runs, dead: Counter[int]) -> Counter[tuple[str, str]]:
    """Counts the jobs by kind and outcome, and under the kind "all". `dead` counts the dead letters of each job."""
    tally: Counter[tuple[str, str]] = Counter()
    for number in range(jobs):
        kind = choose_kind(number, jobs)
        ends = dead[number] if kind == "dead" else killed.done[number] + other.done[number]
        outcome = classify_runs_of_job(KINDS[kind].planned_runs, ends, killed.begun[number], other.begun[number])
        tally.update([(kind, outcome), ("all", outcome)])
    return tally


def format_table(tally: Counter[tuple[str, str]]) -> str:
    records = []
    for name, title in [*((name, kind.title) for name, kind in KINDS.items()), ("all", "all jobs")]:
        counts = {outcome: tally[name, outcome] for outcome in OUTCOMES}
        records.append({"jobs": title, "count": sum(counts.values()), **counts})
    has_color = Output.make_for_stdout(as_json=False, no_color=False).has_color
    return format_for_terminal(COLUMNS, records, width=TABLE_WIDTH, has_color=has_color, now_ms=0)


def describe_tally_or_raise(tally: Counter[tuple[str, str]]) -> str:
    """The last line of the demo; raises if a job is missing, or ran twice without a reason."""
    again, repeated, missing = (tally["all", outcome] for outcome in ("again", "repeated", "missing"))
    if missing or repeated:
        raise CommandFailure(f"{missing:,} jobs are missing, and {repeated:,} ran twice without a reason")
    exception = f", except for {again:,} that the killed process had begun: they ran again" if again else ""
    return f"Each job ran exactly once{exception}."
