"""cancel.lua alone: a job is removed, or a note says that it is to stop."""

from __future__ import annotations

import pytest
import redis

from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from tests.scripts.group import (
    EVENTS_MAX_LEN,
    GROUP,
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

LATER = f"+{HOUR_MS}"


def envelope(job_id: str) -> bytes:
    return encode_envelope(job_id, b"\xc0", 1_700_000_000_000, 0, None)


def wanted(job_id: str, due: str = "", only: str = "keep", window_ms: int = 0) -> Wanted:
    return Wanted("mail", envelope(job_id), job_id, due, only, window_ms)


def member(job_id: str) -> bytes:
    return make_delayed_member("mail", envelope(job_id))


class TestDelayed:
    def test_a_delayed_job_is_removed_with_its_keys(self, group: Group) -> None:
        for window_ms in (0, 60_000):
            group.add_with_options(wanted("job", LATER, window_ms=window_ms))
            assert (group.cancel("job"), group.cancelled_name) == ("removed", "mail")
            assert group.keys == {KEYS.stream, KEYS.ledger("producer")}
            assert group.cancel("job") == "unknown"

    def test_the_others_stay(self, group: Group) -> None:
        group.add_with_options(wanted("a", LATER), wanted("b", LATER), wanted("c", LATER, ""))
        assert group.cancel("b") == "removed"
        assert set(group.delayed) == {member("a"), member("c")}
        assert group.cancel("c") == "removed"
        assert set(group.delayed) == {member("a")}

    def test_a_job_that_waits_for_its_retry_is_removed(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        (entry_id,) = group.read("a", 1)
        group.reschedule("a", (entry_id, 5000, member("job")), may_be_unique=1)
        assert group.cancel("job") == "removed"
        assert (group.delayed, group.stream, group.uniqueness_key("job")) == ({}, [], None)

    def test_an_index_without_its_member_is_no_job(self, group: Group) -> None:
        group.client.set(index_key("job"), member("job"))
        assert group.cancel("job") == "unknown"


class TestWaiting:
    def test_a_job_that_no_consumer_has_received_is_removed_with_its_keys(self, group: Group) -> None:
        self.check_removal(group, 0)

    def test_a_window_ends_with_its_job_which_never_ran(self, group: Group) -> None:
        self.check_removal(group, 60_000)

    def check_removal(self, group: Group, window_ms: int) -> None:
        group.add_with_options(wanted("job", window_ms=window_ms), wanted("other"))
        group.client.set(official_unique_key("job"), "1")
        assert (group.cancel("job"), group.cancelled_name) == ("removed", "mail")
        assert group.envelopes == [envelope("other")]
        assert (group.uniqueness_key("job"), group.client.exists(official_unique_key("job"))) == (None, 0)
        assert (group.notes, group.uniqueness_key("other")) == ({}, group.stream[0].decode())

    def test_a_job_without_a_uniqueness_key_is_found_by_its_entry(self, group: Group) -> None:
        group.add_with_options(wanted("job", only=""))
        assert group.cancel("job") == "unknown"
        assert group.cancel("job", group.stream[0]) == "removed"
        assert group.stream == []

    def test_an_entry_of_another_job_is_left_alone(self, group: Group) -> None:
        group.add_with_options(wanted("other"))
        group.client.set(unique_key("job"), group.stream[0])
        assert group.cancel("job", group.stream[0]) == "unknown"
        assert (len(group.stream), group.uniqueness_key("job")) == (1, group.stream[0].decode())

    def test_the_uniqueness_key_of_another_entry_stays(self, group: Group) -> None:
        group.add_with_options(wanted("job", only=""))
        group.client.set(unique_key("job"), "9-9")
        assert group.cancel("job", group.stream[0]) == "removed"
        assert group.uniqueness_key("job") == "9-9"

    def test_a_job_that_one_of_two_groups_has_received_is_not_removed(self, group: Group) -> None:
        group.client.xgroup_create(KEYS.stream, "second", "0")
        group.add_with_options(wanted("job"))
        group.client.xreadgroup("second", "a", {KEYS.stream: ">"})
        assert group.cancel("job") == "stopping"
        assert len(group.stream) == 1

    def test_a_stream_without_a_group_has_only_waiting_jobs(self, group: Group) -> None:
        group.client.xgroup_destroy(KEYS.stream, GROUP)
        group.add_with_options(wanted("job"))
        assert group.cancel("job") == "removed"


class TestForeignKeys:
    """Anybody may have written the uniqueness key."""

    def test_a_number_that_no_id_has_leads_to_no_entry(self, group: Group) -> None:
        group.add_with_options(wanted("job", only=""))
        for location in ("9" * 5000 + "-1", "1-" + "9" * 5000, "w18446744073709551616-0"):
            group.client.set(unique_key("job"), location)
            assert group.cancel("job") == "unknown"
        assert group.cancel("job", group.stream[0]) == "removed"

    def test_a_job_that_runs_is_not_removed_because_its_id_has_leading_zeros_there(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        (entry_id,) = group.read("a", 1)
        group.client.set(unique_key("job"), b"000" + entry_id)
        assert (group.cancel("job"), group.stream, group.notes) == ("stopping", [entry_id], {entry_id: b"1"})

    def test_both_keys_go_with_a_job_whose_id_has_leading_zeros_there(self, group: Group) -> None:
        for window in (b"", b"w"):
            group.add_with_options(wanted("job"))
            group.client.set(unique_key("job"), window + b"000" + group.stream[0])
            assert (group.cancel("job"), group.stream, group.uniqueness_key("job")) == ("removed", [], None)

    def test_a_user_who_may_not_read_the_stream_gets_an_error(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        with (
            group.as_user("+@all", "-xrange", "~*", "&*") as narrow,
            refused("xrange"),
        ):
            narrow.cancel("job")
        assert len(group.stream) == 1

    def test_an_entry_without_an_envelope_has_no_job(self, group: Group) -> None:
        entry_id = group.client.xadd(KEYS.stream, {"n": "mail"})
        group.client.set(unique_key("job"), entry_id)
        assert (group.cancel("job", entry_id), group.stream) == ("unknown", [entry_id])


class TestHeld:
    def test_a_note_names_the_entry_and_ends_after_a_week(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        (entry_id,) = group.read("a", 1)
        assert (group.cancel("job"), group.cancelled_name) == ("stopping", "")
        assert group.notes == {entry_id: b"1"}
        assert KEPT_MS - 60_000 < group.client.pttl(KEYS.cancelled) <= KEPT_MS
        assert (group.stream, group.uniqueness_key("job")) == ([entry_id], entry_id.decode())

    def test_a_full_server_takes_the_note(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        (entry_id,) = group.read("a", 1)
        with group.full_memory():
            assert group.cancel("job") == "stopping"
        assert group.notes == {entry_id: b"1"}
        assert group.client.pttl(KEYS.cancelled) > KEPT_MS - 60_000

    def test_a_job_with_a_window_is_found_too(self, group: Group) -> None:
        group.add_with_options(wanted("job", window_ms=60_000))
        (entry_id,) = group.read("a", 1)
        assert (group.cancel("job"), group.notes) == ("stopping", {entry_id: b"1"})

    def test_a_second_call_changes_nothing(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        group.read("a", 1)
        assert [group.cancel("job") for _ in range(2)] == ["stopping", "stopping"]
        assert len(group.notes) == 1

    def test_workers_get_a_message(self, group: Group) -> None:
        group.add_with_options(wanted("job"), wanted("other", LATER))
        group.read("a", 1)
        with group.published(KEYS.pause_channel) as heard:
            group.cancel("job")
            group.cancel("other")
            group.cancel("none")
        assert heard == [b"cancel"]

    def test_a_note_about_the_id_is_about_all_entries_up_to_the_last(self, group: Group) -> None:
        first, last = group.add(2)
        assert group.cancel("job", is_lost=True) == "stopping"
        assert group.notes == {b"id job": last}
        assert first < last

    def test_an_empty_stream_has_no_job_to_look_for(self, group: Group) -> None:
        assert group.cancel("job", is_lost=True) == "unknown"
        assert group.notes == {}

    def test_notes_are_bounded(self, group: Group) -> None:
        group.add_with_options(wanted("a"), wanted("b"), wanted("c", LATER))
        group.read("a", 2)
        assert group.cancel("a", most_notes=1) == "stopping"
        with pytest.raises(redis.ResponseError, match="no note about this job has room beside 1 about cancelled jobs"):
            group.cancel("b", most_notes=1)
        assert group.cancel("a", most_notes=1) == "stopping"
        assert (len(group.notes), group.cancel("c", most_notes=1)) == (1, "removed")

    def test_a_note_about_a_long_id_takes_the_room_of_several(self, group: Group) -> None:
        group.add(1)
        assert group.cancel("i" * 77, is_lost=True, most_notes=4) == "stopping"
        for job_id in ("j" * 38, "j" * 37 * 4):
            with pytest.raises(redis.ResponseError, match="has room beside 1 "):
                group.cancel(job_id, is_lost=True, most_notes=4)
        assert group.cancel("j" * 37, is_lost=True, most_notes=4) == "stopping"
        assert len(group.notes) == 2

    def test_notes_about_jobs_that_were_not_found_leave_half_of_the_room_to_those_that_run(self, group: Group) -> None:
        group.add_with_options(wanted("a"), wanted("b"))
        group.read("a", 2)
        assert [group.cancel(job_id, is_lost=True, most_notes=4) for job_id in ("x", "y")] == ["stopping", "stopping"]
        with pytest.raises(redis.ResponseError, match="has room beside 2 "):
            group.cancel("z", is_lost=True, most_notes=4)
        assert [group.cancel(job_id, most_notes=4) for job_id in ("a", "b")] == ["stopping", "stopping"]


class TestEvents:
    def test_a_removed_job_has_its_event_if_the_queue_has_events(self, group: Group) -> None:
        group.client.xadd(KEYS.events, {"e": "other"})
        group.add_with_options(wanted("waiting"), wanted("delayed", LATER))
        for job_id in (b"waiting", b"delayed"):
            before = group.now_ms
            assert group.cancel(job_id.decode()) == "removed"
            event = group.client.xrange(KEYS.events)[-1][1]
            assert before <= int(event.pop(b"ts")) <= group.now_ms
            assert event == {b"e": b"cancelled", b"id": job_id, b"n": b"mail"}

    def test_the_events_are_bounded(self, group: Group) -> None:
        for _ in range(EVENTS_MAX_LEN + 300):
            group.client.xadd(KEYS.events, {"e": "other"})
        group.add_with_options(wanted("job"))
        group.cancel("job")
        assert group.client.xlen(KEYS.events) < EVENTS_MAX_LEN + 200

    def test_a_queue_without_events_gets_none(self, group: Group) -> None:
        group.add_with_options(wanted("job"))
        group.cancel("job")
        assert not group.client.exists(KEYS.events)

    def test_a_job_without_a_name_has_an_event_without_one(self, group: Group) -> None:
        group.client.xadd(KEYS.events, {"e": "other"})
        group.add_with_options(Wanted("", envelope("job"), "job", only="keep"))
        assert (group.cancel("job"), group.cancelled_name) == ("removed", "")
        assert b"n" not in group.client.xrange(KEYS.events)[-1][1]
