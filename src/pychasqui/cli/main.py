"""The group of all commands. It imports a command only when that command runs, so that `--help` stays fast."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import click

from .._version import __version__
from .exits import run_to_exit_code
from .interrupts import ctrl_c_kills_process, let_ctrl_c_raise_again
from .standard_streams import replace_closed_standard_streams


@dataclass(frozen=True)
class CommandEntry:
    """The module and function of a command, and its line in the list of commands."""

    module: str
    name: str
    summary: str


COMMANDS = {
    "worker": CommandEntry("pychasqui.cli.worker", "worker", "Run workers."),
    "exporter": CommandEntry("pychasqui.cli.exporter", "exporter", "Serve the state of queues to Prometheus."),
    "demo": CommandEntry("pychasqui.cli.demo", "demo", "Watch 100,000 jobs go through a queue."),
    "dev": CommandEntry("pychasqui.cli.dev", "dev", "Run a worker while you write it."),
    "bench": CommandEntry("pychasqui.cli.bench", "bench", "Measure how fast jobs go through your server."),
    "ps": CommandEntry("pychasqui.cli.ps", "ps", "Show all queues, one row each."),
    "inspect": CommandEntry("pychasqui.cli.inspect", "inspect_queues", "Show the depths of a queue's keys."),
    "watch": CommandEntry("pychasqui.cli.inspect", "watch", "Show the depths of a queue's keys again and again."),
    "events": CommandEntry("pychasqui.cli.events", "events", "Show the events of a queue as they happen."),
    "workers": CommandEntry("pychasqui.cli.workers", "workers", "Show the living workers."),
    "jobs": CommandEntry("pychasqui.cli.jobs", "jobs", "Show the jobs of one state."),
    "job": CommandEntry("pychasqui.cli.job", "job", "Show where a job is; cancel it or run it now."),
    "tasks": CommandEntry("pychasqui.cli.tasks", "tasks", "Show the tasks of an App."),
    "promoter": CommandEntry(
        "pychasqui.cli.promoter_and_scheduler", "promoter", "Move due delayed jobs to their queues."
    ),
    "scheduler": CommandEntry("pychasqui.cli.promoter_and_scheduler", "scheduler", "Fire due repeatables."),
    "completion": CommandEntry("pychasqui.cli.completion", "completion", "Print the script that completes in a shell."),
    "dlq": CommandEntry("pychasqui.cli.dlq", "dlq", "Show, replay, remove, export and import dead letters."),
    "repeatable": CommandEntry(
        "pychasqui.cli.repeatable", "repeatable", "Show and change the jobs that a queue adds again and again."
    ),
    "add": CommandEntry("pychasqui.cli.add", "add", "Add a job, or one for each line of standard input."),
    "pause": CommandEntry("pychasqui.cli.queue_state", "pause", "Make the workers of a queue stop reading."),
    "resume": CommandEntry("pychasqui.cli.queue_state", "resume", "Make the workers of a paused queue read again."),
    "purge": CommandEntry("pychasqui.cli.queue_state", "purge", "Remove all jobs of a state from a queue, for good."),
    "check": CommandEntry("pychasqui.cli.check", "check_thresholds", "Compare queues with thresholds, for monitoring."),
    "doctor": CommandEntry("pychasqui.cli.doctor", "doctor", "Examine the server and its queues, and say what to do."),
    "config": CommandEntry("pychasqui.cli.config", "config", "Show each setting and where it came from."),
    "version": CommandEntry("pychasqui.cli.version", "version", "Show the versions of everything involved."),
}

ALIASES = {"status": "ps", "queues": "ps"}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        with ctrl_c_kills_process():
            command: click.Command = getattr(importlib.import_module(entry.module), entry.name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CHASQUI"}


@click.group("chasqui", cls=LazyGroup, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="pychasqui", message="%(prog)s %(version)s")
def chasqui() -> None:
    """Jobs over Redis Streams, wire-compatible with ChasquiMQ.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 trouble with
    Redis (unreachable, wrong password, too old), 5 a threshold is breached,
    6 aborted at a question, 130 interrupted, 143 demo terminated.
    """


def main() -> int:
    let_ctrl_c_raise_again()
    replace_closed_standard_streams()
    return run_to_exit_code(lambda: chasqui.main(prog_name="chasqui", standalone_mode=False))
