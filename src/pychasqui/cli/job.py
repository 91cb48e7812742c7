"""`chasqui job`: where a job is, its result and its log; cancels it, or runs a delayed one now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..errors import printable
from .confirm import confirm_or_end_command, dry_run_option, yes_option
from .each_queue import read_each_queue_warning_of_unreadable
from .exits import CommandFailure, ExitCode
from .options import CommandContext, add_common_options
from .ps import use_given_or_find_all_queue_names
from .tables import Column
from .values import Kind, encode_compact_json, format_count, make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..job_status import JobStatus
    from ..queue import Queue


MAX_QUEUES = 50  # that are asked for a job whose queue is not named
LOOK_EVERY_S = 0.3
LINES_A_LOOK = 1000
ENDED_STATES = ("done", "dead", "cancelled", "unknown")  # no more lines come
STYLES = {"dead": "red", "cancelled": "yellow", "retrying": "yellow", "running": "green", "done": "green"}
FIRST_COLUMNS = (
    Column("id", "id"),
    Column("queue", "queue"),
    Column("state", "state", styles=STYLES),
    Column("name", "name"),
    Column("attempt", "run", Kind.COUNT),
    Column("created_at_ms", "added", Kind.TIME),
)
COLUMNS_OF = {
    "waiting": (Column("ahead", "ahead", Kind.TEXT),),
    "running": (
        Column("worker", "worker"),
        Column("since_ms", "since", Kind.TIME),
        Column("progress", "progress (%)", Kind.COUNT),
    ),
    "delayed": (Column("due_ms", "due", Kind.TIME),),
    "retrying": (Column("due_ms", "due", Kind.TIME), Column("error", "last error")),
    "dead": (
        Column("since_ms", "died", Kind.TIME),
        Column("reason", "reason"),
        Column("worker", "worker"),
        Column("error_type", "error type"),
        Column("error", "error"),
        Column("traceback", "traceback"),
    ),
    "done": (Column("since_ms", "ended", Kind.TIME),),
    "cancelled": (Column("since_ms", "cancelled", Kind.TIME),),
    "unknown": (),
}


@click.command()
@click.argument("words", metavar="[status|result|cancel|run|tail] ID", nargs=-1, required=True)
@click.option("-q", "--queue", "queue_name", default=None, help="The job's queue; without it all queues are asked.")
@click.option("--no-follow", is_flag=True, help="tail: only the lines that are there.")
@yes_option
@dry_run_option
@add_common_options
def job(
    context: CommandContext,
    words: tuple[str, ...],
    queue_name: str | None,
    no_follow: bool,
    assume_yes: bool,
    dry_run: bool,
) -> None:
    """Show where a job is; cancel it or run it now.

    \b
    status  where it is and what is known about it; get is the same
    result  what its handler returned
    cancel  remove it, or stop its run if a worker has it
    run     make a delayed job due at once; promote is the same
    tail    its log, line by line as it is written, until the job has ended

    The id alone shows the status. The exit code is 3 if there is no such job, no result, or nothing to cancel or run.
    """
    action, job_id = _parse_action_and_job_id(words)
    follows = not no_follow
    acts: dict[str, Callable[[Queue, JobStatus], Awaitable[None]]] = {
        "status": lambda queue, status: _print_status_and_fail_if_unknown(context, queue, status),
        "result": lambda queue, status: _print_result_or_fail(context, queue, status),
        "cancel": lambda queue, status: _confirm_and_cancel_job(
            context, queue, status, assume_yes=assume_yes, dry_run=dry_run
        ),
        "run": lambda queue, status: _make_job_due_now_or_fail(context, queue, status, dry_run=dry_run),
        "tail": lambda queue, status: _print_log_and_follow_if_asked(context, queue, status, follows=follows),
    }
    context.run(_find_job_and_act(context, job_id, queue_name, acts[action]))


ACTIONS = {"status": "status", "get": "status", "result": "result", "cancel": "cancel", "run": "run", "tail": "tail"}
ACTIONS |= {"promote": "run"}


def _parse_action_and_job_id(words: tuple[str, ...]) -> tuple[str, str]:
    if len(words) == 1 and words[0] not in ACTIONS:
        return "status", words[0]
    if len(words) == 2 and words[0] in ACTIONS:
        return ACTIONS[words[0]], words[1]
    raise click.UsageError(f"expected the id of a job, or one of {', '.join(ACTIONS)} and the id of a job")


async def _find_job_and_act(
    context: CommandContext, job_id: str, queue_name: str | None, act: Callable[[Queue, JobStatus], Awaitable[None]]
) -> None:
    async with AsyncExitStack() as stack:
        names = [queue_name] if queue_name is not None else await _find_queue_names_unless_too_many(context)
        queues = {name: await stack.enter_async_context(context.make_queue(name)) for name in names}
        statuses = await read_each_queue_warning_of_unreadable(
            context, names, lambda name: queues[name].status(job_id), are_named=queue_name is not None
        )
        found = [(queues[name], status) for name, status in statuses.items() if status.state != "unknown"]
        if not found and queue_name is None:
            raise CommandFailure(
                f"no queue of this server knows job {printable(job_id)!r}: --queue says more", ExitCode.NOT_FOUND
            )
        if len(found) > 1:
            others = ", ".join(queue.name for queue, _ in found)
            text = f"several queues have a job of that id: choose one by --queue: {others}"
            raise CommandFailure(text, ExitCode.USAGE)
        await act(*(found[0] if found else (queues[names[0]], statuses[names[0]])))


async def _find_queue_names_unless_too_many(context: CommandContext) -> list[str]:
    async with context.make_queues() as queues:
        names = await use_given_or_find_all_queue_names(context, queues, [])
    if len(names) > MAX_QUEUES:
        raise click.UsageError(f"there are {len(names)} queues: name the job's queue by --queue")
    return names


async def _print_status_and_fail_if_unknown(context: CommandContext, queue: Queue, status: JobStatus) -> None:
    record = _status_to_fields(queue, status)
    shown = record | {"ahead": _format_ahead(status)} if not context.output.is_json else record
    columns = [*FIRST_COLUMNS, *COLUMNS_OF[status.state]]
    columns += [Column("data", "data", Kind.DATA)] if status.entry_id or status.due_ms is not None else []
    columns += [Column("result", "result", Kind.DATA)] if status.has_result else []
    columns += [Column("note", "note")] if status.note else []
    context.output.print_facts_or_json(columns, shown)
    if status.state == "unknown":
        raise _make_unknown_error(queue, status)


def _make_unknown_error(queue: Queue, status: JobStatus) -> CommandFailure:
    return CommandFailure(f"job {printable(status.id)!r} is not known in queue {queue.name}", ExitCode.NOT_FOUND)


def _format_ahead(status: JobStatus) -> str | None:
    if status.ahead is None:
        return None
    return f"{'' if status.ahead_is_exact else 'about '}{format_count(status.ahead, 'job')}"


def _status_to_fields(queue: Queue, status: JobStatus) -> dict[str, Any]:
    record = asdict(status)
    for name in ("created_at", "since", "due"):
        record |= make_iso_and_ms_fields(**{name: record.pop(f"{name}_ms")})
    return {"queue": queue.name, **record}


async def _print_result_or_fail(context: CommandContext, queue: Queue, status: JobStatus) -> None:
    if not status.has_result:
        why = status.note or f"it is {status.state}"
        raise CommandFailure(f"job {printable(status.id)!r} has no result: {printable(why, 500)}", ExitCode.NOT_FOUND)
    if context.output.is_json:
        context.output.print_json({"queue": queue.name, "id": status.id, "result": status.result})
    else:
        context.output.print_text(printable(encode_compact_json(status.result), 2**31))


async def _confirm_and_cancel_job(
    context: CommandContext, queue: Queue, status: JobStatus, *, assume_yes: bool, dry_run: bool
) -> None:
    job_label = f"job {printable(status.id)} ({printable(status.name)}) of queue {queue.name}"
    if status.state in ENDED_STATES:
        raise CommandFailure(
            f"job {printable(status.id)!r} is {status.state}: there is nothing to cancel", ExitCode.NOT_FOUND
        )
    if dry_run:
        context.output.print_message_to_stderr(f"would cancel {job_label}, which is {status.state}")
        return
    confirm_or_end_command(context, f"Cancel {job_label}, which is {status.state}?", assume_yes=assume_yes)
    answer = await queue.cancel(status.id)
    if answer == "unknown":
        raise CommandFailure(f"job {printable(status.id)!r} has just ended: nothing was cancelled", ExitCode.NOT_FOUND)
    _print_new_state(context, queue, status, "cancelled" if answer == "removed" else "stopping")


async def _make_job_due_now_or_fail(context: CommandContext, queue: Queue, status: JobStatus, *, dry_run: bool) -> None:
    job_label = _require_delayed_and_describe_job(queue, status, "run now")
    if dry_run:
        context.output.print_message_to_stderr(f"would run {job_label} now")
        return
    if not await queue.run_now(status.id):
        raise CommandFailure(f"job {printable(status.id)!r} is no longer delayed", ExitCode.NOT_FOUND)
    _print_new_state(context, queue, status, "due now")


def _require_delayed_and_describe_job(queue: Queue, status: JobStatus, wanted: str) -> str:
    if status.state not in ("delayed", "retrying"):
        raise CommandFailure(
            f"job {printable(status.id)!r} is {status.state}: only a delayed job can be {wanted}", ExitCode.NOT_FOUND
        )
    return f"job {printable(status.id)} ({printable(status.name)}) of queue {queue.name}"


def _print_new_state(context: CommandContext, queue: Queue, status: JobStatus, state: str) -> None:
    context.output.print_line_or_json(
        {"queue": queue.name, "id": status.id, "state": state}, f"{printable(status.id)} is {state}"
    )


async def _print_log_and_follow_if_asked(
    context: CommandContext, queue: Queue, status: JobStatus, *, follows: bool
) -> None:
    after, has_lines = "", False
    while True:
        state = (await queue.status(status.id)).state if follows else ""
        lines = await queue.read_job_log(status.id, after=after, limit=LINES_A_LOOK)
        for line in lines:
            after, has_lines = line.id, True
            record = {"id": status.id, **make_iso_and_ms_fields(at=int(line.id.partition("-")[0])), "line": line.text}
            context.output.print_line_or_json(record, printable(line.text, 2**31))
        if len(lines) == LINES_A_LOOK:
            continue  # there may be more
        if not follows or state in ENDED_STATES:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    if not has_lines and status.state == "unknown":
        raise _make_unknown_error(queue, status)
    if not has_lines:
        context.output.print_message_to_stderr(f"job {printable(status.id)} has no log")
