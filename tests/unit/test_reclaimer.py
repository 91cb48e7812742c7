"""The reclaimer takes the entries of dead workers, and leaves live workers alone."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.limits import RELEASED
from pychasqui._redis.broker import Broker
from pychasqui._redis.keys import Keys
from pychasqui._redis.replies import ByteBounds, ClaimedEntry
from pychasqui._worker.living_workers import LivingWorkers
from pychasqui._worker.reclaimer import Reclaimer, find_suspects_by_expired_lease
from pychasqui._worker.shared import Signal
from tests.support.clock import FakeClock
from tests.support.memory_broker import MemoryBroker
from tests.support.memory_state import Held
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared

BOUNDS = ByteBounds(2**20, 2**20)
NOW_MS = 1_700_000_000_000


class TestOverLeases:
    def test_a_lease_that_is_not_over_is_no_suspicion(self) -> None:
        assert find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS}, NOW_MS, {}, 5.0) == {}
        assert find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS + 1}, NOW_MS, {}, 5.0) == {}

    def test_an_expired_lease_is_suspected_from_now(self) -> None:
        assert find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS - 1}, NOW_MS, {}, 5.0) == {b"a": (NOW_MS - 1, 5.0)}

    def test_an_earlier_suspicion_keeps_its_time(self) -> None:
        before = {b"a": (NOW_MS - 1.0, 2.0)}
        assert find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS - 1}, NOW_MS, before, 5.0) == before

    def test_a_renewal_in_between_restarts_the_suspicion(self) -> None:
        before = {b"a": (NOW_MS - 9.0, 2.0)}
        assert find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS - 1}, NOW_MS, before, 5.0) == {
            b"a": (NOW_MS - 1, 5.0)
        }

    def test_a_worker_that_lives_again_is_forgotten(self) -> None:
        assert (
            find_suspects_by_expired_lease([b"a"], {b"a": NOW_MS + 6000}, NOW_MS, {b"a": (NOW_MS - 9.0, 2.0)}, 5.0)
            == {}
        )

    def test_a_worker_that_has_left_has_a_lease_of_0(self) -> None:
        assert find_suspects_by_expired_lease([b"a"], {b"a": 0}, NOW_MS, {}, 5.0) == {b"a": (0, 5.0)}

    def test_consumers_without_a_lease_are_not_judged_here(self) -> None:
        assert find_suspects_by_expired_lease([b"official"], {}, NOW_MS, {}, 5.0) == {}

    def test_the_given_consumers_alone_are_judged(self) -> None:
        assert find_suspects_by_expired_lease([b"a"], {b"a": 1, b"b": 1}, NOW_MS, {}, 5.0) == {b"a": (1, 5.0)}

    @given(
        st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 20)),
        st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.tuples(st.integers(0, 20), st.integers(0, 9))),
        st.integers(0, 20),
    )
    def test_no_worker_is_suspected_for_longer_than_it_has_this_lease(
        self, leases: dict[bytes, int], before: dict[bytes, tuple[int, int]], now_ms: int
    ) -> None:
        suspects = find_suspects_by_expired_lease([b"a", b"b", b"c"], leases, now_ms, before, 10.0)
        for consumer, (lease, since) in suspects.items():
            assert lease == leases[consumer] < now_ms
            assert since == (before[consumer][1] if before.get(consumer, (None,))[0] == lease else 10.0)


class ReclaimerBench:
    """A broker in whose group consumers hold entries. Its answers to take-overs are `taken`, a page a call."""

    def __init__(self, holders: dict[bytes, int], leases: dict[bytes, float]) -> None:
        self.broker = MemoryBroker()
        self.broker.now = NOW_MS
        self.broker.lease_ends["default"] = dict(leases)
        self.broker.add_group("default")
        for consumer, count in holders.items():
            for _ in range(count):
                self.broker.groups["default"].pending[self.broker.add_entry()] = Held(consumer.decode(), 1)
        self.taken: list[list[ClaimedEntry]] = []
        self.broker.answer_with["take_over_if_lease_is_same"] = lambda *_: self.taken.pop(0) if self.taken else None
        self.broker.answer_with["claim_idle_without_lease"] = lambda *_: []
        self.ended_leases = Signal()

    @property
    def relieved(self) -> list[tuple[bytes, float, int]]:
        """Whose entries were asked for, under which lease, and how many."""
        return [
            (dead, lease, count) for _, _, dead, lease, _, count, _ in self.broker.asked("take_over_if_lease_is_same")
        ]

    @property
    def claims(self) -> list[int]:
        return [count for _, _, _, count, _ in self.broker.asked("claim_idle_without_lease")]


class FakeIntake:
    """Stands for the prefetch, too."""

    def __init__(self, room: int = 10) -> None:
        self.left = room
        self.entries: list[ClaimedEntry] = []

    def count_room_for_claims(self) -> int:
        return self.left

    def guarding_against_stale_entries(self) -> AbstractContextManager[None]:
        return nullcontext()

    def choose_byte_bounds(self) -> ByteBounds:
        return BOUNDS

    def take_in_claimed_unless_stale_and_wake(self, entries: list[ClaimedEntry]) -> None:
        self.entries += entries
        self.left -= len(entries)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock().install(monkeypatch)


class FakeOrphans:
    may_exist = False

    def flag_orphans_after_repeated_surplus(self, pending: int) -> None:
        """There are none."""


class FakeRecovery:
    async def shorten_impossible_leases(self, broker: Broker) -> None:
        """No lease is too long."""


def reclaimer(
    bench: ReclaimerBench,
    intake: FakeIntake | None = None,
    last_trouble: float = float("-inf"),
    *,
    lease_s: float = 6.0,
    living_workers: LivingWorkers | None = None,
) -> Reclaimer:
    shared = replace(make_shared(consumer="me", living_workers=living_workers), ended_leases=bench.ended_leases)
    shared.lease.troubled_at = last_trouble
    intake = intake or FakeIntake()
    return Reclaimer(
        bench.broker,
        shared,
        intake=cast(Any, intake),
        prefetch=cast(Any, intake),
        orphans=cast(Any, FakeOrphans()),
        recovery=cast(Any, FakeRecovery()),
        claim_min_idle_ms=30_000,
        lease_s=lease_s,
    )


OVER = NOW_MS - 1000.0
GOOD = NOW_MS + 6000.0


class TestScan:
    async def test_no_worker_is_judged_after_an_outage_before_all_could_renew(self, clock: FakeClock) -> None:
        """That is a lease, and the longest pause between two attempts to connect."""
        bench = ReclaimerBench({b"b": 3, b"left": 1}, {b"b": OVER, b"left": 0})
        mine = reclaimer(bench, last_trouble=1000.0)
        for now in range(1000, 1007):
            clock.now = now
            await mine._scan_consumers_if_due_and_claim_entries()
        assert {dead for dead, _, _ in bench.relieved} == {b"left"}
        for now in range(1007, 1012):
            clock.now = now
            await mine._scan_consumers_if_due_and_claim_entries()
        assert {dead for dead, _, _ in bench.relieved} == {b"left", b"b"}

    async def test_a_lost_connection_has_the_longest_pause_from_the_end_of_an_outage_on(self, clock: FakeClock) -> None:
        """Every lease has been over for as long as the outage was: that shows of nobody that it is dead."""
        bench = ReclaimerBench({b"b": 3}, {b"b": NOW_MS - 60_000})
        mine = reclaimer(bench, last_trouble=1000.0, lease_s=0.3)
        for now, relieved in ((1000.1, 0), (1001.29, 0), (1001.31, 0), (1002.3, 0), (1002.32, 1)):
            clock.now = now
            await mine._scan_consumers_if_due_and_claim_entries()
            assert len(bench.relieved) == relieved

    async def test_a_worker_whose_lease_is_over_is_taken_over_after_a_renewal_and_a_half(
        self, clock: FakeClock
    ) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": OVER})
        mine = reclaimer(bench)
        for now, relieved in ((1000, 0), (1001, 0), (1002.9, 0), (1003, 1)):
            clock.now = now
            await mine._scan_consumers_if_due_and_claim_entries()
            assert len(bench.relieved) == relieved
        assert bench.relieved == [(b"b", OVER, 10)]

    async def test_a_lost_connection_has_the_longest_pause_from_the_end_of_the_lease_on(self, clock: FakeClock) -> None:
        """Not from when that is first seen: the server's clock says when it was."""
        bench = ReclaimerBench({b"b": 3}, {b"b": NOW_MS - 1.0})
        mine = reclaimer(bench, lease_s=1.0)
        mine._trusted_since = 0.0
        for passed_s, relieved in ((0.4, 0), (0.9, 0), (0.998, 0), (0.999, 1)):
            clock.now = 1000 + passed_s
            bench.broker.now = NOW_MS + int(1000 * passed_s)
            await mine._scan_consumers_if_due_and_claim_entries()
            assert len(bench.relieved) == relieved

    async def test_a_jump_of_the_servers_clock_leaves_time_for_a_renewal(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": OVER - 3_600_000})
        mine = reclaimer(bench, lease_s=1.0)
        mine._trusted_since = 0.0
        for now, relieved in ((1000, 0), (1000.4, 0), (1000.5, 1)):
            clock.now = now
            await mine._scan_consumers_if_due_and_claim_entries()
            assert len(bench.relieved) == relieved

    async def test_the_next_look_comes_when_a_worker_can_be_judged(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": NOW_MS - 700.0})
        mine = reclaimer(bench, lease_s=0.3)
        mine._trusted_since = 0.0
        mine.start()
        try:
            await eventually(lambda: bench.broker.asked("read_server_time_ms"))
            await asyncio.sleep(0)
            assert mine._next_suspect_s == pytest.approx(0.3)
        finally:
            await mine.end(timeout_s=0)

    async def test_a_worker_that_renews_in_between_is_left_alone(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": OVER})
        mine = reclaimer(bench)
        await mine._scan_consumers_if_due_and_claim_entries()
        bench.broker.lease_ends["default"][b"b"] = OVER + 0.5
        clock.now += 3
        await mine._scan_consumers_if_due_and_claim_entries()
        assert bench.relieved == []

    async def test_a_worker_that_has_left_is_taken_over_at_once(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": 0})
        await reclaimer(bench)._scan_consumers_if_due_and_claim_entries()
        assert bench.relieved == [(b"b", 0, 10)]

    async def test_no_more_is_taken_than_there_is_room_for(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 9}, {b"b": 0})
        bench.taken = [[ClaimedEntry(b"%d-0" % number, [], 1) for number in range(6)], [ClaimedEntry(b"6-0", [], 1)]]
        intake = FakeIntake(room=6)
        mine = reclaimer(bench, intake)
        await mine._scan_consumers_if_due_and_claim_entries()
        assert [count for _, _, count in bench.relieved] == [6]
        assert mine.may_have_claimable_entries
        assert [entry.id for entry in await mine.claim_entries_of_next_source(4, BOUNDS)] == [b"6-0"]
        assert await mine.claim_entries_of_next_source(4, BOUNDS) == []
        assert not mine.may_have_claimable_entries

    async def test_a_worker_with_a_lapsed_lease_relieves_only_those_that_have_left(self, clock: FakeClock) -> None:
        """Redis was away or refuses writes: every lease is over, so none is a proof of death."""
        bench = ReclaimerBench({b"b": 1, b"c": 1}, {b"me": OVER, b"b": OVER, b"c": 0})
        mine = reclaimer(bench)
        for _ in range(5):
            await mine._scan_consumers_if_due_and_claim_entries()
            clock.now += 2
        assert {dead for dead, _, _ in bench.relieved} == {b"c"}

    async def test_no_entry_is_asked_for_without_room(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 9, b"official": 1}, {b"b": 0})
        await reclaimer(bench, FakeIntake(room=0))._scan_consumers_if_due_and_claim_entries()
        assert (bench.relieved, bench.claims) == ([], [])

    async def test_consumers_without_a_lease_alone_are_asked_for_idle_entries(self, clock: FakeClock) -> None:
        with_lease = ReclaimerBench({b"b": 1}, {b"b": GOOD})
        await reclaimer(with_lease)._scan_consumers_if_due_and_claim_entries()
        without = ReclaimerBench({b"b": 1, b"official": 1}, {b"b": GOOD})
        await reclaimer(without)._scan_consumers_if_due_and_claim_entries()
        assert (with_lease.claims, without.claims) == ([], [10])

    async def test_names_that_hold_nothing_are_swept_now_and_then(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({}, {b"ghost": OVER})
        mine = reclaimer(bench)
        for _ in range(12):
            await mine._scan_consumers_if_due_and_claim_entries()
            clock.now += 2
        assert bench.relieved
        assert {dead for dead, _, _ in bench.relieved} == {b"ghost"}

    async def test_a_worker_whose_own_lease_is_over_does_not_relieve_itself(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"me": 3, b"b": 1}, {b"me": OVER, b"b": GOOD})
        mine = reclaimer(bench)
        for _ in range(12):
            await mine._scan_consumers_if_due_and_claim_entries()
            clock.now += 2
        assert bench.relieved == []

    @pytest.mark.parametrize(("consumer", "level"), ((b"b", logging.WARNING), (RELEASED.encode(), logging.DEBUG)))
    async def test_entries_of_a_dead_worker_are_a_warning_and_those_handed_back_are_not(
        self, clock: FakeClock, caplog: pytest.LogCaptureFixture, consumer: bytes, level: int
    ) -> None:
        bench = ReclaimerBench({consumer: 1}, {consumer: 0})
        bench.taken = [[ClaimedEntry(b"1-0", [], 1)]]
        caplog.set_level(logging.DEBUG)
        await reclaimer(bench)._scan_consumers_if_due_and_claim_entries()
        (record,) = caplog.records
        assert record.levelno == level
        assert ("handed back" in record.getMessage()) == (consumer == RELEASED.encode())

    async def test_a_name_from_redis_cannot_forge_a_line_in_the_log(
        self, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = ReclaimerBench({b"b\r\n\x1b[31mERROR": 1}, {b"b\r\n\x1b[31mERROR": 0})
        bench.taken = [[ClaimedEntry(b"1-0", [], 1)]]
        caplog.set_level(logging.DEBUG)
        await reclaimer(bench)._scan_consumers_if_due_and_claim_entries()
        (line,) = caplog.messages
        assert line.isprintable()


class FakeConnection:
    """Answers every script with nothing taken."""

    def __init__(self) -> None:
        self.scripts: set[bytes] = set()

    def make_deadline(self) -> float:
        return 0.0

    async def get_or_open_socket(self, deadline: float) -> Any:
        return self

    async def ask(self, packed: bytes, deadline: float) -> list[Any]:
        return []


@pytest.mark.parametrize("lease", (float("-inf"), -1.5, 0.5, 1e300))
async def test_a_malformed_lease_does_not_end_the_reclaimer(lease: float) -> None:
    """A client that can write to the list of workers must not be able to stop all of them."""
    broker = Broker(cast(Any, FakeConnection()), Keys("q"))
    assert await broker.take_over_if_lease_is_same("default", "me", b"b", lease, 30_000, 10, BOUNDS) == []


class TestManyWorkers:
    """A look at everything takes the longer the more workers there are."""

    async def scan_for(self, mine: Reclaimer, clock: FakeClock, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            clock.now += 0.5
            await mine._scan_consumers_if_due_and_claim_entries()

    async def test_many_workers_share_the_looks_at_everything(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": GOOD})
        mine = reclaimer(bench, living_workers=LivingWorkers(1000))
        await self.scan_for(mine, clock, 1000)
        assert 1000 / 94 - 1 <= len(bench.broker.asked("count_held_entries_by_consumer")) <= 1000 / 31 + 1
        assert bench.broker.asked("read_ended_leases") == []

    async def test_a_worker_looks_at_leases_that_are_over_when_a_renewal_has_found_some(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": OVER})
        mine = reclaimer(bench, living_workers=LivingWorkers(1000))
        mine._full_scan_at = clock.now + 60
        mine._trusted_since = 0.0
        bench.ended_leases.send()
        await mine._scan_consumers_if_due_and_claim_entries()
        assert bench.relieved == []
        await self.scan_for(mine, clock, 2.5)
        assert (bench.relieved, len(bench.broker.asked("read_ended_leases"))) == ([], 1)
        await self.scan_for(mine, clock, 0.5)
        assert bench.relieved == [(b"b", OVER, 10)]
        assert bench.broker.asked("count_held_entries_by_consumer") == bench.broker.asked("read_lease_ends") == []

    async def test_a_worker_that_has_left_is_taken_over_at_once(self, clock: FakeClock) -> None:
        bench = ReclaimerBench({b"b": 3}, {b"b": 0})
        mine = reclaimer(bench, living_workers=LivingWorkers(1000))
        mine._full_scan_at = clock.now + 60
        bench.ended_leases.send()
        await mine._scan_consumers_if_due_and_claim_entries()
        assert bench.relieved == [(b"b", 0, 10)]

    async def test_a_name_that_holds_nothing_that_can_be_taken_is_asked_once_a_look_at_everything(
        self, clock: FakeClock
    ) -> None:
        """An official consumer may use the name of a dead worker."""
        bench = ReclaimerBench({b"b": 3}, {b"b": 0})
        bench.broker.answer_with["take_over_if_lease_is_same"] = lambda *_: []
        mine = reclaimer(bench, living_workers=LivingWorkers(1000))
        mine._full_scan_at = clock.now + 60
        for _ in range(10):
            bench.ended_leases.send()
            await mine._scan_consumers_if_due_and_claim_entries()
        assert len(bench.relieved) == 1
        clock.now += 60
        await mine._scan_consumers_if_due_and_claim_entries()
        assert len(bench.relieved) == 2

    async def test_a_worker_among_many_wakes_up_rarely_and_at_once_when_leases_are_over(self) -> None:
        """By its own clock: it sleeps between two looks, and each of them finds an entry to take over."""
        bench, slept = ReclaimerBench({b"b": 3}, {b"b": 0}), list[float]()
        mine = reclaimer(bench, living_workers=LivingWorkers(1000))
        mine._full_scan_at = float("inf")
        sleep = mine._sleep_until_woken

        async def note_sleep(seconds: float | None = None) -> None:
            slept.append(seconds or 0.0)
            await sleep(seconds)

        mine._sleep_until_woken = note_sleep  # type: ignore[method-assign]
        mine.start()
        try:
            await eventually(lambda: slept)
            assert (slept, bench.relieved) == ([2.0], [])
            bench.ended_leases.send()
            await eventually(lambda: bench.relieved, timeout=1.5, every=0.001)
        finally:
            await mine.end(timeout_s=0)
