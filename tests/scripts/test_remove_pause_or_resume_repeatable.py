"""remove_pause_or_resume_repeatable.lua alone: a repeatable fires, is paused, or is gone with its spec; never two."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import HOUR_MS, KEYS, Group


def store(group: Group, *keys: str) -> None:
    for key in keys:
        group.upsert_repeatable(key, 5000, b"spec of " + key.encode())


class TestRemove:
    def test_a_removed_repeatable_is_gone_with_its_spec(self, group: Group) -> None:
        store(group, "nightly")
        assert group.remove_pause_or_resume_repeatable("remove", "nightly") == 1
        assert group.keys == {KEYS.stream}

    def test_a_paused_repeatable_can_be_removed(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert group.remove_pause_or_resume_repeatable("remove", "nightly") == 1
        assert group.keys == {KEYS.stream}

    def test_the_others_stay(self, group: Group) -> None:
        store(group, "1", "2", "3")
        group.remove_pause_or_resume_repeatable("pause", "2")
        group.remove_pause_or_resume_repeatable("remove", "1")
        assert (group.repeatables, group.paused) == ({b"3": 5000}, {b"2": 5000})
        assert group.spec("2")[b"spec"] == b"spec of 2"

    def test_the_same_call_again_finds_nothing(self, group: Group) -> None:
        store(group, "nightly")
        assert [group.remove_pause_or_resume_repeatable("remove", "nightly") for _ in range(2)] == [1, 0]

    def test_a_spec_that_was_left_behind_goes_too(self, group: Group) -> None:
        group.client.hset(KEYS.repeat_spec("nightly"), "spec", "x")
        assert group.remove_pause_or_resume_repeatable("remove", "nightly") == 0
        assert group.keys == {KEYS.stream}

    def test_a_paused_repeatable_that_another_process_removed_is_gone(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat_paused, {"nightly": 1})
        assert group.remove_pause_or_resume_repeatable("remove", "nightly") == 0
        assert group.keys == {KEYS.stream}

    def test_a_repeatable_in_both_sets_is_removed_once(self, group: Group) -> None:
        store(group, "nightly")
        group.client.zadd(KEYS.repeat_paused, {"nightly": 1})
        assert group.remove_pause_or_resume_repeatable("remove", "nightly") == 1
        assert group.keys == {KEYS.stream}


class TestPause:
    def test_a_paused_repeatable_does_not_fire_and_keeps_its_time_and_its_spec(self, group: Group) -> None:
        store(group, "nightly")
        assert group.remove_pause_or_resume_repeatable("pause", "nightly") == 1
        assert (group.repeatables, group.paused) == ({}, {b"nightly": 5000})
        assert group.spec("nightly")[b"spec"] == b"spec of nightly"
        assert group.due_repeatables().specs == []

    def test_the_same_call_again_finds_nothing(self, group: Group) -> None:
        store(group, "nightly")
        assert [group.remove_pause_or_resume_repeatable("pause", "nightly") for _ in range(2)] == [1, 0]
        assert group.paused == {b"nightly": 5000}

    def test_an_unknown_key_pauses_nothing(self, group: Group) -> None:
        store(group, "nightly")
        assert group.remove_pause_or_resume_repeatable("pause", "other") == 0
        assert (group.repeatables, group.paused) == ({b"nightly": 5000}, {})

    def test_no_message_is_published(self, group: Group) -> None:
        store(group, "nightly")
        with group.published(KEYS.repeat_channel) as heard:
            group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert heard == []


class TestResume:
    def test_a_resumed_repeatable_fires_from_the_given_time(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 1
        assert (group.repeatables, group.paused) == ({b"nightly": 9000}, {})

    def test_the_same_call_again_finds_nothing(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert [group.remove_pause_or_resume_repeatable("resume", "nightly", score) for score in (9000, 9999)] == [1, 0]
        assert group.repeatables == {b"nightly": 9000}

    def test_a_repeatable_that_fires_keeps_its_time(self, group: Group) -> None:
        store(group, "nightly")
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 0
        assert group.repeatables == {b"nightly": 5000}

    def test_a_removed_repeatable_does_not_come_back(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        group.remove_pause_or_resume_repeatable("remove", "nightly")
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 0
        assert group.keys == {KEYS.stream}

    def test_a_spec_that_was_left_behind_does_not_fire_again(self, group: Group) -> None:
        group.client.hset(KEYS.repeat_spec("nightly"), "spec", "x")
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 0
        assert group.client.exists(KEYS.repeat) == 0

    def test_a_repeatable_that_another_process_stored_is_not_paused(self, group: Group) -> None:
        store(group, "nightly")
        group.client.zadd(KEYS.repeat_paused, {"nightly": 1})
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 0
        assert (group.repeatables, group.paused) == ({b"nightly": 5000}, {})

    def test_a_repeatable_without_a_spec_was_removed(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        group.client.delete(KEYS.repeat_spec("nightly"))
        assert group.remove_pause_or_resume_repeatable("resume", "nightly", 9000) == 0
        assert group.keys == {KEYS.stream}

    def test_schedulers_hear_in_how_many_ms_it_is_due(self, group: Group) -> None:
        store(group, "nightly")
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        with group.published(KEYS.repeat_channel) as heard:
            group.remove_pause_or_resume_repeatable("resume", "nightly", group.now_ms + HOUR_MS)
            group.remove_pause_or_resume_repeatable("resume", "nightly", group.now_ms + HOUR_MS)
        assert len(heard) == 1
        assert HOUR_MS - 60_000 < heard[0] <= HOUR_MS


@pytest.mark.parametrize("what", ("remove", "pause", "resume"))
@pytest.mark.parametrize("key", (KEYS.repeat, KEYS.repeat_paused))
def test_a_key_of_another_type_costs_no_repeatable(group: Group, what: str, key: str) -> None:
    store(group, "nightly")
    if what == "resume":
        group.remove_pause_or_resume_repeatable("pause", "nightly")
    firing, paused = group.repeatables, group.paused
    saved = group.client.dump(key)
    group.client.delete(key)
    group.client.set(key, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.remove_pause_or_resume_repeatable(what, "nightly", 9000)
    group.client.delete(key)
    if saved is not None:
        group.client.restore(key, 0, saved)
    assert (group.repeatables, group.paused) == (firing, paused)
    assert group.spec("nightly")[b"spec"] == b"spec of nightly"
