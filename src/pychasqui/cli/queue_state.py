"""`chasqui pause`, `chasqui resume` and `chasqui purge`: what is done to a queue as a whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, get_args

import click

from .confirm import confirm_or_end_command, dry_run_option, yes_option
from .known_queues import explain_empty_queue
from .options import CommandContext, add_common_options, queue_argument
from .progress import ProgressBar
from .values import format_count

if TYPE_CHECKING:
    from ..queue import Queue

Purged = Literal["waiting", "delayed", "dead"]
LOOK_EVERY_S = 0.2


@click.command()
@queue_argument
@add_common_options
def pause(context: CommandContext, queue_name: str) -> None:
    """Make the workers of a queue stop reading.

    They finish the jobs that they hold. Adding goes on.
    """
    context.run(_pause_or_resume(context, context.make_queue(queue_name), is_to_be_paused=True))


@click.command()
@queue_argument
@add_common_options
def resume(context: CommandContext, queue_name: str) -> None:
    """Make the workers of a paused queue read again."""
    context.run(_pause_or_resume(context, context.make_queue(queue_name), is_to_be_paused=False))


async def _pause_or_resume(context: CommandContext, queue: Queue, *, is_to_be_paused: bool) -> None:
    async with queue:
        is_changed = await queue.is_paused() != is_to_be_paused
        counts = await queue.counts()
        message = f"{format_count(counts.waiting, 'job')} waiting, {counts.active:,} running"
        if not any(counts):  # a queue may be paused before its first job, but its name may be mistyped as well
            message = await explain_empty_queue(context, queue.name, message)
        await (queue.pause() if is_to_be_paused else queue.resume())
    words = ("paused", "paused already") if is_to_be_paused else ("resumed", "not paused")
    line = f"queue {queue.name} is {words[not is_changed]}"
    record = {"queue": queue.name, "is_paused": is_to_be_paused, "is_changed": is_changed}
    context.output.print_line_or_json({**record, "waiting": counts.waiting, "running": counts.active}, line)
    if not context.output.is_json:
        context.output.print_message_to_stderr(message)


@click.command()
@queue_argument
@click.option(
    "--state",
    "states",
    type=click.Choice(get_args(Purged)),
    multiple=True,
    required=True,
    help="The state of the jobs to remove; may be given several times.",
)
@yes_option
@dry_run_option
@add_common_options
def purge(
    context: CommandContext, queue_name: str, states: tuple[Purged, ...], assume_yes: bool, dry_run: bool
) -> None:
    """Remove all jobs of a state from a queue, for good.

    It says how many jobs that are, and asks for the name of the queue. Jobs that run cannot be removed.
    """
    chosen = list(dict.fromkeys(states))
    context.run(
        _confirm_and_purge_states(
            context, context.make_queue(queue_name), chosen, assume_yes=assume_yes, dry_run=dry_run
        )
    )


async def _confirm_and_purge_states(
    context: CommandContext, queue: Queue, states: list[Purged], *, assume_yes: bool, dry_run: bool
) -> None:
    async with queue:
        counts = await queue.counts()
        removed = {state: int(getattr(counts, state)) for state in states}
        total = sum(removed.values())
        parts = " and ".join(format_count(count, f"{state} job") for state, count in removed.items())
        if not dry_run and total:
            context.output.print_message_to_stderr(
                f"queue {queue.name} will lose {parts} for good; {format_count(counts.active, 'running job')} will stay"
            )
            confirm_or_end_command(
                context, f"Remove {format_count(total, 'job')}?", assume_yes=assume_yes, expected=queue.name
            )
        if not dry_run and (total or assume_yes):  # nobody has agreed to lose jobs that come behind a count of none
            with ProgressBar("removing", total, past="removed") as bar:
                removed = await _purge_with_progress(queue, states, total, bar)
    done = " and ".join(format_count(count, f"{state} job", has_commas=False) for state, count in removed.items())
    record = {"queue": queue.name, "removed": removed, "dry_run": dry_run}
    context.output.print_line_or_json(record, f"{'would remove' if dry_run else 'removed'} {done}")


async def _purge_with_progress(queue: Queue, states: list[Purged], total: int, bar: ProgressBar) -> dict[Purged, int]:
    removed: dict[Purged, int] = {}
    for state in states:
        purging = asyncio.create_task(queue.purge(state))
        try:
            while not (await asyncio.wait([purging], timeout=LOOK_EVERY_S))[0]:
                counts = await queue.counts()
                left = sum(int(getattr(counts, one)) for one in states)
                bar.set_done_and_draw_if_due(max(0, total - left))
        except BaseException:
            purging.cancel()
            await asyncio.wait([purging])
            raise
        removed[state] = purging.result()
    return removed
