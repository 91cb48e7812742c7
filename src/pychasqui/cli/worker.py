"""`chasqui worker`: finds the worker that the user's module makes, and runs it until a signal ends it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from .. import Worker, __version__
from ..errors import ChasquiError
from .exits import CommandFailure, ExitCode, exit_code_of
from .loops import CHOICES, Loop, choose_loop

PACKAGE = Path(__file__).parents[1]


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--loop",
    "loop_choice",
    type=click.Choice(CHOICES),
    default="auto",
    show_default=True,
    help="The event loop; auto is uvloop where it is installed.",
)
def worker(target: str, loop_choice: str) -> None:
    """Run a worker.

    MODULE:ATTRIBUTE names a Worker, or a function without arguments that returns one, in a module of the current
    directory or of the Python path: app.jobs:worker.

    SIGINT (Ctrl-C) or SIGTERM: the worker reads no more jobs, finishes those that run, and ends with exit code 0. A
    second signal makes it stop at once; jobs that it leaves unfinished are not lost.
    """
    module_name, attribute_path = _split_target(target)
    loop = choose_loop(loop_choice)
    sys.path.insert(0, os.getcwd())
    found = find_attribute(import_module(module_name), attribute_path)
    # After the import: basicConfig does nothing if the module has set up logging itself.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=loop.factory) as runner:
        runner.run(_run(target, found, loop))


async def _run(target: str, found: Any, loop: Loop) -> None:
    """Makes the worker inside the loop, because a factory may need a running one, and runs it."""
    worker = await make_worker(target, found)
    click.echo(banner(worker, loop), err=True)
    await worker.run(handle_signals=True)


def _split_target(target: str) -> tuple[str, str]:
    module_name, colon, attribute_path = target.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *attribute_path.split(".")]):
        raise click.BadParameter(f"{target!r} is not of the form module:attribute", param_hint="'MODULE:ATTRIBUTE'")
    return module_name, attribute_path


def import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # A module that it imports is missing.
            raise _describe_error(f"module {name!r} cannot be imported", error) from None
        raise CommandFailure(
            f"there is no module {error.name!r} in {os.getcwd()!r} or on the Python path", ExitCode.NOT_FOUND
        ) from None
    except Exception as error:  # noqa: BLE001  the module is the user's, and may raise anything
        raise _describe_error(f"module {name!r} cannot be imported", error) from None


def _describe_error(what: str, error: Exception) -> CommandFailure:
    """Turns an error of the user's code into a CommandFailure; prints the user's part of its traceback.

    Our own errors need no traceback: their line says what to change.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(("<", str(PACKAGE), importlib.__file__))]
    if isinstance(error, ChasquiError):
        position = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
        return CommandFailure(f"{what}: {error}{position}", exit_code_of(error))
    *lines, summary = traceback.format_exception_only(error)
    click.echo("".join([*traceback.format_list(theirs), *lines]), err=True, nl=False)
    return CommandFailure(f"{what}: {summary.rstrip()}")


def find_attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            workers = ", ".join(name for name, value in vars(module).items() if isinstance(value, Worker))
            hint = f"; its workers are: {workers}" if workers else ""
            raise CommandFailure(f"module {module.__name__!r} has no {path!r}{hint}", ExitCode.NOT_FOUND) from None
    return found


async def make_worker(target: str, found: Any) -> Worker:
    """Returns the Worker at the target, or the one that the function at the target makes."""
    if isinstance(found, Worker):
        return found
    if not callable(found) or inspect.isclass(found):
        raise CommandFailure(
            f"{target} is {_describe(found)}, not a Worker or a function that returns one", ExitCode.USAGE
        )
    try:
        inspect.signature(found).bind()
    except TypeError:
        raise CommandFailure(
            f"{target} takes arguments, but is called without any: it must take none", ExitCode.USAGE
        ) from None
    try:
        made = found()
        if inspect.isawaitable(made):
            made = await made
    except Exception as error:  # noqa: BLE001  the function is the user's, and may raise anything
        raise _describe_error(f"{target} cannot make a Worker", error) from None
    if not isinstance(made, Worker):
        raise CommandFailure(f"{target} returned {_describe(made)}, not a Worker", ExitCode.USAGE)
    return made


def _describe(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def banner(worker: Worker, loop: Loop) -> str:
    facts = {
        "redis": worker.redis_address,
        "queue": worker.queue_name,
        "concurrency": worker.concurrency,
        "consumer": worker.consumer_id,
        "loop": loop.name,
    }
    return "\n".join([f"pychasqui {__version__} worker", *(f"  {name:<12} {value}" for name, value in facts.items())])
