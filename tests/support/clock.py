"""A clock that a test sets, in the place of `pychasqui._core.clock`."""

from __future__ import annotations

import pytest

from pychasqui._core import clock


class FakeClock:
    """Stands still until the test changes `now`. With `step_s`, each reading moves it on."""

    def __init__(self, now: float = 1000.0, *, step_s: float = 0.0) -> None:
        self.now = now
        self._step_s = step_s

    def __call__(self) -> float:
        now = self.now
        self.now += self._step_s
        return now

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
        """Replaces both clocks of the cold modules."""
        monkeypatch.setattr(clock, "monotonic", self)
        monkeypatch.setattr(clock, "lease_clock", self)
        return self
