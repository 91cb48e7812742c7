"""`chasqui exporter`: serves how queues are until a signal ends it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from pychasqui import Queue
from tests.cli.conftest import Chasqui, Finished
from tests.support.server import RedisServer


def address(process: subprocess.Popen[str]) -> str:
    """Where it says that it listens."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"metrics +(http://127\.0\.0\.1:\d+)/metrics", line):
            return found[1]
    raise AssertionError("it never said where it listens")


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=40) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
async def test_the_exporter_serves_the_state_of_queues_until_a_signal_ends_it(
    start: Chasqui, redis_url: str, queue_name: str, number: signal.Signals
):
    async with Queue(queue_name, redis_url=redis_url) as queue:
        await queue.add_bulk([{"name": "mail"}] * 3)
        process = start("exporter", queue_name, "other", "--port", "0", CHASQUI_REDIS_URL=redis_url)
        where = address(process)
        status, text = ask(f"{where}/metrics")
        assert status == 200
        assert f'chasquimq_queue_jobs{{queue="{queue_name}",state="waiting"}} 3' in text.splitlines()
        assert 'chasquimq_queue_up{queue="other"} 1' in text.splitlines()
        assert ask(f"{where}/healthz") == ask(f"{where}/readyz") == (200, "ok\n")
        await queue.drain()
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


FORKING = """
import os, signal, sys, threading, time
from pychasqui.cli.main import main

def fork_and_end_the_child():
    while signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal.SIG_IGN):
        time.sleep(0.01)
    child = os.fork()
    if not child:
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
        signal.pause()
        os._exit(9)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

threading.Thread(target=fork_and_end_the_child, daemon=True).start()
sys.exit(main())
"""


def test_signals_of_a_forked_child_do_not_end_the_exporter(start: Chasqui, redis_url: str):
    """As of a library that the program loads, such as a pool of processes."""
    command = (sys.executable, "-P", "-W", "ignore", "-c", FORKING)
    process = start("exporter", "mail", "--port", "0", command=command, REDIS_URL=redis_url)
    where = address(process)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["True\n", "-15\n"]
    assert ask(f"{where}/healthz") == (200, "ok\n")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_redis_that_is_away_is_reported_without_the_password(start: Chasqui):
    process = start("exporter", "mail", "--port", "0", "--redis-url", "redis://:hunter2@127.0.0.1:1")
    where = address(process)
    assert 'chasquimq_queue_up{queue="mail"} 0' in ask(f"{where}/metrics")[1]
    assert ask(f"{where}/healthz") == (200, "ok\n")
    assert ask(f"{where}/readyz") == (503, "Redis does not answer for mail\n")
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "hunter2" not in err


def test_a_signal_ends_an_exporter_that_still_looks_for_redis(start: Chasqui):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = start(
            "exporter", "mail", "--port", "0", "--redis-url", f"redis://127.0.0.1:{silent.getsockname()[1]}"
        )
        with silent.accept()[0]:
            process.terminate()
            process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_wrong_password_ends_with_4_and_one_line(chasqui: Finished, server: RedisServer):
    server.start()
    url = server.tcp_url.replace("://", "://:wrong@")
    ended = chasqui("exporter", "mail", "--port", "0", REDIS_URL=url)
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[-1].startswith("Error: redis://127.0.0.1")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((), "Missing argument 'QUEUE...'"),
        (("no}good",), "queue name"),
        (("mail", "--port", "65536"), "65536 is not in the range"),
        (("mail", "--redis-url", "http://x"), "redis_url"),
    ),
)
def test_bad_arguments_are_wrong_usage(chasqui: Finished, arguments: tuple[str, ...], message: str):
    ended = chasqui("exporter", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stdout == ""


def test_a_port_that_is_taken_is_reported_in_one_line(start: Chasqui, chasqui: Finished, redis_url: str):
    where = address(start("exporter", "mail", "--port", "0", REDIS_URL=redis_url))
    ended = chasqui("exporter", "mail", "--port", where.rpartition(":")[2], REDIS_URL=redis_url)
    assert ended.returncode == 1
    assert "cannot be listened on" in ended.stderr.splitlines()[-1]


def test_a_host_that_is_no_name_is_reported_in_one_line(chasqui: Finished, redis_url: str):
    ended = chasqui("exporter", "mail", "--port", "0", "--host", "a..b", REDIS_URL=redis_url)
    assert ended.returncode == 1
    assert "a..b:0 cannot be listened on" in ended.stderr.splitlines()[-1]
