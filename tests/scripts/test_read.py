"""read.lua alone: new entries by number and by bytes."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import KEYS, UNBOUNDED, Group, Hold, Taken


def add_batch_by_transaction(group: Group, count: int, size: int = 1000) -> list[bytes]:
    return [group.client.xadd(KEYS.stream, {"d": b"x" * (size - 1)}) for _ in range(count)]


def test_new_entries_come_in_their_order_and_are_ours(group: Group) -> None:
    first, second = group.add(2)
    assert group.read_now_within_bounds("a") == [
        Taken(first, {b"d": b"job 0", b"n": b"mail"}, 0),
        Taken(second, {b"d": b"job 1", b"n": b"mail"}, 0),
    ]
    assert group.holds == {first: Hold("a", 1), second: Hold("a", 1)}


def test_an_entry_is_read_once(group: Group) -> None:
    group.deliver_to("b")
    (fresh,) = group.add(1)
    assert [entry.id for entry in group.read_now_within_bounds("a")] == [fresh]
    assert group.read_now_within_bounds("a") == []


def test_the_count_bounds_one_call(group: Group) -> None:
    entry_ids = group.add(5)
    assert [entry.id for entry in group.read_now_within_bounds("a", count=3)] == entry_ids[:3]
    assert list(group.holds) == entry_ids[:3]


def test_the_bytes_bound_one_call_and_the_other_entries_stay_unread(group: Group) -> None:
    entry_ids = add_batch_by_transaction(group, 9)
    assert len(group.read_now_within_bounds("a", bounds=(3001, 2**30))) == 4
    assert list(group.holds) == entry_ids[:4]
    assert len(group.read_now_within_bounds("a", bounds=(1, 2**30))) == 1
    assert len(group.read_now_within_bounds("b")) == 4


def test_a_too_large_entry_comes_as_its_size(group: Group) -> None:
    (large,) = add_batch_by_transaction(group, 1, size=5001)
    (fits,) = add_batch_by_transaction(group, 1, size=5000)
    taken = group.read_now_within_bounds("a", bounds=(2**30, 5000))
    assert [(entry.id, isinstance(entry.fields, dict)) for entry in taken] == [(large, False), (fits, True)]
    assert taken[0].fields == 5001
    assert list(group.holds) == [large, fits]


def test_an_entry_that_is_too_large_takes_nothing_of_the_bytes(group: Group) -> None:
    add_batch_by_transaction(group, 3, size=5001)
    assert len(group.read_now_within_bounds("a", bounds=(1, 5000))) == 3


def test_an_empty_stream_brings_nothing(group: Group) -> None:
    assert group.read_now_within_bounds("a") == []


def test_a_missing_group_is_an_error(group: Group) -> None:
    group.destroy()
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.read_now_within_bounds("a", bounds=UNBOUNDED)
