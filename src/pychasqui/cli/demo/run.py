"""Runs the demo: starts the server and the processes, adds the jobs, kills a process, and waits for the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import click

from ... import Queue, __version__, embedded
from ...errors import InvalidArgument, RedisTrouble
from ..exits import CommandFailure, ExitCode
from ..standard_streams import print_to_stderr
from .jobs import KINDS, choose_kind, count_jobs_done_at_least_once, describe_tally_or_raise, tally_outcomes
from .process import WorkerProcess
from .screen import Screen, print_table

BULK_JOBS = 1000
CONNECT_TIMEOUT_S = 2.0
LOOK_EVERY_S = 0.02
STUCK_S = 20.0  # longer than an add takes to fail, whose error says more
EMPTY_S = 2.0  # counts are read one after the other, and may miss a job that moves meanwhile
SERVER_ENDS_S = 5.0
LINGER_MS = 0  # how long the private server outlives the demo


def run_demo(jobs: int, redis_url: str | None) -> None:
    """Without a URL on a private server, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="chasqui-demo-", ignore_cleanup_errors=True) as folder:
        try:
            server = _private_server(Path(folder, "server")) if redis_url is None else contextlib.nullcontext(redis_url)
            with server as url:
                queue = _make_queue(url)
                print_to_stderr(f"pychasqui {__version__} on {'a private server' if redis_url is None else queue}")
                asyncio.run(_run_on_server(jobs, queue, url, Path(folder)))
        except asyncio.CancelledError:
            raise CommandFailure("terminated", ExitCode.TERMINATED) from None


def _make_queue(url: str) -> Queue:
    try:
        return Queue(f"demo-{uuid4().hex[:12]}", redis_url=url)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="'--redis-url'") from None


async def _run_on_server(jobs: int, queue: Queue, url: str, folder: Path) -> None:
    _end_on_sigterm()
    async with Queue(queue.name, redis_url=url, timeout_s=CONNECT_TIMEOUT_S) as probe:
        await probe.is_paused()  # raises if the server cannot be reached
    async with queue:
        try:
            with Screen(jobs) as screen:
                workers = [WorkerProcess(number, url, queue.name, jobs, folder) for number in (1, 2)]
                async with workers[0], workers[1]:
                    run = DemoRun(jobs, queue, workers, screen)
                    summary = await run.run_and_time()
            # The workers have ended: no job can run any more.
            dead = Counter([letter.data async for letter in queue.dlq.search()])
            tally = tally_outcomes(jobs, run.killed.runs, run.other.runs, dead)
        finally:
            with contextlib.suppress(RedisTrouble):
                await queue.obliterate()
    print_table(tally)
    click.echo(summary)
    click.echo(describe_tally_or_raise(tally))


class DemoRun:
    """Adds the jobs, kills a worker process when half of them are done, and waits until all have ended."""

    def __init__(self, jobs: int, queue: Queue, workers: list[WorkerProcess], screen: Screen) -> None:
        self._jobs, self._queue, self._workers, self._screen = jobs, queue, workers, screen
        self._added = 0
        self._began = time.monotonic()

    async def run_and_time(self) -> str:
        """Returns a line that says how long it took."""
        self._adding = asyncio.create_task(self._add_jobs())
        try:
            ended, half_s = await self._show_progress_until_goal_or_stuck(self._jobs // 2)
            self.other, self.killed = sorted(
                self._workers, key=lambda worker: count_jobs_done_at_least_once([worker.runs])
            )
            self.killed.kill()
            self._screen.print_line(f"killed worker process {self.killed.number}; the other one takes over its jobs")
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
        before, changed_at = None, time.monotonic()
        while True:
            for worker in self._workers:
                worker.raise_if_ended_by_itself()
            if self._adding.done():
                self._adding.result()  # raises what add_bulk raised
            counts = await self._queue.counts()
            ended = count_jobs_done_at_least_once([worker.runs for worker in self._workers]) + counts.dead
            now = time.monotonic()
            if (self._added, ended, counts) != before:
                before, changed_at = (self._added, ended, counts), now
            is_empty = self._added == self._jobs and not (counts.waiting or counts.active or counts.delayed)
            is_there = ended >= goal and (goal < self._jobs or is_empty)
            self._screen.show_progress(self._added, ended, now - self._began, is_last=is_there)
            if is_there or now - changed_at > (EMPTY_S if is_empty else STUCK_S):
                return ended, now - self._began
            await asyncio.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def _private_server(folder: Path) -> Iterator[str]:
    """Runs a server in the folder, and waits for its end, so that the folder can be removed."""
    from ...embedded.supervisor import ServerFiles, try_lock  # here, because Windows lacks what it imports

    os.environ[embedded.LINGER_NAMED_BY] = str(LINGER_MS)
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


def _end_on_sigterm() -> None:
    """Makes SIGTERM end the demo as Ctrl-C does: no process is left."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
