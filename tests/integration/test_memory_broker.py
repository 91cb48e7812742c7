"""The broker that unit tests use answers as the one that speaks to a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import redis.asyncio

from pychasqui._core.limits import MAX_WORKER_LEASE_MS, RELEASED
from pychasqui._redis.event_batch import EventBatch
from pychasqui._redis.replies import QueueFlags, RenewalResult
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.event import Event
from pychasqui._wire.msgpack import encode_data
from pychasqui.errors import ReplyError
from tests.support.broker_bench import BOUNDS, GROUP, KINDS, LEASE_MS, ME, OTHER, Bench, open_bench
from tests.support.outcomes import buried, rescheduled

MEMBER = len(b"mail").to_bytes(4, "little") + b"mail" + encode_envelope("job", encode_data(1), 0, 0, None)

pytestmark = pytest.mark.leaves_keys("what the calls have written")


@pytest.fixture(params=KINDS)
async def bench(
    request: pytest.FixtureRequest, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> AsyncIterator[Bench]:
    async with open_bench(request.param, redis_url, queue_name, witness) as bench:
        yield bench


class TestReading:
    async def test_entries_come_once_and_in_order(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        assert [await bench.read(count=2), await bench.read(), await bench.read()] == [ids[:2], ids[2:], []]

    async def test_a_small_batch_arrives_by_its_callback_and_a_large_one_does_not(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        await bench.read(count=1, small=2)
        await bench.read(count=2, small=2)
        assert bench.arrived == [ids[:1]]

    async def test_a_read_by_bytes_brings_new_entries(self, bench: Bench) -> None:
        ids = await bench.fill(2)
        found = await bench.broker.read_now_within_bounds(GROUP, ME, 10, BOUNDS)
        assert [(entry.id, entry.fields, entry.deliveries) for entry in found] == [
            (one, [b"d", b"x"], 0) for one in ids
        ]

    async def test_unread_entries_are_there_until_they_are_read(self, bench: Bench) -> None:
        """A server that does not say how far a group is behind may have some at any time."""
        ids = await bench.fill(2)
        assert await bench.broker.may_have_unread_entries(GROUP)
        assert await bench.read() == ids
        assert await bench.broker.may_have_unread_entries(GROUP) == (not await bench.has_lag())
        await bench.drop_group()
        assert await bench.broker.may_have_unread_entries(GROUP)

    async def test_no_call_finds_a_group_that_is_gone(self, bench: Bench) -> None:
        await bench.add()
        for call in (
            bench.read(),
            bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, []),
            bench.broker.count_held_entries_by_consumer(GROUP),
        ):
            with pytest.raises(ReplyError, match="NOGROUP"):
                await call


class TestSettling:
    async def test_an_acked_entry_is_gone_and_a_second_ack_is_harmless(self, bench: Bench) -> None:
        ids = await bench.fill(2)
        await bench.read()
        for _ in range(2):
            await bench.broker.ack(GROUP, ids[:1])
        assert await bench.broker.count_held_entries_by_consumer(GROUP) == {b"me": 1}
        assert await bench.counts() == (1, 0, 0)

    async def test_an_ack_that_is_on_its_way_ends_when_the_entries_are_gone(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        await bench.read()
        first, second = bench.broker.send_ack(GROUP, ids[:1]), bench.broker.send_ack(GROUP, ids[:2])
        await second
        await first
        assert await bench.counts() == (1, 0, 0)
        assert await bench.broker.list_pending_id_page(GROUP, ME, b"", b"+", 10) == [(ids[2], 1)]

    async def test_events_are_written_with_the_ack(self, bench: Bench) -> None:
        ids = await bench.fill(1)
        await bench.read()
        written: list[tuple[int, object]] = []
        batch = EventBatch(
            1000,
            lambda count, trouble: written.append((count, trouble)),
            [Event("drained")],
            [("first", "mail", 1, 1000, 1250, 250), ("second", "mail", 1, "", 1250, 250)],
        )
        await bench.broker.ack_and_release_uniqueness_keys(GROUP, [(ids[0], "first")], events=lambda: batch)
        assert await bench.event_kinds() == ["drained", "active", "completed", "completed"]
        assert written == [(1, None), (2, None)]

    async def test_results_are_stored_with_the_ack(self, bench: Bench) -> None:
        ids = await bench.fill(1)
        await bench.read()
        assert await bench.broker.ack_and_store_results(GROUP, LEASE_MS, ids, [("job", b"result")], []) == 0
        assert (await bench.result_of("job"), await bench.result_of("other")) == (b"result", None)
        assert await bench.counts() == (0, 0, 0)

    async def test_only_an_entry_that_is_held_by_that_delivery_is_moved(self, bench: Bench) -> None:
        """A lower count than the delivery's is of a group that was rebuilt since."""
        ids = await bench.fill(4)
        await bench.read(count=3)
        await bench.broker.increment_delivery_counts_if_same(GROUP, ME, [(ids[1], 1)])
        failed = [rescheduled(ids[0], 1, delay_ms=60_000), rescheduled(ids[1], 1), rescheduled(ids[3], 1)]
        assert (await bench.broker.reschedule(GROUP, ME, failed, 0)).answers == b"100"
        dead = [buried(ids[1], 1), buried(ids[2], 7)]
        assert (await bench.broker.bury(GROUP, ME, 0, dead, 0)).answers == b"01"
        assert await bench.counts() == (2, 1, 1)


