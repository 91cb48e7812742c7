"""Programs that add jobs from synchronous code until they end, in each way in which programs end.

`python -m tests.support.sync_exits ROUNDS [PYTHON ...]` runs each of them many times, with each of these interpreters,
against a private server, and reports those that hung, failed, or lost an add that was acknowledged.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NamedTuple

from pychasqui import SyncQueue
from tests.support.server import RedisServer

HEAD = """
import atexit, os, signal, sys, threading, time
from pychasqui import SyncQueue
queue = SyncQueue(sys.argv[1], redis_url=sys.argv[2])

def add():
    os.write(1, queue.add("job").id.encode() + b"\\n")  # acknowledged

def add_for_ever():
    while True:
        add()

def add_some(count=20):
    for _ in range(count):
        add()

def start(function, count=4, daemon=False):
    threads = [threading.Thread(target=function, daemon=daemon) for _ in range(count)]
    [thread.start() for thread in threads]
    return threads

def wait_for(children):
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert not any(codes), codes
"""

ENDINGS = {
    "a close at the end": "add_some(); [thread.join() for thread in start(add_some)]; queue.close()",
    "no close at the end": "add_some(); [thread.join() for thread in start(add_some)]",
    "adds in flight in daemon threads": "add(); start(add_for_ever, daemon=True); time.sleep(0.02)",
    "threads that outlive the main one": "start(add_some)",
    "handlers of atexit beside daemon threads": """
atexit.register(add_some)
start(add_for_ever, daemon=True)
add_some()
""",
    "sys.exit in a signal handler": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
add()
start(add_some, 2)
threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM)).start()
add_for_ever()
""",
    "children forked under load": """
start(add_for_ever, 3, daemon=True)
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        add_some(5)
        sys.exit()  # frees what it has of the parent
    children.append(child)
wait_for(children)
add_some(5)
""",
    "workers forked before the first request": """
def serve():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    [thread.join() for thread in start(add_some, 3)]
    add_some()
    while True:
        time.sleep(1)

add()
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        serve()
    children.append(child)
add_some(5)
time.sleep(0.15)
for child in children:
    os.kill(child, signal.SIGTERM)
wait_for(children)
""",
}
HANGS_S = 40.0


class Ending(NamedTuple):
    """How one process ended: what was wrong, or nothing."""

    trouble: str
    added: int


def run_ending(name: str, queue: SyncQueue, redis_url: str, python: str = sys.executable) -> Ending:
    """Runs one program; looks for each add that it saw acknowledged."""
    command = [python, "-W", "ignore", "-c", HEAD + ENDINGS[name], queue.name, redis_url]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return Ending("it hangs", 0)
    acknowledged = {line for line in ended.stdout.splitlines() if len(line) >= 20}
    lost = acknowledged - _waiting_ids(queue)
    if ended.returncode or ended.stderr or lost or not acknowledged:
        trouble = f"code {ended.returncode}, lost {len(lost)} of {len(acknowledged)}: {ended.stderr[-2000:]}"
        return Ending(trouble, len(acknowledged))
    return Ending("", len(acknowledged))


def _waiting_ids(queue: SyncQueue) -> set[str | None]:
    page = queue.jobs("waiting", limit=1000)
    found = {job.id for job in page.jobs}
    while page.next is not None:
        page = queue.jobs("waiting", after=page.next, limit=1000)
        found |= {job.id for job in page.jobs}
    return found


def main(rounds: int, pythons: list[str]) -> None:
    with RedisServer() as server:
        queue = SyncQueue("exits", redis_url=server.url)
        for python in pythons:
            for name in ENDINGS:
                began, added, troubles = time.monotonic(), 0, []
                for _ in range(rounds):
                    ending = run_ending(name, queue, server.url, python)
                    added += ending.added
                    if ending.trouble:
                        troubles.append(ending.trouble)
                    queue.obliterate()
                took = time.monotonic() - began
                print(
                    f"{python}: {name}: {rounds} exits, {added} adds, {took:.0f} s, {len(troubles)} wrong", flush=True
                )
                print(*troubles[:2], sep="\n", end="", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or [sys.executable])
