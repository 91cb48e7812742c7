"""`chasqui dlq export` and `chasqui dlq import`: dead letters as lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import printable
from .confirm import dry_run_option
from .dlq_letters import add_filter_options, decode_raw_fields, letter_to_export_fields
from .exits import CommandFailure
from .export_file import STDOUT, open_export
from .interruptible_input import ctrl_c_ends_reads, open_interruptible_if_possible
from .options import CommandContext, add_common_options, queue_argument
from .output import SCHEMA
from .progress import ProgressBar, can_redraw_stderr
from .values import format_count, to_jsonable

if TYPE_CHECKING:
    from ..dlq import DeadJob
    from ..queue import Queue

BATCH = 200
TEXTS = ("source_id", "reason", "name")
OPTIONAL_TEXTS = ("job_id", "detail", "error_type", "error", "traceback", "worker")


@click.command("export")
@queue_argument
@add_filter_options
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, allow_dash=True),
    default=STDOUT,
    help="The file to write; standard output without it.",
)
@add_common_options
def export_letters(context: CommandContext, queue_name: str, letter_filter: dict[str, Any], target: str) -> None:
    """Write dead letters as lines of JSON.

    Each line is one letter; `payload` is the job itself in base64, and `raw` the fields of the letter, from which
    `chasqui dlq import` makes the same letter again. The letters stay in the queue: `chasqui dlq remove` removes them.
    A file that is there is replaced once all letters are written.
    """
    context.run(_export_letters(context, context.make_queue(queue_name), letter_filter, target))


async def _export_letters(context: CommandContext, queue: Queue, letter_filter: dict[str, Any], path: str) -> None:
    written = 0
    async with queue:
        total = await queue.dlq.count()
        with open_export(path) as target, ProgressBar("exporting", total, is_shown=_should_show_bar(target)) as bar:
            async for letter in queue.dlq.search(**letter_filter):
                record = {"schema": SCHEMA, "queue": queue.name, **letter_to_export_fields(letter)}
                target.write(f"{json.dumps(to_jsonable(record))}\n")
                written += 1
                bar.set_done_and_draw_if_due(written)
    context.output.print_message_to_stderr(f"exported {format_count(written, 'dead letter')} of queue {queue.name}")


def _should_show_bar(target: TextIO) -> bool:
    return can_redraw_stderr() and not target.isatty()


@click.command("import")
@queue_argument
@click.argument("source", metavar="[FILE]", type=click.File("r", encoding="utf-8"), default="-")
@dry_run_option
@add_common_options
def import_letters(context: CommandContext, queue_name: str, source: TextIO, dry_run: bool) -> None:
    """Add dead letters that were exported before.

    Reads lines of JSON from FILE, or from standard input. A letter that the queue already has is left out, so that
    an import can be run again after an error. Imported letters get new ids and the time of the import.
    """
    context.run(_import_missing_letters(context, context.make_queue(queue_name), source, dry_run=dry_run))


async def _import_missing_letters(context: CommandContext, queue: Queue, source: TextIO, *, dry_run: bool) -> None:
    added, present = 0, 0
    batch: list[DeadJob] = []
    async with queue:
        seen = {_hash_letter(letter) async for letter in queue.dlq.search()}
        with ctrl_c_ends_reads(), ProgressBar("importing", None) as bar:
            for letter in _parse_exported_letters(source, queue):
                if _hash_letter(letter) in seen:
                    present += 1
                    continue
                seen.add(_hash_letter(letter))
                batch.append(letter)
                if len(batch) == BATCH:
                    added += len(batch) if dry_run else await queue.dlq.restore(batch)
                    batch.clear()
                    bar.set_done_and_draw_if_due(added)
            added += len(batch) if dry_run else await queue.dlq.restore(batch)
    there = f"{present} {'was' if present == 1 else 'were'} there already"
    line = f"imported {format_count(added, 'dead letter', has_commas=False)}, {there}"
    context.output.print_line_or_json(
        {"queue": queue.name, "imported": added, "present": present, "dry_run": dry_run},
        f"would have {line}" if dry_run else line,
    )


def _hash_letter(letter: DeadJob) -> bytes:
    return sha256(f"{letter.source_id}\0{letter.reason}\0".encode("utf-8", "replace") + letter.payload).digest()


def _parse_exported_letters(source: TextIO, queue: Queue) -> Iterator[DeadJob]:
    number = 0
    try:
        for number, line in enumerate(open_interruptible_if_possible(source), 1):  # noqa: B007  the error below names the line
            if line.strip():
                yield _parse_exported_letter(json.loads(line))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommandFailure(
            f"line {max(1, number)} of {printable(source.name)} is no dead letter as `chasqui dlq export` writes it "
            f"({printable(str(error))}); letters of the lines before it may be in queue {queue.name}, and a second "
            "import leaves them out"
        ) from None


def _parse_exported_letter(record: Any) -> DeadJob:
    from ..dlq import DeadJob, read_letter  # here, so that --help does not wait for the import

    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ValueError(f'no JSON object with "schema": {SCHEMA}')
    texts = {name: record[name] for name in TEXTS} | {name: record.get(name) for name in OPTIONAL_TEXTS}
    for name, value in texts.items():
        if not (isinstance(value, str) or (value is None and name in OPTIONAL_TEXTS)):
            raise ValueError(f"{name} is no text")
    attempts = record.get("attempts")
    if attempts is not None and (isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 0):
        raise ValueError("attempts is no number")
    try:
        payload = base64.b64decode(record["payload"], validate=True)
    except (binascii.Error, TypeError):
        raise ValueError("payload is no base64") from None
    if raw := record.get("raw"):  # exports of earlier versions have none
        return read_letter(decode_raw_fields(raw, payload))
    return DeadJob(dlq_id="0-0", attempts=attempts, payload=payload, **texts)
