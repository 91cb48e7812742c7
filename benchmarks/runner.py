"""Who is measured when: in rounds, in each of which every peer of a scenario has its turn, so that a slow minute of the
machine falls on everybody."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.procedures import Bench, percentiles
from benchmarks.roster import Peer
from benchmarks.scenarios import LATENCY_TURNS, Scenario
from benchmarks.steps import MeasurementFailed
from benchmarks.wire import ServerSaid


@dataclass(frozen=True)
class Sample:
    """One measurement: its result, or why there is none."""

    scenario: str
    peer: str
    repeat: int
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    load: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in ("", {})}


def rounds(peers: Sequence[Peer], scenarios: Sequence[Scenario], repeats: int) -> Iterator[tuple[int, Scenario, Peer]]:
    """All measurements in order. What Redis holds for a waiting job does not vary, so that is asked only once.

    Each round starts elsewhere, by an even number of peers, and every other one goes backwards: ours and the wheel,
    which follow each other in the roster, stay neighbours, and each of them is first as often as the other.
    """
    for repeat in range(repeats):
        for scenario in scenarios:
            if scenario.kind == "memory" and repeat:
                continue
            taking_part = [peer for peer in peers if scenario.key in peer.scenarios]
            # A wake-up takes twice as long in some seconds as in others, so that those are shared as well.
            turns = LATENCY_TURNS if scenario.kind == "latency" else 1
            for turn in range(turns if taking_part else 0):
                number = repeat * turns + turn
                shift = number // 2 * 2 % max(2, len(taking_part) // 2 * 2)
                order = taking_part[shift:] + taking_part[:shift]
                yield from ((repeat, scenario, peer) for peer in (order[::-1] if number % 2 else order))


def run(
    bench: Bench, peers: Sequence[Peer], scenarios: Sequence[Scenario], repeats: int
) -> tuple[list[Sample], list[str]]:
    """A sample for each round, and every turn that failed, in words."""
    plan = list(rounds(peers, scenarios, repeats))
    samples: list[Sample] = []
    begun = time.monotonic()
    for number, (repeat, scenario, peer) in enumerate(plan, start=1):
        sample = _measure(bench, repeat, scenario, peer)
        samples.append(sample)
        outcome = f"failed: {sample.error}" if sample.error else _value(scenario, sample)
        spent = time.monotonic() - begun
        print(f"[{number}/{len(plan)} {spent:5.0f} s] {scenario.key:14} {peer.name:17} {outcome}", flush=True)
    return pooled(samples), failed_turns(samples)


def failed_turns(samples: Sequence[Sample]) -> list[str]:
    """Also those whose round has a sample of other turns."""
    return [f"{s.scenario}, {s.peer}, round {s.repeat + 1}: {s.error}" for s in samples if s.error]


def pooled(samples: Sequence[Sample]) -> list[Sample]:
    """One sample of all turns that a peer had within a repeat. A turn that failed is left out if another has not."""
    by_repeat: dict[tuple[str, str, int], list[Sample]] = {}
    for sample in samples:
        by_repeat.setdefault((sample.scenario, sample.peer, sample.repeat), []).append(sample)
    return [_pool(turns) for turns in by_repeat.values()]


def _pool(turns: list[Sample]) -> Sample:
    good = [turn for turn in turns if not turn.error]
    if len(turns) == 1 or not good:
        return turns[0]
    latencies_us = sorted(us for turn in good for us in turn.result["latencies_us"])
    result = good[-1].result | percentiles(latencies_us) | {"turns": len(good), "failed_turns": len(turns) - len(good)}
    del result["latencies_us"]
    return replace(good[-1], result=result)


def _measure(bench: Bench, repeat: int, scenario: Scenario, peer: Peer) -> Sample:
    load = os.getloadavg()[0]
    try:
        return Sample(scenario.key, peer.name, repeat, bench.measure(scenario, peer), load=load)
    except (MeasurementFailed, OSError, ServerSaid, subprocess.SubprocessError) as error:
        return Sample(scenario.key, peer.name, repeat, error=str(error) or repr(error), load=load)


def _value(scenario: Scenario, sample: Sample) -> str:
    result = sample.result
    if scenario.is_rate:
        threads = f" with {result['threads']} threads" if "threads" in result else ""
        return f"{result['value']:,.0f} jobs/s{threads}"
    if scenario.kind == "memory":
        return f"{result['value']:,.0f} bytes/job"
    if scenario.kind == "backlog":
        return f"{result['small_us']:.2f} us/job at the small backlog, {result['large_us']:.2f} at the large one"
    return f"p50 {result['p50_us']:,} us, p99 {result['p99_us']:,} us"
