"""Sends hostile writes to everything that uses a queue, and prints what died, got stuck or was lost:

python -m tests.hostile --rounds 5000 --seed 1
python -m tests.hostile --seed 1 --first 37 --rounds 1     round 37 of seed 1 again
python -m tests.hostile --plant death                      with a defect that the rounds must notice
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable
from time import monotonic

import redis.asyncio

from tests.hostile.plants import PLANTS, planted
from tests.hostile.rounds import SWEEP_EVERY, Outcome, run_round, sweep
from tests.hostile.stage import Alarm, HostileStage
from tests.support.server import RedisServer


async def run_rounds(
    server: RedisServer,
    seed: int,
    numbers: range,
    *,
    stages: int = 1,
    patience_s: float = 15.0,
    on_outcome: Callable[[Outcome], bool] = lambda outcome: True,
) -> list[Outcome]:
    """Each stage has a queue of its own and takes its share of the rounds, while on_outcome() wants more."""
    alarm = Alarm()
    loggers = [logging.getLogger(name) for name in ("chasqui", "asyncio")]
    for logger in loggers:
        logger.addHandler(alarm)
        logger.propagate = False
    outcomes: list[Outcome] = []
    is_enough = asyncio.Event()

    async def run(stage_number: int) -> None:
        client = redis.asyncio.Redis(unix_socket_path=str(server.socket_path))
        async with HostileStage(server.url, f"hostile-{stage_number}") as stage:
            for turn, number in enumerate(numbers[stage_number::stages]):
                outcome = await run_round(stage, client, alarm, f"{seed}:{number}", patience_s)
                outcomes.append(outcome)
                if not on_outcome(outcome):
                    is_enough.set()
                if is_enough.is_set():
                    break
                if turn % SWEEP_EVERY == SWEEP_EVERY - 1:
                    await sweep(stage, client)
        await client.aclose()

    try:
        async with asyncio.TaskGroup() as tasks:
            for stage_number in range(stages):
                tasks.create_task(run(stage_number))
    finally:
        for logger in loggers:
            logger.removeHandler(alarm)
            logger.propagate = True
    return outcomes


def _print_outcome(outcome: Outcome) -> bool:
    for problem in outcome.problems:
        print(f"{outcome.seed:>7} {outcome.seconds:5.1f} s  {problem}\n        {', '.join(outcome.writes)}", flush=True)
    if outcome.seed.endswith("00"):
        print(f"{outcome.seed:>7} {outcome.seconds:5.1f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="rounds of hostile writes")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="ROUND", help="number of the first round")
    parser.add_argument("--stages", type=int, default=8, help="queues at the same time")
    parser.add_argument("--patience", type=float, default=15.0, metavar="SECONDS", help="past this, it is stuck")
    parser.add_argument("--plant", choices=list(PLANTS), help="a defect that the rounds must notice")
    arguments = parser.parse_args()
    began = monotonic()
    numbers = range(arguments.first, arguments.first + arguments.rounds)
    with RedisServer() as server, planted(arguments.plant):
        outcomes = asyncio.run(
            run_rounds(
                server,
                arguments.seed,
                numbers,
                stages=min(arguments.stages, arguments.rounds),
                patience_s=arguments.patience,
                on_outcome=_print_outcome,
            )
        )
    bad = [outcome for outcome in outcomes if outcome.problems]
    kinds = Counter(problem[:60] for outcome in bad for problem in outcome.problems)
    writes = sum(len(outcome.writes) for outcome in outcomes)
    print(f"{len(outcomes)} rounds, {writes} writes, {monotonic() - began:.0f} s, {len(bad)} rounds with problems")
    for kind, times in kinds.most_common():
        print(f"{times:6}  {kind}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
