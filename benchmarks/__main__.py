"""`python -m benchmarks`: set everything up, measure everybody, say what came out."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment, report
from benchmarks.payload import DATA
from benchmarks.procedures import Bench
from benchmarks.roster import BY_NAME, PEERS, REDIS_BENCHMARK, Peer
from benchmarks.runner import Sample, run
from benchmarks.scenarios import BY_KEY, FULL, QUICK, SCENARIOS, Scenario
from benchmarks.server import ROOT, Server, find_redis_benchmark, find_server, running
from benchmarks.verdict import Samples, judge


def main() -> None:
    options = _options()
    scenarios = [BY_KEY[key] for key in options.only] if options.only else list(SCENARIOS)
    wanted = [peer for peer in PEERS if not options.peers or peer.name in options.peers]
    wanted = [peer for peer in wanted if any(scenario.key in peer.scenarios for scenario in scenarios)]
    skipped = environment.prepare(wanted)
    effort, repeats = (QUICK, 1) if options.quick else (FULL, options.repeats)
    with running(find_server(options.server)) as server:
        yardstick = find_redis_benchmark(server.binary)
        skipped |= _out_of_reach(wanted, server, yardstick)
        peers = [peer for peer in wanted if peer.name not in skipped]
        for name, why in skipped.items():
            print(f"not measured: {name}: {why}", flush=True)
        before = os.getloadavg()[0]
        samples = run(Bench(server, effort, yardstick), peers, scenarios, repeats)
    meta = _meta(server, peers, skipped, samples) | {
        "repeats": repeats,
        "quick": options.quick,
        "effort": vars(effort),
        "load": {"before": before, "after": os.getloadavg()[0]},
    }
    if options.again:
        meta, samples = report.renewed(options.out / "results.json", meta, samples)
        measured = {sample.scenario for sample in samples}
        scenarios = [scenario for scenario in SCENARIOS if scenario.key in measured]
    _publish(options.out, meta, scenarios, samples)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few minutes; its numbers say little")
    parser.add_argument("--only", nargs="+", choices=sorted(BY_KEY), metavar="SCENARIO", help=", ".join(BY_KEY))
    parser.add_argument("--peers", nargs="+", choices=sorted(BY_NAME), metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=environment.BENCH / "results", help="folder for the results")
    parser.add_argument(
        "--again", action="store_true", help="put what is measured in its place among the results that are there"
    )
    parser.add_argument("--server", help="redis-server to use (default: CHASQUI_TEST_SERVER, .servers, PATH)")
    return parser.parse_args()


def _out_of_reach(peers: Sequence[Peer], server: Server, yardstick: Path | None) -> dict[str, str]:
    """Peers that need a newer server than this one, or a program that is not here."""
    missing = {REDIS_BENCHMARK: "it lies neither next to the server nor on PATH"} if yardstick is None else {}
    return missing | {
        peer.name: f"needs Redis {peer.needs_redis[0]}.{peer.needs_redis[1]}, this is {server.version}"
        for peer in peers
        if not server.has(*peer.needs_redis)
    }


def _meta(server: Server, peers: Sequence[Peer], skipped: dict[str, str], samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "machine": environment.machine(),
        "redis": server.version,
        "persistence": "off",
        "data": DATA,
        "versions": {peer.name: found for peer in peers if (found := environment.versions(peer))},
        "skipped": skipped,
        "failures": [f"{s.scenario}, {s.peer}, repeat {s.repeat + 1}: {s.error}" for s in samples if s.error],
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _publish(folder: Path, meta: dict[str, Any], scenarios: Sequence[Scenario], samples: Sequence[Sample]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = Samples(samples)
    failures = judge(found)
    printable = [*report.tables(scenarios, found), report.verdict_table(failures)]
    print("", *report.facts(meta), "", *(table.as_text() for table in printable), sep="\n")
    report.write_json(folder / "results.json", meta, samples, failures)
    report.write_markdown(folder / "results.md", meta, printable)
    _plot(folder)
    print(f"written: {os.path.relpath(folder)}/results.json, results.md, results.png")


def _plot(folder: Path) -> None:
    try:
        python = environment.prepare_venv(environment.PLOT_HOME, environment.PLOT_PACKAGES)
    except environment.CannotInstall as error:
        print(f"no plot: {error}")
        return
    command = [str(python), "-m", "benchmarks.plot", str(folder / "results.json"), str(folder / "results.png")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


if __name__ == "__main__":
    main()
