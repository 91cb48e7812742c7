"""Tables: rows of values that fit the width of a terminal, or lines with tabs for a pipe.

On a terminal a table has one line a row. Where it is too wide, its columns move closer together; where that is not
enough, those that may shrink are cut, and the cut is shown. rich draws it where it is installed; without rich it is the
same table without colours.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .values import Kind, format_value_for_pipe, format_value_for_terminal

GAP = 2  # spaces between columns
NARROW_GAP = 1  # where a value would have to be cut
MIN_WIDTH = 6  # of a column that is cut
CUT = "…"
RIGHT = (Kind.COUNT, Kind.RATE, Kind.SPAN)


@dataclass(frozen=True)
class Column:
    """A column: the key of its values in the records, its title, and how its values are written."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    shrinks: bool = False  # it is cut first if the terminal is too narrow
    styles: Mapping[str, str] = field(default_factory=dict)  # rich styles by value; "*" for all others

    def choose_style(self, value: Any) -> str:
        if value is None or value == 0:
            return "dim"
        return self.styles.get(str(value), self.styles.get("*", ""))


def format_for_pipe(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line with the titles, and one a record; values are parted by one tab, and nothing is cut."""
    titles = "\t".join(column.title for column in columns)
    return [
        titles,
        *("\t".join(format_value_for_pipe(record.get(one.key), one.kind) for one in columns) for record in records),
    ]


def format_for_terminal(
    columns: Sequence[Column],
    records: Sequence[Mapping[str, Any]],
    *,
    width: int,
    has_color: bool,
    now_ms: int,
    has_titles: bool = True,
) -> str:
    """Returns the table for a terminal, with a line end after each row."""
    rows = [
        [format_value_for_terminal(record.get(column.key), column.kind, now_ms) for column in columns]
        for record in records
    ]
    titles = [column.title for column in columns]
    gap, widths = _choose_gap_and_widths(columns, [titles, *rows] if has_titles else rows, width)
    cells = [[cut_to_cells(cell, room) for cell, room in zip(row, widths, strict=True)] for row in rows]
    styles = [[column.choose_style(record.get(column.key)) for column in columns] for record in records]
    if (
        has_color
        and (drawn := _draw_with_rich_if_installed(columns, cells, styles, widths, gap, has_titles)) is not None
    ):
        return drawn
    lines = (
        [[cut_to_cells(title, room) for title, room in zip(titles, widths, strict=True)], *cells]
        if has_titles
        else cells
    )
    return "".join(f"{_pad_cells(columns, line, widths, gap)}\n" for line in lines)


def _choose_gap_and_widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[int, list[int]]:
    """Returns the gap between columns and their widths: what they need, or less for those that shrink.

    The widest of them is cut first.
    """
    widths = [max((count_cells(row[place]) for row in rows), default=0) for place in range(len(columns))]
    gap = GAP if sum(widths) + GAP * (len(columns) - 1) <= width else NARROW_GAP
    excess = sum(widths) + gap * (len(columns) - 1) - width
    for may_shrink in (True, False):  # where even that is too wide, every column is cut
        while excess > 0:
            places = [place for place, column in enumerate(columns) if column.shrinks or not may_shrink]
            widest = max(places, key=lambda place: widths[place], default=None)
            if widest is None or widths[widest] <= MIN_WIDTH:
                break
            widths[widest] -= 1
            excess -= 1
    return gap, widths


def _draw_with_rich_if_installed(
    columns: Sequence[Column],
    cells: list[list[str]],
    styles: list[list[str]],
    widths: list[int],
    gap: int,
    has_titles: bool,
) -> str | None:
    """Draws the table by rich; None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=has_titles, header_style="bold")
    for column, room in zip(columns, widths, strict=True):
        title = Text(cut_to_cells(column.title, room))
        table.add_column(title, width=room, no_wrap=True, justify="right" if column.kind in RIGHT else "left")
    for row, kinds in zip(cells, styles, strict=True):
        table.add_row(*(Text(cell, style) for cell, style in zip(row, kinds, strict=True)))
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=sum(widths) + gap * len(widths),
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip(' ')}\n" for line in captured.get().splitlines())


def _pad_cells(columns: Sequence[Column], line: Sequence[str], widths: Sequence[int], gap: int) -> str:
    padded = (
        " " * (room - count_cells(cell)) + cell if column.kind in RIGHT else cell + " " * (room - count_cells(cell))
        for column, cell, room in zip(columns, line, widths, strict=True)
    )
    return (" " * gap).join(padded).rstrip(" ")


def cut_to_cells(text: str, room: int) -> str:
    """Cuts text to that many cells of a terminal, and shows that it is cut."""
    if count_cells(text) <= room:
        return text
    kept, used = "", 1
    for letter in text:
        used += count_cells(letter)
        if used > room:
            break
        kept += letter
    return kept + CUT


def count_cells(text: str) -> int:
    """Returns how many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
