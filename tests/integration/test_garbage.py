"""A worker that drains its queue leaves Python's garbage collector nothing to do: a full collection stops the loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.support.server import RedisServer

PROGRAM = """
import asyncio, gc, sys
from pychasqui import Queue, Worker

BULKS, BULK = 30, 1000
collections = [0, 0, 0]

def count(phase, info):
    collections[info["generation"]] += phase == "start"

async def main(url, events_enabled):
    async with Queue("q", redis_url=url) as queue:
        for _ in range(BULKS):
            await queue.add_bulk([{"name": "mail", "data": {"to": "ada@example.org"}}] * BULK)
    done, ran = asyncio.Event(), 0

    async def handle(job):
        nonlocal ran
        ran += 1
        if ran == BULKS * BULK:
            done.set()

    async with Worker("q", handle, redis_url=url, events_enabled=events_enabled):
        gc.collect()
        gc.callbacks.append(count)
        await done.wait()
        gc.callbacks.remove(count)
    print(*collections)

asyncio.run(main(sys.argv[1], sys.argv[2] == "True"))
"""


@pytest.mark.parametrize("events_enabled", (True, False))
async def test_30_000_jobs_take_few_short_collections_and_no_longer_one(events_enabled: bool) -> None:
    with RedisServer(tcp=True) as server:  # its own: batches are larger for a worker that is alone on its server
        command = [sys.executable, "-c", PROGRAM, server.url, str(events_enabled)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    young, middle, full = map(int, done.stdout.split())
    assert young <= 30  # 3 on a quiet machine; 46 to 63 with reads of 600
    assert (middle, full) in ((0, 0), (1, 0))
