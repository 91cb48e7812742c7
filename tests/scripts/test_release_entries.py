"""release_entries.lua alone: an unstarted entry goes back to the group, and its delivery was none."""

from __future__ import annotations

from contextlib import suppress

import pytest
import redis

from tests.scripts.group import GROUP, HEIR, KEPT_MS, KEYS, RELEASED_IDLE_MS, Group, Hold


def test_a_released_entry_passes_to_the_heir(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.release_entries("a", (entry_id, 0)) == 1
    assert group.holds == {entry_id: Hold(HEIR, 0)}
    assert group.lease(HEIR) == 0


def test_a_released_entry_looks_long_idle(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    assert group.idle_ms(entry_id) >= RELEASED_IDLE_MS


def test_an_entry_that_had_been_taken_over_has_its_earlier_deliveries_again(group: Group) -> None:
    (entry_id,) = group.deliver_to("dead")
    group.end_lease("dead")
    taken = group.take_over("a", "dead")
    assert taken is not None
    assert group.release_entries("a", (entry_id, taken[0].deliveries)) == 1
    assert group.holds == {entry_id: Hold(HEIR, 1)}


def test_the_next_owner_counts_the_first_delivery(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    taken = group.take_over("b", HEIR)
    assert taken is not None
    assert [(entry.id, entry.deliveries) for entry in taken] == [(entry_id, 0)]
    assert group.holds == {entry_id: Hold("b", 1)}


def test_another_worker_can_take_a_released_entry_while_the_releasing_one_still_drains(group: Group) -> None:
    unstarted, running = group.deliver_to("a", 2)
    group.renew_worker_lease("a", unstarted, running)
    group.release_entries("a", (unstarted, 0))
    taken = group.take_over("b", HEIR)
    assert taken is not None
    assert [entry.id for entry in taken] == [unstarted]
    assert group.holds[running] == Hold("a", 1)


def test_the_heir_is_forgotten_once_all_entries_are_taken(group: Group) -> None:
    entry_ids = group.deliver_to("a", 2)
    group.renew_worker_lease("a")
    group.release_entries("a", *((entry_id, 0) for entry_id in entry_ids))
    group.take_over("b", HEIR)
    assert HEIR not in group.consumers
    assert set(group.workers) == {b"a"}


def test_an_official_consumer_can_take_it_at_once(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    claimed = group.client.xautoclaim(KEYS.stream, GROUP, "official", 30_000)[1]
    assert [claimed_id for claimed_id, _ in claimed] == [entry_id]


def test_a_consumer_that_released_all_can_leave(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.renew_worker_lease("a")
    group.release_entries("a", (entry_id, 0))
    assert group.leave_group("a") == 1
    assert group.holds == {entry_id: Hold(HEIR, 0)}


def test_two_releasing_workers_share_the_heir(group: Group) -> None:
    (first,) = group.deliver_to("a")
    (second,) = group.deliver_to("b")
    assert (group.release_entries("a", (first, 0)), group.release_entries("b", (second, 3))) == (1, 1)
    assert group.holds == {first: Hold(HEIR, 0), second: Hold(HEIR, 3)}


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert [group.release_entries("a", (entry_id, 0)) for _ in range(3)] == [1, 0, 0]
    assert group.holds == {entry_id: Hold(HEIR, 0)}
    assert group.idle_ms(entry_id) >= RELEASED_IDLE_MS


def test_a_second_sending_does_not_touch_an_entry_taken_meanwhile(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    group.take_over("b", HEIR)
    assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.holds == {entry_id: Hold("b", 1)}
    assert group.idle_ms(entry_id) < 10_000
    assert group.workers == {}


def test_an_entry_that_was_taken_over_is_left_to_its_new_owner(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.steal(entry_id, "b")
    assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.holds == {entry_id: Hold("b", 2)}


def test_an_entry_that_came_back_is_left_to_its_new_run(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.lose_and_get_back("a", entry_id)
    assert [group.release_entries("a", (entry_id, earlier)) for earlier in (0, 1)] == [0, 0]
    assert group.holds == {entry_id: Hold("a", 3)}
    assert group.release_entries("a", (entry_id, 2)) == 1
    assert group.holds == {entry_id: Hold(HEIR, 2)}


def test_an_entry_that_a_rebuilt_group_delivers_to_the_same_worker_can_be_released(group: Group) -> None:
    (entry_id,) = group.deliver_to("dead")
    group.steal(entry_id, "a")
    group.recreate()
    group.read("a", 1)
    assert group.release_entries("a", (entry_id, 1)) == 1
    assert group.holds == {entry_id: Hold(HEIR, 1)}


def test_an_unread_entry_stays_unread(group: Group) -> None:
    (entry_id,) = group.add(1)
    assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.holds == {}
    assert group.read("b", 1) == [entry_id]


def test_an_entry_that_is_finished_is_not_brought_back(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xack(KEYS.stream, GROUP, entry_id)
    assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.holds == {}


def test_the_entries_that_are_still_ours_are_released(group: Group) -> None:
    first, stolen, third = group.deliver_to("a", 3)
    group.steal(stolen, "b")
    assert group.release_entries("a", (first, 0), (stolen, 0), (third, 4), (b"1-1", 0), (b"not an id", 0)) == 2
    assert group.holds == {first: Hold(HEIR, 0), stolen: Hold("b", 2), third: Hold(HEIR, 4)}


def test_a_running_entry_is_left_alone(group: Group) -> None:
    unstarted, running = group.deliver_to("a", 2)
    group.release_entries("a", (unstarted, 0))
    assert group.holds[running] == Hold("a", 1)
    assert group.idle_ms(running) < 10_000


def test_an_entry_deleted_by_others_does_no_harm_to_the_rest(group: Group) -> None:
    deleted, mine = group.deliver_to("a", 2)
    group.client.xdel(KEYS.stream, deleted)
    group.release_entries("a", (deleted, 0), (mine, 0))
    assert group.holds[mine] == Hold(HEIR, 0)
    assert group.idle_ms(mine) >= RELEASED_IDLE_MS
    taken = group.take_over("b", HEIR)
    assert taken is not None
    assert [entry.id for entry in taken] == [mine]


def test_no_entry_is_released_without_the_group(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with suppress(redis.ResponseError):
        assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.stream == [entry_id]
    assert group.workers == {}


def test_releasing_none_releases_none(group: Group) -> None:
    assert group.release_entries("a") == 0
    assert group.keys == {KEYS.stream}


class TestBounds:
    """Redis 8.6 takes as long for an entry that is to look idle as entries are pending that were delivered later."""

    def test_a_call_looks_at_500_entries(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 501)
        assert group.release_entries("a", *((entry_id, 0) for entry_id in entry_ids)) == 500
        assert group.looked_at == 500
        assert [entry_id for entry_id, hold in group.holds.items() if hold.owner == "a"] == entry_ids[500:]

    def test_a_call_looks_at_fewer_while_many_are_pending(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 5000)
        assert group.release_entries("a", *((entry_id, 0) for entry_id in entry_ids)) == 200
        assert group.looked_at == 200
        assert len([hold for hold in group.holds.values() if hold.owner == HEIR]) == 200

    def test_entries_of_the_heir_do_not_count(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 5000)
        group.client.eval(
            "for i = 2, #ARGV do redis.call('XCLAIM', KEYS[1], ARGV[1], 'released', 0, ARGV[i], 'JUSTID') end",
            *(1, KEYS.stream, GROUP, *entry_ids[:4000]),
        )
        group.release_entries("a", *((entry_id, 0) for entry_id in entry_ids[4000:]))
        assert group.looked_at == 500

    def test_a_call_looks_at_one_at_least(self, group: Group) -> None:
        (mine,) = group.deliver_to("a")
        assert group.release_entries("a", (mine, 0)) == 1
        assert group.looked_at == 1

    def test_entries_that_are_not_ours_are_looked_at_too(self, group: Group) -> None:
        theirs, mine = (*group.deliver_to("b"), *group.deliver_to("a"))
        assert group.release_entries("a", (theirs, 0), (mine, 0)) == 1
        assert group.looked_at == 2

    def test_all_count_as_looked_at_while_the_group_is_missing(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 3)
        group.destroy()
        assert group.release_entries("a", *((entry_id, 0) for entry_id in entry_ids)) == 0
        assert group.looked_at == 3


class TestDeadlines:
    def test_a_call_that_is_executed_after_its_deadline_changes_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        assert group.release_entries("a", (entry_id, 0), deadline_ms=group.now_ms - 1) == 0
        assert group.looked_at == 0
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_a_call_in_time_is_executed(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        assert group.release_entries("a", (entry_id, 0), deadline_ms=group.now_ms + 60_000) == 1

    def test_a_late_call_says_so_while_the_group_is_missing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        assert group.release_entries("a", (entry_id, 0), deadline_ms=group.now_ms - 1) == 0
        assert group.looked_at == 0


def test_the_list_of_workers_has_an_end_also_if_it_begins_here(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    assert 0 < group.client.pttl(KEYS.workers) <= KEPT_MS


def test_a_user_that_may_not_look_gets_the_error(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    refused = pytest.raises(redis.ResponseError, match=r"NOPERM|permission|can.t run|ACL")
    with group.as_user("allkeys", "+@all", "-xpending") as narrow, refused:
        narrow.release_entries("a", (entry_id, 0))
    assert group.holds == {entry_id: Hold("a", 1)}
