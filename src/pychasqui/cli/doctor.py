"""`chasqui doctor`: examines a server and its queues, and says what to do."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..errors import ReplyError, printable
from .exits import ExitCode
from .options import TIMEOUT_S, CommandContext, add_common_options, queues_argument
from .ps import use_given_or_find_all_queue_names
from .tables import Column
from .values import format_count

if TYPE_CHECKING:
    from ..doctor import Finding

INDENT = 11  # of the text of a finding

WORDS = {
    "ok": ("ok", "green"),
    "note": ("note", "cyan"),
    "warning": ("warning", "yellow"),
    "problem": ("PROBLEM", "red"),
}
COLUMNS = (
    Column("level", "level"),
    Column("subject", "subject"),
    Column("check", "check"),
    Column("text", "finding"),
    Column("remedy", "what to do"),
)


@click.command()
@queues_argument
@click.option("--acl", "shows_acl", is_flag=True, help="Print the ACL SETUSER lines of users with few rights instead.")
@add_common_options
def doctor(context: CommandContext, queue_names: tuple[str, ...], shows_acl: bool) -> int:
    """Examine the server and its queues, and say what to do.

    Looks at the server's version, persistence, eviction policy, memory and clock, and at the keys, the consumer group
    and the consumers of each queue. It changes nothing. Without QUEUE it looks at all queues. The exit code is 1 if
    there is a problem; warnings leave it 0.

    With --acl it prints a line for redis-cli for each role: producer, worker, inspector and operator, with the rights
    to QUEUE that the role needs on this server. A QUEUE that ends with * stands for all queues whose names begin so.
    """
    return context.run(
        _print_acl_users(context, queue_names) if shows_acl else _examine_and_print(context, queue_names)
    )


async def _print_acl_users(context: CommandContext, names: tuple[str, ...]) -> int:
    from ..doctor import Doctor

    async with Doctor(context.redis_url, timeout_s=TIMEOUT_S) as examiner:
        users = await examiner.acl_users(*names)
    if context.output.is_json:
        records = [{**asdict(user), "line": user.line} for user in users]
        context.output.print_json_list("users", records, redis=examiner.redis_address)
    else:
        for user in users:
            context.output.print_text(user.line)
    return ExitCode.OK


async def _examine_and_print(context: CommandContext, names: tuple[str, ...]) -> int:
    from ..doctor import Doctor, Finding

    async with context.make_queues() as queues, Doctor(context.redis_url, timeout_s=TIMEOUT_S) as examiner:
        found = await examiner.examine_server()
        for name in await use_given_or_find_all_queue_names(context, queues, names):
            try:
                found += await examiner.examine_queue(name)
            except ReplyError as error:
                remedy = "allow this user the queue's keys, or look at the server's log"
                found.append(Finding(f"queue {name}", "keys", "problem", f"it cannot be read: {error}", remedy))
        address = queues.redis_address
    has_problem = any(finding.level == "problem" for finding in found)
    if context.output.is_terminal:
        _print_findings(context, address, found)
    else:
        records = [asdict(finding) for finding in found]
        context.output.print_table_or_json("findings", COLUMNS, records, redis=address, has_problem=has_problem)
    return ExitCode.FAILED if has_problem else ExitCode.OK


def _print_findings(context: CommandContext, address: str, findings: list[Finding]) -> None:
    """Writes the findings under their subjects, each with what to do about it on a line of its own."""
    for subject in dict.fromkeys(finding.subject for finding in findings):
        context.output.print_text(f"server {address}" if subject == "server" else printable(subject))
        for finding in (one for one in findings if one.subject == subject):
            word, colour = WORDS[finding.level]
            shown = click.style(f"{word:<8}", fg=colour) if context.output.has_color else f"{word:<8}"
            room = max(20, context.output.width - INDENT)
            first, *rest = _escape_and_wrap_text(f"{finding.check}: {finding.text}", room)
            context.output.print_text(f"  {shown} {first}")
            for line in [*rest, *(_escape_and_wrap_text(f"-> {finding.remedy}", room) if finding.remedy else ())]:
                context.output.print_text(f"{' ' * INDENT}{line}")
    counts = Counter(finding.level for finding in findings)
    context.output.print_message_to_stderr(
        f"{format_count(counts['problem'], 'problem')}, {format_count(counts['warning'], 'warning')}"
    )


def _escape_and_wrap_text(text: str, room: int) -> list[str]:
    return textwrap.wrap(printable(text, 2000), room, break_on_hyphens=False)
