"""`chasqui ps`: one row a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..errors import ReplyError
from .exits import CommandFailure, ExitCode
from .options import CommandContext, add_common_options, queues_argument
from .tables import Column
from .values import Kind

if TYPE_CHECKING:
    from ..queues import QueueOverview, Queues


STYLES = {"ok": "dim", "paused": "yellow", "no worker": "yellow", "*": "red"}
COLUMNS = (
    Column("name", "queue", shrinks=True),
    Column("waiting", "waiting", Kind.COUNT),
    Column("running", "running", Kind.COUNT, styles={"*": "green"}),
    Column("delayed", "delayed", Kind.COUNT),
    Column("dead", "dead", Kind.COUNT, styles={"*": "red"}),
    Column("rate", "done/s", Kind.RATE),
    Column("oldest_age_ms", "oldest", Kind.SPAN),
    Column("workers", "workers", Kind.COUNT),
    Column("state", "state", shrinks=True, styles=STYLES),
)
ONE_BY_ONE = (
    "not all keys could be looked at, and queues that only official processes use may be missing: "
    "name the queues to see"
)


@click.command()
@queues_argument
@add_common_options
def ps(context: CommandContext, queue_names: tuple[str, ...]) -> None:
    """Show all queues, one row each.

    Shows how many jobs wait, run, are delayed and are dead, how many are done a second, how long ago the oldest job
    that is not done came into the queue, and how many workers live. Without QUEUE it looks for the queues of the
    server.
    """
    context.run(_print_queues(context, queue_names))


async def _print_queues(context: CommandContext, names: Sequence[str]) -> None:
    async with context.make_queues() as queues:
        overviews = await queues.overview(await use_given_or_find_all_queue_names(context, queues, names))
    records = [_queue_to_fields(one) for one in overviews]
    is_plain = context.output.is_terminal and all(record["state"] == "ok" for record in records)
    columns = COLUMNS[:-1] if is_plain else COLUMNS  # a narrow terminal has room for longer names then
    context.output.print_table_or_json("queues", columns, records, empty="there are no queues")


async def use_given_or_find_all_queue_names(context: CommandContext, queues: Queues, names: Sequence[str]) -> list[str]:
    """The given names, each once; without any those of all queues that are found."""
    if names:
        return list(dict.fromkeys(names))
    try:
        found = await queues.find_names()
    except ReplyError as error:
        if error.code != "NOPERM":
            raise
        refused = "this user may neither read the registry of queues nor look for queues by SCAN"
        raise CommandFailure(f"{refused}: name the queues", ExitCode.REDIS) from None
    if not found.is_complete:
        context.output.print_message_to_stderr(f"Warning: {ONE_BY_ONE}")
    return found.names


def _queue_to_fields(overview: QueueOverview) -> dict[str, Any]:
    record = asdict(overview)
    if overview.error is not None:
        return {"name": overview.name, "state": f"cannot be read: {overview.error}", "error": overview.error}
    if overview.is_paused:
        state = "paused"
    elif not overview.workers and (overview.waiting or overview.running):
        state = "no worker"
    else:
        state = "ok"
    return {**record, "state": state}
