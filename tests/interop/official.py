"""The official package, driven from a test: it lives in a process and an environment of its own."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Sequence
from typing import Any, Self

import redis.asyncio

from pychasqui import BackoffSpec
from tests.interop.runs import HandlerRun
from tests.support.forks import fork_server
from tests.support.server import PROJECT, RedisServer
from tests.support.waiting import eventually

ENVIRONMENT = PROJECT / ".venv-official"
PYTHON = ENVIRONMENT / "bin" / "python"
PROGRAM = PROJECT / "tests" / "interop" / "official_process.py"
NEEDS = (8, 6)
CONSUMER = "official"


def reason_to_skip(server: RedisServer) -> str:
    """Why the official package cannot be run here, if it cannot."""
    if not (PYTHON.exists() and (ENVIRONMENT / ".installed").exists()):
        return f"the official package is not installed: `make test` puts it into {ENVIRONMENT.name}"
    if server.product != "Redis" or server.version[:2] < NEEDS:
        return f"the official engine needs Redis {'.'.join(map(str, NEEDS))}, this suite runs on {server.label}"
    return ""


def as_written(options: str) -> dict[str, Any]:
    """The options of an add, from the source that the official process reads with its own classes."""
    options_read: dict[str, Any] = eval(f"dict({options})", {"BackoffSpec": BackoffSpec})
    return options_read


class Official:
    """Its queue, and at most one worker of it at a time. Leaving the context kills the process."""

    def __init__(self, server: RedisServer, witness: redis.asyncio.Redis, queue_name: str) -> None:
        self._server = server
        self._witness = witness
        self._queue_name = queue_name
        self.runs: list[HandlerRun] = []
        self.ended: list[str] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._orders = 0

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def _start(self) -> None:
        (orders, its_orders), (reports, its_reports) = socket.socketpair(), socket.socketpair()
        with its_orders, its_reports:
            server, address = fork_server("chasquimq", python=str(PYTHON)), (self._server.tcp_url, self._queue_name)
            ends = its_orders.fileno(), its_reports.fileno()
            self._process = server.start(PROGRAM, *address, stdin=ends[0], stdout=ends[1])
        _, self._writer = await asyncio.open_connection(sock=orders)
        reader, self._reports = await asyncio.open_connection(sock=reports, limit=2**26)
        self._listening = asyncio.create_task(self._listen(reader))

    async def kill(self) -> None:
        """Sends SIGKILL, as when a machine is switched off. The exit code is not checked."""
        self._process.kill()
        self._process.wait()
        await self._listening
        self._writer.close()
        self._reports.close()

    async def add(self, name: str, data: Any = None, options: str = "") -> str:
        """`options` is source, for instance "attempts=3, backoff=BackoffSpec.fixed(50)". Returns the job's id."""
        return await self._order("add", name=name, data=repr(data), options=options)

    async def add_bulk(self, jobs: Sequence[dict[str, Any]]) -> list[str]:
        return await self._order("add_bulk", jobs=repr(jobs))

    async def cancel_delayed(self, job_id: str) -> bool:
        return await self._order("cancel_delayed", job_id=job_id)

    async def upsert(self, name: str, data: Any = None, options: str = "") -> str:
        """Store a repeatable; `options` as those of an add. Returns its key."""
        return await self._order("upsert", name=name, data=repr(data), options=options)

    async def remove_repeatable(self, key: str) -> bool:
        return await self._order("remove_repeatable", key=key)

    async def repeatables(self) -> list[tuple[str, str]]:
        """Key and name of each."""
        return await self._order("repeatables")

    async def listed(self) -> list[tuple[str, str, dict[str, Any], int, int | None]]:
        """Key, name, pattern, next fire in ms and limit of each repeatable."""
        return await self._order("listed")

    async def keys(self) -> list[str]:
        """Where it has its stream, its delayed jobs and its dead letters."""
        return await self._order("keys")

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        return await self._order("peek_dlq", limit=limit)

    async def replay_dlq(self, limit: int = 100) -> int:
        return await self._order("replay_dlq", limit=limit)

    async def results(self, job_ids: Sequence[str]) -> list[Any]:
        """The stored results of these jobs."""
        return await self._order("results", job_ids=list(job_ids))

    async def events(self, count: int) -> list[tuple[str, str | None, str, dict[str, Any]]]:
        """The oldest events, as its own subscriber sees them: name, job's id, job's name, fields."""
        return await self._order("events", count=count)

    async def work(
        self,
        *,
        fails: Sequence[int] = (),
        gives_up: bool = False,
        lasts_s: float = 0.0,
        returns_data: bool = False,
        **options: Any,
    ) -> None:
        """Start a worker; returns when it reads. Without events, unless asked for."""
        options = {"consumer_id": CONSUMER, "events_enabled": False, "run_scheduler": False, **options}
        await self._order(
            "work", fails=list(fails), gives_up=gives_up, lasts_s=lasts_s, returns_data=returns_data, options=options
        )
        await eventually(lambda: self._is_reading(options["consumer_id"]))

    async def stop_working(self) -> None:
        """Close the worker, wait until its run has ended, and go on in a new process.

        The last read of a closed worker goes on while its process lives, and takes entries that no handler gets.
        """
        await self._order("stop_working")
        await self.kill()
        await self._start()

    async def _is_reading(self, consumer: str) -> bool:
        stream = f"{{chasqui:{self._queue_name}}}:stream"
        if not await self._witness.exists(stream):
            return False
        groups = await self._witness.xinfo_groups(stream)
        consumers = await self._witness.xinfo_consumers(stream, "default") if groups else []
        return any(known["name"] == consumer.encode() for known in consumers)

    async def _order(self, do: str, **details: Any) -> Any:
        self._orders += 1
        answer = self._answers[self._orders] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"number": self._orders, "do": do, **details}).encode() + b"\n")
        async with asyncio.timeout(40):
            await self._writer.drain()
            return await answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await _next_line(reader):
            message = json.loads(line)
            if started := message.get("started"):
                self.runs.append(HandlerRun(**started))
            elif ended := message.get("ended"):
                self.ended.append(ended["id"])
            elif error := message.get("error"):
                self._answers.pop(message["number"]).set_exception(OfficialError(error))
            else:
                value = eval(message["value"], {"nan": math.nan, "inf": math.inf})
                self._answers.pop(message["number"]).set_result(value)
        for answer in self._answers.values():
            answer.set_exception(OfficialError("the official process has ended"))
        self._answers.clear()


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Empty once the process has ended, also if that was before it has read all."""
    try:
        return await reader.readline()
    except ConnectionResetError:
        return b""


class OfficialError(Exception):
    """What the official package raised, as text."""
