"""Cancels race with the starts and the ends of jobs: `python -m tests.chaos.cancel_race [JOBS]`, by hand.

Two worker processes run the jobs, one of them in threads, while four other processes cancel each job at about the time
at which it is due. Each job must be cancelled or done, never both and never neither, and no note may be left. Then
running handlers are cancelled one by one, and the time until each has ended, or its thread was asked, is measured: 99
of 100 within 100 ms. Exit status 1 if one of these does not hold.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import redis

from pychasqui import Job, Queue, Worker
from tests.support.server import RedisServer

QUEUE = "race"
PREFIX = f"{{chasqui:{QUEUE}}}"
JOBS_A_SECOND = 300
CANCELLERS = 4
MEASURED = 500
BOUND_S = 0.1


async def work(url: str, *, in_threads: bool) -> None:
    """Runs until it is killed; writes which jobs have begun, are done, and were stopped."""
    diary = redis.Redis.from_url(url)

    async def handle(job: Job) -> None:
        diary.hset("began", job.id, time.time())
        try:
            await asyncio.sleep(60 if job.name == "long" else random.random() * 0.05)
        except asyncio.CancelledError:
            diary.hset("stopped", job.id, time.time())
            raise
        diary.rpush("done", job.id)

    def block(job: Job) -> None:
        diary.hset("began", job.id, time.time())
        ends_at = time.monotonic() + (60 if job.name == "long" else random.random() * 0.05)
        while time.monotonic() < ends_at:
            if job.is_cancelled:
                diary.hset("stopped", job.id, time.time())
                raise RuntimeError("asked to stop")
            time.sleep(0.001)
        diary.rpush("done", job.id)

    handler: Any = block if in_threads else handle
    await Worker(QUEUE, handler, redis_url=url, concurrency=20, lease_ms=2000).run()


async def cancel_all(url: str, number: int) -> None:
    """Cancels every fourth job at about the time at which it is due; writes the answers."""
    diary = redis.Redis.from_url(url)
    ids = [each.decode() for each in diary.lrange("jobs", 0, -1)]
    begins_at = float(str(diary.get("begins_at"), "ascii"))

    async def cancel(place: int) -> None:
        at = begins_at + place / JOBS_A_SECOND + random.uniform(-0.03, 0.06)
        await asyncio.sleep(at - time.time())
        diary.hset("answers", ids[place], await queue.cancel(ids[place]))

    async with Queue(QUEUE, redis_url=url) as queue:
        await asyncio.gather(*(cancel(place) for place in range(number, len(ids), CANCELLERS)))


async def race(url: str, count: int) -> bool:
    """Returns whether all that must hold holds."""
    diary: Any = redis.Redis.from_url(url)
    async with Queue(QUEUE, redis_url=url) as queue:
        workers = [start("threads", url), start("work", url)]
        await wait_for_workers(queue, 2)
        begins_at = time.time() + 5
        jobs = [
            {
                "name": "short",
                "job_id": f"id-{n}" if n % 3 == 0 else None,
                "delay_ms": datetime.fromtimestamp(begins_at + n / JOBS_A_SECOND, UTC),
            }
            for n in range(count)
        ]
        ids = [job.id for job in await queue.add_bulk(jobs)]
        diary.rpush("jobs", *ids)
        diary.set("begins_at", begins_at)
        for process in [start(f"cancel {number}", url) for number in range(CANCELLERS)]:
            await asyncio.to_thread(process.wait)
        while diary.xlen(f"{PREFIX}:stream") or diary.zcard(f"{PREFIX}:delayed"):
            await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        is_sound = report(diary, ids)
        dead, notes = await queue.dlq.count(), diary.hlen(f"{PREFIX}:cancelled")
        print("dead:", dead, "notes left:", notes)
        await end(workers, queue)
        p99s = [await measure_p99_s(diary, queue, url, mode) for mode in ("work", "threads")]
        return is_sound and not dead and not notes and max(p99s) <= BOUND_S


def report(diary: Any, ids: list[str]) -> bool:
    """Prints how the jobs have ended; returns whether each is cancelled or done, once."""
    done = [each.decode() for each in diary.lrange("done", 0, -1)]
    events = diary.xrange(f"{PREFIX}:events")
    cancelled = {fields[b"id"].decode() for _, fields in events if fields[b"e"] == b"cancelled"}
    answers = {job_id.decode(): word.decode() for job_id, word in diary.hgetall("answers").items()}
    began = {each.decode() for each in diary.hkeys("began")}
    removed = {job_id for job_id, word in answers.items() if word == "removed"}
    cancelled |= removed  # the first of them have no event: the queue had none yet
    both, neither = cancelled & set(done), set(ids) - cancelled - set(done)
    print(f"{len(ids)} jobs: {len(cancelled)} cancelled, {len(done)} done, {len(both)} both, {len(neither)} neither")
    print(f"stopped while they ran: {len(cancelled & began)}; removed and begun: {len(removed & began)}")
    print("answers:", {word: list(answers.values()).count(word) for word in sorted(set(answers.values()))})
    twice = len(done) - len(set(done))
    print("done twice:", twice)
    return not both and not neither and not twice and not removed & began


async def measure_p99_s(diary: Any, queue: Queue, url: str, mode: str) -> float:
    worker = start(mode, url)
    await wait_for_workers(queue, 1)
    latencies: list[float] = []
    for _ in range(MEASURED):
        job = await queue.add("long")
        while not diary.hexists("began", job.id):
            await asyncio.sleep(0.001)
        await asyncio.sleep(random.random() * 0.03)
        asked_at = time.time()
        await queue.cancel(job.id)
        while (ended_at := diary.hget("stopped", job.id)) is None:
            await asyncio.sleep(0.001)
        latencies.append(float(ended_at) - asked_at)
    at = statistics.quantiles(latencies, n=100)
    print(f"{mode}: p50 {1000 * at[49]:.1f} ms, p99 {1000 * at[98]:.1f} ms, longest {1000 * max(latencies):.1f} ms")
    await end([worker], queue)
    return at[98]


async def wait_for_workers(queue: Queue, count: int) -> None:
    while len(await queue.workers()) != count:
        await asyncio.sleep(0.05)


async def end(workers: list[subprocess.Popen[bytes]], queue: Queue) -> None:
    for process in workers:
        process.terminate()
    for process in workers:
        await asyncio.to_thread(process.wait)
    await wait_for_workers(queue, 0)


def start(mode: str, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.cancel_race", url, *mode.split()])


def main(arguments: list[str]) -> None:
    match arguments:
        case [url, "work"]:
            asyncio.run(work(url, in_threads=False))
        case [url, "threads"]:
            asyncio.run(work(url, in_threads=True))
        case [url, "cancel", number]:
            asyncio.run(cancel_all(url, int(number)))
        case _:
            with RedisServer() as server:
                is_sound = asyncio.run(race(server.url, int(arguments[0]) if arguments else 10_000))
            sys.exit(0 if is_sound else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
