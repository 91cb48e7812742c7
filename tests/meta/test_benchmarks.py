"""The benchmarks' arithmetic: job counts, ratios, verdicts and tables. No server, no peer."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import msgspec
import pytest

from benchmarks import payload, scenarios
from benchmarks.__main__ import why_changed, why_unofficial
from benchmarks.against import make_row
from benchmarks.first_add import PROGRAMS
from benchmarks.peers.meter import Meter
from benchmarks.peers.roles import AsyncPeer, Failures, Order, Producer
from benchmarks.peers.stage import _wait, _wait_in_turn, shares
from benchmarks.procedures import Bench, percentiles, requests_per_second
from benchmarks.report import Table, behind, facts, headline, ranking, renewed, tables, verdict_table, write_json
from benchmarks.roster import (
    BARE_LOOP,
    BY_NAME,
    DEF,
    FAILING,
    OURS,
    OURS_UVLOOP,
    PEERS,
    REDIS_BENCHMARK,
    TIME,
    WHEEL,
    WHEEL_UVLOOP,
)
from benchmarks.runner import Sample, failed_turns, pooled, rounds
from benchmarks.scenarios import BY_KEY, FULL, QUICK, SCENARIOS, job_count, warmup_count
from benchmarks.server import ROOT
from benchmarks.steps import MeasurementFailed
from benchmarks.verdict import Ratio, Samples, Verdict, judge
from benchmarks.wire import render


def sample(scenario: str, peer: str, repeat: int, **result: Any) -> Sample:
    return Sample(scenario, peer, repeat, result)


def verdict_on(verdicts: list[Verdict], claim: str, peer: str = OURS) -> Verdict:
    (found,) = [verdict for verdict in verdicts if verdict.claim.startswith(claim) and verdict.peer == peer]
    return found


def test_a_ratio_is_taken_within_each_round_and_then_the_median():
    # The second round was slow for everybody; the ratio does not notice.
    rates = {OURS: (100, 20, 90), WHEEL: (10, 2, 10)}
    samples = Samples(sample("add", peer, at, value=v) for peer, values in rates.items() for at, v in enumerate(values))
    assert samples.ratio("add", OURS, WHEEL) == Ratio(median=10, least=9, most=10)
    assert samples.median("add", OURS) == 90


def test_a_repeat_that_failed_for_one_of_two_is_in_no_ratio():
    measured = [sample("add", OURS, 0, value=30), sample("add", OURS, 1, value=99), sample("add", WHEEL, 0, value=10)]
    samples = Samples([*measured, Sample("add", WHEEL, 1, error="it said nothing")])
    assert samples.ratio("add", OURS, WHEEL) == Ratio(3, 3, 3)
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


def test_a_measurement_without_one_latency_has_failed():
    with pytest.raises(MeasurementFailed):
        percentiles([])


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
        assert [peer.name for peer in taking_part] == [OURS, WHEEL, OURS_UVLOOP, WHEEL_UVLOOP]
        assert {job_count(BY_KEY[key], peer, FULL) for peer in taking_part} == {50_000}


def meter_of(handler: str, *, warmup: int) -> Callable[..., Awaitable[None]]:
    """The handler that a peer's worker would get; its argument is how often the job has failed."""
    failures = Failures(lambda earlier_runs: earlier_runs, ZeroDivisionError)
    peer: Any = AsyncPeer(None, None, lambda _: {}, lambda _: 0, failures=failures)  # type: ignore[arg-type]
    order = Order("redis://nowhere", count=1000, warmup=warmup, handler=handler)
    return Meter(order, peer).handler()


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
        assert [peer.name for peer in PEERS if key in peer.scenarios] == [OURS, WHEEL, OURS_UVLOOP, WHEEL_UVLOOP]
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
    assert table.columns[1:] == ("earliest", "p50", "p90", "p99", "max")
    assert table.rows[0][1:] == ("0.3", "1.5", "2.0", "3.9", "6.1")


@pytest.mark.parametrize(("p50_us", "cleared"), ((4_900, True), (5_100, False)))
def test_a_waiter_may_get_its_result_five_milliseconds_after_the_handler(p50_us: float, cleared: bool):
    verdicts = judge(Samples([sample("wait-1000", OURS, 0, p50_us=p50_us)]))
    assert verdict_on(verdicts, "p50 from a handler's end").cleared is cleared


