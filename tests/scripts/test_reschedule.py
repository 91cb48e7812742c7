"""reschedule.lua alone: a failed job moves to the delayed set, if its entry is still this worker's, and once."""

from __future__ import annotations

from contextlib import suppress

import pytest
import redis

from pychasqui._redis.replies import SettledJobs
from tests.scripts.group import (
    EVENTS_MAX_LEN,
    GROUP,
    HEIR,
    HOUR_MS,
    KEPT_MS,
    KEYS,
    REPORTS,
    Group,
    Hold,
    index_key,
    official_unique_key,
    refused,
    unique_key,
)
from tests.support.server import RedisServer


def test_a_failed_job_leaves_the_stream_and_waits_in_the_delayed_set(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.reschedule("a", (entry_id, 5000, b"member")) == 1
    assert (group.stream, group.holds) == ([], {})
    assert list(group.delayed) == [b"member"]


def test_a_rescheduled_job_is_due_by_the_servers_clock(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    before = group.now_ms
    group.reschedule("a", (entry_id, 5000, b"member"))
    assert before + 5000 <= group.delayed[b"member"] <= group.now_ms + 5001


def test_a_rescheduled_job_is_never_due_early_not_even_by_a_part_of_a_millisecond(group: Group) -> None:
    for entry_id in group.deliver_to("a", 20):
        before = group.now_us
        group.reschedule("a", (entry_id, 5000, b"member"))
        assert group.delayed[b"member"] * 1000 >= before + 5_000_000


def test_each_job_has_a_delay_of_its_own(group: Group) -> None:
    first, second, third = group.deliver_to("a", 3)
    before = group.now_ms
    assert group.reschedule("a", (first, 0, b"1"), (second, 60_000, b"2"), (third, 1000, b"3")) == 3
    assert list(group.delayed) == [b"1", b"3", b"2"]
    assert group.delayed[b"2"] - group.delayed[b"1"] == 60_000
    assert before <= group.delayed[b"1"] <= group.now_ms + 1
    assert (group.stream, group.holds) == ([], {})


def test_neighbours_stay_where_they_are(group: Group) -> None:
    mine, running = group.deliver_to("a", 2)
    (theirs,) = group.deliver_to("b")
    (waiting,) = group.add(1)
    assert group.reschedule("a", (mine, 10, b"member")) == 1
    assert group.stream == [running, theirs, waiting]
    assert group.holds == {running: Hold("a", 1), theirs: Hold("b", 1)}


def test_an_entry_that_was_taken_over_is_left_to_its_new_owner(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.steal(entry_id, "b")
    assert group.reschedule("a", (entry_id, 10, b"member")) == 0
    assert group.holds == {entry_id: Hold("b", 2)}
    assert group.stream == [entry_id]
    assert group.delayed == {}


@pytest.mark.parametrize("order", ("as delivered", "backwards", "every other one first"))
def test_jobs_among_many_that_were_taken_over_stay_in_any_order_of_asking(group: Group, order: str) -> None:
    ids = group.deliver_to("a", 200)
    for entry_id in ids[::3]:
        group.steal(entry_id, "b")
    for entry_id in ids[1::9]:
        group.steal(entry_id, "a")  # by another delivery than this run's
    asked = {"as delivered": ids, "backwards": ids[::-1], "every other one first": ids[::2] + ids[1::2]}[order]
    kept = {*ids[::3], *ids[1::9]}
    group.reschedule("a", *((entry_id, 10, entry_id) for entry_id in asked))
    assert group.settled is not None
    assert group.settled.answers == b"".join(b"0" if entry_id in kept else b"1" for entry_id in asked)
    assert set(group.holds) == set(group.stream) == kept
    assert set(group.delayed) == set(ids) - kept


def test_a_few_questions_find_out_whether_many_entries_are_still_pending(group: Group) -> None:
    ids = group.deliver_to("a", 250)
    group.client.config_resetstat()
    assert group.reschedule("a", *((entry_id, 10, entry_id) for entry_id in ids)) == 250
    assert group.client.info("commandstats")["cmdstat_xpending"]["calls"] == 8  # for 2, 4, ... 64 and 64 entries


def test_entries_that_do_not_follow_each_other_are_not_read_in_vain(group: Group) -> None:
    """Each question reads as many pending entries as have been of use."""
    ids = group.deliver_to("a", 100)[::-1]
    group.client.config_resetstat()
    assert group.reschedule("a", *((entry_id, 10, entry_id) for entry_id in ids)) == 100
    assert group.client.info("commandstats")["cmdstat_xpending"]["calls"] == 100


def test_an_entry_that_was_handed_back_is_left_to_the_next_worker(group: Group) -> None:
    """Its count is below this run's delivery, but it is not this worker's."""
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    assert group.reschedule("a", (entry_id, 10, b"member")) == 0
    assert group.holds == {entry_id: Hold(HEIR, 0)}
    assert group.delayed == {}


def test_an_entry_that_came_back_is_left_to_its_new_run(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.lose_and_get_back("a", entry_id)
    assert [group.reschedule("a", (entry_id, 10, b"member"), delivery=delivery) for delivery in (1, 2)] == [0, 0]
    assert group.holds == {entry_id: Hold("a", 3)}
    assert group.delayed == {}
    assert group.reschedule("a", (entry_id, 10, b"member"), delivery=3) == 1


def test_an_entry_that_a_rebuilt_group_delivers_to_the_same_worker_is_still_its_own(group: Group) -> None:
    """The count begins at 1 in the new group; the run began under an earlier count."""
    (entry_id,) = group.deliver_to("dead")
    group.steal(entry_id, "a")
    group.recreate()
    group.read("a", 1)
    assert group.reschedule("a", (entry_id, 10, b"member"), delivery=2) == 1
    assert (group.stream, list(group.delayed)) == ([], [b"member"])


def test_an_entry_that_is_finished_is_not_brought_back(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xack(KEYS.stream, GROUP, entry_id)
    group.client.xdel(KEYS.stream, entry_id)
    assert group.reschedule("a", (entry_id, 10, b"member")) == 0
    assert group.keys == {KEYS.stream}


def test_an_unread_entry_is_not_moved(group: Group) -> None:
    (entry_id,) = group.add(1)
    assert group.reschedule("a", (entry_id, 10, b"member")) == 0
    assert (group.stream, group.delayed) == ([entry_id], {})


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.reschedule("a", (entry_id, 5000, b"member")) == 1
    due = group.delayed
    assert [group.reschedule("a", (entry_id, 9000, b"member")) for _ in range(2)] == [0, 0]
    assert group.delayed == due


def test_the_same_call_again_does_not_bring_back_what_was_promoted_meanwhile(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    member = b"\0\0\0\0envelope"
    group.reschedule("a", (entry_id, 0, member))
    group.wait_ms(2)
    assert group.promote().promoted == 1
    assert group.reschedule("a", (entry_id, 0, member)) == 0
    assert group.delayed == {}
    assert group.envelopes == [b"envelope"]


def test_the_entries_of_a_batch_that_are_still_ours_are_moved(group: Group) -> None:
    mine, stolen, finished = group.deliver_to("a", 3)
    group.steal(stolen, "b")
    group.client.xack(KEYS.stream, GROUP, finished)
    group.client.xdel(KEYS.stream, finished)
    assert group.reschedule("a", (stolen, 1, b"s"), (finished, 1, b"f"), (mine, 1, b"m"), (b"1-1", 1, b"never")) == 1
    assert list(group.delayed) == [b"m"]
    assert group.stream == [stolen]


def test_an_invalid_entry_id_is_skipped(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.reschedule("a", (b"not an id", 1, b"x"), (entry_id, 1, b"member")) == 1
    assert list(group.delayed) == [b"member"]


def test_an_entry_deleted_by_others_while_it_ran_is_kept_alive_by_its_retry(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xdel(KEYS.stream, entry_id)
    assert group.reschedule("a", (entry_id, 10, b"member")) == 1
    assert (group.holds, list(group.delayed)) == ({}, [b"member"])


def test_a_missing_group_is_an_error_and_the_job_stays_in_the_stream(group: Group) -> None:
    """The owner of the job is unknown until the group is rebuilt."""
    (entry_id,) = group.deliver_to("a")
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.reschedule("a", (entry_id, 10, b"member"))
    assert (group.stream, group.delayed) == ([entry_id], {})


def test_no_key_is_created_without_the_stream(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.delete(KEYS.stream)
    with suppress(redis.ResponseError):
        assert group.reschedule("a", (entry_id, 10, b"member")) == 0
    assert group.keys == set()


def test_a_batch_of_none_moves_none(group: Group) -> None:
    assert group.reschedule("a") == 0
    assert group.keys == {KEYS.stream}


def test_any_bytes_pass_unchanged(group: Group) -> None:
    members = [bytes(range(256)), b"", b"\0", b"\r\n", b"7", b"x" * 100_000]
    entry_ids = group.deliver_to("a", len(members))
    jobs = [(entry_id, 0, member) for entry_id, member in zip(entry_ids, members, strict=True)]
    assert group.reschedule("a", *jobs) == len(members)
    assert set(group.delayed) == set(members)


@pytest.mark.parametrize("delay_ms", (0, 1, 30 * 24 * HOUR_MS, 2**53, 2**64 - 1, 10**300))
def test_any_delay_that_a_job_can_ask_for_is_stored(group: Group, delay_ms: int) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.reschedule("a", (entry_id, delay_ms, b"member")) == 1
    assert group.delayed[b"member"] == pytest.approx(group.now_ms + delay_ms, abs=60_000)
    assert group.index("job") == b"member"


def test_10_000_jobs_are_rescheduled_in_batches(group: Group) -> None:
    entry_ids = group.deliver_to("a", 10_000)
    for start in range(0, 10_000, 1000):
        batch = entry_ids[start : start + 1000]
        assert group.reschedule("a", *((entry_id, 10, entry_id) for entry_id in batch)) == 1000
    assert (group.stream, group.holds) == ([], {})
    assert group.client.zcard(KEYS.delayed) == 10_000


def test_a_call_with_more_than_lua_can_unpack_costs_no_job(group: Group) -> None:
    entry_ids = group.deliver_to("a", 9000)
    with pytest.raises(redis.ResponseError, match="unpack"):
        group.reschedule("a", *((entry_id, 10, entry_id) for entry_id in entry_ids))
    assert (len(group.holds), group.stream) == (9000, entry_ids)


def test_an_entry_that_is_named_twice_is_moved_once(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.reschedule("a", (entry_id, 10, b"first"), (entry_id, 10, b"second")) == 1
    assert list(group.delayed) == [b"first"]


def test_the_script_touches_only_its_own_keys(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.reschedule("a", (entry_id, 10, b"member"), may_be_unique=1)
    assert group.keys == {KEYS.stream, KEYS.delayed, index_key("job")}


def test_a_lost_entry_is_an_error_while_the_group_is_not_complete(group: Group) -> None:
    """It may become this worker's again."""
    held, lost = group.deliver_to("a", 2)
    group.steal(lost, "b")
    group.client.hset(REPORTS, "start", "-")
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.reschedule("a", (held, 5, b"held"), (lost, 5, b"lost"))
    assert group.delayed == {}
    assert group.reschedule("a", (held, 5, b"held")) == 1


class TestIndex:
    def test_the_job_can_be_found_by_its_id_while_it_waits(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.reschedule("a", (entry_id, 5000, b"member"), job_id="ü 1")
        assert group.index("ü 1") == b"member"

    def test_the_index_outlives_the_due_time(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.reschedule("a", (entry_id, 5000, b"member"))
        assert KEPT_MS < group.client.pttl(index_key("job")) <= KEPT_MS + 5000

    def test_a_run_that_lost_its_entry_changes_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.steal(entry_id, "b")
        group.client.set(unique_key("job"), entry_id)
        group.reschedule("a", (entry_id, 10, b"member"), may_be_unique=1)
        assert (group.index("job"), group.uniqueness_key("job")) == (None, entry_id.decode())


class TestUniquenessKey:
    def test_the_key_says_that_the_job_is_delayed(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), entry_id, px=60_000)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.uniqueness_key("job") == "d"
        assert KEPT_MS < group.client.pttl(unique_key("job")) <= KEPT_MS + 5000

    def test_a_window_keeps_its_end(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), b"w" + entry_id, px=60_000)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.uniqueness_key("job") == "wd"
        assert 0 < group.client.pttl(unique_key("job")) <= 60_000

    def test_a_key_of_another_job_is_left_alone(self, group: Group) -> None:
        for other in ("5-5", "w5-5", "wd", "odd"):
            group.client.set(unique_key("job"), other)
            (entry_id,) = group.deliver_to("a")
            assert group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1) == 1
            assert group.uniqueness_key("job") == other

    def test_a_key_that_says_delayed_ends_with_the_new_time(self, group: Group) -> None:
        """An official promoter moved the job, and the expiry of the key says when the job is due."""
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), "d", px=60_000)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.uniqueness_key("job") == "d"
        assert KEPT_MS < group.client.pttl(unique_key("job")) <= KEPT_MS + 5000

    def test_a_job_of_an_official_producer_gets_one(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(official_unique_key("job"), "1", px=60_000)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.uniqueness_key("job") == "d"
        assert 0 < group.client.pttl(official_unique_key("job")) <= 60_000

    def test_no_key_is_created(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=1)
        assert group.uniqueness_key("job") is None

    def test_the_key_of_a_job_that_is_not_unique_is_not_read(self, group: Group) -> None:
        """This spares the server one read for nearly every job."""
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), entry_id)
        group.reschedule("a", (entry_id, 5000, b"member"), may_be_unique=0)
        assert group.uniqueness_key("job") == entry_id.decode()

    def test_a_key_of_another_type_costs_no_job(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        group.client.rpush(unique_key("job"), "a list")
        assert group.reschedule("a", (first, 10, b"1"), (second, 10, b"2"), may_be_unique=1) == 2
        assert set(group.delayed) == {b"1", b"2"}


def test_a_delayed_set_of_another_type_costs_no_job(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(KEYS.delayed, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.reschedule("a", (entry_id, 10, b"member"))
    assert group.holds == {entry_id: Hold("a", 1)}
    group.client.delete(KEYS.delayed)
    assert group.reschedule("a", (entry_id, 10, b"member")) == 1


def test_no_job_is_lost_without_memory() -> None:
    with RedisServer() as server, server.client() as client:
        group = Group(client)
        group.create()
        entry_ids = group.deliver_to("a", 3)
        client.config_set("maxmemory", 1)
        with suppress(redis.ResponseError):
            group.reschedule("a", *((entry_id, 10, b"member of " + entry_id) for entry_id in entry_ids))
        client.config_set("maxmemory", 0)
        assert len(group.stream) + len(group.delayed) == 3
        assert set(group.stream) == set(group.holds)


class TestAnswers:
    def test_each_job_has_its_own_answer(self, group: Group) -> None:
        first, lost, third = group.deliver_to("a", 3)
        group.steal(lost, "b")
        group.reschedule("a", (first, 10, b"1"), (lost, 10, b"2"), (third, 10, b"3"), (first, 10, b"4"))
        assert group.settled == SettledJobs(b"1010", "", 0)

    def test_a_job_whose_index_is_refused_stays_pending_and_the_others_are_moved(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        keys = (KEYS.stream, KEYS.delayed, KEYS.events, REPORTS, KEYS.cancelled)
        with group.as_user("+@all", *(f"~{key}" for key in keys)) as narrow:
            narrow.reschedule("a", (first, 10, b"1"), (second, 10, b"2"))
            assert narrow.settled is not None
            assert (narrow.settled.answers, narrow.settled.refusal == "") == (b"xx", False)
        assert set(group.holds) == {first, second}
        with group.as_user("+@all", "~{chasqui:q}:[^d]*", "~*delayed", "~*didx:1") as narrow:
            narrow.reschedule("a", (first, 10, b"1"), job_id="1")
            narrow.reschedule("a", (second, 10, b"2"), job_id="2")
        assert (set(group.holds), list(group.delayed)) == ({second}, [b"1"])


class TestEvents:
    def test_events_are_written_for_moved_jobs_only(self, group: Group) -> None:
        first, lost = group.deliver_to("a", 2)
        group.steal(lost, "b")
        events = ([b"e", b"failed", b"id", b"job"], [b"e", b"retry-scheduled"])
        group.reschedule("a", (first, 10, b"1"), (lost, 10, b"2"), events=events)
        assert group.events == [[b"e", b"failed", b"id", b"job"], [b"e", b"retry-scheduled"]]

    def test_refused_events_cost_no_job_and_are_counted(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 2)
        group.client.set(KEYS.events, "a string")
        group.reschedule("a", *((one, 10, one) for one in entry_ids), events=([b"e", b"failed"], [b"e", b"again"]))
        assert group.settled is not None
        assert (group.settled.answers, group.settled.refused_events) == (b"11", 4)

    def test_the_number_of_events_is_bounded(self, group: Group) -> None:
        for _ in range(5):
            entry_ids = group.deliver_to("a", 300)
            group.reschedule("a", *((one, 10, one) for one in entry_ids), events=([b"e", b"failed"],))
        assert EVENTS_MAX_LEN <= group.client.xlen(KEYS.events) < EVENTS_MAX_LEN + 200


def test_a_lost_job_has_no_refused_events(group: Group) -> None:
    (entry_id,) = group.deliver_to("b")
    group.reschedule("a", (entry_id, 10, b"1"), events=([b"e", b"failed"],))
    assert group.settled == SettledJobs(b"0", "", 0)


def test_events_are_not_trimmed_by_a_job_without_events(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.config_resetstat()
    assert group.reschedule("a", (entry_id, 10, b"1")) == 1
    assert "cmdstat_xtrim" not in group.client.info("commandstats")


class TestCancelled:
    def test_a_cancelled_job_is_not_moved(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        group.client.hset(KEYS.cancelled, first, "1")
        assert group.reschedule("a", (first, 5000, b"first"), (second, 5000, b"second")) == 1
        assert group.settled is not None
        assert (group.settled.answers, list(group.delayed)) == (b"c1", [b"second"])
        assert (group.stream, group.notes) == ([first], {first: b"1"})

    def test_a_note_about_an_id_is_not_about_a_later_entry(self, group: Group) -> None:
        before, entry_id, after = group.add(3)
        group.read("a", 3)
        for last, is_moved in ((after, 0), (entry_id, 0), (before, 1)):
            group.client.hset(KEYS.cancelled, "id job", last)
            assert group.reschedule("a", (entry_id, 5000, b"member"), job_id="job") == is_moved

    def test_a_note_that_cannot_be_read_is_none(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.hset(KEYS.cancelled, "id job", "what?")
        assert group.reschedule("a", (entry_id, 5000, b"member"), job_id="job") == 1

    def test_a_run_that_has_lost_its_entry_is_not_cancelled(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.hset(KEYS.cancelled, entry_id, "1")
        group.steal(entry_id, "b")
        group.reschedule("a", (entry_id, 5000, b"member"))
        assert group.settled is not None
        assert group.settled.answers == b"0"

    def test_notes_of_another_type_are_none(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(KEYS.cancelled, "a string")
        assert group.reschedule("a", (entry_id, 5000, b"member"), job_id="job") == 1

    def test_a_user_who_may_not_read_the_notes_moves_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.hset(KEYS.cancelled, "1-1", "1")
        with (
            group.as_user("+@all", "-hmget", "~*", "&*") as narrow,
            refused("hmget"),
        ):
            narrow.reschedule("a", (entry_id, 5000, b"member"))
        assert group.delayed == {}
