"""`chasqui worker --processes` with `--metrics-port`, `--max-memory` and `--reload`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pychasqui import Queue
from tests.cli.conftest import Finished
from tests.cli.supervised import PROGRAM, SupervisedProgram
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # a process takes long to start on a busy machine


@pytest.fixture
def program(tmp_path: Path, redis_url: str, queue_name: str) -> Iterator[SupervisedProgram]:
    program = SupervisedProgram(tmp_path, redis_url, queue_name)
    yield program
    program.close()


async def fetch(port: int, page: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {page} HTTP/1.1\r\n\r\n".encode())
    response = (await reader.read()).decode()
    writer.close()
    return int(response.split()[1]), response.partition("\r\n\r\n")[2]


def served_port(program: SupervisedProgram) -> int:
    found = re.search(r"metrics are served at http://127.0.0.1:(\d+)/metrics", program.log)
    assert found is not None
    return int(found[1])


async def completed(port: int) -> float:
    _, text = await fetch(port, "/metrics")
    return sum(map(float, re.findall(r"^chasquimq_jobs_completed_total\{.*\} (\S+)$", text, re.MULTILINE)))


def quick_jobs(count: int) -> list[dict[str, Any]]:
    return [{"name": "quick", "data": number} for number in range(count)]


async def test_one_port_serves_the_sum_of_all_processes_also_of_one_that_was_killed(
    program: SupervisedProgram, queue: Queue
):
    await program.start("--metrics-port", "0")
    port = served_port(program)
    assert await fetch(port, "/healthz") == (200, "ok\n")
    await eventually(lambda: is_ready(port))
    await queue.add_bulk(quick_jobs(40))
    await eventually(lambda: has_completed(port, 40))
    _, text = await fetch(port, "/metrics")
    assert re.search(r"^chasquimq_worker_concurrency\{.*\} 8$", text, re.MULTILINE)
    assert re.search(r"^chasquimq_worker_ready\{.*\} 1$", text, re.MULTILINE)
    assert "\nchasquimq_worker_processes 2\n" in text
    # The next process is not ready before it may load.
    waits = "while not Path('may-load').exists():\n    time.sleep(0.01)\n"
    (program.folder / "app.py").write_text(PROGRAM.replace("worker = make()", f"{waits}worker = make()"))
    os.kill(program.processes()[0].pid, signal.SIGKILL)
    await eventually(lambda: is_not_ready(port))
    (program.folder / "may-load").touch()
    await program.wait_for("was ended by SIGKILL")
    assert await completed(port) == 40
    await program.wait_for(" works\n", 3)
    await eventually(lambda: is_ready(port))
    assert "\nchasquimq_worker_process_deaths_total 1\n" in (await fetch(port, "/metrics"))[1]
    assert await program.stop() == 0


async def is_ready(port: int) -> bool:
    return (await fetch(port, "/readyz"))[0] == 200


async def is_not_ready(port: int) -> bool:
    return (await fetch(port, "/readyz"))[0] == 503


async def has_completed(port: int, count: int) -> bool:
    return await completed(port) == count


async def test_the_port_that_the_program_names_is_served_by_the_supervisor(program: SupervisedProgram):
    (program.folder / "app.py").write_text(PROGRAM.replace("worker = make()", "worker = make(metrics_port=0)"))
    await program.start()
    port = served_port(program)
    await eventually(lambda: is_ready(port))
    assert "\nchasquimq_worker_processes 2\n" in (await fetch(port, "/metrics"))[1]
    assert await program.stop() == 0


def test_a_port_that_is_taken_ends_with_1(tmp_path: Path, chasqui: Finished):
    import socket

    (tmp_path / "app.py").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = chasqui("worker", "app:worker", "--processes", "2", "--metrics-port", str(port))
    assert ended.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened on" in ended.stderr.splitlines()[-1]


async def test_a_process_that_occupies_too_much_memory_is_replaced(program: SupervisedProgram, queue: Queue):
    await program.start("--max-memory", "150MB", processes=1)
    await queue.add("grow", 200)
    await program.wait_for("150 MB are allowed")
    await program.wait_for("which drains")
    assert await program.stop() == 0


async def test_a_limit_below_the_size_of_a_fresh_process_replaces_nothing(program: SupervisedProgram):
    await program.start("--max-memory", "1MB", processes=1)
    await program.wait_for("but --max-memory is 1 MB: no process is replaced")
    await asyncio.sleep(1.5)  # the supervisor looks once a second
    assert "is replaced: " not in program.log
    assert await program.stop() == 0


async def test_a_changed_file_replaces_the_processes(program: SupervisedProgram, queue: Queue):
    pytest.importorskip("watchfiles")
    await program.start("--reload", processes=1)
    (before,) = program.processes()
    (program.folder / "app.py").write_text(PROGRAM.replace('write(job, "end")', 'write(job, "changed")'))
    await program.wait_for("files have changed")
    await program.wait_for("all processes are replaced")
    await eventually(lambda: before.pid not in {process.pid for process in program.processes()})
    await queue.add("quick", 0)
    await eventually(lambda: len(program.runs("changed")) == 1)
    assert await program.stop() == 0


def test_a_missing_watchfiles_is_explained(tmp_path: Path, chasqui: Finished):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['watchfiles'] = None\n")
    (tmp_path / "app.py").write_text("")
    ended = chasqui("worker", "app:worker", "--reload", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert "pip install 'pychasqui[reload]'" in ended.stderr
