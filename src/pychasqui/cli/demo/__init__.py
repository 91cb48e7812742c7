"""`chasqui demo`: one process adds jobs, another runs them, and this one shows how fast and whether all is well.

stage.py      the server it runs on, from its start to its end
play.py       the acts, in order
child.py      a process of the demo, as seen from here
messages.py   what the processes tell each other
adding.py     the process that adds
scenes.py     retries, delays, dead letters, schedules and results, a short scene each
working.py    the process that runs the jobs
tally.py      which jobs ran, how often, and how long they had waited
screen.py     lines while it runs; bars.py: bars on a terminal
report.py     the table at the end, and whether all is well
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from uuid import uuid4

import click

from ... import __version__
from ...errors import InvalidArgument
from ..addresses import redis_url_option
from ..exits import CommandFailure, ExitCode
from .messages import Plan
from .play import Findings, perform
from .report import print_report, refuse_flaws
from .screen import make_screen
from .stage import Stage

TRICKLE_JOBS = 2000


@click.command()
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="How many to run in the burst.",
)
@redis_url_option(
    variables=["CHASQUI_DEMO_REDIS_URL"],  # not that of the other commands: nobody means to run a demo in production
    default=None,
    about="A server to use, instead of a private one that is gone afterwards.",
)
def demo(jobs: int, redis_url: str | None) -> None:
    """Watch 100,000 jobs go through a queue.

    Starts a private server, a process that adds jobs and a process that runs them. First a burst: all jobs, as fast as
    they go in. Then up to 2,000 jobs one by one on the idle queue, to see how long a job takes from its add to its
    start. In the end a retry, a delay, a dead job brought back, a schedule and results. Fails if any job did not run or
    ran twice, or if a scene went wrong.
    """
    queue_name = f"demo-{uuid4().hex[:12]}"
    try:
        stage = Stage(redis_url, queue_name)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="'--redis-url'") from None
    plan = Plan(stage.url, queue_name, burst=jobs, trickle=min(jobs, TRICKLE_JOBS))
    with stage:
        try:
            findings = asyncio.run(_run(stage, plan))
        except asyncio.CancelledError:
            raise CommandFailure("terminated", ExitCode.TERMINATED) from None
    print_report(findings)
    refuse_flaws(findings)


async def _run(stage: Stage, plan: Plan) -> Findings:
    _end_on_sigterm()
    async with stage.look() as server:
        with make_screen() as screen:
            screen.say(f"pychasqui {__version__} on {server}")
            return await perform(plan, screen)


def _end_on_sigterm() -> None:
    """In order, as on Ctrl-C, which asyncio sees to: nothing may be left running."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
