"""The pauses of a loop that tries again until an attempt succeeds: each is twice the last, up to a longest one."""

from __future__ import annotations

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
JITTER = (0.3, 0.8)  # shares of a pause between two connections: even after the longest one is made within a second
LONGEST_RESEND_PAUSE_S = 0.2  # before a call that a live server has refused is sent again


def compute_longer_pause_s(pause_s: float, first_s: float = FIRST_PAUSE_S, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Returns the pause that follows one of `pause_s`; the first one follows 0."""
    return min(max(2 * pause_s, first_s), longest_s)


class GrowingPause:
    """Keeps the pause between attempts; a success starts over."""

    def __init__(self) -> None:
        self.pause_s = 0.0  # 0 after a success

    def lengthen_pause_s(self) -> float:
        """Returns how long to wait after an attempt that has failed."""
        self.pause_s = compute_longer_pause_s(self.pause_s)
        return self.pause_s

    def shorten_to_at_most(self, longest_s: float) -> None:
        """Makes `pause_s` no longer than this."""
        self.pause_s = min(self.pause_s, longest_s)

    def reset(self) -> None:
        """Starts over, because an attempt has succeeded."""
        self.pause_s = 0.0
