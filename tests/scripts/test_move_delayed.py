"""move_delayed.lua alone: a delayed job is cancelled, postponed or run by its id; promotion or this has it."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
import redis

from pychasqui._wire.member import make_delayed_member
from tests.scripts.group import (
    HOUR_MS,
    KEPT_MS,
    KEYS,
    Group,
    Wanted,
    index_key,
    official_unique_key,
    refused,
    unique_key,
)

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def delay(group: Group, *job_ids: str, due: str = f"+{HOUR_MS}", only: str = "keep", window_ms: int = 0) -> None:
    jobs = [Wanted("mail", f"data of {job_id}".encode(), job_id, due, only, window_ms) for job_id in job_ids]
    assert group.add_with_options(*jobs) == "n" * len(jobs)


def member(job_id: str, name: str = "mail") -> bytes:
    return make_delayed_member(name, f"data of {job_id}".encode())


class TestBytes:
    def test_a_call_ends_with_the_byte_that_completes_the_bound(self, group: Group) -> None:
        delay(group, "1", "2", "3")
        size = len(member("1")) + 16
        assert group.move_delayed("cancel", "1", "2", "3", max_bytes=size) == [1]
        assert group.move_delayed("cancel", "2", "3", max_bytes=size + 1) == [1, 1]


class TestNarrowUser:
    def test_a_user_who_may_not_read_the_index_gets_an_error(self, group: Group) -> None:
        delay(group, "job")
        with (
            group.as_user("+@all", "-mget", "~*", "&*") as narrow,
            refused("mget"),
        ):
            narrow.move_delayed("cancel", "job")
        assert list(group.delayed) == [member("job")]

    def test_a_user_who_may_not_postpone_gets_the_reason_and_no_answer(self, group: Group) -> None:
        delay(group, "job")
        before = group.delayed, group.client.pttl(index_key("job"))
        with group.as_user("+@all", "-zadd", "~*", "&*") as narrow:
            assert narrow.move_delayed("postpone", "job", delay_ms=9 * HOUR_MS) == []
            assert re.search("zadd|can't run this command", narrow.refusal)
        assert group.delayed == before[0]
        assert group.client.pttl(index_key("job")) <= before[1]


class TestCancel:
    def test_a_delayed_job_is_gone_with_its_index_and_its_uniqueness_key(self, group: Group) -> None:
        delay(group, "job")
        assert group.move_delayed("cancel", "job") == [1]
        assert group.keys == {KEYS.stream, KEYS.ledger("producer")}

    def test_the_others_stay(self, group: Group) -> None:
        delay(group, "1", "2", "3")
        assert group.move_delayed("cancel", "3", "none", "1") == [1, 0, 1]
        assert list(group.delayed) == [member("2")]
        assert (group.index("2"), group.uniqueness_key("2")) == (member("2"), "d")

    def test_the_same_call_again_finds_nothing(self, group: Group) -> None:
        delay(group, "job")
        assert [group.move_delayed("cancel", "job") for _ in range(3)] == [[1], [0], [0]]

    def test_an_id_that_is_named_twice_is_found_once(self, group: Group) -> None:
        delay(group, "job")
        assert group.move_delayed("cancel", "job", "job") == [1, 0]

    def test_a_promoted_job_is_left_alone(self, group: Group) -> None:
        delay(group, "job", due="+1")
        group.wait_ms(3)
        assert group.promote().promoted == 1
        connector = group.uniqueness_key("job")
        assert group.move_delayed("cancel", "job") == [0]
        assert (group.envelopes, group.uniqueness_key("job")) == ([b"data of job"], connector)

    def test_a_promoted_job_with_an_index_is_left_alone(self, group: Group) -> None:
        """As an official promoter may do."""
        delay(group, "job")
        group.client.zrem(KEYS.delayed, member("job"))
        group.client.set(unique_key("job"), "5-5")
        assert group.move_delayed("cancel", "job") == [0]
        assert group.uniqueness_key("job") == "5-5"

    def test_a_cancelled_job_is_not_promoted(self, group: Group) -> None:
        delay(group, "job", due="+1")
        assert group.move_delayed("cancel", "job") == [1]
        group.wait_ms(3)
        assert group.promote().promoted == 0
        assert group.stream == []

    def test_a_job_that_waits_for_its_retry_is_cancelled_too(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"x", "job", only="keep"))
        (entry_id,) = group.read("a", 1)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.move_delayed("cancel", "job") == [1]
        assert (group.delayed, group.uniqueness_key("job"), group.index("job")) == ({}, None, None)

    def test_a_cancelled_job_has_its_event_if_the_queue_has_events(self, group: Group) -> None:
        delay(group, "first", "second")
        group.move_delayed("cancel", "first")
        assert not group.client.exists(KEYS.events)
        group.client.xadd(KEYS.events, {"e": "other"})
        before = group.now_ms
        assert group.move_delayed("cancel", "none", "second") == [0, 1]
        (_, event), *others = reversed(group.client.xrange(KEYS.events))
        assert before <= int(event.pop(b"ts")) <= group.now_ms + 1
        assert event == {b"e": b"cancelled", b"id": b"second", b"n": b"mail"}
        assert len(others) == 1

    def test_jobs_that_are_moved_have_no_event(self, group: Group) -> None:
        delay(group, "first", "second")
        group.client.xadd(KEYS.events, {"e": "other"})
        group.move_delayed("postpone", "first", delay_ms=5)
        group.move_delayed("run", "second")
        assert group.client.xlen(KEYS.events) == 1

    def test_a_window_ends_with_the_job(self, group: Group) -> None:
        """The job never ran."""
        delay(group, "job", window_ms=60_000)
        assert group.move_delayed("cancel", "job") == [1]
        assert group.uniqueness_key("job") is None

    def test_a_job_id_may_be_any_text(self, group: Group) -> None:
        for job_id in ("ü", "a b", "x" * 500, "%s%d", "{chasqui:q}:stream"):
            delay(group, job_id)
            assert group.move_delayed("cancel", job_id) == [1]
        assert group.delayed == {}


class TestPostpone:
    def test_a_postponed_job_is_due_by_the_servers_clock(self, group: Group) -> None:
        delay(group, "job")
        before = group.now_ms
        assert group.move_delayed("postpone", "job", delay_ms=5000) == [1]
        assert before + 5000 <= group.delayed[member("job")] <= group.now_ms + 5001

    def test_a_postponed_job_is_never_due_early_not_even_by_a_part_of_a_millisecond(self, group: Group) -> None:
        delay(group, "job")
        for _ in range(20):
            before = group.now_us
            group.move_delayed("postpone", "job", delay_ms=5000)
            assert group.delayed[member("job")] * 1000 >= before + 5_000_000

    def test_a_job_can_be_brought_forward(self, group: Group) -> None:
        delay(group, "job")
        group.move_delayed("postpone", "job", delay_ms=0)
        group.wait_ms(2)
        assert group.promote().promoted == 1

    def test_index_and_uniqueness_key_live_as_long_as_the_job_may(self, group: Group) -> None:
        delay(group, "job", due="+5000")
        group.move_delayed("postpone", "job", delay_ms=HOUR_MS)
        for key in (index_key("job"), unique_key("job")):
            assert KEPT_MS + HOUR_MS - 60_000 < group.client.pttl(key) <= KEPT_MS + HOUR_MS
        assert group.uniqueness_key("job") == "d"

    def test_a_uniqueness_key_that_lived_longer_ends_with_the_new_time(self, group: Group) -> None:
        """How long it lasts says when its job is due."""
        delay(group, "job", due=f"+{HOUR_MS}")
        group.move_delayed("postpone", "job", delay_ms=5000)
        assert KEPT_MS < group.client.pttl(unique_key("job")) <= KEPT_MS + 5000

    def test_the_official_uniqueness_key_ends_an_hour_past_the_new_time(self, group: Group) -> None:
        for delay_ms, seconds in ((5000, 5), (1, 1), (HOUR_MS, 3600)):
            delay(group, f"job {delay_ms}", due=f"+{2 * HOUR_MS}")
            group.move_delayed("postpone", f"job {delay_ms}", delay_ms=delay_ms)
            ttl_ms = group.client.pttl(official_unique_key(f"job {delay_ms}"))
            assert HOUR_MS + 1000 * (seconds - 1) < ttl_ms <= HOUR_MS + 1000 * seconds

    def test_a_window_keeps_its_end(self, group: Group) -> None:
        delay(group, "job", window_ms=60_000)
        group.move_delayed("postpone", "job", delay_ms=2 * HOUR_MS)
        assert (group.uniqueness_key("job"), 0 < group.client.pttl(unique_key("job")) <= 60_000) == ("wd", True)
        assert 0 < group.client.pttl(official_unique_key("job")) <= 60_000

    def test_a_job_without_a_uniqueness_key_gets_none(self, group: Group) -> None:
        delay(group, "job", only="")
        assert group.move_delayed("postpone", "job", delay_ms=5000) == [1]
        assert group.uniqueness_key("job") is None

    def test_a_job_that_is_no_longer_delayed_is_left_alone(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"x", "job", only="keep"))
        assert group.move_delayed("postpone", "job", delay_ms=5000) == [0]
        assert (group.delayed, len(group.stream)) == ({}, 1)

    def test_the_new_due_time_is_published(self, group: Group) -> None:
        delay(group, "job")
        with group.published(KEYS.due_channel) as heard:
            group.move_delayed("postpone", "job", delay_ms=5000)
        assert heard == [5000]

    @pytest.mark.parametrize("delay_ms", (0, 1, 2**53, 2**64, 10**300))
    def test_any_delay_is_stored(self, group: Group, delay_ms: int) -> None:
        delay(group, "job")
        assert group.move_delayed("postpone", "job", delay_ms=delay_ms) == [1]
        assert group.delayed[member("job")] == pytest.approx(group.now_ms + delay_ms, abs=60_000)
        assert group.index("job") == member("job")


class TestRun:
    def test_the_job_joins_the_stream_at_once(self, group: Group) -> None:
        delay(group, "job", only="")
        assert group.move_delayed("run", "job") == [1]
        assert group.entries == [{b"d": b"data of job", b"n": b"mail"}]
        assert (group.delayed, group.index("job"), group.uniqueness_key("job")) == ({}, None, None)

    def test_the_uniqueness_key_names_the_new_entry(self, group: Group) -> None:
        delay(group, "job")
        ttl_ms = group.client.pttl(unique_key("job"))
        group.move_delayed("run", "job")
        assert group.uniqueness_key("job") == group.stream[0].decode()
        assert ttl_ms - 60_000 < group.client.pttl(unique_key("job")) <= ttl_ms

    def test_a_window_stays_one(self, group: Group) -> None:
        delay(group, "job", window_ms=60_000)
        group.move_delayed("run", "job")
        assert group.uniqueness_key("job") == "w" + group.stream[0].decode()
        assert 0 < group.client.pttl(unique_key("job")) <= 60_000

    def test_a_job_without_a_name_has_no_field_for_one(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"envelope", "job", "+5000"))
        group.move_delayed("run", "job")
        assert group.entries == [{b"d": b"envelope"}]

    def test_long_names_and_any_bytes_pass_unchanged(self, group: Group) -> None:
        group.add_with_options(Wanted("ü" * 200, bytes(range(256)), "job", "+5000"))
        group.move_delayed("run", "job")
        assert group.entries == [{b"d": bytes(range(256)), b"n": ("ü" * 200).encode()}]

    def test_a_unique_job_with_a_ulid_is_flagged(self, group: Group) -> None:
        delay(group, ULID)
        group.move_delayed("run", ULID)
        assert group.entries == [{b"d": f"data of {ULID}".encode(), b"n": b"mail", b"u": b"1"}]

    def test_an_id_of_another_length_needs_no_flag(self, group: Group) -> None:
        delay(group, "job")
        group.move_delayed("run", "job")
        assert group.entries == [{b"d": b"data of job", b"n": b"mail"}]

    def test_a_unique_job_without_a_name_is_flagged_too(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"x", ULID, "+5000", "keep"))
        group.move_delayed("run", ULID)
        assert group.entries == [{b"d": b"x", b"u": b"1"}]

    def test_an_id_of_26_characters_is_flagged_for_any_bytes(self, group: Group) -> None:
        delay(group, "ü" * 26)
        group.move_delayed("run", "ü" * 26)
        assert group.entries[0][b"u"] == b"1"

    def test_a_job_without_a_uniqueness_key_is_not_flagged(self, group: Group) -> None:
        delay(group, ULID, only="")
        group.move_delayed("run", ULID)
        assert group.entries == [{b"d": f"data of {ULID}".encode(), b"n": b"mail"}]

    def test_the_same_call_again_runs_nothing(self, group: Group) -> None:
        delay(group, "job")
        assert [group.move_delayed("run", "job") for _ in range(3)] == [[1], [0], [0]]
        assert len(group.stream) == 1

    def test_a_promoted_job_is_left_alone(self, group: Group) -> None:
        delay(group, "job", due="+1")
        group.wait_ms(3)
        group.promote()
        assert group.move_delayed("run", "job") == [0]
        assert len(group.stream) == 1


class TestTrouble:
    @pytest.mark.parametrize("action", ("cancel", "postpone", "run"))
    @pytest.mark.parametrize("key", (KEYS.stream, KEYS.delayed))
    def test_a_key_of_another_type_costs_no_job(self, group: Group, action: str, key: str) -> None:
        delay(group, "1", "2")
        saved = group.client.dump(key)
        group.client.delete(key)
        group.client.set(key, "a string")
        with suppress(redis.ResponseError):
            group.move_delayed(action, "1", "2")
        group.client.delete(key)
        group.client.restore(key, 0, saved)
        group.move_delayed(action, "1", "2")
        assert group.envelopes == ([b"data of 1", b"data of 2"] if action == "run" else [])
        assert set(group.delayed) == ({member("1"), member("2")} if action == "postpone" else set())

    def test_a_stream_of_another_type_is_found_out_before_the_job_is_gone(self, group: Group) -> None:
        delay(group, "job")
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        assert group.move_delayed("run", "job") == []
        assert "WRONGTYPE" in group.refusal
        assert (list(group.delayed), group.index("job")) == ([member("job")], member("job"))

    def test_an_index_of_another_type_holds_up_no_other_job(self, group: Group) -> None:
        delay(group, "1", "2")
        group.client.delete(index_key("1"))
        group.client.rpush(index_key("1"), "a list")
        assert group.move_delayed("run", "1", "2") == [0, 1]
        assert group.envelopes == [b"data of 2"]

    def test_a_uniqueness_key_of_another_type_holds_up_no_other_job(self, group: Group) -> None:
        delay(group, "1", "2")
        group.client.delete(unique_key("1"))
        group.client.rpush(unique_key("1"), "a list")
        assert group.move_delayed("postpone", "1", "2", delay_ms=HOUR_MS) == [1, 1]
        assert group.move_delayed("run", "1", "2") == [1, 1]
        assert group.envelopes == [b"data of 1", b"data of 2"]

    def test_a_missing_stream_is_created(self, group: Group) -> None:
        delay(group, "job")
        group.client.delete(KEYS.stream)
        assert group.move_delayed("run", "job") == [1]
        assert group.envelopes == [b"data of job"]

    @pytest.mark.parametrize("action", ("cancel", "postpone", "run"))
    def test_an_empty_call_and_an_unknown_id_find_none(self, group: Group, action: str) -> None:
        assert group.move_delayed(action) == []
        assert group.move_delayed(action, "none") == [0]
        assert group.keys == {KEYS.stream}

    @pytest.mark.parametrize("action", ("cancel", "postpone", "run"))
    def test_10_000_jobs_are_moved_in_one_call(self, group: Group, action: str) -> None:
        ids = [f"job-{number}" for number in range(10_000)]
        for start in range(0, 10_000, 1000):
            delay(group, *ids[start : start + 1000])
        assert group.move_delayed(action, *ids) == [1] * 10_000
        assert len(group.delayed) == (10_000 if action == "postpone" else 0)
        assert len(group.stream) == (10_000 if action == "run" else 0)

    def test_the_bytes_bound_one_call_and_the_other_ids_are_not_looked_at(self, group: Group) -> None:
        delay(group, "a", "b", "c")
        size = len(group.index("a") or b"") + 16
        assert group.move_delayed("cancel", "a", "b", "c", max_bytes=size + 1) == [1, 1]
        assert [group.index(job_id) is None for job_id in "abc"] == [True, True, False]
        assert group.move_delayed("cancel", "none", "c", max_bytes=16) == [0]
        assert group.move_delayed("cancel", "c", max_bytes=1) == [1]

    def test_a_hint_is_published_for_moved_times_only(self, group: Group) -> None:
        delay(group, "a", "b", "c")
        with group.published(KEYS.due_channel) as messages:
            group.move_delayed("cancel", "a")
            group.move_delayed("run", "b")
            group.move_delayed("postpone", "c", delay_ms=7)
        assert messages == [7]
