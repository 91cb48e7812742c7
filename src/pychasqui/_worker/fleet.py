"""Fleet: the workers of the group. What each of a few workers does all the time, many share, so that Redis has no more
to do for a thousand idle workers than for a few."""

from __future__ import annotations


class Fleet:
    """How many workers live, as the last renewal of the lease found it. The heartbeat's thread notes it."""

    def __init__(self, living: int = 1) -> None:
        self.living = living
        self._has_ended_leases = False

    def note_living_workers(self, living: int, over: int) -> None:
        self.living = max(1, living)
        self._has_ended_leases = over > 0

    def take_news_of_ended_leases(self) -> bool:
        """Returns whether the last renewal found leases that are over, once for each renewal."""
        has_news, self._has_ended_leases = self._has_ended_leases, False
        return has_news

    def spread_pause(self, seconds: float, workers: int) -> float:
        """Returns how long each worker pauses so that all do as much as this many that each pause for `seconds`."""
        return seconds * max(1.0, self.living / workers)
