"""The fakes of surface brokers that unit tests use answer as those that speak to a real server."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import redis.asyncio

from pychasqui import RepeatPattern
from pychasqui._redis.events import EventsBroker
from pychasqui._redis.repeatables import DueRepeatables, DueSpec, FireDecision, RepeatablesBroker
from pychasqui._redis.replies import OtherLeader
from pychasqui._redis.results import ResultsBroker
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.msgpack import encode_data
from pychasqui._wire.repeatable import encode_spec
from tests.support.broker_bench import KINDS, LEASE_MS, ME, OTHER, RedisBench, open_redis_bench
from tests.support.fake_surfaces import FakeRepeats, FakeResults
from tests.support.repeatables import spec

DUE_MS = 1_000
SPEC = encode_spec(spec(RepeatPattern.every(60_000), key="k"))
DUE = DueSpec("k", DUE_MS, SPEC, 0, b"", len(SPEC))
FIRE = FireDecision(DUE, DUE_MS + 60_000, "tick", [encode_envelope("job", encode_data(1), 0, 0, None)])
LAST_ID = b"%d-%d" % (2**64 - 1, 2**64 - 1)

pytestmark = pytest.mark.leaves_keys("what the calls have written")


@pytest.fixture
async def redis_bench(redis_url: str, queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[RedisBench]:
    async with open_redis_bench(redis_url, queue_name, witness) as bench:
        yield bench


@pytest.mark.parametrize(
    ("fake", "real"), ((FakeRepeats, (RepeatablesBroker,)), (FakeResults, (ResultsBroker, EventsBroker)))
)
def test_each_method_of_a_fake_takes_what_the_real_one_takes(fake: type, real: tuple[type, ...]) -> None:
    methods = {name: method for name, method in vars(fake).items() if not name.startswith("_")}
    assert len(methods) >= 2
    for name, method in methods.items():
        (original,) = (getattr(one, name) for one in real if hasattr(one, name))
        assert list(inspect.signature(method).parameters) == list(inspect.signature(original).parameters)


class RepeatsBench:
    """A queue with one repeatable that is due. A fake has to be given what it answers."""

    def __init__(self, fake: FakeRepeats | None, redis_bench: RedisBench) -> None:
        self.fake = fake
        self.real = RepeatablesBroker(redis_bench.broker, redis_bench.keys)
        self.repeats = self.real if fake is None else cast(RepeatablesBroker, fake)

    def answer(self, **answers: Any) -> None:
        for name, value in answers.items() if self.fake is not None else ():
            assert hasattr(self.fake, name)
            setattr(self.fake, name, value)


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest, redis_bench: RedisBench) -> RepeatsBench:
    bench = RepeatsBench(FakeRepeats(DUE_MS) if request.param == "memory" else None, redis_bench)
    await bench.real.upsert_if_spec_unchanged("k", DUE_MS, SPEC, b"", DUE_MS, expected_spec=b"", keeps_times=False)
    bench.answer(found=DueRepeatables(True, DUE_MS, -1, [DUE]))
    return bench


class TestRepeats:
    async def test_a_due_repeatable_is_listed_for_the_leader_and_fires_once(self, bench: RepeatsBench) -> None:
        found = await bench.repeats.try_to_lead_and_list_due(ME, LEASE_MS, 10)
        assert (found.leads, found.next_due_ms, found.specs, found.other) == (True, -1, [DUE], None)
        assert await bench.repeats.fire_those_unchanged([FIRE]) == [True]
        bench.answer(moves=False)
        assert await bench.repeats.fire_those_unchanged([FIRE, FIRE]) == [False, False]

    async def test_a_follower_gets_nothing_until_the_leader_lets_go(self, bench: RepeatsBench) -> None:
        await bench.repeats.try_to_lead_and_list_due(OTHER, LEASE_MS, 10)
        bench.answer(found=DueRepeatables(False, DUE_MS, LEASE_MS, [], OtherLeader(OTHER, False, 0)))
        found = await bench.repeats.try_to_lead_and_list_due(ME, LEASE_MS, 10)
        assert (found.leads, found.specs, found.other and found.other.name) == (False, [], OTHER)
        assert 0 < found.next_due_ms <= LEASE_MS
        await bench.repeats.release_scheduler_lease_if_held(OTHER)
        bench.answer(found=DueRepeatables(True, DUE_MS, -1, [DUE]))
        assert (await bench.repeats.try_to_lead_and_list_due(ME, LEASE_MS, 10)).leads

    async def test_a_repeatable_is_buried_once(self, bench: RepeatsBench) -> None:
        assert await bench.repeats.try_to_bury_repeatable(DUE, "broken", DUE_MS) == ""
        bench.answer(refusal=None)
        assert await bench.repeats.try_to_bury_repeatable(DUE, "broken", DUE_MS) is None

    async def test_the_reason_of_a_refusal_is_returned(self, bench: RepeatsBench, redis_bench: RedisBench) -> None:
        await redis_bench.witness.xadd(redis_bench.keys.dead, {b"d": b"x"}, id=LAST_ID)
        bench.answer(refusal="ERR The stream has exhausted the last possible ID")
        refusal = await bench.repeats.try_to_bury_repeatable(DUE, "broken", DUE_MS)
        assert refusal is not None
        assert "last possible ID" in refusal


@pytest.mark.parametrize("kind", KINDS)
async def test_results_and_newest_events_are_returned_in_order(kind: str, redis_bench: RedisBench) -> None:
    fake, witness, keys = FakeResults(), redis_bench.witness, redis_bench.keys
    entries = [[b"%d-0" % number, [b"e", b"drained", b"ts", b"%d" % number]] for number in (1, 2, 3)]
    fake.stored, fake.recent = {"job": b"result"}, entries
    await witness.set(keys.result("job"), b"result")
    for entry_id, (name, event, time_name, time) in entries:
        await witness.xadd(keys.events, {name: event, time_name: time}, id=entry_id)
    results: Any = fake if kind == "memory" else ResultsBroker(redis_bench.broker, keys)
    events: Any = fake if kind == "memory" else EventsBroker(redis_bench.broker, keys)
    assert await results.read_results(["other", "job", "job"]) == [None, b"result", b"result"]
    assert await events.read_newest_events(2) == entries[1:]
    assert await events.read_newest_events(10) == entries
