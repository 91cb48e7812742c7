"""Backoff: the pauses of a loop that tries again until an attempt succeeds."""

from __future__ import annotations

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Backoff:
    """Each pause is twice the last, from the first up to the longest; a success starts over."""

    def __init__(self, first_s: float = FIRST_PAUSE_S, longest_s: float = LONGEST_PAUSE_S) -> None:
        self.pause_s = 0.0  # the last one; 0 after a success
        self._first_s = first_s
        self._longest_s = longest_s

    def next_pause_s(self) -> float:
        """How long to wait after an attempt that has failed."""
        self.pause_s = min(max(2 * self.pause_s, self._first_s), self._longest_s)
        return self.pause_s

    def reset(self) -> None:
        """An attempt has succeeded."""
        self.pause_s = 0.0
