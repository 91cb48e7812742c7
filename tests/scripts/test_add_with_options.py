"""add_with_options.lua alone: delayed and unique jobs, added once by any number of sendings."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from pychasqui._redis import scripts
from pychasqui._wire.member import make_delayed_member
from tests.scripts.group import (
    GROUP,
    HOUR_MS,
    KEPT_MS,
    KEYS,
    LEDGER,
    LEDGER_TTL_MS,
    Group,
    Wanted,
    index_key,
    official_unique_key,
    refused,
    unique_key,
)
from tests.support.server import RedisServer

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LATER = f"+{HOUR_MS}"


def only(data: bytes, if_exists: str = "keep", due: str = "", window_ms: int = 0, job_id: str = "job") -> Wanted:
    return Wanted("mail", data, job_id, due, if_exists, window_ms)


class TestExpiry:
    """The envelope's last eight bytes become the time at which the job expires."""

    @pytest.mark.parametrize("expires_ms", (1, 60_000, 100 * 365 * 24 * HOUR_MS))
    def test_the_time_is_the_servers_and_ends_the_envelope(self, group: Group, expires_ms: int) -> None:
        before = group.now_ms
        group.add_with_options(Wanted("mail", b"envelope" + bytes(8), "job", expires_ms=expires_ms))
        (stored,) = group.envelopes
        assert stored[:-8] == b"envelope"
        assert before + expires_ms <= int.from_bytes(stored[-8:], "big") <= group.now_ms + expires_ms + 1

    def test_a_delayed_job_has_it_too_and_its_index_is_its_member(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"envelope" + bytes(8), "job", LATER, "keep", expires_ms=2 * HOUR_MS))
        (member,) = group.delayed
        assert int.from_bytes(member[-8:], "big") > group.now_ms + HOUR_MS
        assert group.index("job") == member

    def test_the_other_jobs_of_the_batch_are_left_alone(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"first" + bytes(8), "a", expires_ms=5), Wanted("mail", b"second", "b"))
        assert group.envelopes[1] == b"second"

    def test_a_second_sending_changes_no_time(self, group: Group) -> None:
        job = Wanted("mail", b"envelope" + bytes(8), "job", expires_ms=5)
        assert [group.add_with_options(job, number=7) for _ in range(2)] == ["n", "n"]
        assert len(group.envelopes) == 1


def envelope(job_id: str) -> bytes:
    return b"\x94" + bytes([0xA0 + len(job_id)]) + job_id.encode() + b"\xc4\x01\x01\x00\x00"


def delay_officially(group: Group, job_id: str, delay_ms: int) -> bytes:
    """Delays a job as an official producer does. Returns the member."""
    member = make_delayed_member("mail", envelope(job_id))
    group.client.set(official_unique_key(job_id), "1", ex=max(1, delay_ms // 1000) + 3600)
    group.client.zadd(KEYS.delayed, {member: group.now_ms + delay_ms})
    group.client.set(index_key(job_id), member)
    return member


def promote_officially(group: Group, *, cleans: bool = True) -> None:
    """Promotes all jobs as an official promoter does, which knows nothing of our uniqueness keys."""
    group.wait_ms(3)
    for member in group.client.zrange(KEYS.delayed, 0, -1):
        group.client.xadd(KEYS.stream, {"d": member[4 + member[0] :], "n": member[4 : 4 + member[0]]})
        group.client.zrem(KEYS.delayed, member)
    if cleans:
        group.client.delete(index_key("job"))


def leave_key(group: Group, job_id: str, due_ms: int) -> None:
    """Leaves the uniqueness key of a job that an official promoter has moved since."""
    group.client.set(unique_key(job_id), "d", px=due_ms + KEPT_MS - group.now_ms)


def fill(group: Group, count: int, from_ms: int) -> None:
    group.client.delete(KEYS.stream)
    with group.client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.xadd(KEYS.stream, {"d": "x"}, f"{from_ms}-{number + 1}")
        pipeline.execute()


def end(group: Group, consumer: str = "official") -> None:
    """Ends a job as an official worker does."""
    for entry_id in group.read(consumer, 10):
        group.client.xack(KEYS.stream, GROUP, entry_id)
        group.client.xdel(KEYS.stream, entry_id)


def add_plain(group: Group, *envelopes: bytes, number: int, slot: int = 0) -> int:
    """By the script for plain jobs, which shares the ledger."""
    head = (slot, number, LEDGER_TTL_MS, 0, 1, len(envelopes))
    taken = group.run(scripts.ADD, [KEYS.stream, LEDGER], *head, 1, "", "", *envelopes)
    assert isinstance(taken, int)
    return taken


class TestStreamOrDelayed:
    def test_a_job_that_is_due_now_joins_the_stream(self, group: Group) -> None:
        assert group.add_with_options(Wanted("mail", b"x", "job")) == "n"
        assert (group.entries, group.delayed) == ([{b"d": b"x", b"n": b"mail"}], {})

    def test_a_job_without_a_name_has_no_field_for_one(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"x", "job"))
        assert group.entries == [{b"d": b"x"}]

    def test_a_job_that_is_due_later_joins_the_delayed_set(self, group: Group) -> None:
        before = group.now_ms
        assert group.add_with_options(Wanted("mail", b"x", "job", "+5000")) == "n"
        assert group.stream == []
        assert before + 5000 <= group.delayed[make_delayed_member("mail", b"x")] <= group.now_ms + 5001

    def test_a_job_is_never_due_early_not_even_by_a_part_of_a_millisecond(self, group: Group) -> None:
        for number in range(20):
            before = group.now_us
            group.add_with_options(Wanted("mail", b"%d" % number, "job", "+5000"))
            assert group.delayed[make_delayed_member("mail", b"%d" % number)] * 1000 >= before + 5_000_000

    def test_a_job_may_be_due_at_a_time(self, group: Group) -> None:
        at_ms = group.now_ms + HOUR_MS
        group.add_with_options(Wanted("mail", b"x", "job", str(at_ms)))
        assert group.delayed == {make_delayed_member("mail", b"x"): at_ms}

    def test_a_time_that_has_passed_is_now(self, group: Group) -> None:
        for due in ("0", "1", str(group.now_ms - 1)):
            group.add_with_options(Wanted("", b"x", "job", due))
        assert (len(group.stream), group.delayed) == (3, {})

    def test_no_time_from_now_is_now(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"x", "job", "+0"))
        assert (len(group.stream), group.delayed) == (1, {})

    def test_the_index_finds_a_delayed_job_and_ends_so_long_after_it_is_due(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"x", "job", "+5000"))
        assert group.index("job") == make_delayed_member("mail", b"x")
        assert KEPT_MS < group.client.pttl(index_key("job")) <= KEPT_MS + 5000

    def test_a_job_that_is_due_now_needs_no_index(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"x", "job"), only(b"y", job_id="other"))
        assert (group.index("job"), group.index("other")) == (None, None)

    def test_a_batch_keeps_its_order(self, group: Group) -> None:
        jobs = [Wanted("", b"%d" % number, str(number), LATER if number % 3 == 0 else "") for number in range(9)]
        assert group.add_with_options(*jobs) == "n" * 9
        assert group.envelopes == [b"1", b"2", b"4", b"5", b"7", b"8"]
        assert len(group.delayed) == 3

    def test_jobs_that_need_not_be_unique_may_share_an_id(self, group: Group) -> None:
        jobs = [Wanted("", b"%d" % number, "job") for number in range(3)]
        assert group.add_with_options(*jobs) == "nnn"
        assert group.envelopes == [b"0", b"1", b"2"]
        assert group.uniqueness_key("job") is None

    def test_any_envelope_and_any_id_pass_unchanged(self, group: Group) -> None:
        for number, envelope in enumerate([bytes(range(256)), b"", b"\0", b"\r\n", b"7"]):
            group.add_with_options(only(envelope, due=LATER, job_id=f"ü {number} %s"))
            assert group.index(f"ü {number} %s") == make_delayed_member("mail", envelope)

    def test_names_of_any_length(self, group: Group) -> None:
        name = "ü" * 150
        group.add_with_options(Wanted(name, b"x", "job", LATER))
        assert list(group.delayed) == [make_delayed_member(name, b"x")]

    @pytest.mark.parametrize("delay_ms", (1, 30 * 24 * HOUR_MS, 2**53, 2**64 - 1, 10**300))
    @pytest.mark.parametrize("if_exists", ("", "keep"))
    def test_any_delay_is_stored(self, group: Group, delay_ms: int, if_exists: str) -> None:
        assert group.add_with_options(only(b"x", if_exists, f"+{delay_ms}"), only(b"y", job_id="other")) == "nn"
        assert group.delayed[make_delayed_member("mail", b"x")] == pytest.approx(group.now_ms + delay_ms, abs=60_000)
        assert group.envelopes == [b"y"]

    def test_a_delay_beyond_all_bounds_costs_no_job(self, group: Group) -> None:
        never = f"+{10**300}"
        jobs = (Wanted("", b"1", "1", never), only(b"2", due=never), only(b"3", job_id="3"))
        assert group.add_with_options(*jobs) == "nnn"
        assert (len(group.delayed), group.envelopes) == (2, [b"3"])
        assert (group.index("1"), group.uniqueness_key("job")) == (make_delayed_member("", b"1"), "d")


