"""`chasqui add`: adds one job, or one for each line of standard input."""

from __future__ import annotations

import os
import stat
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

import click

from ..errors import AddUnknown, InvalidArgument, InvalidType, JobFailed, RedisTrouble, ResultNotStored, printable
from .app_targets import app_option
from .confirm import dry_run_option
from .data_argument import parse_json, read_data_from_json_or_file
from .exits import CommandFailure, choose_exit_code
from .interruptible_input import ctrl_c_ends_reads, open_interruptible_if_possible
from .moments import MOMENT
from .options import SPAN, CommandContext, add_common_options, queue_argument
from .progress import ProgressBar
from .task_jobs import MakeJob, choose_job_maker_loading_app
from .values import UNCUT, encode_compact_json, format_count

if TYPE_CHECKING:
    from ..queue import Queue

LINES_A_CALL = 1000
STDIN = "-"


@click.command()
@queue_argument
@click.argument("name", metavar="NAME")
@click.argument("data", metavar="[JSON|@FILE|-]", required=False)
@click.option("--delay", type=SPAN, default=None, help="Run it this much later: 30s, 5m, 2h.")
@click.option("--at", type=MOMENT, default=None, help="Run it at this time: 2026-01-31T12:00:00Z.")
@click.option("--id", "job_id", default=None, help="Its id: there is one job of it until it is done.")
@click.option("--attempts", type=click.IntRange(1), default=None, help="How many runs it has in all.")
@click.option("--job-timeout", type=SPAN, default=None, help="How long each run may take: 30s, 5m.")
@click.option("--expires-in", type=SPAN, default=None, help="How long it may wait for its start: 1h, 7d.")
@click.option("--wait", "waits", is_flag=True, help="Wait for its result, and write that.")
@click.option("--timeout", type=SPAN, default=30_000, help="With --wait: how long, 30s without it.")
@app_option
@dry_run_option
@add_common_options
def add(
    context: CommandContext,
    queue_name: str,
    name: str,
    data: str | None,
    delay: int | None,
    at: datetime | None,
    job_id: str | None,
    attempts: int | None,
    job_timeout: int | None,
    expires_in: int | None,
    waits: bool,
    timeout: int,
    app_target: str | None,
    dry_run: bool,
) -> None:
    """Add a job, or one for each line of standard input.

    Its data is JSON, @FILE for the JSON in a file, or none. For - each line of standard input is the JSON data of one
    job; all get the same name and options, and they are added 1,000 at a time. Writes the id of the job.

    If the App is known, by --app or the setting `app`, the data has to fit the task of this name, and the job has the
    options of the task.
    """
    if name == STDIN and data is None:
        raise click.UsageError(f"the jobs have no name: chasqui add {queue_name} NAME {STDIN}")
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at contradict each other: give one of them")
    options: dict[str, Any] = {"delay_ms": at if delay is None else delay, "attempts": attempts, "job_id": job_id}
    options |= {"timeout": _to_timedelta(job_timeout), "expires_in": _to_timedelta(expires_in)}
    given = {option: value for option, value in options.items() if value is not None}
    queue = context.make_queue(queue_name)
    make = choose_job_maker_loading_app(app_target, queue_name, name, context.output)
    if data == STDIN:
        if job_id is not None or waits:
            raise click.UsageError("--id and --wait are for one job: leave them out, or give its data instead of -")
        context.run(_add_jobs_from_stdin_lines(context, queue, lambda data: {**make(data), **given}, dry_run=dry_run))
        return
    job = {**make(read_data_from_json_or_file(data)), **given}
    context.run(
        _add_one_job_and_print_id_or_result(
            context, queue, job, wait_up_to_s=timeout / 1000 if waits else None, dry_run=dry_run
        )
    )


def _to_timedelta(span_ms: int | None) -> timedelta | None:
    return None if span_ms is None else timedelta(milliseconds=span_ms)


async def _add_one_job_and_print_id_or_result(
    context: CommandContext, queue: Queue, job: dict[str, Any], *, wait_up_to_s: float | None, dry_run: bool
) -> None:
    if dry_run:
        shown = printable(encode_compact_json(job["data"]), 1000)
        context.output.print_message_to_stderr(
            f"would add a job {printable(job['name'])!r} to queue {queue.name}: {shown}"
        )
        return
    async with queue:
        try:
            added = await queue.add(**job)
        except (InvalidArgument, InvalidType) as error:
            raise click.UsageError(str(error)) from None
        record = {"queue": queue.name, "id": added.id, "name": added.name, "is_new": added.is_new}
        if not added.is_new:
            context.output.print_message_to_stderr(
                f"queue {queue.name} has a job {printable(added.id)!r} already: nothing was added"
            )
        if wait_up_to_s is None:
            context.output.print_line_or_json(record, printable(added.id, UNCUT))
            return
        context.output.print_message_to_stderr(f"waiting for the result of job {printable(added.id)}")
        result = await _wait_for_result_or_none_if_unstored(context, queue, added.id, wait_up_to_s)
    context.output.print_line_or_json({**record, "result": result}, printable(encode_compact_json(result), UNCUT))


