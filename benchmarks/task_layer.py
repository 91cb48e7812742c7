"""What functions as jobs cost beside `Queue` and `Worker`, as ratios of one interleaved run.

    python -m benchmarks.task_layer --rounds 5

Each turn is a process of its own with an empty server. Events are off. A ratio is that of two turns of the same round;
its median, lowest and highest are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.server import ROOT, find_server, running
from benchmarks.wire import Wire
from pychasqui import App, Depends, Job, Queue, SyncQueue, Worker

JOBS = 200_000
ADDS = 10_000
BULK = 1000
BULKS = 300
AT_ONCE = 100
TO, SUBJECT = "ada@example.org", "welcome"
DATA = {"to": TO, "subject": SUBJECT}


class Ratio(NamedTuple):
    what: str
    turn: str
    base: str
    bar: float


RATIOS = (
    Ratio("a task of two arguments / a plain handler", "run-task", "run-handler", 0.8),
    Ratio("the same, which takes what a lifespan yields", "run-lifespan", "run-handler", 0.8),
    Ratio("with one middleware", "run-middleware", "run-handler", 0.72),
    Ratio("with one generator dependency a job", "run-dependency", "run-handler", 0.55),
    Ratio("enqueue / Queue.add, one by one", "enqueue", "add", 0.85),
    Ratio("the same, 100 at once", "enqueue-100", "add-100", 0.7),
    Ratio("enqueue_all / add_bulk of 1,000", "enqueue-all", "add-bulk", 0.5),
    Ratio("SyncQueue.add of one thread / an awaited add", "sync-add", "add", 0.7),
    Ratio("task.sync of one thread / an awaited enqueue", "sync-enqueue", "enqueue", 0.7),
    Ratio("SyncQueue.add of 16 threads / of one", "sync-add-16", "sync-add", 2.5),
)


def make_app(url: str, note_run: Callable[[], None]) -> tuple[App, dict[str, Any]]:
    """Returns an app and its tasks, by the name of the turn; each run of a task calls note_run()."""
    app = App(url, defaults={"events_enabled": False, "concurrency": AT_ONCE})

    async def connect() -> AsyncIterator[str]:
        yield "connection"

    @app.lifespan
    async def lifespan() -> AsyncIterator[str]:
        yield "pool"

    @app.task
    async def send(to: str, subject: str) -> None:
        note_run()

    @app.task
    async def send_by_pool(to: str, subject: str, pool: str = Depends(lifespan)) -> None:
        note_run()

    @app.task
    async def send_by_connection(to: str, subject: str, connection: str = Depends(connect)) -> None:
        note_run()

    tasks = {"run-task": send, "run-middleware": send, "run-lifespan": send_by_pool}
    return app, {**tasks, "run-dependency": send_by_connection}


# Turns ----------------------------------------------------------------------------------------------------------------


async def run_jobs(url: str, turn: str) -> float:
    done, begun, all_done = 0, 0.0, asyncio.Event()

    def note_run() -> None:
        nonlocal done, begun
        if not done:  # what a worker or a crew does when it starts is no cost of a job
            begun = time.perf_counter()
        done += 1
        if done == JOBS:
            all_done.set()

    async def handle(job: Job) -> None:
        note_run()

    app, tasks = make_app(url, note_run)
    if turn == "run-middleware":

        @app.middleware
        async def go_on(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
            return await call()

    name = tasks[turn].name if turn in tasks else "send"
    async with Queue("default", redis_url=url) as queue:
        for _ in range(JOBS // BULK):
            await queue.add_bulk([{"name": name, "data": DATA}] * BULK)
    options: dict[str, Any] = {"redis_url": url, "events_enabled": False, "concurrency": AT_ONCE}
    worker = Worker("default", handle, **options) if turn == "run-handler" else app.worker()
    async with worker:
        await all_done.wait()
        took_s = time.perf_counter() - begun
    await app.close()
    return JOBS / took_s


async def add_jobs(url: str, turn: str) -> float:
    app, tasks = make_app(url, lambda: None)
    send: Any = tasks["run-task"]

    async def repeat(add: Callable[[], Awaitable[object]], count: int) -> None:
        for _ in range(count):
            await add()

    async with app, Queue("default", redis_url=url) as queue:

        def add() -> Awaitable[object]:
            return queue.add("send", DATA)

        def enqueue() -> Any:
            return send.enqueue(TO, SUBJECT)

        def make_job() -> dict[str, Any]:
            return {"name": "send", "data": {"to": TO, "subject": SUBJECT}}

        one = enqueue if turn.startswith("enqueue") else add
        await one()
        begun = time.perf_counter()
        if turn == "add-bulk":
            await repeat(lambda: queue.add_bulk([make_job() for _ in range(BULK)]), BULKS)
        elif turn == "enqueue-all":
            await repeat(lambda: app.enqueue_all([send.bind(TO, SUBJECT) for _ in range(BULK)]), BULKS)
        elif turn.endswith("-100"):
            await asyncio.gather(*(repeat(one, JOBS // AT_ONCE) for _ in range(AT_ONCE)))
        else:
            await repeat(one, ADDS)
        took_s = time.perf_counter() - begun
    counts = {"add": ADDS, "enqueue": ADDS, "add-bulk": BULKS * BULK, "enqueue-all": BULKS * BULK}
    return counts.get(turn, JOBS) / took_s


def add_jobs_from_threads(url: str, turn: str) -> float:
    app, tasks = make_app(url, lambda: None)
    threads = 16 if turn.endswith("-16") else 1
    with SyncQueue("default", redis_url=url) as queue:

        def add() -> object:
            return tasks["run-task"].sync.enqueue(TO, SUBJECT) if turn == "sync-enqueue" else queue.add("send", DATA)

        def repeat() -> None:
            for _ in range(ADDS // threads):
                add()

        add()
        begun = time.perf_counter()
        if threads == 1:
            repeat()
        else:
            running_threads = [threading.Thread(target=repeat) for _ in range(threads)]
            for thread in running_threads:
                thread.start()
            for thread in running_threads:
                thread.join()
        took_s = time.perf_counter() - begun
    app.sync.close()
    return ADDS // threads * threads / took_s


def take_turn(url: str, turn: str) -> float:
    if turn.startswith("sync"):
        return add_jobs_from_threads(url, turn)
    return asyncio.run((run_jobs if turn.startswith("run") else add_jobs)(url, turn))


# Rounds ---------------------------------------------------------------------------------------------------------------


def measure_rounds(rounds: int, server_path: str | None) -> Iterator[dict[str, float]]:
    turns = list(dict.fromkeys(turn for ratio in RATIOS for turn in (ratio.base, ratio.turn)))
    with running(find_server(server_path)) as server, Wire(server.url) as wire:
        for number in range(rounds):
            rates: dict[str, float] = {}
            for turn in turns if number % 2 == 0 else reversed(turns):
                wire.call("FLUSHALL")
                command = [sys.executable, "-m", "benchmarks.task_layer", "--turn", turn, "--url", server.url]
                rates[turn] = float(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)
            yield rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", help="the binary")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(take_turn(options.url, options.turn))
        return
    rounds = list(measure_rounds(options.rounds, options.server))
    for ratio in RATIOS:
        found = [rates[ratio.turn] / rates[ratio.base] for rates in rounds]
        rate = statistics.median(rates[ratio.turn] for rates in rounds)
        print(
            f"{ratio.what:46} {statistics.median(found):5.2f} ({min(found):.2f} to {max(found):.2f}), "
            f"bar {ratio.bar}, {rate:,.0f} a second"
        )


if __name__ == "__main__":
    main()
