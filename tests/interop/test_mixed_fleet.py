"""Both kinds of producers, promoters and workers on one queue, with ids that come again, and workers that are killed.

No job is lost and no id stays taken: every added job runs, and then every id may be added again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

from pychasqui import Queue, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler
from tests.interop.wire import Wire
from tests.support.programs import start_program
from tests.support.waiting import eventually

ROUNDS, IDS = 8, 60
ULIDS = [f"01M7F91ME6X32YC9GXRB8FS{number:03}" for number in range(20)]
WORKER = """
import asyncio
from pychasqui import Worker
async def handle(job):
    print(job.id, job.data, flush=True)
    await asyncio.sleep(0.02)
asyncio.run(Worker({queue!r}, handle, redis_url={url!r}, lease_ms=1000, concurrency=20).run())
"""


class Ours:
    """A worker process of ours, which says which jobs it begins, and is killed and started again."""

    def __init__(self, queue_name: str, redis_url: str) -> None:
        self._program = WORKER.format(queue=queue_name, url=redis_url)
        self.ran: list[str] = []
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await start_program(self._program)
        self._listening = asyncio.create_task(self._listen())

    async def kill(self) -> None:
        self._process.kill()
        if self._listening is not None:
            await self._listening
        await self._process.end()

    async def _listen(self) -> None:
        while (line := await self._process.stdout.readline()).endswith(b"\n"):  # the last may be cut off by the kill
            self.ran.append(line.decode().split()[1])


async def add_somehow(chance: random.Random, queue: Queue, official: Official, job_id: str, number: int) -> bool:
    """By either kind, at once or delayed. Whether it is certain that the job was added."""
    delay_ms = chance.choice((0, 0, 50, 300))
    if chance.random() < 0.5:
        return (await queue.add("n", number, job_id=job_id, delay_ms=delay_ms)).is_new
    options = f"job_id={job_id!r}" + (f", delay_ms={delay_ms}" if delay_ms else "")
    await official.add("n", number, options)
    return False  # a delayed add there says nothing of having been dropped


async def test_no_job_is_lost_and_no_id_stays_taken(
    official: Official, queue: Queue, redis_url: str, queue_name: str, wire: Wire, witness: Any
) -> None:
    chance = random.Random(34)
    ids = [*(f"order-{number}" for number in range(IDS)), *ULIDS]
    added: set[str] = set()
    handler = Handler(lasts_s=0.01)
    ours = Ours(queue_name, redis_url)
    await ours.start()
    await official.work(lasts_s=0.01, concurrency=10, claim_min_idle_ms=2000, read_block_ms=200)
    number = 0
    try:
        async with Worker(
            queue_name, handler, redis_url=redis_url, lease_ms=1000, claim_min_idle_ms=2000, concurrency=20
        ):
            for turn in range(ROUNDS):
                for job_id in chance.sample(ids, len(ids)):
                    number += 1
                    if await add_somehow(chance, queue, official, job_id, number):
                        added.add(str(number))
                plain = await queue.add_bulk({"name": "n", "data": number + 1 + n} for n in range(200))
                added |= {str(number + 1 + n) for n in range(len(plain))}
                number += 200
                if turn % 3 == 1:
                    await ours.kill()
                    await ours.start()
            await eventually(partial(is_done, wire), timeout=30)
            ran = Counter([*(run.data for run in handler.runs), *(run.data for run in official.runs), *ours.ran])
            assert added - ran.keys() == set()
            again = await queue.add_bulk({"name": "again", "job_id": job_id} for job_id in ids)
            assert [job.id for job in again if not job.is_new] == []
            await eventually(partial(is_done, wire), timeout=20)
    finally:
        await ours.kill()
    assert len(official.runs) >= 100
    assert len(handler.runs) + len(ours.ran) >= 100


async def is_done(wire: Wire) -> bool:
    return await wire.waiting() == 0 and await wire.members() == []
