"""upsert_repeatable.lua alone: spec, override and first time are stored together, as if it had never fired."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import HOUR_MS, KEYS, Group


def test_a_new_one_is_stored(group: Group) -> None:
    assert group.upsert("nightly", 5000, b"\x00\xff") == 1
    assert group.repeatables == {b"nightly": 5000}
    assert group.spec("nightly") == {b"spec": b"\x00\xff"}


def test_its_override_is_stored_beside_the_spec(group: Group) -> None:
    group.upsert("nightly", 5000, b"spec", b"override")
    assert group.spec("nightly") == {b"spec": b"spec", b"retry": b"override"}


def test_it_takes_the_place_of_the_one_with_its_key(group: Group) -> None:
    group.upsert("nightly", 5000, b"old")
    assert group.upsert("nightly", 9000, b"new") == 0
    assert group.repeatables == {b"nightly": 9000}
    assert group.spec("nightly") == {b"spec": b"new"}


def test_it_may_be_due_sooner_than_the_old_one(group: Group) -> None:
    group.upsert("nightly", 5000)
    group.upsert("nightly", 4000)
    assert group.repeatables == {b"nightly": 4000}


def test_it_has_never_fired_and_keeps_nothing_of_the_old_override(group: Group) -> None:
    group.upsert("nightly", 5000, b"old", b"override")
    group.client.hset(KEYS.repeat_spec("nightly"), "fired", 7)
    group.upsert("nightly", 9000, b"new")
    assert group.spec("nightly") == {b"spec": b"new"}


def test_a_new_override_takes_the_place_of_the_old(group: Group) -> None:
    group.upsert("nightly", 5000, b"spec", b"old")
    group.upsert("nightly", 5000, b"spec", b"new")
    assert group.spec("nightly") == {b"spec": b"spec", b"retry": b"new"}


def test_one_that_was_paused_fires_again(group: Group) -> None:
    group.upsert("nightly", 5000)
    group.move_repeatable("pause", "nightly")
    assert group.upsert("nightly", 9000) == 1
    assert (group.repeatables, group.paused) == ({b"nightly": 9000}, {})


def test_others_stay_as_they_are(group: Group) -> None:
    group.upsert("1", 5000, b"1")
    group.upsert("2", 6000, b"2")
    group.move_repeatable("pause", "1")
    group.upsert("3", 7000, b"3")
    assert (group.repeatables, group.paused) == ({b"2": 6000, b"3": 7000}, {b"1": 5000})
    assert (group.spec("1"), group.spec("2")) == ({b"spec": b"1"}, {b"spec": b"2"})


def test_the_same_call_again_changes_nothing_more(group: Group) -> None:
    assert [group.upsert("nightly", 5000, b"spec", b"override") for _ in range(3)] == [1, 0, 0]
    assert group.repeatables == {b"nightly": 5000}
    assert group.spec("nightly") == {b"spec": b"spec", b"retry": b"override"}


def test_schedulers_hear_in_how_many_ms_it_is_due(group: Group) -> None:
    with group.heard(KEYS.repeat_channel) as heard:
        group.upsert("nightly", group.now_ms + HOUR_MS)
        group.upsert("now", group.now_ms)
    assert len(heard) == 2
    assert HOUR_MS - 1000 < heard[0] <= HOUR_MS
    assert -1000 < heard[1] <= 0


def test_only_its_own_keys_are_touched(group: Group) -> None:
    group.upsert("nightly", 5000, b"spec", b"override")
    assert group.keys == {KEYS.stream, KEYS.repeat, KEYS.repeat_spec("nightly")}


@pytest.mark.parametrize("key", (KEYS.repeat, KEYS.repeat_paused, KEYS.repeat_spec("nightly")))
def test_a_key_of_another_type_is_an_error_and_nothing_fires(group: Group, key: str) -> None:
    group.client.set(key, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.upsert("nightly", 5000)
    group.client.delete(key)
    assert group.due().specs == []
    assert group.upsert("nightly", 5000) == 1
    assert len(group.due().specs) == 1


def test_10_000_of_them(group: Group) -> None:
    for number in range(10_000):
        group.upsert(f"key-{number}", number)
    assert len(group.repeatables) == 10_000
