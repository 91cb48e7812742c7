"""How one measurement goes, step by step, each step in a fresh process of the peer's own interpreter."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import interpreter, process_environment
from benchmarks.first_add import PROGRAMS
from benchmarks.payload import DATA, DEAD, STREAM, entry_fields
from benchmarks.peers.roles import WATCHED_KEY
from benchmarks.probes import another_client, append_only, cpu_seconds, memory_of_data, refilling
from benchmarks.roster import BESIDE, FAILING, OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP, Peer
from benchmarks.scenarios import (
    BACKLOG_TURNS,
    BY_KEY,
    Effort,
    Scenario,
    gap_ms,
    job_count,
    memory_count,
    warmup_count,
)
from benchmarks.server import ROOT, Server
from benchmarks.steps import STEP_TIMEOUT_S, MeasurementFailed, Result, Step
from benchmarks.wire import Wire

FOR_THE_BENCH = ("aof", "processes")  # parameters that a peer's process does not get
ALONE_S = 0.2
BULK_BYTES = 1_000_000


@dataclass(frozen=True)
class Bench:
    """Everything a measurement needs besides the peer and the scenario."""

    server: Server
    effort: Effort
    redis_benchmark: Path | None

    def measure(self, scenario: Scenario, peer: Peer) -> Result:
        """One measurement on an empty server. Every kind answers with `value`; see report.py for its units."""
        self._empty()
        with append_only(self.server.url) if scenario.parameters.get("aof") else contextlib.nullcontext():
            if peer.kind == "tool":
                return self._redis_benchmark(scenario, peer)
            return {
                "add": self._add,
                "work": self._work,
                "drain": self._drain,
                "fire": self._fire,
                "latency": self._latency,
                "lateness": self._lateness,
                "wait": self._wait,
                "neighbour": self._neighbour,
                "lag": self._lag,
                "cold": self._cold,
                "backlog": self._backlog,
                "memory": self._memory,
            }[scenario.kind](scenario, peer)

    def _empty(self) -> None:
        with Wire(self.server.url) as wire:
            wire.call("FLUSHALL", "SYNC")

    def _best(self, peer: Peer, scenario: Scenario, measure: Callable[[int], Result], best: Any, number: str) -> Result:
        """The best that a peer does with any of its numbers of threads, where handlers are plain functions."""
        if scenario.parameters.get("form") != "def":
            return measure(int(scenario.parameters["concurrency"]))
        found = []
        for threads in peer.threads:
            self._empty()
            found.append(measure(threads) | ({"threads": threads} if len(peer.threads) > 1 else {}))
        return dict(best(found, key=lambda result: result[number]))

    # value: jobs a second

    def _add(self, scenario: Scenario, peer: Peer) -> Result:
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, scenario.parameters)
        result = self._counted(peer, "add", count, scenario.parameters | {"warmup": warmup})
        _check_waiting(result, count + warmup)
        if self._has_beside(scenario, peer):
            result["plain"] = self._plain_beside(scenario, peer)
        return result | {"value": result["jobs"] / result["seconds"]}

    def _work(self, scenario: Scenario, peer: Peer) -> Result:
        result = self._best(peer, scenario, lambda threads: self._drained(scenario, peer, threads), max, "value")
        if self._has_beside(scenario, peer):
            result["plain"] = self._plain_beside(scenario, peer)
        return result

    def _drained(self, scenario: Scenario, peer: Peer, concurrency: int) -> Result:
        """A filled queue and one worker, until Redis says that the last job is acked."""
        count = job_count(scenario, peer, self.effort, concurrency)
        warmup = warmup_count(count, {})
        self._fill(peer, count + warmup, scenario.parameters)
        parameters = scenario.parameters | {"warmup": warmup, "concurrency": concurrency}
        result = self._counted(peer, "work", count, parameters)
        if scenario.key in FAILING:
            self._check_dead(count + warmup if scenario.parameters["handler"] == "bury" else 0)
        return result | {"value": result["jobs"] / result["seconds"]}

    def _has_beside(self, scenario: Scenario, peer: Peer) -> bool:
        return scenario.key in BESIDE and peer.name in (OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP)

    def _plain_beside(self, scenario: Scenario, peer: Peer) -> float:
        """The same without what is asked about, within the same minute: the machine has slow ones."""
        return float(self.measure(BY_KEY[BESIDE[scenario.key]], peer)["value"])

    def _drain(self, scenario: Scenario, peer: Peer) -> Result:
        """A filled queue and any number of worker processes, timed from outside by what is left in Redis."""
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, {})
        self._fill(peer, count + warmup, scenario.parameters)
        steps = [self._start(peer, "watch", count, scenario.parameters)]
        try:
            self._wait_for_key(WATCHED_KEY)
            processes = scenario.parameters.get("processes", peer.default_processes)
            steps += [self._start(peer, "run", count, scenario.parameters) for _ in range(processes)]
            deadline = time.monotonic() + STEP_TIMEOUT_S
            while steps[0].is_running():
                if time.monotonic() > deadline:
                    raise MeasurementFailed(f"jobs are left after {STEP_TIMEOUT_S} s")
                if dead := [step for step in steps[1:] if not step.is_running()]:
                    raise MeasurementFailed(dead[0].last_words())
                time.sleep(0.05)
            result = steps[0].result()
        finally:
            for step in steps:
                step.end()
        return result | {"value": result["jobs"] / result["seconds"]}

    def _wait_for_key(self, key: str) -> None:
        deadline = time.monotonic() + 30
        with Wire(self.server.url) as wire:
            while not wire.call("EXISTS", key):
                if time.monotonic() > deadline:
                    raise MeasurementFailed("nobody watches the queue")
                time.sleep(0.005)

    def _fire(self, scenario: Scenario, peer: Peer) -> Result:
        count = job_count(scenario, peer, self.effort)
        warmup = warmup_count(count, {})
        _check_waiting(self._step(peer, "repeat", count + warmup, {}), count + warmup)
        result = self._counted(peer, "work", count, scenario.parameters | {"warmup": warmup})
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
        fields = entry_fields(scenario.parameters.get("body_bytes", 0))
        command = [os.fsencode(self.redis_benchmark), *address, *load, b"XADD", STREAM, b"*", *fields]
        before = cpu_seconds(self.server.url)
        done = subprocess.run(command, capture_output=True, timeout=STEP_TIMEOUT_S, check=True)
        rate = requests_per_second(done.stdout.decode())
        redis_us = (cpu_seconds(self.server.url) - before) / count * 1e6
        return {"jobs": count, "seconds": count / rate, "value": rate, "redis_us": redis_us}

    # value: p50 in microseconds

    def _latency(self, scenario: Scenario, peer: Peer) -> Result:
        jobs, parameters = self.effort.latency_jobs, scenario.parameters | {"gap_ms": gap_ms(scenario, peer)}

        def measure(concurrency: int) -> Result:
            result = self._two_ends(peer, jobs, jobs // 2, parameters | {"concurrency": concurrency})
            return percentiles(result.get("latencies_us", [])) | result | {"gap_ms": parameters["gap_ms"]}

        return self._best(peer, scenario, measure, min, "p50_us")

    def _lateness(self, scenario: Scenario, peer: Peer) -> Result:
        result = self._two_ends(peer, self.effort.lateness_jobs, self.effort.lateness_jobs // 10, scenario.parameters)
        return percentiles(result.pop("latencies_us", [])) | result

    def _wait(self, scenario: Scenario, peer: Peer) -> Result:
        """The worker runs until the last result was seen, and is not asked for one of its own."""
        count = job_count(scenario, peer, self.effort)
        worker = self._start(peer, "listen", count, scenario.parameters)
        try:
            result = self._step(peer, "wait", count, scenario.parameters)
        finally:
            worker.end()
        return percentiles(result.pop("latencies_us", [])) | result

    def _neighbour(self, scenario: Scenario, peer: Peer) -> Result:
        """Another client's SETs before the worker starts, and while its clock runs."""
        with another_client(self.server.url) as sets:
            time.sleep(ALONE_S)
            alone = percentiles(sorted(us for _, us in list(sets)))
            result = self._drained(scenario, peer, int(scenario.parameters["concurrency"]))
        first, last = result["from_us"], result["from_us"] + result["seconds"] * 1e6
        meanwhile = percentiles(sorted(us for at_us, us in sets if first <= at_us < last))
        beside = {"rate": result.pop("value"), "alone_p50_us": alone["p50_us"], "alone_p99_us": alone["p99_us"]}
        return result | beside | meanwhile

    def _lag(self, scenario: Scenario, peer: Peer) -> Result:
        result = self._drained(scenario, peer, int(scenario.parameters["concurrency"]))
        lag = percentiles(result.pop("latencies_us", []))
        return result | {"rate": result["value"]} | lag

    def _cold(self, scenario: Scenario, peer: Peer) -> Result:
        """The program that a user would write, from the start of its process to its end, and an empty one beside it."""
        started: list[int] = []
        empty: list[int] = []
        for number in range(self.effort.cold_starts + 1):
            for program, times in ((PROGRAMS[peer.module], started), ("", empty)):
                begun_ns = time.monotonic_ns()
                self._run_program(peer, program)
                if number:  # the first one fills the caches of files
                    times.append((time.monotonic_ns() - begun_ns) // 1000)
        _check_waiting(self._step(peer, "add", 0, {}), self.effort.cold_starts + 1)
        return percentiles(sorted(started)) | {"empty_us": statistics.median(empty)}

    def _run_program(self, peer: Peer, program: str) -> None:
        command = [*interpreter(peer), "-e" if peer.kind == "node" else "-c", program, self.server.url, peer.loop]
        done = subprocess.run(
            command, env=process_environment(peer), capture_output=True, timeout=STEP_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise MeasurementFailed((done.stderr.decode().strip().splitlines() or ["it said nothing"])[-1])

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
        self._empty()
        self._fill(peer, backlog)
        window = int(2 * peer.rates["work-100"] * self.effort.seconds)
        parameters = scenario.parameters | {"warmup": window // 5, "drain": False}
        with refilling(self.server.url, backlog):
            return self._step(peer, "work", window, parameters)

    # steps

    def _fill(self, peer: Peer, count: int, scenario: dict[str, Any] | None = None) -> None:
        """With the data and the options that the scenario asks for, in batches of at most a megabyte."""
        kept = {
            name: value for name, value in (scenario or {}).items() if name in ("body_bytes", "options", "defaults")
        }
        bulk = max(1, min(1000, BULK_BYTES // (kept.get("body_bytes") or 1)))
        _check_waiting(self._step(peer, "fill", count, kept | {"style": "bulk", "bulk": bulk}), count)

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

    def _counted(self, peer: Peer, action: str, count: int, parameters: dict[str, Any]) -> Result:
        """A step with the CPU time that Redis spends on each of its jobs, those of the warm-up included."""
        before = cpu_seconds(self.server.url)
        result = self._step(peer, action, count, parameters)
        jobs = count + int(parameters.get("warmup", 0))
        redis_us = (cpu_seconds(self.server.url) - before) / jobs * 1e6
        return result | {"cpu_us": result["cpu_seconds"] / result["jobs"] * 1e6, "redis_us": redis_us}

    def _start(self, peer: Peer, action: str, count: int, parameters: dict[str, Any]) -> Step:
        asked = {name: value for name, value in parameters.items() if name not in FOR_THE_BENCH}
        order = json.dumps(asked | {"data": DATA, "loop": peer.loop})
        program = ["-m", "benchmarks.peers", peer.module]
        if peer.kind == "node":
            program = [str(ROOT / "benchmarks" / "peers" / peer.module)]
        return Step([*interpreter(peer), *program, action, self.server.url, str(count), order], peer)


def _check_waiting(result: Result, expected: int) -> None:
    """A producer that lost jobs, or had not sent them yet when its clock stopped, was not measured at all."""
    if result["waiting"] != expected:
        raise MeasurementFailed(f"{result['waiting']} jobs in Redis after {expected} adds")


def percentiles(sorted_us: list[int]) -> Result:
    """The latencies of one measurement as the few numbers that are kept of them."""
    if not sorted_us:
        raise MeasurementFailed("not one time was taken")

    def at(share: float) -> int:
        return sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))]

    found = {"min_us": sorted_us[0], "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": sorted_us[-1]}
    return found | {"value": found["p50_us"], "samples": len(sorted_us)}


def requests_per_second(csv_text: str) -> float:
    """The rate in what `redis-benchmark --csv` prints: a header, then one row."""
    (row,) = csv.DictReader(io.StringIO(csv_text))
    return float(row["rps"])
