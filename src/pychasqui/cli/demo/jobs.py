"""The demo's jobs: their kinds, the record of their runs, and the check of that record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from mmap import mmap
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

from ..exits import CommandFailure

SLOW_S = 0.3
SLOW_JOBS = 200  # about, however many jobs there are: some of them run when the process is killed


class JobKind(NamedTuple):
    title: str
    planned_runs: int
    options: dict[str, Any]


KINDS = {  # by the name of the job
    "plain": JobKind("plain", 1, {}),
    "slow": JobKind(f"take {SLOW_S} s", 1, {}),
    "failing": JobKind("fail once, then succeed", 2, {"backoff": 100}),
    "delayed": JobKind("delayed by 1 s", 1, {"delay_ms": 1000}),
    "dead": JobKind("fail twice, then dead", 2, {"attempts": 2, "backoff": 100}),
}


def choose_kind(number: int, jobs: int) -> str:
    match number % 100:
        case 10 | 60:
            return "failing"
        case 20 | 70:
            return "delayed"
        case 30:
            return "dead"
    return "slow" if number % max(10, jobs // SLOW_JOBS) == 5 else "plain"


class Runs:
    """Counts how often one process began and finished each job: a byte a job in a file, which survives a kill."""

    def __init__(self, path: Path, jobs: int) -> None:
        with path.open("a+b") as file:
            file.truncate(2 * jobs)
            view = memoryview(mmap(file.fileno(), 2 * jobs))
        self.begun, self.done = view[:jobs], view[jobs:]


def count_jobs_done_at_least_once(records: Sequence[Runs]) -> int:
    """How many different jobs any of the processes has finished."""
    merged = [int.from_bytes(runs.done, "little") for runs in records]
    size = len(records[0].done)
    return size - reduce(or_, merged).to_bytes(size, "little").count(0)


def classify_runs_of_job(planned_runs: int, ends: int, killed_runs: int, other_runs: int) -> str:
    """How a job ended that is done or dead `ends` times, and that each of the two processes began that often.

    A job that was taken over before it began has one run fewer than planned: its delivery to the killed process counts
    as an attempt.
    """
    surplus = killed_runs + other_runs - planned_runs
    if ends == 0:
        return "missing"
    if ends == 1 and surplus <= 0:
        return "once"
    return "again" if surplus == 1 and killed_runs and other_runs else "repeated"


def tally_outcomes(jobs: int, killed: Runs, other: Runs, dead: Counter[int]) -> Counter[tuple[str, str]]:
    """Counts the jobs by kind and outcome, and under the kind "all". `dead` counts the dead letters of each job."""
    tally: Counter[tuple[str, str]] = Counter()
    for number in range(jobs):
        kind = choose_kind(number, jobs)
        ends = dead[number] if kind == "dead" else killed.done[number] + other.done[number]
        outcome = classify_runs_of_job(KINDS[kind].planned_runs, ends, killed.begun[number], other.begun[number])
        tally.update([(kind, outcome), ("all", outcome)])
    return tally


def describe_tally_or_raise(tally: Counter[tuple[str, str]]) -> str:
    """The last line of the demo; raises if a job is missing, or ran twice without a reason."""
    again, repeated, missing = (tally["all", outcome] for outcome in ("again", "repeated", "missing"))
    if missing or repeated:
        raise CommandFailure(f"{missing:,} jobs are missing, and {repeated:,} ran twice without a reason")
    exception = f", except for {again:,} that the killed process had begun: they ran again" if again else ""
    return f"Each job ran exactly once{exception}."
