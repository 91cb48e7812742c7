"""`chasqui events`: the events of a queue as they happen, one line each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ..errors import printable
from .options import CommandContext, add_common_options, queue_argument
from .values import format_iso_time, make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..events import QueueEvent


MAX_VALUE_CHARS = 80
EVENT_ID = re.compile(r"\$|[0-9]{1,20}(-[0-9]{1,20})?")


@click.command()
@queue_argument
@click.option(
    "--from",
    "start",
    metavar="ID",
    default="$",
    show_default=True,
    help="Where to begin: $ at the next event, 0 at the oldest that is kept, or behind the event of this id.",
)
@click.option("--event", "kinds", metavar="NAME", multiple=True, help="Only events of this kind; may be given again.")
@click.option("--job", "job_ids", metavar="ID", multiple=True, help="Only events of this job; may be given again.")
@click.option("--limit", type=click.IntRange(1), default=None, help="End after this many events.")
@add_common_options
def events(
    context: CommandContext,
    queue_name: str,
    start: str,
    kinds: tuple[str, ...],
    job_ids: tuple[str, ...],
    limit: int | None,
) -> None:
    """Show the events of a queue as they happen.

    A line has the time, the id of the event, its kind, the job's id and name, and what else the event says. With --json
    each event is one line of JSON. While Redis is away it waits. Ctrl-C ends it.
    """
    if not EVENT_ID.fullmatch(start):
        wanted = "$ for the next event, 0 for the oldest that is kept, or the id of an event such as 1794810739217-0"
        raise click.BadParameter(f"{start[:100]!r} must be {wanted}", param_hint="'--from'")
    filters: dict[str, Any] = {"names": kinds or None, "job_ids": job_ids or None}
    context.run(_print_events_until_limit(context, queue_name, start, filters, limit))


async def _print_events_until_limit(
    context: CommandContext, queue_name: str, start: str, filters: dict[str, Any], limit: int | None
) -> None:
    from ..events import QueueEvents

    seen = 0
    async with QueueEvents(queue_name, redis_url=context.redis_url, last_event_id=start, **filters) as reader:
        async for event in reader:
            context.output.print_line_or_json(_event_to_fields(event), _format_event(event))
            seen += 1
            if seen == limit:
                return


def _read_time_ms_in_event_id(event: QueueEvent) -> int:
    return int(event.event_id.partition("-")[0])


def _event_to_fields(event: QueueEvent) -> dict[str, Any]:
    return {
        **make_iso_and_ms_fields(at=_read_time_ms_in_event_id(event)),
        "event_id": event.event_id,
        "event": event.name,
        "job_id": event.job_id,
        "job_name": event.job_name,
        "fields": event.fields,
    }


def _format_event(event: QueueEvent) -> str:
    words = [format_iso_time(_read_time_ms_in_event_id(event)) or "-", event.event_id, printable(event.name)]
    words += [f"id={printable(event.job_id)}"] if event.job_id else []
    words += [f"name={printable(event.job_name)}"] if event.job_name else []
    words += [
        f"{printable(key)}={printable(str(value), MAX_VALUE_CHARS)}" for key, value in sorted(event.fields.items())
    ]
    return " ".join(words)
