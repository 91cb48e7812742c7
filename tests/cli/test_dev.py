"""`chasqui dev`: a private server, and a worker that starts again when a file changes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from pychasqui.cli.source_watch import SourceWatch
from tests.cli.conftest import Chasqui
from tests.cli.processes import children_of, still_running
from tests.cli.terminals import TerminalRun
from tests.support.waiting import eventually

APP = """
from pychasqui import Worker

async def handle(job):
    with open("ran", "a") as file:
        file.write(f"{VERSION} {job.name}\\n")
    print("ran", job.name, flush=True)

worker = Worker("mail", handle)
"""


WRITES_WITHOUT_END = """
import threading

def write():
    while True:
        print("x" * 70)

threading.Thread(target=write, daemon=True).start()
"""


def write_app(folder: Path, version: str) -> None:
    (folder / "app.py").write_text(f"VERSION = {version!r}\n{APP}")


def ran(folder: Path) -> str:
    file = folder / "ran"
    return file.read_text() if file.exists() else ""


def shown_lines(text: str) -> list[str]:
    """The lines as a terminal shows them, which writes over what is there and clears it when asked to."""
    lines = []
    for written in text.split("\n"):
        line, column = "", 0
        for part in re.split(r"(\r|\x1b\[K)", written):
            if part == "\r":
                column = 0
            elif part == "\x1b[K":
                line = line[:column]
            else:
                line = line[:column] + part + line[column + len(part) :]
                column += len(part)
        lines.append(line)
    return lines


@pytest.mark.timeout(180)
async def test_a_changed_file_starts_the_worker_again_and_ctrl_c_ends_all(
    tmp_path: Path, redis_url: str, start: Chasqui
) -> None:
    write_app(tmp_path, "one")
    with TerminalRun("dev", "app:worker", folder=tmp_path, CHASQUI_DEV_REDIS_URL=redis_url) as run:

        def add(name: str) -> None:
            assert start("add", "mail", name, CHASQUI_REDIS_URL=redis_url).wait(timeout=60) == 0

        run.read_until("mail: empty", timeout_s=60)
        add("first")
        await eventually(lambda: ran(tmp_path) == "one first\n", timeout=60)
        write_app(tmp_path, "number two")
        run.read_until("app.py changed: the worker starts again", timeout_s=60)
        add("second")
        await eventually(lambda: ran(tmp_path) == "one first\nnumber two second\n", timeout=60)
        children = children_of(run.process.pid)
        assert len(children) == 1
        run.interrupt()
        code, text = run.finish(timeout_s=60)
    assert code == 0
    assert f"  redis {redis_url}" in text  # without a password, so it is no value for a variable
    assert "CHASQUI_REDIS_URL=" not in text
    assert "done/s\r" in text
    *lines, _ = shown_lines(text)
    assert [line for line in lines if "done/s" in line] == []  # nothing is left of it beside what the worker writes
    assert [line for line in lines if line.startswith("ran ")] == ["ran first", "ran second"]
    assert still_running(children) == []


@pytest.mark.timeout(180)
def test_a_worker_that_writes_without_end_starts_again_after_a_change(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "app.py").write_text(f"VERSION = 'one'\n{APP}{WRITES_WITHOUT_END}")
    with TerminalRun("dev", "app:worker", folder=tmp_path, CHASQUI_DEV_REDIS_URL=redis_url) as run:
        run.read_until("x" * 70, timeout_s=60)
        write_app(tmp_path, "quiet")
        run.read_until("app.py changed: the worker starts again", timeout_s=20)
        run.interrupt()
        code, _ = run.finish(timeout_s=60)
    assert code == 0


@pytest.mark.timeout(180)
async def test_a_private_server_is_started_and_a_worker_that_fails_waits_for_a_change(
    tmp_path: Path, start: Chasqui
) -> None:
    (tmp_path / "app.py").write_text("1 / 0\n")
    process = start("dev", "app:worker", "--folder", "data")
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any(line.startswith("  CHASQUI_REDIS_URL=embedded:///") for line in lines)
    assert any("it starts again with a change" in line for line in lines)
    write_app(tmp_path, "mended")
    assert any("runs queue mail" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "data").is_dir()


def test_a_watch_notices_what_is_written_added_and_removed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    for hidden in (".git", "venv"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "b.py").write_text("1")
    watch = SourceWatch(tmp_path)
    assert watch.find_files_changed_since_last_call() == []
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "c.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    (tmp_path / "venv" / "b.py").unlink()
    assert watch.find_files_changed_since_last_call() == ["package/c.py"]
    (tmp_path / "a.py").unlink()
    assert watch.find_files_changed_since_last_call() == ["a.py"]
    assert watch.find_files_changed_since_last_call() == []
