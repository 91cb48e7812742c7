"""The standard streams of a command, which its caller may have closed, or led to a disk that is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

STREAMS = ("stdin", "stdout", "stderr")


def replace_closed_standard_streams() -> None:
    """Opens /dev/null in the place of a stream that is closed. Else the next socket would get its number, and with it
    what is written to the stream."""
    for number, name in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, closefd=False, encoding="utf-8"))  # noqa: SIM115


def print_to_stderr(text: str, *, ends_line: bool = True) -> None:
    """Writes text of our own words. Nothing depends on a message: a worker also runs if the disk of its log is full."""
    with suppress(OSError):
        click.echo(text, nl=ends_line, err=True)
