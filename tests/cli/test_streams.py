"""Standard streams that are closed, or lead to a disk that is full; files that an export goes to."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pychasqui import Queue
from pychasqui.cli.exits import CommandFailure
from pychasqui.cli.export_file import open_export
from tests.cli.conftest import COMMAND, plain_environment

WORKER = """
from pychasqui import Worker
async def note(job): open("done", "w").close()
worker = Worker("mail", note)
"""


def run_with(redirections: str, *arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command whose streams a shell redirects."""
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", *COMMAND, *arguments]
    return subprocess.run(
        words,
        cwd=folder,
        env=plain_environment() | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("redirections", (">&-", "<&- >&- 2>&-"))
def test_a_command_whose_streams_are_closed_ends_as_any_other(redirections: str, tmp_path: Path):
    ended = run_with(redirections, "config", folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_answer_that_does_not_fit_on_the_disk_is_an_error(tmp_path: Path):
    ended = run_with(">/dev/full", "config", folder=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == "Error: the answer cannot be written: No space left on device\n"


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path: Path):
    assert run_with("2>/dev/full", "nonsense", folder=tmp_path).returncode == 2


@pytest.mark.parametrize(("options", "redirections"), (([], "2>/dev/full"), (["--processes", "1"], "2>&-")))
async def test_a_worker_runs_jobs_though_its_log_cannot_be_written(
    options: list[str], redirections: str, tmp_path: Path, redis_url: str
):
    (tmp_path / "shop.py").write_text(WORKER)
    async with Queue("mail", redis_url=redis_url) as queue:
        await queue.add("send", None)
    arguments = ["worker", "shop:worker", "--burst", *options]
    ended = run_with(redirections, *arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == 0
    assert (tmp_path / "done").exists()


def test_standard_input_that_is_closed_has_no_lines(tmp_path: Path, redis_url: str):
    ended = run_with("<&-", "add", "mail", "send", "-", folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
    assert (ended.returncode, ended.stdout) == (0, "added 0 jobs\n")


class TestExports:
    def test_a_file_is_replaced_as_a_whole(self, tmp_path: Path):
        path = tmp_path / "letters"
        path.write_text("old")
        path.chmod(0o640)
        with open_export(str(path)) as target:
            target.write("new")
            target.flush()
            assert path.read_text() == "old"
        assert path.read_text() == "new"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert os.listdir(tmp_path) == ["letters"]

    @pytest.mark.parametrize("error", (OSError(28, "No space left on device"), KeyboardInterrupt()))
    def test_an_export_that_fails_leaves_the_last_one_as_it_was(self, error: BaseException, tmp_path: Path):
        path = tmp_path / "letters"
        path.write_text("old")
        with suppress(CommandFailure, KeyboardInterrupt), open_export(str(path)) as target:
            target.write("half")
            raise error
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["letters"]

    def test_a_pipe_is_written_to_and_not_replaced(self, tmp_path: Path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with open_export(str(path)) as target:
                target.write("letter")
            assert os.read(reader, 100) == b"letter"
        finally:
            os.close(reader)
        assert stat.S_ISFIFO(path.stat().st_mode)

    @pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is of Linux")
    def test_an_export_that_does_not_fit_on_the_disk_is_no_success(self):
        refusal = pytest.raises(CommandFailure, match="/dev/full cannot be written: No space left on device")
        with refusal, open_export("/dev/full") as target:
            target.write("letter")
