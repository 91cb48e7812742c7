"""Each kind of measurement, once and small, with pychasqui alone on a real server: the numbers say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.probes import another_client, append_only, cpu_seconds
from benchmarks.procedures import Bench
from benchmarks.report import tables
from benchmarks.roster import BY_NAME, OURS
from benchmarks.runner import Sample
from benchmarks.scenarios import BY_KEY, QUICK
from benchmarks.server import Server, find_server, running
from benchmarks.verdict import Samples
from benchmarks.wire import Wire
from tests.support.waiting import eventually

TINY = replace(QUICK, seconds=0.02, latency_jobs=5, memory_jobs=20_000, cold_starts=1)
MEASURED = {
    "defaults": ("value",),
    "defaults-def": ("value",),
    "processes-2": ("value",),
    "cold-start": ("p50_us", "empty_us"),
    "bulk-names": ("value", "plain", "redis_us"),
    "bulk-10k": ("value", "cpu_us", "redis_us"),
    "work-aof": ("value", "cpu_us", "redis_us", "peak_rss_mb"),
    "def-1ms": ("value",),
    "latency-def": ("p50_us", "p99_us"),
    "neighbour-events": ("p50_us", "p99_us", "alone_p50_us", "rate"),
    "loop-lag": ("p50_us", "p99_us", "rate"),
    "wait-in-turn": ("p50_us", "seconds"),
    "memory": ("value",),
}


@pytest.fixture(scope="module")
def bench_server() -> Iterator[Server]:
    with running(find_server(None)) as started:
        yield started


@pytest.mark.parametrize("key", MEASURED)
def test_a_measurement_has_the_numbers_that_its_table_shows(bench_server: Server, key: str) -> None:
    result = Bench(bench_server, TINY, None).measure(BY_KEY[key], BY_NAME[OURS])
    assert all(result[number] >= 0 for number in MEASURED[key])
    (table,) = tables([BY_KEY[key]], Samples([Sample(key, OURS, 0, result)]))
    assert table.rows[0][0] == "pychasqui"
    assert all(table.rows[0])
    assert key == "latency-def" or "latencies_us" not in result  # its turns are put together later


async def test_another_client_lists_when_each_set_began_and_how_long_it_took(bench_server: Server) -> None:
    with another_client(bench_server.url) as sets:
        await eventually(lambda: len(sets) >= 3)
    assert all(us > 0 for _, us in sets)
    assert [at_us for at_us, _ in sets] == sorted(at_us for at_us, _ in sets)


def test_the_append_only_file_is_on_only_as_long_as_it_is_asked_for(bench_server: Server) -> None:
    with Wire(bench_server.url) as wire:
        with append_only(bench_server.url):
            assert wire.info("persistence")["aof_enabled"] == "1"
        assert wire.info("persistence")["aof_enabled"] == "0"


def test_the_cpu_time_of_the_server_grows_with_what_it_does(bench_server: Server) -> None:
    before = cpu_seconds(bench_server.url)
    with Wire(bench_server.url) as wire:
        wire.call("EVAL", "local n = 0 for i = 1, 5000000 do n = n + i end return n", 0)
    assert cpu_seconds(bench_server.url) > before
