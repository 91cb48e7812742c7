"""`python -m benchmarks.against COMMIT [--only SCENARIO ...]`: this tree and an earlier commit of it, in turn.

Both run the same programs of `benchmarks/peers`; only the `pychasqui` that they import differs. The ratio of a round is
this tree's time by that of the commit a moment before or after: above 1 this tree is slower.
"""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.procedures import Bench
from benchmarks.roster import BY_NAME, OURS, Peer
from benchmarks.runner import Sample, run
from benchmarks.scenarios import BY_KEY, FULL, Scenario
from benchmarks.server import ROOT, find_redis_benchmark, find_server, running

ADDING = ("add", "add-100-tasks", "add-bulk-50", "add-bulk-1000")
WORKING = ("work-1", "work-100", "work-def", "work-events", "work-results", "latency", "retry", "burial", "promote")


def main() -> None:
    options = _options()
    scenarios = [BY_KEY[key] for key in options.only]
    effort = replace(FULL, seconds=options.seconds)
    with tempfile.TemporaryDirectory() as folder, running(find_server(options.server)) as server:
        _unpack(options.commit, Path(folder))
        ours, theirs = _peer("this tree", ROOT), _peer(options.commit, Path(folder))
        bench = Bench(server, effort, find_redis_benchmark(server.binary))
        samples, failures = run(bench, [ours, theirs], scenarios, options.rounds)
    for line in failures:
        print(f"failed: {line}")
    print(f"\n{'scenario':16} {'median':>7} {'least':>7} {'most':>7}   {'CPU':>5} {'Redis':>5}")
    for scenario in scenarios:
        print(make_row(scenario, samples, ours.name, theirs.name))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("commit", help="the commit to compare this tree with")
    parser.add_argument("--only", nargs="+", choices=sorted(BY_KEY), default=ADDING + WORKING, metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=7, help="how often each of the two has its turn (default: 7)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a measurement should take (default: 1)")
    parser.add_argument("--server", help="redis-server to use (default: CHASQUI_TEST_SERVER, .servers, PATH)")
    return parser.parse_args()


def _unpack(commit: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def _peer(name: str, tree: Path) -> Peer:
    return replace(BY_NAME[OURS], name=name, label=name, source=str(tree / "src"))


def make_row(scenario: Scenario, samples: list[Sample], ours: str, theirs: str) -> str:
    """The ratios of one scenario: of its time, of the worker's CPU time and of the server's."""
    times = ratios_by_round(scenario, samples, ours, theirs, "value")
    if scenario.is_rate:
        times = [1 / ratio for ratio in times]
    if not times:
        return f"{scenario.key:16} no round was measured for both"
    row = f"{scenario.key:16} {statistics.median(times):7.3f} {min(times):7.3f} {max(times):7.3f}  "
    for number in ("cpu_us", "redis_us"):
        found = ratios_by_round(scenario, samples, ours, theirs, number)
        row += f" {statistics.median(found):5.2f}" if found else "     -"
    return row


def ratios_by_round(scenario: Scenario, samples: list[Sample], ours: str, theirs: str, number: str) -> list[float]:
    """Ours by theirs, of each round in which both were measured."""
    found = {(one.peer, one.repeat): one.result.get(number) for one in samples if one.scenario == scenario.key}
    pairs = [(value, found.get((theirs, repeat))) for (peer, repeat), value in found.items() if peer == ours]
    return [mine / other for mine, other in pairs if mine and other]


if __name__ == "__main__":
    main()