async def _wait_for_result_or_none_if_unstored(
    context: CommandContext, queue: Queue, job_id: str, timeout_s: float
) -> Any:
    try:
        return await queue.wait_for_result(job_id, timeout=timeout_s)
    except ResultNotStored as error:
        context.output.print_message_to_stderr(f"the job is done: {error}")
        return None
    except JobFailed as error:
        raise CommandFailure(
            f"{printable(str(error), 1000)}; chasqui dlq show {queue.name} {printable(job_id)}"
        ) from None
    except TimeoutError as error:
        raise CommandFailure(printable(str(error), 1000)) from None


async def _add_jobs_from_stdin_lines(
    context: CommandContext, queue: Queue, make_job: MakeJob, *, dry_run: bool
) -> None:
    from asyncio import CancelledError  # here, so that --help does not wait for the import

    added, stored, batch = 0, 0, list[dict[str, Any]]()  # a dry run stores none
    try:
        async with queue:
            lines = open_interruptible_if_possible(sys.stdin)
            with ctrl_c_ends_reads(), ProgressBar("adding", _count_lines_if_file(lines)) as bar:
                for number, line in enumerate(lines, 1):
                    if not line.strip():
                        continue
                    batch.append(_parse_line_to_job(line, number, stored, make_job))
                    if len(batch) == LINES_A_CALL:
                        added, stored = await _add_or_count_and_clear_batch(queue, batch, added, dry_run=dry_run)
                        bar.set_done_and_draw_if_due(added)
                added, stored = await _add_or_count_and_clear_batch(queue, batch, added, dry_run=dry_run)
    except UnicodeDecodeError as error:
        raise CommandFailure(f"standard input is not {error.encoding}; {_describe_added(stored)}") from None
    except KeyboardInterrupt:  # while it read or parsed
        context.output.print_message_to_stderr(f"interrupted: {_describe_added(stored)}")
        raise
    except CancelledError:  # while it waited for Redis
        is_known = dry_run or not batch
        said = _describe_added(stored) if is_known else _describe_added_range(stored, len(batch))
        context.output.print_message_to_stderr(f"interrupted: {said}")
        raise
    record = {"queue": queue.name, "added": added, "dry_run": dry_run}
    context.output.print_line_or_json(
        record, f"{'would add' if dry_run else 'added'} {format_count(added, 'job', has_commas=False)}"
    )


def _parse_line_to_job(line: str, number: int, added_before: int, make_job: MakeJob) -> dict[str, Any]:
    where = f"line {number} of standard input"
    try:
        data = parse_json(line)
    except ValueError as error:
        raise CommandFailure(
            f"{where} is not JSON ({printable(str(error), 300)}); {_describe_added(added_before)}"
        ) from None
    try:
        return make_job(data)
    except InvalidArgument as error:
        raise CommandFailure(f"{where}: {printable(str(error), 1000)}; {_describe_added(added_before)}") from None


async def _add_or_count_and_clear_batch(
    queue: Queue, batch: list[dict[str, Any]], added_before: int, *, dry_run: bool
) -> tuple[int, int]:
    """Adds the jobs and clears the batch; returns how many jobs are added so far, and how many are in the queue."""
    if batch and not dry_run:
        try:
            await queue.add_bulk(batch)
        except (InvalidArgument, InvalidType, RedisTrouble) as error:
            is_known = not isinstance(error, AddUnknown)
            said = _describe_added(added_before) if is_known else _describe_added_range(added_before, len(batch))
            raise CommandFailure(f"{printable(str(error), 1000)}; {said}", choose_exit_code(error)) from None
    added = added_before + len(batch)
    batch.clear()
    return added, 0 if dry_run else added


def _describe_added(added: int) -> str:
    if not added:
        return "nothing was added"
    return "the first job is in the queue" if added == 1 else f"the first {added:,} jobs are in the queue"


def _describe_added_range(added: int, in_doubt: int) -> str:
    return f"{added:,} to {added + in_doubt:,} jobs are in the queue"


def _count_lines_if_file(text: TextIO) -> int | None:
    """How many lines follow, if it is a file; None for a pipe."""
    source = text.buffer  # as bytes: a line that cannot be decoded is counted, too
    try:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return None
        start = source.tell()  # a shell may have read lines before
        lines = sum(1 for _ in source)
        source.seek(start)
    except (OSError, ValueError):
        return None
    return lines
