"""promote.lua alone: due jobs move to the stream, each once; malformed members move to the dead letters."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import redis

from pychasqui._core.retry_options import RetryOverride
from pychasqui._wire.envelope import encode_envelope, encode_extras
from pychasqui._wire.member import make_delayed_member
from tests.scripts.group import HOUR_MS, KEYS, Group, Promoted, index_key, official_unique_key, unique_key
from tests.scripts.test_keys import monitored
from tests.support.server import RedisServer


def delay(group: Group, member: bytes, by_ms: float = 0) -> None:
    """Negative: it has been due for so long."""
    group.client.zadd(KEYS.delayed, {member: group.now_ms + by_ms})


def pages_read(group: Group, max_bytes: int) -> list[tuple[int, int]]:
    """Promotes, and returns the ranks of each page of members that the script reads."""
    with monitored(group.client) as lines:
        group.promote(max_bytes=max_bytes)
    pages = [line.split(b'"')[5:8:2] for line in lines if b'"ZRANGE"' in line and b"WITHSCORES" not in line]
    return [(int(first), int(last)) for first, last in pages]


class TestMoving:
    def test_a_due_job_leaves_the_delayed_set_and_joins_the_stream(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", b"envelope"))
        assert group.promote() == Promoted(1, 1, 0, -1)
        assert group.delayed == {}
        assert [fields for _, fields in group.client.xrange(KEYS.stream)] == [{b"d": b"envelope", b"n": b"mail"}]

    def test_a_job_without_a_name_has_no_field_for_one(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"))
        group.promote()
        assert [fields for _, fields in group.client.xrange(KEYS.stream)] == [{b"d": b"envelope"}]

    def test_names_of_any_length_and_bytes_of_any_kind_pass_unchanged(self, group: Group) -> None:
        jobs = [("ü" * 128, bytes(range(256))), ("n" * 300, b"\0"), ("x" * 70_000, b"y" * 100_000), ("\r\n", b"\r\n")]
        for name, envelope in jobs:
            delay(group, make_delayed_member(name, envelope))
        assert group.promote().promoted == len(jobs)
        promoted = {fields[b"n"]: fields[b"d"] for _, fields in group.client.xrange(KEYS.stream)}
        assert promoted == {name.encode(): envelope for name, envelope in jobs}

    def test_a_job_that_is_not_due_stays(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"), by_ms=HOUR_MS)
        assert group.promote()[:3] == (1, 0, 0)
        assert (len(group.delayed), group.stream) == (1, [])

    def test_due_is_judged_by_the_servers_clock_to_the_millisecond(self, group: Group) -> None:
        for by_ms in (-HOUR_MS, -1000, 1000, HOUR_MS):
            delay(group, make_delayed_member("", b"%d" % by_ms), by_ms)
        assert group.promote().promoted == 2
        assert group.envelopes == [b"%d" % -HOUR_MS, b"-1000"]

    def test_no_job_is_promoted_early_not_even_by_a_part_of_a_millisecond(self, group: Group) -> None:
        for number in range(50):
            due_ms = group.now_ms + 3
            group.client.zadd(KEYS.delayed, {make_delayed_member("", b"%d" % number): due_ms})
            while group.promote().promoted == 0:
                pass
            assert int(group.stream[-1].split(b"-")[0]) >= due_ms

    def test_the_longest_due_go_first(self, group: Group) -> None:
        for by_ms in (-10_000, -30_000, -20_000):
            delay(group, make_delayed_member("", b"%d" % by_ms), by_ms)
        group.promote()
        assert group.envelopes == [b"-30000", b"-20000", b"-10000"]

    def test_a_batch_bounds_one_call(self, group: Group) -> None:
        for number in range(5):
            delay(group, make_delayed_member("", b"%d" % number), number - 100)
        assert [group.promote(batch=2).promoted for _ in range(4)] == [2, 2, 1, 0]
        assert group.envelopes == [b"0", b"1", b"2", b"3", b"4"]

    def test_the_bytes_bound_one_call(self, group: Group) -> None:
        for number in range(50):
            delay(group, make_delayed_member("", b"%02d" % number * 500), number - 100)  # 1,004 bytes each
        first, second = group.promote(max_bytes=10_000), group.promote(max_bytes=1)
        assert (first.promoted, first.next_ms, second.promoted) == (10, 0, 1)
        assert group.promote(max_bytes=2**20) == Promoted(1, 39, 0, -1)
        assert group.envelopes == [b"%02d" % number * 500 for number in range(50)]

    def test_a_call_ends_with_the_member_that_takes_the_last_byte(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"00"), -100)  # 6 bytes
        for number in range(1, 13):
            delay(group, make_delayed_member("", b"%08d" % number), number - 100)  # 12 bytes each
        assert group.promote(max_bytes=6 + 8 * 12).promoted == 1 + 8

    def test_large_members_behind_small_ones_are_bounded_by_their_bytes(self, group: Group) -> None:
        for number in range(40):
            delay(group, make_delayed_member("", b"%02d" % number * (50_000 if number >= 20 else 1)), number - 100)
        moved = [group.promote(max_bytes=250_000).promoted for _ in range(8)]
        assert moved == [23, 3, 3, 3, 3, 3, 2, 0]
        assert [envelope[:2] for envelope in group.envelopes] == [b"%02d" % number for number in range(40)]

    def test_a_call_without_room_moves_nothing(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"))
        assert group.promote(max_bytes=0) == Promoted(1, 0, 0, 0)
        assert (len(group.delayed), group.stream) == (1, [])

    def test_members_are_read_in_small_pages_and_large_ones_one_by_one(self, group: Group) -> None:
        for number in range(40):
            delay(group, make_delayed_member("", b"%02d" % number * (500 if number == 20 else 1)), number - 100)
        assert pages_read(group, max_bytes=16 * 1004 + 100) == [
            (0, 0),
            (1, 16),
            (17, 32),
            *((n, n) for n in range(33, 40)),
        ]
        for number in range(3):
            delay(group, make_delayed_member("", b"%02d" % number * 500), number - 100)
        assert pages_read(group, max_bytes=16 * 1004) == [(0, 0), (1, 1), (2, 2)]
        for number in range(18):
            delay(group, make_delayed_member("", b"%02d" % number), number - 100)
        assert pages_read(group, max_bytes=17 * 6) == [(0, 0), (1, 16)]

    def test_a_job_that_is_not_due_stays_beside_a_due_one(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"due"), -100)
        for number in range(30):
            delay(group, make_delayed_member("", b"%d" % number), HOUR_MS)
        assert group.promote().promoted == 1
        assert group.envelopes == [b"due"]

    def test_the_same_call_again_moves_nothing(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"))
        assert [group.promote().promoted for _ in range(3)] == [1, 0, 0]
        assert group.envelopes == [b"envelope"]

    def test_an_empty_delayed_set_promotes_none(self, group: Group) -> None:
        assert group.promote() == Promoted(1, 0, 0, -1)
        assert group.keys == {KEYS.stream, KEYS.promoter_lease}

    def test_10_000_jobs_are_promoted_in_one_call(self, group: Group) -> None:
        due = group.now_ms
        members = {make_delayed_member("mail", b"%d" % number): due - 10_000 + number for number in range(10_000)}
        group.client.zadd(KEYS.delayed, members)
        assert group.promote(batch=10_000).promoted == 10_000
        assert group.envelopes == [b"%d" % number for number in range(10_000)]
        assert KEYS.delayed not in group.keys

    def test_a_batch_of_more_than_lua_unpacks_at_once(self, group: Group) -> None:
        due = group.now_ms - 10_000
        group.client.zadd(
            KEYS.delayed, {make_delayed_member("mail", b"%d" % number): due + number for number in range(2500)}
        )
        group.client.zadd(KEYS.delayed, {b"bad": due + 1500})
        assert group.promote(batch=2100) == Promoted(1, 2099, 1, 0)
        assert group.promote(batch=2100) == Promoted(1, 401, 0, -1)
        assert group.envelopes == [b"%d" % number for number in range(2500)]

    def test_jobs_that_wait_already_are_not_trimmed(self, group: Group) -> None:
        waiting = group.add(300)
        delay(group, make_delayed_member("", b"envelope"))
        group.promote()
        assert group.stream[:300] == waiting
        assert len(group.stream) == 301

    def test_a_missing_stream_is_created(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        delay(group, make_delayed_member("", b"envelope"))
        assert group.promote().promoted == 1
        assert group.envelopes == [b"envelope"]


class TestNext:
    def test_the_next_time_is_in_ms_from_now(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"soon"), by_ms=5000)
        delay(group, make_delayed_member("", b"later"), by_ms=HOUR_MS)
        assert 4000 < group.promote().next_ms <= 5000

    def test_the_rest_of_a_full_batch_is_due_now(self, group: Group) -> None:
        for number in range(3):
            delay(group, make_delayed_member("", b"%d" % number), -100)
        assert group.promote(batch=2).next_ms == 0

    def test_a_due_time_beyond_all_bounds_does_no_harm(self, group: Group) -> None:
        group.client.zadd(
            KEYS.delayed, {make_delayed_member("", b"never"): "+inf", make_delayed_member("", b"always"): "-inf"}
        )
        assert group.promote()[:3] == (1, 1, 0)
        assert group.envelopes == [b"always"]
        assert len(group.delayed) == 1

    def test_a_due_time_with_a_fraction_is_not_early(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"), by_ms=5000.75)
        answer = group.promote()
        assert answer.promoted == 0
        assert 4000 < answer.next_ms <= 5001


BAD = {
    "nothing": b"",
    "one byte": b"x",
    "three bytes": b"\0\0\0",
    "a length and no more": b"\0\0\0\0",
    "a name and no envelope": b"\2\0\0\0ab",
    "a name that is cut short": b"\3\0\0\0ab",
    "a length beyond all bounds": b"\xff\xff\xff\xffabcdef",
    "the high byte of the length": b"\1\0\0\1abcdef",
}


class TestBadMembers:
    @pytest.mark.parametrize("member", BAD.values(), ids=BAD)
    def test_a_member_that_is_no_job_goes_to_the_dead_letters_with_its_bytes(self, group: Group, member: bytes) -> None:
        delay(group, member)
        assert group.promote() == Promoted(1, 0, 1, -1)
        assert (group.delayed, group.stream) == ({}, [])
        (letter,) = group.letters
        assert letter == {
            b"d": member,
            b"source_id": b"",
            b"reason": b"malformed",
            b"detail": b"not a delayed member",
        }

    def test_the_letter_has_the_reason(self, group: Group) -> None:
        delay(group, b"bad")
        group.promote()
        (letter,) = group.letters
        assert list(letter.items()) == [
            (b"d", b"bad"),
            (b"source_id", b""),
            (b"reason", b"malformed"),
            (b"detail", b"not a delayed member"),
        ]

    def test_the_others_go_on(self, group: Group) -> None:
        bad = [b"bad", b"", b"\2\0\0\0ab", b"\xff" * 4]
        for number, member in enumerate(
            [*bad[:2], make_delayed_member("", b"1"), bad[2], make_delayed_member("", b"2"), bad[3]]
        ):
            delay(group, member, number - 100)
        assert group.promote() == Promoted(1, 2, 4, -1)
        assert group.envelopes == [b"1", b"2"]
        assert [letter[b"d"] for letter in group.letters] == bad

    def test_the_same_call_again_buries_nothing(self, group: Group) -> None:
        delay(group, b"bad")
        assert [group.promote().buried_count for _ in range(2)] == [1, 0]
        assert len(group.letters) == 1

    def test_bad_members_count_towards_the_batch(self, group: Group) -> None:
        for number in range(3):
            delay(group, b"%d" % number, number - 100)
        assert group.promote(batch=2) == Promoted(1, 0, 2, 0)

    def test_a_bad_member_that_is_not_due_is_left_alone(self, group: Group) -> None:
        delay(group, b"bad", by_ms=HOUR_MS)
        assert group.promote()[:3] == (1, 0, 0)
        assert len(group.delayed) == 1


class TestLease:
    def test_a_free_lease_is_taken_for_a_while(self, group: Group) -> None:
        assert group.promote("a", lease_ms=5000).leads == 1
        assert group.client.get(KEYS.promoter_lease) == b"a"
        assert 0 < group.client.pttl(KEYS.promoter_lease) <= 5000

    def test_the_holder_renews_its_lease(self, group: Group) -> None:
        group.promote("a", lease_ms=5000)
        assert group.promote("a", lease_ms=50_000).leads == 1
        assert group.client.pttl(KEYS.promoter_lease) > 5000

    def test_a_process_that_does_not_lead_moves_no_job_and_gets_the_leader(self, group: Group) -> None:
        group.promote("a", lease_ms=5000)
        delay(group, make_delayed_member("", b"envelope"), -7000)
        delay(group, b"bad")
        done = group.promote("b", lease_ms=50_000)
        assert (done[:3], done.leader, done.was_cut) == ((0, 0, 0), b"a", 0)
        assert 0 < done.next_ms <= 5000
        assert 7000 <= done.overdue_ms < 67_000
        assert (len(group.delayed), group.stream, group.letters) == (2, [], [])
        assert group.client.get(KEYS.promoter_lease) == b"a"
        assert group.client.pttl(KEYS.promoter_lease) <= 5000

    def test_one_process_leads_without_memory(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"envelope"), HOUR_MS)
        with group.full_memory():
            assert [group.promote(holder).leads for holder in ("a", "b", "a")] == [1, 0, 1]

    def test_no_job_is_overdue_when_none_is_due(self, group: Group) -> None:
        group.promote("a", lease_ms=5000)
        assert group.promote("b").overdue_ms == 0
        delay(group, make_delayed_member("", b"envelope"), HOUR_MS)
        assert group.promote("b").overdue_ms == 0

    def test_a_lease_without_an_end_gets_one(self, group: Group) -> None:
        group.client.set(KEYS.promoter_lease, "x")
        assert group.promote("b", longest_ms=5000) == Promoted(0, 0, 0, 5000, b"x", 1, 0)
        assert 0 < group.client.pttl(KEYS.promoter_lease) <= 5000
        assert group.promote("b", longest_ms=5000).was_cut == 0

    def test_a_lease_that_ends_too_late_ends_sooner(self, group: Group) -> None:
        group.client.set(KEYS.promoter_lease, "x", px=HOUR_MS)
        assert group.promote("b", longest_ms=5000) == Promoted(0, 0, 0, 5000, b"x", 1, 0)
        assert 0 < group.client.pttl(KEYS.promoter_lease) <= 5000

    def test_a_lease_of_another_type_is_another_that_ends(self, group: Group) -> None:
        group.client.rpush(KEYS.promoter_lease, "b")
        assert group.promote("b", longest_ms=20) == Promoted(0, 0, 0, 20, b"a list", 1, 0)
        group.wait_ms(30)
        assert group.promote("b").leads == 1

    def test_a_long_name_of_the_leader_is_cut_and_is_not_ours(self, group: Group) -> None:
        group.client.set(KEYS.promoter_lease, "b" * 1000, px=5000)
        assert group.promote("b").leader == b"b" * 101
        assert group.promote("b" * 999).leads == 0
        assert group.promote("b" * 1000).leads == 1

    def test_a_score_that_is_no_time_is_far_away(self, group: Group) -> None:
        scores: tuple[Any, ...] = ("+inf", 1e308)
        for score in scores:
            group.client.zadd(KEYS.delayed, {make_delayed_member("", b"envelope"): score})
            assert group.promote("a") == Promoted(1, 0, 0, int(9e15))
            assert group.promote("b").overdue_ms == 0

    def test_a_job_with_a_score_of_minus_infinity_is_long_due(self, group: Group) -> None:
        group.promote("a", lease_ms=5000)
        group.client.zadd(KEYS.delayed, {make_delayed_member("", b"envelope"): "-inf"})
        assert group.promote("b").overdue_ms == int(9e15)
        assert group.promote("a").promoted == 1


ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def envelope(job_id: str) -> bytes:
    return encode_envelope(job_id, b"\x07", 5, 0, None)


class TestIndex:
    """The id that the index and the marker are found by stands in the envelope."""

    def test_the_index_goes_with_the_job(self, group: Group) -> None:
        for job_id in ("a", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 1000, "ü" * 100, ULID):
            delay(group, make_delayed_member("mail", envelope(job_id)))
            group.client.set(index_key(job_id), "member")
            assert group.promote().promoted == 1
            assert group.index(job_id) is None

    def test_jobs_of_every_shape_that_is_written_are_found(self, group: Group) -> None:
        retry = RetryOverride(3, None)
        for written in (
            encode_envelope("job", b"", 5, 0, retry),
            encode_envelope("job", b"", 5, 0, retry, encode_extras(s=5)),
            encode_envelope("job", b"", 5, 0, None, encode_extras(s=5)),
            b"\x93\xa3job\xc4\x00\x05",
        ):
            delay(group, make_delayed_member("", written))
            group.client.set(index_key("job"), "member")
            group.promote()
            assert group.index("job") is None

    def test_each_job_of_a_batch_has_its_own_index(self, group: Group) -> None:
        for number in range(5):
            delay(group, make_delayed_member("mail", envelope(str(number))), number - 100)
            group.client.set(index_key(str(number)), "member")
            group.client.set(unique_key(str(number)), "d" if number % 2 else "wd")
        delay(group, b"bad", -20_000)
        group.promote(batch=5)
        assert [group.index(str(number)) for number in range(5)] == [None] * 4 + [b"member"]
        places = [entry_id.decode() for entry_id in group.stream]
        assert [group.uniqueness_key(str(number)) for number in range(5)] == [
            "w" + places[0], places[1], "w" + places[2], places[3], "wd",
        ]  # fmt: skip

    def test_the_keys_of_more_jobs_than_lua_unpacks_at_once_follow_them(self, group: Group) -> None:
        """One command has the keys of a thousand."""
        ids, due_ms = [f"job-{number:04d}" for number in range(1003)], group.now_ms - 10_000
        group.client.zadd(
            KEYS.delayed, {make_delayed_member("", envelope(each)): due_ms + n for n, each in enumerate(ids)}
        )
        group.client.mset({unique_key(each): "d" for each in ids})
        group.client.mset({index_key(each): "member" for each in ids})
        assert group.promote(batch=1003).promoted == 1003
        assert group.client.mget(map(unique_key, ids)) == group.stream
        assert group.client.exists(*map(index_key, ids)) == 0

    def test_jobs_behind_a_refused_one_keep_their_index(self, group: Group) -> None:
        """The stream has one id left."""
        group.client.xadd(KEYS.stream, {"d": "last but one"}, id=f"{2**64 - 1}-{2**64 - 2}")
        for number in range(4):
            delay(group, make_delayed_member("", envelope(f"job-{number}")), number - 100)
            group.client.set(index_key(f"job-{number}"), "member")
        done = group.promote()
        assert (done.promoted, len(group.delayed)) == (1, 3)
        assert [group.index(f"job-{number}") for number in range(4)] == [None, b"member", b"member", b"member"]
        assert group.client.get(KEYS.promoter_lease) == b"a"

    def test_a_job_without_an_id_has_no_uniqueness_key(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"no envelope"))
        group.client.set(unique_key(""), "d")
        group.promote()
        assert (group.uniqueness_key(""), group.entries) == ("d", [{b"d": b"no envelope"}])

    def test_the_index_of_another_job_stays(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.set(index_key("other"), "member")
        group.client.set(unique_key("other"), "d")
        group.promote()
        assert (group.index("other"), group.uniqueness_key("other")) == (b"member", "d")

    @pytest.mark.parametrize("length", (25, 27))
    def test_the_index_of_another_job_of_the_id_stays(self, group: Group, length: int) -> None:
        """An id of 26 characters that has no uniqueness key is made by a producer, and no other job has it."""
        job_id = "i" * length
        other = make_delayed_member("other", envelope(job_id))
        delay(group, make_delayed_member("mail", envelope(job_id)))
        delay(group, other, HOUR_MS)
        group.client.set(index_key(job_id), other)
        group.promote()
        assert group.index(job_id) == other

    def test_a_job_that_is_not_due_keeps_its_index(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")), HOUR_MS)
        group.client.set(index_key("job"), "member")
        group.promote()
        assert group.index("job") == b"member"

    def test_arrays_that_are_no_jobs_have_none(self, group: Group) -> None:
        group.client.set(index_key("j"), "member")
        for array in (0x92, 0x96):
            delay(group, make_delayed_member("", bytes([array]) + b"\xa1j"))
            assert group.promote().promoted == 1
        assert group.index("j") == b"member"

    def test_an_envelope_that_shows_no_id_is_promoted_all_the_same(self, group: Group) -> None:
        odd = [
            b"x",
            b"\x94",
            b"\x94\xd9",
            b"\x94\xda\x01",
            b"\x94\xc4\x01j",
            b"\x84\xa2id\xa1j",
            b"\x92\xa1j",
            b"\x96\xa1j",
        ]
        for number, written in enumerate([*odd, b"\x94\xd9\xffj", b"\x94\xbfj", b"\x94\x05"]):
            delay(group, make_delayed_member("", written), number - 100)
        assert group.promote(events=100).promoted == len(odd) + 3
        assert group.envelopes[: len(odd)] == odd


class TestUniquenessKey:
    def test_the_key_names_the_new_entry_and_keeps_its_expiry(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.set(unique_key("job"), "d", px=60_000)
        group.promote()
        assert group.uniqueness_key("job") == group.stream[0].decode()
        assert 30_000 < group.client.pttl(unique_key("job")) <= 60_000

    def test_a_window_stays_one(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.set(unique_key("job"), "wd", px=60_000)
        group.promote()
        assert group.uniqueness_key("job") == "w" + group.stream[0].decode()

    def test_an_official_key_stays_as_it_is(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.set(official_unique_key("job"), "1", px=60_000)
        group.promote()
        assert (group.uniqueness_key("job"), group.client.get(official_unique_key("job"))) == (None, b"1")
        assert 30_000 < group.client.pttl(official_unique_key("job")) <= 60_000

    def test_no_key_is_created(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.promote()
        assert group.uniqueness_key("job") is None
        assert group.entries == [{b"d": envelope("job"), b"n": b"mail"}]

    def test_a_key_of_another_type_holds_no_job_up(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.rpush(unique_key("job"), "a list")
        assert group.promote().promoted == 1

    def test_an_id_like_ours_shows_in_the_entry_that_it_has_one(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope(ULID)), -2)
        delay(group, make_delayed_member("", envelope(ULID)), -1)
        group.client.set(unique_key(ULID), "d")
        assert group.promote().promoted == 2
        assert group.entries == [
            {b"d": envelope(ULID), b"n": b"mail", b"u": b"1"},
            {b"d": envelope(ULID), b"u": b"1"},
        ]

    def test_an_id_of_26_characters_is_flagged_for_any_bytes(self, group: Group) -> None:
        delay(group, make_delayed_member("", envelope("ü" * 26)))
        group.client.set(unique_key("ü" * 26), "d")
        group.promote()
        assert group.entries[0][b"u"] == b"1"

    def test_a_job_without_a_key_is_not_flagged(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope(ULID)))
        group.promote()
        assert group.entries == [{b"d": envelope(ULID), b"n": b"mail"}]

    def test_an_id_of_another_length_needs_no_flag(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.set(unique_key("job"), "d")
        group.promote()
        assert group.entries == [{b"d": envelope("job"), b"n": b"mail"}]


class TestEvents:
    def events(self, group: Group) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in group.client.xrange(KEYS.events)]

    def test_each_promoted_job_has_an_event_if_asked_for(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("1")), -20)
        delay(group, make_delayed_member("", envelope("2")), -10)
        before = group.now_ms
        group.promote(events=100)
        first, second = self.events(group)
        assert list(first) == [b"e", b"id", b"ts", b"n"]
        assert (first[b"e"], first[b"id"], first[b"n"]) == (b"waiting", b"1", b"mail")
        assert before <= int(first[b"ts"]) <= group.now_ms
        assert (second[b"id"], b"n" in second) == (b"2", False)

    def test_no_event_is_written_unless_asked_for(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("1")))
        group.promote(events=0)
        assert KEYS.events not in group.keys

    def test_the_number_of_events_is_bounded(self, group: Group) -> None:
        for number in range(300):
            delay(group, make_delayed_member("mail", envelope(str(number))), -100)
        group.promote(batch=300, events=10)
        assert 10 <= len(self.events(group)) < 300

    def test_one_event_is_kept_if_no_more_may_be(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("1")))
        group.promote(events=1)
        assert len(self.events(group)) == 1

    def test_bad_members_have_no_event(self, group: Group) -> None:
        delay(group, b"bad")
        group.promote(events=100)
        assert KEYS.events not in group.keys

    def test_events_of_another_type_hold_no_job_up(self, group: Group) -> None:
        group.client.set(KEYS.events, "a string")
        delay(group, make_delayed_member("mail", envelope("1")))
        assert group.promote(events=100).promoted == 1


class TestTrouble:
    @pytest.mark.parametrize("key", (KEYS.stream, KEYS.delayed, KEYS.dead))
    def test_a_key_of_another_type_costs_no_job(self, group: Group, key: str) -> None:
        delay(group, make_delayed_member("", b"1"), -20)
        delay(group, b"bad", -10)
        saved = group.client.dump(key)
        group.client.delete(key)
        group.client.set(key, "a string")
        with suppress(redis.ResponseError):
            group.promote()
        group.client.delete(key)
        if saved is not None:
            group.client.restore(key, 0, saved)
        group.promote()
        assert (group.envelopes, [letter[b"d"] for letter in group.letters]) == ([b"1"], [b"bad"])

    def test_a_stream_of_another_type_costs_no_job(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        delay(group, b"bad", -10)
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        assert group.promote()[:4] == (1, 0, 1, -1)
        assert "WRONGTYPE" in group.refusal
        assert (list(group.delayed), len(group.letters)) == ([make_delayed_member("mail", envelope("job"))], 1)
        assert group.client.get(KEYS.promoter_lease) == b"a", "it buries, so it leads"

    def test_the_next_time_is_that_of_the_first_job_behind_those_that_the_stream_refuses(self, group: Group) -> None:
        for number, by_ms in enumerate((-20, -10, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS)):
            delay(group, make_delayed_member("mail", envelope(f"job-{number}")), by_ms)
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        assert HOUR_MS - 60_000 < group.promote().next_ms <= HOUR_MS

    def test_dead_letters_of_another_type_hold_up_no_job_and_bring_none_twice(self, group: Group) -> None:
        for number in range(3):
            delay(group, b"bad%d" % number, 10 * number - 60)
            delay(group, make_delayed_member("mail", envelope(f"job-{number}")), 10 * number - 55)
            group.client.set(index_key(f"job-{number}"), "member")
        delay(group, make_delayed_member("mail", envelope("later")), HOUR_MS)
        group.client.set(KEYS.dead, "a string")
        for promoted in (3, 0):
            done = group.promote()
            assert (done.promoted, done.buried_count) == (promoted, 0)
            assert done.next_ms > HOUR_MS - 60_000, "nobody is to look again at once for what is refused"
            assert "WRONGTYPE" in group.refusal
        assert group.envelopes == [envelope(f"job-{number}") for number in range(3)]
        assert [member[:4] for member in group.delayed] == [b"bad0", b"bad1", b"bad2", b"\x04\0\0\0"]
        assert [group.index(f"job-{number}") for number in range(3)] == [None] * 3

    @pytest.mark.parametrize("bad", ([b"bad" * 100_000], [b"bad%d" % number for number in range(100)]))
    def test_members_that_fill_a_call_and_cannot_be_buried_hold_up_no_job(self, group: Group, bad: list[bytes]) -> None:
        for member in bad:
            delay(group, member, -1000)
        delay(group, make_delayed_member("mail", envelope("job")), -10)
        group.client.set(KEYS.dead, "a string")
        before = group.now_ms
        first, second = (group.promote(batch=100, max_bytes=200_000) for _ in range(2))
        assert (first.promoted, first.next_ms, second.promoted) == (0, 0, 1)
        assert set(group.delayed) == set(bad)
        assert all(before + 60_000 <= due_ms <= group.now_ms + 60_000 for due_ms in group.delayed.values())

    @pytest.mark.parametrize("by_ms", (1000, HOUR_MS))
    def test_members_that_fill_a_call_and_cannot_be_buried_stay_due_if_no_job_is(
        self, group: Group, by_ms: int
    ) -> None:
        delay(group, b"bad", -1000)
        due_ms = group.delayed[b"bad"]
        delay(group, make_delayed_member("mail", envelope("job")), by_ms)
        group.client.set(KEYS.dead, "a string")
        assert group.promote(batch=1).next_ms > by_ms - 1000
        assert group.delayed[b"bad"] == due_ms

    def test_a_promoter_whose_writes_are_refused_does_not_lead(self, group: Group) -> None:
        delay(group, make_delayed_member("mail", envelope("job")))
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        group.promote("a")
        assert KEYS.promoter_lease not in group.keys

    def test_the_script_touches_only_its_own_keys(self, group: Group) -> None:
        delay(group, make_delayed_member("", b"1"))
        delay(group, b"bad")
        delay(group, make_delayed_member("", b"2"), HOUR_MS)
        group.promote()
        assert group.keys == {KEYS.stream, KEYS.delayed, KEYS.dead, KEYS.promoter_lease}

    def test_no_job_is_lost_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            group.create()
            for number in range(5):
                delay(group, make_delayed_member("", b"%d" % number), number - 100)
            client.config_set("maxmemory", 1)
            with suppress(redis.ResponseError):
                group.promote()
            client.config_set("maxmemory", 0)
            group.promote()
            assert sorted(group.envelopes) == [b"0", b"1", b"2", b"3", b"4"]
            assert group.delayed == {}
