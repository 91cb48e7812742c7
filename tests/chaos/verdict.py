"""Judges a round by its diary: lost jobs, jobs that ran more than once, and whether there was a reason. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

from pychasqui._core.limits import WORK_TIMEOUT_S
from tests.chaos.diary import Diary, Mishap, RunRecord

ACK_S = 0.5  # a job that ended so shortly before its worker went may not have been acked
SLOW_ACK_S = 2.0  # the same over a slow line: an ack waits for a trip of each other kind of outcome, 300 ms each
RECONNECT_S = 2.0  # how long after an outage a worker may need to ack jobs that ended during it
SHOWN = 8  # how many cases of one kind a message names

# Why a job may run again although no run of it had failed. The last one is no fault of the worker's, and still counts
# against the round unless the caller says otherwise.
KILLED = "killed"
KILLED_LATE = "killed before the ack"
STOPPED = "stopped"
CUT_OFF = "cut off"
CLOSED = "closed in an outage"
UNEXPLAINED = "unexplained"


@dataclass
class Figures:
    jobs: int = 0
    done: int = 0
    dead: int = 0
    lost: list[int] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)  # neither done nor dead, but still stored
    ghosts: list[int] = field(default_factory=list)  # ran although the add had failed
    two_places: list[int] = field(default_factory=list)
    over_budget: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)  # an attempt number that did not grow
    wrong_end: list[int] = field(default_factory=list)  # done or dead against its plan
    overlaps: list[int] = field(default_factory=list)  # two runs at once without a good reason
    reruns: Counter[str] = field(default_factory=Counter)  # jobs run more than once, by the worst reason
    unexplained: list[str] = field(default_factory=list)
    poison_left: int = 0
    recovery_s: float = 0.0
    leftovers: list[str] = field(default_factory=list)

    @property
    def run_twice(self) -> int:
        return sum(self.reruns.values())

    def problems(self) -> list[str]:
        """One line for each kind of broken promise; empty if the round was good."""
        lists: dict[str, list[Any]] = {
            "lost": self.lost,
            "stuck": self.stuck,
            "run although the add had failed": self.ghosts,
            "in two places": self.two_places,
            "run more often than max_attempts": self.over_budget,
            "attempt number did not grow": self.backwards,
            "ended against its plan": self.wrong_end,
            "two runs at once": self.overlaps,
            "run again without a good reason": self.unexplained,
            "left behind": self.leftovers,
        }
        found = [f"{len(cases)} {what}: {_some(cases)}" for what, cases in lists.items() if cases]
        if self.poison_left:
            found.append(f"{self.poison_left} poisoned entries are not in the dead letters once each")
        return found


def judge(diary: Diary) -> Figures:
    figures = Figures(leftovers=diary.leftovers)
    runs: dict[int, list[RunRecord]] = defaultdict(list)
    for run in sorted(diary.runs, key=lambda run: run.start):
        runs[run.number].append(run)
    letters = Counter(letter.number for letter in diary.dead)
    figures.poison_left = abs(diary.poisoned - letters.pop(None, 0))
    done = {number for number, each in runs.items() if any(run.ending == "ok" for run in each)}
    _count_ends(figures, diary, runs, done, letters)
    _judge_runs(figures, diary, runs)
    figures.recovery_s = _longest_recovery(diary, runs)
    return figures


def _count_ends(
    figures: Figures, diary: Diary, runs: dict[int, list[RunRecord]], done: set[int], letters: Counter[int | None]
) -> None:
    for number, job in sorted(diary.added.items()):
        was_seen = number in runs or number in letters or number in diary.still_stored
        if job.answer == "failed" and was_seen:
            figures.ghosts.append(number)
        if not was_seen and job.answer != "ok":
            continue
        figures.jobs += 1
        figures.done += number in done
        figures.dead += number in letters
        if number in diary.still_stored:
            figures.stuck.append(number)
        elif number not in done and number not in letters:
            figures.lost.append(number)
        if letters[number] > 1 or (number in letters and number in done):
            figures.two_places.append(number)
        if number in done and job.is_to_die:
            figures.wrong_end.append(number)
        if number in letters and not job.is_to_die and not _ran_out(runs[number], diary):
            figures.wrong_end.append(number)


def _ran_out(runs: list[RunRecord], diary: Diary) -> bool:
    """Whether its workers' ends can have used up its attempts, be it before it was started."""
    return bool(runs) and any(mishap.kind in ("killed", "stopped", "cut off", "closed") for mishap in diary.mishaps)


def _judge_runs(figures: Figures, diary: Diary, runs: dict[int, list[RunRecord]]) -> None:
    for number, each in runs.items():
        job = diary.added.get(number)
        counted = [run for run in each if run.ending != "cancelled"]
        reasons = [reason for pair in pairwise(each) if (reason := reason_for(*pair, diary))]
        if job is not None and len(counted) > job.max_attempts:
            figures.over_budget.append(number)
        if reasons:
            worst = max(reasons, key=_weight)
            figures.reruns[worst] += 1
            if worst == UNEXPLAINED:
                figures.unexplained.append(describe(each, diary))
        if _goes_backwards(each):
            figures.backwards.append(number)
        if any(_overlap(former, later, diary) for former, later in pairwise(each)):
            figures.overlaps.append(number)


