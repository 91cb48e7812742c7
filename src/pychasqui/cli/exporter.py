"""`chasqui exporter`: serves the state of queues to Prometheus until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from .. import __version__
from ..errors import CommandTimeout, ConnectionLost, InvalidArgument, ReplyError
from ..settings import SETTINGS
from .addresses import redis_url_option
from .interrupts import ctrl_c_kills_process
from .loops import choose_loop
from .options import ABOUT_URL, find_typed_or_configured_redis_url
from .standard_streams import print_to_stderr

if TYPE_CHECKING:
    from ..queue import Queue

log = logging.getLogger("chasqui.exporter")

REFUSED_USER = ("NOAUTH", "WRONGPASS", "NOPERM")

HOST, PORT = "127.0.0.1", 9401
TIMEOUT_S = 3.0  # less than a page may take, so that a scrape is answered while Redis is unreachable


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@redis_url_option(variables=list(SETTINGS["redis_url"].all_variables), default=None, about=ABOUT_URL)
@click.option(
    "--host",
    default=HOST,
    show_default=True,
    help="The address to listen on; 0.0.0.0 for all.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port; 0 for any that is free."
)
def exporter(queues: tuple[str, ...], redis_url: str | None, host: str, port: int) -> None:
    """Serve the state of queues to Prometheus.

    Serves /metrics: jobs in each state, the age of the oldest, pauses, workers, repeatables. A request
    for a page asks Redis, at most once a second. /healthz is 200 while the process runs, /readyz while Redis answers.
    One exporter is enough for all workers of a queue. It has no password: let only Prometheus reach it.

    SIGINT (Ctrl-C) or SIGTERM end it with exit code 0.
    """
    with ctrl_c_kills_process():
        from ..queue import Queue  # here and below, so that --help does not wait for the import

    try:
        url = find_typed_or_configured_redis_url(redis_url).value
        opened = [Queue(name, redis_url=url, timeout_s=TIMEOUT_S) for name in dict.fromkeys(queues)]
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=choose_loop("auto").factory) as runner:
        runner.run(_serve_until_signal(opened, host, port))


async def _serve_until_signal(queues: list[Queue], host: str, port: int) -> None:
    from ..exporter import QueueExporter

    async with AsyncExitStack() as stack:
        for queue in queues:
            await stack.enter_async_context(queue)
        exporter = await stack.enter_async_context(QueueExporter(queues, metrics_host=host, metrics_port=port))
        serving = asyncio.create_task(exporter.run(handle_signals=True))
        looking = asyncio.create_task(_warn_if_unreachable_or_raise(queues[0]))
        try:
            await asyncio.wait([serving, looking], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():  # no signal has come
                looking.result()
                print_to_stderr(make_banner(queues, f"http://{host}:{exporter.metrics_port}"))
            await serving
        finally:
            serving.cancel()
            looking.cancel()
            await asyncio.gather(serving, looking, return_exceptions=True)


async def _warn_if_unreachable_or_raise(queue: Queue) -> None:
    """Logs that Redis does not answer as it should, which may pass; raises what the user has to change."""
    try:
        await queue.is_paused()
    except (ConnectionLost, CommandTimeout, ReplyError) as error:
        if isinstance(error, ReplyError) and error.code in REFUSED_USER:
            raise
        log.warning("Redis cannot be reached; chasquimq_queue_up is 0 until it answers: %s", error)


def make_banner(queues: list[Queue], address: str) -> str:
    facts = {
        "redis": queues[0].redis_address,
        "queues": ", ".join(queue.name for queue in queues),
        "metrics": f"{address}/metrics",
    }
    return "\n".join([f"pychasqui {__version__} exporter", *(f"  {name:<12} {value}" for name, value in facts.items())])
