"""The benchmarks' arithmetic: job counts, ratios, verdicts and tables. No server, no peer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec
import pytest

from benchmarks import payload, scenarios
from benchmarks.peers.meter import Meter
from benchmarks.peers.roles import AsyncPeer, Failures, Order, Producer
from benchmarks.peers.stage import _wait, shares
from benchmarks.procedures import percentiles, requests_per_second
from benchmarks.report import Table, ranking, renewed, tables, verdict_table, write_json
from benchmarks.roster import (
    BARE_LOOP,
    BY_NAME,
    FAILING,
    OURS,
    OURS_UVLOOP,
    PEERS,
    REDIS_BENCHMARK,
    TIME,
    WHEEL,
    WHEEL_UVLOOP,
)
from benchmarks.runner import Sample, pooled, rounds
from benchmarks.scenarios import BY_KEY, FULL, QUICK, SCENARIOS, job_count, warmup_count
from benchmarks.server import ROOT
from benchmarks.verdict import Samples, Verdict, judge
from benchmarks.wire import render


def sample(scenario: str, peer: str, repeat: int, **result: Any) -> Sample:
    return Sample(scenario, peer, repeat, result)


def verdict_on(verdicts: list[Verdict], claim: str, peer: str = OURS) -> Verdict:
    (found,) = [verdict for verdict in verdicts if verdict.claim.startswith(claim) and verdict.peer == peer]
    return found


def test_a_ratio_is_taken_within_each_repeat_and_then_the_median():
    # The second repeat was slow for everybody; the ratio does not notice.
    rates = {OURS: (100, 20, 90), WHEEL: (10, 2, 10)}
    samples = Samples(sample("add", peer, at, value=v) for peer, values in rates.items() for at, v in enumerate(values))
    assert samples.ratio("add", OURS, WHEEL) == 10
    assert samples.median("add", OURS) == 90


def test_a_repeat_that_failed_for_one_of_two_is_in_no_ratio():
    measured = [sample("add", OURS, 0, value=30), sample("add", OURS, 1, value=99), sample("add", WHEEL, 0, value=10)]
    samples = Samples([*measured, Sample("add", WHEEL, 1, error="it said nothing")])
    assert samples.ratio("add", OURS, WHEEL) == 3
    assert samples.values("add", WHEEL) == [10]


def test_a_scenario_that_was_not_measured_has_no_median_and_no_ratio():
    samples = Samples([sample("add", OURS, 0, value=30)])
    assert samples.median("work-100", OURS) is None
    assert samples.ratio("add", OURS, WHEEL) is None


def test_a_bar_is_cleared_missed_or_not_measured():
    samples = Samples(
        [
            sample("add", OURS, 0, value=15),
            sample("add", WHEEL, 0, value=10),
            sample("add-bulk-1000", OURS, 0, value=40),
            sample("add-bulk-1000", REDIS_BENCHMARK, 0, value=100),
        ]
    )
    verdicts = judge(samples)
    assert verdict_on(verdicts, "add against").cleared is True
    assert verdict_on(verdicts, "add-bulk-1000 against redis-benchmark").cleared is False
    assert verdict_on(verdicts, "work-100 against the bare loop").cleared is None
    assert verdict_on(verdicts, "add against", OURS_UVLOOP).measured == "not measured"


def test_the_nearest_python_peer_decides_for_all_of_them():
    rates = {OURS: 1000, "arq": 10, "saq": 60, "rq": 1, BARE_LOOP: 1100}
    verdicts = judge(Samples(sample("work-100", peer, 0, value=rate) for peer, rate in rates.items()))
    found = verdict_on(verdicts, "work-100 against every other Python peer")
    assert not found.cleared
    assert "saq" in found.measured


@pytest.mark.parametrize(("ratio", "cleared"), ((0.84, False), (0.86, True), (1.0, True), (1.14, True), (1.16, False)))
def test_a_large_backlog_may_cost_neither_much_more_nor_much_less(ratio: float, cleared: bool):
    measured = sample("backlog", OURS, 0, value=ratio, small_rss_mb=40, large_rss_mb=61)
    verdicts = judge(Samples([measured]))
    assert verdict_on(verdicts, "cost of a job").cleared is cleared
    assert verdict_on(verdicts, "worker RSS").cleared is False


def test_latency_must_be_at_most_half():
    measured = [sample("latency", OURS, 0, p50_us=100, p99_us=300), sample("latency", WHEEL, 0, p50_us=200, p99_us=500)]
    verdicts = judge(Samples(measured))
    assert verdict_on(verdicts, "latency p50").cleared is True
    assert verdict_on(verdicts, "latency p99").cleared is False


def test_percentiles_of_a_hundred_latencies():
    found = percentiles(list(range(1, 101)))
    names = ("min_us", "p50_us", "p90_us", "p99_us", "max_us")
    assert tuple(found[name] for name in names) == (1, 51, 91, 100, 100)
    assert found["samples"] == 100


def test_a_single_latency_is_every_percentile():
    assert percentiles([7])["p99_us"] == 7


def test_the_rate_of_redis_benchmark_is_read_by_its_column():
    printed = '"test","rps","avg_latency_ms"\n"XADD s * d xxx","721649.50","0.7"\n'
    assert requests_per_second(printed) == 721649.5


@pytest.mark.parametrize("effort", (FULL, QUICK))
def test_every_peer_gets_a_whole_number_of_batches(effort: scenarios.Effort):
    for scenario in SCENARIOS:
        if scenario.kind not in ("add", "work"):
            continue
        batch = scenario.parameters.get("bulk", scenario.parameters.get("tasks", 1))
        for peer in PEERS:
            if scenario.key in peer.scenarios:
                count = job_count(scenario, peer, effort)
                assert count % batch == 0
                assert count >= 200
                assert warmup_count(count, scenario.parameters) >= count / 10


def test_jobs_that_fail_are_as_many_for_everybody():
    for key in FAILING:
        taking_part = [peer for peer in PEERS if key in peer.scenarios]
        assert [peer.name for peer in taking_part] == [OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP]
        assert {job_count(BY_KEY[key], peer, FULL) for peer in taking_part} == {50_000}


def meter_of(handler: str, *, warmup: int) -> Callable[..., Awaitable[None]]:
    """The handler that a peer's worker would get; its argument is how often the job has failed."""
    failures = Failures(lambda earlier_runs: earlier_runs, ZeroDivisionError)
    peer: Any = AsyncPeer(None, None, lambda _: {}, lambda _: 0, failures=failures)  # type: ignore[arg-type]
    order = Order("redis://nowhere", count=1000, warmup=warmup, handler=handler)
    return Meter(order, peer).async_handler(peer.data_of)