def test_a_wait_is_shown_in_milliseconds_with_all_that_it_took():
    measured = {"value": 600, "p50_us": 600, "p90_us": 900, "p99_us": 2000, "max_us": 2500}
    ours = sample("wait-1000", OURS, 0, **measured, seconds=1.05, cpu_seconds=0.2)
    theirs = sample("wait-1000", WHEEL, 0, value=60_000, p50_us=60_000, p99_us=100_000)
    (table,) = tables([BY_KEY["wait-1000"]], Samples([ours, theirs]))
    assert table.rows[0][1:] == ("0.6", "0.9", "2.0", "2.5", "1,050.0", "200.0", "", "")
    assert table.columns[-2:] == ("p50: pychasqui / it", "p99: pychasqui / it")
    assert table.rows[1][-2:] == ("0.01", "0.02")


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


async def test_results_one_by_one_are_never_asked_for_at_once():
    under_way: set[int] = set()
    numbers = iter(range(100))

    async def add(data: dict[str, Any]) -> int:
        assert not under_way
        under_way.add(number := next(numbers))
        return number

    async def wait(job: int) -> int:
        await asyncio.sleep(0.002)
        under_way.remove(job)
        return 0

    found = await _wait_in_turn(Producer(add, lambda batch: lambda: None, wait=wait), Order("", 5, in_turn=True))
    assert found["jobs"] == len(found["latencies_us"]) == 5
    assert found["latencies_us"][0] >= 2000
    assert next(numbers) == 6  # one before the clock


async def test_the_lag_of_a_loop_that_is_blocked_is_as_long_as_the_block():
    order = Order("redis://nowhere", count=1000, lag=True)
    meter = Meter(order, AsyncPeer(None, None, lambda _: {}, lambda _: 0))  # type: ignore[arg-type]
    task = asyncio.create_task(meter.sample_lag())
    await asyncio.sleep(0.01)
    time.sleep(0.05)  # the block
    await asyncio.sleep(0.01)
    task.cancel()
    assert max(lag_us for _, lag_us in meter._lags_us) >= 48_000
    assert min(lag_us for _, lag_us in meter._lags_us) >= 0


def test_the_cost_of_a_trace_is_a_ratio_to_the_same_worker_without():
    rates = [
        sample("work-100", OURS, 0, value=1_000_000),
        sample("work-traces", OURS, 0, value=30_000, plain=200_000),
        sample("work-traces", OURS, 1, value=10_000, plain=200_000),
        sample("work-traces", OURS, 2, value=60_000, plain=200_000),
    ]
    found = verdict_on(judge(Samples(rates)), "work-traces against the same without")
    assert (found.cleared, found.measured) == (True, "0.15 (0.05 to 0.30) x")


def test_a_slow_peer_gets_longer_pauses_so_that_its_queue_is_idle():
    assert scenarios.gap_ms(BY_KEY["latency"], BY_NAME[OURS]) == (2.0, 5.0)
    assert scenarios.gap_ms(BY_KEY["latency-def"], BY_NAME["rq"]) == (7.5, 10.5)


def test_jobs_are_dealt_evenly_to_the_callers():
    assert shares(10, 4) == [3, 3, 2, 2]
    assert sum(shares(12345, 100)) == 12345


def order_of(key: str, names: tuple[str, ...], repeats: int) -> list[list[str]]:
    """The names of the peers in each round."""
    plan = [peer.name for _, _, peer in rounds([BY_NAME[name] for name in names], [BY_KEY[key]], repeats)]
    return [plan[at : at + len(names)] for at in range(0, len(plan), len(names))]


def test_each_pair_of_rounds_starts_with_another_peer_and_leaves_no_peer_out():
    names = (OURS, WHEEL, OURS_UVLOOP, WHEEL_UVLOOP, "arq")
    found = order_of("work-100", names, 5)
    assert found[0] == list(names)
    assert found[1] == found[0][::-1]
    assert [one[0] for one in found] == [OURS, "arq", OURS_UVLOOP, WHEEL, OURS]
    assert all(set(one) == set(names) for one in found)


