"""Finds the App that a command is about: of its option or argument, else of the setting `app`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..settings import FoundSetting
from .exits import CommandFailure, ExitCode
from .options import read_setting

if TYPE_CHECKING:
    from ..app import App

app_option = click.option(
    "--app", "app_target", metavar="MODULE:APP", help="Check the data by the tasks of this App; else the setting app."
)


def find_app_setting(given: str | None) -> FoundSetting:
    """The name of the App and where it came from; a value of None if there is none."""
    return read_setting("app", given)


def import_app_and_its_modules(target: str) -> App:
    """Imports the App of this name and the modules that it names; a failure describes what is wrong with them."""
    import asyncio  # here, so that a command that knows no App does not wait for the imports

    from ..app import App
    from .worker_targets import (
        get_or_make_what_target_names,
        import_targets_with_working_folder_on_path,
        parse_target,
        print_traceback_and_make_failure,
    )

    parse_target(target)
    (found,) = import_targets_with_working_folder_on_path([target])
    made = asyncio.run(get_or_make_what_target_names(found))
    if not isinstance(made, App):
        raise CommandFailure(f"{target} is a {type(made).__name__}, not an App", ExitCode.USAGE)
    try:
        made.load_parts()
    except (Exception, SystemExit) as error:  # noqa: BLE001  the modules of the app are the user's
        raise print_traceback_and_make_failure(f"the modules of {target} cannot be imported", error) from None
    return made
