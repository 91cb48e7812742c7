"""`chasqui demo`: what it prints, how it fails, and that it leaves nothing behind."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import COMMAND, Chasqui, Finished, plain_environment
from tests.cli.processes import Process, children_of, mentioning, still_running
from tests.support.server import RedisServer
from tests.support.waiting import eventually

MANY = "5000000"  # more than run while a test looks on
WITHOUT_RICH = (
    *(sys.executable, "-P", "-c"),
    "import sys; sys.modules['rich'] = None; from pychasqui.cli.main import main; sys.exit(main())",
)


class Children(NamedTuple):
    working: Process
    adding: Process


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the demo makes its folder. Not in tmp_path, whose name is too long for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="chasqui-cli-"))
    yield folder
    shutil.rmtree(folder)


async def test_all_jobs_run_and_a_table_says_so(chasqui: Finished, temporary: Path):
    ended = chasqui("demo", "--jobs", "3000", TMPDIR=str(temporary))
    assert ended.returncode == 0, ended.stderr
    rows = [re.split(r" {2,}", line) for line in ended.stdout.splitlines()]
    assert rows[0] == ["", "jobs", "jobs/s", "add to start, p50", "p99"]
    assert rows[1][:2] == ["burst, added", "3,000"]
    assert rows[2][:2] == ["burst, done", "3,000"]
    assert rows[3][:2] == ["one by one, idle queue", "2,000"]
    assert all(re.fullmatch(r"[\d.]+ m?s", cell) for cell in [*rows[2][3:], *rows[3][2:]])
    assert rows[-1] == ["All 5,000 jobs ran, each exactly once."]


async def test_progress_goes_to_standard_error_in_plain_lines(chasqui: Finished, temporary: Path):
    lines = chasqui("demo", "--jobs", "1500", TMPDIR=str(temporary)).stderr.splitlines()
    assert re.fullmatch(r"pychasqui \S+ on \w+ [\d.]+, a private server", lines[0])
    assert any(
        re.fullmatch(r"added 1,500 of 1,500 \([\d,]+/s\), done 1,500 of 1,500 \([\d,]+/s\)", line) for line in lines
    )
    assert lines[-6] == "one by one 1,500 of 1,500"


async def test_small_scenes_after_the_numbers_show_the_other_features(chasqui: Finished, temporary: Path):
    ended = chasqui("demo", "--jobs", "100", TMPDIR=str(temporary))
    assert ended.returncode == 0, ended.stderr
    retried, delayed, replayed, scheduled, results = ended.stderr.splitlines()[-5:]
    assert re.fullmatch(r"ok +retried: failed twice, done in run 3, \d+ ms after its add", retried)
    assert re.fullmatch(r"ok +delayed: due in 300 ms, done after \d+ ms", delayed)
    assert replayed.split(maxsplit=1) == [
        "ok",
        "dead, replayed: died of 'nothing there', 1 brought back, and it was done",
    ]
    assert re.fullmatch(r"ok +schedule: every 100 ms, 5 times, in \d+ ms", scheduled)
    assert re.fullmatch(r"ok +results: 100 came back in \d+ ms", results)


async def test_no_process_or_file_is_left_when_the_demo_is_over(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", "1000", TMPDIR=str(temporary))
    children = await _two_children(process)
    process.communicate(timeout=40)
    assert process.returncode == 0
    assert still_running(children) == []
    assert mentioning(str(temporary)) == []
    assert list(temporary.iterdir()) == []


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


async def test_the_processes_of_a_demo_that_was_killed_end_by_themselves(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    process.kill()
    process.communicate()
    await eventually(lambda: not still_running(children) and not mentioning(str(temporary)), timeout=20, every=0.1)


async def test_a_process_of_the_demo_that_dies_fails_the_demo(start: Chasqui, temporary: Path):
    process = start("demo", "--jobs", MANY, TMPDIR=str(temporary))
    children = await _two_children(process)
    os.kill(children.working.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.splitlines()[-1] == "Error: the working process ended with status -9"
    assert out == ""
    assert still_running(children) == []


async def test_a_server_of_the_users_is_left_as_it_was(chasqui: Finished, redis_url: str, server: RedisServer):
    ended = chasqui("demo", "--jobs", "100", "--redis-url", redis_url)
    assert ended.returncode == 0, ended.stderr
    assert redis_url in ended.stderr
    assert server.execute("KEYS", "*") == []


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
    assert "one by one, idle queue" in text
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80


async def test_no_color_means_none(temporary: Path):
    pytest.importorskip("rich")
    _, text = _run_on_terminal(COMMAND, temporary, columns=80, NO_COLOR="1")
    assert "━" in text
    assert "\x1b[3" not in text


async def test_a_narrow_terminal_gets_the_table_whole(temporary: Path):
    _, text = _run_on_terminal(COMMAND, temporary, columns=50)
    assert "add to start, p50" in text
    assert "…" not in text


async def test_a_terminal_without_rich_gets_plain_lines(temporary: Path):
    code, text = _run_on_terminal(WITHOUT_RICH, temporary, columns=80)
    assert code == 0
    assert "\x1b" not in text
    assert "added 200 of 200" in text
    assert "All 400 jobs ran, each exactly once." in text


async def _two_children(process: subprocess.Popen[str]) -> Children:
    """The processes that add and work, as soon as both are there and show their own commands."""

    def find() -> Children | None:
        assert process.poll() is None, f"the demo has ended: {process.communicate()}"
        children = children_of(process.pid)
        working = [child for child in children if child.command.endswith(" pychasqui.cli.demo.working")]
        adding = [child for child in children if child.command.endswith(" pychasqui.cli.demo.adding")]
        return Children(working[0], adding[0]) if working and adding else None

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
