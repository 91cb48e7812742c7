"""upsert_repeatable.lua alone: spec, override, count and first time are stored together, or only what has changed."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import HOUR_MS, KEYS, Group


def stored(spec: bytes, retry: bytes = b"", fired: bytes = b"0") -> dict[bytes, bytes]:
    return {b"spec": spec, b"retry": retry, b"fired": fired}


class TestNew:
    def test_a_new_one_is_stored(self, group: Group) -> None:
        assert group.upsert_repeatable_after(b"", "nightly", 5000, b"\x00\xff") == [1, b"5000", b"0", 0]
        assert group.repeatables == {b"nightly": 5000}
        assert group.spec("nightly") == stored(b"\x00\xff")

    def test_the_override_is_stored_beside_the_spec(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"spec", b"override")
        assert group.spec("nightly") == stored(b"spec", b"override")

    def test_a_new_repeatable_replaces_the_one_with_its_key(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"old")
        assert group.upsert_repeatable("nightly", 9000, b"new") == 0
        assert group.repeatables == {b"nightly": 9000}
        assert group.spec("nightly") == stored(b"new")

    def test_a_new_repeatable_may_be_due_before_the_old_one(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000)
        group.upsert_repeatable("nightly", 4000)
        assert group.repeatables == {b"nightly": 4000}

    def test_a_new_repeatable_has_never_fired_and_keeps_no_old_override(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"old", b"override")
        group.client.hset(KEYS.repeat_spec("nightly"), "fired", 7)
        group.upsert_repeatable("nightly", 9000, b"new")
        assert group.spec("nightly") == stored(b"new")

    def test_a_replaced_paused_repeatable_fires_again(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000)
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert group.upsert_repeatable("nightly", 9000) == 0
        assert (group.repeatables, group.paused) == ({b"nightly": 9000}, {})

    def test_a_spec_that_was_left_behind_is_none(self, group: Group) -> None:
        group.client.hset(KEYS.repeat_spec("nightly"), mapping={"spec": "old", "fired": 7})
        assert group.upsert_repeatable_after(b"", "nightly", 5000, b"new") == [1, b"5000", b"0", 0]
        assert group.spec("nightly") == stored(b"new")

    def test_schedulers_hear_in_how_many_ms_it_is_due(self, group: Group) -> None:
        with group.published(KEYS.repeat_channel) as heard:
            group.upsert_repeatable("nightly", group.now_ms + HOUR_MS)
            group.upsert_repeatable("now", group.now_ms)
        assert len(heard) == 2
        assert HOUR_MS - 60_000 < heard[0] <= HOUR_MS
        assert -1000 < heard[1] <= 0


class TestKept:
    def test_a_changed_repeatable_keeps_its_time_and_its_count(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"old")
        group.client.hset(KEYS.repeat_spec("nightly"), "fired", 7)
        assert group.upsert_repeatable_after(b"old", "nightly", 9000, b"new", keeps=True) == [0, b"5000", b"7", 0]
        assert group.repeatables == {b"nightly": 5000}
        assert group.spec("nightly") == stored(b"new", fired=b"7")

    def test_a_changed_repeatable_keeps_its_pause(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"old")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert group.upsert_repeatable_after(b"old", "nightly", 9000, b"new", keeps=True) == [0, b"5000", b"0", 1]
        assert (group.repeatables, group.paused) == ({}, {b"nightly": 5000})
        assert group.spec("nightly") == stored(b"new")

    def test_a_changed_repeatable_has_the_new_override(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000, b"spec", b"old")
        group.upsert_repeatable("nightly", 5000, b"spec", b"new", keeps=True)
        assert group.spec("nightly") == stored(b"spec", b"new")
        group.upsert_repeatable("nightly", 5000, b"spec", keeps=True)
        assert group.spec("nightly") == stored(b"spec")

    def test_a_paused_repeatable_that_an_official_process_stored_fires(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000)
        group.client.zadd(KEYS.repeat_paused, {"nightly": 4000})
        assert group.upsert_repeatable_after(b"spec", "nightly", 9000, keeps=True) == [0, b"5000", b"0", 0]
        assert (group.repeatables, group.paused) == ({b"nightly": 5000}, {})

    def test_a_repeatable_that_never_fired_has_no_count(self, group: Group) -> None:
        """As an official producer stores it."""
        group.client.zadd(KEYS.repeat, {"nightly": 5000})
        group.client.hset(KEYS.repeat_spec("nightly"), "spec", "old")
        assert group.upsert_repeatable_after(b"old", "nightly", 9000, b"new", keeps=True) == [0, b"5000", b"0", 0]

    def test_no_message_is_published(self, group: Group) -> None:
        group.upsert_repeatable("nightly", 5000)
        with group.published(KEYS.repeat_channel) as heard:
            group.upsert_repeatable("nightly", 5000, keeps=True)
        assert heard == []


class TestSeen:
    @pytest.mark.parametrize("keeps", (True, False))
    def test_no_spec_is_stored_over_a_spec_that_was_not_seen(self, group: Group, keeps: bool) -> None:
        group.upsert_repeatable("nightly", 5000, b"theirs", b"override")
        for seen in (b"", b"mine"):
            assert group.upsert_repeatable_after(seen, "nightly", 9000, b"new", keeps=keeps) == []
        assert group.repeatables == {b"nightly": 5000}
        assert group.spec("nightly") == stored(b"theirs", b"override")

    def test_no_spec_is_stored_for_a_removed_repeatable(self, group: Group) -> None:
        assert group.upsert_repeatable_after(b"old", "nightly", 9000, b"new", keeps=True) == []
        assert group.keys == {KEYS.stream}

    def test_the_same_call_again_stores_nothing(self, group: Group) -> None:
        replies = [group.upsert_repeatable_after(b"", "nightly", 5000, b"spec", b"override") for _ in range(3)]
        assert replies == [[1, b"5000", b"0", 0], [], []]
        assert group.repeatables == {b"nightly": 5000}
        assert group.spec("nightly") == stored(b"spec", b"override")


def test_other_repeatables_stay_as_they_are(group: Group) -> None:
    group.upsert_repeatable("1", 5000, b"1")
    group.upsert_repeatable("2", 6000, b"2")
    group.remove_pause_or_resume_repeatable("pause", "1")
    group.upsert_repeatable("3", 7000, b"3")
    assert (group.repeatables, group.paused) == ({b"2": 6000, b"3": 7000}, {b"1": 5000})
    assert (group.spec("1"), group.spec("2")) == (stored(b"1"), stored(b"2"))


def test_the_script_touches_only_its_own_keys(group: Group) -> None:
    group.upsert_repeatable("nightly", 5000, b"spec", b"override")
    assert group.keys == {KEYS.stream, KEYS.repeat, KEYS.repeat_spec("nightly")}


@pytest.mark.parametrize("key", (KEYS.repeat, KEYS.repeat_paused, KEYS.repeat_spec("nightly")))
def test_a_key_of_another_type_is_an_error_and_nothing_is_stored(group: Group, key: str) -> None:
    group.client.set(key, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.upsert_repeatable_after(b"", "nightly", 5000)
    assert group.keys == {KEYS.stream, key}
    group.client.delete(key)
    assert group.upsert_repeatable("nightly", 5000) == 1
    assert len(group.due_repeatables().specs) == 1


def test_repeatables_are_stored_beside_10_000_others(group: Group) -> None:
    group.client.zadd(KEYS.repeat, {f"another-{number}": number for number in range(10_000)})
    for number in range(100):
        assert group.upsert_repeatable_after(b"", f"key-{number}", 100 * number) == [1, b"%d" % (100 * number), b"0", 0]
    assert len(group.repeatables) == 10_100
