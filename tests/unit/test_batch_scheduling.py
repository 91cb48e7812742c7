"""The policy under which threads of plain functions run, as the kernel says it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._worker import batch_scheduling as module
from pychasqui._worker.batch_scheduling import MIN_JOBS, BatchScheduling
from pychasqui._worker.shared import Holdings, Lease, Shared
from pychasqui._worker.thread_lanes import ThreadLanes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has SCHED_BATCH")


def get_policy() -> int:
    return os.sched_getscheduler(0)


def run_in_thread(function: Callable[[], None]) -> None:
    """A policy that a test sets ends with the thread."""
    errors: list[BaseException] = []

    def run_and_keep_error() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  raised again below
            errors.append(error)

    thread = threading.Thread(target=run_and_keep_error)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def note_backlog_of_jobs(scheduling: BatchScheduling, count: int, thread_number: int = 0) -> None:
    for _ in range(count):
        scheduling.note_backlog(thread_number)


class TestPolicy:
    def test_a_thread_has_the_batch_policy_while_it_drains_a_backlog(self) -> None:
        def drain() -> None:
            scheduling = BatchScheduling(1)
            note_backlog_of_jobs(scheduling, MIN_JOBS - 1)
            assert get_policy() == os.SCHED_OTHER
            scheduling.note_backlog(0)
            assert get_policy() == os.SCHED_BATCH
            scheduling.note_no_backlog(0)
            assert get_policy() == os.SCHED_OTHER

        run_in_thread(drain)

    def test_short_backlogs_cost_no_system_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Any] = []
        scheduling = BatchScheduling(1)
        monkeypatch.setattr(os, "sched_setscheduler", lambda *call: calls.append(call))
        for _ in range(10):
            note_backlog_of_jobs(scheduling, MIN_JOBS - 1)
            scheduling.note_no_backlog(0)
        assert calls == []

    def test_a_process_that_has_another_policy_keeps_it(self) -> None:
        def drain_under_idle_policy() -> None:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            note_backlog_of_jobs(BatchScheduling(1), MIN_JOBS)
            assert get_policy() == os.SCHED_IDLE

        run_in_thread(drain_under_idle_policy)

    def test_a_system_that_refuses_is_asked_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Any] = []

        def refuse(*call: Any) -> None:
            calls.append(call)
            raise PermissionError(1, "Operation not permitted")

        scheduling = BatchScheduling(2)
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
        note_backlog_of_jobs(scheduling, MIN_JOBS, 0)
        note_backlog_of_jobs(scheduling, 10 * MIN_JOBS, 1)
        assert len(calls) == 1

    def test_a_system_that_does_not_say_the_policy_keeps_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As Alpine Linux, whose C library has none of these calls."""

        def refuse(*_: Any) -> None:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "sched_getscheduler", refuse)
        monkeypatch.setattr(os, "sched_setscheduler", lambda *_: pytest.fail("the policy was set"))
        note_backlog_of_jobs(BatchScheduling(1), 10 * MIN_JOBS)

    def test_a_kernel_that_does_not_count_waits_keeps_the_normal_policy(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(module, "WAITS", str(tmp_path / "none"))

        def drain() -> None:
            note_backlog_of_jobs(BatchScheduling(1), 10 * MIN_JOBS)
            assert get_policy() == os.SCHED_OTHER

        run_in_thread(drain)


class TestWaits:
    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """The file with the thread's waits, as a test writes it; the thread looks at it for each job."""
        file = tmp_path / "schedstat"
        file.write_text("0 0 0\n")
        monkeypatch.setattr(module, "WAITS", str(file))
        monkeypatch.setattr(module, "LOOK_S", 0.0)
        return file

    def test_long_waits_for_a_core_bring_the_normal_policy_back(
        self, waits: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PAUSE_S", 0.05)

        def drain() -> None:
            scheduling = BatchScheduling(1)
            note_backlog_of_jobs(scheduling, MIN_JOBS)
            waits.write_text("0 30000000 100\n")  # 0.3 ms each
            note_backlog_of_jobs(scheduling, 2)
            assert get_policy() == os.SCHED_BATCH
            waits.write_text("0 130000000 200\n")  # 1 ms each
            note_backlog_of_jobs(scheduling, 2)
            assert get_policy() == os.SCHED_OTHER
            time.sleep(0.05)
            note_backlog_of_jobs(scheduling, 2)
            assert get_policy() == os.SCHED_BATCH

        run_in_thread(drain)

    def test_a_few_long_waits_say_nothing(self, waits: Path) -> None:
        def drain() -> None:
            scheduling = BatchScheduling(1)
            note_backlog_of_jobs(scheduling, MIN_JOBS)
            waits.write_text("0 50000000 5\n")
            note_backlog_of_jobs(scheduling, 2)
            assert get_policy() == os.SCHED_BATCH

        run_in_thread(drain)

    def test_waits_that_cannot_be_read_end_no_thread(self, waits: Path) -> None:
        """As while the process has too many files open."""

        def drain() -> None:
            scheduling = BatchScheduling(1)
            note_backlog_of_jobs(scheduling, MIN_JOBS)
            waits.unlink()
            note_backlog_of_jobs(scheduling, 10)
            assert get_policy() == os.SCHED_BATCH

        run_in_thread(drain)


async def test_threads_of_a_worker_have_the_batch_policy_only_while_jobs_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_NS", 10**12)  # whatever else runs on this machine
    policies: dict[int, list[int]] = {}

    def run(job: Delivery) -> None:
        policies.setdefault(threading.get_ident(), []).append(get_policy())
        time.sleep(0.001)

    def ignore(*_: Any) -> None: ...

    shared = Shared(group="g", consumer="c", holdings=Holdings(4, "c"), on_death=ignore, lease=Lease(float("inf")))
    decode: Any = ignore
    lanes = ThreadLanes(
        run, shared, on_start=None, on_done=ignore, on_failed=ignore, decode_or_settle=decode,
        is_abandoned=lambda: False,
    )  # fmt: skip
    lanes.start()
    try:
        lanes.put_and_wake([Delivery(str(number)) for number in range(400)])
        async with asyncio.timeout(30):
            await lanes.wait_until_all_ran()
        assert sum(map(len, policies.values())) == 400
        assert sum(seen.count(os.SCHED_OTHER) for seen in policies.values()) <= 4 * (MIN_JOBS + 1)
        for seen in policies.values():
            assert seen == sorted(seen), "the batch policy, once it is set, stays while jobs wait"
        policies.clear()
        lanes.put_and_wake([Delivery("alone")])
        async with asyncio.timeout(30):
            await lanes.wait_until_all_ran()
        assert list(policies.values()) == [[os.SCHED_OTHER]]
    finally:
        lanes.let_go_of_threads()
    assert get_policy() == os.SCHED_OTHER, "the event loop keeps its own"
