"""How one measurement goes, step by step, each step in a fresh process of the peer's own interpreter."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import interpreter, process_environment
from benchmarks.payload import DATA, ENTRY_FIELDS, STREAM
from benchmarks.roster import Peer
from benchmarks.scenarios import Effort, Scenario, job_count, memory_count, warmup_count
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
            "latency": self._latency,
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
        self._fill(peer, count + warmup)
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
        place = [b"-h", b"127.0.0.1", b"-p", b"%d" % self.server.port]
        command = [os.fsencode(self.redis_benchmark), *place, *load, b"XADD", STREAM, b"*", *ENTRY_FIELDS]
        done = subprocess.run(command, capture_output=True, timeout=STEP_TIMEOUT_S, check=True)
        rate = requests_per_second(done.stdout.decode())
        return {"jobs": count, "seconds": count / rate, "value": rate}

    # value: p50 in microseconds

    def _latency(self, scenario: Scenario, peer: Peer) -> Result:
        count = self.effort.latency_jobs
        parameters = scenario.parameters | {"warmup": count // 10}
        listener = self._start(peer, "listen", count, parameters)
        try:
            self._step(peer, "send", count, parameters)
            result = listener.result()
        finally:
            listener.end()
        return percentiles(result.pop("latencies_us")) | result

    # value: bytes of Redis memory a waiting job

    def _memory(self, scenario: Scenario, peer: Peer) -> Result:
        count = memory_count(peer, self.effort)
        with Wire(self.server.url) as wire:
            before = int(wire.info("memory")["used_memory"])
            self._fill(peer, count)
            after = int(wire.info("memory")["used_memory"])
        return {"jobs": count, "value": (after - before) / count}

    # value: cost of a job at the large backlog over its cost at the small one

    def _backlog(self, scenario: Scenario, peer: Peer) -> Result:
        effort = self.effort
        rounds = [self._small_backlog(scenario, peer) for _ in range(effort.small_rounds)]
        self._fill(peer, effort.large_backlog)
        window = min(effort.large_backlog // 2, 2 * peer.rates["work-100"])
        parameters = scenario.parameters | {"warmup": window // 10, "drain": False}
        large = self._step(peer, "work", window, parameters)
        small_us = statistics.median(_us_per_job(one) for one in rounds)
        small_rss = statistics.median(one["peak_rss_mb"] for one in rounds)
        return {
            "small_us": small_us,
            "large_us": _us_per_job(large),
            "small_rss_mb": small_rss,
            "large_rss_mb": large["peak_rss_mb"],
            "small_rounds_us": [_us_per_job(one) for one in rounds],
            "value": _us_per_job(large) / small_us,
        }

    def _small_backlog(self, scenario: Scenario, peer: Peer) -> Result:
        with Wire(self.server.url) as wire:
            wire.call("FLUSHALL", "SYNC")
        backlog = self.effort.small_backlog
        self._fill(peer, backlog)
        return self._step(peer, "work", backlog - backlog // 10, scenario.parameters | {"warmup": backlog // 10})

    # steps

    def _fill(self, peer: Peer, count: int) -> None:
        _check_waiting(self._step(peer, "fill", count, {"style": "bulk", "bulk": 1000}), count)

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
        self._errors = tempfile.TemporaryFile()
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


def _us_per_job(result: Result) -> float:
    return float(result["seconds"] / result["jobs"] * 1e6)


def _check_waiting(result: Result, expected: int) -> None:
    """A producer that lost jobs, or had not sent them yet when its clock stopped, was not measured at all."""
    if result["waiting"] != expected:
        raise MeasurementFailed(f"{result['waiting']} jobs in Redis after {expected} adds")


def percentiles(sorted_us: list[int]) -> Result:
    """The latencies of one measurement as the few numbers that are kept of them."""

    def at(share: float) -> int:
        return sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))]

    found = {"p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": sorted_us[-1]}
    return found | {"value": found["p50_us"], "samples": len(sorted_us)}


def requests_per_second(csv_text: str) -> float:
    """The rate in what `redis-benchmark --csv` prints: a header, then one row."""
    (row,) = csv.DictReader(io.StringIO(csv_text))
    return float(row["rps"])
