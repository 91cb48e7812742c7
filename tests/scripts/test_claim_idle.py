"""claim_idle.lua alone: idle entries of consumers without a lease become ours; workers with a lease keep theirs."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, HOUR_MS, KEYS, Group, Hold, Taken


def leave_lying(group: Group, count: int, consumer: str = "official") -> list[bytes]:
    entry_ids = group.deliver_to(consumer, count)
    group.make_idle(HOUR_MS, *entry_ids)
    return entry_ids


def test_idle_entries_of_an_official_consumer_become_ours(group: Group) -> None:
    entry_ids = leave_lying(group, 2)
    assert [entry.id for entry in group.claim_idle("a")] == entry_ids
    assert set(group.holds.values()) == {Hold("a", 2)}


def test_each_entry_comes_with_its_fields_and_earlier_deliveries(group: Group) -> None:
    (entry_id,) = leave_lying(group, 1)
    assert group.claim_idle("a") == [Taken(entry_id, {b"d": b"job 0", b"n": b"mail"}, 1)]
    group.steal(entry_id, "another")
    group.make_idle(HOUR_MS, entry_id)
    assert [entry.deliveries for entry in group.claim_idle("a")] == [3]


def test_claimed_entries_look_fresh(group: Group) -> None:
    (entry_id,) = leave_lying(group, 1)
    group.claim_idle("a")
    assert group.idle_ms(entry_id) < 10_000


def test_an_entry_that_is_not_idle_for_long_enough_is_left_alone(group: Group) -> None:
    (entry_id,) = group.deliver_to("official")
    group.make_idle(10_000, entry_id)
    assert group.claim_idle("a", min_idle_ms=30_000) == []
    assert group.holds == {entry_id: Hold("official", 1)}
    assert [entry.id for entry in group.claim_idle("a", min_idle_ms=10_000)] == [entry_id]


def test_a_worker_with_a_lease_is_spared(group: Group) -> None:
    (entry_id,) = leave_lying(group, 1, "b")
    group.renew_worker_lease("b")
    assert group.claim_idle("a") == []
    assert group.holds == {entry_id: Hold("b", 1)}


@pytest.mark.parametrize("lease", (0, 1, 10**15))
def test_an_expired_lease_protects_its_entries_all_the_same(group: Group, lease: int) -> None:
    (entry_id,) = leave_lying(group, 1, "b")
    group.client.zadd(KEYS.workers, {"b": lease})
    assert group.claim_idle("a") == []
    assert group.holds == {entry_id: Hold("b", 1)}


def test_our_own_idle_entries_are_not_delivered_to_us_again(group: Group) -> None:
    (entry_id,) = leave_lying(group, 1, "a")
    assert group.claim_idle("a") == []
    assert group.holds == {entry_id: Hold("a", 1)}


def test_the_idle_entries_of_official_consumers_are_taken_from_a_mixture(group: Group) -> None:
    (ours,) = leave_lying(group, 1, "a")
    (leased,) = leave_lying(group, 1, "b")
    group.renew_worker_lease("b")
    (lying,) = leave_lying(group, 1)
    (fresh,) = group.deliver_to("official")
    (unread,) = group.add(1)
    assert [entry.id for entry in group.claim_idle("a")] == [lying]
    assert group.holds == {
        ours: Hold("a", 1),
        leased: Hold("b", 1),
        lying: Hold("a", 2),
        fresh: Hold("official", 1),
    }
    assert group.read("b", 10) == [unread]


def test_a_count_bounds_one_call(group: Group) -> None:
    entry_ids = leave_lying(group, 5)
    assert [entry.id for entry in group.claim_idle("a", count=2)] == entry_ids[:2]
    assert [entry.id for entry in group.claim_idle("b", count=9)] == entry_ids[2:]


def test_idle_entries_of_leased_workers_do_not_hide_later_ones(group: Group) -> None:
    leave_lying(group, 3, "b")
    group.renew_worker_lease("b")
    (lying,) = leave_lying(group, 1)
    assert [entry.id for entry in group.claim_idle("a", count=1)] == [lying]


def test_many_pages_of_protected_entries_hide_no_idle_entry(group: Group) -> None:
    leave_lying(group, 1700, "b")
    group.renew_worker_lease("b")
    lying = leave_lying(group, 3)
    leave_lying(group, 600, "a")
    lying += leave_lying(group, 2)
    assert [entry.id for entry in group.claim_idle("a", count=4)] == lying[:4]
    assert [entry.id for entry in group.claim_idle("a", count=4)] == lying[4:]


def test_the_same_call_again_takes_nothing(group: Group) -> None:
    entry_ids = leave_lying(group, 2)
    group.claim_idle("a")
    assert group.claim_idle("a") == []
    assert group.claim_idle("b") == []
    assert group.holds == {entry_id: Hold("a", 2) for entry_id in entry_ids}


def test_entries_deleted_while_pending_are_dropped(group: Group) -> None:
    first, deleted, third = leave_lying(group, 3)
    group.client.xdel(KEYS.stream, deleted)
    assert [entry.id for entry in group.claim_idle("a")] == [first, third]
    assert set(group.holds) == {first, third}


def test_a_group_without_pending_entries_gives_none(group: Group) -> None:
    group.add(3)
    assert group.claim_idle("a") == []
    assert group.keys == {KEYS.stream}


def test_a_missing_group_is_an_error(group: Group) -> None:
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.claim_idle("a")


def test_10_000_entries_come_in_calls_of_2_000(group: Group) -> None:
    entry_ids = leave_lying(group, 10_000)
    taken = [[entry.id for entry in group.claim_idle("a", count=10_000)] for _ in range(6)]
    assert [len(some) for some in taken] == [2000, 2000, 2000, 2000, 2000, 0]
    assert [entry_id for some in taken for entry_id in some] == entry_ids


def test_the_entries_of_workers_with_a_lease_are_not_looked_at(group: Group) -> None:
    """However many there are, and however idle: the server is held no longer."""
    group.deliver_to("b", 5000)
    group.client.zadd(KEYS.workers, {"b": 1})
    (entry_id,) = leave_lying(group, 1)
    group.client.config_resetstat()
    assert [entry.id for entry in group.claim_idle("a", min_idle_ms=0)] == [entry_id]
    assert group.client.info("commandstats")["cmdstat_xpending"]["calls"] == 2


def test_many_consumers_are_each_looked_at(group: Group) -> None:
    names = [f"official {number}" for number in range(700)]
    lying = group.add(len(names))
    with group.client.pipeline(transaction=False) as pipeline:
        for name, entry_id in zip(names, lying, strict=True):
            pipeline.xclaim(KEYS.stream, GROUP, name, 0, [entry_id], idle=HOUR_MS, force=True)
        pipeline.execute()
    assert {entry.id for entry in group.claim_idle("a", count=1000)} == set(lying)


def test_the_bytes_bound_one_call_and_the_other_entries_stay(group: Group) -> None:
    entry_ids = [group.client.xadd(KEYS.stream, {"d": b"x" * 999}) for _ in range(5)]
    group.read("dead", 5)
    group.make_idle(HOUR_MS, *entry_ids)
    first = group.claim_idle("a", bounds=(2001, 2**30))
    assert [entry.id for entry in first] == entry_ids[:3]
    assert [entry_id for entry_id, hold in group.holds.items() if hold.owner == "dead"] == entry_ids[3:]
    rest = group.claim_idle("a", bounds=(2**30, 2**30))
    assert [entry.id for entry in rest] == entry_ids[3:]


def test_a_too_large_entry_comes_as_its_size(group: Group) -> None:
    entry_ids = [group.client.xadd(KEYS.stream, {"d": b"x" * (size - 1)}) for size in (5001, 5000)]
    group.read("dead", 2)
    group.make_idle(HOUR_MS, *entry_ids)
    large, fits = group.claim_idle("a", bounds=(1, 5000))
    assert (large.fields, isinstance(fits.fields, dict)) == (5001, True)
    assert set(group.holds) == set(entry_ids)


def test_each_consumer_is_judged_by_its_own_lease(group: Group) -> None:
    official, (leased,), later = group.deliver_to("official"), group.deliver_to("b"), group.deliver_to("official")
    group.renew_worker_lease("b")
    group.make_idle(HOUR_MS, *official, leased, *later)
    assert [entry.id for entry in group.claim_idle("a")] == [*official, *later]