async def test_a_job_fails_once_and_then_succeeds_after_the_warm_up():
    retry = meter_of("retry", warmup=2)
    await retry(0)
    await retry(0)
    with pytest.raises(LookupError):
        await retry(0)
    await retry(1)
    with pytest.raises(LookupError):
        await retry(0)


async def test_a_job_to_be_buried_fails_for_good_from_the_start():
    bury = meter_of("bury", warmup=2)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await bury(0)


def test_failures_must_cost_a_fifth_of_what_they_cost_the_wheel():
    rates = {OURS: 50, WHEEL: 10, OURS_UVLOOP: 49, WHEEL_UVLOOP: 10}
    verdicts = judge(Samples(sample(key, peer, 0, value=rate) for key in FAILING for peer, rate in rates.items()))
    for key in FAILING:
        assert verdict_on(verdicts, f"{key} against").cleared is True
        assert verdict_on(verdicts, f"{key} against", OURS_UVLOOP).cleared is False


def test_the_wheel_alone_is_measured_beside_us_with_delayed_jobs():
    for key in TIME:
        assert [peer.name for peer in PEERS if key in peer.scenarios] == [OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP]
    for key, count in (("promote", 100_000), ("fire", 10_000)):
        assert {job_count(BY_KEY[key], BY_NAME[name], FULL) for name in (OURS, WHEEL)} == {count}


@pytest.mark.parametrize(
    ("measured", "cleared"),
    (
        ({"p50_us": 9_000, "p99_us": 59_000, "min_us": 0}, (True, True, True)),
        ({"p50_us": 11_000, "p99_us": 61_000, "min_us": -1}, (False, False, False)),
    ),
)
def test_delayed_jobs_may_be_a_little_late_and_never_early(measured: dict[str, float], cleared: tuple[bool, ...]):
    verdicts = judge(Samples([sample("lateness", OURS, 0, **measured)]))
    claims = ("p50 of the time", "p99 of the time", "delayed jobs are never early")
    assert tuple(verdict_on(verdicts, claim).cleared for claim in claims) == cleared


def test_a_single_early_job_in_any_repeat_is_too_many():
    verdicts = judge(Samples(sample("lateness", OURS, at, min_us=us) for at, us in enumerate((300, -2000, 300))))
    assert verdict_on(verdicts, "delayed jobs are never early").measured == "2.0 ms"


