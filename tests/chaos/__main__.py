"""Runs rounds of faults and prints how the jobs ended:

python -m tests.chaos --rounds 100 --seed 1           every fault in turn
python -m tests.chaos --only redis-kill cut           these only
python -m tests.chaos --engine wheel                  the official package in the worker's place
python -m tests.chaos --seed 1 --first 37 --rounds 1  round 37 of seed 1 again, as far as the machine's timing allows
python -m tests.chaos --leaders 60                    60 s of faults of the scheduler that leads, one every 5 s
python -m tests.chaos --topology cluster --rounds 20  20 rounds of each fault of a cluster (--help has others)
python -m tests.chaos --slots 100000                  that many adds while a slot opens and closes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from time import monotonic

from tests.chaos.crew import OFFICIAL_PYTHON, official_is_there
from tests.chaos.faults import FAULTS
from tests.chaos.leading import harry_leaders
from tests.chaos.round import Order, Report, run_round
from tests.chaos.slots import add_while_slots_move
from tests.chaos.tables import as_json, render, summarize
from tests.chaos.topologies import ADDERS, run_topology_round
from tests.chaos.topology_faults import FAULTS as TOPOLOGY_FAULTS
from tests.support.server import PROJECT, describe, server_binary

KEPT = PROJECT / ".chaos"


def main() -> int:
    arguments = read_arguments()
    if arguments.engine == "wheel" and not official_is_there():
        print(f"the official package is not installed: no {OFFICIAL_PYTHON}", file=sys.stderr)
        return 2
    logging.getLogger("chasqui").addHandler(logging.NullHandler())  # the producer's; the workers write to files
    if arguments.leaders:
        return _harry_leaders(arguments)
    if arguments.slots:
        figures = asyncio.run(add_while_slots_move(arguments.slots, arguments.seed))
        print(figures)
        return int(figures.is_bad)
    if arguments.topology:
        return asyncio.run(_run_topology(arguments))
    began = monotonic()
    reports: list[Report] = []
    try:
        asyncio.run(_run_all(arguments, reports))
    except KeyboardInterrupt:
        print("interrupted; these are the rounds so far", file=sys.stderr)
    rows = summarize(reports)
    product, version = describe(server_binary())
    server = f"{product} {'.'.join(map(str, version))}"
    print(f"\n{arguments.engine} on {server}, seed {arguments.seed}, {monotonic() - began:.0f} s\n{render(rows)}")
    print("run more than once:", rows[-1]["reasons"] or "none")
    if arguments.out:
        facts = {"engine": arguments.engine, "server": server, "seed": arguments.seed, "summary": rows}
        arguments.out.write_text(json.dumps({**facts, "rounds": [as_json(report) for report in reports]}, indent=1))
    is_bad = any(report.problems for report in reports)
    return 1 if is_bad and arguments.engine == "pychasqui" else 0


def _harry_leaders(arguments: argparse.Namespace) -> int:
    order = {"every_s": 5.0, "seed": arguments.seed, "faketime": arguments.faketime}
    judged = asyncio.run(harry_leaders(arguments.leaders, **order))
    print("\n".join([*judged.figures, *(judged.problems or ["each window exactly once"])]))
    return 1 if judged.problems else 0


async def _run_topology(arguments: argparse.Namespace) -> int:
    """Rounds of each fault; 1 if one of them was bad."""
    is_bad = False
    for fault in TOPOLOGY_FAULTS[arguments.topology]:
        if arguments.only and fault not in arguments.only:
            continue
        for _ in range(arguments.rounds):
            outcome = await run_topology_round(arguments.topology, fault, adders=arguments.adders)
            print(outcome, flush=True)
            is_bad = is_bad or bool(outcome.problems)
    return int(is_bad)


async def _run_all(arguments: argparse.Namespace, reports: list[Report]) -> None:
    places = asyncio.Semaphore(arguments.parallel)

    async def run(number: int) -> None:
        async with places:
            reports.append(await _run(arguments, number))

    async with asyncio.TaskGroup() as rounds:
        for number in range(arguments.first, arguments.first + arguments.rounds):
            rounds.create_task(run(number))


async def _run(arguments: argparse.Namespace, number: int) -> Report:
    names = arguments.only or list(FAULTS)
    order = Order(
        fault=names[number % len(names)],
        seed=f"{arguments.seed}:{number}",
        engine=arguments.engine,
        jobs=arguments.jobs,
        rate=arguments.rate,
    )
    report = await run_round(order, keep_in=KEPT)
    figures = report.figures
    print(
        f"{number:4} {order.fault:18} {figures.jobs} jobs, {figures.done} done, {figures.dead} dead, "
        f"{figures.run_twice} twice {dict(figures.reruns) or ''}, recovered in {figures.recovery_s:.1f} s, "
        f"{report.seconds:.0f} s{'' if not report.problems else '  BAD'}",
        flush=True,
    )
    for problem in report.problems:
        print(f"     {problem}", flush=True)
    return report


def read_arguments(words: list[str] | None = None) -> argparse.Namespace:
    known = list(dict.fromkeys([*FAULTS, *(fault for faults in TOPOLOGY_FAULTS.values() for fault in faults)]))
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="rounds of faults")
    parser.add_argument("--rounds", type=int, help="how many, of a topology of each fault (default: each fault once)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="ROUND", help="number of the first round")
    parser.add_argument("--only", nargs="+", choices=known, metavar="FAULT", help=", ".join(known))
    parser.add_argument("--topology", choices=list(TOPOLOGY_FAULTS), help="faults of these servers")
    parser.add_argument("--adders", type=int, default=ADDERS, help="of a topology: tasks that add")
    parser.add_argument("--slots", type=int, metavar="ADDS", help="add jobs while a slot opens and closes instead")
    parser.add_argument("--engine", choices=("pychasqui", "wheel"), default="pychasqui")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs a round")
    parser.add_argument("--rate", type=float, default=250.0, help="jobs added a second")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="rounds at the same time")
    parser.add_argument("--leaders", type=float, metavar="SECONDS", help="harry schedulers instead, for so long")
    parser.add_argument("--faketime", type=Path, metavar="LIBRARY", help="bend their clocks with libfaketime.so.1")
    parser.add_argument("--out", type=Path, help="write all figures here, as JSON")
    arguments = parser.parse_args(words)
    arguments.rounds = arguments.rounds or (1 if arguments.topology else len(FAULTS))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
