"""Repeatables as a scheduler plans them, for tests of their patterns."""

from __future__ import annotations

from typing import Any

from pychasqui import RepeatPattern, next_fire
from pychasqui._core.repeat_pattern import RepeatSpec


def spec(pattern: RepeatPattern | None = None, **options: Any) -> RepeatSpec:
    """A repeatable that fires each minute, unless the test says otherwise."""
    given: dict[str, Any] = {"job_name": "tick", "payload": b"\xc0", "pattern": pattern or RepeatPattern.every(60_000)}
    return RepeatSpec(**(given | options))


def windows(pattern: RepeatPattern, after_ms: int, until_ms: int) -> list[int]:
    """When it fires, after one time and up to another."""
    found = []
    while (fire_ms := next_fire(pattern, after_ms)) is not None and fire_ms <= until_ms:
        found.append(after_ms := fire_ms)
    return found
