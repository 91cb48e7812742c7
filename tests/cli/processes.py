"""Looks at processes from outside: which process started which, and which still run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str


def all_processes() -> list[Process]:
    """Every process of this machine, without those that have ended and were not waited for yet.

    Until its exec, a process shows the command of its parent, and for a moment none.
    """
    if HAS_PROC:  # less than half of what a start of ps costs
        return _read(_pids())
    table = subprocess.run(
        # -ww: where COLUMNS is set, ps would cut the commands to that width.
        ["ps", "-A", "-ww", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "args="],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split(maxsplit=3) for line in table.splitlines()]
    return [Process(int(row[0]), int(row[1]), row[3]) for row in rows if len(row) == 4 and not row[2].startswith("Z")]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pids: Iterable[int], *, of_parent: int | None = None) -> list[Process]:
    """Those of these that run, from /proc; only the children of one process if it is named."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
                state, parent = stat.read(4096).rpartition(b")")[2].split()[:2]
            if of_parent is not None and int(parent) != of_parent:
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                command = line.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if command and state not in (b"Z", b"X"):
            found.append(Process(pid, int(parent), command))
    return found


def children_of(pid: int) -> list[Process]:
    return _read(_pids(), of_parent=pid) if HAS_PROC else [one for one in all_processes() if one.parent == pid]


def still_running(processes: Iterable[Process]) -> list[Process]:
    pids = {process.pid for process in processes}
    return _read(pids) if HAS_PROC else [process for process in all_processes() if process.pid in pids]


def mentioning(text: str) -> list[Process]:
    return [process for process in all_processes() if text in process.command]
