"""ack_unique.lua alone: acked entries leave the stream, and their ids are free."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, KEYS, Group, Hold, Wanted, index_key, official_unique_key, unique_key


def test_an_entry_that_is_done_leaves_the_pending_list_and_the_stream(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.ack_unique((entry_id, "job")) == 1
    assert (group.stream, group.holds) == ([], {})


def test_the_next_of_its_id_is_let_in(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    assert group.uniqueness_key("job") == entry_id.decode()
    group.ack_unique((entry_id, "job"))
    assert group.uniqueness_key("job") is None
    assert group.add_with_options(Wanted("mail", b"second", "job", only="keep")) == "n"


def test_a_window_keeps_others_out_to_its_end(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep", window_ms=60_000))
    (entry_id,) = group.read("a", 1)
    group.ack_unique((entry_id, "job"))
    assert group.uniqueness_key("job") == "w" + entry_id.decode()
    assert group.add_with_options(Wanted("mail", b"second", "job", only="keep")) == "d"


def test_a_uniqueness_key_of_another_entry_is_left_alone(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), "5-5")
    assert group.ack_unique((entry_id, "job")) == 1
    assert group.uniqueness_key("job") == "5-5"


def test_a_uniqueness_key_without_a_place_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    """An official promoter moved the job, and the index may have outlived that."""
    group.client.set(unique_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert group.uniqueness_key("job") == "d"
    group.client.delete(KEYS.delayed)
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert group.uniqueness_key("job") is None


def test_the_uniqueness_key_of_official_producers_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    group.client.set(official_unique_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert group.client.exists(official_unique_key("job"))
    group.client.delete(KEYS.delayed)
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert not group.client.exists(official_unique_key("job"))


def test_the_uniqueness_key_of_official_producers_goes_with_the_known_entry(group: Group) -> None:
    for sign, left in (("", None), ("w", "w")):
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), sign + entry_id.decode())
        group.client.set(official_unique_key("job"), "1")
        group.ack_unique((entry_id, "job"))
        assert group.uniqueness_key("job") == (left and left + entry_id.decode())
        assert not group.client.exists(official_unique_key("job"))


def test_the_uniqueness_keys_of_another_entry_both_stay(group: Group) -> None:
    group.client.set(unique_key("job"), "5-5")
    group.client.set(official_unique_key("job"), "1")
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert group.client.exists(unique_key("job"), official_unique_key("job")) == 2


def test_the_uniqueness_key_of_official_producers_stays_if_their_job_was_delayed_since(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), entry_id)
    group.client.set(official_unique_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_unique((entry_id, "job"))
    assert group.uniqueness_key("job") is None
    assert group.client.exists(official_unique_key("job"))


def test_a_delayed_set_of_another_type_stops_no_job(group: Group) -> None:
    group.client.set(KEYS.delayed, "a string")
    group.client.set(unique_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.ack_unique((group.deliver_to("a")[0], "job"))
    assert (group.stream, group.uniqueness_key("job")) == ([], None)


def test_a_uniqueness_key_that_keeps_a_window_for_a_delayed_job_is_left_alone(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), "wd")
    group.ack_unique((entry_id, "job"))
    assert group.uniqueness_key("job") == "wd"


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    assert group.ack_unique((entry_id, "job")) == 1
    group.add_with_options(Wanted("mail", b"second", "job", only="keep"))
    marker = group.uniqueness_key("job")
    assert group.ack_unique((entry_id, "job")) == 0
    assert (group.uniqueness_key("job"), group.envelopes) == (marker, [b"second"])


def test_each_job_of_a_batch_releases_its_own_uniqueness_key(group: Group) -> None:
    for job_id in ("1", "2", "3"):
        group.add_with_options(Wanted("mail", b"x", job_id, only="keep"))
    first, _, third = group.read("a", 3)
    assert group.ack_unique((first, "1"), (third, "3")) == 2
    assert [group.uniqueness_key(job_id) is None for job_id in ("1", "2", "3")] == [True, False, True]


def test_neighbours_stay_where_they_are(group: Group) -> None:
    mine, running = group.deliver_to("a", 2)
    (waiting,) = group.add(1)
    group.ack_unique((mine, "job"))
    assert (group.stream, group.holds) == ([running, waiting], {running: Hold("a", 1)})


def test_an_entry_that_another_worker_has_taken_over_is_done_all_the_same(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.steal(entry_id, "b")
    assert group.ack_unique((entry_id, "job")) == 1
    assert (group.stream, group.holds) == ([], {})


def test_entries_leave_the_stream_and_ids_are_released_without_the_group(group: Group) -> None:
    """The jobs are done; a rebuilt group must not deliver them again."""
    group.add_with_options(Wanted("mail", b"x", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.ack_unique((entry_id, "job")) == 0
    assert (group.stream, group.uniqueness_key("job")) == ([], None)


def test_no_key_is_created_without_the_stream(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.delete(KEYS.stream)
    assert group.ack_unique((entry_id, "job")) == 0
    assert group.keys == set()


def test_a_batch_of_none_finishes_none(group: Group) -> None:
    assert group.ack_unique() == 0
    assert group.keys == {KEYS.stream}


def test_a_uniqueness_key_of_another_type_stops_no_job(group: Group) -> None:
    first, second = group.deliver_to("a", 2)
    group.client.rpush(unique_key("job"), "a list")
    assert group.ack_unique((first, "job"), (second, "job")) == 2
    assert group.stream == []


def test_a_stream_of_another_type_is_an_error_and_costs_no_uniqueness_key(group: Group) -> None:
    group.client.delete(KEYS.stream)
    group.client.set(KEYS.stream, "a string")
    group.client.set(unique_key("job"), "1-1")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.ack_unique((b"1-1", "job"))
    assert group.uniqueness_key("job") == "1-1"


def test_10_000_entries_are_acked_in_one_call(group: Group) -> None:
    entry_ids = group.deliver_to("a", 10_000)
    group.client.mset({unique_key(f"job-{number}"): entry_id for number, entry_id in enumerate(entry_ids)})
    assert group.ack_unique(*((entry_id, f"job-{number}") for number, entry_id in enumerate(entry_ids))) == 10_000
    assert group.keys == {KEYS.stream}
    assert (group.stream, group.holds) == ([], {})


def test_a_window_stays_and_the_official_key_goes_with_a_job_that_is_delayed_no_more(group: Group) -> None:
    """An official promoter has moved the job, and its uniqueness key still says that it is delayed."""
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), "wd", px=60_000)
    group.client.set(official_unique_key("job"), "1")
    group.ack_unique((entry_id, "job"))
    assert group.uniqueness_key("job") == "wd"
    assert not group.client.exists(official_unique_key("job"))
