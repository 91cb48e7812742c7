"""The process that runs the jobs: until its orders end, then it drains and gives its verdict."""

from __future__ import annotations

import asyncio
import logging
import sys
from time import monotonic_ns

from ... import Job, Worker
from ..exits import run_to_exit_code
from ..loops import choose_loop
from .messages import Progress, orders, read_plan, report
from .tally import Tally

REPORT_EVERY_S = 0.05
_died: set[str] = set()


async def run_jobs() -> None:
    lines = orders()
    plan = read_plan(await anext(lines))
    tally = Tally(plan)

    async def handle(job: Job) -> None:
        if job.data is not None:  # the warm-up has none
            tally.note(job.data["number"], job.data["added_at"], monotonic_ns())

    async with (
        Worker(plan.queue, handle, redis_url=plan.url),
        Worker(plan.scenes_queue, act, redis_url=plan.url, store_results=True),
    ):
        report(Progress())
        reporting = asyncio.create_task(report_changes(tally))
        async for _ in lines:
            pass  # it has no orders to follow, only their end
        reporting.cancel()
    report(tally.judge())


async def act(job: Job) -> object:
    """What the small scenes ask for."""
    if job.name == "fail twice" and job.attempt < 2:
        raise ValueError("not yet")
    if job.name == "hopeless until it is replayed" and job.id not in _died:
        _died.add(job.id)
        raise LookupError("nothing there")
    return job.data if job.name == "echo" else job.attempt + 1 if job.name == "fail twice" else "done"


async def report_changes(tally: Tally) -> None:
    """Silence means that nothing has run since the last report."""
    reported = 0
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        if tally.count != reported:
            reported = tally.count
            report(tally.progress())


def main() -> int:
    logging.getLogger("chasqui").setLevel(logging.ERROR)  # that a job is dead is part of the play
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        return run_to_exit_code(lambda: runner.run(run_jobs()))


if __name__ == "__main__":
    sys.exit(main())
