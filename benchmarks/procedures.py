"""How one measurement goes, step by step, each step in a fresh process of the peer's own interpreter."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import interpreter, process_environment
from benchmarks.payload import DATA, DEAD, ENTRY_FIELDS, STREAM
from benchmarks.roster import FAILING, MEASURED_PLAIN, OURS, OURS_UVLOOP, Peer
from benchmarks.scenarios import (
    BACKLOG_TURNS,
    BY_KEY,
    WAITED_FOR,
    Effort,
    Scenario,
    gap_ms,
    job_count,
    memory_count,
    warmup_count,
)
from benchmarks.server import ROOT, Server
from benchmarks.wire import Wire

Result = dict[str, Any]
STEP_TIMEOUT_S = 180


class MeasurementFailed(Exception):
    """A step ended without a result; the text is the last thing it said."""


@dataclass(frozen=True)
class Bench:
    """Everything a measurement needs besides the peer and the scenario."""

    server: Server
    effort: Effort
    redis_benchmark: Path | None

    def measure(self, scenario: Scenario, peer: Peer) -> Result:
        """One measurement on an empty server. Every kind answers with `value`; see report.py for its units."""
        with Wire(self.server.url) as wire:
            wire.call("FLUSHALL", "SYNC")
        if peer.kind == "tool":
            return self._redis_benchmark(scenario, peer)
        return {
            "add": self._add,
            "work": self._work,
            "fire": self._fire,
            "latency": self._latency,
            "lateness": self._lateness,
            "wait": self._wait,
            "backlog": self._backlog,
            "memory": self._memory,
        }[scenario.kind](scenario, peer)

    # value: jobs a second

    def _add(self, scenario: Scenario, peer: Peer) -> Result:
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, scenario.parameters)
        result = self._step(peer, "add", count, scenario.parameters | {"warmup": warmup})
        _check_waiting(result, count + warmup)
        return result | {"value": result["jobs"] / result["seconds"]}

    def _work(self, scenario: Scenario, peer: Peer) -> Result:
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, {})
        self._fill(peer, count + warmup, scenario.parameters.get("options", {}))
        result = self._step(peer, "work", count, scenario.parameters | {"warmup": warmup})
        if scenario.key in MEASURED_PLAIN and peer.name in (OURS, OURS_UVLOOP):
            result["plain"] = self._plain_beside(peer)
        if scenario.key in FAILING:
            self._check_dead(count + warmup if scenario.parameters["handler"] == "bury" else 0)
        return result | {"value": result["jobs"] / result["seconds"]}

    def _plain_beside(self, peer: Peer) -> float:
        """The same worker with nothing to show, within the same minute: the machine has slow ones."""
        with Wire(self.server.url) as wire:
            wire.call("FLUSHALL", "SYNC")
        return float(self._work(BY_KEY["work-100"], peer)["value"])

    def _fire(self, scenario: Scenario, peer: Peer) -> Result:
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, {})
        _check_waiting(self._step(peer, "repeat", count + warmup, {}), count + warmup)
        result = self._step(peer, "work", count, scenario.parameters | {"warmup": warmup})
        return result | {"value": result["jobs"] / result["seconds"]}

    def _redis_benchmark(self, scenario: Scenario, peer: Peer) -> Result:
        """The XADD of one job, by as many clients and at the pipeline depth of the scenario, plainly pipelined."""
        if self.redis_benchmark is None:
            raise MeasurementFailed("redis-benchmark was not found")
        count = job_count(scenario, peer, self.effort)
        clients = scenario.parameters.get("tasks", 1)
        depth = scenario.parameters.get("bulk", 1)
        load = [b"-n", b"%d" % count, b"-c", b"%d" % clients, b"-P", b"%d" % depth, b"--csv"]
        address = [b"-h", b"127.0.0.1", b"-p", b"%d" % self.server.port]
        command = [os.fsencode(self.redis_benchmark), *address, *load, b"XADD", STREAM, b"*", *ENTRY_FIELDS]
        done = subprocess.run(command, capture_output=True, timeout=STEP_TIMEOUT_S, check=True)
        rate = requests_per_second(done.stdout.decode())
        return {"jobs": count, "seconds": count / rate, "value": rate}

    # value: p50 in microseconds

    def _latency(self, scenario: Scenario, peer: Peer) -> Result:
        parameters = scenario.parameters | {"gap_ms": gap_ms(peer)}
        result = self._two_ends(peer, self.effort.latency_jobs, self.effort.latency_jobs // 2, parameters)
        return percentiles(result["latencies_us"]) | result | {"gap_ms": parameters["gap_ms"]}

    def _lateness(self, scenario: Scenario, peer: Peer) -> Result:
        result = self._two_ends(peer, self.effort.lateness_jobs, self.effort.lateness_jobs // 10, scenario.parameters)
        return percentiles(result.pop("latencies_us")) | result

    def _wait(self, scenario: Scenario, peer: Peer) -> Result:
        """The worker runs until the last result was seen, and is not asked for one of its own."""
        worker = self._start(peer, "listen", WAITED_FOR, scenario.parameters)
        try:
            result = self._step(peer, "wait", WAITED_FOR, scenario.parameters)
        finally:
            worker.end()
        return percentiles(result.pop("latencies_us")) | result

    def _two_ends(self, peer: Peer, count: int, warmup: int, parameters: dict[str, Any]) -> Result:
        """A producer and a worker at the same time."""
        parameters = parameters | {"warmup": warmup}
        listener = self._start(peer, "listen", count, parameters)
        try:
            sent = self._step(peer, "send", count, parameters)
            result = listener.result()
        finally:
            listener.end()
        return result | {f"sender_{key}": sent[key] for key in sent}

    # value: bytes of Redis memory a waiting job

    def _memory(self, scenario: Scenario, peer: Peer) -> Result:
        count = memory_count(peer, self.effort)
        with Wire(self.server.url) as wire:
            self._fill(peer, 1000)  # a script loaded by the first add is no part of a job
            wire.call("FLUSHALL", "SYNC")
            before = memory_of_data(wire)
            self._fill(peer, count)
            after = memory_of_data(wire)
        return {"jobs": count, "value": (after - before) / count}

    # value: time a job takes at the large backlog over the time it takes at the small one

    def _backlog(self, scenario: Scenario, peer: Peer) -> Result:
        """The sizes take turns, each time another one first: the machine's pace varies within seconds."""
        sizes = {"small": self.effort.small_backlog, "large": self.effort.large_backlog}
        numbers: dict[str, list[float]] = {}
        for turn in range(BACKLOG_TURNS):
            us: dict[str, float] = {}
            for size in sorted(sizes, reverse=turn % 2 == 0):
                one = self._standing(scenario, peer, sizes[size])
                us[size] = one["seconds"] / one["jobs"] * 1e6
                cpu_us, rss_mb = one["cpu_seconds"] / one["jobs"] * 1e6, one["peak_rss_mb"]
                for number, value in (("us", us[size]), ("cpu_us", cpu_us), ("rss_mb", rss_mb)):
                    numbers.setdefault(f"{size}_{number}", []).append(value)
            numbers.setdefault("value", []).append(us["large"] / us["small"])
        return {number: statistics.median(values) for number, values in numbers.items()}

    def _standing(self, scenario: Scenario, peer: Peer, backlog: int) -> Result:
        """A worker while the backlog is kept where it is: what it takes away is put back, the same way and as often
        for every size, so that nothing but the size differs."""
        with Wire(self.server.url) as wire:
            wire.call("FLUSHALL", "SYNC")
        self._fill(peer, backlog)
        window = int(2 * peer.rates["work-100"] * self.effort.seconds)
        parameters = scenario.parameters | {"warmup": window // 5, "drain": False}
        with refilling(self.server.url, backlog):
            return self._step(peer, "work", window, parameters)

    # steps

    def _fill(self, peer: Peer, count: int, options: dict[str, Any] | None = None) -> None:
        parameters = {"style": "bulk", "bulk": 1000, "options": options or {}}
        _check_waiting(self._step(peer, "fill", count, parameters), count)

    def _check_dead(self, expected: int) -> None:
        """A worker that buried others than it should, or lost them, was not measured at all."""
        with Wire(self.server.url) as wire:
            dead = wire.call("XLEN", DEAD)
        if dead != expected:
            raise MeasurementFailed(f"{dead} dead letters instead of {expected}")

    def _step(self, peer: Peer, action: str, count: int, parameters: dict[str, Any]) -> Result:
        step = self._start(peer, action, count, parameters)
        try:
            return step.result()
        finally:
            step.end()

    def _start(self, peer: Peer, action: str, count: int, parameters: dict[str, Any]) -> Step:
        order = json.dumps(parameters | {"data": DATA, "loop": peer.loop})
        program = ["-m", "benchmarks.peers", peer.module]
        if peer.kind == "node":
            program = [str(ROOT / "benchmarks" / "peers" / peer.module)]
        return Step([*interpreter(peer), *program, action, self.server.url, str(count), order], peer)


class Step:
    """One process of a peer: it prints one line of JSON, or it failed."""

    def __init__(self, command: list[str], peer: Peer) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it is closed by end()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=process_environment(peer),
            start_new_session=True,
        )

    def result(self) -> Result:
        try:
            out, _ = self._process.communicate(timeout=STEP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"no result within {STEP_TIMEOUT_S} s") from None
        lines = [line for line in out.decode().splitlines() if line.startswith("{")]
        if self._process.returncode or not lines:
            raise MeasurementFailed(self._last_words())
        return dict(json.loads(lines[-1]))

    def end(self) -> None:
        """The whole session of the step, so that no child of a peer outlives its measurement."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        return lines[-1].replace(f"{ROOT}/", "")[:300]


REFILL = """
local missing = tonumber(ARGV[1]) - redis.call('XLEN', KEYS[1])
if missing < 2000 then return 0 end
for _ = 1, missing do redis.call('XADD', KEYS[1], '*', 'd', ARGV[2], 'n', ARGV[3]) end
return missing
"""


@contextlib.contextmanager
def refilling(url: str, backlog: int) -> Iterator[None]:
    """Keeps the stream within 2,000 entries of `backlog` by copies of its first job."""
    over = threading.Event()

    def refill(wire: Wire, job: list[bytes]) -> None:
        while not over.wait(0.002):
            wire.call("EVAL", REFILL, 1, STREAM, backlog, *job)

    with Wire(url) as wire:
        ((_, fields),) = wire.call("XRANGE", STREAM, "-", "+", "COUNT", 1)
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        thread = threading.Thread(target=refill, args=(wire, [named[b"d"], named[b"n"]]))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def memory_of_data(wire: Wire) -> int:
    """What the server uses without its clients, scripts and Lua, once the peer's own connections are gone."""
    deadline = time.monotonic() + 10
    while int(wire.info("clients")["connected_clients"]) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    found = wire.info("memory")
    components = ("mem_clients_normal", "used_memory_scripts_eval", "used_memory_vm_total")
    return int(found["used_memory"]) - sum(int(found.get(part, 0)) for part in components)


def _check_waiting(result: Result, expected: int) -> None:
    """A producer that lost jobs, or had not sent them yet when its clock stopped, was not measured at all."""
    if result["waiting"] != expected:
        raise MeasurementFailed(f"{result['waiting']} jobs in Redis after {expected} adds")


def percentiles(sorted_us: list[int]) -> Result:
    """The latencies of one measurement as the few numbers that are kept of them."""

    def at(share: float) -> int:
        return sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))]

    found = {"min_us": sorted_us[0], "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": sorted_us[-1]}
    return found | {"value": found["p50_us"], "samples": len(sorted_us)}


def requests_per_second(csv_text: str) -> float:
    """The rate in what `redis-benchmark --csv` prints: a header, then one row."""
    (row,) = csv.DictReader(io.StringIO(csv_text))
    return float(row["rps"])
