"""ack_unique.lua alone: acked entries leave the stream, and their ids are free."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, KEYS, Group, Hold, Wanted, index_key, marker_key, official_marker_key


def test_an_entry_that_is_done_leaves_the_pending_list_and_the_stream(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    assert group.finish((entry_id, "job")) == 1
    assert (group.stream, group.holds) == ([], {})


def test_the_next_of_its_id_is_let_in(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    assert group.marker("job") == entry_id.decode()
    group.finish((entry_id, "job"))
    assert group.marker("job") is None
    assert group.add_with_options(Wanted("mail", b"second", "job", only="keep")) == "n"


def test_a_window_keeps_others_out_to_its_end(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep", window_ms=60_000))
    (entry_id,) = group.read("a", 1)
    group.finish((entry_id, "job"))
    assert group.marker("job") == "w" + entry_id.decode()
    assert group.add_with_options(Wanted("mail", b"second", "job", only="keep")) == "d"


def test_a_uniqueness_key_of_another_entry_is_left_alone(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    group.client.set(marker_key("job"), "5-5")
    assert group.finish((entry_id, "job")) == 1
    assert group.marker("job") == "5-5"


def test_a_uniqueness_key_without_a_place_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    """An official promoter moved the job, and the index may have outlived that."""
    group.client.set(marker_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.finish((group.hand_to("a")[0], "job"))
    assert group.marker("job") == "d"
    group.client.delete(KEYS.delayed)
    group.finish((group.hand_to("a")[0], "job"))
    assert group.marker("job") is None


def test_the_uniqueness_key_of_official_producers_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    group.client.set(official_marker_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.finish((group.hand_to("a")[0], "job"))
    assert group.client.exists(official_marker_key("job"))
    group.client.delete(KEYS.delayed)
    group.finish((group.hand_to("a")[0], "job"))
    assert not group.client.exists(official_marker_key("job"))


def test_the_uniqueness_key_of_official_producers_goes_with_the_known_entry(group: Group) -> None:
    for sign, left in (("", None), ("w", "w")):
        (entry_id,) = group.hand_to("a")
        group.client.set(marker_key("job"), sign + entry_id.decode())
        group.client.set(official_marker_key("job"), "1")
        group.finish((entry_id, "job"))
        assert group.marker("job") == (left and left + entry_id.decode())
        assert not group.client.exists(official_marker_key("job"))


def test_the_uniqueness_keys_of_another_entry_both_stay(group: Group) -> None:
    group.client.set(marker_key("job"), "5-5")
    group.client.set(official_marker_key("job"), "1")
    group.finish((group.hand_to("a")[0], "job"))
    assert group.client.exists(marker_key("job"), official_marker_key("job")) == 2


def test_the_uniqueness_key_of_official_producers_stays_if_their_job_was_delayed_since(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    group.client.set(marker_key("job"), entry_id)
    group.client.set(official_marker_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.finish((entry_id, "job"))
    assert group.marker("job") is None
    assert group.client.exists(official_marker_key("job"))


def test_a_delayed_set_of_another_type_stops_no_job(group: Group) -> None:
    group.client.set(KEYS.delayed, "a string")
    group.client.set(marker_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.finish((group.hand_to("a")[0], "job"))
    assert (group.stream, group.marker("job")) == ([], None)


def test_a_uniqueness_key_that_keeps_a_window_for_a_delayed_job_is_left_alone(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    group.client.set(marker_key("job"), "wd")
    group.finish((entry_id, "job"))
    assert group.marker("job") == "wd"


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    assert group.finish((entry_id, "job")) == 1
    group.add_with_options(Wanted("mail", b"second", "job", only="keep"))
    marker = group.marker("job")
    assert group.finish((entry_id, "job")) == 0
    assert (group.marker("job"), group.envelopes) == (marker, [b"second"])


def test_each_job_of_a_batch_releases_its_own_uniqueness_key(group: Group) -> None:
    for job_id in ("1", "2", "3"):
        group.add_with_options(Wanted("mail", b"x", job_id, only="keep"))
    first, _, third = group.read("a", 3)
    assert group.finish((first, "1"), (third, "3")) == 2
    assert [group.marker(job_id) is None for job_id in ("1", "2", "3")] == [True, False, True]


def test_neighbours_stay_where_they_are(group: Group) -> None:
    mine, running = group.hand_to("a", 2)
    (waiting,) = group.add(1)
    group.finish((mine, "job"))
    assert (group.stream, group.holds) == ([running, waiting], {running: Hold("a", 1)})


def test_an_entry_that_another_worker_has_taken_over_is_done_all_the_same(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    group.steal(entry_id, "b")
    assert group.finish((entry_id, "job")) == 1
    assert (group.stream, group.holds) == ([], {})


def test_entries_leave_the_stream_and_ids_are_released_without_the_group(group: Group) -> None:
    """The jobs are done; a rebuilt group must not deliver them again."""
    group.add_with_options(Wanted("mail", b"x", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.finish((entry_id, "job")) == 0
    assert (group.stream, group.marker("job")) == ([], None)


def test_no_key_is_created_without_the_stream(group: Group) -> None:
    (entry_id,) = group.hand_to("a")
    group.client.delete(KEYS.stream)
    assert group.finish((entry_id, "job")) == 0
    assert group.keys == set()


def test_a_batch_of_none_finishes_none(group: Group) -> None:
    assert group.finish() == 0
    assert group.keys == {KEYS.stream}


def test_a_uniqueness_key_of_another_type_stops_no_job(group: Group) -> None:
    first, second = group.hand_to("a", 2)
    group.client.rpush(marker_key("job"), "a list")
    assert group.finish((first, "job"), (second, "job")) == 2
    assert group.stream == []


def test_a_stream_of_another_type_is_an_error_and_costs_no_uniqueness_key(group: Group) -> None:
    group.client.delete(KEYS.stream)
    group.client.set(KEYS.stream, "a string")
    group.client.set(marker_key("job"), "1-1")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.finish((b"1-1", "job"))
    assert group.marker("job") == "1-1"


def test_10_000_entries_in_one_call(group: Group) -> None:
    entry_ids = group.hand_to("a", 10_000)
    for number, entry_id in enumerate(entry_ids):
        group.client.set(marker_key(f"job-{number}"), entry_id)
    assert group.finish(*((entry_id, f"job-{number}") for number, entry_id in enumerate(entry_ids))) == 10_000
    assert group.keys == {KEYS.stream}
    assert (group.stream, group.holds) == ([], {})
