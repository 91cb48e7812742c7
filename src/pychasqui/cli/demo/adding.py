"""The process that adds jobs: an act for each order it is given."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic, monotonic_ns
from typing import Any

from ... import Queue, QueueEvents
from ..exits import run_to_exit_code
from ..loops import choose_loop
from .messages import Act, Plan, Progress, orders, read_act, read_plan, report
from .scenes import play_scenes

BULK_JOBS = 1000
TRICKLE_PAUSE_S = 0.001  # long enough for the worker to fall idle again
TRICKLE_REPORT_JOBS = 50


async def add_jobs() -> None:
    lines = orders()
    plan = read_plan(await anext(lines))
    async with Queue(plan.queue, redis_url=plan.url) as queue:
        await queue.add("warm-up")  # so that the connection is made before the clock runs
        report(Progress())
        async for line in lines:
            match read_act(line):
                case Act.BURST:
                    await add_burst(queue, plan)
                case Act.TRICKLE:
                    await add_trickle(queue, plan)
                case Act.SCENES:
                    await add_scenes(plan)


async def add_burst(queue: Queue, plan: Plan) -> None:
    began = monotonic()
    for first in range(0, plan.burst, BULK_JOBS):
        numbers = range(first, min(first + BULK_JOBS, plan.burst))
        now = monotonic_ns()
        await queue.add_bulk({"name": "burst", "data": job_data(number, now)} for number in numbers)
        report(Progress(numbers.stop, monotonic() - began))


async def add_trickle(queue: Queue, plan: Plan) -> None:
    began = monotonic()
    for count in range(1, plan.trickle + 1):
        await queue.add("trickle", job_data(plan.burst + count - 1, monotonic_ns()))
        if count % TRICKLE_REPORT_JOBS == 0 or count == plan.trickle:
            report(Progress(count, monotonic() - began))
        await asyncio.sleep(TRICKLE_PAUSE_S)


async def add_scenes(plan: Plan) -> None:
    async with (
        Queue(plan.scenes_queue, redis_url=plan.url) as queue,
        QueueEvents(plan.scenes_queue, redis_url=plan.url) as events,
    ):
        await play_scenes(queue, events, report)
        await queue.obliterate()


def job_data(number: int, added_at: int) -> dict[str, Any]:
    return {"number": number, "added_at": added_at}


def main() -> int:
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        return run_to_exit_code(lambda: runner.run(add_jobs()))


if __name__ == "__main__":
    sys.exit(main())
