"""Where every Python peer performs, so that all of them are timed by the same lines.

A peer's file says how to open a producer, how to run a worker, and how to ask Redis for the jobs that are not
finished yet. Everything that touches a clock is here and in `meter.py`.

The life of one measurement: `python -m benchmarks.peers PEER ACTION URL COUNT PARAMETERS` prints one line of JSON.
Actions: `add` times a producer, `fill` is the same without a warm-up, `repeat` stores repeatables, `work` times a
worker on a filled queue, `listen` and `send` are the two ends of the latency measurement, `listen` and `wait`
those of waiting for results. `run` is a worker without a clock, and `watch` times any number of those by what is left
in Redis.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.peers.meter import Clock, Meter
from benchmarks.peers.roles import REPEAT_MS, UP_KEY, WATCHED_KEY, AsyncPeer, Order, Producer, ThreadPeer, all_of
from benchmarks.wire import Wire


def perform(peer: AsyncPeer | ThreadPeer, action: str, order: Order) -> None:
    """Run one action and print its result; working actions end the process themselves."""
    if action == "watch":
        result = _watch(peer, order)
    elif isinstance(peer, ThreadPeer):
        result = _perform_threads(peer, action, order)
    elif order.loop == "uvloop" or (peer.uvloop and not order.defaults):
        import uvloop

        result = uvloop.run(_perform_async(peer, action, order))
    else:
        result = asyncio.run(_perform_async(peer, action, order))
    print(json.dumps(result), flush=True)


async def _perform_async(peer: AsyncPeer, action: str, order: Order) -> dict[str, Any]:
    if action in ("work", "listen"):
        meter = Meter(order, peer)
        lag = asyncio.create_task(meter.sample_lag()) if order.lag else None
        await peer.work(order, meter.handler())
        raise SystemExit(f"the worker stopped before the last job ({lag})")
    if action == "run":
        await peer.work(order, nothing if order.form == "def" else nothing_async)
        raise SystemExit("the worker stopped")
    async with peer.producer(order) as producer:
        if action == "send":
            return await (_send_delayed(producer, order) if order.rate else _send_async(producer, order))
        if action == "wait":
            return await (_wait_in_turn(producer, order) if order.in_turn else _wait(producer, order))
        if action == "repeat":
            return await _repeat(peer, producer, order)
        await _add_async(producer, order, order.warmup)
        clock = Clock()
        await _add_async(producer, order, order.count)
        result = clock.read(order.count)
    with Wire(order.url) as wire:
        return result | {"waiting": peer.unfinished(wire)}


async def _add_async(producer: Producer, order: Order, count: int) -> None:
    add, data = producer.add, order.data
    if order.options:
        add = partial(add, **order.options)
    if order.style == "single":
        for _ in range(count):
            await add(data)
    elif order.style == "tasks":

        async def caller(times: int) -> None:
            for _ in range(times):
                await add(data)

        await asyncio.gather(*(caller(times) for times in shares(count, order.tasks)))
    else:
        whole, rest = divmod(count, order.bulk)
        call = producer.bulk([data] * order.bulk, **order.options)
        for _ in range(whole):
            await call()
        if rest:
            await producer.bulk([data] * rest, **order.options)()


async def _send_async(producer: Producer, order: Order) -> dict[str, Any]:
    pauses = random.Random(1)
    await producer.add(stamped(order.data, 0))
    wait_for_worker(order.url)
    for seq in range(1, order.total):
        await asyncio.sleep(pauses.uniform(*order.gap_ms) / 1000)
        await producer.add(stamped(order.data, seq))
    return {"sent": order.total}


async def _send_delayed(producer: Producer, order: Order) -> dict[str, Any]:
    """At an even rate, whatever an add takes: the next one is due when it is due."""
    delays = random.Random(1)
    await producer.add(stamped(order.data, 0))
    wait_for_worker(order.url)
    begun = time.monotonic()
    for seq in range(1, order.total):
        await asyncio.sleep(max(0.0, begun + seq / order.rate - time.monotonic()))
        delay_ms = delays.randint(*order.delays_ms)
        await producer.add(stamped(order.data, seq, delay_ms), delay_ms=delay_ms)
    return {"sent": order.total, "seconds": time.monotonic() - begun}


async def _wait(producer: Producer, order: Order) -> dict[str, Any]:
    """Add jobs and wait for all of them at once. A result is the moment at which its handler ended."""
    wait, times = producer.wait, random.Random(1)
    assert wait, "this peer is not measured with results that are waited for"

    async def lateness_us(job: Any) -> int:
        ended_at_us = await wait(job)
        return time.monotonic_ns() // 1000 - int(ended_at_us)

    await lateness_us(await producer.add(order.data | {"for_ms": 0}))  # so that no start is part of it
    batch = [order.data | {"for_ms": times.uniform(0, order.spread_ms)} for _ in range(order.count)]
    clock = Clock()
    late = await asyncio.gather(*map(lateness_us, await producer.bulk(batch)()))
    return clock.read(order.count) | {"latencies_us": sorted(late)}


async def _wait_in_turn(producer: Producer, order: Order) -> dict[str, Any]:
    """One job after another: add it, wait for its result, add the next one."""
    wait, data, latencies_us = producer.wait, order.data | {"for_ms": 0}, []
    assert wait, "this peer is not measured with results that are waited for"
    await wait(await producer.add(data))  # so that no start is part of it
    clock = Clock()
    for _ in range(order.count):
        begun_ns = time.monotonic_ns()
        await wait(await producer.add(data))
        latencies_us.append((time.monotonic_ns() - begun_ns) // 1000)
    return clock.read(order.count) | {"latencies_us": sorted(latencies_us)}


async def _repeat(peer: AsyncPeer, producer: Producer, order: Order) -> dict[str, Any]:
    """Returns when all of them are due."""
    assert producer.repeat, "this peer is not measured with repeatables"
    clock = Clock()
    await all_of([partial(producer.repeat, number, order.data) for number in range(order.count)])
    result = clock.read(order.count)
    await asyncio.sleep(REPEAT_MS / 1000)
    with Wire(order.url) as wire:
        return result | {"waiting": peer.unfinished(wire)}


def _perform_threads(peer: ThreadPeer, action: str, order: Order) -> dict[str, Any]:
    if action in ("work", "listen", "run"):
        peer.work(order, nothing if action == "run" else Meter(order, peer).handler())
        threading.Event().wait()  # some workers run in threads of their own; the meter ends the process
    with peer.producer(order) as producer:
        if action == "send":
            return _send_threads(producer, order)
        _add_threads(producer, order, order.warmup)
        clock = Clock()
        _add_threads(producer, order, order.count)
        result = clock.read(order.count)
    with Wire(order.url) as wire:
        return result | {"waiting": peer.unfinished(wire)}


def _add_threads(producer: Producer, order: Order, count: int) -> None:
    add, data = producer.add, order.data
    if order.style == "single":
        for _ in range(count):
            add(data)
    elif order.style == "tasks":

        def caller(times: int) -> None:
            for _ in range(times):
                add(data)

        with ThreadPoolExecutor(order.tasks) as threads:
            list(threads.map(caller, shares(count, order.tasks)))
    else:
        whole, rest = divmod(count, order.bulk)
        call = producer.bulk([data] * order.bulk)
        for _ in range(whole):
            call()
        if rest:
            producer.bulk([data] * rest)()


def _send_threads(producer: Producer, order: Order) -> dict[str, Any]:
    pauses = random.Random(1)
    producer.add(stamped(order.data, 0))
    wait_for_worker(order.url)
    for seq in range(1, order.total):
        time.sleep(pauses.uniform(*order.gap_ms) / 1000)
        producer.add(stamped(order.data, seq))
    return {"sent": order.total}


def nothing(*_: Any, **__: Any) -> None:
    """A plain handler without a clock."""


async def nothing_async(*_: Any, **__: Any) -> None:
    """The same as a coroutine function."""


def _watch(peer: AsyncPeer | ThreadPeer, order: Order) -> dict[str, Any]:
    """From when no more than `count` jobs are left until none is, looked at every millisecond."""
    clock, first = Clock(), 0
    with Wire(order.url) as wire:
        wire.call("SET", WATCHED_KEY, 1)
        while left := peer.unfinished(wire):
            if not first and left <= order.count:
                clock, first = Clock(), left
            time.sleep(0.001)
    if not first:
        raise SystemExit("every job was gone before one of them was seen")
    result = clock.read(first)
    del result["cpu_seconds"]  # those of this process, which only looks
    return result


def shares(count: int, callers: int) -> list[int]:
    """`count` dealt out to that many callers, as evenly as it goes."""
    each, more = divmod(count, callers)
    return [each + 1] * more + [each] * (callers - more)


def stamped(data: dict[str, Any], seq: int, delay_ms: int = 0) -> dict[str, Any]:
    """The data with the moment for which it is added. CLOCK_MONOTONIC is one clock for all processes of a machine."""
    return data | {"seq": seq, "at_us": time.monotonic_ns() // 1000 + delay_ms * 1000}


def wait_for_worker(url: str, *, timeout_s: float = 30.0) -> None:
    """Until the worker has run the first job, so that its start is no part of any latency."""
    deadline = time.monotonic() + timeout_s
    with Wire(url) as wire:
        while not wire.call("EXISTS", UP_KEY):
            if time.monotonic() > deadline:
                raise TimeoutError("the worker did not run the first job")
            time.sleep(0.01)