def test_lateness_is_shown_in_milliseconds():
    measured = {"value": 1500, "min_us": 300, "p50_us": 1500, "p90_us": 2000, "p99_us": 3900, "max_us": 6100}
    (table,) = tables([BY_KEY["lateness"]], Samples([sample("lateness", OURS, 0, **measured)]))
    assert table.rows[0][1:6] == ("0.3", "1.5", "2.0", "3.9", "6.1")


@pytest.mark.parametrize(("p50_us", "cleared"), ((4_900, True), (5_100, False)))
def test_a_waiter_may_get_its_result_five_milliseconds_after_the_handler(p50_us: float, cleared: bool):
    verdicts = judge(Samples([sample("wait-1000", OURS, 0, p50_us=p50_us)]))
    assert verdict_on(verdicts, "p50 from a handler's end").cleared is cleared


def test_a_wait_is_shown_in_milliseconds_with_all_that_it_took():
    measured = {"value": 600, "p50_us": 600, "p90_us": 900, "p99_us": 2000, "max_us": 2500}
    ours = sample("wait-1000", OURS, 0, **measured, seconds=1.05, cpu_seconds=0.2)
    theirs = sample("wait-1000", WHEEL, 0, value=60_000, p50_us=60_000, p99_us=100_000)
    (table,) = tables([BY_KEY["wait-1000"]], Samples([ours, theirs]))
    assert table.rows[0][1:] == ("0.6", "0.9", "2.0", "2.5", "1,050.0", "200.0", "0.01", "0.02")


async def test_a_result_that_is_waited_for_is_late_by_what_passed_since_its_handler_ended():
    spread: list[float] = []

    async def bulk(batch: list[dict[str, Any]]) -> list[int]:
        spread.extend(data["for_ms"] for data in batch)
        return [0] * len(batch)

    async def add(data: dict[str, Any]) -> int:
        return 0

    async def wait(job: int) -> int:
        ended_at = monotonic_ns() // 1000
        await asyncio.sleep(0.01)
        return ended_at

    producer = Producer(add, lambda batch: partial(bulk, batch), wait=wait)
    found = await _wait(producer, Order("", 20, spread_ms=500))
    assert len(spread) == found["jobs"] == len(found["latencies_us"]) == 20
    assert 0 <= min(spread) < max(spread) <= 500
    assert 9_000 <= found["latencies_us"][0] <= found["latencies_us"][-1] <= found["seconds"] * 1e6


def test_the_cost_of_a_trace_is_a_ratio_to_the_same_worker_without():
    rates = [
        sample("work-100", OURS, 0, value=1_000_000),
        sample("work-traces", OURS, 0, value=30_000, plain=200_000),
        sample("work-traces", OURS, 1, value=10_000, plain=200_000),
        sample("work-traces", OURS, 2, value=60_000, plain=200_000),
    ]
    found = verdict_on(judge(Samples(rates)), "work-traces against the same without")
    assert (found.cleared, found.measured) == (True, "0.15 x")


def test_a_slow_peer_gets_longer_pauses_so_that_its_queue_is_idle():
    assert scenarios.gap_ms(BY_NAME[OURS]) == (2.0, 5.0)
    assert scenarios.gap_ms(BY_NAME["rq"]) == (7.5, 10.5)


def test_jobs_are_dealt_evenly_to_the_callers():
    assert shares(10, 4) == [3, 3, 2, 2]
    assert sum(shares(12345, 100)) == 12345


def test_each_repeat_starts_with_another_peer_and_leaves_no_peer_out():
    peers = [BY_NAME[name] for name in (OURS, WHEEL, "arq")]
    plan = list(rounds(peers, [BY_KEY["add"]], 3))
    firsts = [next(peer.name for repeat, _, peer in plan if repeat == at) for at in range(3)]
    assert firsts == [OURS, WHEEL, "arq"]
    assert len(plan) == 9


def test_latencies_are_measured_in_short_turns():
    peers = [BY_NAME[name] for name in (OURS, WHEEL, "arq")]
    plan = [peer.name for _, _, peer in rounds(peers, [BY_KEY["latency"]], 1)]
    turns = [plan[at : at + 3] for at in range(0, len(plan), 3)]
    assert len(turns) == scenarios.LATENCY_TURNS
    assert {turn[0] for turn in turns} == {OURS, WHEEL, "arq"}
    assert all(set(turn) == {OURS, WHEEL, "arq"} for turn in turns)


