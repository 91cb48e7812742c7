"""LoopWatch logs that the worker's event loop is blocked: for how long, by what, and what to do about it."""

from __future__ import annotations

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._worker import loop_watch
from pychasqui._worker.loop_watch import LoopWatch
from pychasqui._worker.shared import Holdings


@pytest.mark.parametrize(
    ("running", "blamed"),
    (
        (Delivery("1", "resize", None), "a handler that does not await (running: 'resize')"),
        (None, "other code of the process: this worker runs no job"),
    ),
)
def test_a_blocked_loop_is_logged_once_with_its_cause_and_the_remedy(
    running: Delivery | None, blamed: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "BLOCKED_S", 0.0)
    holdings = Holdings(1, "w")
    holdings.running[0] = running
    watch = LoopWatch("w", holdings, call_in_worker_loop=lambda _: None)  # a loop that never answers
    watch._ask_for_sign()
    for _ in range(2):
        watch._report_blockage()
    (line,) = caplog.messages
    assert f"by {blamed}; its leases are kept" in line
    assert "asyncio.to_thread()" in line
    assert "_report_blockage" in line.splitlines()[-2]  # the innermost frame is the last
