"""Ctrl-C ends a command that reads from a terminal, also if it comes in the moment before the read begins."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pychasqui import Queue
from pychasqui.cli.exits import ExitCode
from pychasqui.cli.interruptible_input import ctrl_c_ends_reads
from tests.cli.terminals import TerminalRun
from tests.support.waiting import eventually

# Another thread gets SIGINT here, and the system call of the main thread goes on, as if the signal had come before it.
UNINTERRUPTED = (
    *(sys.executable, "-P", "-c"),
    "import signal, sys, threading; threading.Thread(target=threading.Event().wait, daemon=True).start();"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]);"
    "from pychasqui.cli.main import main; sys.exit(main())",
)


@pytest.mark.parametrize(
    ("words", "shown"),
    (
        (("add", "QUEUE", "n", "-"), "adding 0"),
        (("dlq", "import", "QUEUE"), "importing 0"),
        (("purge", "QUEUE", "--state", "waiting"), "to go on:"),
    ),
)
async def test_ctrl_c_ends_a_read_that_it_does_not_interrupt(
    queue: Queue, redis_url: str, tmp_path: Path, words: tuple[str, ...], shown: str
) -> None:
    await queue.add("n")
    arguments = [queue.name if word == "QUEUE" else word for word in words]
    with TerminalRun(*arguments, folder=tmp_path, command=UNINTERRUPTED, CHASQUI_REDIS_URL=redis_url) as run:
        run.read_until(shown)
        await eventually(lambda: _sleeps(run.process.pid))
        run.interrupt()
        code, text = run.finish()
    assert code == ExitCode.INTERRUPTED
    assert "Traceback" not in text


async def test_ctrl_c_that_the_event_loop_has_noted_ends_the_read_that_follows() -> None:
    errors = list[BaseException]()

    async def read() -> None:
        task.cancel()  # as the event loop does at Ctrl-C
        with pytest.raises(KeyboardInterrupt) as caught, ctrl_c_ends_reads():
            pytest.fail("a read would wait here")
        errors.append(caught.value)

    task = asyncio.create_task(read())
    await asyncio.wait([task])
    assert len(errors) == 1


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "S"
