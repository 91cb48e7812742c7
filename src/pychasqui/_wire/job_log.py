"""An entry of a job's log has one field, `line`, of at most MAX_LINE_BYTES."""

from __future__ import annotations

from .entry import Entry
from .lenient import read_cut_text, read_first_pairs

LINE = "line"
MAX_LINE_BYTES = 4096


def cut_log_line(line: str) -> str:
    """Cuts a line to its bound, at the end of a character."""
    return line.encode("utf-8", "backslashreplace")[:MAX_LINE_BYTES].decode("utf-8", "ignore")


def read_log_line_or_none(entry: Entry) -> str | None:
    """Returns the line, whatever its field is called; None if the entry has none."""
    return read_cut_text(next(iter(read_first_pairs(entry[1]).values()), None))
