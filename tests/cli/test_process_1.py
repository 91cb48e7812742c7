"""A command that is process 1 of a container: the system drops signals that it has no handler for."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, plain_environment
from tests.cli.processes import children_of
from tests.support.waiting import eventually

AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--kill-child")


def can_have_process_1() -> bool:
    try:
        return subprocess.run([*AS_PROCESS_1, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_have_process_1(), reason="no namespace of processes can be made here")
@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
async def test_a_signal_ends_a_worker_that_still_loads_as_process_1(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "app.py").write_text("import time\nopen('loading', 'w').close()\ntime.sleep(100)\n")
    words = [*AS_PROCESS_1, *COMMAND, "worker", "app:worker"]
    with subprocess.Popen(words, cwd=tmp_path, env=plain_environment()) as process:
        try:
            await eventually((tmp_path / "loading").exists)
            (first,) = children_of(process.pid)
            os.kill(first.pid, number)
            await eventually(lambda: process.poll() is not None)
        finally:
            process.kill()
    assert process.returncode == 128 + number
