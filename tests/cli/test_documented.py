"""docs/reference/command-line.md has every command and every option."""

from __future__ import annotations

import re
from pathlib import Path

import click

from pychasqui.cli.exits import ExitCode
from pychasqui.cli.main import ALIASES, COMMANDS
from pychasqui.cli.main import chasqui as group
from tests.support.cases import in_one_test

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
SHARED, *_ = PAGE.split("\n## Looking")
SECTIONS = dict(re.findall(r"^### chasqui (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert isinstance(found, click.Command)
    return found


def test_the_page_has_every_command_and_no_other() -> None:
    assert set(SECTIONS) == set(COMMANDS)
    for alias, name in ALIASES.items():
        assert f"`{alias}`" in SECTIONS[name]


def parameters(name: str) -> list[click.Parameter]:
    """Those of a command, and of the commands below it."""
    found = command(name)
    below = found.commands.values() if isinstance(found, click.Group) else ()
    return [*found.params, *(one for each in below for one in each.params)]


@in_one_test("name", COMMANDS)
def test_the_page_has_every_command_of_a_group(name: str) -> None:
    found = command(name)
    for below in found.commands if isinstance(found, click.Group) else ():
        assert f"`{name} {below} " in SECTIONS[name]


@in_one_test("name", COMMANDS)
def test_the_page_has_every_option_of_a_command_and_no_other(name: str) -> None:
    listed = set(re.findall(r"`(--?[a-zA-Z][a-z-]*)", SECTIONS[name]))
    shared = set(re.findall(r"^\| `(--[a-z-]+)", SHARED, re.MULTILINE))
    options = [one for one in parameters(name) if isinstance(one, click.Option)]
    names = {option for one in options for option in one.opts}
    assert names - shared <= listed, "an option is not on the page"
    assert listed <= names | {"--json"}, "the page has an option that does not exist"


def test_each_option_has_a_help() -> None:
    for name in COMMANDS:
        for option in parameters(name):
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.name}"


def test_the_page_has_every_exit_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert listed == set(ExitCode)
