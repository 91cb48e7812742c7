"""Unsettled: outcomes of one kind that Redis has not confirmed yet, with their own pauses after an error.

If Redis refuses retries, acks and burials must go on; if it refuses one job, the other jobs of its kind must go on.
"""

from __future__ import annotations

from time import monotonic
from typing import Generic, TypeVar

from .._core.delivery import Delivery
from .._core.guarded_log import GuardedLogger
from .._core.limits import OUTCOME_BATCH
from .._core.outcome import Buried, Rescheduled
from .._redis.error_actions import ErrorAction, action_for
from ..errors import RedisTrouble, ReplyError
from .outage import Outage

log = GuardedLogger("chasqui.worker")

T = TypeVar("T")

REFUSED_BYTES = 64 * 2**20  # up to this size, jobs that Redis refuses do not stop the reader


class Unsettled(Generic[T]):
    """Outcomes of one kind: the acker sends `waiting`; `refused` joins it after a pause."""

    def __init__(self, consumer: str, action: str) -> None:
        self.waiting: list[T] = []
        self.refused: list[T] = []
        self.bytes = 0  # of both lists, for kinds that count it
        self.is_refused = False  # the last call got an error that another attempt does not solve
        self._outage = Outage(
            f"worker {consumer} cannot {action}; they stay pending, and it keeps trying",
            f"worker {consumer} can {action} again",
        )
        self._refusals = Outage(
            f"worker {consumer} cannot {action}, some of which Redis refuses; these stay pending, and it keeps trying",
            f"worker {consumer} can {action} again, all of them",
        )
        self._not_before = 0.0
        self._again_at = 0.0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.refused)

    def list_all_outcomes(self) -> list[T]:
        """Returns all outcomes, the refused ones twice. The heartbeat's thread calls it, too.

        A copy is one step, so an outcome that moves between the lists meanwhile is in at least one copy.
        """
        return [*self.refused.copy(), *self.waiting.copy(), *self.refused.copy()]

    @property
    def is_ready(self) -> bool:
        """Whether an outcome can be sent now."""
        return bool(self.waiting or self.refused) and not self.wait_s

    @property
    def is_after_failure(self) -> bool:
        """Whether Redis has answered nothing since a batch has failed."""
        return self._not_before > 0

    @property
    def wait_s(self) -> float:
        """Seconds until an outcome can be sent; infinite if there is none."""
        if self.waiting:
            at = self._not_before
        elif self.refused:
            at = max(self._not_before, self._again_at)
        else:
            return float("inf")
        return max(0.0, at - monotonic()) if at else 0.0

    def add(self, outcome: T, size: int) -> None:
        self.waiting.append(outcome)
        self.bytes += size

    def remove_first_settled(self, count: int, *, unanswered: list[T], refused: list[T], freed_bytes: int) -> None:
        """Removes the first `count` of `waiting`, except `unanswered`; those in `refused` move to that list."""
        self.bytes -= freed_bytes
        self.refused += refused
        self.waiting[:count] = unanswered  # in one step: the heartbeat's thread reads it

    def move_refused_batch_to_waiting_if_due(self) -> None:
        """Moves some of `refused` to `waiting` if their pause is over."""
        if self.refused and monotonic() >= self._again_at:
            self.waiting += self.refused[:OUTCOME_BATCH]
            del self.refused[:OUTCOME_BATCH]

    def record_answer_and_end_pause(self, refused: list[T], refusal: str) -> None:
        """Notes that Redis has answered for each outcome of a batch; `refused` are no longer in `waiting`."""
        self._outage.end()
        self.is_refused, self._not_before = False, 0.0
        if refused:
            self._again_at = monotonic() + self._refusals.record_error_and_choose_pause_s(ReplyError(refusal))
        elif not self.refused:
            self._refusals.end()

    def record_failure_and_begin_pause(self, error: RedisTrouble, pause_s: float | None = None) -> None:
        """Notes that Redis has answered for no outcome of a batch; the next attempt follows after a pause."""
        if pause_s is None:
            pause_s = self._outage.record_error_and_choose_pause_s(error)
            self.is_refused = action_for(error) is ErrorAction.FATAL
        self._not_before = monotonic() + pause_s


class UnsettledOutcomes:
    """All outcomes that Redis has not confirmed yet, by kind."""

    def __init__(self, consumer: str) -> None:
        self.done = Unsettled[Delivery](consumer, "ack jobs")
        self.done_by_script = Unsettled[Delivery](consumer, "ack jobs by a script")
        self.failed = Unsettled[Rescheduled](consumer, "reschedule failed jobs")
        self.dead = Unsettled[Buried](consumer, "bury dead jobs")

    def count_without_refused(self) -> int:
        """Counts the outcomes. Those that Redis refuses count only beyond REFUSED_BYTES."""
        count = len(self.done.waiting) + len(self.done_by_script.waiting)
        for moves in (self.failed, self.dead):
            if moves.bytes > REFUSED_BYTES:
                count += len(moves)
            elif not moves.is_refused:
                count += len(moves.waiting)
        return count

    def collect_delivery_numbers(self) -> dict[bytes, int]:
        """Returns the entry id of each outcome with its delivery number. The heartbeat's thread calls it, too."""
        held = {
            job.entry_id: job.delivery_number
            for job in (*self.done.waiting.copy(), *self.done_by_script.waiting.copy())
        }
        held.update((job.entry_id, job.delivery) for job in self.failed.list_all_outcomes())
        held.update((job.entry_id, job.delivery) for job in self.dead.list_all_outcomes())
        return held
