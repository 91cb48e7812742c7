"""`chasqui repeatable apply -f FILE`: makes a queue's repeatables those of a file."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidArgument, InvalidType, printable
from ..schedule import MissedFiresPolicy, RepeatPattern
from .confirm import confirm_or_end_command, dry_run_option, yes_option
from .options import CommandContext, add_common_options, queue_argument
from .tables import Column
from .values import format_count
from .wanted_repeatable import (
    WantedRepeatable,
    make_backoff_of_span_or_table,
    make_pattern_of_every_or_cron,
    parse_span_ms,
)

if TYPE_CHECKING:
    from ..queue import Queue

FIELDS = "name, data, every, cron, tz, limit, start, end, attempts, backoff, missed, max_catchup"
MOST = 10_000
COLUMNS = (
    Column("action", "action", styles={"new": "green", "changed": "yellow", "removed": "red", "same": "dim"}),
    Column("key", "key", shrinks=True),
    Column("job_name", "job_name", shrinks=True),
)


@click.command()
@queue_argument
@click.option(
    "-f", "--file", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="TOML."
)
@click.option("--prune", is_flag=True, help="Remove the queue's repeatables that the file does not have.")
@yes_option
@dry_run_option
@add_common_options
def apply(context: CommandContext, queue_name: str, path: Path, prune: bool, assume_yes: bool, dry_run: bool) -> None:
    """Store the repeatables of a TOML file.

    Each table of the file is one repeatable; its name is the key. If one of them is wrong, none is stored.

    \b
    [nightly-report]
    name = "report"
    data = {kind = "full"}
    cron = "0 3 * * *"
    tz = "Europe/Berlin"
    [clean-up]
    name = "clean"
    every = "5m"
    """
    wanted = read_repeatables_file(path)
    queue = context.make_queue(queue_name)
    context.run(_confirm_and_apply_file(context, queue, wanted, prune=prune, assume_yes=assume_yes, dry_run=dry_run))


def read_repeatables_file(path: Path) -> list[WantedRepeatable]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read as TOML: {printable(str(error), 300)}") from None
    return [_read_wanted_repeatable(key, fields) for key, fields in tables.items()]


def _read_wanted_repeatable(key: str, fields: Any) -> WantedRepeatable:
    where = f"repeatable {printable(key)!r} of the file"
    if not isinstance(fields, dict):
        raise InvalidArgument(f"{where} is no table: write [{printable(key)}] above its fields, which are {FIELDS}")
    if unknown := fields.keys() - set(FIELDS.split(", ")):
        raise InvalidArgument(f"{where} has no field {printable(min(unknown))!r}: the fields are {FIELDS}")
    if not isinstance(fields.get("name"), str):
        raise InvalidArgument(f"{where} needs the field name, the name of its jobs")
    try:
        return WantedRepeatable(
            key=key,
            name=fields["name"],
            data=fields.get("data"),
            repeat=_read_pattern(fields),
            limit=_read_positive_int(fields, "limit"),
            start_after_ms=_read_moment_ms(fields, "start"),
            end_before_ms=_read_moment_ms(fields, "end"),
            attempts=_read_positive_int(fields, "attempts"),
            backoff=make_backoff_of_span_or_table(fields.get("backoff")),
            missed_fires=MissedFiresPolicy(fields.get("missed", "skip"), fields.get("max_catchup")),
        )
    except (InvalidArgument, InvalidType, click.BadParameter) as error:
        raise InvalidArgument(f"{where}: {error.message if isinstance(error, click.UsageError) else error}") from None


def _read_pattern(fields: dict[str, Any]) -> RepeatPattern:
    every = fields.get("every")
    return make_pattern_of_every_or_cron(
        None if every is None else parse_span_ms("every", every), fields.get("cron"), fields.get("tz")
    )


def _read_positive_int(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgument(f"{name} must be a whole number from 1 on")
    return value


def _read_moment_ms(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{name} must be a time without quotes, such as 2026-01-31T12:00:00Z")
    return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)


async def _confirm_and_apply_file(
    context: CommandContext,
    queue: Queue,
    wanted: list[WantedRepeatable],
    *,
    prune: bool,
    assume_yes: bool,
    dry_run: bool,
) -> None:
    async with queue:
        plan: list[tuple[str, str, str]] = []
        for one in wanted:
            await _store_or_check_repeatable(queue, one, dry_run=True)  # all are checked before the first is stored
            key = one.key or ""
            found = await queue.repeatables.get(key)
            plan.append(
                ("new" if found is None else "same" if one.is_equal_to_stored(found) else "changed", key, one.name)
            )
        kept = {one.key for one in wanted}
        surplus = [meta for meta in await queue.repeatables.page(MOST) if prune and meta.key not in kept]
        plan += [("removed", meta.key, meta.job_name) for meta in surplus]
        if surplus and not dry_run:
            named = ", ".join(printable(meta.key, 60) for meta in surplus[:5]) + (", ..." if len(surplus) > 5 else "")
            removed = f"{format_count(len(surplus), 'repeatable')} of queue {queue.name}"
            question = f"Remove {removed}, which the file does not have ({named})?"
            confirm_or_end_command(context, question, assume_yes=assume_yes)
        if not dry_run:
            for one in wanted:
                await _store_or_check_repeatable(queue, one)
            for meta in surplus:
                await queue.repeatables.remove(meta.key)
    records = [{"action": action, "key": key, "job_name": name} for action, key, name in plan]
    context.output.print_table_or_json(
        "repeatables", COLUMNS, records, empty="the file has no repeatables", queue=queue.name, dry_run=dry_run
    )
    if dry_run:
        context.output.print_message_to_stderr("nothing was changed")


async def _store_or_check_repeatable(queue: Queue, wanted: WantedRepeatable, *, dry_run: bool = False) -> None:
    try:
        await wanted.store_or_only_check(queue, dry_run=dry_run)
    except (InvalidArgument, InvalidType) as error:
        raise click.UsageError(f"repeatable {printable(wanted.key or '')!r} of the file: {error}") from None
