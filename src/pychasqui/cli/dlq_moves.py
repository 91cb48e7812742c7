"""`chasqui dlq replay` and `chasqui dlq remove`: they show what they are about to change, and ask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ..errors import printable
from .confirm import confirm_or_end_command, dry_run_option, yes_option
from .data_argument import read_data_from_json_or_file
from .dlq_letters import LETTER, add_filter_options, describe_filter_except_ids
from .exits import CommandFailure, ExitCode
from .options import CommandContext, add_common_options, queue_argument
from .progress import ProgressBar
from .values import format_count

if TYPE_CHECKING:
    from ..dlq import DeadJob
    from ..queue import Queue

MAX_KINDS_SHOWN = 5  # that the question names

letters_argument = click.argument("letter_ids", metavar="[ID]...", nargs=-1, type=LETTER)


@dataclass
class LetterSurvey:
    """The letters that a command is about to change."""

    count: int = 0
    has_more: bool = False  # than the limit
    undecodable: int = 0
    newest: DeadJob | None = None
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def make_filter_without_newer(self, letter_filter: dict[str, Any]) -> dict[str, Any]:
        """The same conditions without the letters that came after the survey: nobody has agreed to those."""
        return letter_filter if self.newest is None else {**letter_filter, "up_to": self.newest.dlq_id}


async def survey_letters(
    queue: Queue, letter_filter: dict[str, Any], *, limit: int | None, needs_job: bool
) -> LetterSurvey:
    """Counts up to `limit` letters that match; with `needs_job` those whose job cannot be decoded are not counted."""
    found = LetterSurvey()
    async for letter in queue.dlq.search(**letter_filter):
        if limit is not None and found.count >= limit:
            found.has_more = True
            break
        if needs_job and letter.job_id is None:
            found.undecodable += 1
            continue
        found.count += 1
        found.newest = letter
        found.kinds[letter.name, letter.reason] += 1
    return found


def print_affected_letters(
    context: CommandContext, queue: Queue, letter_filter: dict[str, Any], survey: LetterSurvey
) -> None:
    """Says on standard error which letters a command is about to change."""
    conditions = printable(describe_filter_except_ids(letter_filter), 500)
    context.output.print_message_to_stderr(
        f"{format_count(survey.count, 'dead letter')} of queue {queue.name}{conditions}{':' if survey.count else ''}"
    )
    for (name, reason), count in survey.kinds.most_common(MAX_KINDS_SHOWN):
        context.output.print_message_to_stderr(
            f"  {count:>9,}  {printable(name, 40) or '(no name)'}  {printable(reason, 40)}"
        )
    if len(survey.kinds) > MAX_KINDS_SHOWN:
        context.output.print_message_to_stderr(
            f"  and {format_count(len(survey.kinds) - MAX_KINDS_SHOWN, 'more kind')}: chasqui dlq groups shows all"
        )
    if survey.has_more:
        context.output.print_message_to_stderr(
            "  more match and will stay: --all takes them as well, --limit a part of them"
        )
    if survey.undecodable:
        context.output.print_message_to_stderr(
            f"  {format_count(survey.undecodable, 'dead letter')} cannot be decoded, and will stay"
        )


@click.command("replay")
@queue_argument
@letters_argument
@add_filter_options
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many to replay at most.")
@click.option("--all", "is_all", is_flag=True, help="All that match, whatever --limit is.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="How many a second at most.")
@click.option("--data", metavar="JSON", default=None, help="Other data for the job, as JSON or @FILE; for one letter.")
@yes_option
@dry_run_option
@add_common_options
def replay_letters(
    context: CommandContext,
    queue_name: str,
    letter_filter: dict[str, Any],
    limit: int,
    is_all: bool,
    rate: float | None,
    data: str | None,
    assume_yes: bool,
    dry_run: bool,
) -> None:
    """Add the jobs of dead letters to the queue again.

    They begin as if they had never run. Without conditions the oldest --limit letters are replayed.
    """
    max_letters = None if is_all else limit
    queue = context.make_queue(queue_name)
    if data is not None:
        context.run(
            _confirm_and_replay_one_with_data(
                context, queue, letter_filter, read_data_from_json_or_file(data), assume_yes=assume_yes, dry_run=dry_run
            )
        )
        return
    context.run(
        _confirm_and_replay_letters(
            context, queue, letter_filter, limit=max_letters, rate=rate, assume_yes=assume_yes, dry_run=dry_run
        )
    )


async def _confirm_and_replay_letters(
    context: CommandContext,
    queue: Queue,
    letter_filter: dict[str, Any],
    *,
    limit: int | None,
    rate: float | None,
    assume_yes: bool,
    dry_run: bool,
) -> None:
    async with queue:
        found = await survey_letters(queue, letter_filter, limit=limit, needs_job=True)
        print_affected_letters(context, queue, letter_filter, found)
        _refuse_if_none_of_given_ids_is_found(queue, letter_filter, found)
        if found.count and not dry_run:
            confirm_or_end_command(
                context, f"Replay {format_count(found.count, 'dead letter')}?", assume_yes=assume_yes
            )
        replayed = found.count
        if found.count and not dry_run:
            with ProgressBar("replaying", found.count, past="replayed") as bar:
                replayed = await queue.dlq.replay(
                    limit=found.count,
                    rate=rate,
                    on_progress=bar.set_done_and_draw_if_due,
                    **found.make_filter_without_newer(letter_filter),
                )
    # In the words of the official binary, which has the limit there: scripts may read them.
    line = f"replayed {replayed}{'' if limit is None else f' of {limit}'} entries"
    _print_count(context, queue, "replayed", replayed, f"would have {line}" if dry_run else line, dry_run=dry_run)


async def _confirm_and_replay_one_with_data(
    context: CommandContext, queue: Queue, letter_filter: dict[str, Any], data: Any, *, assume_yes: bool, dry_run: bool
) -> None:
    """Replays the one letter that matches, with other data."""
    async with queue:
        found = await survey_letters(queue, letter_filter, limit=2, needs_job=True)
        if found.count > 1:
            raise click.UsageError("--data is for one letter, and more match: choose it by its id or by --job-id")
        print_affected_letters(context, queue, letter_filter, found)
        if found.newest is None:
            raise _make_missing_error(queue)
        if not dry_run:
            confirm_or_end_command(context, "Replay it with this data?", assume_yes=assume_yes)
            if not await queue.dlq.replay_with(found.newest.dlq_id, data):
                raise _make_missing_error(queue)
    line = "replayed 1 of 1 entries"
    _print_count(context, queue, "replayed", 1, f"would have {line}" if dry_run else line, dry_run=dry_run)


@click.command("remove")
@queue_argument
@letters_argument
@add_filter_options
@click.option("--all", "is_all", is_flag=True, help="All dead letters of the queue.")
@yes_option
@dry_run_option
@add_common_options
def remove_letters(
    context: CommandContext,
    queue_name: str,
    letter_filter: dict[str, Any],
    is_all: bool,
    assume_yes: bool,
    dry_run: bool,
) -> None:
    """Remove dead letters for good.

    `chasqui dlq export` writes them to a file before. Without ids and conditions it needs --all.
    """
    if not letter_filter and not is_all:
        raise click.UsageError("choose the letters by their ids or by conditions, or take --all")
    if letter_filter and is_all:
        raise click.UsageError("--all contradicts ids and conditions: leave one of them out")
    context.run(
        _confirm_and_remove_letters(
            context, context.make_queue(queue_name), letter_filter, assume_yes=assume_yes, dry_run=dry_run
        )
    )


async def _confirm_and_remove_letters(
    context: CommandContext, queue: Queue, letter_filter: dict[str, Any], *, assume_yes: bool, dry_run: bool
) -> None:
    async with queue:
        found = await survey_letters(queue, letter_filter, limit=None, needs_job=False)
        print_affected_letters(context, queue, letter_filter, found)
        _refuse_if_none_of_given_ids_is_found(queue, letter_filter, found)
        removed = found.count
        if found.count and not dry_run:
            confirm_or_end_command(
                context, f"Remove {format_count(found.count, 'dead letter')} for good?", assume_yes=assume_yes
            )
            with ProgressBar("removing", found.count, past="removed") as bar:
                removed = await queue.dlq.remove(
                    on_progress=bar.set_done_and_draw_if_due, **found.make_filter_without_newer(letter_filter)
                )
    line = f"removed {format_count(removed, 'entry', has_commas=False)}"
    _print_count(context, queue, "removed", removed, f"would have {line}" if dry_run else line, dry_run=dry_run)


def _refuse_if_none_of_given_ids_is_found(queue: Queue, letter_filter: dict[str, Any], survey: LetterSurvey) -> None:
    if "ids" in letter_filter and not survey.count:
        raise _make_missing_error(queue)


def _make_missing_error(queue: Queue) -> CommandFailure:
    return CommandFailure(
        f"queue {queue.name} has none of these dead letters that can be taken: chasqui dlq list {queue.name} "
        "lists them",
        ExitCode.NOT_FOUND,
    )


def _print_count(context: CommandContext, queue: Queue, word: str, count: int, line: str, *, dry_run: bool) -> None:
    context.output.print_line_or_json({"queue": queue.name, word: count, "dry_run": dry_run}, line)
