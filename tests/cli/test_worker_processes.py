"""`chasqui worker --processes`: the supervisor keeps processes running, and no job is lost or run twice by it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pychasqui import Queue
from tests.cli.conftest import COMMAND, Chasqui, Finished
from tests.cli.processes import still_running
from tests.cli.supervised import LEASE_MS, PROGRAM, SupervisedProgram
from tests.support.server import RedisServer
from tests.support.waiting import eventually, first_below

pytestmark = pytest.mark.timeout(180)  # a process takes long to start on a busy machine


WITHOUT_SIGCHLD = (
    *(sys.executable, "-c"),
    "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])",
    *COMMAND,
)


def jobs(name: str, numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"name": name, "data": number} for number in numbers]


@pytest.fixture
def program(tmp_path: Path, redis_url: str, queue_name: str) -> Iterator[SupervisedProgram]:
    program = SupervisedProgram(tmp_path, redis_url, queue_name)
    yield program
    program.close()


class TestStarting:
    def test_a_program_that_cannot_be_loaded_is_explained_once_and_ends_with_its_exit_code(
        self, tmp_path: Path, chasqui: Finished
    ):
        (tmp_path / "empty.py").write_text("")
        ended = chasqui("worker", "empty:worker", "--processes", "3")
        assert ended.returncode == 3
        assert ended.stderr.count("module 'empty' has no 'worker'") == 1

    def test_a_supervisor_that_was_started_without_sigchld_knows_the_exit_codes(self, tmp_path: Path, start: Chasqui):
        (tmp_path / "empty.py").write_text("")
        process = start("worker", "empty:worker", "--processes", "1", command=WITHOUT_SIGCHLD)
        _, err = process.communicate(timeout=50)
        assert process.returncode == 3, err

    def test_a_wrong_password_ends_with_4(self, tmp_path: Path, chasqui: Finished, server: RedisServer):
        server.start()
        program = SupervisedProgram(tmp_path, server.tcp_url.replace("://", "://:wrong@"), "q")
        ended = chasqui("worker", "app:worker", "--processes", "1", **program.environment)
        assert ended.returncode == 4
        assert "wrong" not in ended.stderr.replace("wrong password", "")

    @pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
    async def test_a_signal_ends_a_supervisor_whose_first_process_still_loads(
        self, program: SupervisedProgram, number: signal.Signals
    ):
        await program.begin_loading()
        assert await program.stop(number) == 0

    async def test_a_signal_in_the_pause_before_a_restart_starts_nothing_and_ends_with_0(
        self, program: SupervisedProgram
    ):
        await program.begin_loading("--processes", "1")
        for pause in ("0.1 s", "0.2 s", "0.4 s", "0.8 s", "1.6 s"):
            for process in await eventually(program.processes):
                os.kill(process.pid, signal.SIGKILL)
            await program.wait_for(f"another one starts in {pause}")
        started = program.log.count(" starts\n")
        assert await program.stop() == 0
        assert program.log.count(" starts\n") == started
        assert "has not ended in time" not in program.log

    async def test_a_second_signal_kills_a_first_process_that_still_loads_and_heeds_none(
        self, program: SupervisedProgram
    ):
        await program.begin_loading(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        program.supervisor.send_signal(signal.SIGTERM)
        await program.wait_for("drain for up to")
        await asyncio.sleep(0.3)  # the same signal within 0.2 s is the first once more
        assert await program.stop() == 1

    async def test_a_first_process_that_hangs_while_it_loads_is_killed_and_another_one_starts(
        self, program: SupervisedProgram
    ):
        await program.begin_loading("--hang-timeout", "2s", then="ctypes.PyDLL(None).sleep(60)")
        await program.wait_for("has given no sign of life")
        await program.wait_for("; another one starts in")
        assert await program.stop() == 0


class TestEnding:
    async def test_a_signal_lets_running_jobs_finish_and_ends_with_0(self, program: SupervisedProgram, queue: Queue):
        """The worker has a fixed name, of which each process makes one of its own."""
        await program.start(target="app:named")
        workers = {worker.consumer_id for worker in await queue.workers()}
        assert workers == {f"named-{process.pid}" for process in program.processes()}
        await queue.add_bulk(jobs("wait", range(4)))
        await eventually(lambda: len(program.runs("begin")) == 4)
        program.supervisor.send_signal(signal.SIGTERM)
        await program.wait_for("drain for up to")
        (program.folder / "may-finish").touch()
        assert await program.wait() == 0
        assert len(program.runs("begin")) == len(program.runs("end")) == 4

    async def test_a_process_may_drain_for_as_long_as_its_workers_do(self, program: SupervisedProgram):
        program.begin("app:patient", "--processes", "1", CHASQUI_SHUTDOWN_DEADLINE_S="1")
        await program.wait_for(" works\n")
        assert await program.stop() == 0
        assert "1 processes drain for up to 60 s" in program.log

    async def test_a_second_ctrl_c_ends_at_once_and_hands_the_jobs_back(
        self, program: SupervisedProgram, queue: Queue, witness, queue_name: str
    ):
        await program.start(processes=1)
        await queue.add_bulk([*jobs("wait", [0]), *jobs("gil", [60])])  # the second stops the whole interpreter
        await eventually(lambda: len(program.runs("begin")) == 2)
        program.supervisor.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)  # the same signal within 0.2 s is the first once more
        assert program.supervisor.poll() is None
        begun = time.monotonic()
        await program.stop(signal.SIGINT)
        assert time.monotonic() - begun < 20  # 3 s, on a quiet machine
        leases = await witness.zrange(f"{{chasqui:{queue_name}}}:workers", 0, -1, withscores=True)
        assert {lease for _, lease in leases} <= {0.0}  # others take the jobs at once

    async def test_a_killed_supervisor_leaves_no_process_behind(self, program: SupervisedProgram, queue: Queue):
        await program.start()
        await queue.add("wait", 0)
        await eventually(lambda: len(program.runs("begin")) == 1)
        processes = program.processes()
        assert len(processes) == 2
        program.supervisor.kill()
        await eventually(lambda: not still_running(processes), timeout=LEASE_MS / 1000 + 15)


class TestDying:
    async def test_a_killed_process_is_started_again_and_its_jobs_begin_elsewhere_within_a_second(
        self, program: SupervisedProgram, queue: Queue
    ):
        await program.start()

        async def measure() -> float:
            """From the kill to the second run, which counts as an attempt."""
            job = await queue.add("first-long", 0)
            (begun,) = await eventually(lambda: [run for run in runs_of(job.id) if run.attempt == 0])
            killed_at = time.time()
            os.kill(begun.pid, signal.SIGKILL)
            (again,) = await eventually(lambda: [run for run in runs_of(job.id) if run.attempt == 1])
            assert again.pid != begun.pid
            await eventually(lambda: len(program.processes()) == 2)
            return again.at - killed_at

        def runs_of(job_id: str):
            return [run for run in program.runs("begin") if run.job_id == job_id]

        await first_below(1.0, measure)
        assert await program.stop() == 0

    async def test_the_job_of_a_process_that_is_killed_while_another_worker_of_it_starts_does_not_wait_for_the_lease(
        self, tmp_path: Path, redis_url: str, queue_name: str, queue: Queue
    ):
        program = SupervisedProgram(tmp_path, redis_url, queue_name, lease_ms=100_000)
        program.begin("app:worker", "app:unconnected", "--processes", "1")
        try:
            await queue.add("first-long", 0)
            (begun,) = await eventually(lambda: program.runs("begin"), timeout=100)
            os.kill(begun.pid, signal.SIGKILL)
            await eventually(lambda: [run.attempt for run in program.runs("end")] == [1], timeout=80)
            assert await program.stop() == 0
        finally:
            program.close()

    async def test_no_job_is_lost_while_processes_are_killed(self, program: SupervisedProgram, queue: Queue):
        await program.start()
        numbers = range(400)
        for start in range(0, len(numbers), 100):
            await queue.add_bulk(jobs("quick", numbers[start : start + 100]))
            if processes := program.processes():
                os.kill(processes[start % len(processes)].pid, signal.SIGKILL)
            await asyncio.sleep(0.2)
        await eventually(lambda: len({run.data for run in program.runs("end")}) == len(numbers), timeout=100)
        assert await program.stop() == 0


class TestLeases:
    async def test_the_supervisor_connects_with_what_the_credential_provider_of_a_worker_returns(
        self, program: SupervisedProgram, server: RedisServer
    ):
        server.execute("ACL", "SETUSER", "rotated", "on", ">word", "~*", "&*", "+@all")
        try:
            await program.start(target="app:provided", processes=1)
            await eventually(lambda: "rotated" in users_of(server, "chasqui-supervisor"))
            assert await program.stop() == 0
        finally:
            server.execute("ACL", "DELUSER", "rotated")
        assert "word" not in program.log

    async def test_a_stopped_process_is_killed_in_time_and_its_job_begins_elsewhere(
        self, program: SupervisedProgram, queue: Queue
    ):
        await program.start("--hang-timeout", "3s")
        await queue.add("first-long", 0)
        (begun,) = await eventually(lambda: program.runs("begin"))
        os.kill(begun.pid, signal.SIGSTOP)
        await program.wait_for(f"process {begun.pid} has given no sign of life")
        await eventually(lambda: [run.attempt for run in program.runs("end")] == [1])
        assert await program.stop() == 0

    async def test_c_code_that_keeps_the_gil_for_three_leases_runs_once(self, program: SupervisedProgram, queue: Queue):
        await program.start()
        await queue.add("gil", 3.3 * LEASE_MS / 1000)
        await eventually(lambda: len(program.runs("end")) == 1)
        await queue.add_bulk(jobs("quick", range(20)))
        await eventually(lambda: len(program.runs("end", "quick")) == 20)
        assert await program.stop() == 0
        assert Counter(run.name for run in program.runs("begin")) == {"gil": 1, "quick": 20}
        assert "The supervisor renews the lease" in program.log


def users_of(server: RedisServer, client_name: str) -> list[str]:
    """The users as which clients of this name are connected."""
    lines = server.execute("CLIENT", "LIST").decode().splitlines()
    rows = [dict(word.partition("=")[::2] for word in line.split(" ")) for line in lines]
    return [row["user"] for row in rows if row["name"] == client_name]


class TestReplacing:
    async def test_a_hangup_replaces_every_process_and_no_job_is_lost_or_run_twice(
        self, program: SupervisedProgram, queue: Queue
    ):
        """And none, once the program does not load any more."""
        await program.start()
        before = {process.pid for process in program.processes()}
        is_enough = asyncio.Event()
        adding = asyncio.create_task(add_until(is_enough, queue))
        program.supervisor.send_signal(signal.SIGHUP)
        await program.wait_for("all processes are replaced")
        await eventually(lambda: not before & {process.pid for process in program.processes()})
        is_enough.set()
        added = await adding
        await eventually(lambda: len(program.runs("end")) >= added, timeout=100)
        await self.a_program_that_does_not_load_any_more_leaves_the_old_processes_at_work(program, queue, added)
        assert await program.stop() == 0
        assert Counter(run.data for run in program.runs("begin")) == Counter(map(str, range(added + 1)))
        assert len(program.processes()) == 0

    async def a_program_that_does_not_load_any_more_leaves_the_old_processes_at_work(
        self, program: SupervisedProgram, queue: Queue, added: int
    ) -> None:
        before = {process.pid for process in program.processes()}
        (program.folder / "app.py").write_text("raise RuntimeError('a mistake')")
        program.supervisor.send_signal(signal.SIGHUP)
        await program.wait_for("go on with the program that they have loaded")
        await queue.add("quick", added)
        await eventually(lambda: len(program.runs("end")) == added + 1)
        assert {process.pid for process in program.processes()} == before

    async def test_a_hangup_ends_a_successor_that_hangs_at_its_start_and_begins_again(self, program: SupervisedProgram):
        await program.start(processes=1)
        (first,) = program.processes()
        program.write_hanging_program(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        program.supervisor.send_signal(signal.SIGHUP)
        await eventually(program.is_loading, timeout=100)
        (program.folder / "app.py").write_text(PROGRAM)
        program.supervisor.send_signal(signal.SIGHUP)
        await program.wait_for("all processes are replaced")
        await eventually(lambda: first.pid not in {process.pid for process in program.processes()})
        assert len(program.processes()) == 1
        assert "go on with the program that they have loaded" not in program.log
        assert await program.stop() == 0

    async def test_a_signal_lets_a_process_that_is_replaced_go_on_draining(
        self, program: SupervisedProgram, queue: Queue
    ):
        await program.start(processes=1)
        await queue.add("wait", 0)
        await eventually(lambda: bool(program.runs("begin")))
        program.supervisor.send_signal(signal.SIGHUP)
        await program.wait_for("all processes are replaced")
        await asyncio.sleep(0.3)  # a signal that comes sooner is the first once more
        program.supervisor.send_signal(signal.SIGTERM)
        await program.wait_for("processes drain")
        (program.folder / "may-finish").touch()
        assert await program.wait() == 0
        assert [run.attempt for run in program.runs("begin")] == [0]
        assert len(program.runs("end")) == 1

    async def test_a_process_is_replaced_after_its_number_of_jobs(self, program: SupervisedProgram, queue: Queue):
        await program.start("--max-jobs", "5", processes=1)
        (first,) = program.processes()
        await queue.add_bulk(jobs("quick", range(10)))
        await program.wait_for("is replaced: it has run 5 jobs")
        await program.wait_for("which drains")
        await eventually(lambda: first.pid not in {process.pid for process in program.processes()})
        await queue.add("quick", 10)
        await eventually(lambda: len(program.runs("end")) == 11)
        assert len({run.pid for run in program.runs("end")}) == 2
        assert await program.stop() == 0


async def add_until(is_enough: asyncio.Event, queue: Queue) -> int:
    """Returns how many it has added."""
    added = 0
    while not is_enough.is_set():
        await queue.add_bulk(jobs("quick", range(added, added + 5)))
        added += 5
        await asyncio.sleep(0.05)
    return added


class TestBursts:
    async def test_a_burst_ends_with_0_once_all_jobs_are_done(self, program: SupervisedProgram, queue: Queue):
        await queue.add_bulk(jobs("quick", range(50)))
        program.begin("app:worker", "--burst", "--processes", "2")
        assert await program.wait() == 0
        assert len(program.runs("end")) == 50
