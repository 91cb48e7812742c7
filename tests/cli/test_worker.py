"""`chasqui worker`: finds the user's worker, runs it, and ends it in order."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pychasqui import Queue, __version__
from tests.cli.conftest import Chasqui, Finished
from tests.support.server import RedisServer
from tests.support.waiting import eventually

APP = """
import asyncio
import os
from pathlib import Path

from pychasqui import Worker

async def handle(job):
    Path("started").touch()
    while not Path("may-finish").exists():
        await asyncio.sleep(0.01)
    Path("finished").touch()

def make():
    return Worker(os.environ["APP_QUEUE"], handle, redis_url=os.environ["APP_REDIS_URL"], concurrency=7)

async def make_later():
    return make()

worker = make()
"""


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def hang_up_by_default() -> Iterator[None]:
    """A suite that was started by nohup ignores SIGHUP, and so do processes that inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up_by_default")
@pytest.mark.parametrize(
    ("number", "shown"), ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT"), (signal.SIGHUP, "SIGTERM"))
)
async def test_a_signal_lets_the_running_job_finish_and_ends_with_0(
    app: Path, start: Chasqui, redis_url: str, queue_name: str, server: RedisServer, number: signal.Signals, shown: str
):
    process = start("worker", "app:worker", APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add("wait")
        await eventually((app / "started").exists, timeout=20)
        process.send_signal(number)
        line = await _read_until(process, shown)
        assert process.poll() is None, line
        (app / "may-finish").touch()
        await eventually(lambda: process.poll() is not None, timeout=20)
    assert process.returncode == 0
    assert (app / "finished").exists()
    assert server.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 0


async def _read_until(process: subprocess.Popen[str], word: str) -> str:
    """The first line on standard error that holds the word."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return line
    raise AssertionError(f"{word!r} was never said")


@pytest.mark.parametrize("attribute", ("worker", "make", "make_later"))
async def test_a_worker_or_a_function_that_makes_one_runs(
    app: Path, start: Chasqui, redis_url: str, queue_name: str, attribute: str
):
    (app / "may-finish").touch()
    process = start("worker", f"app:{attribute}", APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add("go")
        await eventually((app / "finished").exists, timeout=20)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == ""


async def test_several_workers_run_side_by_side_and_end_when_no_job_waits(
    app: Path, chasqui: Finished, redis_url: str, queue_name: str, server: RedisServer
):
    (app / "may-finish").touch()
    (app / "other.py").write_text(APP.replace('os.environ["APP_QUEUE"]', 'os.environ["APP_QUEUE"] + "-other"'))
    for name in (queue_name, f"{queue_name}-other"):
        async with Queue(name, redis_url=redis_url) as queue:
            await queue.add("go")
    ended = chasqui("worker", "app:worker", "other:worker", "--burst", APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    assert ended.returncode == 0, ended.stderr
    for name in (queue_name, f"{queue_name}-other"):
        assert server.execute("XLEN", f"{{chasqui:{name}}}:stream") == 0


@pytest.mark.parametrize("options", ((), ("--processes", "1")))
async def test_all_lines_of_the_log_are_json_if_that_is_asked_for(
    app: Path, chasqui: Finished, redis_url: str, queue_name: str, options: tuple[str, ...]
):
    arguments = ("worker", "app:worker", "--burst", "--log-format", "json", *options)
    ended = chasqui(*arguments, APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    assert ended.returncode == 0
    records = [json.loads(line) for line in ended.stderr.splitlines()]
    assert records[0]["event"] == f"pychasqui {__version__} {'supervisor' if options else 'worker'}"
    assert records[0].get("queue") == (None if options else queue_name)
    assert any("runs queue" in record["event"] for record in records)


async def test_a_thread_of_the_program_that_keeps_the_process_is_named(
    app: Path, start: Chasqui, redis_url: str, queue_name: str
):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[100], name='poller').start()\n"
    (app / "app.py").write_text(thread + APP)
    process = start("worker", "app:worker", "--burst", APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    assert "['poller']" in await _read_until(process, "waits for the program's own threads")


@pytest.mark.parametrize(("choice", "printable"), (("asyncio", "asyncio"), ("uvloop", "uvloop")))
async def test_the_banner_says_what_runs_where_and_hides_the_password(
    app: Path, start: Chasqui, server: RedisServer, queue_name: str, choice: str, printable: str
):
    if choice == "uvloop":
        pytest.importorskip("uvloop")
    server.start()
    url = server.tcp_url.replace("://", "://someone:hunter2@")
    process = start("worker", "app:worker", "--loop", choice, APP_REDIS_URL=url, APP_QUEUE=queue_name)
    _, err = process.communicate(timeout=20)
    lines = [line.split() for line in err.splitlines()]
    assert ["redis", f"redis://127.0.0.1:{server.port}/0"] in lines
    assert ["queue", queue_name] in lines
    assert ["concurrency", "7"] in lines
    assert ["loop", printable] in lines
    assert "hunter2" not in err


async def test_a_wrong_password_ends_with_4_and_one_line(
    app: Path, chasqui: Finished, server: RedisServer, queue_name: str
):
    server.start()
    url = server.tcp_url.replace("://", "://:wrong@")
    ended = chasqui("worker", "app:worker", APP_REDIS_URL=url, APP_QUEUE=queue_name)
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1].startswith("Error: redis://127.0.0.1")
    assert "Traceback" not in ended.stderr


BROKEN = {
    "empty.py": "",
    "number.py": "worker = 5",
    "greedy.py": "def make(name): ...",
    "idle.py": "def make(): ...",
    "web.py": "from pychasqui import App\njobs = App()\n"
    "class Flask:\n    def __call__(self, environ, start): ...\napp = Flask()\n"
    "@jobs.task\ndef clean_up() -> None: print('it has run')\n",
    "typo.py": "from pychasqui import Worker\nworker = Worker('q', print)",
    "zero.py": "from pychasqui import Worker\nworker = Worker('q', print, concurrency=0)",
    "lacking.py": "import a_module_that_is_nowhere",
    "crashing.py": "def crash():\n    return 1 / 0\ncrash()",
    "crashing_later.py": "def make():\n    return 1 / 0",
    "leaving.py": "import sys\nsys.exit(0)",
    "leaving_later.py": "def make():\n    raise SystemExit(0)",
}


@pytest.mark.parametrize(
    ("target", "code", "message"),
    (
        ("nowhere:worker", 3, "there is no module 'nowhere' in"),
        ("empty.sub:worker", 3, "there is no module 'empty.sub' in"),
        ("empty:worker", 3, "module 'empty' has no 'worker'"),
        ("typo:wroker", 3, "module 'typo' has no 'wroker'; the workers of this module are: worker"),
        (
            "number:worker",
            2,
            "number:worker is a value of type int, not an App, a Worker or a function that returns one",
        ),
        ("typo:Worker", 2, "typo:Worker is the class Worker, not an App, a Worker or a function that returns one"),
        ("greedy:make", 2, "greedy:make takes arguments, but is called without any: it must take none"),
        (
            "web:app",
            2,
            "web:app is a value of type Flask, not an App, a Worker or a function that returns one; "
            "the workers of this module are: jobs",
        ),
        ("web:clean_up", 2, "web:clean_up is a value of type FunctionTask, not an App, a Worker or"),
        ("idle:make", 2, "idle:make returned None, not an App or a Worker"),
        ("empty", 2, "'empty' is not of the form module:attribute"),
        ("empty:", 2, "'empty:' is not of the form module:attribute"),
        ("empty.py:app", 3, "write empty:app"),
        ("./empty.py", 2, "write empty:app"),
        ("shop/app.py:app", 2, "write shop.app:app"),
        ("/srv/shop.py:app", 2, "'/srv/shop.py:app' is not of the form module:attribute"),
        ("zero:worker", 1, "module 'zero' cannot be imported: concurrency is 0, must be at least 1"),
        ("lacking:worker", 1, "module 'lacking' cannot be imported: ModuleNotFoundError: No module named"),
        ("crashing:worker", 1, "module 'crashing' cannot be imported: ZeroDivisionError: division by zero"),
        ("crashing_later:make", 1, "crashing_later:make cannot make a Worker: ZeroDivisionError: division by zero"),
        ("leaving:worker", 1, "module 'leaving' cannot be imported: SystemExit: 0"),
        ("leaving_later:make", 1, "leaving_later:make cannot make a Worker: SystemExit: 0"),
    ),
)
def test_a_worker_that_cannot_be_had_is_explained_in_the_last_line(
    tmp_path: Path, chasqui: Finished, target: str, code: int, message: str
):
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text)
    ended = chasqui("worker", target)
    assert ended.returncode == code
    assert message in ended.stderr.splitlines()[-1]
    assert "pychasqui/cli" not in ended.stderr  # of a traceback only the user's part


def test_a_crash_in_the_users_module_shows_where_it_happened(tmp_path: Path, chasqui: Finished):
    (tmp_path / "crashing.py").write_text(BROKEN["crashing.py"])
    assert 'crashing.py", line 2, in crash' in chasqui("worker", "crashing:worker").stderr


def test_an_unknown_loop_is_wrong_usage(chasqui: Finished):
    ended = chasqui("worker", "app:worker", "--loop", "trio")
    assert ended.returncode == 2
    assert "'trio' is not one of" in ended.stderr


@pytest.mark.parametrize("arguments", ([], ["app:worker", "--processes", "2"]))
def test_a_wrong_settings_file_is_wrong_usage(tmp_path: Path, chasqui: Finished, arguments: list[str]):
    (tmp_path / "chasqui.toml").write_text("colour = 1")
    ended = chasqui("worker", *arguments)
    assert ended.returncode == 2
    assert "sets 'colour', which is no setting" in ended.stderr


TASKS = """
import os
from pathlib import Path
from pychasqui import App

app = App(os.environ["APP_REDIS_URL"], queues={os.environ["APP_QUEUE"]: {"concurrency": 7}}, modules=["more"])

@app.task(queue=os.environ["APP_QUEUE"])
def touch(name: str) -> None:
    Path(name).touch()
"""
MORE = """
from app import app

@app.task(queue="others")
async def other() -> None: ...
"""


async def test_an_app_runs_the_tasks_of_all_its_queues(
    tmp_path: Path, start: Chasqui, redis_url: str, queue_name: str
) -> None:
    (tmp_path / "app.py").write_text(TASKS)
    (tmp_path / "more.py").write_text(MORE)
    process = start("worker", "app:app", APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add("touch", {"name": "done"})
        await eventually((tmp_path / "done").exists, timeout=20)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    lines = [line.split() for line in err.splitlines()]
    assert process.returncode == 0
    assert ["queue", queue_name] in lines
    assert ["concurrency", "7"] in lines
    assert ["queue", "others"] in lines


def test_an_app_whose_module_is_missing_is_named(tmp_path: Path, chasqui: Finished) -> None:
    (tmp_path / "app.py").write_text("from pychasqui import App\napp = App(modules=['nowhere'])\n")
    ended = chasqui("worker", "app:app")
    assert ended.returncode == 1
    assert "app:app cannot make its workers: ModuleNotFoundError: No module named 'nowhere'" in ended.stderr


async def test_the_workers_of_an_app_serve_their_pages_at_ports_of_their_own(
    tmp_path: Path, start: Chasqui, redis_url: str, queue_name: str
) -> None:
    (tmp_path / "app.py").write_text(TASKS)
    (tmp_path / "more.py").write_text(MORE)
    port = find_two_free_ports()
    arguments = ("worker", "app:app", "--burst", "--metrics-port", str(port))
    process = start(*arguments, APP_REDIS_URL=redis_url, APP_QUEUE=queue_name)
    _, err = await asyncio.to_thread(process.communicate, timeout=40)
    assert process.returncode == 0, err
    for one in (port, port + 1):
        assert f"metrics are served at http://127.0.0.1:{one}/metrics" in err


def find_two_free_ports() -> int:
    """The first of two ports, one after the other, that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, suppress(OSError):
            port: int = first.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)):
                return port
