"""Output: where a command's answer goes, and in which form.

The answer goes to standard output: a table on a terminal, lines with tabs in a pipe, JSON for --json and --ndjson.
Messages go to standard error. Every JSON object of an answer has `"schema": 1`; a stream is one object a line.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ..errors import printable
from .standard_streams import print_to_stderr
from .tables import Column, format_for_pipe, format_for_terminal
from .values import UNCUT, Kind, format_value_for_pipe, format_value_for_terminal, now_ms, to_jsonable

SCHEMA = 1  # of the JSON; a field that is removed or changes its meaning raises it
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR_ALL = "\x1b[2J"


class Output:
    """Writes the answer of one command.

    is_json      write JSON
    is_ndjson    write JSON, and of several records one object a line
    is_terminal  write for a person: fitted tables, relative times
    has_color    with colours
    """

    def __init__(self, *, is_json: bool, is_terminal: bool, has_color: bool, is_ndjson: bool = False) -> None:
        self.is_json = is_json or is_ndjson
        self._is_ndjson = is_ndjson
        self.is_terminal = is_terminal and not self.is_json
        self.has_color = has_color and self.is_terminal
        self._frame: list[str] | None = None
        self._has_cleared = False

    @classmethod
    def make_for_stdout(cls, *, as_json: bool, no_color: bool, as_ndjson: bool = False) -> Output:
        """Finds out what standard output is. FORCE_COLOR makes it a terminal with colours, NO_COLOR takes them away."""
        forced = bool(os.environ.get("FORCE_COLOR"))
        is_terminal = sys.stdout.isatty() or forced
        is_plain = no_color or bool(os.environ.get("NO_COLOR")) or (os.environ.get("TERM") == "dumb" and not forced)
        return cls(is_json=as_json, is_terminal=is_terminal, has_color=not is_plain, is_ndjson=as_ndjson)

    @property
    def width(self) -> int:
        """The columns of the terminal; COLUMNS, where it is set."""
        return max(20, shutil.get_terminal_size((80, 24)).columns)

    # The answer -----------------------------------------------------------------------------------------------------

    def print_table_or_json(
        self,
        json_key: str,
        columns: Sequence[Column],
        records: Sequence[Mapping[str, Any]],
        *,
        empty: str = "",
        **json_fields: Any,
    ) -> None:
        """Writes records as a table or as JSON; see print_json_list(). `empty` is the message if there are none."""
        if self.is_json:
            self.print_json_list(json_key, records, **json_fields)
            return
        if not records and empty:
            self.print_message_to_stderr(empty)
        if not self.is_terminal:
            self._write_or_add_to_frame("".join(f"{line}\n" for line in format_for_pipe(columns, records)))
        elif records:
            self._write_or_add_to_frame(
                format_for_terminal(columns, records, width=self.width, has_color=self.has_color, now_ms=now_ms())
            )

    def print_facts_or_json(self, columns: Sequence[Column], record: Mapping[str, Any]) -> None:
        """Writes one record as a list of titles and values, or as JSON: {"schema": 1, **record}.

        On a terminal long text follows on further lines, so that nothing of it is lost.
        """
        if self.is_json:
            self.print_json(record)
            return
        room = max(len(column.title) for column in columns)
        for column in columns:
            value = record.get(column.key)
            if not self.is_terminal:
                self._write_or_add_to_frame(f"{column.title}\t{format_value_for_pipe(value, column.kind)}\n")
                continue
            title = click.style(f"{column.title:<{room}}", bold=True) if self.has_color else f"{column.title:<{room}}"
            lines = _split_value_into_lines(value, column.kind)
            self._write_or_add_to_frame(
                f"{title}  {lines[0]}\n" + "".join(f"{' ' * room}  {line}\n" for line in lines[1:])
            )

    def print_line_or_json(self, record: Mapping[str, Any], line: str) -> None:
        """Writes one item of a stream at once: the line, or the record as one line of JSON."""
        if self.is_json:
            self.print_json(record)
        else:
            self._write_or_add_to_frame(f"{line}\n")

    def print_json(self, record: Mapping[str, Any]) -> None:
        """Writes one JSON object on one line. All but ASCII is escaped, and so is whatever moves a cursor."""
        self._write_or_add_to_frame(json.dumps(to_jsonable({"schema": SCHEMA, **record})) + "\n")

    def print_json_list(self, name: str, records: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Writes {"schema": 1, name: [...], **more}; for --ndjson each record on a line, without the rest."""
        if not self._is_ndjson:
            self.print_json({name: list(records), **more})
            return
        for record in records:
            self.print_json(record)

    def print_text(self, text: str) -> None:
        """Writes a line of our own words. Text of others in it has to be escaped before."""
        self._write_or_add_to_frame(f"{text}\n")

    def print_message_to_stderr(self, text: str) -> None:
        """Writes a line of our own words to standard error."""
        print_to_stderr(text)

    # Redrawing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def redraw_frame(self) -> Iterator[None]:
        """What is written inside replaces what the last frame has shown, if this is a terminal that can redraw."""
        if not self.is_terminal or os.environ.get("TERM") == "dumb":
            yield
            return
        written = self._frame = []
        try:
            yield
        finally:
            self._frame = None
        lines = "".join(written).splitlines()
        begin = HOME if self._has_cleared else CLEAR_ALL + HOME
        self._has_cleared = True
        self._write_or_add_to_frame(begin + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)

    def _write_or_add_to_frame(self, text: str) -> None:
        if self._frame is not None:
            self._frame.append(text)
            return
        # Colours are chosen here: click must not look once more at what standard output is.
        click.echo(text, nl=False, color=True)


def _split_value_into_lines(value: Any, kind: Kind) -> list[str]:
    """The lines of a value on a terminal, not cut: of a text its own lines, of a time the calendar's beside it."""
    if isinstance(value, str) and kind is Kind.TEXT:
        return [printable(line, UNCUT) for line in value.splitlines()] or [""]
    if kind is Kind.DATA and value is not None:
        indented = json.dumps(to_jsonable(value), ensure_ascii=False, indent=2)
        return [printable(line, UNCUT) for line in indented.split("\n")]
    shown = format_value_for_terminal(value, kind, now_ms())
    if kind is Kind.TIME and value is not None:
        return [f"{format_value_for_pipe(value, kind)} ({shown})"]
    return [shown]
