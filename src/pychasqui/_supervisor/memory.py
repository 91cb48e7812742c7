"""How much memory a process occupies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def read_memory_bytes(pid: int) -> int | None:
    """Returns the resident memory of a process, without that of its own children; None if it cannot be read."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None if Path("/proc/self/statm").exists() else _ask_ps(pid)


def _ask_ps(pid: int) -> int | None:
    """Where there is no /proc, as on macOS."""
    try:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return int(told) * 1024 if told.strip().isdigit() else None
