"""Threads alone: every call ends and is reported beside any others, and short calls share wake-ups."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from pychasqui import Job
from pychasqui._worker.threads import Threads

MadeThreads = Callable[[Callable[[Any], Any], int], Threads]


@pytest.fixture
async def make() -> AsyncIterator[MadeThreads]:
    made: list[Threads] = []

    def threads(function: Callable[[Any], Any], count: int) -> Threads:
        made.append(Threads(function, count))
        return made[-1]

    yield threads
    for each in made:
        each.close()


def job(number: Any) -> Job:
    return cast(Job, number)


async def test_calls_that_block_run_beside_each_other(make: MadeThreads) -> None:
    barrier = threading.Barrier(20, timeout=20)
    threads = make(lambda _: barrier.wait(), 20)
    assert sorted(await asyncio.gather(*(threads.run(job(n)) for n in range(20)))) == list(range(20))


async def test_the_outcome_of_a_short_call_does_not_wait_for_calls_that_block(make: MadeThreads) -> None:
    """The thread of the short call and all others go on to calls that block, and no thread finds the inbox empty."""
    release = threading.Event()
    threads = make(lambda number: number if number == 0 else release.wait(20), 3)
    calls = [asyncio.ensure_future(threads.run(job(number))) for number in (0, 1, 2)]
    assert await asyncio.wait_for(calls[0], 5) == 0
    assert not calls[1].done()
    assert not calls[2].done()
    release.set()
    assert await asyncio.gather(*calls) == [0, True, True]


async def test_short_calls_share_threads_and_wake_ups(make: MadeThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = make(lambda number: number, 100)
    reports = 0
    loop = asyncio.get_running_loop()
    wake_loop = loop.call_soon_threadsafe

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal reports
        reports += 1
        return wake_loop(*arguments, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    for _ in range(20):
        assert await asyncio.gather(*(threads.run(job(n)) for n in range(100))) == list(range(100))
    assert reports < 1000, "each call woke the loop"
    assert len(threads._threads) < 50, "each call got a thread"


async def test_calls_of_random_lengths_all_end(make: MadeThreads) -> None:
    dice = random.Random(7)
    pauses = [dice.choice((0.0, 0.0, 0.0, 0.0001, 0.001, 0.003)) for _ in range(3000)]

    def run(number: int) -> int:
        if pauses[number]:
            time.sleep(pauses[number])
        return number

    threads = make(run, 8)
    waiting = iter(range(len(pauses)))

    async def lane() -> list[int]:
        return [await threads.run(job(number)) for number in waiting]

    async with asyncio.timeout(30):
        lanes = await asyncio.gather(*(lane() for _ in range(8)))
    assert sorted(number for results in lanes for number in results) == list(range(len(pauses)))


async def test_a_call_that_is_cancelled_before_it_starts_does_not_run(make: MadeThreads) -> None:
    release, ran = threading.Event(), list[int]()

    def run(number: int) -> None:
        ran.append(number)
        release.wait(20)

    threads = make(run, 1)
    first = asyncio.ensure_future(threads.run(job(1)))
    second = asyncio.ensure_future(threads.run(job(2)))
    await asyncio.sleep(0.05)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    await first
    await asyncio.sleep(0.05)
    assert ran == [1]


async def test_a_call_without_a_thread_fails_and_does_not_run_later(
    make: MadeThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[int] = []
    threads = make(ran.append, 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="no thread"):
            await threads.run(job(1))
    await threads.run(job(2))
    assert ran == [2]


async def test_threads_end_with_close(make: MadeThreads) -> None:
    threads = make(lambda number: number, 4)
    await asyncio.gather(*(threads.run(job(n)) for n in range(4)))
    threads.close()
    for thread in threads._threads:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


PROGRAM = """
import asyncio, sys, time
from pychasqui._worker.threads import Threads

def run(job):
    time.sleep(job)
    print("ended", flush=True)

async def main():
    threads = Threads(run, 4)
    await asyncio.gather(threads.run(0.0), threads.run(0.01))
    task = asyncio.ensure_future(threads.run(0.5))
    await asyncio.sleep(0.1)
    if "close" in sys.argv:
        threads.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("ending", ("close", "nothing"))
def test_a_process_ends_after_the_calls_that_run(ending: str) -> None:
    """It neither waits for parked threads nor interrupts a call."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ending], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.split() == ["ended"] * 3
    assert done.stderr == ""
