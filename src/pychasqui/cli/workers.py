"""`chasqui workers`: the living workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .each_queue import read_each_queue_warning_of_unreadable
from .options import CommandContext, add_common_options, queues_argument
from .ps import use_given_or_find_all_queue_names
from .tables import Column
from .values import Kind, make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..inspector import WorkerInfo


COLUMNS = (
    Column("queue", "queue", shrinks=True),
    Column("worker", "worker", shrinks=True),
    Column("host", "host", shrinks=True),
    Column("pid", "pid"),
    Column("started_at_ms", "started", Kind.TIME),
    Column("busy", "busy", Kind.COUNT, styles={"*": "green"}),
    Column("concurrency", "of", Kind.COUNT),
    Column("runs", "runs", shrinks=True),
)


@click.command()
@queues_argument
@add_common_options
def workers(context: CommandContext, queue_names: tuple[str, ...]) -> None:
    """Show the living workers.

    Each worker of pychasqui describes itself every few seconds: where it is, how many of its handlers run, and the
    first of their jobs. Official workers do not; `chasqui ps` counts them. Without QUEUE it shows the workers of all
    queues.
    """
    context.run(_print_workers(context, queue_names))


async def _print_workers(context: CommandContext, names: Sequence[str]) -> None:
    async with context.make_queues() as queues:
        chosen = await use_given_or_find_all_queue_names(context, queues, names)
        found = await read_each_queue_warning_of_unreadable(context, chosen, queues.workers, are_named=bool(names))
    records = [_worker_to_fields(name, one) for name, some in found.items() for one in some]
    context.output.print_table_or_json("workers", COLUMNS, records, empty="no worker lives")


def _worker_to_fields(queue: str, info: WorkerInfo) -> dict[str, Any]:
    known = {"queue": queue, "worker": info.consumer_id}
    if info.error is not None:
        return {**known, "runs": f"cannot be read: {info.error}", "error": info.error}
    return {
        **known,
        "host": info.host,
        "pid": info.pid,
        **make_iso_and_ms_fields(started_at=info.started_at_ms),
        "busy": info.busy,
        "concurrency": info.concurrency,
        "job_ids": info.job_ids,
        "runs": ", ".join(info.job_ids) or None,
    }
