"""The program of one worker process, for either engine. Each start and end of a run is one line in a file.

Runs in the engine's own environment, so it imports nothing of the suite. Its first argument is a JSON object:
engine, queue, url, log, consumer, concurrency, max_attempts, is_async, and `options` for the engine's Worker.
It ends with the process that started it: that one holds the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

HANG_S = 15.0  # many leases


class RunLog:
    """Lines appended in one write each: whole, in order, and there even if the process is killed right after."""

    def __init__(self, path: str, consumer: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._consumer = consumer
        self._numbers = itertools.count(1)  # handlers in threads take them, too
        self.worker: Any = None

    def write(self, what: str, **facts: Any) -> None:
        line = {"what": what, "pid": os.getpid(), "worker": self._consumer, "at": time.monotonic(), **facts}
        os.write(self._file, json.dumps({**line, "wall": time.time()}).encode() + b"\n")

    def begin(self, job: Any) -> str:
        run = f"{os.getpid()}-{next(self._numbers)}"
        number = job.data.get("n") if isinstance(job.data, dict) else None
        self.write("start", run=run, n=number, id=job.id, attempt=job.attempt, at=self._started_at(job))
        return run

    def _started_at(self, job: Any) -> float:
        """When the engine decided to start it, if it is ours: a worker may be suspended between that and this line."""
        parts = getattr(self.worker, "_components", None)
        running = parts.shared.holdings.list_running_jobs() if parts is not None else []
        return next((float(each.started_at) for each in running if each.id == job.id), time.monotonic())


class Panic(BaseException):
    """Like the exception of a panic in compiled code, it does not derive from Exception."""


class Monster:
    """A value that cannot be shown, compared or gone through."""

    def __repr__(self) -> str:
        raise RuntimeError("a monster has no text")

    __str__ = items = keys = __iter__ = __len__ = __eq__ = __hash__ = __repr__  # type: ignore[assignment]


class MonsterError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("a monster has no text")

    __repr__ = __str__


def asked_of(data: dict[str, Any], attempt: int) -> str:
    does: str = data.get("acts", {}).get(str(attempt), data["does"])
    return does


def act(data: dict[str, Any], attempt: int, unrecoverable: type[Exception]) -> Any:
    """Sleeps as the job asks, does what the job asks for in this run, and returns the handler's result."""
    does = asked_of(data, attempt)
    if does == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "panic":
        raise Panic("as asked")
    if does == "exit":
        sys.exit("as asked")
    if does == "generator exit":
        raise GeneratorExit
    if does == "monster error":
        raise MonsterError
    if does == "monster":
        return Monster()
    if does == "fail":
        raise ValueError("as asked")
    if does == "give up":
        raise unrecoverable("as asked")
    return None


def make_handler(diary: RunLog, unrecoverable: type[Exception], is_async: bool) -> Any:
    async def handle(job: Any) -> Any:
        run = diary.begin(job)
        try:
            if job.data.get("blocks"):
                time.sleep(job.data["ms"] / 1000)
            else:
                await asyncio.sleep(job.data["ms"] / 1000)
            if asked_of(job.data, job.attempt) == "hang":
                await asyncio.sleep(HANG_S)
            result = act(job.data, job.attempt, unrecoverable)
        except asyncio.CancelledError:
            diary.write("cancelled", run=run)
            raise
        except BaseException as error:
            diary.write("failed", run=run, error=type(error).__name__)
            raise
        diary.write("ok", run=run)
        return result

    def handle_in_thread(job: Any) -> Any:
        run = diary.begin(job)
        try:
            time.sleep(job.data["ms"] / 1000)
            result = act(job.data, job.attempt, unrecoverable)
        except BaseException as error:
            diary.write("failed", run=run, error=type(error).__name__)
            raise
        diary.write("ok", run=run)
        return result

    return handle if is_async else handle_in_thread


async def work(order: dict[str, Any]) -> None:
    diary = RunLog(order["log"], order["consumer"])
    is_ours = order["engine"] == "pychasqui"
    engine = importlib.import_module("pychasqui" if is_ours else "chasquimq")
    worker = engine.Worker(
        order["queue"],
        make_handler(diary, engine.UnrecoverableError, order["is_async"]),
        redis_url=order["url"],
        concurrency=order["concurrency"],
        max_attempts=order["max_attempts"],
        **{"consumer_id": order["consumer"], **order["options"]},
    )
    diary.worker = worker
    if is_ours:
        async with worker:  # which returns once it reads
            diary.write("up")
            await worker.run(handle_signals=True)
    else:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(worker.close()))
        diary.write("up")
        await worker.run()
    diary.write("down")


def end_with_parent() -> None:
    sys.stdin.read()
    os._exit(9)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s")
    asyncio.run(work(json.loads(sys.argv[1])))
