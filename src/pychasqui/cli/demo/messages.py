"""What the demo's processes tell each other: a line of JSON on a pipe is a message."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from enum import StrEnum

import msgspec


class Plan(msgspec.Struct, frozen=True):
    """The first line that a process gets. Jobs are numbered through: those of the burst, then those of the trickle."""

    url: str
    queue: str
    burst: int
    trickle: int

    @property
    def scenes_queue(self) -> str:
        return f"{self.queue}-scenes"

    @property
    def total(self) -> int:
        return self.burst + self.trickle


class Act(StrEnum):
    """Told to the process that adds, a line each."""

    BURST = "burst"  # in bulk, as fast as they go in
    TRICKLE = "trickle"  # one by one, to an idle queue
    SCENES = "scenes"  # what else a queue can do


class Progress(msgspec.Struct, frozen=True, tag=True):
    """So many jobs in so many seconds. The first, of no jobs, says that the process is ready."""

    count: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds > 0 else 0.0


class Scene(msgspec.Struct, frozen=True, tag=True):
    """How one of the small scenes went."""

    title: str
    text: str
    is_well: bool


class Waits(msgspec.Struct, frozen=True):
    """How long jobs took from the call of add to the call of the handler."""

    p50_ms: float
    p99_ms: float


class Verdict(msgspec.Struct, frozen=True, tag=True):
    """The last word of the process that works."""

    missing: int  # jobs that never ran
    repeated: int  # jobs that ran more than once
    burst: Waits
    trickle: Waits


Report = Progress | Scene | Verdict


def write(message: msgspec.Struct | Act) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def read_plan(line: bytes) -> Plan:
    return msgspec.json.decode(line, type=Plan)


def read_act(line: bytes) -> Act:
    return msgspec.json.decode(line, type=Act)


def read_report(line: bytes) -> Report:
    message: Report = msgspec.json.decode(line, type=Report)
    return message


def report(message: Report) -> None:
    """To the process that started this one."""
    sys.stdout.buffer.write(write(message))
    sys.stdout.buffer.flush()


async def orders() -> AsyncIterator[bytes]:
    """Lines from the process that started this one. They end when it is done with this one, or is gone itself."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        yield line
