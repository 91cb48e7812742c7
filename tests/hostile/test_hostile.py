"""A short version of `make hostile`, and the proof that it would notice what it looks for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from pychasqui._redis.keys import Keys
from tests.hostile.__main__ import run_rounds
from tests.hostile.plants import planted
from tests.hostile.rounds import Outcome
from tests.hostile.stage import HostileStage
from tests.hostile.writes import PLACES
from tests.support.server import RedisServer

ROUNDS = 60  # `make hostile` has thousands
STAGES = 8


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.timeout(120)
async def test_no_worker_dies_and_no_job_is_stuck_or_lost_under_hostile_writes(own_server: RedisServer) -> None:
    outcomes = await run_rounds(own_server, 7, range(ROUNDS), stages=STAGES)
    assert len(outcomes) == ROUNDS
    assert {f"{one.seed} {one.writes}": one.problems for one in outcomes if one.problems} == {}


def test_every_key_of_a_queue_is_written_to() -> None:
    keys = Keys("q")
    fixed = {value for name, value in vars(keys).items() if name != "prefix" and not name.endswith("_channel")}
    makers = [make for name, make in inspect.getmembers(keys, inspect.ismethod) if name != "__init__"]
    made = {make(*["x"] * len(inspect.signature(make).parameters)) for make in makers}
    places = [key.removeprefix(f"{keys.prefix}:").removesuffix(":x").removesuffix(":x") for key in fixed | made]
    assert set(places) <= set(PLACES)


ADD_OR_CHANGE = {  # the stage adds, and the others write more than they read
    *("add", "add_bulk", "add_unique", "cancel_delayed_bulk", "close", "drain", "fire_now", "obliterate", "pause"),
    *("purge", "remove_repeatable_by_key", "replay_dlq", "resume", "upsert_repeatable_job", "wait_for_results"),
    *("dlq.replay_with", "dlq.restore", "repeatables.pause", "repeatables.remove", "repeatables.resume"),
    *("repeatables.upsert", "queues.close"),
}
BY_ANOTHER_NAME = {"wait_for_result", "get_repeatable_jobs", "dlq.search"}  # by a round, repeatables.page, dlq.count


async def test_every_public_method_that_reads_is_called_in_a_round(own_server: RedisServer) -> None:
    stage = HostileStage(own_server.url, "q")
    async with stage.queue, stage.bystander, stage.queues:
        readers = stage.readers("x")
        await asyncio.gather(*readers.values(), return_exceptions=True)
        classes = {"": stage.queue, "dlq.": stage.queue.dlq, "repeatables.": stage.queue.repeatables}
        public = {
            f"{prefix}{name}"
            for prefix, thing in (classes | {"queues.": stage.queues}).items()
            for name, method in inspect.getmembers(thing)
            if not name.startswith("_") and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
        }
    called = {name.partition(" ")[0] for name in readers}
    assert public - called - ADD_OR_CHANGE - BY_ANOTHER_NAME == set()


@pytest.mark.parametrize(
    ("plant", "complaint", "seed"),  # a seed by which few rounds pass until one notices it
    (
        ("death", "died of ValueError: planted", 4),
        ("stuck", "stuck: ", 8),
        ("lost", "lost: a job of kind", 2),
        ("reader", "raised UnicodeDecodeError", 3),
    ),
)
@pytest.mark.timeout(120)
async def test_a_planted_killer_is_noticed(own_server: RedisServer, plant: str, complaint: str, seed: int) -> None:
    def is_unnoticed(outcome: Outcome) -> bool:
        return not any(complaint in problem for problem in outcome.problems)

    with planted(plant):
        outcomes = await run_rounds(
            own_server, seed, range(400), stages=STAGES, patience_s=2.0, on_outcome=is_unnoticed
        )
    assert not all(map(is_unnoticed, outcomes))
