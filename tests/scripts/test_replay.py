"""replay.lua alone: a dead job comes back to the stream, if its letter is still there, and once."""

from __future__ import annotations

from contextlib import suppress

import pytest
import redis

from tests.scripts.group import GROUP, KEYS, Group
from tests.support.server import RedisServer


def test_a_dead_job_leaves_the_dead_letters_and_joins_the_stream(group: Group) -> None:
    (letter,) = group.die()
    assert group.replay((letter, b"x", b"mail")) == 1
    assert group.letters == []
    assert [fields for _, fields in group.client.xrange(KEYS.stream)] == [{b"d": b"x", b"n": b"mail"}]


def test_a_job_without_a_name_has_no_field_for_it(group: Group) -> None:
    (letter,) = group.die()
    assert group.replay((letter, b"x", b"")) == 1
    assert [fields for _, fields in group.client.xrange(KEYS.stream)] == [{b"d": b"x"}]


def test_jobs_come_back_in_the_order_of_the_call(group: Group) -> None:
    first, second, third = group.die(3)
    assert group.replay((third, b"3", b"mail"), (first, b"1", b""), (second, b"2", b"mail")) == 3
    assert group.envelopes == [b"3", b"1", b"2"]


def test_replayed_jobs_come_behind_waiting_ones(group: Group) -> None:
    (letter,) = group.die()
    waiting = group.add(3)
    assert group.replay((letter, b"x", b"mail")) == 1
    assert group.stream[:3] == waiting
    assert group.envelopes[3] == b"x"


def test_workers_read_replayed_jobs_like_any_other(group: Group) -> None:
    letters = group.die(2)
    group.replay(*((letter, b"x", b"mail") for letter in letters))
    assert group.read("a", 10) == group.stream
    assert [hold.deliveries for hold in group.holds.values()] == [1, 1]


def test_neighbours_stay_where_they_are(group: Group) -> None:
    held = group.deliver_to("a")
    first, second, third = group.die(3)
    group.replay((second, b"x", b"mail"))
    assert group.letter_ids == [first, third]
    assert list(group.holds) == held


def test_a_letter_that_is_gone_is_not_replayed(group: Group) -> None:
    (letter,) = group.die()
    group.client.xdel(KEYS.dead, letter)
    assert group.replay((letter, b"x", b"mail"), (b"1-1", b"never", b"")) == 0
    assert group.stream == []


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    jobs = [(letter, b"x", b"mail") for letter in group.die(2)]
    assert [group.replay(*jobs) for _ in range(3)] == [2, 0, 0]
    assert group.envelopes == [b"x", b"x"]


def test_the_same_letter_twice_in_one_call_moves_once(group: Group) -> None:
    (letter,) = group.die()
    assert group.replay((letter, b"x", b"mail"), (letter, b"x", b"mail")) == 1
    assert group.envelopes == [b"x"]


def test_the_letters_of_a_batch_that_are_still_dead_come_back(group: Group) -> None:
    """As for two processes that replay the same page at the same time."""
    first, second, third = group.die(3)
    assert group.replay((second, b"theirs", b"mail")) == 1
    assert group.replay((first, b"1", b"mail"), (second, b"ours", b"mail"), (third, b"3", b"mail")) == 2
    assert group.envelopes == [b"theirs", b"1", b"3"]


def test_no_key_is_created_without_dead_letters(group: Group) -> None:
    group.client.delete(KEYS.stream)
    assert group.replay((b"1-1", b"x", b"mail")) == 0
    assert group.keys == set()


def test_a_batch_of_none_moves_none(group: Group) -> None:
    group.die()
    assert group.replay() == 0
    assert (group.stream, len(group.letters)) == ([], 1)


def test_a_missing_stream_is_created(group: Group) -> None:
    """A new group begins at the first entry, so its workers find the job."""
    (letter,) = group.die()
    group.client.delete(KEYS.stream)
    assert group.replay((letter, b"x", b"mail")) == 1
    group.create()
    assert group.read("a", 10) == group.stream


def test_a_replayed_job_waits_for_a_missing_group(group: Group) -> None:
    (letter,) = group.die()
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.replay((letter, b"x", b"mail")) == 1
    assert group.envelopes == [b"x"]


def test_any_bytes_pass_unchanged(group: Group) -> None:
    values = [bytes(range(256)), b"", b"\0", b"\r\n", b"x" * 100_000]
    letters = group.die(len(values))
    jobs = [(letter, value, value) for letter, value in zip(letters, values, strict=True)]
    assert group.replay(*jobs) == len(values)
    stored = [fields for _, fields in group.client.xrange(KEYS.stream)]
    assert stored == [{b"d": value, b"n": value} if value else {b"d": value} for value in values]


def test_10_000_jobs_are_replayed_in_one_call(group: Group) -> None:
    letters = group.die(10_000)
    assert group.replay(*((letter, letter, b"mail") for letter in letters)) == 10_000
    assert group.client.xlen(KEYS.dead) == 0
    assert group.envelopes == letters


class TestTrouble:
    def test_the_script_touches_only_its_own_keys(self, group: Group) -> None:
        first, _ = group.die(2)
        group.replay((first, b"x", b"mail"))
        assert group.keys == {KEYS.stream, KEYS.dead}

    def test_a_stream_of_another_type_costs_no_letter(self, group: Group) -> None:
        (letter,) = group.die()
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        assert group.replay((letter, b"x", b"mail")) == 0
        assert "WRONGTYPE" in group.refusal
        assert group.letter_ids == [letter]
        group.client.delete(KEYS.stream)
        assert group.replay((letter, b"x", b"mail")) == 1

    def test_dead_letters_of_another_type_add_no_job(self, group: Group) -> None:
        group.client.set(KEYS.dead, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.replay((b"1-1", b"x", b"mail"))
        assert group.stream == []

    def test_an_invalid_id_is_refused_and_costs_no_letter(self, group: Group) -> None:
        (letter,) = group.die()
        assert group.replay((b"not an id", b"x", b"mail"), (letter, b"y", b"mail")) == 0
        assert "Invalid stream ID" in group.refusal
        assert (group.letter_ids, group.stream) == ([letter], [])

    def test_no_job_is_lost_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            group.create()
            letters = group.die(3)
            client.config_set("maxmemory", 1)
            with suppress(redis.ResponseError):
                group.replay(*((letter, letter, b"mail") for letter in letters))
            client.config_set("maxmemory", 0)
            assert sorted(group.letter_ids + group.envelopes) == letters
