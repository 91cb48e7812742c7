"""A process that runs the demo's jobs, and the object by which the demo starts, kills and ends it.

The process gets its arguments as a line of JSON on its standard input, because all users of the machine can read a
command line, and the URL may hold a password. It prints a line when it is ready, and runs jobs until its input ends:
when the demo closes it, and also when the demo is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from ... import Job, Worker
from ..exits import CommandFailure, ExitCode, run_to_exit_code
from ..loops import choose_loop
from .jobs import SLOW_S, Runs

LEASE_MS = 1000  # the jobs of a killed process run again within 3 s
END_TIMEOUT_S = 10.0


class WorkerProcess:
    """Starts the process on entering, and ends it on leaving; after an error or Ctrl-C it is killed.

    Ctrl-C does not reach the process itself: it has its own session.
    """

    def __init__(self, number: int, url: str, queue: str, jobs: int, folder: Path) -> None:
        path = folder / f"runs-{number}"
        self.number = number
        self.runs = Runs(path, jobs)
        self._arguments = [url, queue, jobs, str(path)]
        self._is_killed = False

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-P", "-c", f"from {__name__} import main; main()")
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(self._arguments).encode() + b"\n")
            if not await self._process.stdout.readline():
                await self._process.wait()
                self.raise_if_ended_by_itself()
        except BaseException:
            await self._kill_and_wait()
            raise
        return self

    def kill(self) -> None:
        self._is_killed = True
        self._process.kill()

    def raise_if_ended_by_itself(self) -> None:
        """Raises if the process has ended by itself. What it had to say is on standard error already."""
        code = self._process.returncode
        if code is not None and not self._is_killed:
            message = f"worker process {self.number} ended with status {code}"
            raise CommandFailure(message, max(code, ExitCode.FAILED))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if kind is not None:  # somebody waits at the terminal, and the queue is removed anyway
            await self._kill_and_wait()
            return
        try:
            await asyncio.wait_for(self._process.wait(), END_TIMEOUT_S)
        except TimeoutError:
            await self._kill_and_wait()

    async def _kill_and_wait(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


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
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await orders.read()


def main() -> NoReturn:
    logging.getLogger("chasqui").setLevel(logging.ERROR)  # failures and dead letters are part of the demo
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        sys.exit(run_to_exit_code(lambda: runner.run(run_jobs_until_stdin_ends())))
