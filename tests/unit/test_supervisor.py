"""The supervisor's decisions that need no process: pauses, messages, systemd's datagrams, counted jobs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from pychasqui._core import clock
from pychasqui._supervisor.child import ChildProcess, describe_exit, make_child_environment
from pychasqui._supervisor.memory import LONGEST_WAIT_S, MemoryLimit
from pychasqui._supervisor.messages import (
    Alive,
    HeldLease,
    LeaseTaken,
    Loaded,
    Message,
    Started,
    SuccessorRequest,
    decode_message,
    encode_message,
)
from pychasqui._supervisor.slot import choose_next_restart_pause_s
from pychasqui._supervisor.socket_folder import make_folder_for_sockets
from pychasqui._supervisor.supervisor import CLEANUP_S, ProcessSupervisor, SupervisorOptions
from pychasqui._supervisor.systemd import Systemd
from pychasqui._supervisor.worker_process import RunLimit
from pychasqui.errors import CannotServe, DecodeError
from pychasqui.metrics import JobOutcome
from tests.support.waiting import eventually

LEASE = HeldLease("redis://:secret@host", False, "mails", "default", "c-1", 6000)


class TestPauses:
    def test_pauses_grow_while_processes_do_not_come_to_work(self) -> None:
        pauses = [0.0]
        for _ in range(9):
            pauses.append(choose_next_restart_pause_s(pauses[-1], 0.0))
        assert pauses[1:4] == [0.1, 0.2, 0.4]
        assert pauses[-1] == 10.0

    def test_a_process_that_has_worked_waits_a_second_at_most(self) -> None:
        assert choose_next_restart_pause_s(10.0, 0.5) == 1.0

    def test_a_process_that_has_worked_for_long_is_started_again_at_once(self) -> None:
        assert choose_next_restart_pause_s(10.0, 3600.0) == 0.0


class TestSuccessors:
    async def test_a_successor_that_a_stop_keeps_from_starting_is_no_error(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        options = SupervisorOptions(processes=1, shutdown_timeout_s=1.0, hang_timeout_s=None)
        supervisor = ProcessSupervisor(["/nowhere/at/all"], options)  # the system refuses to start it
        old = ChildProcess(lambda *_: None, lambda _: None)
        await old.start(["sleep", "60"], os.environ, folder=tmp_path, serves_pages=False)
        (slot,) = supervisor._slots
        slot.current = old
        supervisor._signals.stop.set()
        assert not await slot.try_to_replace_or_hurry_restart()
        assert "no process can be started now" in caplog.text
        assert "before it has started" not in caplog.text
        old.kill()
        await old.wait_for_exit()

    async def test_a_process_that_asks_for_a_successor_before_it_is_in_its_place_gets_one(self, tmp_path: Path) -> None:
        options = SupervisorOptions(processes=1, shutdown_timeout_s=1.0, hang_timeout_s=None)
        supervisor = ProcessSupervisor([sys.executable, "-S", "-c", ASKS_BEFORE_IT_HAS_STARTED], options)
        (slot,) = supervisor._slots
        first = await slot.start_child()
        looking = asyncio.create_task(supervisor._keep_killing_and_replacing_unfit_children())
        seen: set[ChildProcess | None] = set()

        def has_third() -> bool:
            seen.add(slot.current)
            return len(seen) >= 3

        await eventually(has_third)
        assert first in seen
        looking.cancel()
        supervisor._signals.stop.set()
        await supervisor._end_children_and_set_exit_code()
        await asyncio.gather(looking, *supervisor._tasks, return_exceptions=True)


ASKS_BEFORE_IT_HAS_STARTED = """
import os, time
link = int(os.environ["CHASQUI_SUPERVISED_BY"].partition(":")[0])
for message in b'{"type":"loaded"}', b'{"type":"wants_successor","why":"5 jobs"}', b'{"type":"started","pages":[]}':
    os.write(link, message + b"\\n")
