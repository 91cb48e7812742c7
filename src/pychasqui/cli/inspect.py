"""`chasqui inspect` and `chasqui watch`: the facts that the official commands of these names show."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .each_queue import read_each_queue_warning_of_unreadable
from .options import CommandContext, add_common_options, group_option, queue_argument, queues_argument
from .ps import use_given_or_find_all_queue_names
from .tables import Column
from .values import Kind, make_iso_and_ms_fields, now_ms

if TYPE_CHECKING:
    from ..queues import OfficialFacts


COLUMNS = (
    Column("fact", "fact"),
    Column("value", "value", Kind.COUNT),
)
WATCH_COLUMNS = (*COLUMNS, Column("change", "change"))
TITLES = {
    "stream_depth": "stream depth",
    "pending": "pending",
    "dlq_depth": "DLQ depth",
    "delayed_depth": "delayed depth",
    "oldest_delayed_lag_ms": "oldest delayed lag (ms)",
    "repeatable_count": "repeatable count",
}
WITH_CHANGE = ("stream_depth", "dlq_depth")
NO_GROUP = "0 (group not created)"


@click.command("inspect")
@queues_argument
@group_option
@add_common_options
def inspect_queues(context: CommandContext, queue_names: tuple[str, ...], group: str) -> None:
    """Show the depths of a queue's keys.

    The rows are those of the official command: the stream holds jobs that wait and that run, pending ones are given to
    workers. Without QUEUE it shows all queues of the server.
    """
    context.run(_print_facts(context, queue_names, group))


async def _print_facts(context: CommandContext, names: Sequence[str], group: str) -> None:
    async with context.make_queues() as queues:
        chosen = await use_given_or_find_all_queue_names(context, queues, names)
        facts = await read_each_queue_warning_of_unreadable(
            context, chosen, lambda name: queues.official_facts(name, group=group), are_named=bool(names)
        )
    if context.output.is_json:
        context.output.print_json_list("queues", [_facts_to_fields(name, one) for name, one in facts.items()])
        return
    if not chosen:
        context.output.print_message_to_stderr("there are no queues")
    for place, (name, one) in enumerate(facts.items()):
        context.output.print_text(f"{chr(10) if place else ''}{name}")
        context.output.print_table_or_json("facts", COLUMNS, _make_rows(one))


@click.command()
@queue_argument
@click.option(
    "--interval-ms",
    type=click.IntRange(50, 3_600_000),
    default=1000,
    show_default=True,
    help="How often to look.",
)
@group_option
@add_common_options
def watch(context: CommandContext, queue_name: str, interval_ms: int, group: str) -> None:
    """Show the depths of a queue's keys again and again.

    Beside the depths of the stream and of the dead letters stands how they have changed since the last look. With
    --json each look is one line. Ctrl-C ends it.
    """
    context.run(_print_facts_repeatedly(context, queue_name, interval_ms, group))


async def _print_facts_repeatedly(context: CommandContext, name: str, interval_ms: int, group: str) -> None:
    output, before = context.output, None
    async with context.make_queues() as queues:
        while True:
            facts = await queues.official_facts(name, group=group)
            if output.is_json:
                output.print_json({**make_iso_and_ms_fields(at=now_ms()), **_facts_to_fields(name, facts)})
            else:
                with output.redraw_frame():
                    output.print_text(f"{name}, every {interval_ms} ms")
                    output.print_table_or_json("facts", WATCH_COLUMNS, _make_rows(facts, before or facts))
            before = facts
            await asyncio.sleep(interval_ms / 1000)


def _facts_to_fields(name: str, facts: OfficialFacts) -> dict[str, Any]:
    return {"queue": name, **asdict(facts), "pending": facts.pending or 0, "group_exists": facts.pending is not None}


def _make_rows(facts: OfficialFacts, earlier_facts: OfficialFacts | None = None) -> list[dict[str, Any]]:
    rows = []
    for key, value in asdict(facts).items():
        shown = NO_GROUP if key == "pending" and value is None else value
        change = value - getattr(earlier_facts, key) if earlier_facts is not None and key in WITH_CHANGE else None
        rows.append({"fact": TITLES[key], "value": shown, "change": "" if change is None else f"{change:+,}"})
    return rows
