"""The demo's jobs, the record of their runs, and a process that runs them until its standard input ends.

The input ends when the demo closes it, and also when the demo is killed. Its first line has the arguments: all users of
the machine can read a command line, and the URL may hold a password.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from ... import Job, Worker
from ..exits import CommandFailure, ExitCode, run_to_exit_code
from ..loops import choose_loop

LEASE_MS = 1000  # the jobs of a killed process run again within 3 s
END_TIMEOUT_S = 10.0
SLOW_S = 0.3
SLOW_JOBS = 200  # about, however many jobs there are: some of them run when the process is killed


class JobKind(NamedTuple):
    title: str
    planned_runs: int
    options: dict[str, Any]


KINDS = {  # by the name of the job
    "plain": JobKind("plain", 1, {}),
    "slow": JobKind(f"take {SLOW_S} s", 1, {}),
    "failing": JobKind("fail once, then succeed", 2, {"backoff": 100}),
    "delayed": JobKind("delayed by 1 s", 1, {"delay_ms": 1000}),
    "dead": JobKind("fail twice, then dead", 2, {"attempts": 2, "backoff": 100}),
}
RARE_KINDS = {10: "failing", 60: "failing", 20: "delayed", 70: "delayed", 30: "dead"}  # by place in each hundred


def choose_kind(number: int, jobs: int) -> str:
    is_slow = number % max(10, jobs // SLOW_JOBS) == 5
    return RARE_KINDS.get(number % 100) or ("slow" if is_slow else "plain")


class Runs:
    """Counts how often one process began and finished each job: a byte a job in a file, which survives a kill."""

    def __init__(self, path: Path, jobs: int) -> None:
        with path.open("a+b") as file:
            file.truncate(2 * jobs)
            view = memoryview(mmap(file.fileno(), 2 * jobs))
        self.begun, self.done = view[:jobs], view[jobs:]


class WorkerProcess(NamedTuple):
    number: int
    runs: Runs
    process: asyncio.subprocess.Process

    def raise_if_ended(self) -> None:
        """What the process had to say is on standard error already."""
        if (code := self.process.returncode) is not None:
            message = f"worker process {self.number} ended with status {code}"
            raise CommandFailure(message, max(code, ExitCode.FAILED))


@asynccontextmanager
async def run_worker_process(
    number: int, url: str, queue: str, jobs: int, folder: Path
) -> AsyncIterator[WorkerProcess]:
    """Starts the process, and ends it after the block; after an error or Ctrl-C it is killed.

    Ctrl-C does not reach the process itself: it has its own session.
    """
    path, pipe = folder / f"runs-{number}", asyncio.subprocess.PIPE
    command = (sys.executable, "-P", "-c", f"from {__name__} import main; main()")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        worker = WorkerProcess(number, Runs(path, jobs), process)
        process.stdin.write(json.dumps([url, queue, jobs, str(path)]).encode() + b"\n")
        if not await process.stdout.readline():
            await process.wait()
            worker.raise_if_ended()
        yield worker
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def run_jobs_until_stdin_ends() -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    url, queue, jobs, path = json.loads(await orders.readline())
    runs = Runs(Path(path), jobs)

    async def handle(job: Job) -> None:
        runs.begun[job.data] += 1
        if job.name == "slow":
            await asyncio.sleep(SLOW_S)
        elif job.name == "dead" or (job.name == "failing" and job.attempt == 0):
            raise RuntimeError("this job fails on purpose")
        runs.done[job.data] += 1

    async with Worker(queue, handle, redis_url=url, lease_ms=LEASE_MS):
        click.echo("ready")
        await orders.read()


def main() -> NoReturn:
    logging.getLogger("chasqui").setLevel(logging.ERROR)  # failures and dead letters are part of the demo
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        sys.exit(run_to_exit_code(lambda: runner.run(run_jobs_until_stdin_ends())))