def test_the_turns_of_a_repeat_become_one_sample():
    turns = [sample("latency", OURS, 0, latencies_us=[1, 2]), sample("latency", OURS, 0, latencies_us=[30, 40, 50])]
    failed = Sample("latency", OURS, 0, error="it said nothing")
    (one,) = pooled([turns[0], failed, turns[1]])
    assert (one.result["p50_us"], one.result["max_us"], one.result["samples"]) == (30, 50, 5)
    assert (one.result["turns"], one.result["failed_turns"]) == (2, 1)
    assert "latencies_us" not in one.result
    assert pooled([failed, failed]) == [failed]
    adds = [sample("add", OURS, repeat, value=repeat) for repeat in range(3)]
    assert pooled(adds) == adds


def test_peers_take_part_where_they_can_and_memory_is_measured_once():
    plan = list(rounds(PEERS, [BY_KEY["work-def"], BY_KEY["memory"]], 3))
    assert not any(peer.name == "arq" for _, scenario, peer in plan if scenario.key == "work-def")
    assert {repeat for repeat, scenario, _ in plan if scenario.key == "memory"} == {0}


def test_a_repeated_measurement_replaces_the_earlier_one(tmp_path: Path):
    meta = {"date": "2026-01-01", "commit": "a", "load": {}, "failures": ["add, x, repeat 1: no", "memory, x: no"]}
    earlier = [sample("add", OURS, 0, value=1), sample("memory", OURS, 0, value=2)]
    write_json(tmp_path / "results.json", meta, earlier, [])
    later = {"date": "2026-01-02", "commit": "b", "load": {}, "failures": []}
    renewed_meta, samples = renewed(tmp_path / "results.json", later, [sample("add", OURS, 0, value=3)])
    assert {one.scenario: one.result["value"] for one in samples} == {"memory": 2, "add": 3}
    assert (renewed_meta["date"], renewed_meta["failures"]) == ("2026-01-01", ["memory, x: no"])
    assert renewed_meta["again"] == [{"scenarios": ["add"], "date": "2026-01-02", "commit": "b", "load": {}}]


def test_a_table_is_aligned_in_text_and_piped_in_markdown():
    table = Table("rates", ("", "jobs/s"), [("pychasqui", "1,000"), ("rq", "1")])
    assert table.as_text() == "rates\n-----\n           jobs/s\npychasqui   1,000\nrq              1\n"
    assert "| pychasqui | 1,000 |\n| rq | 1 |" in table.as_markdown()


def test_the_fastest_and_the_quickest_come_first():
    rates = [sample("add", "arq", 0, value=5), sample("add", OURS, 0, value=50)]
    latencies = [sample("latency", "arq", 0, value=5), sample("latency", OURS, 0, value=1)]
    samples = Samples(rates + latencies)
    assert ranking("add", samples) == [OURS, "arq"]
    assert ranking("latency", samples, most_first=False) == [OURS, "arq"]


def test_a_scenario_without_measurements_has_no_table():
    samples = Samples([sample("add", OURS, 0, value=50, jobs=100, cpu_seconds=1)])
    assert [table.title for table in tables(SCENARIOS, samples)] == [BY_KEY["add"].title]


def test_the_verdict_says_no_where_a_bar_was_missed():
    verdicts = [Verdict("add", OURS, "at least 2 x", "1.00 x", False), Verdict("rest", OURS, "at least 2 x", "-", None)]
    assert [row[-1] for row in verdict_table(verdicts).rows] == ["NO", "-"]


def test_the_limits_carry_an_entry_as_large_as_a_real_one():
    data = msgspec.msgpack.encode(payload.DATA)
    envelope = msgspec.msgpack.encode(["0" * 26, data, 1_700_000_000_000, 0])
    assert len(envelope) == payload.ENVELOPE_BYTES
    assert len(msgspec.json.encode(payload.DATA)) == 65


def test_every_peer_has_a_file_of_its_own():
    folder = ROOT / "benchmarks" / "peers"
    for peer in PEERS:
        if peer.kind != "tool":
            assert (folder / (peer.module if peer.kind == "node" else f"{peer.module}.py")).exists()


def test_a_command_is_rendered_with_its_lengths_in_bytes():
    assert render("SET", "ключ", 1) == b"*3\r\n$3\r\nSET\r\n$8\r\n\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87\r\n$1\r\n1\r\n"
