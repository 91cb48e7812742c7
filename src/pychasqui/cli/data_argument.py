"""The data of a job on the command line: JSON, or @FILE for the JSON in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from ..errors import printable


def read_data_from_json_or_file(text: str | None) -> Any:
    """Returns the data; None if there is none. What is no JSON is wrong usage."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise click.UsageError(f"the file of the data cannot be read: {printable(str(error), 500)}") from None
    try:
        return parse_json(text)
    except ValueError as error:
        raise click.UsageError(
            f"the data is not JSON: {printable(str(error), 300)}; a text needs quotes of its own: '\"text\"'"
        ) from None


def parse_json(text: str) -> Any:
    """Reads JSON; raises ValueError, also for NaN, for numbers that are infinite here, and for data that is nested too
    deeply."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"JSON has no {word}: write null, or a text in quotes")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:50]} is larger than a number can be: write it as a text in quotes")
    return number
