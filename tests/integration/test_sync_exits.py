"""Synchronous code adds jobs until its process ends, in whichever way, and signals do not disturb it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from pychasqui import SyncQueue
from pychasqui._tasks.portal import Portal
from tests.support.sync_exits import ENDINGS, run_ending


@pytest.fixture
def sync_queue(redis_url: str, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, redis_url=redis_url) as queue:
        yield queue
        queue.obliterate()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_and_no_acknowledged_add_is_lost(sync_queue: SyncQueue, redis_url: str, ending: str) -> None:
    ended = run_ending(ending, sync_queue, redis_url)
    assert not ended.trouble


SIGNALS = """
import os, signal, sys, threading, time
from pychasqui import SyncQueue
queue = SyncQueue(sys.argv[1], redis_url=sys.argv[2])
seen, is_calling, added, stop = [], [], 0, threading.Event()

def interrupt(*_):
    if is_calling:
        is_calling.clear()
        seen.append(queue.add("in the handler").id)  # inside another call
        raise LookupError("interrupted")

def disturb():
    while not stop.wait(0.003):
        os.kill(os.getpid(), signal.SIGALRM)

signal.signal(signal.SIGALRM, interrupt)
queue.add("first")
helper = threading.Thread(target=disturb)
helper.start()
others = [threading.Thread(target=lambda: [queue.add("other") for _ in range(100)]) for _ in range(2)]
[thread.start() for thread in others]
while len(seen) < 20:
    try:
        is_calling.append(1)
        queue.add("main")
        added += 1
        is_calling.clear()
    except LookupError:
        pass
[thread.join() for thread in others]
stop.set()
helper.join()
jobs = queue.counts().waiting
assert jobs >= 1 + 200 + len(seen) + added, (jobs, len(seen), added)
assert signal.getsignal(signal.SIGALRM) is interrupt
print("fine")
"""


def test_a_handler_that_raises_ends_the_call_of_its_thread_and_no_other(sync_queue: SyncQueue, redis_url: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SIGNALS, sync_queue.name, redis_url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "fine\n", "")


class Holder:
    has_open_queues = True

    async def close_queues_of_running_loop(self) -> None: ...


@pytest.mark.parametrize("needs_task", (True, False))
def test_each_call_runs_in_the_context_of_its_caller(needs_task: bool) -> None:
    portal, caller, seen = Portal(), ContextVar[int]("caller"), set()

    async def read() -> int:
        return caller.get()

    def call(number: int) -> None:
        caller.set(number)
        for _ in range(50):
            seen.add((number, portal.run_and_wait(read, Holder(), needs_task=needs_task)))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    portal.mark_exiting_and_close_if_idle()
    assert seen == {(number, number) for number in range(6)}


def test_a_call_without_a_task_goes_on_after_a_signal_and_raises_what_it_raises() -> None:
    import asyncio

    portal, handled = Portal(), list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, _: handled.append(number))

    async def wait() -> int:
        assert asyncio.current_task() is None
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        for _ in range(2):
            await asyncio.sleep(0.3)  # the signal comes meanwhile
            await asyncio.sleep(0)
        return len(handled)

    async def fail() -> None:
        await asyncio.sleep(0.001)
        raise LookupError("x")

    try:
        portal.run_and_wait(lambda: asyncio.sleep(0), Holder())
        assert portal.run_and_wait(wait, Holder(), needs_task=False) == 1
        with pytest.raises(LookupError, match="x"):
            portal.run_and_wait(fail, Holder(), needs_task=False)
    finally:
        signal.signal(signal.SIGALRM, before)
        portal.mark_exiting_and_close_if_idle()


def test_a_caller_whose_call_has_ended_leaves_while_another_waits() -> None:
    import asyncio

    portal, is_released, order = Portal(), threading.Event(), []

    async def wait_long() -> None:
        while not is_released.is_set():
            await asyncio.sleep(0.001)
        order.append("long")

    async def wait_short() -> None:
        await asyncio.sleep(0.001)
        order.append("short")

    long = threading.Thread(target=portal.run_and_wait, args=(wait_long, Holder()))
    long.start()
    portal.run_and_wait(wait_short, Holder())  # the other thread runs the loop
    is_released.set()
    long.join()
    portal.run_and_wait(wait_short, Holder())
    portal.mark_exiting_and_close_if_idle()
    assert order == ["short", "long", "short"]


EARLY_SIGNAL = """
import asyncio, signal, sys
from pychasqui._tasks.portal import portal

class Holder:
    async def close_queues_of_running_loop(self): ...
    def __hash__(self):
        signal.raise_signal(signal.SIGALRM)  # the call has begun, and its loop does not run yet
        return 1

def interrupt(*_):
    raise LookupError("interrupted")

signal.signal(signal.SIGALRM, interrupt)
try:
    portal.run_and_wait(lambda: asyncio.sleep(45), Holder())
except LookupError as error:
    print(error)
"""


def test_a_signal_before_the_loop_runs_is_not_forgotten() -> None:
    ended = subprocess.run([sys.executable, "-c", EARLY_SIGNAL], capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


LATE_SIGNAL = (
    EARLY_SIGNAL.replace("        signal.raise_signal(signal.SIGALRM)", "        pass")
    .replace("lambda: asyncio.sleep(45)", "interrupt_last")
    .replace("def interrupt(", "async def interrupt_last():\n    signal.raise_signal(signal.SIGALRM)\n\ndef interrupt(")
)


def test_a_signal_at_the_end_of_a_call_does_not_disturb_the_exit() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE_SIGNAL], capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


INSIDE_THE_LOCK = """
import os, signal, sys
from pychasqui._tasks import portal as module

class Holder:
    async def close_queues_of_running_loop(self): ...

async def answer():
    return 7

def handle(*_):
    if sys.argv[1] == "call":
        seen.append(module.portal.run_and_wait(answer, Holder()))
        return
    child = os.fork()
    if not child:
        os._exit(module.portal.run_and_wait(answer, Holder()))
    seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def make_loop(*arguments):
    module.PortalLoop = loop_type
    signal.raise_signal(signal.SIGPROF)  # which is not deferred; the portal's lock is held
    return loop_type(*arguments)

seen, loop_type, module.PortalLoop = [], module.PortalLoop, make_loop
signal.signal(signal.SIGPROF, handle)
print(module.portal.run_and_wait(answer, Holder()), seen, module.portal.run_and_wait(answer, Holder()))
"""


@pytest.mark.parametrize("deed", ("call", "fork"))
def test_a_handler_of_a_signal_that_is_not_deferred_may_call_and_fork_at_any_time(deed: str) -> None:
    command = [sys.executable, "-c", INSIDE_THE_LOCK, deed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7 [7] 7\n", "")


FORK_BESIDE_A_CALL = """
import asyncio, os, signal, threading
from pychasqui._tasks.portal import portal

class Holder:
    async def close_queues_of_running_loop(self): ...

def fork():
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            code = 0
        os._exit(code)
    codes.append(os.waitpid(child, 0)[1])

async def wait_for_fork():
    thread = threading.Thread(target=fork)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.01)

codes = []
portal.run_and_wait(wait_for_fork, Holder())
print(codes)
"""


def test_a_child_that_is_forked_during_a_call_of_the_main_thread_hears_signals() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK_BESIDE_A_CALL]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[0]\n", "")
