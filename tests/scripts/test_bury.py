"""bury.lua alone: a dead job moves to the dead letters, if its entry is still this worker's, and once."""

from __future__ import annotations

from contextlib import suppress

import pytest
import redis

from pychasqui._redis.replies import SettledJobs
from tests.scripts.group import (
    EVENTS_MAX_LEN,
    GROUP,
    HEIR,
    KEYS,
    REPORTS,
    Group,
    Hold,
    index_key,
    official_unique_key,
    unique_key,
)
from tests.support.server import RedisServer


def letter(text: bytes) -> list[bytes]:
    return [b"d", text, b"reason", b"unrecoverable"]


def test_a_dead_job_leaves_the_stream_and_joins_the_dead_letters(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.bury("a", (entry_id, letter(b"x"))) == 1
    assert (group.stream, group.holds) == ([], {})
    assert group.letters == [{b"d": b"x", b"reason": b"unrecoverable"}]


def test_fields_keep_their_order(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.bury("a", (entry_id, [b"d", b"x", b"n", b"mail", b"source_id", entry_id, b"reason", b"r", b"worker", b"a"]))
    assert list(group.letters[0]) == [b"d", b"n", b"source_id", b"reason", b"worker"]


def test_letters_of_different_lengths_are_written_in_one_call(group: Group) -> None:
    first, second, third = group.deliver_to("a", 3)
    assert group.bury("a", (first, [b"d", b"1"]), (second, [*letter(b"2"), b"e", b"f"]), (third, letter(b"3"))) == 3
    assert [fields[b"d"] for fields in group.letters] == [b"1", b"2", b"3"]
    assert [len(fields) for fields in group.letters] == [1, 3, 2]


def test_a_value_that_looks_like_a_count_is_a_value(group: Group) -> None:
    first, second = group.deliver_to("a", 2)
    assert group.bury("a", (first, [b"d", b"2", b"4", b"6"]), (second, [b"8", b"10"])) == 2
    assert group.letters == [{b"d": b"2", b"4": b"6"}, {b"8": b"10"}]


def test_neighbours_stay_where_they_are(group: Group) -> None:
    mine, running = group.deliver_to("a", 2)
    (theirs,) = group.deliver_to("b")
    (waiting,) = group.add(1)
    assert group.bury("a", (mine, letter(b"x"))) == 1
    assert group.stream == [running, theirs, waiting]
    assert group.holds == {running: Hold("a", 1), theirs: Hold("b", 1)}


def test_an_entry_that_was_taken_over_is_left_to_its_new_owner(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.steal(entry_id, "b")
    assert group.bury("a", (entry_id, letter(b"x"))) == 0
    assert group.holds == {entry_id: Hold("b", 2)}
    assert group.stream == [entry_id]
    assert group.letters == []


def test_an_entry_that_was_handed_back_is_left_to_the_next_worker(group: Group) -> None:
    """Its count is below this run's delivery, but it is not this worker's."""
    (entry_id,) = group.deliver_to("a")
    group.release_entries("a", (entry_id, 0))
    assert group.bury("a", (entry_id, letter(b"x"))) == 0
    assert group.holds == {entry_id: Hold(HEIR, 0)}
    assert group.letters == []


def test_an_entry_that_came_back_is_left_to_its_new_run(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.lose_and_get_back("a", entry_id)
    assert [group.bury("a", (entry_id, letter(b"x")), delivery=delivery) for delivery in (1, 2)] == [0, 0]
    assert group.holds == {entry_id: Hold("a", 3)}
    assert group.letters == []
    assert group.bury("a", (entry_id, letter(b"x")), delivery=3) == 1


def test_an_entry_that_a_rebuilt_group_delivers_to_the_same_worker_is_still_its_own(group: Group) -> None:
    """The count begins at 1 in the new group; the run began under an earlier count."""
    (entry_id,) = group.deliver_to("dead")
    group.steal(entry_id, "a")
    group.recreate()
    group.read("a", 1)
    assert group.bury("a", (entry_id, letter(b"x")), delivery=2) == 1
    assert (group.stream, len(group.letters)) == ([], 1)


def test_an_entry_that_is_finished_is_not_buried(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xack(KEYS.stream, GROUP, entry_id)
    group.client.xdel(KEYS.stream, entry_id)
    assert group.bury("a", (entry_id, letter(b"x"))) == 0
    assert group.keys == {KEYS.stream}


def test_an_unread_entry_is_not_buried(group: Group) -> None:
    (entry_id,) = group.add(1)
    assert group.bury("a", (entry_id, letter(b"x"))) == 0
    assert (group.stream, group.letters) == ([entry_id], [])


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert [group.bury("a", (entry_id, letter(b"x"))) for _ in range(3)] == [1, 0, 0]
    assert len(group.letters) == 1


def test_the_entries_of_a_batch_that_are_still_ours_are_buried(group: Group) -> None:
    mine, stolen, finished = group.deliver_to("a", 3)
    group.steal(stolen, "b")
    group.client.xack(KEYS.stream, GROUP, finished)
    group.client.xdel(KEYS.stream, finished)
    jobs = [(stolen, letter(b"s")), (finished, [*letter(b"f"), b"more", b"words"]), (mine, letter(b"m"))]
    assert group.bury("a", *jobs, (b"1-1", letter(b"never"))) == 1
    assert [fields[b"d"] for fields in group.letters] == [b"m"]
    assert group.stream == [stolen]


def test_an_invalid_entry_id_is_skipped(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.bury("a", (b"not an id", letter(b"x")), (entry_id, letter(b"y"))) == 1
    assert [fields[b"d"] for fields in group.letters] == [b"y"]


def test_an_entry_deleted_by_others_while_it_ran_is_buried_all_the_same(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xdel(KEYS.stream, entry_id)
    assert group.bury("a", (entry_id, letter(b"x"))) == 1
    assert (group.holds, len(group.letters)) == ({}, 1)


def test_a_missing_group_is_an_error_and_the_job_stays_in_the_stream(group: Group) -> None:
    """The owner of the job is unknown until the group is rebuilt."""
    (entry_id,) = group.deliver_to("a")
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.bury("a", (entry_id, letter(b"x")))
    assert (group.stream, group.letters) == ([entry_id], [])


def test_no_key_is_created_without_the_stream(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.delete(KEYS.stream)
    with suppress(redis.ResponseError):
        assert group.bury("a", (entry_id, letter(b"x"))) == 0
    assert group.keys == set()


def test_a_batch_of_none_buries_none(group: Group) -> None:
    assert group.bury("a") == 0
    assert group.bury("a", max_len=1) == 0
    assert group.keys == {KEYS.stream}


def test_any_bytes_pass_unchanged(group: Group) -> None:
    values = [bytes(range(256)), b"", b"\0", b"\r\n", b"x" * 100_000]
    entry_ids = group.deliver_to("a", len(values))
    assert group.bury("a", *((i, letter(value)) for i, value in zip(entry_ids, values, strict=True))) == len(values)
    assert [fields[b"d"] for fields in group.letters] == values


def test_an_entry_that_is_named_twice_is_buried_once(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.bury("a", (entry_id, letter(b"first")), (entry_id, letter(b"second"))) == 1
    assert [fields[b"d"] for fields in group.letters] == [b"first"]


def test_a_call_with_more_than_lua_can_unpack_costs_no_job(group: Group) -> None:
    entry_ids = group.deliver_to("a", 9000)
    with pytest.raises(redis.ResponseError, match="unpack"):
        group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids))
    assert (len(group.holds), group.stream) == (9000, entry_ids)


def test_10_000_jobs_are_buried_in_batches(group: Group) -> None:
    entry_ids = group.deliver_to("a", 10_000)
    for start in range(0, 10_000, 1000):
        batch = entry_ids[start : start + 1000]
        assert group.bury("a", *((entry_id, letter(b"x")) for entry_id in batch)) == 1000
    assert (group.stream, group.holds) == ([], {})
    assert group.client.xlen(KEYS.dead) == 10_000


def test_a_lost_entry_is_an_error_while_the_group_is_not_complete(group: Group) -> None:
    """It may become this worker's again."""
    held, lost = group.deliver_to("a", 2)
    group.steal(lost, "b")
    group.client.hset(REPORTS, "start", "-")
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        group.bury("a", (held, [b"d", b"x"]), (lost, [b"d", b"y"]))
    assert group.letters == []
    assert group.bury("a", (held, [b"d", b"x"])) == 1


class TestUniquenessKey:
    def test_the_next_of_its_id_is_let_in(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), entry_id)
        group.bury("a", (entry_id, letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") is None

    def test_a_window_keeps_others_out_to_its_end(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), b"w" + entry_id)
        group.bury("a", (entry_id, letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") == "w" + entry_id.decode()

    def test_a_key_of_another_entry_is_left_alone(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), "5-5")
        group.bury("a", (entry_id, letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") == "5-5"

    def test_a_key_that_says_delayed_goes_unless_a_job_is_delayed(self, group: Group) -> None:
        """An official promoter moved the job, and the index may have outlived that."""
        group.client.set(unique_key("job"), "d")
        group.client.set(index_key("job"), b"member")
        group.client.zadd(KEYS.delayed, {b"member": 1})
        group.bury("a", (group.deliver_to("a")[0], letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") == "d"
        group.client.delete(KEYS.delayed)
        group.bury("a", (group.deliver_to("a")[0], letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") is None

    def test_an_official_key_goes_unless_a_job_is_delayed(self, group: Group) -> None:
        group.client.set(official_unique_key("job"), "1")
        group.client.set(index_key("job"), b"member")
        group.client.zadd(KEYS.delayed, {b"member": 1})
        group.bury("a", (group.deliver_to("a")[0], letter(b"x")), job_id="job")
        assert group.client.exists(official_unique_key("job"))
        group.client.delete(KEYS.delayed)
        group.bury("a", (group.deliver_to("a")[0], letter(b"x")), job_id="job")
        assert not group.client.exists(official_unique_key("job"))

    def test_both_keys_go_if_the_entry_is_known_unless_a_job_is_delayed_since(self, group: Group) -> None:
        group.client.set(index_key("job"), b"member")
        group.client.zadd(KEYS.delayed, {b"member": 1})
        for left in (1, 0):
            (entry_id,) = group.deliver_to("a")
            group.client.set(unique_key("job"), b"w" + entry_id)
            group.client.set(official_unique_key("job"), "1")
            group.bury("a", (entry_id, letter(b"x")), job_id="job")
            assert group.client.exists(official_unique_key("job")) == left
            group.client.delete(KEYS.delayed)

    def test_both_keys_stay_if_they_belong_to_another_entry(self, group: Group) -> None:
        group.client.set(unique_key("job"), "5-5")
        group.client.set(official_unique_key("job"), "1")
        group.bury("a", (group.deliver_to("a")[0], letter(b"x")), job_id="job")
        assert group.client.exists(unique_key("job"), official_unique_key("job")) == 2

    def test_the_key_of_a_job_that_is_not_unique_is_not_read(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key(""), entry_id)
        group.bury("a", (entry_id, letter(b"x")))
        assert group.uniqueness_key("") == entry_id.decode()

    def test_a_run_that_lost_its_entry_changes_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.steal(entry_id, "b")
        group.client.set(unique_key("job"), entry_id)
        group.bury("a", (entry_id, letter(b"x")), job_id="job")
        assert group.uniqueness_key("job") == entry_id.decode()

    def test_a_key_of_another_type_costs_no_job(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        group.client.rpush(unique_key("job"), "a list")
        assert group.bury("a", (first, letter(b"1")), (second, letter(b"2")), job_id="job") == 2
        assert len(group.letters) == 2


class TestBound:
    def test_no_letter_is_dropped_without_a_bound(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 1000)
        group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids), max_len=0)
        assert group.client.xlen(KEYS.dead) == 1000
        assert KEYS.dead_dropped not in group.keys

    def test_no_letter_is_dropped_below_the_bound(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 100)
        group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids), max_len=100)
        assert group.client.xlen(KEYS.dead) == 100
        assert KEYS.dead_dropped not in group.keys

    def test_each_letter_that_the_bound_drops_is_counted(self, group: Group) -> None:
        for round_number in range(1, 4):
            entry_ids = group.deliver_to("a", 500)
            assert group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids), max_len=100) == 500
            kept = group.client.xlen(KEYS.dead)
            assert 100 <= kept < 500
            assert kept + int(group.client.get(KEYS.dead_dropped)) == 500 * round_number

    def test_a_bound_of_one_letter_is_one(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.die(300)
        assert group.bury("a", (entry_id, letter(b"x")), max_len=1) == 1
        assert group.client.xlen(KEYS.dead) < 300

    def test_the_oldest_go_first(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 500)
        group.bury("a", *((entry_id, [b"d", entry_id]) for entry_id in entry_ids), max_len=100)
        assert [fields[b"d"] for fields in group.letters][-100:] == entry_ids[-100:]

    def test_a_call_that_buries_nothing_drops_nothing(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 300)
        group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids))
        assert group.bury("a", (entry_ids[0], letter(b"x")), max_len=10) == 0
        assert group.client.xlen(KEYS.dead) == 300


class TestTrouble:
    def test_the_script_touches_only_its_own_keys(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 300)
        group.bury("a", *((entry_id, letter(b"x")) for entry_id in entry_ids), max_len=1)
        assert group.keys == {KEYS.stream, KEYS.dead, KEYS.dead_dropped}

    def test_dead_letters_of_another_type_cost_no_job(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.set(KEYS.dead, "a string")
        assert group.bury("a", (entry_id, letter(b"x"))) == 0
        assert group.settled is not None
        assert (group.settled.answers, "WRONGTYPE" in group.settled.refusal) == (b"x", True)
        assert group.holds == {entry_id: Hold("a", 1)}
        group.client.delete(KEYS.dead)
        assert group.bury("a", (entry_id, letter(b"x"))) == 1

    def test_no_job_is_lost_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            group.create()
            entry_ids = group.deliver_to("a", 3)
            client.config_set("maxmemory", 1)
            with suppress(redis.ResponseError):
                group.bury("a", *((entry_id, letter(entry_id)) for entry_id in entry_ids))
            client.config_set("maxmemory", 0)
            assert len(group.stream) + len(group.letters) == 3
            assert set(group.stream) == set(group.holds)


def test_a_letter_that_was_too_large_to_be_carried_gets_what_the_entry_holds(group: Group) -> None:
    for fields in ({"d": b"huge", "n": b"mail", "x": b"1"}, {"d": b"nameless", "n": b""}, {"odd": b"1"}):
        group.client.xadd(KEYS.stream, fields)
    entry_ids = group.read("a", 3)
    rest = [b"reason", b"oversize_payload"]
    assert group.bury("a", *((entry_id, [b"", b"", *rest]) for entry_id in entry_ids)) == 3
    assert group.letters == [
        {b"d": b"huge", b"reason": b"oversize_payload", b"n": b"mail"},
        {b"d": b"nameless", b"reason": b"oversize_payload"},
        {b"d": b"", b"reason": b"oversize_payload"},
    ]
    assert group.stream == []


def test_a_letter_of_a_large_entry_that_was_deleted_meanwhile_has_no_payload(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.xdel(KEYS.stream, entry_id)
    assert group.bury("a", (entry_id, [b"", b"", b"reason", b"oversize_payload"])) == 1
    assert group.letters == [{b"d": b"", b"reason": b"oversize_payload"}]


class TestAnswers:
    def test_each_job_has_its_own_answer(self, group: Group) -> None:
        first, lost, third = group.deliver_to("a", 3)
        group.steal(lost, "b")
        group.bury("a", *((one, letter(one)) for one in (first, lost, third, first)))
        assert group.settled == SettledJobs(b"1010", "", 0)

    def test_a_job_whose_letter_is_refused_stays_pending_and_the_others_are_buried(self, group: Group) -> None:
        first, second, third = group.deliver_to("a", 3)
        group.bury("a", (first, letter(b"1")), (second, letter(b"2")[:-1]), (third, letter(b"3")))
        assert group.settled is not None
        assert (group.settled.answers, "wrong number of arguments" in group.settled.refusal) == (b"1x1", True)
        assert (set(group.holds), [one[b"d"] for one in group.letters]) == ({second}, [b"1", b"3"])

    def test_dead_letters_without_ids_cost_no_job(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 10)
        group.client.xadd(KEYS.dead, {"d": "x"}, id="18446744073709551615-18446744073709551614")
        assert group.bury("a", *((one, letter(one)) for one in entry_ids)) == 1
        assert group.settled is not None
        assert group.settled.answers == b"1xxxxxxxxx"
        assert (set(group.holds), len(group.letters)) == (set(entry_ids[1:]), 2)


class TestEvents:
    def test_events_are_written_for_buried_jobs_only(self, group: Group) -> None:
        first, lost = group.deliver_to("a", 2)
        group.steal(lost, "b")
        events = ([b"e", b"failed", b"id", b"job"], [b"e", b"dlq"])
        group.bury("a", (first, letter(b"1")), (lost, letter(b"2")), events=events)
        assert group.events == [[b"e", b"failed", b"id", b"job"], [b"e", b"dlq"]]

    def test_refused_events_cost_no_job_and_are_counted(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 2)
        group.client.set(KEYS.events, "a string")
        group.bury("a", *((one, letter(one)) for one in entry_ids), events=([b"e", b"failed"], [b"e", b"dlq"]))
        assert group.settled is not None
        assert (group.settled.answers, group.settled.refused_events) == (b"11", 4)

    def test_the_number_of_events_is_bounded(self, group: Group) -> None:
        for _ in range(5):
            entry_ids = group.deliver_to("a", 300)
            group.bury("a", *((one, letter(one)) for one in entry_ids), events=([b"e", b"dlq"],))
        assert EVENTS_MAX_LEN <= group.client.xlen(KEYS.events) < EVENTS_MAX_LEN + 200


def test_events_are_not_trimmed_by_a_job_without_events(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.config_resetstat()
    assert group.bury("a", (entry_id, letter(b"x"))) == 1
    assert "cmdstat_xtrim" not in group.client.info("commandstats")


class TestCancelled:
    def test_a_job_without_a_letter_is_removed_and_so_is_its_note(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        group.client.hset(KEYS.cancelled, mapping={first: "1", second: "1"})
        group.client.set(unique_key("job"), first)
        assert group.bury("a", (first, []), job_id="job", events=([b"e", b"cancelled"],)) == 1
        assert (group.stream, group.notes, group.uniqueness_key("job")) == ([second], {second: b"1"}, None)
        assert (group.client.xlen(KEYS.dead), group.client.xlen(KEYS.events)) == (0, 1)

    def test_a_run_that_lost_its_entry_removes_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.hset(KEYS.cancelled, entry_id, "1")
        assert group.bury("b", (entry_id, [])) == 0
        assert (group.stream, group.notes) == ([entry_id], {entry_id: b"1"})
