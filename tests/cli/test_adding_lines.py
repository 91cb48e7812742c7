"""Jobs that are made of the lines of standard input: which lines are read, and what a failure says."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from types import TracebackType

import pytest

from pychasqui import Queue
from pychasqui.cli.add import _add_jobs_from_stdin_lines
from pychasqui.cli.exits import ExitCode
from pychasqui.cli.options import CommandContext
from pychasqui.cli.output import Output
from pychasqui.settings import FoundSetting
from tests.cli.conftest import COMMAND, Chasqui, Finished, plain_environment
from tests.cli.terminals import TerminalRun
from tests.support.server import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


async def test_lines_that_a_shell_has_read_before_are_not_added(queue: Queue, redis_url: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("header\n1\n2\n")
    with lines.open("rb", buffering=0) as source:
        source.read(len("header\n"))
        arguments = ("add", queue.name, "n", "-")
        with TerminalRun(*arguments, folder=tmp_path, stdin=source.fileno(), CHASQUI_REDIS_URL=redis_url) as run:
            code, text = run.finish()
    assert (code, "added 2 jobs" in text) == (0, True)
    assert [job.data for job in (await queue.jobs("waiting")).jobs] == [1, 2]


async def test_a_file_that_is_not_text_is_refused(queue: Queue, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"1\n\xff\n")
    with (tmp_path / "lines").open("rb") as source:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "add", queue.name, "n", "-"),
            stdin=source,
            stderr=asyncio.subprocess.PIPE,
            env=plain_environment() | {"CHASQUI_REDIS_URL": redis_url, "PYTHONIOENCODING": "utf-8:strict"},
        )
        _, err = await process.communicate()
    assert process.returncode == ExitCode.FAILED
    assert err.decode() == "Error: standard input is not utf-8; nothing was added\n"


def test_a_dry_run_with_a_wrong_line_says_that_nothing_was_added(chasqui: Finished, redis_url: str) -> None:
    arguments = ("add", "q", "n", "-", "--dry-run")
    ended = chasqui(*arguments, stdin="1\n" * 1000 + "{\n", CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == ExitCode.FAILED
    assert ended.stderr.strip().endswith("; nothing was added")


async def test_a_server_that_refuses_a_later_line_is_named_with_what_was_added_before(start: Chasqui) -> None:
    with RedisServer() as server:
        process = start("add", "q", "n", "-", has_stdin=True, CHASQUI_REDIS_URL=server.url)
        assert process.stdin is not None
        process.stdin.write("1\n" * 1000)
        process.stdin.flush()
        await eventually(lambda: server.execute("XLEN", "{chasqui:q}:stream") == 1000)
        server.execute("CONFIG", "SET", "maxmemory", "1")
        _, err = await asyncio.to_thread(process.communicate, "1\n", timeout=20)
    assert process.returncode == ExitCode.REDIS
    assert "OOM command not allowed" in err  # Redis 6.2 has more words before it
    assert err.endswith("; the first 1,000 jobs are in the queue\n")


class QueueCancelledAtItsEnd(Queue):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("dry_run", "said"), ((True, "nothing was added"), (False, "the first 5 jobs are in the queue"))
)
async def test_an_interruption_behind_the_last_line_says_how_many_jobs_were_added(
    redis_url: str,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dry_run: bool,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n" * 5)))
    output = Output.make_for_stdout(as_json=False, no_color=True)
    context = CommandContext(output, FoundSetting("redis_url", redis_url, "argument"))
    queue = QueueCancelledAtItsEnd(queue_name, redis_url=redis_url)
    with pytest.raises(asyncio.CancelledError):
        await _add_jobs_from_stdin_lines(context, queue, lambda data: {"name": "n", "data": data}, dry_run=dry_run)
    assert capsys.readouterr().err == f"interrupted: {said}\n"
