"""Estimates how many jobs a worker may hold, by how fast they finish and by how large they are: pure arithmetic."""

from __future__ import annotations

import math

from .limits import MAX_AHEAD, PREFETCH_S, READ_BATCH

SHORTEST_S = 0.02  # shorter stretches say more about the scheduler than about the handler
RISES_IN_S = 0.2  # how far back a rise must go: further than the moment in which all lanes finish together
FALLS_IN_S = 0.05  # and a fall: soon, because what waits here could run elsewhere


class PaceEstimate:
    """A rate that follows what is measured."""

    def __init__(self, now: float) -> None:
        self.rate = 0.0  # runs finished a second
        self._finished = 0
        self._at = now

    def record_finished_if_time_passed(self, finished_total: int, now: float) -> None:
        elapsed = now - self._at
        if elapsed < SHORTEST_S:
            return
        latest = (finished_total - self._finished) / elapsed
        memory = RISES_IN_S if latest > self.rate else FALLS_IN_S
        self.rate += (latest - self.rate) * elapsed / (elapsed + memory)
        self._finished, self._at = finished_total, now

    def forget_pace(self, finished_total: int, now: float) -> None:
        """Forgets the pace after an idle spell: what comes now may be slower than what came before."""
        self.rate, self._finished, self._at = 0.0, finished_total, now

    def estimate_jobs_to_prefetch(self) -> int:
        """Returns how many jobs, beside those that idle lanes take at once, will be started within PREFETCH_S."""
        return min(int(self.rate * PREFETCH_S), MAX_AHEAD)


SIZE_KEPT = 0.75  # of the size of entries, from one batch to the next: large ones tend to come in groups


class EntrySizeEstimate:
    """How many bytes an entry takes on the line, judged by those that came last; rather too many than too few."""

    def __init__(self) -> None:
        self.bytes = math.inf  # nothing is known yet: anything may come

    @property
    def is_known(self) -> bool:
        return self.bytes != math.inf

    def record_entries(self, count: int, total_bytes: int) -> None:
        if count:
            self.bytes = max(total_bytes / count, self.bytes * SIZE_KEPT if self.is_known else 0.0)

    def set_expected_entry_bytes(self, entry_bytes: float) -> None:
        """Entries of this size may come, whatever was measured."""
        self.bytes = entry_bytes

    def estimate_bytes(self, count: int) -> float:
        """Returns how many bytes that many entries take; 0 if there are none."""
        return count * self.bytes if count else 0.0

    def count_entries_to_wait_for(self, room_bytes: int) -> int:
        """Returns how many to wait for; at least one: how large an entry is shows only when it is here."""
        return max(1, int(room_bytes / self.bytes)) if self.bytes and self.is_known else READ_BATCH
