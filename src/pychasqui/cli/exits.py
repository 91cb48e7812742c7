"""Exit codes, and how an error becomes one line on standard error and an exit code."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any

import click

from ..errors import ChasquiError, RedisTrouble, ServerNotFound, printable
from .standard_streams import print_to_stderr

MAX_ERROR_CHARS = 4000
NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a full disk or a broken one says
LINE_END = "\n"  # only our own text has line ends: text of others inside it is escaped before


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REDIS = 4  # unreachable, refused the credentials, or cannot be used
    BREACHED = 5  # a threshold of `check`
    ABORTED = 6  # at a question, by the person who was asked
    INTERRUPTED = 130  # SIGINT, as a shell counts it
    TERMINATED = 143  # SIGTERM


class CommandFailure(click.ClickException):
    """Ends a command with a line on standard error and an exit code."""

    def __init__(self, message: str, code: int = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def choose_exit_code(error: ChasquiError) -> ExitCode:
    return ExitCode.REDIS if isinstance(error, (RedisTrouble, ServerNotFound)) else ExitCode.FAILED


def run_to_exit_code(command: Callable[[], Any]) -> int:
    """Runs a command; returns its exit code. Errors for users become one line; any other is a bug and is raised."""
    try:
        code = command()
    except ChasquiError as error:
        print_to_stderr(f"Error: {printable(str(error), MAX_ERROR_CHARS, keep=LINE_END)}")
        return choose_exit_code(error)
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.code if isinstance(error, CommandFailure) else error.exit_code
    except OSError as error:
        if error.errno not in NOT_WRITTEN:
            raise
        print_to_stderr(f"Error: the answer cannot be written: {error.strerror}")
        return ExitCode.FAILED
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    return code if isinstance(code, int) else ExitCode.OK
