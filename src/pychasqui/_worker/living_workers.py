"""LivingWorkers: how many workers of the group live. What each of a few workers does all the time, many share, so that
Redis has no more to do for a thousand idle workers than for a few."""

from __future__ import annotations


class LivingWorkers:
    """How many workers live, as the last renewal of the lease found it. The heartbeat's thread notes it."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def set_count(self, count: int) -> None:
        self.count = max(1, count)

    def scale_pause_by_workers(self, pause_s: float, unscaled_workers: int) -> float:
        """Returns how long each worker pauses so that all do as much as this many that each pause for `pause_s`."""
        return pause_s * max(1.0, self.count / unscaled_workers)
