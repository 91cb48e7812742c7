"""due_repeatables.lua alone: the leader gets the due repeatables, by the server's clock, and the next due time."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest
import redis

from tests.scripts.group import HOUR_MS, KEYS, DueReply, Group


def store(group: Group, key: str, by_ms: float = -10, spec: bytes = b"spec", **fields: str) -> int:
    """Negative: it has been due for so long. Returns its score."""
    score = int(group.now_ms + by_ms)
    group.client.zadd(KEYS.repeat, {key: score})
    group.client.hset(KEYS.repeat_spec(key), mapping={"spec": spec, **fields})
    return score


def sha(spec: bytes) -> str:
    return sha1(spec).hexdigest()


def keys_of(due: DueReply) -> list[bytes]:
    return [spec[0] for spec in due.specs]


class TestDue:
    def test_a_due_one_comes_with_all_that_is_needed_to_decide(self, group: Group) -> None:
        score = store(group, "nightly", spec=b"\x00\xff", fired="7", retry=sha(b"\x00\xff") + "override")
        due = group.due_repeatables()
        assert due.specs == [(b"nightly", str(score).encode(), b"\x00\xff", b"7", b"override", 2)]

    def test_a_repeatable_without_fires_and_override_comes_with_empty_fields(self, group: Group) -> None:
        store(group, "nightly")
        assert group.due_repeatables().specs[0][3:] == (b"0", b"", 4)

    def test_the_override_of_another_spec_is_none(self, group: Group) -> None:
        """An official producer replaces the spec and leaves fields that it does not know."""
        for retry in ("override", "", "0" * 40 + "override", sha(b"spec") + "x" * 10_000):
            store(group, "nightly", retry=retry)
            assert group.due_repeatables().specs[0][4] == b""

    def test_a_count_of_more_than_20_digits_is_not_sent(self, group: Group) -> None:
        for fired, sent in (("9" * 20, b"9" * 20), ("9" * 21, b"too long"), ("9" * 5000, b"too long")):
            store(group, "nightly", fired=fired)
            assert group.due_repeatables().specs[0][3] == sent

    def test_an_override_of_ten_kilobytes_is_none(self, group: Group) -> None:
        for size, sent in ((9999, b"x" * (9999 - 40)), (10_000, b"")):
            store(group, "nightly", retry=sha(b"spec") + "x" * (size - 40))
            assert group.due_repeatables().specs[0][4] == sent

    def test_the_servers_time_comes_along(self, group: Group) -> None:
        before = group.now_ms
        assert before <= group.due_repeatables().now_ms <= group.now_ms

    def test_a_repeatable_that_is_not_due_does_not_come(self, group: Group) -> None:
        store(group, "due")
        store(group, "soon", 2000)
        store(group, "later", HOUR_MS)
        assert keys_of(group.due_repeatables()) == [b"due"]

    def test_no_repeatable_comes_early(self, group: Group) -> None:
        for _ in range(50):
            score = store(group, "nightly", 2)
            while not (due := group.due_repeatables()).specs:
                pass
            assert score <= due.now_ms <= group.now_ms

    def test_the_longest_due_come_first(self, group: Group) -> None:
        for by_ms in (-10_000, -30_000, -20_000):
            store(group, str(by_ms), by_ms)
        assert keys_of(group.due_repeatables()) == [b"-30000", b"-20000", b"-10000"]

    def test_a_look_at_due_repeatables_changes_none(self, group: Group) -> None:
        store(group, "nightly")
        assert group.due_repeatables().specs == group.due_repeatables().specs
        assert (len(group.repeatables), group.spec("nightly")) == (1, {b"spec": b"spec"})

    def test_a_key_may_be_any_bytes(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat, {b"\xff\x00": 5})
        group.client.hset(KEYS.repeat_spec("").encode() + b"\xff\x00", "spec", b"x")
        assert group.due_repeatables().specs == [(b"\xff\x00", b"5", b"x", b"0", b"", 1)]

    def test_a_due_repeatable_without_a_spec_is_forgotten(self, group: Group) -> None:
        store(group, "first", -30)
        group.client.zadd(KEYS.repeat, {"empty": group.now_ms - 20})
        store(group, "last", -10)
        assert keys_of(group.due_repeatables()) == [b"first", b"last"]
        assert set(group.repeatables) == {b"first", b"last"}

    def test_a_repeatable_without_a_spec_that_is_not_due_stays(self, group: Group) -> None:
        store(group, "first")
        group.client.zadd(KEYS.repeat, {"empty": group.now_ms + HOUR_MS})
        group.due_repeatables()
        assert b"empty" in group.repeatables

    def test_a_batch_bounds_one_call(self, group: Group) -> None:
        for number in range(5):
            store(group, str(number), number - 100)
        due = group.due_repeatables(batch=2)
        assert (keys_of(due), due.next_ms) == ([b"0", b"1"], 0)

    def test_a_queue_without_repeatables_gives_none(self, group: Group) -> None:
        assert group.due_repeatables()[2:4] == (-1, [])
        assert group.keys == {KEYS.stream, KEYS.scheduler_lease}

    def test_10_000_due_repeatables_are_listed_in_one_call(self, group: Group) -> None:
        with group.client.pipeline(transaction=False) as pipeline:
            for number in range(10_000):
                pipeline.zadd(KEYS.repeat, {f"key-{number}": number})
                pipeline.hset(KEYS.repeat_spec(f"key-{number}"), "spec", str(number))
            pipeline.execute()
        due = group.due_repeatables(batch=10_000)
        assert [spec[2] for spec in due.specs] == [b"%d" % number for number in range(10_000)]


class TestStrangers:
    """Values that no producer writes stop no other repeatable."""

    def test_a_score_that_is_no_time_gets_one(self, group: Group) -> None:
        for number, score in enumerate(("-inf", "-5", "7.5", "9.0")):
            store(group, str(number))
            group.client.zadd(KEYS.repeat, {str(number): score})
        assert [(spec[0], spec[1]) for spec in group.due_repeatables().specs] == [
            (b"0", b"0"), (b"1", b"0"), (b"2", b"7"), (b"3", b"9"),
        ]  # fmt: skip
        assert group.repeatables == {b"0": 0, b"1": 0, b"2": 7, b"3": 9}

    def test_a_key_that_holds_something_else_comes_with_an_empty_spec(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat, {"odd": 5})
        group.client.set(KEYS.repeat_spec("odd"), "a string")
        store(group, "good")
        assert group.due_repeatables().specs[0] == (b"odd", b"5", b"", b"0", b"", 0)
        assert keys_of(group.due_repeatables()) == [b"odd", b"good"]

    def test_a_spec_that_is_too_large_comes_with_its_size_alone(self, group: Group) -> None:
        store(group, "large", -20, spec=b"x" * 101)
        store(group, "good", spec=b"y" * 100)
        assert [(spec[2], spec[5]) for spec in group.due_repeatables(spec_bytes=100).specs] == [
            (b"", 101),
            (b"y" * 100, 100),
        ]

    def test_a_count_of_many_digits_is_none(self, group: Group) -> None:
        store(group, "nightly", fired="1" * 100_000)
        assert group.due_repeatables().specs[0][3] == b"too long"

    def test_a_time_that_never_comes_is_far_away(self, group: Group) -> None:
        scores: tuple[Any, ...] = ("+inf", 1e308)
        for score in scores:
            store(group, "nightly")
            group.client.zadd(KEYS.repeat, {"nightly": score})
            assert group.due_repeatables()[2:4] == (int(9e15), [])
            store(group, "due")
            assert group.due_repeatables().next_ms == int(9e15)
            group.client.delete(KEYS.repeat)


class TestPaused:
    """Repeatables that an official producer has removed or stored are not paused; it does not know pauses."""

    def test_a_removed_repeatable_is_not_paused(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat_paused, {"gone": 5})
        group.due_repeatables()
        assert group.paused == {}

    def test_a_repeatable_that_fires_is_not_paused(self, group: Group) -> None:
        store(group, "nightly", HOUR_MS)
        group.client.zadd(KEYS.repeat_paused, {"nightly": 5})
        group.due_repeatables()
        assert (group.paused, list(group.repeatables)) == ({}, [b"nightly"])

    def test_a_paused_repeatable_stays_paused(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat_paused, {"nightly": 5})
        group.client.hset(KEYS.repeat_spec("nightly"), "spec", "spec")
        group.due_repeatables()
        assert group.paused == {b"nightly": 5}

    def test_each_call_checks_a_few_of_many_paused_repeatables(self, group: Group) -> None:
        group.client.zadd(KEYS.repeat_paused, {str(number): 5 for number in range(25)})
        for left in (15, 5, 0):
            group.due_repeatables()
            assert len(group.paused) == left

    def test_a_process_that_does_not_lead_checks_no_paused_repeatable(self, group: Group) -> None:
        group.due_repeatables("a")
        group.client.zadd(KEYS.repeat_paused, {"gone": 5})
        group.due_repeatables("b")
        assert group.paused == {b"gone": 5}

    def test_a_set_of_another_type_stops_no_job(self, group: Group) -> None:
        store(group, "nightly")
        group.client.set(KEYS.repeat_paused, "a string")
        assert len(group.due_repeatables().specs) == 1


class TestBytes:
    def test_the_bytes_bound_one_call_and_the_next_call_is_due_at_once(self, group: Group) -> None:
        for number in range(5):
            store(group, str(number), number - 100, b"x" * 100)
        due = group.due_repeatables(all_bytes=250)
        assert (keys_of(due), due.next_ms) == ([b"0", b"1"], 0)

    def test_the_bound_counts_each_byte_of_the_specs_and_nothing_else(self, group: Group) -> None:
        store(group, "0", -100, b"x" * 10)
        store(group, "1", -90)
        group.client.delete(KEYS.repeat_spec("1"))
        group.client.set(KEYS.repeat_spec("1"), "a string")
        store(group, "2", -80, b"x" * 10)
        assert keys_of(group.due_repeatables(all_bytes=20)) == [b"0", b"1", b"2"]
        assert keys_of(group.due_repeatables(all_bytes=19)) == [b"0", b"1"]

    def test_the_first_comes_in_any_case(self, group: Group) -> None:
        for number in range(2):
            store(group, str(number), number - 100, b"x" * 100)
        assert keys_of(group.due_repeatables(all_bytes=50)) == [b"0"]


class TestNext:
    def test_the_next_time_is_in_ms_from_now(self, group: Group) -> None:
        store(group, "soon", 5000)
        store(group, "later", HOUR_MS)
        assert 4000 < group.due_repeatables().next_ms <= 5000

    def test_the_next_time_comes_also_beside_due_repeatables(self, group: Group) -> None:
        store(group, "due")
        store(group, "soon", 5000)
        store(group, "later", HOUR_MS)
        assert 4000 < group.due_repeatables().next_ms <= 5000

    def test_a_call_that_returns_all_has_no_next_time(self, group: Group) -> None:
        store(group, "due")
        assert group.due_repeatables(batch=2).next_ms == -1

    def test_a_full_batch_may_not_be_all(self, group: Group) -> None:
        store(group, "due")
        assert group.due_repeatables(batch=1).next_ms == 0


class TestLease:
    def test_a_free_lease_is_taken_for_a_while(self, group: Group) -> None:
        assert group.due_repeatables("a", lease_ms=5000).leads == 1
        assert group.client.get(KEYS.scheduler_lease) == b"a"
        assert 0 < group.client.pttl(KEYS.scheduler_lease) <= 5000

    def test_the_holder_renews_its_lease(self, group: Group) -> None:
        group.due_repeatables("a", lease_ms=5000)
        assert group.due_repeatables("a", lease_ms=50_000).leads == 1
        assert group.client.pttl(KEYS.scheduler_lease) > 5000

    def test_a_process_that_does_not_lead_gets_the_leader_and_no_repeatables(self, group: Group) -> None:
        store(group, "due", -7000)
        group.due_repeatables("a", lease_ms=5000)
        group.client.zadd(KEYS.repeat, {"empty": group.now_ms - 1})
        due = group.due_repeatables("b", lease_ms=50_000)
        assert (due.leads, due.specs, due.leader, due.was_cut) == (0, [], b"a", 0)
        assert 0 < due.next_ms <= 5000
        assert 7000 <= due.overdue_ms < 67_000
        assert group.client.get(KEYS.scheduler_lease) == b"a"
        assert group.client.pttl(KEYS.scheduler_lease) <= 5000
        assert b"empty" in group.repeatables

    def test_no_repeatable_is_overdue_when_none_is_due(self, group: Group) -> None:
        group.due_repeatables("a")
        assert group.due_repeatables("b").overdue_ms == 0
        store(group, "later", HOUR_MS)
        assert group.due_repeatables("b").overdue_ms == 0

    def test_a_lease_without_an_end_or_with_a_far_one_gets_one(self, group: Group) -> None:
        for ends_ms in (None, HOUR_MS):
            group.client.set(KEYS.scheduler_lease, "x", px=ends_ms)
            due = group.due_repeatables("b", longest_ms=5000)
            assert (due.leads, due.next_ms, due.leader, due.was_cut, due.overdue_ms) == (0, 5000, b"x", 1, 0)
            assert 0 < group.client.pttl(KEYS.scheduler_lease) <= 5000
            assert group.due_repeatables("b", longest_ms=5000).was_cut == 0

    def test_a_lease_of_another_type_is_another_that_ends(self, group: Group) -> None:
        group.client.hset(KEYS.scheduler_lease, "a", "hash")
        assert group.due_repeatables("b", longest_ms=20).leader == b"a hash"
        group.wait_ms(30)
        assert group.due_repeatables("b").leads == 1

    def test_a_lease_of_another_type_with_an_end_is_named_by_its_type(self, group: Group) -> None:
        group.client.hset(KEYS.scheduler_lease, "a", "hash")
        group.client.pexpire(KEYS.scheduler_lease, HOUR_MS)
        due = group.due_repeatables("b", longest_ms=HOUR_MS)
        assert (due.leads, due.leader, due.was_cut) == (0, b"a hash", 0)


class TestTrouble:
    def test_a_key_of_another_type_is_an_error(self, group: Group) -> None:
        group.client.hset(KEYS.repeat, "a", "hash")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.due_repeatables()
