"""A program whose worker processes a supervisor runs, and what they have written down."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

from tests.cli.conftest import command_line_server, plain_environment
from tests.cli.processes import Process, children_of
from tests.support.forks import ForkedProcess
from tests.support.waiting import eventually

LEASE_MS = 1000
PROGRAM = """
import asyncio
import ctypes
import os
import time
from pathlib import Path

from pychasqui import Worker


kept = []


def write(job, what):
    line = f"{what} {job.name} {job.data} {job.id} {job.attempt} {os.getpid()} {time.time()}\\n"
    descriptor = os.open("runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


async def handle(job):
    write(job, "begin")
    if job.name == "gil":
        ctypes.PyDLL(None).usleep(int(job.data * 1_000_000))
    elif job.name == "grow":
        kept.append(b"x" * (job.data * 1_000_000))
    elif job.name == "wait":
        while not Path("may-finish").exists():
            await asyncio.sleep(0.01)
    elif job.name == "first-long" and job.attempt == 0:
        await asyncio.sleep(60)
    elif job.name == "long" and job.attempt == 0:
        await asyncio.sleep(3)
    write(job, "end")


def make(**options):
    return Worker(
        os.environ["APP_QUEUE"],
        handle,
        **{
            "redis_url": os.environ["APP_REDIS_URL"],
            "lease_ms": int(os.environ["APP_LEASE_MS"]),
            "concurrency": int(os.environ["APP_CONCURRENCY"]),
            **options,
        },
    )


async def provide(address):
    return "rotated", "word"


worker = make()


def named():
    return make(consumer_id="named")


def patient():
    return make(shutdown_deadline_s=60)


def unconnected():
    return make(redis_url="redis://127.0.0.1:1")


def provided():
    return make(credential_provider=provide)
"""


class Run(NamedTuple):
    name: str
    data: str
    job_id: str
    attempt: int
    pid: int
    at: float


class SupervisedProgram:
    """start() -> its processes work -> stop()."""

    def __init__(
        self, folder: Path, redis_url: str, queue_name: str, *, lease_ms: int = LEASE_MS, concurrency: int = 4
    ) -> None:
        self.folder = folder
        own = {"REDIS_URL": redis_url, "QUEUE": queue_name, "LEASE_MS": str(lease_ms), "CONCURRENCY": str(concurrency)}
        self.environment = plain_environment() | {f"APP_{name}": value for name, value in own.items()}
        self._log = folder / "log"
        self._supervisor: ForkedProcess | None = None
        (folder / "app.py").write_text(PROGRAM)

    async def start(self, *arguments: str, target: str = "app:worker", processes: int = 2) -> None:
        """Returns once all processes work."""
        self.begin(target, "--processes", str(processes), *arguments)
        await self.wait_for(" works\n", processes)

    def begin(self, *arguments: str, **environment: str) -> None:
        """Starts the supervisor in a fork; its processes are started by it, as always."""
        with self._log.open("wb") as log, open(os.devnull, "rb") as nothing:
            self._supervisor = command_line_server().start(
                *("pychasqui.cli", "worker", "--log-format", "plain", *arguments),
                folder=self.folder,
                environment=self.environment | environment,
                stdin=nothing.fileno(),
                stdout=log.fileno(),
                stderr=log.fileno(),
            )

    async def begin_loading(self, *arguments: str, first: str = "", then: str = "time.sleep(100)") -> None:
        """Returns once the first process loads a program that has run `first`, and runs `then`."""
        self.write_hanging_program(first=first, then=then)
        self.begin("app:worker", "--processes", "2", *arguments)
        await eventually(self.is_loading, timeout=100)

    def write_hanging_program(self, *, first: str = "", then: str = "time.sleep(100)") -> None:
        code = f"import ctypes, signal, time\n{first}\nopen('loading', 'w').close()\n{then}\n"
        (self.folder / "app.py").write_text(code)

    def is_loading(self) -> bool:
        return (self.folder / "loading").exists()

    async def wait_for(self, text: str, times: int = 1) -> None:
        """Waits until the log has this text so often."""
        await eventually(lambda: self.log.count(text) >= times or self._fail_if_ended(text), timeout=100)

    def _fail_if_ended(self, text: str) -> bool:
        assert self.supervisor.poll() is None or text in self.log, self.log
        return False

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.supervisor.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """Returns the exit code."""
        await eventually(lambda: self.supervisor.poll() is not None, timeout=100)
        assert self.supervisor.returncode is not None
        return self.supervisor.returncode

    @property
    def supervisor(self) -> ForkedProcess:
        assert self._supervisor is not None
        return self._supervisor

    @property
    def log(self) -> str:
        return self._log.read_text()

    def processes(self) -> list[Process]:
        return children_of(self.supervisor.pid)

    def runs(self, what: str, name: str = "") -> list[Run]:
        """The runs that did begin, or did end, of jobs of this name."""
        path = self.folder / "runs"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows = [line.split() for line in lines if line.endswith("\n")]  # the last one may be on its way to the file
        runs = [Run(row[1], row[2], row[3], int(row[4]), int(row[5]), float(row[6])) for row in rows if row[0] == what]
        return [run for run in runs if name in ("", run.name)]

    def close(self) -> None:
        """What runs on is killed; its processes end when they notice that."""
        if self._supervisor is not None:
            self._supervisor.kill()
            self._supervisor.wait()
