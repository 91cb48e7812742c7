"""A lease is measured by a clock that goes on while the machine sleeps."""

from __future__ import annotations

import time

import pytest

from pychasqui._core import clock
from pychasqui._worker import shared


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has such a clock")
def test_the_clock_of_leases_goes_on_while_the_machine_sleeps() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock.lease_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_lease_is_over_after_a_sleep_in_which_no_other_clock_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(shared, "lease_clock", lambda: now)
    monkeypatch.setattr(clock, "monotonic", lambda: 5.0)
    lease = shared.Lease(now + 6.0)
    assert not lease.is_over
    now += 60.0
    assert lease.is_over