def reason_for(former: RunRecord, later: RunRecord, diary: Diary) -> str:
    """Why there was a later run: "" for a retry or a hand-back, else one of the reasons above."""
    has_ended = former.end is not None and former.end <= later.start
    if former.ending == "failed" and has_ended and later.attempt > former.attempt:
        return ""
    if former.ending == "cancelled" and has_ended and later.attempt == former.attempt:
        return ""
    own = [mishap for mishap in diary.mishaps if mishap.worker == former.worker]
    acked_by = _acked_by(former, diary)
    for mishap in own:
        if mishap.kind == "killed" and former.start <= mishap.begin <= min(later.start, acked_by):
            return KILLED if former.end is None else KILLED_LATE
    lease_can_end_s = diary.lease_s * 2 / 3  # the last renewal was up to a third of a lease ago
    for mishap in own:
        is_long = mishap.end - mishap.begin >= lease_can_end_s and later.start >= mishap.begin + lease_can_end_s
        touches = former.start <= mishap.end and mishap.begin <= acked_by
        if is_long and touches and mishap.kind in ("stopped", "cut off"):
            return STOPPED if mishap.kind == "stopped" else CUT_OFF
    away = [mishap for mishap in diary.mishaps if mishap.kind == "server away" or _is_cut(mishap, former.worker)]
    for mishap in own:
        if mishap.kind == "closed" and later.start >= mishap.begin and any(_meet(mishap, each) for each in away):
            return CLOSED
    return UNEXPLAINED


def _acked_by(run: RunRecord, diary: Diary) -> float:
    """Until when the ack of this run may have been under way."""
    if run.end is None:
        return inf
    until = run.end + ACK_S
    for mishap in sorted(diary.mishaps, key=lambda mishap: mishap.begin):
        is_outage = mishap.kind == "server away" or (
            mishap.worker == run.worker and mishap.kind in ("cut off", "stopped")
        )
        if is_outage and mishap.begin <= until and mishap.end >= run.end:
            until = max(until, mishap.end + RECONNECT_S + ACK_S)
        if mishap.kind == "slow line" and mishap.begin <= run.end + SLOW_ACK_S and mishap.end >= run.end:
            until = max(until, run.end + SLOW_ACK_S)
        # A command sent on a line that has died silently is sent again once that is noticed.
        noticed = mishap.end + WORK_TIMEOUT_S
        is_unnoticed = mishap.kind == "half open" and mishap.worker == run.worker
        if is_unnoticed and mishap.begin <= until and noticed >= run.end:
            until = max(until, noticed + RECONNECT_S + ACK_S)
    return until


def _is_cut(mishap: Mishap, worker: str) -> bool:
    return mishap.kind == "cut off" and mishap.worker == worker


def _meet(one: Mishap, other: Mishap) -> bool:
    return one.begin <= other.end + RECONNECT_S and other.begin <= one.end


def _overlap(former: RunRecord, later: RunRecord, diary: Diary) -> bool:
    """Two runs at once, and no reason why a second worker had to take the job for abandoned."""
    ends = [mishap.begin for mishap in diary.mishaps if mishap.kind == "killed" and mishap.worker == former.worker]
    ends += [mishap.end for mishap in diary.mishaps if mishap.kind == "closed" and mishap.worker == former.worker]
    over = min([former.end if former.end is not None else inf, *(end for end in ends if end >= former.start)])
    return over > later.start and reason_for(former, later, diary) not in (STOPPED, CUT_OFF)


def _goes_backwards(runs: list[RunRecord]) -> bool:
    return any(
        later.attempt < former.attempt or (later.attempt == former.attempt and former.ending != "cancelled")
        for former, later in pairwise(runs)
    )


def _longest_recovery(diary: Diary, runs: dict[int, list[RunRecord]]) -> float:
    """From the end of the last fault to the last start of a job that had been added before it."""
    starts = [
        runs[number][-1].start
        for number, job in diary.added.items()
        if number in runs and job.answer != "failed" and job.at <= diary.healed_at
    ]
    return max(0.0, max(starts, default=0.0) - diary.healed_at)


def _weight(reason: str) -> int:
    return (KILLED, KILLED_LATE, STOPPED, CUT_OFF, CLOSED, UNEXPLAINED).index(reason)


def describe(runs: list[RunRecord], diary: Diary) -> str:
    """A job's runs, with times in seconds after the first."""
    first = runs[0].start
    described = [
        f"{run.worker} attempt {run.attempt} at {run.start - first:.2f}"
        f" {run.ending}{'' if run.end is None else f' at {run.end - first:.2f}'}"
        for run in runs
    ]
    job = diary.added.get(runs[0].number)
    return f"job {runs[0].number} ({job.plan if job else '?'}): {'; '.join(described)}"


def _some(cases: Iterable[object]) -> str:
    listed = [str(case) for case in cases]
    return ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")
