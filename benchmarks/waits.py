"""How long a lone add waits at a server that other calls keep busy: predicted from the costs of calls, and measured.

    python -m benchmarks.waits --out FILE     # p50 to p99 at some loads; fails if p90 or p95 is 20 % off

The model is that of `benchmarks.capacity` with time in it: each call takes the CPU time that was measured for its size,
and the server answers together what it has found in one turn of its loop. A turn costs something itself, which calls
that come alone each pay, and calls that come together share. A lone add waits for the turn before its own, and for all
calls of its own. The model gets the times at which calls were sent, and nothing else of what happened.

The server has a core to itself, and one process on the other core sends calls that were made before and does nothing
else: no handler runs, no reply is read. So this shows what the server adds to a wait. With two cores there is none for
a second server, nor for workers. A machine that takes the core away now and then shows no p99 in one run: how often it
does is printed, too, and the median of five runs of a quiet one says more.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import gc
import json
import os
import random
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.capacity import ADDS, DATA, MAX_ERROR, Costs, cores_awake, cpu_s, measure, per_job
from benchmarks.server import Server, find_server, running
from benchmarks.wire import Wire, render
from pychasqui._core.limits import ACK_BATCH, READ_BATCH
from pychasqui._redis.keys import Keys

SHARES = (0.3, 0.5, 0.7)  # of the server's time, by the costs of calls that come alone
SECONDS = 2.0
LONE_ADDS_A_SECOND = 500.0
LINES = 8  # connections that the other calls come from
QUANTILES = (0.5, 0.9, 0.95, 0.99)
CHECKED = (0.9, 0.95)  # what a machine shows that takes a core away for less than 5 % of the time
GAP_S = 60e-6  # the process that sends did not run: what was answered meanwhile was not seen in time
MACHINE_GAP_S = 20e-6
GROUP, FIRST_ID = "default", "1763500000000-"
KEYS = Keys("waits")


class Call(NamedTuple):
    at_s: float
    kind: str  # "add", "read", "ack" or "lone"


class Model(NamedTuple):
    """What a call costs the server, in us, and a turn of its loop; and what a lone add takes beside that."""

    cost_us: dict[str, float]
    turn_us: float
    trip_us: float

    def answer_times_us(self, calls: list[Call]) -> list[float]:
        """Returns after which time each lone add is answered."""
        found: list[float] = []
        now_us, position = 0.0, 0
        while position < len(calls):
            now_us, first = max(now_us, calls[position].at_s * 1e6), position
            while position < len(calls) and calls[position].at_s * 1e6 <= now_us:
                position += 1
            turn = calls[first:position]
            now_us += self.turn_us + sum(self.cost_us[each.kind] for each in turn)
            found += [now_us + self.trip_us - each.at_s * 1e6 for each in turn if each.kind == "lone"]
        return found


def make_model(costs: Costs, turn_us: float, trip_us: float) -> Model:
    alone = {
        "add": per_job(costs.add, ADDS) * ADDS,
        "read": per_job(costs.read, READ_BATCH) * READ_BATCH,
        "ack": per_job(costs.ack, ACK_BATCH) * ACK_BATCH,
        "lone": per_job(costs.add, 1),
    }
    return Model({kind: cost - turn_us for kind, cost in alone.items()}, turn_us, trip_us)


def make_calls(model: Model, share: float, seed: int) -> list[Call]:
    """Returns calls at random times: every job is added, read and acked once, and the calls take this share."""
    alone = {kind: cost + model.turn_us for kind, cost in model.cost_us.items()}
    job_us = alone["add"] / ADDS + alone["read"] / READ_BATCH + alone["ack"] / ACK_BATCH
    jobs = max(0.0, share * 1e6 - LONE_ADDS_A_SECOND * alone["lone"]) / job_us
    rates = {"add": jobs / ADDS, "read": jobs / READ_BATCH, "ack": jobs / ACK_BATCH, "lone": LONE_ADDS_A_SECOND}
    draw, calls = random.Random(seed), []
    for kind, rate in rates.items():
        at_s = draw.expovariate(rate) if rate else SECONDS
        while at_s < SECONDS:
            calls.append(Call(at_s, kind))
            at_s += draw.expovariate(rate)
    return sorted(calls)


# Calls that were made before ------------------------------------------------------------------------------------------


async def record_adds(server: Server, bulks: int, lone: int) -> tuple[list[bytes], list[bytes]]:
    """Returns the bytes that the library sends for each add."""
    from pychasqui import Queue

    sent = bytearray()
    address = urlsplit(server.url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, server_writer = await asyncio.open_connection(address.hostname, address.port)

        async def pass_back() -> None:
            while chunk := await replies.read(65536):
                writer.write(chunk)

        answering = asyncio.ensure_future(pass_back())
        while chunk := await reader.read(1 << 20):
            sent.extend(chunk)
            server_writer.write(chunk)
        answering.cancel()
        server_writer.close()
        writer.close()

    recorder = await asyncio.start_server(pass_on, "127.0.0.1")
    bulk = [{"name": "send", "data": DATA}] * ADDS
    found: tuple[list[bytes], list[bytes]] = ([], [])
    async with Queue("waits", redis_url=f"redis://127.0.0.1:{recorder.sockets[0].getsockname()[1]}") as queue:
        for kept, jobs, count in ((found[0], bulk, bulks), (found[1], None, lone)):
            for number in range(count + 1):
                sent.clear()
                await (queue.add("send", DATA) if jobs is None else queue.add_bulk(jobs))
                if number:  # the first one brings the script
                    kept.append(bytes(sent))
    recorder.close()
    return found


def fill_and_make_acks(wire: Wire, calls: list[Call]) -> list[bytes]:
    """Fills the stream for all reads, and returns acks of entries that have been read already."""
    acks, reads = (sum(each.kind == kind for each in calls) for kind in ("ack", "read"))
    wire.call("FLUSHALL")
    wire.call("XGROUP", "CREATE", KEYS.stream, GROUP, "0", "MKSTREAM")
    add = "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], ARGV[2] .. i + ARGV[3], unpack(ARGV, 4)) end"
    read = "redis.call('XREADGROUP', 'GROUP', ARGV[1], 'me', 'COUNT', ARGV[2], 'STREAMS', KEYS[1], '>')"
    wanted, read_before = (acks * ACK_BATCH + reads * READ_BATCH, acks * ACK_BATCH)
    for start in range(0, wanted, 10_000):
        count = min(10_000, wanted - start)
        wire.call("EVAL", add, 1, KEYS.stream, count, FIRST_ID, start, "n", "send", "d", "x" * 90)
    for start in range(0, read_before, 10_000):
        wire.call("EVAL", read, 1, KEYS.stream, GROUP, min(10_000, read_before - start))
    return [
        render("XACKDEL", KEYS.stream, GROUP, "IDS", ACK_BATCH, *(f"{FIRST_ID}{first + n}" for n in range(ACK_BATCH)))
        for first in range(1, read_before, ACK_BATCH)
    ]


# Measuring ------------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    calls: list[Call]  # when they were really sent
    answers_us: list[float | None]  # of lone adds; None if the answer was not seen in time
    busy: float  # the share of the time for which the server was


class Sender:
    """Sends calls at their times, over several connections, and lone adds over one of their own."""

    def __init__(self, server: Server) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(LINES + 1)]
        self._selector = selectors.DefaultSelector()
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self._selector.register(each, selectors.EVENT_READ)

    def close(self) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()

    def send_at_times(self, calls: list[tuple[Call, bytes]]) -> tuple[list[Call], list[float | None]]:
        lone, scratch = self._sockets[0], bytearray(1 << 18)
        sent: list[Call] = []
        waiting: list[float] = []
        answered: list[tuple[float, float]] = []
        gaps: list[tuple[float, float]] = []
        begun = last_s = time.perf_counter() + 0.05
        while len(sent) < len(calls) or waiting:
            now_s = time.perf_counter()
            if now_s - last_s > GAP_S:
                gaps.append((last_s - begun, now_s - begun))
            last_s, now_s = now_s, now_s - begun
            if len(sent) < len(calls) and calls[len(sent)][0].at_s <= now_s:
                call, data = calls[len(sent)]
                (lone if call.kind == "lone" else self._sockets[1 + len(sent) % LINES]).sendall(data)
                sent.append(Call(now_s, call.kind))
                if call.kind == "lone":
                    waiting.append(now_s)
            for key, _ in self._selector.select(0):
                assert isinstance(key.fileobj, socket.socket)
                size = key.fileobj.recv_into(scratch)
                if not size or scratch.startswith(b"-"):
                    raise ConnectionError(f"no answer, or a refused add: {bytes(scratch[: min(size, 200)])!r}")
                if key.fileobj is lone:
                    at_s = time.perf_counter() - begun
                    answered += [(waiting.pop(0), at_s) for _ in range(scratch[:size].count(b"$"))]
        ends = [end for _, end in gaps]

        def was_unseen(sent_s: float, at_s: float) -> bool:
            gap = bisect.bisect_left(ends, sent_s)
            return gap < len(gaps) and gaps[gap][0] < at_s

        return sent, [None if was_unseen(*each) else (each[1] - each[0]) * 1e6 for each in answered]


def run(server: Server, adds: tuple[list[bytes], list[bytes]], calls: list[Call]) -> Run:
    read = render("XREADGROUP", "GROUP", GROUP, "me", "COUNT", READ_BATCH, "STREAMS", KEYS.stream, ">")
    with Wire(server.url) as wire:
        acks = fill_and_make_acks(wire, calls)
        supply: dict[str, Iterator[bytes]] = {
            "add": iter(adds[0]),
            "read": repeat(read),
            "ack": iter(acks),
            "lone": iter(adds[1]),
        }
        packed = [(each, next(supply[each.kind])) for each in calls]
        sender = Sender(server)
        gc.collect()
        gc.disable()
        before, begun = cpu_s(wire), time.perf_counter()
        sent, answers = sender.send_at_times(packed)
        busy = (cpu_s(wire) - before) / (time.perf_counter() - begun)
        gc.enable()
        sender.close()
    return Run(sent, answers, busy)


def cost_of_turn_us(server: Server) -> float:
    """Returns what a call costs less if it comes together with others: the median of some measurements."""
    return statistics.median(_measure_turn_us(server) for _ in range(5))


def _measure_turn_us(server: Server) -> float:
    ping, rounds, found = render("PING"), 1000, []
    with Wire(server.url) as wire:
        for together in (1, LINES):
            sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(LINES)]
            before = cpu_s(wire)
            for number in range(rounds * LINES // together):
                used = sockets if together > 1 else [sockets[number % LINES]]
                for each in used:
                    each.sendall(ping)
                for each in used:
                    each.recv(64)
            found.append((cpu_s(wire) - before) * 1e6 / rounds / LINES)
            for each in sockets:
                each.close()
    return max(0.0, found[0] - found[1])


def share_that_the_machine_takes(seconds: float = 2.0) -> tuple[float, float]:
    """Returns for which share of the time this core ran something else, and the longest time in us."""
    gaps, begun = [], time.perf_counter()
    last = begun
    while last < begun + seconds:
        now = time.perf_counter()
        if now - last > MACHINE_GAP_S:
            gaps.append(now - last)
        last = now
    return sum(gaps) / seconds, max(gaps, default=0.0) * 1e6


@contextmanager
def server_with_a_core(binary: str | None) -> Iterator[Server]:
    """The server on core 1, before other programs there if this user may say so; this process on core 0."""
    with running(find_server(binary)) as server, Wire(server.url) as wire:
        number = int(wire.info("server")["process_id"])
        os.sched_setaffinity(number, {1})
        os.sched_setaffinity(0, {0})
        with suppress(OSError):
            os.sched_setscheduler(number, os.SCHED_RR, os.sched_param(1))
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        yield server


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def compare(model: Model, share: float, runs: list[Run]) -> dict[float, float]:
    """Prints the quantiles of all runs together; returns how far off each prediction is."""
    pairs = [
        (predicted, measured)
        for each in runs
        for predicted, measured in zip(model.answer_times_us(each.calls), each.answers_us, strict=True)
        if measured is not None
    ]
    predicted, measured = ([each[side] for each in pairs] for side in (0, 1))
    errors = {at: quantile(measured, at) / quantile(predicted, at) - 1 for at in QUANTILES}
    shown = ", ".join(
        f"p{at * 100:.0f} {quantile(predicted, at):.0f} and {quantile(measured, at):.0f} us ({errors[at]:+.0%})"
        for at in QUANTILES
    )
    busy = statistics.median(each.busy for each in runs)
    print(f"{share:.0%} of the core (was busy for {busy:.0%}), {len(pairs)} lone adds: {shown}", flush=True)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="the binary")
    parser.add_argument("--runs", type=int, default=3, help="of each load, which are taken together")
    parser.add_argument("--out", help="write what was found here, as JSON")
    options = parser.parse_args()
    with cores_awake(), server_with_a_core(options.server) as server:
        taken, longest_us = share_that_the_machine_takes()
        print(f"the machine takes this core away for {taken:.1%} of the time, and for up to {longest_us:.0f} us")
        costs, turn_us = asyncio.run(measure(server, kinds=("plain",))), cost_of_turn_us(server)
        model = make_model(costs, turn_us, 0.0)
        adds = asyncio.run(record_adds(server, *count_adds(model)))
        lone = [each for each in make_calls(model, min(SHARES), 99) if each.kind == "lone"]
        idle = [each for each in run(server, adds, lone).answers_us if each is not None]
        model = make_model(costs, turn_us, max(0.0, statistics.median(idle) - per_job(costs.add, 1)))
        print(f"a turn costs {turn_us:.1f} us, the trip of a lone add {model.trip_us:.1f} us beside the server's time")
        found = {
            share: compare(
                model, share, [run(server, adds, make_calls(model, share, seed)) for seed in range(options.runs)]
            )
            for share in SHARES
        }
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"model": model._asdict(), "taken": taken, "errors": found}, file)
    sys.exit(int(any(abs(errors[at]) > MAX_ERROR for errors in found.values() for at in CHECKED)))


def count_adds(model: Model) -> tuple[int, int]:
    """Returns how many bulks and lone adds the largest load has, and a few more."""
    calls = make_calls(model, max(SHARES), 0)
    bulks, lone = (sum(each.kind == kind for each in calls) for kind in ("add", "lone"))
    return bulks + bulks // 5 + 100, lone + lone // 5 + 100


if __name__ == "__main__":
    main()
