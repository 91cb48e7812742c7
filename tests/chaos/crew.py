"""The worker processes of a round: started, killed, stopped, continued, closed and replaced, and all of it recorded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from tests.chaos.diary import Mishap, MishapKind, read_lines
from tests.support.forks import ForkedProcess, fork_server
from tests.support.server import PROJECT
from tests.support.waiting import eventually

PROGRAM = Path(__file__).with_name("worker_process.py")
OFFICIAL_PYTHON = Path(os.environ.get("CHASQUI_OFFICIAL_PYTHON", PROJECT / ".venv-official" / "bin" / "python"))
START_S = 20.0
SIGNS_OF_TROUBLE = (
    "Traceback (most recent call last)",
    "was never retrieved",
    "was never awaited",
    "Exception in",
)
Engine = Literal["pychasqui", "wheel"]


@dataclass(eq=False)
class Member:
    """One worker process. `seat` is its number; a successor gets the same one."""

    name: str
    seat: int
    process: subprocess.Popen[bytes] | ForkedProcess
    holds: int  # the other end of its standard input, with which it ends
    stopped_at: float | None = None
    is_leaving: bool = False  # by our doing

    @property
    def lives(self) -> bool:
        return self.process.poll() is None


@dataclass
class Crew:
    """`urls` has one address for each seat. `options` go to the engine's Worker as they are."""

    folder: Path
    queue: str
    urls: list[str]
    engine: Engine = "pychasqui"
    concurrency: int = 10
    max_attempts: int = 25
    is_async: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "runs.jsonl"

    def living(self) -> list[Member]:
        return [member for member in self.members if member.lives]

    def start(self, seat: int) -> Member:
        name = f"w{len(self.members)}"
        order, environment = json.dumps(self.order(name, seat)), self.environment(seat)
        its_end, own_end = os.pipe()
        process: subprocess.Popen[bytes] | ForkedProcess
        with (self.folder / f"{name}.log").open("wb") as output:
            out = output.fileno()
            if self.engine == "pychasqui" and environment is None:
                server = fork_server("pychasqui")
                process = server.start(self.program, order, stdin=its_end, stdout=out, stderr=out)
            else:
                python = sys.executable if self.engine == "pychasqui" else OFFICIAL_PYTHON
                command = [python, "-P", self.program, order]
                process = subprocess.Popen(command, stdin=its_end, stdout=out, stderr=out, env=environment)
        os.close(its_end)
        member = Member(name, seat, process, own_end)
        self.members.append(member)
        return member

    @property
    def program(self) -> Path:
        return PROGRAM

    def order(self, name: str, seat: int) -> dict[str, Any]:
        """The argument of the program."""
        return {
            "engine": self.engine,
            "queue": self.queue,
            "url": self.urls[seat],
            "log": str(self.log),
            "consumer": name,
            "concurrency": self.concurrency,
            "max_attempts": self.max_attempts,
            "is_async": self.is_async,
            "options": self.options,
        }

    def environment(self, seat: int) -> dict[str, str] | None:
        """None: this process's own."""
        return None

    def up(self) -> list[Member]:
        """The members that run jobs, and are not stopped or closing."""
        names = self._wrote("up")
        return [
            member
            for member in self.living()
            if member.name in names and member.stopped_at is None and not member.is_leaving
        ]

    async def until_up(self, *members: Member) -> None:
        names = {member.name for member in members or self.members}
        await eventually(lambda: names <= self._wrote("up"), timeout=START_S, every=0.02)

    def kill(self, member: Member) -> None:
        member.is_leaving = True
        member.process.kill()
        member.process.wait()
        if member.stopped_at is not None:
            self.note("stopped", member, member.stopped_at)
        self.note("killed", member, monotonic())

    def stop(self, member: Member) -> None:
        """Freeze it, as a machine that is suspended."""
        member.stopped_at = monotonic()
        os.kill(member.process.pid, signal.SIGSTOP)

    def resume(self, member: Member) -> None:
        if member.lives and member.stopped_at is not None:
            os.kill(member.process.pid, signal.SIGCONT)
            self.note("stopped", member, member.stopped_at)
        member.stopped_at = None

    async def close(self, member: Member, *, patience_s: float = 40.0) -> int | None:
        """SIGTERM, and its exit code; None if it had to be killed."""
        began = monotonic()
        member.is_leaving = True
        member.process.send_signal(signal.SIGTERM)
        try:
            await eventually(lambda: not member.lives, timeout=patience_s, every=0.02)
        except AssertionError:
            self.kill(member)
            return None
        self.note("closed", member, began)
        return member.process.returncode

    async def keep_manned(self) -> None:
        """Replaces members that have ended, as a process supervisor does. Runs until it is cancelled."""
        while True:
            manned = {member.seat for member in self.living()}
            for seat in range(len(self.urls)):
                if seat not in manned:
                    self.start(seat)
            await asyncio.sleep(0.05)

    def end(self) -> None:
        """Kills every member."""
        for member in self.members:
            if member.lives:
                member.process.kill()
            member.process.wait()
            os.close(member.holds)

    def note(self, kind: MishapKind, member: Member, began: float) -> None:
        self.mishaps.append(Mishap(kind, began, monotonic(), member.name))

    def errors(self) -> list[str]:
        """Error lines of the workers, and ends that no test asked for."""
        found = [
            f"{member.name} ended by itself with exit code {member.process.returncode}"
            for member in self.members
            if not member.lives and not member.is_leaving
        ]
        for member in self.members:
            text = (self.folder / f"{member.name}.log").read_text(errors="replace")
            found += [f"{member.name} printed {sign!r}" for sign in SIGNS_OF_TROUBLE if sign in text]
        return found

    def _wrote(self, what: str) -> set[str]:
        return {line["worker"] for line in read_lines(self.log) if line["what"] == what}


def official_is_there() -> bool:
    return OFFICIAL_PYTHON.exists()
