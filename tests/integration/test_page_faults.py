"""Bulks use the memory of the bulk before: giving it back to the system and asking for it again costs page faults."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from pychasqui import Queue

PROGRAM = """
import asyncio, resource, sys
from pychasqui import Queue

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

async def main():
    jobs = [{"name": "mail", "data": "x" * 200}] * 1000
    async with Queue(sys.argv[1], redis_url=sys.argv[2]) as queue:
        for _ in range(20):
            await queue.add_bulk(jobs)
        before = page_faults()
        for _ in range(50):
            await queue.add_bulk(jobs)
        print((page_faults() - before) / 50)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is about the allocator of Linux")
async def test_a_bulk_takes_no_new_memory_from_the_system(queue: Queue, redis_url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, queue.name, redis_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 20
    await queue.purge("waiting")
