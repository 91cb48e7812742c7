"""Handlers with random timeouts are stopped in time: `python -m tests.chaos.random_timeouts [JOBS]`, by hand.

One worker runs all of them at once. Each handler must be cancelled at its timeout or up to 60 ms after it, by its own
clock, and none before it. Exit status 1 if that does not hold, which a busy machine is enough for.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import sys
import time
from datetime import timedelta
from typing import Any

from pychasqui import Job, Queue, Worker
from tests.support.server import RedisServer

BOUND_S = 0.06


async def measure_lateness_s(url: str, count: int) -> list[float]:
    """Runs the jobs; returns for each by how much its handler outlived its timeout."""
    late_s: list[float] = []
    all_stopped = asyncio.Event()

    async def wait_for_long(job: Job) -> None:
        began = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            late_s.append(time.monotonic() - began - job.data)
            if len(late_s) == count:
                all_stopped.set()

    options: dict[str, Any] = {"redis_url": url, "concurrency": count, "max_attempts": 1, "events_enabled": False}
    async with Queue("timeouts", redis_url=url) as queue, Worker("timeouts", wait_for_long, **options):
        for _ in range(count):
            span_s = random.uniform(0.05, 3.0)
            await queue.add("wait", span_s, timeout=timedelta(seconds=span_s))
            await asyncio.sleep(random.uniform(0, 0.006))
        await asyncio.wait_for(all_stopped.wait(), 60)
    return late_s


def main(count: int) -> None:
    logging.getLogger("chasqui").setLevel(logging.CRITICAL)  # every job dies
    with RedisServer() as server:
        late_s = asyncio.run(measure_lateness_s(server.url, count))
    at = statistics.quantiles(late_s, n=100)
    print(
        f"{len(late_s)} handlers were stopped after their timeout by: least {1000 * min(late_s):.1f} ms, "
        f"p50 {1000 * at[49]:.1f}, p99 {1000 * at[98]:.1f}, most {1000 * max(late_s):.1f}"
    )
    sys.exit(0 if min(late_s) >= -0.001 and max(late_s) <= BOUND_S else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
