"""`python -m benchmarks`: set everything up, measure everybody, say what came out."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
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
    if options.again and not (options.out / "results.json").exists():
        raise SystemExit(f"--again: there are no results in {options.out}; --out names another folder")
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    unofficial = why_unofficial(changes, is_allowed=options.unofficial)
    scenarios = [BY_KEY[key] for key in options.only] if options.only else list(SCENARIOS)
    wanted = [peer for peer in PEERS if not options.peers or peer.name in options.peers]
    wanted = [peer for peer in wanted if any(scenario.key in peer.scenarios for scenario in scenarios)]
    skipped = environment.prepare(wanted)
    effort, repeats = (QUICK, 1) if options.quick else (FULL, options.repeats)
    effort = replace(effort, seconds=options.seconds or effort.seconds)
    with running(find_server(options.server)) as server:
        yardstick = find_redis_benchmark(server.binary)
        skipped |= _out_of_reach(wanted, server, yardstick)
        peers = [peer for peer in wanted if peer.name not in skipped]
        for name, why in skipped.items():
            print(f"not measured: {name}: {why}", flush=True)
        before = os.getloadavg()[0]
        samples, failures = run(Bench(server, effort, yardstick), peers, scenarios, repeats)
    meta = _meta(server, peers, skipped, failures) | {
        "commit": (commit or "unknown").strip(),
        "unofficial": unofficial
        or why_changed((commit, changes), (_git("rev-parse", "HEAD"), _git("status", "--porcelain"))),
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
    parser.add_argument("--repeats", type=int, default=5, help="rounds in which each peer has its turn (default: 5)")
    parser.add_argument("--seconds", type=float, help="how long a measurement should take (default: 1)")
    parser.add_argument(
        "--unofficial", action="store_true", help="measure a tree with changes, and mark the results as unofficial"
    )
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


def _meta(server: Server, peers: Sequence[Peer], skipped: dict[str, str], failures: list[str]) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": environment.machine(),
        "redis": server.version,
        "data": DATA,
        "versions": {peer.name: found for peer in peers if (found := environment.versions(peer))},
        "installed": {peer.home: found for peer in peers if (found := environment.installed(peer))},
        "skipped": skipped,
        "failures": failures,
    }


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def why_unofficial(changes: str | None, *, is_allowed: bool) -> str:
    """Empty for a tree without changes. Results of another one name no commit that a reader could measure himself."""
    why = "" if changes == "" else "the tree has changes that no commit has" if changes else "this is no clone of git"
    if why and not is_allowed:
        raise SystemExit(f"benchmarks: {why}: commit first, or say --unofficial, which marks the results")
    return why


def why_changed(before: tuple[str | None, ...], after: tuple[str | None, ...]) -> str:
    """Empty if the tree is what it was: a commit in the middle of a run would lend its name to another's figures."""
    return "" if before == after else "the tree changed while it was measured"


def _publish(folder: Path, meta: dict[str, Any], scenarios: Sequence[Scenario], samples: Sequence[Sample]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = Samples(samples)
    verdicts = judge(found)
    printable = [*report.tables(scenarios, found), report.verdict_table(verdicts)]
    printable = [table for table in printable if table.rows]
    ahead = ["ahead of us: " + line.replace("**", "") for line in report.behind(scenarios, found)]
    print(
        "",
        *report.facts(meta),
        "",
        *(table.as_text() for table in printable),
        *report.headline(found),
        *ahead,
        sep="\n",
    )
    report.write_json(folder / "results.json", meta, samples, verdicts)
    report.write_markdown(folder / "results.md", meta, scenarios, found, printable)
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
