"""A worker in a process of its own, which says how much memory it needed: python -m tests.support.large_worker.

Prints, when it has run that many jobs: how many ids it has seen, and its memory before and at its peak in MiB.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pychasqui import Job, Worker


def mebibytes(line: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(words[1] for words in map(str.split, status.splitlines()) if words[0] == f"{line}:")) // 1024


async def run(url: str, queue_name: str, jobs: int) -> None:
    seen: list[str] = []
    is_done = asyncio.Event()

    async def handle(job: Job) -> None:
        seen.append(job.id)
        if len(seen) == jobs:
            is_done.set()

    before = mebibytes("VmRSS")
    async with Worker(queue_name, handle, redis_url=url, concurrency=10):
        async with asyncio.timeout(60):
            await is_done.wait()
    sys.stdout.write(f"{len(seen)} {len(set(seen))} {before} {mebibytes('VmHWM')}\n")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
