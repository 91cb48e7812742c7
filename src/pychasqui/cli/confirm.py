"""Asks before a command removes or moves something. Without a terminal nobody can be asked, so the command refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from .exits import CommandFailure, ExitCode
from .interruptible_input import ctrl_c_ends_reads, open_interruptible_if_possible
from .options import CommandContext
from .standard_streams import print_to_stderr

F = TypeVar("F", bound=Callable[..., Any])

YES = ("y", "yes")
yes_option = click.option("-y", "--yes", "assume_yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would happen.")


def confirm_or_end_command(
    context: CommandContext, question: str, *, assume_yes: bool, expected: str | None = None
) -> None:
    """Asks the question, which says what will happen; returns if the answer is yes, else ends the command.

    With `expected` the answer must be that word, such as the name of the queue that is about to be emptied.
    """
    if assume_yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandFailure(f"{question} Nobody can be asked here: --yes does it without asking", ExitCode.USAGE)
    wanted = "[y/N]" if expected is None else f"Type {expected} to go on:"
    answer = _ask_and_read_answer(f"{question} {wanted} ")
    if answer == expected or (expected is None and answer.lower() in YES):
        return
    raise CommandFailure("aborted: nothing was changed", ExitCode.ABORTED)


def _ask_and_read_answer(prompt: str) -> str:
    with ctrl_c_ends_reads():
        print_to_stderr(prompt, ends_line=False)
        return open_interruptible_if_possible(sys.stdin).readline().strip()
