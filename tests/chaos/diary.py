"""What happened in a round, as values: jobs added, runs of handlers, mishaps of workers, dead letters.

Pure but for reading the file that the worker processes append to. verdict.py judges it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Answer = Literal["ok", "unknown", "failed"]
Ending = Literal["ok", "failed", "cancelled", "none"]
MishapKind = Literal[
    "killed",  # SIGKILL: begin is when
    "stopped",  # SIGSTOP until SIGCONT or the end of the process
    "cut off",  # this worker alone could not reach Redis
    "closed",  # SIGTERM until the process had ended
    "server away",  # no worker could reach Redis, or Redis took no writes
    "group deleted",
    "half open",  # no excuse for anything
    "slow line",  # every trip takes 300 ms: an excuse for a late ack alone
]


@dataclass(frozen=True)
class Added:
    """A job that the producer tried to add."""

    number: int
    answer: Answer
    at: float
    max_attempts: int
    plan: str = "ok"  # what its handler was asked to do; for messages only
    job_id: str = ""
    is_to_die: bool = False  # whether its handler was asked to fail for good


@dataclass(frozen=True)
class RunRecord:
    """One call of a handler. `end` is None if it never came back."""

    number: int
    attempt: int
    worker: str
    start: float
    end: float | None = None
    ending: Ending = "none"
    job_id: str = ""


@dataclass(frozen=True)
class Mishap:
    kind: MishapKind
    begin: float
    end: float
    worker: str = ""  # empty: all of them


@dataclass(frozen=True)
class DeadLetter:
    number: int | None  # None: not a job of ours, but poison
    reason: str


@dataclass
class Diary:
    """Everything that the judgement is made from."""

    added: dict[int, Added] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    still_stored: set[int] = field(default_factory=set)  # numbers found in the stream or the delayed set at the end
    poisoned: int = 0
    healed_at: float = 0.0
    lease_s: float = 0.0
    leftovers: list[str] = field(default_factory=list)  # keys, consumers and errors that should not be there


def read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    # A process may be writing: the last line counts once its end is there.
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def read_runs(path: Path) -> list[RunRecord]:
    """All runs, in the order of their starts."""
    starts: dict[str, dict[str, Any]] = {}
    ends: dict[str, dict[str, Any]] = {}
    for line in read_lines(path):
        if line["what"] == "start":
            starts[line["run"]] = line
        elif "run" in line:
            ends[line["run"]] = line
    runs = [_run(line, ends.get(run)) for run, line in starts.items() if line["n"] is not None]
    return sorted(runs, key=lambda run: run.start)


def _run(start: dict[str, Any], end: dict[str, Any] | None) -> RunRecord:
    return RunRecord(
        number=start["n"],
        attempt=start["attempt"],
        worker=start["worker"],
        start=start["at"],
        end=end["at"] if end else None,
        ending=end["what"] if end else "none",
        job_id=start["id"],
    )
