"""Finds the workers that the user's modules make, by the names on the command line."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from .. import App, Crew, Task, Worker
from ..errors import ChasquiError
from .exits import CommandFailure, ExitCode, choose_exit_code
from .standard_streams import print_to_stderr

PACKAGE = Path(__file__).parents[1]
HIDDEN_FRAME_FILES = ("<", str(PACKAGE), importlib.__file__, contextlib.__file__)  # files that a traceback leaves out


class FoundTarget:
    """What a module has under the name on the command line: an App, a Worker, or a function that makes one."""

    def __init__(self, target: str, found: Any) -> None:
        self.target = target
        self.found = found


def parse_target(target: str) -> tuple[str, str]:
    """Returns the name of the module and the path of the attribute."""
    module_name, colon, attribute_path = target.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *attribute_path.split(".")]):
        raise click.BadParameter(
            f"{target!r} is not of the form module:attribute{_suggest_module_of_file(module_name, attribute_path)}",
            param_hint="'MODULE:ATTRIBUTE'",
        )
    return module_name, attribute_path


def _suggest_module_of_file(path: str, attribute_path: str) -> str:
    """What to write instead of the path of a file, or of a folder with slashes, below the working folder."""
    name = path.removesuffix(".py").removeprefix("./").replace("/", ".")
    if not all(part.isidentifier() for part in name.split(".")):
        return ""
    return f": write {name}:{attribute_path or 'app'}"


def import_targets_with_working_folder_on_path(targets: Sequence[str]) -> list[FoundTarget]:
    """Imports the modules, also from the working folder."""
    named = [parse_target(target) for target in targets]
    sys.path.insert(0, os.getcwd())
    return [
        FoundTarget(target, get_attribute_or_fail(import_module_of_user_or_fail(module_name, path), path))
        for target, (module_name, path) in zip(targets, named, strict=True)
    ]


def import_module_of_user_or_fail(name: str, attribute_path: str = "") -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # A module that it imports is missing.
            raise print_traceback_and_make_failure(f"module {name!r} cannot be imported", error) from None
        hint = _suggest_module_of_file(name, attribute_path) if name.endswith(".py") else ""
        raise CommandFailure(
            f"there is no module {error.name!r} in {os.getcwd()!r} or on the Python path{hint}", ExitCode.NOT_FOUND
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  the module is the user's, and may raise anything
        raise print_traceback_and_make_failure(f"module {name!r} cannot be imported", error) from None


def print_traceback_and_make_failure(problem: str, error: Exception | SystemExit) -> CommandFailure:
    """Turns an error of the user's code into a CommandFailure; prints the user's part of its traceback.

    Our own errors need no traceback: their line says what to change.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(HIDDEN_FRAME_FILES)]
    if isinstance(error, ChasquiError):
        position = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
        return CommandFailure(f"{problem}: {error}{position}", choose_exit_code(error))
    *lines, summary = traceback.format_exception_only(error)
    print_to_stderr("".join([*traceback.format_list(theirs), *lines]), ends_line=False)
    return CommandFailure(f"{problem}: {summary.rstrip()}")


def get_attribute_or_fail(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            problem = f"module {module.__name__!r} has no {path!r}"
            raise CommandFailure(f"{problem}{_suggest_workers_of(module)}", ExitCode.NOT_FOUND) from None
    return found


def _suggest_workers_of(module: ModuleType) -> str:
    workers = ", ".join(name for name, value in vars(module).items() if isinstance(value, App | Worker))
    return f"; the workers of this module are: {workers}" if workers else ""


async def make_workers_and_enter_crew(found_target: FoundTarget, stack: AsyncExitStack) -> Sequence[Worker]:
    """Returns the workers at the target; `stack` closes what the workers of an App share."""
    made = await get_or_make_what_target_names(found_target)
    if isinstance(made, Worker):
        return [made]
    crew = made.worker() if isinstance(made, App) else made
    try:
        return await stack.enter_async_context(crew.prepared())
    except (Exception, SystemExit) as error:  # noqa: BLE001  the modules of the app are the user's, too
        raise print_traceback_and_make_failure(f"{found_target.target} cannot make its workers", error) from None


async def get_or_make_what_target_names(found_target: FoundTarget) -> App | Crew | Worker:
    """Returns what is at the target, or what the function at the target makes."""
    target, found = found_target.target, found_target.found
    if isinstance(found, App | Crew | Worker):
        return found
    if not callable(found) or inspect.isclass(found) or isinstance(found, Task):
        raise _make_wrong_kind_failure(found_target)
    try:
        inspect.signature(found).bind()
    except TypeError:
        if not inspect.isroutine(found):  # the application of a web framework, which is callable
            raise _make_wrong_kind_failure(found_target) from None
        raise CommandFailure(
            f"{target} takes arguments, but is called without any: it must take none", ExitCode.USAGE
        ) from None
    try:
        made = found()
        if inspect.isawaitable(made):
            made = await made
    except (Exception, SystemExit) as error:  # noqa: BLE001  the function is the user's, too
        raise print_traceback_and_make_failure(f"{target} cannot make a Worker", error) from None
    if not isinstance(made, App | Crew | Worker):
        raise CommandFailure(f"{target} returned {_describe_value(made)}, not an App or a Worker", ExitCode.USAGE)
    return made


def _make_wrong_kind_failure(found_target: FoundTarget) -> CommandFailure:
    target = found_target.target
    problem = f"{target} is {_describe_value(found_target.found)}, not an App, a Worker or a function that returns one"
    module = sys.modules.get(parse_target(target)[0])
    return CommandFailure(problem + ("" if module is None else _suggest_workers_of(module)), ExitCode.USAGE)


def _describe_value(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