def test_each_of_ours_is_the_neighbour_of_the_wheel_on_its_loop_in_every_round():
    names = tuple(peer.name for peer in PEERS if "add" in peer.scenarios)
    for one in order_of("add", names, 20):
        for ours, wheel in ((OURS, WHEEL), (OURS_UVLOOP, WHEEL_UVLOOP)):
            assert abs(one.index(ours) - one.index(wheel)) == 1


def test_latencies_are_measured_in_short_turns():
    turns = order_of("latency", (OURS, WHEEL, "arq"), 1)
    assert len(turns) == scenarios.LATENCY_TURNS
    assert {turn[0] for turn in turns} == {OURS, "arq"}
    assert all(set(turn) == {OURS, WHEEL, "arq"} for turn in turns)


def test_a_failed_turn_is_listed_though_its_round_has_a_sample():
    turns = [sample("latency", "arq", 0, latencies_us=[1]), Sample("latency", "arq", 0, error="it said nothing")]
    assert failed_turns(turns) == ["latency, arq, round 1: it said nothing"]
    assert pooled([*turns, turns[0]])[0].error == ""


def test_the_failed_turns_of_everybody_are_in_the_report_and_none_is_said():
    meta = {
        "date": "2026-01-01",
        "commit": "abc",
        "machine": {"cpu": "x", "cores": 2, "memory_gb": 1, "kernel": "Linux", "python": "3.11"},
        "load": {"before": 0, "after": 0},
        "redis": "8.6",
        "repeats": 5,
        "quick": False,
        "data": {},
        "versions": {},
        "skipped": {},
    }
    failed = facts(meta | {"failures": ["add, arq, round 1: no", f"add, {OURS}, round 2: no"]})
    assert failed[-2:] == ["failed turn: add, arq, round 1: no", f"failed turn: add, {OURS}, round 2: no"]
    assert facts(meta | {"failures": []})[-1] == "failed turns: none"
    assert facts(meta | {"failures": []})[0] == "2026-01-01, commit abc"
    assert facts(meta | {"failures": [], "unofficial": "it is"})[0] == "UNOFFICIAL: it is"


@pytest.mark.parametrize(
    ("changes", "why"), ((" M src/pychasqui/queue.py\n", "changes"), ("?? new.py\n", "changes"), (None, "no clone"))
)
def test_a_tree_with_changes_is_refused_or_marked(changes: str | None, why: str):
    with pytest.raises(SystemExit, match="--unofficial"):
        why_unofficial(changes, is_allowed=False)
    assert why in why_unofficial(changes, is_allowed=True)


def test_a_tree_without_changes_is_official():
    assert why_unofficial("", is_allowed=False) == why_unofficial("", is_allowed=True) == ""


def test_a_tree_that_changes_under_a_run_makes_it_unofficial():
    assert why_changed(("abc", ""), ("abc", "")) == ""
    assert why_changed(("abc", ""), ("def", "")) == why_changed(("abc", ""), ("abc", " M x")) != ""


def test_an_unofficial_part_makes_the_whole_report_unofficial(tmp_path: Path):
    meta = {"failures": [], "unofficial": "", "versions": {}}
    write_json(tmp_path / "results.json", meta, [sample("add", OURS, 0, value=1)], [])
    later: dict[str, Any] = {"date": "2026-01-02", "commit": "b", "repeats": 3, "load": {}}
    later |= {"failures": [], "versions": {}}
    later["unofficial"] = "changes"
    assert renewed(tmp_path / "results.json", later, [])[0]["unofficial"] == "changes"


@pytest.mark.parametrize(
    ("ratios", "text"),
    (([2.0], "2.00"), ([1, 2, 4], "2.00 (1.00 to 4.00)"), ([90, 101, 1200.4], "101 (90.0 to 1,200)")),
)
def test_a_ratio_is_printed_with_its_range(ratios: list[float], text: str):
    assert str(Ratio.of(ratios)) == text


def test_no_rounds_have_no_ratio():
    assert Ratio.of([]) is None