class TestUniquenessKey:
    """A unique job: until it is done, for a window, or with the data of the last add."""

    def test_the_first_is_new_and_leaves_a_uniqueness_key_that_says_where_it_is(self, group: Group) -> None:
        assert group.add_with_options(only(b"x")) == "n"
        assert group.uniqueness_key("job") == group.stream[0].decode()
        assert KEPT_MS - 60_000 < group.client.pttl(unique_key("job")) <= KEPT_MS

    def test_the_key_of_a_delayed_job_says_so_and_outlives_its_due_time(self, group: Group) -> None:
        assert group.add_with_options(only(b"x", due="+5000")) == "n"
        assert group.uniqueness_key("job") == "d"
        assert KEPT_MS < group.client.pttl(unique_key("job")) <= KEPT_MS + 5000

    @pytest.mark.parametrize("first", ("", LATER))
    @pytest.mark.parametrize("second", ("", LATER, "0"))
    def test_a_second_one_is_kept_out_whether_delayed_or_not(self, group: Group, first: str, second: str) -> None:
        group.add_with_options(only(b"first", due=first))
        stored = (group.entries, group.delayed, group.uniqueness_key("job"))
        assert group.add_with_options(only(b"second", due=second)) == "d"
        assert (group.entries, group.delayed, group.uniqueness_key("job")) == stored

    def test_a_second_one_is_kept_out(self, group: Group) -> None:
        assert group.add_with_options(only(b"first", due=LATER), only(b"second")) == "nd"
        assert group.add_with_options(only(b"third"), only(b"fourth", due=LATER)) == "dd"
        assert (group.stream, len(group.delayed)) == ([], 1)

    def test_a_job_that_need_not_be_unique_is_added_beside_a_unique_one(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        marker = group.uniqueness_key("job")
        assert group.add_with_options(Wanted("", b"second", "job"), Wanted("", b"third", "job", LATER)) == "nn"
        assert group.uniqueness_key("job") == marker

    def test_jobs_of_different_ids_are_different_jobs(self, group: Group) -> None:
        assert group.add_with_options(only(b"1", job_id="1"), only(b"2", job_id="2"), only(b"1", job_id="1")) == "nnd"

    def test_a_running_job_keeps_its_id(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        group.read("a", 1)
        assert [
            group.add_with_options(only(b"second", if_exists)) for if_exists in ("keep", "replace", "postpone")
        ] == [
            "d",
            "d",
            "d",
        ]
        assert group.envelopes == [b"first"]

    def test_a_job_that_waits_for_its_retry_keeps_its_id(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        (entry_id,) = group.read("a", 1)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.add_with_options(only(b"second")) == "d"

    def test_a_finished_job_frees_its_id(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        (entry_id,) = group.read("a", 1)
        group.ack_unique((entry_id, "job"))
        assert group.add_with_options(only(b"second")) == "n"

    def test_a_job_whose_entry_is_gone_frees_its_id(self, group: Group) -> None:
        """A worker that knows nothing of uniqueness keys has run it."""
        group.add_with_options(only(b"first"))
        (entry_id,) = group.read("official", 1)
        group.client.xack(KEYS.stream, GROUP, entry_id)
        group.client.xdel(KEYS.stream, entry_id)
        assert group.uniqueness_key("job") == entry_id.decode()
        assert group.add_with_options(only(b"second")) == "n"
        assert group.uniqueness_key("job") == group.stream[0].decode()

    def test_a_missing_stream_frees_the_id(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        group.client.delete(KEYS.stream)
        assert group.add_with_options(only(b"second", "replace")) == "n"

    def test_the_index_of_another_job_of_the_id_stays_when_a_waiting_one_is_replaced(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        group.client.set(index_key("job"), "a member")
        assert group.add_with_options(only(b"second", "replace")) == "r"
        assert group.index("job") == b"a member"

    def test_the_delayed_job_of_an_official_producer_can_be_replaced(self, group: Group) -> None:
        due_ms, member = group.now_ms + HOUR_MS, make_delayed_member("mail", b"theirs")
        group.client.zadd(KEYS.delayed, {member: due_ms})
        group.client.set(index_key("job"), member)
        group.client.set(official_unique_key("job"), "1")
        assert group.add_with_options(only(b"ours", "replace")) == "r"
        assert group.delayed == {make_delayed_member("mail", b"ours"): due_ms}
        assert group.uniqueness_key("job") == "d"

    def test_an_id_like_ours_shows_in_the_entry_that_it_has_a_uniqueness_key(self, group: Group) -> None:
        group.add_with_options(only(b"x", job_id=ULID), Wanted("", b"y", ULID[:-1] + "W", "", "keep"))
        assert group.entries == [{b"d": b"x", b"n": b"mail", b"u": b"1"}, {b"d": b"y", b"u": b"1"}]

    def test_an_entry_without_a_uniqueness_key_has_no_field_for_it(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", b"x", ULID))
        assert group.entries == [{b"d": b"x", b"n": b"mail"}]

    def test_an_id_of_26_characters_is_flagged_for_any_bytes(self, group: Group) -> None:
        group.add_with_options(only(b"x", job_id="ü" + ULID[1:]), only(b"y", job_id="ü" * 26))
        assert [entry[b"u"] for entry in group.entries] == [b"1", b"1"]

    def test_an_id_of_another_length_needs_no_flag(self, group: Group) -> None:
        group.add_with_options(only(b"x", job_id=ULID[1:]))
        assert group.entries == [{b"d": b"x", b"n": b"mail"}]


class TestOfficial:
    """Beside official processes: they read a uniqueness key of their own, and do not record what they have done."""

    def test_official_producers_do_not_see_a_job_in_the_stream(self, group: Group) -> None:
        group.add_with_options(only(b"x"))
        assert not group.client.exists(official_unique_key("job"))

    def test_official_producers_see_a_short_delay_as_one_second(self, group: Group) -> None:
        group.add_with_options(only(b"x", due="+1"))
        assert HOUR_MS < group.client.pttl(official_unique_key("job")) <= HOUR_MS + 1000
        assert group.client.get(official_unique_key("job")) == b"1"

    def test_a_job_of_theirs_that_was_promoted_is_found_in_the_stream(self, group: Group) -> None:
        delay_officially(group, "job", 1)
        promote_officially(group)
        assert group.add_with_options(only(b"second")) == "d"

    @pytest.mark.parametrize("delay_ms", (1, 999, 1500, 5000, 2 * HOUR_MS))
    def test_official_producers_see_a_delayed_job_as_long_as_their_own(self, group: Group, delay_ms: int) -> None:
        group.add_with_options(only(b"x", due=f"+{delay_ms}"))
        ttl_ms = group.client.pttl(official_unique_key("job"))
        theirs_ms = 1000 * (max(1, delay_ms // 1000) + 3600)
        assert theirs_ms - 900 < ttl_ms <= theirs_ms

    def test_official_producers_see_a_job_no_longer_than_its_window(self, group: Group) -> None:
        group.add_with_options(only(b"x", due=LATER, window_ms=60_000))
        assert 30_000 < group.client.pttl(official_unique_key("job")) <= 60_000

    def test_a_delayed_job_of_theirs_keeps_ours_out(self, group: Group) -> None:
        member = delay_officially(group, "job", HOUR_MS)
        assert group.add_with_options(only(b"ours"), only(b"ours", due=LATER)) == "dd"
        assert (list(group.delayed), group.stream) == ([member], [])

    @pytest.mark.parametrize("is_ours", (True, False))
    @pytest.mark.parametrize("cleans", (True, False))
    def test_a_job_that_an_official_promoter_moved_keeps_its_id_until_it_is_gone(
        self, group: Group, is_ours: bool, cleans: bool
    ) -> None:
        if is_ours:
            group.add_with_options(only(envelope("job"), due="+1"))
        else:
            delay_officially(group, "job", 1)
        group.add(20)
        promote_officially(group, cleans=cleans)
        group.add(20)
        assert group.add_with_options(only(b"second")) == "d"
        group.read("official", 10)
        assert group.add_with_options(only(b"second")) == "d"
        group.client.xtrim(KEYS.stream, maxlen=0, approximate=False)
        assert group.add_with_options(only(b"second")) == "n"
        assert not group.client.exists(official_unique_key("job"))

    def test_a_job_that_an_official_promoter_moved_can_be_replaced_while_it_waits(self, group: Group) -> None:
        group.add_with_options(only(envelope("job"), due="+1"))
        promote_officially(group)
        assert group.add_with_options(only(b"second", "replace")) == "r"
        assert (group.envelopes, group.uniqueness_key("job")) == ([b"second"], group.stream[0].decode())

    def test_a_job_that_an_official_worker_ran_frees_its_id_there_too(self, group: Group) -> None:
        group.add_with_options(only(b"first", due="+1"))
        group.wait_ms(3)
        group.promote()
        assert group.client.exists(official_unique_key("job"))
        end(group)
        assert group.add_with_options(only(b"second")) == "n"
        assert not group.client.exists(official_unique_key("job"))

    def test_a_job_that_an_official_producer_cancelled_frees_its_id(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER))
        group.client.delete(KEYS.delayed, index_key("job"), official_unique_key("job"))
        assert group.add_with_options(only(b"second")) == "n"

    def test_a_job_behind_more_entries_than_are_searched_keeps_its_id(self, group: Group) -> None:
        """The script cannot know; the official uniqueness key ends an hour past the due time."""
        group.add_with_options(only(b"none of this id", due="+1"))
        promote_officially(group)
        group.add(2100)
        assert group.add_with_options(only(b"second"), only(b"third", "replace")) == "dd"

    def test_a_job_due_long_before_the_searched_entries_frees_its_id(self, group: Group) -> None:
        """A live promoter is not late by more than a minute."""
        fill(group, 2100, from_ms=group.now_ms - 600_000)
        leave_key(group, "job", due_ms=group.now_ms - 700_000)
        leave_key(group, "late", due_ms=group.now_ms - 630_000)
        assert group.add_with_options(only(b"second"), only(b"late", job_id="late")) == "nd"

    def test_a_job_due_more_than_an_hour_ago_frees_its_id(self, group: Group) -> None:
        leave_key(group, "job", due_ms=group.now_ms - HOUR_MS - 10_000)
        fill(group, 2100, from_ms=group.now_ms - HOUR_MS)
        assert group.add_with_options(only(b"second")) == "n"

    def test_each_job_of_a_batch_is_found_at_any_due_time(self, group: Group) -> None:
        """The script searches the stream once."""
        start_ms = group.now_ms - 500_000
        for number in range(400):
            group.client.xadd(KEYS.stream, {"d": envelope(f"job {number}")}, f"{start_ms + 1000 * number}-1")
            leave_key(group, f"job {number}", due_ms=start_ms + 1000 * number - 100)
            leave_key(group, f"gone {number}", due_ms=start_ms + 1000 * number - 100)
        jobs = [only(b"x", job_id=f"{kind} {number}") for number in reversed(range(400)) for kind in ("job", "gone")]
        assert group.add_with_options(*jobs) == "dn" * 400

    def test_a_job_behind_large_entries_keeps_its_id(self, group: Group) -> None:
        group.add_with_options(only(b"none of this id", due="+1"))
        promote_officially(group)
        for _ in range(20):
            group.client.xadd(KEYS.stream, {"d": bytes(2**17)})
        assert group.add_with_options(only(b"second")) == "d"

    def test_an_official_job_without_a_known_due_time_does_not_keep_its_id(self, group: Group) -> None:
        group.client.xadd(KEYS.stream, {"d": envelope("job")})
        assert group.add_with_options(only(b"second")) == "n"


class TestSearch:
    """A call reads 2,000 entries or 2 MiB of them to find jobs that an official promoter has moved."""

    def test_the_search_ends_with_the_2000th_entry(self, group: Group) -> None:
        from_ms = group.now_ms - 600_000
        for count, answer in ((1999, "n"), (2000, "d")):
            fill(group, count, from_ms)
            leave_key(group, "job", due_ms=from_ms - 10_000)
            assert group.add_with_options(only(b"second")) == answer

    def test_the_search_ends_with_the_byte_that_completes_2_mib(self, group: Group) -> None:
        for size, answer in ((2**20 - 1, "n"), (2**20, "d")):
            group.client.xtrim(KEYS.stream, maxlen=0, approximate=False)
            leave_key(group, "job", due_ms=group.now_ms - 10_000)
            for bytes_ in (2**20, size):
                group.client.xadd(KEYS.stream, {"d": bytes(bytes_)})
            assert group.add_with_options(only(b"second")) == answer

    def test_a_job_behind_the_end_of_the_search_is_not_found(self, group: Group) -> None:
        leave_key(group, "job", due_ms=group.now_ms - 10_000)
        fill(group, 2100, group.now_ms)
        group.client.xadd(KEYS.stream, {"d": envelope("job")})
        assert group.add_with_options(only(b"second", "replace")) == "d"

    def test_a_later_job_reads_no_entry_behind_the_end_of_the_search(self, group: Group) -> None:
        """The first job uses it up; the second was due before, when nothing was added."""
        from_ms = group.now_ms - 300_000
        for count, answers, pages in ((1999, "nn", 201), (2000, "dd", 200)):
            fill(group, count, from_ms)
            leave_key(group, "job", due_ms=from_ms - 10_000)
            leave_key(group, "earlier", due_ms=from_ms - 200_000)
            group.client.config_resetstat()
            assert group.add_with_options(only(b"x"), only(b"y", job_id="earlier")) == answers
            assert reads_of_stream(group) == pages + 1  # one to see whether it is refused

    def test_a_later_job_reads_no_byte_behind_the_end_of_the_search(self, group: Group) -> None:
        from_ms = group.now_ms - 300_000
        for size, answers, pages in ((2**21 - 1, "nn", 2), (2**21, "dd", 1)):
            group.client.delete(KEYS.stream)
            group.client.xadd(KEYS.stream, {"d": bytes(size)}, f"{from_ms}-1")
            leave_key(group, "job", due_ms=from_ms - 10_000)
            leave_key(group, "earlier", due_ms=from_ms - 200_000)
            group.client.config_resetstat()
            assert group.add_with_options(only(b"x"), only(b"y", job_id="earlier")) == answers
            assert reads_of_stream(group) == pages + 1

    def test_a_second_search_leaves_no_millisecond_out(self, group: Group) -> None:
        from_ms = group.now_ms - 300_000
        group.client.delete(KEYS.stream)
        leave_key(group, "later", due_ms=from_ms)
        for number in range(20):
            leave_key(group, f"job {number}", due_ms=from_ms - 100)
            group.client.xadd(KEYS.stream, {"d": envelope(f"job {number}")}, f"{from_ms - 1010 + number}-1")
        jobs = [only(b"x", job_id=f"job {number}") for number in range(20)]
        assert group.add_with_options(only(b"x", job_id="later"), *jobs) == "n" + "d" * 20

    def test_a_stream_is_searched_once_for_all_jobs_of_a_time(self, group: Group) -> None:
        from_ms = group.now_ms - 300_000
        fill(group, 95, from_ms)
        for number in range(50):
            leave_key(group, f"job {number}", due_ms=from_ms)
        group.client.config_resetstat()
        assert group.add_with_options(*(only(b"x", job_id=f"job {number}") for number in range(50))) == "n" * 50
        assert reads_of_stream(group) <= 10 + 10 + 1  # a job whose key was written a millisecond later is due later

    def test_a_job_whose_entry_is_gone_is_not_searched_for(self, group: Group) -> None:
        group.add(5)
        group.client.set(unique_key("job"), "5-5", px=KEPT_MS)
        group.client.config_resetstat()
        assert group.add_with_options(only(b"second")) == "n"
        assert reads_of_stream(group) == 1

    def test_the_end_of_an_official_key_shows_when_its_job_was_due(self, group: Group) -> None:
        """An hour past that time by a clock that may be a minute behind."""
        from_ms = group.now_ms - 600_000
        fill(group, 2100, from_ms)
        for due_ms, answer in ((from_ms - 10_000, "d"), (from_ms - 70_000, "n")):
            group.client.set(official_unique_key("job"), "1", px=due_ms + 3_660_000 - group.now_ms)
            assert group.add_with_options(only(b"second")) == answer


def reads_of_stream(group: Group) -> int:
    return int(group.client.info("commandstats")["cmdstat_xrange"]["calls"])


class TestPoison:
    """Uniqueness keys of any content: no batch is added in part because of them."""

    @pytest.mark.parametrize(
        "value",
        (b"", b"odd", b"\xff", b"-", b"1-", b"w", b"d1", b"9-" + b"9" * 40, b"9" * 40 + b"-1", b"1-1 ", b"w-1", b"0-0"),
    )
    @pytest.mark.parametrize("key_of", (unique_key, index_key, official_unique_key))
    @pytest.mark.parametrize("if_exists", ("keep", "replace"))
    def test_a_key_with_any_value_stops_no_job(self, group: Group, key_of: Any, value: bytes, if_exists: str) -> None:
        group.client.set(key_of("job"), value, ex=4000)
        jobs = [only(b"%d" % number, job_id=str(number)) for number in range(8)]
        answers = group.add_with_options(*jobs[:4], only(b"x", if_exists), *jobs[4:])
        assert answers in ("nnnnnnnnn", "nnnndnnnn")
        assert len(group.stream) == answers.count("n")

    @pytest.mark.parametrize("key_of", (unique_key, index_key, official_unique_key))
    @pytest.mark.parametrize("due", ("", LATER))
    def test_a_key_of_any_type_stops_no_job(self, group: Group, key_of: Any, due: str) -> None:
        group.client.rpush(key_of("job"), "a list")
        jobs = [only(b"%d" % number, job_id=str(number)) for number in range(8)]
        assert group.add_with_options(*jobs[:4], only(b"x", due=due), *jobs[4:]) == "n" * 9

    def test_a_job_that_runs_is_not_replaced_because_its_id_has_leading_zeros_there(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        (entry_id,) = group.read("a", 1)
        group.client.set(unique_key("job"), b"000" + entry_id)
        assert group.add_with_options(only(b"second", "replace")) == "d"
        assert group.stream == [entry_id]

    def test_a_stream_whose_ids_are_used_up_takes_nothing(self, group: Group) -> None:
        use_up(group)
        with pytest.raises(redis.ResponseError, match=r"exhausted|equal or smaller"):
            group.add_with_options(only(b"1", job_id="1"), Wanted("", b"2", "2"))
        assert LEDGER not in group.keys
        assert [key for key in group.keys if ":unique:" in key] == []

    def test_a_batch_that_a_stream_refuses_leaves_the_slot_as_it_was(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"1", "1"), number=6)
        use_up(group)
        with pytest.raises(redis.ResponseError, match=r"exhausted|equal or smaller"):
            group.add_with_options(Wanted("", b"2", "2"), number=7)
        assert group.client.hgetall(LEDGER) == {b"0": b"6 n"}

    def test_jobs_that_the_stream_refuses_are_full_and_the_others_are_stored(self, group: Group) -> None:
        use_up(group)
        jobs = (only(b"1", due=LATER), only(b"2", job_id="2"), Wanted("", b"3", "3"), only(b"4", "replace"))
        flagged = (only(b"5", job_id=ULID), Wanted("", b"6", ULID[:-1] + "W", only="keep"))
        assert group.add_with_options(*jobs, *flagged) == "nffrff"
        assert list(group.delayed) == [make_delayed_member("mail", b"4")]
        assert group.uniqueness_key("2") is None

    def test_a_replacement_that_is_refused_leaves_the_first_as_it_is(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER))
        use_up(group)
        with pytest.raises(redis.ResponseError, match=r"exhausted|equal or smaller"):
            group.add_with_options(only(b"second", "postpone"))
        assert list(group.delayed) == [make_delayed_member("mail", b"first")]
        assert group.uniqueness_key("job") == "d"


def use_up(group: Group) -> None:
    """The last possible id is taken."""
    group.client.xadd(KEYS.stream, {"d": "last"}, f"{2**64 - 1}-{2**64 - 1}")


class TestWindow:
    def test_the_window_has_its_length_for_immediate_and_delayed_jobs(self, group: Group) -> None:
        group.add_with_options(only(b"x", window_ms=60_000), only(b"y", due=LATER, window_ms=60_000, job_id="later"))
        for job_id in ("job", "later"):
            assert 30_000 < group.client.pttl(unique_key(job_id)) <= 60_000
        assert (group.uniqueness_key("job"), group.uniqueness_key("later")) == ("w" + group.stream[0].decode(), "wd")

    def test_the_window_keeps_the_id_though_the_job_is_done(self, group: Group) -> None:
        group.add_with_options(only(b"first", window_ms=60_000))
        (entry_id,) = group.read("a", 1)
        group.ack_unique((entry_id, "job"))
        for if_exists in ("keep", "replace", "postpone"):
            assert group.add_with_options(only(b"second", if_exists)) == "d"
        assert group.stream == []

    def test_the_id_is_free_after_the_window_though_the_job_waits(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER, window_ms=1))
        group.wait_ms(3)
        assert group.add_with_options(only(b"second")) == "n"

    def test_a_stream_that_is_gone_does_not_end_it(self, group: Group) -> None:
        group.add_with_options(only(b"first", window_ms=60_000))
        group.client.delete(KEYS.stream)
        assert group.add_with_options(only(b"second", "replace"), Wanted("", b"plain", "p")) == "dn"

    def test_a_rebuilt_group_does_not_end_the_window(self, group: Group) -> None:
        group.add_with_options(only(b"first", window_ms=60_000))
        (entry_id,) = group.read("a", 1)
        group.ack_unique((entry_id, "job"))
        group.recreate()
        assert group.add_with_options(only(b"second", "replace")) == "d"
        assert group.stream == []

    def test_a_replacing_job_begins_its_own_window(self, group: Group) -> None:
        group.add_with_options(only(b"first", window_ms=60_000))
        assert group.add_with_options(only(b"second", "replace", window_ms=90_000)) == "r"
        assert group.uniqueness_key("job") == "w" + group.stream[0].decode()
        assert group.client.pttl(unique_key("job")) > 60_000
        assert group.add_with_options(only(b"third", "replace")) == "r"
        assert group.uniqueness_key("job") == group.stream[0].decode()


class TestReplace:
    def test_a_delayed_job_gets_the_new_data_and_keeps_its_time(self, group: Group) -> None:
        group.add_with_options(only(b"first", due="+5000"))
        (due_ms,) = group.delayed.values()
        assert group.add_with_options(only(b"second", "replace", due=LATER)) == "r"
        assert group.delayed == {make_delayed_member("mail", b"second"): due_ms}
        assert group.index("job") == make_delayed_member("mail", b"second")
        assert group.uniqueness_key("job") == "d"

    def test_a_job_that_waits_in_the_stream_gets_the_new_data(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        assert group.add_with_options(only(b"second", "replace", due=LATER)) == "r"
        assert (group.envelopes, group.delayed) == ([b"second"], {})
        assert group.uniqueness_key("job") == group.stream[0].decode()

    def test_a_due_job_that_is_not_promoted_yet_joins_the_stream(self, group: Group) -> None:
        group.add_with_options(only(b"first", due="+1"))
        group.wait_ms(3)
        assert group.add_with_options(only(b"second", "replace")) == "r"
        assert (group.envelopes, group.delayed) == ([b"second"], {})
        assert group.uniqueness_key("job") == group.stream[0].decode()
        assert group.index("job") is None

    @pytest.mark.parametrize("score", ("9999999999999.5", "1e300", "inf"))
    def test_a_job_that_another_client_has_moved_to_an_odd_time_is_replaced_as_a_whole(
        self, group: Group, score: str
    ) -> None:
        group.add_with_options(only(b"first", due=LATER))
        group.client.zadd(KEYS.delayed, {make_delayed_member("mail", b"first"): score})
        assert group.add_with_options(only(b"second", "replace")) == "r"
        ((member, due_ms),) = group.delayed.items()
        assert (member, group.index("job")) == (make_delayed_member("mail", b"second"), member)
        assert due_ms >= float(score)
        assert group.uniqueness_key("job") == "d"

    def test_a_delivered_job_is_left_to_its_worker(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        (entry_id,) = group.read("a", 1)
        assert group.add_with_options(only(b"second", "replace")) == "d"
        assert (group.stream, group.uniqueness_key("job")) == ([entry_id], entry_id.decode())

    def test_a_job_delivered_to_another_group_is_left_to_its_worker(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        group.client.xgroup_create(KEYS.stream, "another", "0")
        group.client.xreadgroup("another", "b", {KEYS.stream: ">"})
        assert group.add_with_options(only(b"second", "replace")) == "d"
        assert group.envelopes == [b"first"]

    def test_entries_are_compared_as_numbers(self, group: Group) -> None:
        """One of the same millisecond as the last delivered, with a longer number; and one of a later millisecond."""
        for last, waiting in (("5-9", "5-10"), ("9-10", "10-1"), ("10-2", "10-3")):
            group.client.delete(KEYS.stream)
            group.client.xadd(KEYS.stream, {"d": b"delivered"}, id=last)
            group.create()
            group.read("a", 1)
            group.client.xadd(KEYS.stream, {"d": b"first"}, id=waiting)
            group.client.set(unique_key("job"), waiting)
            assert group.add_with_options(only(b"second", "replace")) == "r"
            assert group.envelopes == [b"delivered", b"second"]

    def test_an_entry_before_the_last_delivered_one_of_a_millisecond_was_delivered(self, group: Group) -> None:
        group.client.xadd(KEYS.stream, {"d": b"first"}, id="5-9")
        group.client.xadd(KEYS.stream, {"d": b"last"}, id="5-10")
        group.read("a", 2)
        group.client.set(unique_key("job"), "5-9")
        assert group.add_with_options(only(b"second", "replace")) == "d"

    def test_an_entry_of_an_earlier_millisecond_was_delivered(self, group: Group) -> None:
        group.client.xadd(KEYS.stream, {"d": b"first"}, id="5-9")
        group.client.xadd(KEYS.stream, {"d": b"last"}, id="6-1")
        group.read("a", 2)
        group.client.set(unique_key("job"), "5-9")
        assert group.add_with_options(only(b"second", "replace")) == "d"

    def test_a_replacing_job_with_a_ulid_is_flagged_too(self, group: Group) -> None:
        group.add_with_options(only(b"first", job_id=ULID))
        group.add_with_options(only(b"second", "replace", job_id=ULID))
        assert group.entries == [{b"d": b"second", b"n": b"mail", b"u": b"1"}]

    def test_every_entry_waits_without_a_group(self, group: Group) -> None:
        group.client.xgroup_destroy(KEYS.stream, GROUP)
        group.add_with_options(only(b"first"))
        assert group.add_with_options(only(b"second", "replace")) == "r"
        assert group.envelopes == [b"second"]

    def test_the_last_of_a_batch_wins(self, group: Group) -> None:
        jobs = [only(b"%d" % number, "replace", due=LATER) for number in range(5)]
        assert group.add_with_options(*jobs) == "nrrrr"
        assert list(group.delayed) == [make_delayed_member("mail", b"4")]

    def test_the_same_data_again_is_one_job(self, group: Group) -> None:
        assert group.add_with_options(only(b"x", "replace", due=LATER), only(b"x", "replace", due=LATER)) == "nr"
        assert len(group.delayed) == 1
        assert group.index("job") == make_delayed_member("mail", b"x")

    def test_a_job_that_an_official_promoter_moved_and_a_worker_holds_is_not_replaced(self, group: Group) -> None:
        """The uniqueness key says that the job is delayed, but a worker has it."""
        group.add_with_options(only(envelope("job"), due="+1"))
        promote_officially(group)
        assert len(group.read("official", 1)) == 1
        for if_exists in ("keep", "replace", "postpone"):
            assert group.add_with_options(only(b"second", if_exists)) == "d"
        assert group.envelopes == [envelope("job")]


class TestPostpone:
    def test_a_delayed_job_gets_the_new_data_and_the_new_time(self, group: Group) -> None:
        group.add_with_options(only(b"first", due="+5000"))
        before = group.now_ms
        assert group.add_with_options(only(b"second", "postpone", due=LATER)) == "r"
        assert list(group.delayed) == [make_delayed_member("mail", b"second")]
        assert group.delayed[make_delayed_member("mail", b"second")] >= before + HOUR_MS
        assert group.client.pttl(unique_key("job")) > KEPT_MS + HOUR_MS - 60_000

    def test_a_job_that_waits_in_the_stream_is_delayed(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        assert group.add_with_options(only(b"second", "postpone", due=LATER)) == "r"
        assert (group.stream, group.uniqueness_key("job")) == ([], "d")
        assert group.index("job") == make_delayed_member("mail", b"second")

    def test_a_job_without_a_time_is_due_now(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER))
        assert group.add_with_options(only(b"second", "postpone")) == "r"
        assert (group.envelopes, group.delayed) == ([b"second"], {})
        assert group.index("job") is None

    def test_a_postponed_job_keeps_its_id(self, group: Group) -> None:
        assert group.add_with_options(*(only(b"%d" % i, "postpone", due=f"+{i}000") for i in range(1, 6))) == "nrrrr"
        assert group.add_with_options(only(b"late")) == "d"
        assert len(group.delayed) == 1


class TestLedger:
    def test_the_same_batch_sent_again_is_answered_again_and_not_added(self, group: Group) -> None:
        jobs = (Wanted("", b"1", "1"), only(b"2", due=LATER), only(b"3"), only(b"4", "replace"))
        assert [group.add_with_options(*jobs, number=7) for _ in range(3)] == ["nndr"] * 3
        assert (group.envelopes, list(group.delayed)) == ([b"1"], [make_delayed_member("mail", b"4")])

    def test_the_answer_is_what_it_was_though_the_job_is_done_by_now(self, group: Group) -> None:
        group.add_with_options(only(b"x"), number=7)
        (entry_id,) = group.read("a", 1)
        group.ack_unique((entry_id, "job"))
        assert group.add_with_options(only(b"x"), number=7) == "n"
        assert group.stream == []

    def test_a_number_older_than_the_slots_last_is_not_added(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"new", "1"), number=10)
        group.add_with_options(Wanted("", b"stuck on an old connection", "2"), number=9)
        assert group.envelopes == [b"new"]

    def test_the_next_number_is_added(self, group: Group) -> None:
        for number in (9, 10, 11):
            assert group.add_with_options(Wanted("", b"%d" % number, "job"), number=number) == "n"
        assert group.envelopes == [b"9", b"10", b"11"]

    def test_slots_do_not_know_of_each_other(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"late", "1"), number=9, slot=0)
        assert group.add_with_options(Wanted("", b"early", "2"), number=4, slot=1) == "n"
        assert group.envelopes == [b"late", b"early"]

    def test_a_late_copy_of_a_plain_batch_is_not_added_after_one_with_options(self, group: Group) -> None:
        assert add_plain(group, b"a", b"b", number=7) == 2
        group.add_with_options(Wanted("", b"c", "job"), number=8)
        assert add_plain(group, b"a", b"b", number=7) == 0
        assert group.envelopes == [b"a", b"b", b"c"]

    def test_a_late_copy_of_a_batch_with_options_is_not_added_after_a_plain_one(self, group: Group) -> None:
        assert group.add_with_options(Wanted("", b"a", "1"), only(b"b", due=LATER), number=7) == "nn"
        add_plain(group, b"c", number=8)
        group.add_with_options(Wanted("", b"a", "1"), only(b"b", due=LATER), number=7)
        assert (group.envelopes, len(group.delayed)) == ([b"a", b"c"], 1)

    def test_plain_adds_and_adds_with_options_share_a_slot(self, group: Group) -> None:
        assert add_plain(group, b"1", number=1) == 1
        assert group.add_with_options(Wanted("", b"2", "job"), number=2) == "n"
        assert add_plain(group, b"3", number=3) == 1
        assert group.envelopes == [b"1", b"2", b"3"]
        assert group.client.hlen(LEDGER) == 1

    def test_the_ledger_expires(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"x", "job"))
        assert 0 < group.client.pttl(LEDGER) <= LEDGER_TTL_MS

    def test_a_refusal_is_remembered_even_if_there_is_room_by_now(self, group: Group) -> None:
        group.add(1)
        assert group.add_with_options(Wanted("", b"x", "job"), number=2, room=1) == "f"
        group.client.xtrim(KEYS.stream, maxlen=0, approximate=False)
        assert group.add_with_options(Wanted("", b"x", "job"), number=2, room=1) == "f"
        assert group.stream == []


class TestRoom:
    def test_a_job_that_needs_room_is_refused_without_it(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"1", "1"))
        assert group.add_with_options(Wanted("", b"2", "2"), room=1, needed=1) == "f"
        assert group.envelopes == [b"1"]

    def test_a_delayed_job_is_taken_although_the_stream_is_longer_than_its_bound(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"1", "1"), Wanted("", b"2", "2"))
        assert group.add_with_options(Wanted("", b"3", "3", LATER), room=1) == "n"

    def test_no_job_is_refused_without_a_bound(self, group: Group) -> None:
        assert (
            group.add_with_options(*(Wanted("", b"x", str(number)) for number in range(100)), needed=100) == "n" * 100
        )

    def test_the_first_of_several_single_adds_are_taken(self, group: Group) -> None:
        group.add(3)
        jobs = [Wanted("", b"%d" % number, str(number)) for number in range(4)]
        assert group.add_with_options(*jobs, room=5) == "nnff"
        assert len(group.stream) == 5

    def test_delayed_jobs_need_no_room(self, group: Group) -> None:
        group.add(1)
        jobs = (Wanted("", b"1", "1", LATER), Wanted("", b"2", "2"), only(b"3", due=LATER), only(b"4", job_id="4"))
        assert group.add_with_options(*jobs, room=1) == "nfnf"
        assert (len(group.delayed), group.uniqueness_key("4")) == (2, None)

    def test_a_batch_that_asks_for_more_than_there_is_is_refused_whole(self, group: Group) -> None:
        group.add(3)
        jobs = (Wanted("", b"1", "1"), only(b"2", due=LATER), Wanted("", b"3", "3"))
        assert group.add_with_options(*jobs, room=4, needed=2) == "fff"
        assert (len(group.stream), group.delayed, group.uniqueness_key("job")) == (3, {}, None)

    def test_a_batch_that_asks_and_fits_is_taken_whole(self, group: Group) -> None:
        """This holds also if more of its jobs are due than the producer knew: a time may have passed meanwhile."""
        jobs = (Wanted("", b"1", "1"), Wanted("", b"2", "2", "1"), Wanted("", b"3", "3"))
        assert group.add_with_options(*jobs, room=2, needed=2) == "nnn"
        assert group.add_with_options(Wanted("", b"4", "4"), Wanted("", b"5", "5"), room=4, needed=1) == "nn"

    def test_a_job_that_already_exists_needs_no_room(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        assert group.add_with_options(only(b"second"), room=1) == "d"
        assert group.add_with_options(only(b"third", "replace"), room=1) == "r"
        assert group.envelopes == [b"third"]

    def test_a_job_that_becomes_due_by_a_replacement_is_not_lost_without_room(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER))
        group.add(1)
        assert group.add_with_options(only(b"second", "postpone"), room=1) == "r"
        assert (len(group.stream), group.uniqueness_key("job")) == (2, group.stream[1].decode())

    def test_replacing_a_delayed_job_makes_no_room_for_others(self, group: Group) -> None:
        group.add_with_options(only(b"first", due=LATER))
        group.add(1)
        assert group.add_with_options(only(b"second", "replace"), Wanted("", b"x", "other"), room=1) == "rf"

    def test_postponing_a_job_in_the_stream_makes_room(self, group: Group) -> None:
        group.add_with_options(only(b"first"))
        jobs = (only(b"second", "postpone", due=LATER), Wanted("", b"x", "1"), Wanted("", b"y", "2"))
        assert group.add_with_options(*jobs, room=1) == "rnf"
        assert group.envelopes == [b"x"]


class TestDueMessages:
    def test_promoters_hear_of_the_first_delayed_job(self, group: Group) -> None:
        with group.published(KEYS.due_channel) as heard:
            group.add_with_options(Wanted("", b"x", "job", "+5000"))
        assert heard == [5000]

    def test_a_job_due_before_all_others_is_published(self, group: Group) -> None:
        group.add_with_options(Wanted("", b"1", "1", "+5000"))
        with group.published(KEYS.due_channel) as heard:
            group.add_with_options(Wanted("", b"2", "2", "+4000"))
            group.add_with_options(Wanted("", b"3", "3", "+6000"))
            group.add_with_options(
                Wanted("", b"4", "4", "+3000"), Wanted("", b"5", "5", "+9000"), Wanted("", b"6", "6")
            )
        assert heard == [4000, 3000]

    def test_a_job_due_together_with_the_first_is_published(self, group: Group) -> None:
        at_ms = group.now_ms + 5000
        group.add_with_options(Wanted("", b"1", "1", str(at_ms)))
        with group.published(KEYS.due_channel) as heard:
            group.add_with_options(Wanted("", b"2", "2", str(at_ms)))
        assert len(heard) == 1

    def test_jobs_that_are_due_now_are_not_published(self, group: Group) -> None:
        with group.published(KEYS.due_channel) as heard:
            group.add_with_options(Wanted("", b"1", "1"), only(b"2"))
            group.add_with_options(only(b"3", due=LATER))
        assert heard == []


class TestNarrowUser:
    """A user without all needed permissions gets the refusal before anything is stored."""

    def check(self, group: Group, *rules: str, if_exists: str = "keep") -> None:
        group.add_with_options(only(b"first"), only(b"later", due=LATER, job_id="later"))
        before = (group.entries, group.delayed, group.client.dump(LEDGER))
        jobs = (Wanted("", b"plain", "plain"), only(b"x", if_exists), only(b"y", if_exists, job_id="later"))
        refused = pytest.raises(redis.ResponseError, match=r"NOPERM|permission|can.t run|ACL")
        with group.as_user("allkeys", "+@all", *rules) as narrow, refused:
            narrow.add_with_options(*jobs, number=99)
        assert (group.entries, group.delayed, group.client.dump(LEDGER)) == before

    def test_a_user_without_set_adds_no_job(self, group: Group) -> None:
        self.check(group, "-set")

    def test_a_user_without_zadd_adds_no_job(self, group: Group) -> None:
        self.check(group, "-zadd")

    def test_a_user_without_xadd_adds_no_job(self, group: Group) -> None:
        self.check(group, "-xadd")

    def test_a_user_without_hset_adds_no_job(self, group: Group) -> None:
        """The batch would not be on record: sent again, it would be added again."""
        self.check(group, "-hset")
        with group.as_user("allkeys", "+@all", "-hset") as narrow, refused("hset"):
            narrow.add_with_options(Wanted("", b"alone", "alone"), number=99)
        assert group.envelopes == [b"first"]

    def test_a_user_without_read_commands_replaces_no_job(self, group: Group) -> None:
        for command in ("-mget", "-pttl", "-zscore", "-xrange"):
            self.check(group, command, if_exists="replace")

    def test_a_user_without_xinfo_replaces_no_job(self, group: Group) -> None:
        self.check(group, "-xinfo", if_exists="replace")

    def test_a_user_without_xdel_replaces_no_job(self, group: Group) -> None:
        self.check(group, "-xdel", if_exists="replace")

    def test_a_user_without_zrem_postpones_no_job(self, group: Group) -> None:
        self.check(group, "-zrem", if_exists="postpone")

    def test_a_user_without_removing_commands_may_add_jobs(self, group: Group) -> None:
        with group.as_user("allkeys", "+@all", "-xdel", "-zrem") as narrow:
            assert narrow.add_with_options(only(b"first"), only(b"second"), Wanted("", b"plain", "plain")) == "ndn"

    def test_a_user_without_xdel_replaces_none_of_two_jobs(self, group: Group) -> None:
        group.add_with_options(only(b"later", due=LATER, job_id="later"), only(b"first"))
        jobs = (only(b"x", "replace", job_id="later"), only(b"y", "replace"))
        with (
            group.as_user("allkeys", "+@all", "-xdel") as narrow,
            refused("xdel"),
        ):
            narrow.add_with_options(*jobs, number=99)
        assert (group.envelopes, list(group.delayed)) == ([b"first"], [make_delayed_member("mail", b"later")])

    def test_a_user_without_reading_commands_adds_jobs_that_are_not_unique(self, group: Group) -> None:
        jobs = (Wanted("", b"1", "1", LATER), Wanted("", b"2", "2"))
        with group.as_user("allkeys", "+@all", "-mget", "-pttl", "-zscore", "-xrange") as narrow:
            assert narrow.add_with_options(*jobs) == "nn"

    def test_a_user_without_xadd_delays_one_job_and_none_of_two_if_the_other_is_due(self, group: Group) -> None:
        if not group.can_ask_for_rights:
            pytest.skip("Redis 6.2 cannot be asked what a user may do")
        jobs = (Wanted("", b"1", "1", LATER), Wanted("", b"2", "2"))
        with group.as_user("allkeys", "+@all", "-xadd") as narrow:
            with pytest.raises(redis.ResponseError, match=r"NOPERM|no permissions"):
                narrow.add_with_options(*jobs, number=1)
            assert group.delayed == {}
            assert narrow.add_with_options(jobs[0], number=1) == "n"

    def test_a_user_needs_the_keys_of_the_queue_only(self, group: Group) -> None:
        with group.as_user("+@all", f"~{KEYS.prefix}:*", "&*") as narrow:
            assert narrow.add_with_options(only(b"1", job_id="1"), Wanted("", b"2", "2", LATER)) == "nn"


class TestTrouble:
    @pytest.mark.parametrize("key", (KEYS.stream, KEYS.delayed))
    def test_a_key_of_another_type_is_an_error_and_leaves_no_trace(self, group: Group, key: str) -> None:
        group.client.delete(KEYS.stream)
        group.client.set(key, "a string")
        jobs = (Wanted("", b"1", "1"), only(b"2", due=LATER), only(b"3", job_id="3"))
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.add_with_options(*jobs, number=3)
        assert group.keys == {key}
        group.client.delete(key)
        assert group.add_with_options(*jobs, number=3) == "nnn"

    def test_a_stream_of_another_type_is_found_out_before_anything_is_written(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.add_with_options(only(b"x", due=LATER), Wanted("", b"y", "y"))
        assert group.keys == {KEYS.stream}

    def test_a_stream_of_another_type_takes_none_of_several_plain_jobs(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.add_with_options(Wanted("", b"x", "x", LATER), Wanted("", b"y", "y"))
        assert group.keys == {KEYS.stream}

    def test_a_delayed_set_of_another_type_is_found_out_before_anything_is_written(self, group: Group) -> None:
        group.client.set(KEYS.delayed, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.add_with_options(Wanted("", b"y", "y"), only(b"x", due=LATER))
        assert group.stream == []

    def test_the_script_touches_only_its_own_keys(self, group: Group) -> None:
        group.add_with_options(only(b"1", due=LATER), only(b"2", job_id="2"), Wanted("", b"3", "3"))
        assert group.keys == {
            KEYS.stream, KEYS.delayed, LEDGER, index_key("job"), unique_key("job"), unique_key("2"),
            official_unique_key("job"),
        }  # fmt: skip

    def test_every_key_beside_the_jobs_ends_by_itself(self, group: Group) -> None:
        group.add_with_options(only(b"1", due=LATER), only(b"2", job_id="2"), only(b"3", window_ms=60_000, job_id="3"))
        assert all(group.client.pttl(key) > 0 for key in group.keys - {KEYS.stream, KEYS.delayed})

    def test_no_job_is_added_and_no_number_is_stored_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            with group.full_memory(), pytest.raises(redis.ResponseError, match="maxmemory"):
                group.add_with_options(only(b"x", due=LATER), number=1)
            assert group.keys == set()
            assert group.add_with_options(only(b"x", due=LATER), number=1) == "n"

    def test_10_000_jobs_of_each_kind_are_added_in_one_batch(self, group: Group) -> None:
        jobs = [
            Wanted("mail", b"%d" % number, f"job-{number}", LATER if number % 2 else "", "keep" if number % 3 else "")
            for number in range(10_000)
        ]
        assert group.add_with_options(*jobs) == "n" * 10_000
        assert (len(group.stream), len(group.delayed)) == (5000, 5000)
        assert group.add_with_options(*jobs) == "".join("d" if number % 3 else "n" for number in range(10_000))

    def test_10_000_jobs_of_one_id_in_one_batch_are_one_job(self, group: Group) -> None:
        assert group.add_with_options(*(only(b"%d" % number) for number in range(10_000))) == "n" + "d" * 9999
        assert group.envelopes == [b"0"]
