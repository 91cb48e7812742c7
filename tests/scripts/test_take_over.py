"""take_over.lua alone: the entries of a dead worker become ours, unless it turns out to live."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, HOUR_MS, KEYS, Group, Hold, Taken


def leave_behind(group: Group, count: int, worker: str = "dead") -> list[bytes]:
    """Entries of a worker whose lease is over."""
    entry_ids = group.deliver_to(worker, count)
    group.end_lease(worker)
    return entry_ids


class TestExactBounds:
    def test_the_count_bounds_what_several_pages_give(self, group: Group) -> None:
        entry_ids = leave_behind(group, 4)
        group.make_idle(HOUR_MS, *entry_ids[1:])  # the first was delivered since
        group.client.zadd(KEYS.workers, {"dead": 5})
        taken = group.take_over("a", "dead", count=2)
        assert taken is not None
        assert [entry.id for entry in taken] == entry_ids[1:3]

    def test_the_bytes_of_the_first_entry_may_be_all(self, group: Group) -> None:
        size = sum(len(word) for word in (b"d", b"job 0", b"n", b"mail"))
        for bytes_, count in ((size, 1), (size + 1, 2)):
            leave_behind(group, 3)
            taken = group.take_over("a", "dead", bounds=(bytes_, 2**20))
            assert taken is not None
            assert len(taken) == count
            group.client.xtrim(KEYS.stream, maxlen=0, approximate=False)
            group.recreate()

    def test_a_name_that_cannot_leave_the_group_stays_in_the_list(self, group: Group) -> None:
        leave_behind(group, 1)
        with group.as_user("+@all", "-xgroup", "~*", "&*") as narrow:
            narrow.take_over("a", "dead", lease=group.lease("dead"))
        assert b"dead" in group.workers


class TestTaking:
    def test_entries_of_a_dead_worker_become_ours(self, group: Group) -> None:
        entry_ids = leave_behind(group, 3)
        taken = group.take_over("a", "dead")
        assert taken is not None
        assert [entry.id for entry in taken] == entry_ids
        assert set(group.holds.values()) == {Hold("a", 2)}

    def test_each_entry_comes_with_its_fields(self, group: Group) -> None:
        (entry_id,) = leave_behind(group, 1)
        assert group.take_over("a", "dead") == [Taken(entry_id, {b"d": b"job 0", b"n": b"mail"}, 1)]

    def test_earlier_deliveries_are_returned_and_the_new_one_is_counted(self, group: Group) -> None:
        (entry_id,) = leave_behind(group, 1, "w0")
        for earlier in range(1, 5):
            taken = group.take_over(f"w{earlier}", f"w{earlier - 1}")
            assert taken is not None
            assert [entry.deliveries for entry in taken] == [earlier]
            assert group.holds == {entry_id: Hold(f"w{earlier}", earlier + 1)}
            group.end_lease(f"w{earlier}")

    def test_taken_entries_look_fresh(self, group: Group) -> None:
        (entry_id,) = leave_behind(group, 1)
        group.make_idle(HOUR_MS, entry_id)
        group.take_over("a", "dead")
        assert group.idle_ms(entry_id) < 10_000

    def test_entries_of_the_living_are_left_alone(self, group: Group) -> None:
        (mine,) = group.deliver_to("a")
        (theirs,) = group.deliver_to("b")
        (abandoned,) = leave_behind(group, 1)
        (unread,) = group.add(1)
        group.take_over("a", "dead")
        assert group.holds == {mine: Hold("a", 1), theirs: Hold("b", 1), abandoned: Hold("a", 2)}
        assert group.read("b", 10) == [unread]

    def test_the_entries_of_a_worker_that_has_left_are_taken_at_any_time(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.renew_worker_lease("a")
        group.leave_group("a")
        taken = group.take_over("b", "a", lease=0)
        assert taken is not None
        assert [entry.id for entry in taken] == [entry_id]


class TestName:
    def test_the_consumer_goes_once_its_entries_are_taken(self, group: Group) -> None:
        leave_behind(group, 2)
        group.renew_worker_lease("a")
        group.take_over("a", "dead")
        assert group.consumers == {"a"}
        assert set(group.workers) == {b"a"}

    def test_a_name_that_holds_nothing_goes_too(self, group: Group) -> None:
        group.client.xgroup_createconsumer(KEYS.stream, GROUP, "dead")
        group.end_lease("dead")
        assert group.take_over("a", "dead") == []
        assert "dead" not in group.consumers
        assert group.workers == {}

    def test_the_consumer_stays_while_entries_are_left(self, group: Group) -> None:
        first, second, third = leave_behind(group, 3)
        taken = group.take_over("a", "dead", count=2)
        assert taken is not None
        assert [entry.id for entry in taken] == [first, second]
        assert group.holds == {first: Hold("a", 2), second: Hold("a", 2), third: Hold("dead", 1)}
        assert group.lease("dead") is not None
        assert group.consumers == {"a", "dead"}

    def test_every_entry_comes_page_by_page(self, group: Group) -> None:
        entry_ids = leave_behind(group, 7)
        lease = group.lease("dead")
        assert lease is not None
        pages = [group.take_over("a", "dead", lease=lease, count=3) for _ in range(4)]
        assert [None if page is None else len(page) for page in pages] == [3, 3, 1, None]
        assert set(group.holds) == set(entry_ids)
        assert "dead" not in group.consumers


class TestLease:
    def test_a_worker_that_has_come_back_keeps_its_entries(self, group: Group) -> None:
        (entry_id,) = leave_behind(group, 1)
        judged = group.lease("dead")
        assert judged is not None
        group.renew_worker_lease("dead")
        assert group.take_over("a", "dead", lease=judged) is None
        assert group.holds == {entry_id: Hold("dead", 1)}
        assert group.lease("dead") != judged

    def test_a_lease_that_is_over_once_more_must_be_judged_once_more(self, group: Group) -> None:
        leave_behind(group, 1)
        judged = group.lease("dead")
        assert judged is not None
        group.client.zadd(KEYS.workers, {"dead": judged + 1})
        assert group.take_over("a", "dead", lease=judged) is None
        assert group.take_over("a", "dead", lease=judged - 1) is None
        assert group.take_over("a", "dead", lease=judged + 1) != []

    def test_a_worker_without_a_lease_is_none_of_ours(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("official")
        assert group.take_over("a", "official", lease=0) is None
        assert group.holds == {entry_id: Hold("official", 1)}

    def test_a_worker_that_left_and_came_back_keeps_its_entries(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("b")
        group.leave_group("b")
        group.renew_worker_lease("b")
        assert group.take_over("a", "b", lease=0) is None
        assert group.holds == {entry_id: Hold("b", 1)}


class TestDeliveredLate:
    """After the lease: to a consumer without one that has come up under the dead worker's name, or by a server that
    hung and has served a read of the dead worker since."""

    def test_an_entry_delivered_after_the_end_of_the_lease_stays(self, group: Group) -> None:
        (old,) = leave_behind(group, 1)
        group.wait_ms(20)
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - 5})
        (running,) = group.deliver_to("dead")
        taken = group.take_over("a", "dead")
        assert taken is not None
        assert [entry.id for entry in taken] == [old]
        assert group.holds == {old: Hold("a", 2), running: Hold("dead", 1)}

    def test_the_name_stays_in_the_group_and_in_the_list(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - 5})
        entry_ids = group.deliver_to("dead", 3)
        assert group.take_over("a", "dead") == []
        assert group.holds == dict.fromkeys(entry_ids, Hold("dead", 1))
        assert (set(group.workers), group.consumers) == ({b"dead"}, {"dead"})

    def test_an_idle_entry_is_taken_and_the_consumer_goes_with_the_last(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - HOUR_MS})
        idle, running = group.deliver_to("dead", 2)
        group.make_idle(40_000, idle)
        taken = group.take_over("a", "dead", min_idle_ms=30_000)
        assert taken is not None
        assert [entry.id for entry in taken] == [idle]
        group.make_idle(40_000, running)
        taken = group.take_over("a", "dead", min_idle_ms=30_000)
        assert taken is not None
        assert [entry.id for entry in taken] == [running]
        assert (group.workers, group.consumers) == ({}, {"a"})

    def test_the_name_goes_once_all_of_it_is_acked(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - 5})
        entry_ids = group.deliver_to("dead", 2)
        group.client.xack(KEYS.stream, GROUP, *entry_ids)
        assert group.take_over("a", "dead") == []
        assert (group.workers, group.consumers) == ({}, set())


class TestTwice:
    def test_the_same_call_again_finds_the_name_gone(self, group: Group) -> None:
        leave_behind(group, 2)
        lease = group.lease("dead")
        assert lease is not None
        assert group.take_over("a", "dead", lease=lease) != []
        assert group.take_over("a", "dead", lease=lease) is None
        assert set(group.holds.values()) == {Hold("a", 2)}

    def test_two_workers_that_take_over_at_once_get_different_entries(self, group: Group) -> None:
        leave_behind(group, 4)
        lease = group.lease("dead")
        first = group.take_over("a", "dead", lease=lease, count=3)
        second = group.take_over("b", "dead", lease=lease, count=3)
        assert first is not None
        assert second is not None
        assert (len(first), len(second)) == (3, 1)
        assert {entry.id for entry in first} & {entry.id for entry in second} == set()

    def test_entries_of_a_lost_reply_are_found_as_orphans(self, group: Group) -> None:
        entry_ids = leave_behind(group, 2)
        group.take_over("a", "dead")
        assert [(entry.id, entry.deliveries) for entry in group.list_pending("a")] == [(i, 2) for i in entry_ids]

    def test_the_dead_worker_can_neither_keep_nor_move_what_was_taken(self, group: Group) -> None:
        (entry_id,) = leave_behind(group, 1)
        group.take_over("a", "dead")
        assert group.renew_worker_lease("dead", entry_id) == [entry_id]
        assert group.reschedule("dead", (entry_id, 0, b"member")) == 0
        assert group.bury("dead", (entry_id, [b"d", b"x"])) == 0
        assert group.release_entries("dead", (entry_id, 0)) == 0
        assert group.holds == {entry_id: Hold("a", 2)}


class TestDeleted:
    def test_entries_deleted_while_pending_are_dropped(self, group: Group) -> None:
        first, deleted, third = leave_behind(group, 3)
        group.client.xdel(KEYS.stream, deleted)
        taken = group.take_over("a", "dead")
        assert taken is not None
        assert [entry.id for entry in taken] == [first, third]
        assert set(group.holds) == {first, third}
        assert "dead" not in group.consumers

    def test_the_consumer_goes_also_if_all_its_entries_were_deleted(self, group: Group) -> None:
        leave_behind(group, 3)
        group.client.xtrim(KEYS.stream, maxlen=0, approximate=False)
        assert group.take_over("a", "dead") == []
        assert (group.holds, group.workers) == ({}, {})
        assert "dead" not in group.consumers


class TestTrouble:
    def test_a_missing_group_is_an_error_and_the_worker_stays_listed(self, group: Group) -> None:
        leave_behind(group, 1)
        group.client.xgroup_destroy(KEYS.stream, GROUP)
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.take_over("a", "dead")
        assert group.lease("dead") is not None


class TestBounds:
    """A call looks at 2,000 entries: the server is not held however many are pending."""

    def test_10_000_entries_come_in_calls_of_2_000(self, group: Group) -> None:
        entry_ids, pages = leave_behind(group, 10_000), []
        while page := group.take_over("a", "dead", count=10_000):
            pages.append([entry.id for entry in page])
        assert [len(page) for page in pages] == [2000] * 5
        assert [entry_id for page in pages for entry_id in page] == entry_ids
        assert set(group.holds.values()) == {Hold("a", 2)}

    def test_fresh_entries_are_looked_past_up_to_the_bound(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - HOUR_MS})
        entry_ids = group.deliver_to("dead", 2002)
        last_seen, beyond = entry_ids[1999], entry_ids[2000]
        group.make_idle(HOUR_MS, last_seen, beyond)
        for count in (100, 1, 3000):
            group.client.xclaim(KEYS.stream, GROUP, "dead", 0, [last_seen], idle=HOUR_MS, justid=True)
            taken = group.take_over("a", "dead", count=count)
            assert taken is not None
            assert [entry.id for entry in taken] == [last_seen]
        assert group.holds[beyond] == Hold("dead", 1)

    def test_no_more_is_looked_at_than_is_taken(self, group: Group) -> None:
        leave_behind(group, 30)
        group.client.config_resetstat()
        assert len(group.take_over("a", "dead", count=10) or []) == 10
        assert group.client.info("commandstats")["cmdstat_xpending"]["calls"] == 2


def test_the_bytes_bound_one_call_and_the_other_entries_stay(group: Group) -> None:
    entry_ids = [group.client.xadd(KEYS.stream, {"d": b"x" * 999}) for _ in range(5)]
    group.read("dead", 5)
    group.client.zadd(KEYS.workers, {"dead": 0})
    first = group.take_over("a", "dead", bounds=(2001, 2**30)) or []
    assert [entry.id for entry in first] == entry_ids[:3]
    assert [entry_id for entry_id, hold in group.holds.items() if hold.owner == "dead"] == entry_ids[3:]
    rest = group.take_over("a", "dead", bounds=(2**30, 2**30)) or []
    assert [entry.id for entry in rest] == entry_ids[3:]


def test_a_too_large_entry_comes_as_its_size(group: Group) -> None:
    entry_ids = [group.client.xadd(KEYS.stream, {"d": b"x" * (size - 1)}) for size in (5001, 5000)]
    group.read("dead", 2)
    group.client.zadd(KEYS.workers, {"dead": 0})
    large, fits = group.take_over("a", "dead", bounds=(1, 5000)) or []
    assert (large.fields, isinstance(fits.fields, dict)) == (5001, True)
    assert set(group.holds) == set(entry_ids)
