"""When a repeatable fires: its pattern, the policy for fires that were missed, and the next times of a pattern."""

from __future__ import annotations

from ._core.repeat_pattern import MissedFiresPolicy, RepeatPattern, next_fire, next_fires

__all__ = ["MissedFiresPolicy", "RepeatPattern", "next_fire", "next_fires"]
