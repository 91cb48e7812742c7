"""list_pending.lua alone: a worker lists its pending entries page by page."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, HOUR_MS, KEYS, Group, Hold, Taken


def test_pending_entries_are_listed_with_fields_and_deliveries(group: Group) -> None:
    first, second = group.deliver_to("a", 2)
    group.steal(second, "b")
    group.steal(second, "a")
    assert group.list_pending("a") == [
        Taken(first, {b"d": b"job 0", b"n": b"mail"}, 1),
        Taken(second, {b"d": b"job 1", b"n": b"mail"}, 3),
    ]


def test_entries_of_other_consumers_and_unread_entries_are_not_listed(group: Group) -> None:
    (mine,) = group.deliver_to("a")
    group.deliver_to("b")
    group.add(1)
    assert [entry.id for entry in group.list_pending("a")] == [mine]


def test_the_listing_changes_nothing(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.make_idle(HOUR_MS, entry_id)
    for _ in range(3):
        group.list_pending("a")
    assert group.holds == {entry_id: Hold("a", 1)}
    assert group.idle_ms(entry_id) >= HOUR_MS
    assert group.keys == {KEYS.stream}


def test_an_entry_that_was_deleted_is_listed_without_fields(group: Group) -> None:
    deleted, kept = group.deliver_to("a", 2)
    group.client.xdel(KEYS.stream, deleted)
    assert [(entry.id, entry.fields is None) for entry in group.list_pending("a")] == [(deleted, True), (kept, False)]


def test_each_entry_is_on_one_page(group: Group) -> None:
    entry_ids = group.deliver_to("a", 7)
    found, start = [], b"-"
    for _ in range(3):
        page = group.list_pending("a", start=start, count=3)
        found += [entry.id for entry in page]
        start = b"(" + page[-1].id
    assert found == entry_ids
    assert group.list_pending("a", start=start, count=3) == []


def test_a_page_may_begin_behind_an_entry_that_is_gone(group: Group) -> None:
    first, second, third = group.deliver_to("a", 3)
    group.client.xack(KEYS.stream, GROUP, first, second)
    assert [entry.id for entry in group.list_pending("a", start=b"(" + second)] == [third]


def test_a_consumer_without_pending_entries_gets_none(group: Group) -> None:
    assert group.list_pending("a") == []
    assert group.consumers == set()


def test_a_missing_group_is_an_error(group: Group) -> None:
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.list_pending("a")


def test_10_000_entries_fit_on_one_page(group: Group) -> None:
    entry_ids = group.deliver_to("a", 10_000)
    assert [entry.id for entry in group.list_pending("a", count=10_000)] == entry_ids


def test_the_bytes_bound_a_page(group: Group) -> None:
    entry_ids = [group.client.xadd(KEYS.stream, {"d": b"x" * 999}) for _ in range(5)]
    group.read("a", 5)
    assert [entry.id for entry in group.list_pending("a", bounds=(2001, 2**30))] == entry_ids[:3]
    assert [entry.id for entry in group.list_pending("a", bounds=(1, 2**30))] == entry_ids[:1]


def test_a_too_large_entry_comes_as_its_size(group: Group) -> None:
    for size in (5001, 5000):
        group.client.xadd(KEYS.stream, {"d": b"x" * (size - 1)})
    group.read("a", 2)
    large, fits = group.list_pending("a", bounds=(1, 5000))
    assert (large.fields, isinstance(fits.fields, dict)) == (5001, True)


def test_the_search_has_an_end(group: Group) -> None:
    entry_ids = group.deliver_to("a", 5)
    assert [entry.id for entry in group.list_pending("a", last=entry_ids[2])] == entry_ids[:3]
