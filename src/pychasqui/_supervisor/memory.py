"""How much memory a process occupies, and which processes occupy too much."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

log = logging.getLogger("chasqui.supervisor")

EARLY_S = 60.0  # a process that has grown too large sooner makes the next one be left alone for longer
LONGEST_WAIT_S = 600.0


class MemoryLimit:
    """Says which processes to replace. A successor has to be smaller, else replacing never ends: below the size of a
    process that has just started the limit is not heeded, and a process that grows early is replaced ever more seldom.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._is_below_start = False  # whether a process is too large as soon as it works
        self._waits_s: dict[object, float] = {}  # by slot: how long a process has to have worked to be replaced

    def compare_limit_with_start_size(self, occupied_bytes: int | None) -> None:
        """Compares the limit with a process that has just come to work."""
        was_below, self._is_below_start = (
            self._is_below_start,
            occupied_bytes is not None and occupied_bytes > self._limit,
        )
        if self._is_below_start and not was_below:
            log.error(
                "a process that has just started occupies %s, but --max-memory is %s: no process is replaced for its "
                "memory. Set --max-memory well above that",
                _format_megabytes(occupied_bytes or 0),
                _format_megabytes(self._limit),
            )

    def find_why_to_replace_and_set_next_wait(
        self, slot: object, occupied_bytes: int | None, worked_for_s: float
    ) -> str | None:
        """Returns why the process in this slot is to be replaced; None if it is not."""
        wait_s = self._waits_s.get(slot, 0.0)
        if occupied_bytes is None or occupied_bytes <= self._limit or self._is_below_start or worked_for_s < wait_s:
            return None
        is_early = worked_for_s < max(EARLY_S, 2 * wait_s)
        wait_s = self._waits_s[slot] = min(max(2 * wait_s, 1.0), LONGEST_WAIT_S) if is_early else 0.0
        early = f", {worked_for_s:.0f} s after its start; the next one works for at least {wait_s:g} s"
        amounts = f"it occupies {_format_megabytes(occupied_bytes)}, {_format_megabytes(self._limit)} are allowed"
        return f"{amounts}{early if is_early else ''}"


def _format_megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def read_memory_bytes(pid: int) -> int | None:
    """Returns the resident memory of a process, without that of its own children; None if it cannot be read."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None if Path("/proc/self/statm").exists() else _read_memory_by_ps(pid)


def _read_memory_by_ps(pid: int) -> int | None:
    """Where there is no /proc, as on macOS."""
    try:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return int(shown) * 1024 if shown.strip().isdigit() else None