time.sleep(60)
"""


class TestEnds:
    async def test_an_error_at_the_end_of_a_process_does_not_keep_its_slot_waiting(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: ChildProcess) -> None:
            raise ValueError("an odd page")

        child = ChildProcess(lambda *_: None, fail)
        await child.start(["true"], os.environ, folder=tmp_path, serves_pages=False)
        assert await asyncio.wait_for(child.wait_for_exit(), 30) == 0
        assert "an odd page" in caplog.text

    async def test_the_leases_of_a_process_end_also_if_its_counts_cannot_be_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        supervisor = ProcessSupervisor([], SupervisorOptions(processes=1, shutdown_timeout_s=1.0, hang_timeout_s=None))
        ended: list[HeldLease] = []
        monkeypatch.setattr(supervisor._leases, "start_ending_leases", lambda leases, **_: ended.extend(leases))
        monkeypatch.setattr(supervisor._pages, "count_ended_process_and_keep_its_counts", lambda _: 1 / 0)
        child = ChildProcess(lambda *_: None, lambda _: None)
        child.leases.append(LEASE)
        with pytest.raises(ZeroDivisionError):
            supervisor._forget_child_and_end_its_leases(child)
        assert ended == [LEASE]


class TestDraining:
    async def test_a_replaced_process_that_does_not_end_is_killed_at_its_deadline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("pychasqui._supervisor.supervisor.LOOK_EVERY_S", 0.01)
        options = SupervisorOptions(processes=1, shutdown_timeout_s=1.0, hang_timeout_s=None)
        supervisor = ProcessSupervisor(["sh", "-c", "trap '' TERM; while :; do sleep 60; done"], options)
        (slot,) = supervisor._slots
        child = await slot.start_child()
        looking = asyncio.create_task(supervisor._keep_killing_and_replacing_unfit_children())
        child.asked_to_end_at = clock.monotonic() - 1.0 - CLEANUP_S + 0.1
        assert not child.was_killed
        assert await asyncio.wait_for(child.wait_for_exit(), 30) == -signal.SIGKILL
        assert f"process {child.pid} has not ended in time and is killed" in caplog.text
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    def test_a_time_in_which_a_process_was_paused_is_no_part_of_its_deadline(self) -> None:
        child = ChildProcess(lambda *_: None, lambda _: None)
        child.asked_to_end_at = clock.monotonic() - 100.0
        child.exclude_lost_time(60.0)
        assert clock.monotonic() - child.asked_to_end_at < 60.0


class TestSilence:
    async def test_a_process_that_was_paused_together_with_the_supervisor_is_not_killed(self, tmp_path: Path) -> None:
        options = SupervisorOptions(processes=1, shutdown_timeout_s=1.0, hang_timeout_s=3.0)
        supervisor = ProcessSupervisor(["sleep", "60"], options)
        (slot,) = supervisor._slots
        child = await slot.start_child()
        looking = asyncio.create_task(supervisor._keep_killing_and_replacing_unfit_children())
        await asyncio.sleep(0)
        time.sleep(3.5)  # as if all were paused
        await asyncio.sleep(0.5)
        assert not child.was_killed
        await asyncio.wait_for(child.wait_for_exit(), 30)
        assert child.was_killed  # it has been silent for long enough since
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


class TestMessages:
    @pytest.mark.parametrize(
        "message",
        (Loaded(("127.0.0.1", 9400)), LeaseTaken(LEASE), Started(["/a/b"]), Alive(), SuccessorRequest("why\nnot")),
    )
    def test_a_message_is_one_line_and_comes_back(self, message: Message) -> None:
        line = encode_message(message)
        assert line.count(b"\n") == 1
        assert decode_message(line) == message

    @pytest.mark.parametrize("line", (b"\n", b"{}\n", b'{"type":"other"}\n', b"\xff\n", b'{"type":"started"}\n'))
    def test_a_line_that_is_no_message_is_refused(self, line: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_message(line)

    def test_a_lease_shows_no_password(self) -> None:
        assert "secret" not in repr(LeaseTaken(LEASE))


class TestSystemd:
    def test_states_reach_the_socket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(tmp_path / "notify"))
            receiver.settimeout(5)
            monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
            Systemd().notify_if_started_by_systemd("READY=1", "STATUS=all is well")
            assert receiver.recv(1000) == b"READY=1\nSTATUS=all is well"
            Systemd().notify_reloading()
            assert receiver.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")

    def test_a_process_without_systemd_notifies_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        systemd = Systemd()
        systemd.notify_if_started_by_systemd("READY=1")
        assert systemd.watchdog_interval_s is None

    def test_the_watchdog_is_fed_twice_as_often_as_it_asks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
        monkeypatch.setenv("WATCHDOG_USEC", "3000000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        assert Systemd().watchdog_interval_s == 1.5
        monkeypatch.setenv("WATCHDOG_PID", "1")
        assert Systemd().watchdog_interval_s is None

    def test_worker_processes_do_not_see_what_is_meant_for_the_supervisor(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
        monkeypatch.setenv("APP_SETTING", "1")
        environment = make_child_environment()
        assert "NOTIFY_SOCKET" not in environment
        assert environment["APP_SETTING"] == "1"


class TestMemory:
    def test_a_process_beyond_the_limit_is_replaced(self) -> None:
        limit = MemoryLimit(100_000_000)
        limit.compare_limit_with_start_size(40_000_000)
        assert limit.find_why_to_replace_and_set_next_wait("slot", 100_000_000, 3600.0) is None
        assert (
            limit.find_why_to_replace_and_set_next_wait("slot", 101_000_000, 3600.0)
            == "it occupies 101 MB, 100 MB are allowed"
        )

    def test_memory_that_cannot_be_read_replaces_nothing(self) -> None:
        limit = MemoryLimit(100_000_000)
        limit.compare_limit_with_start_size(None)
        assert limit.find_why_to_replace_and_set_next_wait("slot", None, 3600.0) is None

    def test_a_limit_below_the_size_of_a_process_that_has_just_started_replaces_nothing_and_is_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        limit = MemoryLimit(1_000_000)
        for _ in range(3):
            limit.compare_limit_with_start_size(40_000_000)
            assert limit.find_why_to_replace_and_set_next_wait("slot", 40_000_000, 3600.0) is None
        (line,) = caplog.messages
        assert line.startswith("a process that has just started occupies 40 MB, but --max-memory is 1 MB")

    def test_a_limit_is_heeded_again_once_processes_start_below_it(self) -> None:
        limit = MemoryLimit(100_000_000)
        limit.compare_limit_with_start_size(101_000_000)
        limit.compare_limit_with_start_size(99_000_000)
        assert limit.find_why_to_replace_and_set_next_wait("slot", 101_000_000, 3600.0) is not None

    def test_a_process_that_grows_early_is_replaced_ever_more_seldom_and_alone_in_its_slot(self) -> None:
        limit = MemoryLimit(100_000_000)
        ages = [
            next(
                age
                for age in range(10_000)
                if limit.find_why_to_replace_and_set_next_wait("slot", 101_000_000, float(age))
            )
            for _ in range(12)
        ]
        assert ages[:6] == [0, 1, 2, 4, 8, 16]
        assert ages[-1] == LONGEST_WAIT_S
        assert limit.find_why_to_replace_and_set_next_wait("other slot", 101_000_000, 1.0) is not None
        assert limit.find_why_to_replace_and_set_next_wait("slot", 101_000_000, 7200.0) is not None
        assert (
            limit.find_why_to_replace_and_set_next_wait("slot", 101_000_000, 1.0) is not None
        )  # one that grew late ends the long waits


class TestCountedJobs:
    def test_the_process_asks_once_for_a_successor(self) -> None:
        asked: list[int] = []
        counter = RunLimit(3, lambda: asked.append(1))
        counter.jobs_done([])
        for _ in range(2):
            counter.job_outcome(JobOutcome("err", 1, 10))
        assert asked == []
        for _ in range(5):
            counter.job_outcome(JobOutcome("ok", 1, 10))
        assert asked == [1]


@pytest.mark.parametrize(
    ("code", "text"),
    ((0, "has ended with exit code 0"), (-9, "was ended by SIGKILL"), (-99, "was ended by signal 99")),
)
def test_an_exit_is_described(code: int, text: str) -> None:
    assert describe_exit(code) == text


class TestSocketFolder:
    def test_a_long_path_of_temporary_files_leads_to_a_folder_that_is_short_enough_for_sockets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parent = tmp_path / ("x" * 100)
        parent.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(parent))
        folder = make_folder_for_sockets()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "4194304-100"))
        shutil.rmtree(folder)

    def test_a_read_only_file_system_is_an_error_that_names_the_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
        with pytest.raises(CannotServe, match="Set TMPDIR to a folder that can be written"):
            make_folder_for_sockets()
