"""When a repeatable fires: its pattern, the policy for fires that were missed, and the next times of a pattern."""

from __future__ import annotations

from ._core.fire_times import next_fire, next_fires
from ._core.repeat_pattern import MissedFiresPolicy, RepeatPattern

__all__ = ["MissedFiresPolicy", "RepeatPattern", "next_fire", "next_fires"]
