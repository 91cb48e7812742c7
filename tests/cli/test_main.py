"""The command as a whole: help, versions, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import click
import pytest

from pychasqui import AuthenticationFailed, QueueFull, ServerNotFound, ServerTooOld, __version__
from pychasqui.cli.exits import CommandFailure, ExitCode, run_to_exit_code
from pychasqui.cli.main import COMMANDS, LazyGroup
from pychasqui.cli.main import chasqui as group
from tests.cli.conftest import Finished


def test_help_imports_no_redis_no_rich_and_no_command():
    code = (
        "import sys; sys.argv[1:] = ['--help']; from pychasqui.cli.main import main; main()\n"
        "commands = {f'pychasqui.cli.{name}' for name in ('demo', 'exporter', 'worker')}\n"
        "loaded = ({'redis', 'rich', 'uvloop'} | commands) & set(sys.modules)\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "worker" in ended.stdout


@pytest.mark.parametrize(
    "words", (("version",), ("worker", "--help"), ("no-such-command",), ("check", "--redis-url", "x"))
)
def test_a_fork_of_the_tests_ends_as_a_process_that_a_user_starts(
    spawned: Finished, forked: Finished, words: tuple[str, ...]
):
    a_process, a_fork = ((ended.returncode, ended.stdout, ended.stderr) for ended in (spawned(*words), forked(*words)))
    assert a_process == a_fork


def test_the_help_of_no_command_imports_more_than_options_and_what_they_mean():
    """The rest takes longer than all of this: `--help` has to answer within 150 ms."""
    code = (
        "import click, sys; from pychasqui.cli.main import chasqui\n"
        "def help_of(command, *path):\n"
        "    chasqui.main([*path, '--help'], prog_name='chasqui', standalone_mode=False)\n"
        "    for name in command.list_commands(None) if isinstance(command, click.Group) else ():\n"
        "        help_of(command.get_command(None, name), *path, name)\n"
        "help_of(chasqui)\n"
        "light = ('_core', '_version', 'cli', 'errors', 'retry', 'schedule', 'settings')\n"
        "heavy = {'hiredis', 'pydantic', 'redis', 'rich', 'uvloop', 'watchfiles'} & set(sys.modules)\n"
        "own = [name.split('.')[1:] for name in sys.modules if name.startswith('pychasqui.')]\n"
        "heavy |= {'.'.join(parts) for parts in own if parts[0] not in light}\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    program = [sys.executable, "-P", "-c", code]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 0, ended.stderr
    assert all(f"Usage: chasqui {name} " in ended.stdout for name in [*COMMANDS, "dlq replay", "repeatable apply"])


def test_the_list_of_commands_says_of_each_what_its_own_help_says():
    assert isinstance(group, LazyGroup)
    context = click.Context(group)
    for name, entry in COMMANDS.items():
        command = group.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=200) == entry.summary


def test_version_is_the_packages(chasqui: Finished):
    assert chasqui("--version").stdout == f"pychasqui {__version__}\n"


def test_version_as_json_has_a_schema_and_names_the_wire_format(chasqui: Finished):
    facts = json.loads(chasqui("version", "--json").stdout)
    assert facts["schema"] == 1
    assert facts["pychasqui"] == __version__
    assert facts["wire_format"] == "ChasquiMQ 1.3.0"
    assert facts["hiredis"]


def test_version_as_text_has_a_line_for_each_part(chasqui: Finished):
    lines = chasqui("version").stdout.splitlines()
    assert lines[0].split() == ["pychasqui", __version__]
    assert any(line.startswith("wire format ") for line in lines)


def test_an_unknown_command_is_wrong_usage(chasqui: Finished):
    ended = chasqui("wrok")
    assert ended.returncode == ExitCode.USAGE
    assert "No such command 'wrok'" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    (
        (AuthenticationFailed("no"), ExitCode.REDIS),
        (ServerTooOld("no"), ExitCode.REDIS),
        (ServerNotFound("no"), ExitCode.REDIS),
        (QueueFull("no"), ExitCode.FAILED),
        (CommandFailure("no", ExitCode.NOT_FOUND), ExitCode.NOT_FOUND),
        (click.UsageError("no"), ExitCode.USAGE),
    ),
)
def test_an_error_becomes_one_line_and_its_exit_code(
    error: Exception, code: ExitCode, capsys: pytest.CaptureFixture[str]
):
    def fail() -> None:
        raise error

    assert run_to_exit_code(fail) == code
    assert capsys.readouterr().err == "Error: no\n"


def test_an_interrupt_becomes_the_exit_code_that_shells_expect():
    def fail() -> None:
        raise KeyboardInterrupt

    assert run_to_exit_code(fail) == 130


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys
name = sys.argv.pop(1)
class Interrupting:
    def find_spec(self, found, path=None, target=None):
        if found == name:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
runpy.run_module("pychasqui.cli", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "words"),
    (
        ("click", ("--help",)),
        ("pychasqui.cli.ps", ("ps",)),
        ("asyncio", ("ps",)),
        ("pychasqui.queues", ("dev", "shop:app")),
        ("pychasqui.cli.demo.run", ("demo",)),
        ("pychasqui.supervisor", ("worker", "shop:app")),
    ),
)
def test_ctrl_c_during_an_import_ends_the_command_without_a_traceback(module: str, words: tuple[str, ...]):
    program = [sys.executable, "-P", "-c", INTERRUPTED_IMPORT, module, *words]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == -signal.SIGINT  # which a shell calls 130
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_command_that_ignores_ctrl_c_still_does_so_during_imports():
    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED_IMPORT}"
    program = [sys.executable, "-P", "-c", code, "click", "--version"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
    assert __version__ in ended.stdout
