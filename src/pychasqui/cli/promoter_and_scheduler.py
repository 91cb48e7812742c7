"""`chasqui promoter` and `chasqui scheduler`: the parts of a worker that serve a whole queue, as own processes."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from .. import __version__
from ..errors import InvalidArgument
from ..settings import SETTINGS
from .addresses import redis_url_option
from .loops import choose_loop
from .options import ABOUT_URL, find_typed_or_configured_redis_url
from .standard_streams import print_to_stderr

if TYPE_CHECKING:
    from ..standalone import Promoter, Scheduler

    Leader = Promoter | Scheduler

queues_argument = click.argument("queue_names", metavar="QUEUE...", nargs=-1, required=True)
url_option = redis_url_option(variables=list(SETTINGS["redis_url"].all_variables), default=None, about=ABOUT_URL)


ABOUT = """{summary}

Every worker does this; a {role} is for queues whose workers are scaled down to none, or have it turned off. Of all that
run one leads, and the others take over if it ends.

SIGINT (Ctrl-C) or SIGTERM end it with exit code 0.
"""


def _make_role_command(
    summary: str,
    role: str,
    interval_option: str,
    looked_for: str,
    make_leader: Callable[[str, str, int | None], Leader],
) -> click.Command:
    """The command of a role, with the option that says how often it looks."""

    @click.command(role, help=ABOUT.format(summary=summary, role=role))
    @queues_argument
    @click.option(
        interval_option, type=click.IntRange(10, 60_000), default=None, help=f"How often to look for {looked_for}."
    )
    @url_option
    def run_role(queue_names: tuple[str, ...], redis_url: str | None, **option: int | None) -> None:
        url, (interval_ms,) = find_typed_or_configured_redis_url(redis_url).value, option.values()
        _run_role_for_queues(role, queue_names, lambda name: make_leader(name, url, interval_ms))

    return run_role


def _make_promoter(name: str, url: str, every_ms: int | None) -> Promoter:
    from ..standalone import Promoter  # here and below, so that --help does not wait for the import

    return Promoter(name, redis_url=url, poll_interval_ms=every_ms)


def _make_scheduler(name: str, url: str, every_ms: int | None) -> Scheduler:
    from ..standalone import Scheduler

    return Scheduler(name, redis_url=url, tick_interval_ms=every_ms)


promoter = _make_role_command(
    "Move due delayed jobs to their queues.",
    "promoter",
    "--poll-interval-ms",
    "due jobs that official producers have added",
    _make_promoter,
)
scheduler = _make_role_command(
    "Fire due repeatables.",
    "scheduler",
    "--tick-interval-ms",
    "repeatables that official producers have stored",
    _make_scheduler,
)


def _run_role_for_queues(role: str, queue_names: Sequence[str], make_leader: Callable[[str], Leader]) -> None:
    try:
        leaders = [make_leader(name) for name in dict.fromkeys(queue_names)]
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        runner.run(_run_until_signal(role, leaders))


async def _run_until_signal(role: str, leaders: Sequence[Leader]) -> None:
    def stop_all() -> None:
        for leader in leaders:
            leader.shutdown()

    running = [asyncio.create_task(leader.run()) for leader in leaders]
    await asyncio.sleep(0)  # all have begun before a signal can stop them
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop_all)
    facts = {"redis": leaders[0].redis_address, "queues": ", ".join(leader.queue_name for leader in leaders)}
    lines = [f"pychasqui {__version__} {role}", *(f"  {name:<12} {value}" for name, value in facts.items())]
    print_to_stderr("\n".join(lines))
    try:
        await asyncio.gather(*running)
    finally:  # if one has failed for good, the others end with it
        stop_all()
        await asyncio.wait(running)
