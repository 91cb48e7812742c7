"""LoopWatch logs that the worker's event loop is blocked: for how long, by what, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._worker import loop_watch
from pychasqui._worker.loop_watch import LoopWatch
from pychasqui._worker.shared import Holdings
from tests.support.clock import FakeClock


@pytest.mark.parametrize(
    ("running", "blamed"),
    (
        (Delivery("1", name="resize"), "a handler that does not await (running: 'resize')"),
        (None, "other code of the process: this worker runs no job"),
    ),
)
def test_a_blocked_loop_is_logged_once_with_its_cause_and_the_remedy(
    running: Delivery | None, blamed: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_S", 0.0)
    holdings = Holdings(1, "w")
    holdings.running[0] = running
    watch = LoopWatch("w", holdings, call_soon_in_worker_loop_if_running=lambda _: None)  # a loop that never answers
    watch._request_lag_measurement()
    for _ in range(2):
        watch._log_if_newly_blocked()
    (line,) = caplog.messages
    assert f"by {blamed}; its leases are kept" in line
    assert "asyncio.to_thread()" in line
    assert "_log_if_newly_blocked" in line.splitlines()[-2]  # the innermost frame is the last


@pytest.mark.parametrize(("running", "asks"), ((Delivery("1", name="resize"), 20), (None, 5)))
def test_the_loop_of_a_worker_that_runs_nothing_is_asked_rarely(
    running: Delivery | None, asks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question wakes a loop that has nothing to do."""
    clock, asked = FakeClock(), list[float]()
    monkeypatch.setattr(loop_watch, "monotonic", lambda: clock.now)
    holdings = Holdings(1, "w")
    holdings.running[0] = running

    def answer(sign: Callable[[], None]) -> None:
        asked.append(clock.now)
        sign()

    watch = LoopWatch("w", holdings, call_soon_in_worker_loop_if_running=answer)
    for _ in range(40):
        watch.log_if_blocked_and_measure_if_due()
        clock.now += 0.25
    assert len(asked) == asks
