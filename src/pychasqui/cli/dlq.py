"""`chasqui dlq`: lists, shows and counts dead letters. Replaying, removing, exporting and importing have own files."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ..errors import printable
from .dlq_files import export_letters, import_letters
from .dlq_letters import LETTER, LETTER_ID, add_filter_options, letter_to_fields, read_death_time_ms, summarize_letter
from .dlq_moves import remove_letters, replay_letters
from .exits import CommandFailure, ExitCode
from .known_queues import explain_empty_queue
from .options import CommandContext, add_common_options, make_limit_option, queue_argument
from .tables import Column
from .values import Kind, format_count, make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..dlq import DeadJob
    from ..queue import Queue

PEEK_COLUMNS = (
    Column("dlq_id", "dlq_id"),
    Column("source_id", "source_id", shrinks=True),
    Column("name", "name", shrinks=True),
    Column("reason", "reason", shrinks=True),
    Column("detail", "detail", shrinks=True),
    Column("payload_bytes", "payload bytes", Kind.COUNT),
)
LIST_COLUMNS = (
    Column("dlq_id", "id"),
    Column("died_at_ms", "died", Kind.TIME),
    Column("name", "name", shrinks=True),
    Column("attempts", "runs", Kind.COUNT),
    Column("summary", "error", shrinks=True, styles={"*": "red"}),
)
PIPE_COLUMNS = (*LIST_COLUMNS, Column("reason", "reason"), Column("job_id", "job"))  # a terminal has no room for all
GROUP_COLUMNS = (
    Column("count", "letters", Kind.COUNT),
    Column("name", "name", shrinks=True),
    Column("reason", "reason", shrinks=True, styles={"*": "yellow"}),
    Column("error_type", "error type", shrinks=True, styles={"*": "red"}),
    Column("first_at_ms", "first", Kind.TIME),
    Column("last_at_ms", "last", Kind.TIME),
    Column("last_id", "id of the last"),
)
TERMINAL_GROUP_COLUMNS = tuple(column for column in GROUP_COLUMNS if column.key != "first_at_ms")  # the reasons fit
SHOW_COLUMNS = (
    Column("dlq_id", "id"),
    Column("job_id", "job"),
    Column("name", "name"),
    Column("reason", "reason", styles={"*": "yellow"}),
    Column("detail", "detail"),
    Column("attempts", "runs", Kind.COUNT),
    Column("died_at_ms", "died", Kind.TIME),
    Column("worker", "worker"),
    Column("error_type", "error type"),
    Column("error", "error"),
    Column("traceback", "traceback"),
    Column("data_error", "no data"),
    Column("data", "data", Kind.DATA),
)


@click.group()
def dlq() -> None:
    """Show, replay, remove, export and import dead letters.

    A dead letter is a job that has failed for good, with what it raised. It stays until it is replayed or removed.
    """


dlq.add_command(replay_letters)
dlq.add_command(remove_letters)
dlq.add_command(export_letters)
dlq.add_command(import_letters)


@dlq.command("list")
@queue_argument
@add_filter_options
@make_limit_option(50)
@click.option("--after", type=LETTER, default=None, help="Begin behind the letter with this id.")
@add_common_options
def list_letters(
    context: CommandContext, queue_name: str, letter_filter: dict[str, Any], limit: int, after: str | None
) -> None:
    """List dead letters, oldest first.

    `chasqui dlq show QUEUE ID` shows one of them with its traceback and data.
    """
    context.run(_print_letters(context, context.make_queue(queue_name), letter_filter, limit, after or ""))


async def _print_letters(
    context: CommandContext, queue: Queue, letter_filter: dict[str, Any], limit: int, after: str
) -> None:
    async with queue:
        found = await queue.dlq.page(limit=limit + 1, after=after, **letter_filter)
        dropped = await queue.dlq.dropped()
    such = "such " if letter_filter or after else ""
    empty = (
        "" if found else await explain_empty_queue(context, queue.name, f"queue {queue.name} has no {such}dead letters")
    )
    letters, is_cut = found[:limit], len(found) > limit
    context.output.print_table_or_json(
        "letters",
        LIST_COLUMNS if context.output.is_terminal else PIPE_COLUMNS,
        [{**letter_to_fields(one), "summary": summarize_letter(one)} for one in letters],
        empty=empty,
        queue=queue.name,
        next=letters[-1].dlq_id if is_cut else None,
        dropped=dropped,
    )
    if is_cut and not context.output.is_json:
        context.output.print_message_to_stderr(
            f"there are more: --after {letters[-1].dlq_id} shows the next, --limit more at once"
        )
    if dropped and not context.output.is_json:
        context.output.print_message_to_stderr(
            f"the queue has dropped {format_count(dropped, 'older letter')}, because there was no room"
        )


@dlq.command()
@queue_argument
@make_limit_option(20)
@add_common_options
def peek(context: CommandContext, queue_name: str, limit: int) -> None:
    """Show the first dead letters, and how many of them have which reason."""
    context.run(_print_first_letters(context, context.make_queue(queue_name), limit))


async def _print_first_letters(context: CommandContext, queue: Queue, limit: int) -> None:
    async with queue:
        letters = await queue.dlq.page(limit=limit)
    reasons = Counter(letter.reason for letter in letters)
    empty = "" if letters else await explain_empty_queue(context, queue.name, f"queue {queue.name} has no dead letters")
    context.output.print_table_or_json(
        "letters",
        PEEK_COLUMNS,
        [letter_to_fields(letter) for letter in letters],
        empty=empty,
        queue=queue.name,
        reasons=dict(reasons),
    )
    if letters and not context.output.is_json:
        counted = [{"reason": reason, "count": count} for reason, count in reasons.most_common()]
        context.output.print_text("")
        context.output.print_table_or_json(
            "reasons", (Column("reason", "reason"), Column("count", "letters", Kind.COUNT)), counted
        )


@dlq.command()
@queue_argument
@add_filter_options
@add_common_options
def groups(context: CommandContext, queue_name: str, letter_filter: dict[str, Any]) -> None:
    """Count dead letters by name, reason and type of error.

    It reads all letters. The largest group is first.
    """
    context.run(_print_letter_groups(context, context.make_queue(queue_name), letter_filter))


async def _print_letter_groups(context: CommandContext, queue: Queue, letter_filter: dict[str, Any]) -> None:
    found: dict[tuple[str, str, str | None], tuple[int, DeadJob, DeadJob]] = {}
    async with queue:
        async for letter in queue.dlq.search(**letter_filter):
            kind = letter.name, letter.reason, letter.error_type
            count, first, _ = found.get(kind, (0, letter, letter))
            found[kind] = count + 1, first, letter
    records = [
        {
            **dict(zip(("name", "reason", "error_type"), kind, strict=True)),
            "count": count,
            **make_iso_and_ms_fields(first_at=read_death_time_ms(first), last_at=read_death_time_ms(last)),
            "last_id": last.dlq_id,
            "last_error": summarize_letter(last),
        }
        for kind, (count, first, last) in sorted(found.items(), key=lambda one: -one[1][0])
    ]
    such = "such " if letter_filter else ""
    empty = (
        "" if found else await explain_empty_queue(context, queue.name, f"queue {queue.name} has no {such}dead letters")
    )
    columns = TERMINAL_GROUP_COLUMNS if context.output.is_terminal else GROUP_COLUMNS
    context.output.print_table_or_json("groups", columns, records, empty=empty, queue=queue.name)


@dlq.command()
@queue_argument
@click.argument("wanted", metavar="ID")
@add_common_options
def show(context: CommandContext, queue_name: str, wanted: str) -> None:
    """Show one dead letter: what the job raised, and its data.

    ID is the id of the letter or of its job; of several letters of one job the newest is shown.
    """
    context.run(_print_letter_or_fail(context, context.make_queue(queue_name), wanted))


async def _print_letter_or_fail(context: CommandContext, queue: Queue, letter_or_job_id: str) -> None:
    async with queue:
        letters = await queue.dlq.page(limit=1, ids=[letter_or_job_id]) if LETTER_ID.fullmatch(letter_or_job_id) else []
        letters = letters or [letter async for letter in queue.dlq.search(job_id=letter_or_job_id)]
    if not letters:
        raise CommandFailure(
            f"queue {queue.name} has no dead letter {printable(letter_or_job_id)!r}, nor one of a job of that id: "
            f"chasqui dlq list {queue.name} lists them, chasqui job {printable(letter_or_job_id)} shows where a job is",
            ExitCode.NOT_FOUND,
        )
    if len(letters) > 1:
        context.output.print_message_to_stderr(f"the job has {len(letters)} dead letters; this is the newest")
    record = letter_to_fields(letters[-1])
    left_out = {column.key for column in islice(SHOW_COLUMNS, 4, None) if record.get(column.key) is None}
    columns = [column for column in SHOW_COLUMNS if column.key not in left_out or column.key == "data"]
    context.output.print_facts_or_json(columns, {"queue": queue.name, **record})