def test_the_report_says_in_words_where_a_peer_is_ahead():
    rates = {OURS: (90, 110, 90), "arq": (100, 100, 100), WHEEL: (50, 50, 50), REDIS_BENCHMARK: (900, 900, 900)}
    samples = [sample("add", peer, at, value=v) for peer, values in rates.items() for at, v in enumerate(values)]
    samples += [sample("memory", OURS, 0, value=110), sample("memory", "huey", 0, value=100)]
    assert behind([BY_KEY["add"], BY_KEY["memory"]], Samples(samples)) == [
        "**add, one after another, jobs/s.** Ahead of pychasqui: arq 0.90 (0.90 to 1.10), which may be chance.",
        "**Redis bytes per waiting job, bytes.** Ahead of pychasqui: huey [no acks, at most once] 1.10.",
    ]


def test_a_peer_with_a_shorter_time_is_ahead():
    samples = [sample("latency", OURS, 0, p50_us=20, p99_us=90), sample("latency", "arq", 0, p50_us=10, p99_us=100)]
    (line,) = behind([BY_KEY["latency"]], Samples(samples))
    assert line == f"**{BY_KEY['latency'].title}, p50.** Ahead of pychasqui: arq 2.00."


def test_a_peer_that_is_ahead_on_one_loop_is_named_for_that_loop():
    rates = {OURS: 90, OURS_UVLOOP: 110, WHEEL: 80, WHEEL_UVLOOP: 120, "arq": 100}
    samples = Samples(sample("work-100", peer, 0, value=rate) for peer, rate in rates.items())
    (line,) = behind([BY_KEY["work-100"]], samples)
    assert line.endswith("Ahead of pychasqui: arq 0.90. Ahead of pychasqui, uvloop: chasquimq wheel, uvloop 0.92.")


def test_the_wheel_is_compared_loop_by_loop():
    peers = (OURS, OURS_UVLOOP, WHEEL, WHEEL_UVLOOP, "arq")
    rates = {peer: 100.0 * (at + 1) for at, peer in enumerate(peers)}
    (table,) = tables([BY_KEY["work-100"]], Samples(sample("work-100", p, 0, value=v) for p, v in rates.items()))
    compared = {row[0]: row[-2:] for row in table.rows}
    assert compared["pychasqui"] == compared["pychasqui, uvloop"] == ("", "")
    assert compared["chasquimq wheel"] == ("0.33", "")
    assert compared["chasquimq wheel, uvloop"] == ("", "0.50")
    assert compared["arq"] == ("0.20", "0.40")


def test_the_headline_is_everybody_as_it_comes_with_the_two_nearest():
    rates = {OURS: (100, 120), WHEEL: (10, 10), "arq": (1, 1), "saq": (50, 40), "bullmq": (2, 2)}
    samples = Samples(sample("defaults", p, at, value=v) for p, values in rates.items() for at, v in enumerate(values))
    assert headline(samples) == [
        "pychasqui, as it comes: 110 no-op coroutines a second, "
        "2.50 (2.00 to 3.00) times saq [at most once], and 11.0 (10.0 to 12.0) times chasquimq wheel"
    ]


def test_coroutines_are_compared_with_coroutines_and_plain_functions_with_plain_functions():
    threads = {"dramatiq", "celery", "rq", "huey"}
    for peer in PEERS:
        if peer.is_other_python:
            assert ("work-100" not in peer.scenarios) == (peer.name in threads)
    for key in DEF:
        taking_part = {peer.name for peer in PEERS if key in peer.scenarios}
        assert taking_part == threads | {OURS, OURS_UVLOOP, "saq", "streaq", "taskiq"}
        assert BY_KEY[key].parameters["form"] == "def"


def test_the_version_of_every_peer_is_pinned():
    for peer in PEERS:
        first = peer.packages[:1]
        assert all("==" in package or "@" in package for package in first)


def best_of(scenario: str, peer: str, found: dict[int, float], number: str, best: Any) -> dict[str, Any]:
    bench: Any = Bench(None, QUICK, None)  # type: ignore[arg-type]
    object.__setattr__(bench, "_empty", lambda: None)
    one = bench._best(BY_NAME[peer], BY_KEY[scenario], lambda threads: {number: found[threads]}, best, number)
    return dict(one)


