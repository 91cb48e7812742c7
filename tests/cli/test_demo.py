"""`chasqui demo`: what it prints, how it fails, and that no process and no file is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pychasqui._redis.keys import REGISTRY
from pychasqui.cli.demo.process import END_TIMEOUT_S, Runs
from pychasqui.cli.demo.run import (
    classify_runs_of_job,
    count_jobs_done_at_least_once,
    describe_tally_or_raise,
    tally_outcomes,
)
from pychasqui.cli.exits import CommandFailure
from tests.cli.conftest import COMMAND, Chasqui, Finished, plain_environment
from tests.cli.processes import Process, children_of, mentioning, still_running
from tests.support.server import RedisServer
from tests.support.waiting import eventually

MANY = "5000000"  # more than run while a test looks on
WITHOUT_RICH = (
    *(sys.executable, "-P", "-c"),
    "import sys; sys.modules['rich'] = None; from pychasqui.cli.main import main; sys.exit(main())",
)


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the demo makes its folder. Not in tmp_path, whose name is too long for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="chasqui-cli-"))
    yield folder
    shutil.rmtree(folder)


async def test_each_job_runs_once_although_a_worker_process_is_killed(chasqui: Finished, temporary: Path):
    ended = chasqui("demo", "--jobs", "3000", TMPDIR=str(temporary))
    assert ended.returncode == 0, ended.stderr
    header, *rows, times, last = [re.split(r" {2,}", line) for line in ended.stdout.splitlines()]
    assert header == ["jobs", "count", "once", "again after the kill", "twice", "missing"]
    assert [row[:2] for row in rows] == [
        ["plain", "2,700"],
        ["take 0.3 s", "150"],
        ["fail once, then succeed", "60"],
        ["delayed by 1 s", "60"],
        ["fail twice, then dead", "30"],
        ["all jobs", "3,000"],
    ]
    assert all(row[4:] == ["0", "0"] for row in rows)
    assert re.fullmatch(
        r"3,000 jobs took [\d.]+ s; up to the kill [\d,]+ took [\d.]+ s: [\d,]+ jobs a second.", times[0]
    )
    again = f", except for {rows[-1][3]} that the killed process had begun: they ran again"
    assert last == [f"Each job ran exactly once{again if rows[-1][3] != '0' else ''}."]
    assert mentioning(str(temporary)) == []
    assert list(temporary.iterdir()) == []
    progress = ended.stderr.splitlines()
    assert re.fullmatch(r"pychasqui \S+ on a private server", progress[0])
    assert any(
        re.fullmatch(r"killed worker process [12]; the other one takes over its jobs", line) for line in progress
    )
    assert re.fullmatch(r"added 3,000 of 3,000, ended 3,000 after [\d.]+ s", progress[-1])


@pytest.mark.parametrize(("number", "code"), ((signal.SIGINT, 130), (signal.SIGTERM, 143)))
async def test_no_process_or_file_is_left_when_the_demo_is_interrupted(
    start: Chasqui, temporary: Path, number: signal.Signals, code: int
):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in err
    assert still_running(children) == []
    assert mentioning(str(temporary)) == []
    assert list(temporary.iterdir()) == []


async def test_a_demo_that_is_interrupted_does_not_wait_for_its_worker_processes(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    for child in children:
        os.kill(child.pid, signal.SIGSTOP)  # it could not end by itself
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_TIMEOUT_S)  # after which each of them would be killed anyway
    assert process.returncode == 130
    assert still_running(children) == []


async def test_the_processes_of_a_demo_that_was_killed_end_by_themselves(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    process.kill()
    process.communicate()
    await eventually(lambda: not still_running(children) and not mentioning(str(temporary)), timeout=20, every=0.1)


async def test_a_worker_process_that_ends_by_itself_fails_the_demo(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    os.kill(children[0].pid, signal.SIGKILL)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert re.fullmatch(r"Error: worker process [12] ended with status -9", err.splitlines()[-1])
    assert out == ""
    assert still_running(children) == []


async def test_a_server_of_the_users_is_left_as_it_was(chasqui: Finished, redis_url: str, server: RedisServer):
    ended = chasqui("demo", "--jobs", "100", "--redis-url", redis_url)
    assert ended.returncode == 0, ended.stderr
    assert redis_url in ended.stderr
    assert server.execute("KEYS", "*") in ([], [REGISTRY.encode()])  # which forgets the name by itself


async def test_jobs_that_are_missing_fail_the_demo(start: Chasqui, redis_url: str, server: RedisServer):
    process = start("demo", "--jobs", "100", "--redis-url", redis_url)

    def remove_delayed_jobs() -> bool:
        keys = server.execute("KEYS", "*:delayed")
        since_ms = 1000 * time.time() + 300  # later than any retry is due
        is_there = bool(keys) and server.execute("ZCOUNT", keys[0], since_ms, "+inf") == 2
        return is_there and server.execute("ZREMRANGEBYSCORE", keys[0], since_ms, "+inf") == 2

    await eventually(remove_delayed_jobs, timeout=20, every=0.02)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 1
    assert re.search(r"^delayed by 1 s +2 +0 +0 +0 +2$", out, re.MULTILINE)
    assert err.splitlines()[-1] == "Error: 2 jobs are missing, and 0 ran twice without a reason"


async def test_a_server_that_cannot_be_reached_ends_with_4_and_hides_the_password(chasqui: Finished, tmp_path: Path):
    ended = chasqui("demo", "--redis-url", f"unix://someone:hunter2@{tmp_path}/nobody.sock")
    assert ended.returncode == 4
    assert f"Error: cannot reach unix://{tmp_path}/nobody.sock" in ended.stderr
    assert "hunter2" not in ended.stderr


async def test_a_server_program_that_does_not_run_ends_with_4_at_once(chasqui: Finished, temporary: Path):
    ended = chasqui("demo", TMPDIR=str(temporary), CHASQUI_REDIS_SERVER="/no/such/redis-server")
    assert ended.returncode == 4
    assert (
        ended.stderr
        == "Error: CHASQUI_REDIS_SERVER is '/no/such/redis-server', which is not a program that can be run\n"
    )
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("url", ("ftp://somewhere", "embedded://nothing"))
async def test_a_url_of_no_known_kind_is_wrong_usage(chasqui: Finished, url: str):
    ended = chasqui("demo", "--redis-url", url)
    assert ended.returncode == 2
    assert "Invalid value for '--redis-url'" in ended.stderr


async def test_no_jobs_are_wrong_usage(chasqui: Finished):
    assert chasqui("demo", "--jobs", "0").returncode == 2


async def test_a_terminal_of_80_columns_gets_bars_and_a_table_that_fit(temporary: Path):
    pytest.importorskip("rich")
    code, text = _run_on_terminal(COMMAND, temporary, columns=80)
    assert code == 0
    assert "━" in text
    assert "\x1b[3" in text
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    bars_and_table = plain[: plain.index(" jobs took ")]
    assert max(len(line) for line in re.split(r"[\r\n]+", bars_and_table)) <= 80


async def test_a_terminal_without_rich_gets_plain_lines(temporary: Path):
    code, text = _run_on_terminal(WITHOUT_RICH, temporary, columns=80)
    assert code == 0
    assert "━" not in text
    assert "added 200 of 200" in text
    assert "Each job ran exactly once" in text


@pytest.mark.parametrize(
    ("planned_runs", "ends", "killed_runs", "other_runs", "outcome"),
    (
        (1, 1, 0, 1, "once"),
        (2, 1, 1, 1, "once"),  # failed in one process, was retried in the other
        (2, 1, 0, 1, "once"),  # taken over before it began
        (1, 1, 1, 1, "again"),  # cut off by the kill
        (1, 2, 1, 1, "again"),  # done, and killed before its ack
        (1, 2, 0, 2, "repeated"),
        (1, 2, 2, 0, "repeated"),
        (1, 2, 1, 2, "repeated"),
        (1, 0, 1, 0, "missing"),
        (1, 0, 0, 0, "missing"),
    ),
)
def test_the_outcome_of_a_job_follows_from_its_runs(
    planned_runs: int, ends: int, killed_runs: int, other_runs: int, outcome: str
):
    assert classify_runs_of_job(planned_runs, ends, killed_runs, other_runs) == outcome


def test_a_record_counts_each_job_once_and_is_shared_through_its_file(tmp_path: Path):
    killed, other = Runs(tmp_path / "1", 40), Runs(tmp_path / "2", 40)
    for number in range(39):  # all but the last
        other.begun[number] = 1
        other.done[number] = number != 30
    other.begun[30] = 2  # it fails twice
    killed.begun[7] = killed.done[7] = 1
    assert count_jobs_done_at_least_once([Runs(tmp_path / "1", 40), Runs(tmp_path / "2", 40)]) == 38
    tally = tally_outcomes(40, killed, other, Counter([30]))
    assert {outcome: tally["all", outcome] for outcome in ("once", "again", "repeated", "missing")} == {
        "once": 38,
        "again": 1,
        "repeated": 0,
        "missing": 1,
    }
    with pytest.raises(CommandFailure, match="1 jobs are missing, and 0 ran twice") as failure:
        describe_tally_or_raise(tally)
    assert failure.value.code == 1


async def _two_children(process: subprocess.Popen[str]) -> list[Process]:
    """The worker processes, as soon as both are there and show their own commands."""

    def find() -> list[Process] | None:
        assert process.poll() is None, f"the demo has ended: {process.communicate()}"
        found = [child for child in children_of(process.pid) if "pychasqui.cli.demo.process" in child.command]
        return found if len(found) == 2 else None

    found = await eventually(find, timeout=20, every=0.02)
    assert found is not None
    return found


def _run_on_terminal(command: tuple[str, ...], temporary: Path, columns: int, **environment: str) -> tuple[int, str]:
    """Run a short demo whose three streams are a terminal; its exit code and all that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*command, "demo", "--jobs", "200"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**plain_environment(), "TERM": "xterm-256color", "TMPDIR": str(temporary), **environment},
    )
    os.close(theirs)
    text = b""
    try:
        while chunk := _read(ours):
            text += chunk
        return process.wait(timeout=20), text.decode()
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def _read(terminal: int) -> bytes:
    """What is there, or nothing once the other side has closed it."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says it
        return b""
