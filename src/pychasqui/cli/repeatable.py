"""`chasqui repeatable`: lists, stores, pauses, resumes, fires and removes the repeatables of a queue."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidArgument, InvalidType, printable
from ..retry import BackoffSpec
from ..schedule import MissedFiresPolicy, RepeatPattern
from .confirm import confirm_or_end_command, dry_run_option, yes_option
from .data_argument import read_data_from_json_or_file
from .exits import CommandFailure, ExitCode
from .moments import MOMENT
from .options import SPAN, CommandContext, add_common_options, make_limit_option, queue_argument
from .repeatable_files import apply
from .tables import Column
from .values import Kind, format_iso_time, format_span, make_iso_and_ms_fields
from .wanted_repeatable import WantedRepeatable, make_pattern_of_every_or_cron

if TYPE_CHECKING:
    from ..queue import Queue
    from ..repeatables import Repeatable, RepeatableMeta

MAX_MERGED = 1000  # repeatables that `next` without a key looks at
PREVIEWED = 5

LIST_COLUMNS = (
    Column("key", "key"),  # not cut: it is what the other commands take
    Column("job_name", "job_name", shrinks=True),
    Column("pattern", "pattern", shrinks=True),
    Column("tz", "tz", shrinks=True),
    Column("next_fire_ms", "next fire", Kind.TIME),
    Column("limit", "limit", Kind.COUNT),
    Column("fired", "fired", Kind.COUNT),
    Column("state", "state", styles={"active": "green", "paused": "yellow"}),
)
NEXT_COLUMNS = (
    Column("fires_at", "time"),
    Column("fires_at_ms", "from now", Kind.TIME),
    Column("key", "key", shrinks=True),
    Column("job_name", "job_name", shrinks=True),
)


@click.group()
def repeatable() -> None:
    """Show and change the jobs that a queue adds again and again."""


repeatable.add_command(apply)
key_argument = click.argument("key", metavar="KEY")


@repeatable.command("list")
@queue_argument
@make_limit_option(100)
@add_common_options
def list_repeatables(context: CommandContext, queue_name: str, limit: int) -> None:
    """List the repeatables, those that fire next first."""
    context.run(_print_repeatables(context, context.make_queue(queue_name), limit))


async def _print_repeatables(context: CommandContext, queue: Queue, limit: int) -> None:
    async with queue:
        metas = await queue.repeatables.page(limit)
    records = [repeatable_to_fields(meta) for meta in metas]
    empty = f"queue {queue.name} has no repeatables"
    context.output.print_table_or_json("repeatables", LIST_COLUMNS, records, empty=empty, queue=queue.name)


def repeatable_to_fields(meta: RepeatableMeta) -> dict[str, Any]:
    pattern = meta.pattern
    return {
        "key": meta.key,
        "job_name": meta.job_name,
        "pattern": describe_pattern(pattern),
        "tz": pattern.tz,
        "every_ms": pattern.interval_ms,
        "cron": pattern.expression,
        **make_iso_and_ms_fields(next_fire=None if meta.is_paused else meta.next_fire_ms),
        "limit": meta.limit,
        "fired": meta.fired,
        "state": "paused" if meta.is_paused else "active",
        **make_iso_and_ms_fields(start_after=meta.start_after_ms, end_before=meta.end_before_ms),
        "missed_fires": (meta.missed_fires or MissedFiresPolicy.skip()).to_dict(),
    }


def describe_pattern(pattern: RepeatPattern) -> str:
    if pattern.interval_ms is not None:
        return f"every {format_span(pattern.interval_ms)}"
    return pattern.expression or ""


@repeatable.command("next")
@queue_argument
@click.argument("key", metavar="[KEY]", required=False)
@click.option(
    "-n", "number", type=click.IntRange(1, 1000), default=PREVIEWED, show_default=True, help="How many times."
)
@add_common_options
def show_next(context: CommandContext, queue_name: str, key: str | None, number: int) -> None:
    """Show when a repeatable fires next; without KEY those of all together.

    A paused repeatable has no next time.
    """
    context.run(_print_next_fires(context, context.make_queue(queue_name), key, number))


async def _print_next_fires(context: CommandContext, queue: Queue, key: str | None, number: int) -> None:
    async with queue:
        if key is not None:
            metas = [(await find_repeatable_or_fail(queue, key)).meta]
        else:
            metas = await queue.repeatables.page(MAX_MERGED)
        fires = [
            (fire_ms, meta)
            for meta in metas
            if not meta.is_paused
            for fire_ms in await queue.repeatables.next_fires(meta.key, number)
        ]
    first = sorted(fires, key=lambda fire: fire[0])[:number]
    print_fires(context, queue, [(fire_ms, meta.key, meta.job_name) for fire_ms, meta in first])


def print_fires(context: CommandContext, queue: Queue, fires: list[tuple[int, str | None, str]]) -> None:
    records = [
        {"key": key, "job_name": name, **make_iso_and_ms_fields(fires_at=fire_ms)} for fire_ms, key, name in fires
    ]
    columns = NEXT_COLUMNS if context.output.is_terminal else (NEXT_COLUMNS[0], *NEXT_COLUMNS[2:])
    context.output.print_table_or_json("fires", columns, records, empty="nothing will fire", queue=queue.name)


async def find_repeatable_or_fail(queue: Queue, key: str) -> Repeatable:
    """Returns the repeatable; there must be one."""
    found = await queue.repeatables.get(key) if key.strip() else None
    if found is None:
        raise CommandFailure(
            f"queue {queue.name} has no repeatable {printable(key)!r}: chasqui repeatable list {queue.name} lists them",
            ExitCode.NOT_FOUND,
        )
    return found


@repeatable.command("add")
@queue_argument
@click.argument("name", metavar="NAME")
@click.argument("data", metavar="[JSON|@FILE]", required=False)
@click.option("--every", type=SPAN, default=None, help="Fire each time this span has passed: 30s, 5m, 2h.")
@click.option("--cron", default=None, help="Fire by a cron expression, such as '0 3 * * *' or @daily.")
@click.option("--tz", default=None, help="The time zone of --cron; UTC without it.")
@click.option("--key", default=None, help="Its key; made of the name and the pattern without it.")
@click.option("--limit", type=click.IntRange(1), default=None, help="How often it fires at most.")
@click.option("--start", type=MOMENT, default=None, help="It does not fire before this time.")
@click.option("--end", type=MOMENT, default=None, help="It does not fire after this time.")
@click.option("--attempts", type=click.IntRange(1), default=None, help="How many runs each of its jobs has.")
@click.option("--backoff", type=SPAN, default=None, help="How long each of its jobs waits before every retry: 30s.")
@click.option(
    "--missed",
    type=click.Choice(("skip", "fire-once", "fire-all")),
    default="skip",
    show_default=True,
    help="What to do about times at which no scheduler ran.",
)
@click.option("--max-catchup", type=click.IntRange(1), default=None, help="With --missed fire-all: how many at most.")
@dry_run_option
@add_common_options
def add_repeatable(context: CommandContext, queue_name: str, **given: Any) -> None:
    """Store a repeatable, or change the one with its key.

    NAME is the name of its jobs, JSON their data. --dry-run shows the times at which it would fire.
    """
    if (given["missed"] == "fire-all") != (given["max_catchup"] is not None):
        raise click.UsageError("--missed fire-all and --max-catchup go together: give both or none")
    if (given["every"] is None) == (given["cron"] is None):
        raise click.UsageError("give either --every or --cron")
    wanted = WantedRepeatable(
        key=given["key"],
        name=given["name"],
        data=read_data_from_json_or_file(given["data"]),
        repeat=make_pattern_of_every_or_cron(given["every"], given["cron"], given["tz"]),
        limit=given["limit"],
        start_after_ms=datetime_to_ms(given["start"]),
        end_before_ms=datetime_to_ms(given["end"]),
        attempts=given["attempts"],
        backoff=None if given["backoff"] is None else BackoffSpec.fixed(given["backoff"]),
        missed_fires=MissedFiresPolicy(given["missed"], given["max_catchup"]),
    )
    context.run(_store_or_preview_repeatable(context, context.make_queue(queue_name), wanted, dry_run=given["dry_run"]))


async def _store_or_preview_repeatable(
    context: CommandContext, queue: Queue, wanted: WantedRepeatable, *, dry_run: bool
) -> None:
    from ..repeatables import list_next_fires  # here, so that --help does not wait for the import

    async with queue:
        try:
            meta = await wanted.store_or_only_check(queue, dry_run=dry_run)
        except (InvalidArgument, InvalidType) as error:
            raise click.UsageError(str(error)) from None
    if dry_run:
        times_ms = [] if meta.is_paused else list_next_fires(meta, PREVIEWED)
        print_fires(context, queue, [(fire_ms, meta.key, meta.job_name) for fire_ms in times_ms])
        return
    line = f"stored {printable(meta.key, 1024)}, fires next at {format_iso_time(meta.next_fire_ms)}"
    context.output.print_line_or_json({"queue": queue.name, **repeatable_to_fields(meta)}, line)


def datetime_to_ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


@repeatable.command()
@queue_argument
@key_argument
@add_common_options
def pause(context: CommandContext, queue_name: str, key: str) -> None:
    """Stop a repeatable from firing until it is resumed."""
    context.run(
        _pause_or_resume_repeatable(
            context, context.make_queue(queue_name), key, "paused", lambda queue: queue.repeatables.pause(key)
        )
    )


@repeatable.command()
@queue_argument
@key_argument
@add_common_options
def resume(context: CommandContext, queue_name: str, key: str) -> None:
    """Let a paused repeatable fire again. Times that it missed are not made up for."""
    context.run(
        _pause_or_resume_repeatable(
            context, context.make_queue(queue_name), key, "active", lambda queue: queue.repeatables.resume(key)
        )
    )


async def _pause_or_resume_repeatable(
    context: CommandContext, queue: Queue, key: str, state: str, act: Callable[[Queue], Awaitable[bool]]
) -> None:
    async with queue:
        await find_repeatable_or_fail(queue, key)
        is_changed = await act(queue)
    again = "" if is_changed else " already"
    record = {"queue": queue.name, "key": key, "state": state, "is_changed": is_changed}
    context.output.print_line_or_json(record, f"{printable(key, 1024)} is {state}{again}")


@repeatable.command()
@queue_argument
@key_argument
@dry_run_option
@add_common_options
def run(context: CommandContext, queue_name: str, key: str, dry_run: bool) -> None:
    """Add a job of a repeatable now, beside its schedule."""
    context.run(_fire_now_unless_dry_run(context, context.make_queue(queue_name), key, dry_run=dry_run))


async def _fire_now_unless_dry_run(context: CommandContext, queue: Queue, key: str, *, dry_run: bool) -> None:
    async with queue:
        found = await find_repeatable_or_fail(queue, key)
        if dry_run:
            context.output.print_message_to_stderr(
                f"would add a job {printable(found.meta.job_name)!r} to queue {queue.name}"
            )
            return
        job = await queue.fire_now(key)
    context.output.print_line_or_json({"queue": queue.name, "key": key, "id": job.id, "name": job.name}, job.id)


@repeatable.command()
@queue_argument
@key_argument
@yes_option
@dry_run_option
@add_common_options
def remove(context: CommandContext, queue_name: str, key: str, assume_yes: bool, dry_run: bool) -> None:
    """Remove a repeatable.

    Jobs that it has added stay. On a terminal it asks; elsewhere it does not, as the official binary never does.
    """
    context.run(
        _confirm_and_remove_repeatable(
            context, context.make_queue(queue_name), key, assume_yes=assume_yes, dry_run=dry_run
        )
    )


async def _confirm_and_remove_repeatable(
    context: CommandContext, queue: Queue, key: str, *, assume_yes: bool, dry_run: bool
) -> None:
    async with queue:
        found = await queue.repeatables.get(key) if key.strip() else None
        if found is not None and not dry_run:
            repeatable_label = f"{printable(key, 200)} ({describe_pattern(found.meta.pattern)}) of queue {queue.name}"
            if sys.stdin.isatty():
                confirm_or_end_command(context, f"Remove repeatable {repeatable_label}?", assume_yes=assume_yes)
            await queue.repeatables.remove(key)
    word = "not found" if found is None else "would be removed" if dry_run else "removed"
    context.output.print_line_or_json(
        {"queue": queue.name, "key": key, "removed": found is not None, "dry_run": dry_run}, word
    )
    if found is None:
        raise CommandFailure(f"chasqui repeatable list {queue.name} lists what there is", ExitCode.NOT_FOUND)
