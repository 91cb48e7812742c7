"""`chasqui demo`: this process (run.py) adds jobs, two others (process.py) run them, and one of the two is killed."""

from __future__ import annotations

import click

from ..addresses import redis_url_option
from ..interrupts import ctrl_c_kills_process


@click.command()
@click.option(
    "--jobs", type=click.IntRange(1, 10_000_000), default=100_000, show_default=True, help="How many jobs to run."
)
@redis_url_option(
    variables=["CHASQUI_DEMO_REDIS_URL"],  # not that of the other commands: nobody means to run a demo in production
    default=None,
    about="A server to use, instead of a private one that is gone afterwards.",
)
def demo(jobs: int, redis_url: str | None) -> None:
    """Watch 100,000 jobs go through a queue.

    Starts a private server and two worker processes, and adds the jobs in bulk. Some fail and are retried, some are
    delayed, some end as dead letters. When half of the jobs are done, one worker process is killed, and the other one
    takes over its jobs. A table at the end shows that each job ran exactly once, except for those that the kill made
    run again. Fails if a job is missing, or ran twice for another reason.
    """
    with ctrl_c_kills_process():
        from .run import run_demo  # here, so that --help does not wait for the import

    run_demo(jobs, redis_url)
