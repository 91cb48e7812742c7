"""Which jobs ran, how often, and how long they had waited: kept by the process that runs them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import ceil

from .messages import Plan, Progress, Verdict, Waits


class Tally:
    """A slot for each job's number. Times are in ns, by the monotonic clock that all processes of a machine share."""

    def __init__(self, plan: Plan) -> None:
        self.count = 0  # of different jobs: one that runs again does not count again
        self._burst = plan.burst
        self._runs = array("I", bytes(4 * plan.total))
        self._waited = array("q", bytes(8 * plan.total))
        self._first_at = self._last_at = 0

    def note(self, number: int, added_at: int, now: int) -> None:
        self.count += not self._runs[number]
        self._runs[number] += 1
        self._waited[number] = now - added_at
        self._first_at = self._first_at or now
        self._last_at = now

    def progress(self) -> Progress:
        return Progress(self.count, (self._last_at - self._first_at) / 1e9)

    def judge(self) -> Verdict:
        return Verdict(
            missing=self._runs.count(0),
            repeated=sum(runs > 1 for runs in self._runs),
            burst=spread(self._waited[: self._burst]),
            trickle=spread(self._waited[self._burst :]),
        )


def spread(waited_ns: Sequence[int]) -> Waits:
    ordered = sorted(waited_ns)
    return Waits(p50_ms=_percentile(ordered, 0.50) / 1e6, p99_ms=_percentile(ordered, 0.99) / 1e6)


def _percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that this share of all values does not exceed."""
    return ordered[max(ceil(share * len(ordered)), 1) - 1]
