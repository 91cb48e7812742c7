"""count_delivery.lua alone: entries of a former process of the same name count one more delivery, once."""

from __future__ import annotations

from contextlib import suppress

import redis

from tests.scripts.group import GROUP, HOUR_MS, KEYS, Group, Hold


def test_an_entry_of_ours_is_counted_once_more(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.count_delivery("a", (entry_id, 1)) == 1
    assert group.holds == {entry_id: Hold("a", 2)}


def test_a_counted_entry_looks_fresh(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.make_idle(HOUR_MS, entry_id)
    group.count_delivery("a", (entry_id, 1))
    assert group.idle_ms(entry_id) < 10_000


def test_the_count_grows_with_each_start(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    for delivery in range(1, 5):
        assert [entry.deliveries for entry in group.list_pending("a")] == [delivery]
        assert group.count_delivery("a", (entry_id, delivery)) == 1
    assert group.holds == {entry_id: Hold("a", 5)}


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert [group.count_delivery("a", (entry_id, 1)) for _ in range(3)] == [1, 0, 0]
    assert group.holds == {entry_id: Hold("a", 2)}


def test_a_former_process_can_settle_nothing_after_the_count(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.count_delivery("a", (entry_id, 1))
    assert group.reschedule("a", (entry_id, 0, b"member")) == 0
    assert group.bury("a", (entry_id, [b"d", b"x"])) == 0
    assert group.release_entries("a", (entry_id, 0)) == 0
    assert group.renew_worker_lease("a", entry_id) == [entry_id]
    assert group.reschedule("a", (entry_id, 0, b"member"), delivery=2) == 1


def test_an_entry_that_was_taken_over_is_left_to_its_new_owner(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xclaim(KEYS.stream, GROUP, "b", 0, [entry_id], justid=True)
    assert group.count_delivery("a", (entry_id, 1)) == 0
    assert group.holds == {entry_id: Hold("b", 1)}


def test_an_entry_that_came_back_by_another_delivery_is_not_counted(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.lose_and_get_back("a", entry_id)
    assert [group.count_delivery("a", (entry_id, delivery)) for delivery in (1, 2, 4)] == [0, 0, 0]
    assert group.holds == {entry_id: Hold("a", 3)}


def test_an_unread_entry_stays_unread(group: Group) -> None:
    (entry_id,) = group.add(1)
    assert group.count_delivery("a", (entry_id, 0)) == 0
    assert group.count_delivery("a", (entry_id, 1)) == 0
    assert group.read("b", 1) == [entry_id]


def test_an_entry_that_is_finished_is_not_brought_back(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xack(KEYS.stream, GROUP, entry_id)
    assert group.count_delivery("a", (entry_id, 1)) == 0
    assert group.holds == {}


def test_the_entries_that_are_still_ours_are_counted(group: Group) -> None:
    first, stolen, third = group.deliver_to("a", 3)
    group.steal(stolen, "b")
    assert group.count_delivery("a", (b"not an id", 1), (first, 1), (stolen, 1), (b"1-1", 1), (third, 1)) == 2
    assert group.holds == {first: Hold("a", 2), stolen: Hold("b", 2), third: Hold("a", 2)}


def test_an_entry_that_is_not_named_is_not_counted(group: Group) -> None:
    named, unnamed = group.deliver_to("a", 2)
    group.count_delivery("a", (named, 1))
    assert group.holds == {named: Hold("a", 2), unnamed: Hold("a", 1)}


def test_an_entry_deleted_by_others_does_no_harm_to_the_rest(group: Group) -> None:
    deleted, mine = group.deliver_to("a", 2)
    group.client.xdel(KEYS.stream, deleted)
    group.count_delivery("a", (deleted, 1), (mine, 1))
    assert group.holds[mine] == Hold("a", 2)


def test_no_key_is_created_without_the_group(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with suppress(redis.ResponseError):
        assert group.count_delivery("a", (entry_id, 1)) == 0
    assert group.keys == {KEYS.stream}


def test_no_stream_is_created(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.delete(KEYS.stream)
    with suppress(redis.ResponseError):
        assert group.count_delivery("a", (entry_id, 1)) == 0
    assert group.keys == set()


def test_an_empty_call_counts_none(group: Group) -> None:
    assert group.count_delivery("a") == 0
    assert group.keys == {KEYS.stream}


def test_10_000_entries_are_counted_in_one_call(group: Group) -> None:
    entry_ids = group.deliver_to("a", 10_000)
    assert group.count_delivery("a", *((entry_id, 1) for entry_id in entry_ids)) == 10_000
    assert set(group.holds.values()) == {Hold("a", 2)}


def test_entries_are_counted_without_memory_too(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    with group.full_memory():
        assert group.count_delivery("a", (entry_id, 1)) == 1