class TestLeases:
    async def test_a_renewal_returns_the_entries_that_are_lost(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        await bench.read(count=1)
        await bench.read(OTHER, count=1)
        await bench.broker.increment_delivery_counts_if_same(GROUP, ME, [(ids[0], 1)])
        assert (await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [(ids[0], 2)])).lost == []
        renewed = await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [(one, 1) for one in ids])
        assert renewed == RenewalResult(QueueFlags(False, False), living_count=1, ended_count=0, lost=ids)
        now_ms = await bench.broker.read_server_time_ms()
        assert 0 < (await bench.broker.read_lease_ends(GROUP))[b"me"] - now_ms <= LEASE_MS

    async def test_a_renewal_counts_the_leases_that_go_on_and_those_that_are_over(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.read(OTHER)
        for consumer in (ME, OTHER):
            await bench.broker.renew_lease_and_held_entries(GROUP, consumer, LEASE_MS, [])
        assert not await bench.leave(OTHER)
        renewed = await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        assert (renewed.living_count, renewed.ended_count) == (1, 1)
        assert await bench.broker.read_ended_leases(GROUP, await bench.broker.read_server_time_ms()) == {
            OTHER.encode(): 0.0
        }

    async def test_a_worker_that_holds_nothing_leaves_without_a_trace(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        assert await bench.leave(ME)
        assert await bench.broker.read_lease_ends(GROUP) == {}

    async def test_a_call_for_another_lease_leaves_the_worker_alone(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        lease = await bench.broker.read_lease_end_or_zero(GROUP, ME)
        assert not await bench.broker.leave_group_if_lease_is_same(GROUP, ME, lease - 1)
        assert await bench.broker.read_lease_ends(GROUP) == {b"me": lease}

    async def test_a_worker_that_holds_entries_leaves_them_to_be_taken_over(self, bench: Bench) -> None:
        ids = await bench.fill(2)
        await bench.read()
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        assert not await bench.leave(ME)
        assert await bench.broker.read_lease_ends(GROUP) == {b"me": 0.0}
        take_over = partial(bench.broker.take_over_if_lease_is_same, GROUP, OTHER, b"me")
        assert await take_over(1.0, 0, 10, BOUNDS) is None
        assert [(one.id, one.deliveries) for one in await take_over(0.0, 0, 1, BOUNDS) or []] == [(ids[0], 1)]
        assert [(one.id, one.deliveries) for one in await take_over(0.0, 0, 10, BOUNDS) or []] == [(ids[1], 1)]
        assert await take_over(0.0, 0, 10, BOUNDS) is None
        assert await bench.broker.list_pending_id_page(GROUP, OTHER, b"", b"+", 10) == [(ids[0], 2), (ids[1], 2)]

    async def test_entries_of_consumers_without_a_lease_are_claimed(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        await bench.read(OTHER, count=2)
        await bench.read(ME, count=1)
        assert [one.id for one in await bench.broker.claim_idle_without_lease(GROUP, ME, 0, 10, BOUNDS)] == ids[:2]
        assert await bench.broker.count_held_entries_by_consumer(GROUP) == {b"me": 3}

    async def test_living_workers_have_not_reported_before_the_group_is_gone(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.read(OTHER)
        assert await bench.broker.find_workers_without_report(GROUP) == {}
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        await bench.broker.renew_lease_and_held_entries(GROUP, OTHER, 2 * LEASE_MS, [])
        missing = await bench.broker.find_workers_without_report(GROUP)
        assert list(missing) == [b"other", b"me"]
        assert 0 < missing[b"me"] <= LEASE_MS < missing[b"other"] <= 2 * LEASE_MS
        assert not await bench.leave(OTHER)
        assert list(await bench.broker.find_workers_without_report(GROUP)) == [b"me"]

    async def test_the_only_worker_is_missed_until_its_report_brings_the_group_back(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        await bench.drop_group()
        assert list(await bench.broker.find_workers_without_report(GROUP)) == [b"me"]
        assert await bench.broker.report_held_to_rebuild_group(GROUP, ME, LEASE_MS, [])
        assert (await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])).living_count == 1

    async def test_leases_that_no_worker_can_have_are_shortened_once(self, bench: Bench) -> None:
        await bench.fill(1)
        await bench.broker.renew_lease_and_held_entries(GROUP, ME, LEASE_MS, [])
        now_ms = await bench.broker.read_server_time_ms()
        await bench.write_lease("first", now_ms + 2 * MAX_WORKER_LEASE_MS)
        await bench.write_lease("second", now_ms + 3 * MAX_WORKER_LEASE_MS)
        await bench.write_lease("longest", now_ms + MAX_WORKER_LEASE_MS)
        assert await bench.broker.shorten_impossible_leases(GROUP, 1000) == [b"first", b"second"]
        left_s = {name: (end - now_ms) // 1000 for name, end in (await bench.broker.read_lease_ends(GROUP)).items()}
        assert left_s[b"first"] == left_s[b"second"] < left_s[b"me"] <= LEASE_MS // 1000
        assert left_s[b"longest"] == MAX_WORKER_LEASE_MS // 1000
        assert await bench.broker.shorten_impossible_leases(GROUP, 1000) == []

    async def test_a_group_that_is_gone_is_rebuilt_around_what_is_held(self, bench: Bench) -> None:
        ids = [await bench.add() for _ in range(3)]
        assert await bench.broker.report_held_to_rebuild_group(GROUP, ME, LEASE_MS, [(ids[1], 2)])
        assert await bench.broker.list_pending_id_page(GROUP, ME, b"", b"+", 10) == [(ids[1], 2)]
        assert await bench.broker.count_held_entries_by_consumer(GROUP) == {b"me": 1, RELEASED.encode(): 1}
        assert await bench.read() == ids[2:]


class TestPending:
    async def test_pending_entries_are_listed_page_by_page(self, bench: Bench) -> None:
        ids = await bench.fill(3)
        await bench.read()
        assert await bench.broker.read_last_pending_id(GROUP) == ids[-1]
        page = await bench.broker.list_pending_page(GROUP, ME, ids[0], b"+", 1, BOUNDS)
        assert [(one.id, one.fields, one.deliveries) for one in page] == [(ids[1], [b"d", b"x"], 1)]
        assert await bench.broker.list_pending_page(GROUP, OTHER, b"", b"+", 10, BOUNDS) == []

    async def test_a_group_that_holds_nothing_has_no_last_pending_entry(self, bench: Bench) -> None:
        await bench.fill(1)
        assert await bench.broker.read_last_pending_id(GROUP) is None

    async def test_one_more_delivery_is_counted_once(self, bench: Bench) -> None:
        ids = await bench.fill(1)
        await bench.read()
        for _ in range(2):
            await bench.broker.increment_delivery_counts_if_same(GROUP, ME, [(ids[0], 1)])
        assert await bench.broker.list_pending_id_page(GROUP, ME, b"", b"+", 10) == [(ids[0], 2)]

    async def test_released_entries_are_there_for_any_worker(self, bench: Bench) -> None:
        ids = await bench.fill(2)
        await bench.read()
        held, later_ms = [(one, 0) for one in ids], await bench.broker.read_server_time_ms() + 60_000
        answers = [await bench.broker.release_some_entries(GROUP, ME, held, later_ms) for _ in range(2)]
        assert answers == [(2, 2), (0, 2)]
        taken = await bench.broker.take_over_if_lease_is_same(GROUP, OTHER, RELEASED.encode(), 0.0, 0, 10, BOUNDS)
        assert taken is not None
        assert [(one.id, one.deliveries) for one in taken] == [(one, 0) for one in ids]

    async def test_a_release_after_its_deadline_changes_nothing(self, bench: Bench) -> None:
        ids = await bench.fill(1)
        await bench.read()
        before_ms = await bench.broker.read_server_time_ms() - 1
        assert await bench.broker.release_some_entries(GROUP, ME, [(ids[0], 0)], before_ms) == (0, 0)
        assert await bench.broker.list_pending_id_page(GROUP, ME, b"", b"+", 10) == [(ids[0], 1)]


class TestDelayed:
    async def test_due_jobs_join_the_stream(self, bench: Bench) -> None:
        ids = await bench.fill(2)
        await bench.read()
        late, due = (
            rescheduled(ids[0], delay_ms=60_000, member=MEMBER + b"late"),
            rescheduled(ids[1], delay_ms=0, member=MEMBER),
        )
        await bench.broker.reschedule(GROUP, ME, [late, due], 0)
        await asyncio.sleep(0.005)  # a due time is rounded up to the next ms
        depth, _ = await bench.broker.count_delayed_and_read_overdue_ms()
        done = await bench.broker.try_to_lead_and_promote_batch(ME, LEASE_MS, 10, events_max_len=0)
        assert (depth, done.leads, done.promoted, done.other) == (2, True, 1, None)
        assert 0 < done.next_due_ms <= 60_000
        assert await bench.counts() == (1, 1, 0)

    async def test_one_holder_leads_until_it_lets_go(self, bench: Bench) -> None:
        assert (await bench.broker.try_to_lead_and_promote_batch(ME, 5000, 10, events_max_len=0)).next_due_ms == -1
        followed = await bench.broker.try_to_lead_and_promote_batch(OTHER, 5000, 10, events_max_len=0)
        assert followed.other is not None
        assert (followed.leads, followed.other.name) == (False, ME)
        assert 0 < followed.next_due_ms <= 5000
        await bench.broker.release_promoter_lease_if_held(OTHER)
        assert not (await bench.broker.try_to_lead_and_promote_batch(OTHER, 5000, 10, events_max_len=0)).leads
        await bench.broker.release_promoter_lease_if_held(ME)
        assert (await bench.broker.try_to_lead_and_promote_batch(OTHER, 5000, 10, events_max_len=0)).leads