def test_the_best_number_of_threads_counts():
    assert best_of("work-def", "dramatiq", {1: 10, 8: 30, 100: 20}, "value", max) == {"value": 30, "threads": 8}
    assert best_of("latency-def", "dramatiq", {1: 10, 8: 30, 100: 20}, "p50_us", min) == {"p50_us": 10, "threads": 1}
    assert best_of("work-100", "arq", {100: 7}, "value", max) == {"value": 7}


def test_a_measurement_of_large_jobs_or_slow_handlers_takes_as_long_as_others():
    ours, small, large = BY_NAME[OURS], BY_KEY["add-bulk-50"], BY_KEY["bulk-100k"]
    assert job_count(large, ours, FULL) * 102_400 < 200_000_000 < job_count(small, ours, FULL) * 102_400
    assert scenarios.rate(BY_KEY["def-10ms"], ours) == 10_000
    assert scenarios.rate(BY_KEY["def-10ms"], BY_NAME["dramatiq"], threads=1) == 100


def test_a_body_has_the_length_that_was_asked_for():
    body = payload.with_body(payload.DATA, 10_240)["body"]
    assert len(body) == 10_240
    assert len(zlib.compress(body.encode())) > 7_500  # six bits a letter
    assert payload.with_body(payload.DATA, 0) == payload.DATA
    assert len(payload.entry_fields(1000)[1]) == payload.ENVELOPE_BYTES + 1000


def test_every_library_has_a_program_for_its_first_add():
    assert {peer.module for peer in PEERS if "cold-start" in peer.scenarios} == set(PROGRAMS)


def test_every_scenario_has_peers_and_a_number_of_jobs():
    for scenario in SCENARIOS:
        taking_part = [peer for peer in PEERS if scenario.key in peer.scenarios]
        assert {OURS, OURS_UVLOOP} & {peer.name for peer in taking_part}, scenario.key
        if scenario.is_rate or scenario.kind in ("neighbour", "lag", "wait"):
            assert all(job_count(scenario, peer, QUICK) > 0 for peer in taking_part)
        assert scenario.section
    assert {key for peer in PEERS for key in peer.scenarios} == set(BY_KEY)


def test_the_turns_of_a_round_become_one_sample():
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
    meta: dict[str, Any] = {
        "date": "2026-01-01",
        "commit": "a",
        "load": {},
        "failures": ["add, x, repeat 1: no", "memory, x: no"],
    }
    meta["versions"] = {"arq": {"arq": "1"}, "saq": {"saq": "1"}}
    meta["again"] = [{"scenarios": ["add", "memory"], "commit": "c"}, {"scenarios": ["add"], "commit": "d"}]
    earlier = [sample("add", OURS, 0, value=1), sample("memory", OURS, 0, value=2)]
    write_json(tmp_path / "results.json", meta, earlier, [])
    run = {"date": "2026-01-02", "commit": "b", "repeats": 3, "load": {}}
    later = run | {"failures": [], "versions": {"saq": {"saq": "2"}}}
    renewed_meta, samples = renewed(tmp_path / "results.json", later, [sample("add", OURS, 0, value=3)])
    assert {one.scenario: one.result["value"] for one in samples} == {"memory": 2, "add": 3}
    assert (renewed_meta["date"], renewed_meta["failures"]) == ("2026-01-01", ["memory, x: no"])
    assert renewed_meta["versions"] == {"arq": {"arq": "1"}, "saq": {"saq": "2"}}
    assert renewed_meta["again"] == [{"scenarios": ["memory"], "commit": "c"}, run | {"scenarios": ["add"]}]


def test_a_slower_tree_has_a_ratio_above_1_for_rates_and_for_times() -> None:
    samples = [
        sample("add", "this tree", 0, value=100, cpu_us=6.0),
        sample("add", "abc", 0, value=200, cpu_us=3.0),
        sample("add", "this tree", 1, value=100),
        sample("latency", "this tree", 0, value=300),
        sample("latency", "abc", 0, value=100),
    ]
    rates, times, missing = (make_row(BY_KEY[key], samples, "this tree", "abc") for key in ("add", "latency", "burial"))
    assert rates.split() == ["add", "2.000", "2.000", "2.000", "2.00", "-"]
    assert times.split() == ["latency", "3.000", "3.000", "3.000", "-", "-"]
    assert "no round" in missing


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
    assert verdict_table(verdicts).rows[1][0] == "1 more"


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
