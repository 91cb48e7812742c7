"""purge_waiting.lua alone: undelivered entries go, with their uniqueness keys; delivered entries stay."""

from __future__ import annotations

import pytest
import redis

from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.msgpack import encode_data
from tests.scripts.group import GROUP, KEYS, Group, Hold, Wanted, index_key, unique_key


def job(job_id: str) -> Wanted:
    """A unique job."""
    return Wanted("mail", encode_envelope(job_id, encode_data(1), 0, 0, None), job_id, only="keep")


def test_a_waiting_job_goes(group: Group) -> None:
    group.add(3)
    assert group.purge_waiting() == 3
    assert (group.stream, group.keys) == ([], {KEYS.stream})


def test_an_empty_stream_has_nothing_to_remove(group: Group) -> None:
    assert group.purge_waiting() == 0
    assert group.keys == {KEYS.stream}


def test_no_key_is_created_without_a_stream(group: Group) -> None:
    group.client.delete(KEYS.stream)
    assert group.purge_waiting() == 0
    assert group.keys == set()


def test_every_entry_waits_without_a_group(group: Group) -> None:
    group.deliver_to("a", 2)
    group.add(1)
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.purge_waiting() == 3
    assert group.stream == []


def test_a_delivered_entry_stays_with_its_worker(group: Group) -> None:
    held = group.deliver_to("a", 2)
    group.add(3)
    assert group.purge_waiting() == 3
    assert (group.stream, group.holds) == (held, dict.fromkeys(held, Hold("a", 1)))


def test_an_entry_delivered_to_any_group_stays(group: Group) -> None:
    """The group that has read furthest decides, in any order of the list."""
    entry_ids = group.add(4)
    group.read("a", 2)
    for name, position in (("ahead", entry_ids[2]), ("zero", "0")):
        group.client.xgroup_create(KEYS.stream, name, position)
    assert group.purge_waiting() == 1
    assert group.stream == entry_ids[:3]


def test_entries_of_one_millisecond_are_kept_apart(group: Group) -> None:
    for sequence in (2, 9, 10, 11):
        group.client.xadd(KEYS.stream, {"d": b"x"}, id=f"5-{sequence}")
    for name, position in (("first", "5-9"), ("second", "5-10"), ("third", "4-99")):
        group.client.xgroup_create(KEYS.stream, name, position)
    assert group.purge_waiting() == 1
    assert group.stream == [b"5-2", b"5-9", b"5-10"]


def test_times_are_compared_as_numbers(group: Group) -> None:
    for ms in (9, 10, 11):
        group.client.xadd(KEYS.stream, {"d": b"x"}, id=f"{ms}-1")
    for name, position in (("first", "9-1"), ("second", "10-1")):
        group.client.xgroup_create(KEYS.stream, name, position)
    assert group.purge_waiting() == 1
    assert group.stream == [b"9-1", b"10-1"]


def test_the_given_number_of_jobs_goes_the_oldest_first(group: Group) -> None:
    entry_ids = group.add(5)
    assert group.purge_waiting(2) == 2
    assert group.stream == entry_ids[2:]


def test_the_same_call_again_removes_more(group: Group) -> None:
    group.add(5)
    assert [group.purge_waiting(2) for _ in range(4)] == [2, 2, 1, 0]


def test_an_entry_newer_than_the_given_one_stays(group: Group) -> None:
    _, second, third = group.add(3)
    assert group.purge_waiting(newest=second) == 2
    assert group.stream == [third]


def test_the_next_of_its_id_is_let_in(group: Group) -> None:
    group.add_with_options(job("1"), job("2"))
    assert group.purge_waiting() == 2
    assert (group.uniqueness_key("1"), group.uniqueness_key("2")) == (None, None)
    assert group.add_with_options(job("1")) == "n"


def test_ids_of_any_length_are_found(group: Group) -> None:
    for size in (1, 26, 31, 32, 255, 256, 1000):
        group.add_with_options(job("x" * size))
    assert group.purge_waiting() == 7
    assert [key for key in group.keys if ":unique:" in key] == []


@pytest.mark.parametrize("array", (0x93, 0x94, 0x95))
def test_envelopes_of_any_length_are_read(group: Group, array: int) -> None:
    (entry_id,) = (group.client.xadd(KEYS.stream, {"d": bytes([array, 0xA1]) + b"x"}),)
    group.client.set(unique_key("x"), entry_id)
    group.purge_waiting()
    assert group.uniqueness_key("x") is None


def test_the_id_is_read_from_envelopes_of_three_to_five_fields(group: Group) -> None:
    for array in (0x92, 0x93, 0x95, 0x96):
        entry_id = group.client.xadd(KEYS.stream, {"n": "mail", "d": bytes([array, 0xA4]) + b"id%x" % array})
        group.client.set(unique_key(f"id{array:x}"), entry_id)
    group.purge_waiting()
    assert sorted(key[-4:] for key in group.keys if ":unique:" in key) == ["id92", "id96"]


def test_a_window_of_a_job_that_is_gone_is_over(group: Group) -> None:
    group.add_with_options(job("job")._replace(window_ms=60_000))
    assert group.uniqueness_key("job") == "w" + group.stream[0].decode()
    group.purge_waiting()
    assert group.uniqueness_key("job") is None


def test_a_uniqueness_key_of_another_entry_is_left_alone(group: Group) -> None:
    for position in ("5-5", "w5-5", "wd"):
        group.add_with_options(job("job"))
        group.client.set(unique_key("job"), position)
        assert group.purge_waiting() == 1
        assert group.uniqueness_key("job") == position
        group.client.delete(unique_key("job"))


def test_a_uniqueness_key_without_a_place_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    for is_delayed, left in ((True, "d"), (False, None)):
        group.add_with_options(job("job"))
        group.client.set(unique_key("job"), "d")
        group.client.set(index_key("job"), b"member")
        if is_delayed:
            group.client.zadd(KEYS.delayed, {b"member": 1})
        group.purge_waiting()
        assert group.uniqueness_key("job") == left
        group.client.delete(unique_key("job"), index_key("job"), KEYS.delayed)


def test_uniqueness_keys_of_running_jobs_stay(group: Group) -> None:
    group.add_with_options(job("running"))
    (entry_id,) = group.read("a", 1)
    group.add_with_options(job("waiting"))
    group.purge_waiting()
    assert (group.uniqueness_key("running"), group.uniqueness_key("waiting")) == (entry_id.decode(), None)


def test_an_entry_of_any_shape_goes(group: Group) -> None:
    for envelope in (b"", b"\x94", b"\xc1x", b"\x94\xd9", b"\x94\xda\x01", b"\x94\xda", b"\x94\x05", b"text"):
        group.client.xadd(KEYS.stream, {"d": envelope})
    group.client.xadd(KEYS.stream, {"x": "y"})
    assert group.purge_waiting() == 9
    assert group.stream == []


def test_a_uniqueness_key_of_another_type_stops_no_job(group: Group) -> None:
    group.add_with_options(job("job"), job("other"))
    group.client.delete(unique_key("job"))
    group.client.rpush(unique_key("job"), "a list")
    assert group.purge_waiting() == 2
    assert (group.stream, group.uniqueness_key("other")) == ([], None)


def test_a_stream_of_another_type_is_an_error_and_stays(group: Group) -> None:
    group.client.delete(KEYS.stream)
    group.client.set(KEYS.stream, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.purge_waiting()
    assert group.client.get(KEYS.stream) == b"a string"


def test_waiting_jobs_go_without_memory_too(group: Group) -> None:
    group.add(3)
    with group.full_memory():
        assert group.purge_waiting() == 3


def test_10_000_jobs_go_in_one_call(group: Group) -> None:
    held = group.deliver_to("a", 1)
    group.add_with_options(*(job(f"job-{number}") for number in range(10_000)))
    assert group.purge_waiting(10_000) == 10_000
    assert (group.stream, [key for key in group.keys if ":unique:" in key]) == (held, [])


def test_the_bytes_bound_one_call(group: Group) -> None:
    """The last job may go beyond them; small jobs in front do not let many large ones in."""
    sizes = [10] * 12 + [1000] * 12
    for number, size in enumerate(sizes):
        envelope = encode_envelope(f"{number:02d}", encode_data("x" * size), 0, 0, None)
        group.add_with_options(job(f"{number:02d}")._replace(envelope=envelope))
    assert group.purge_waiting(max_bytes=1) == 1
    assert group.purge_waiting(max_bytes=3000) == 14
    assert group.purge_waiting(5) == 5
    assert group.purge_waiting() == 4


def test_each_waiting_job_that_goes_has_an_event_of_a_cancelled_job(group: Group) -> None:
    group.client.xadd(KEYS.events, {"e": "other"})
    group.add_with_options(job("1"), job("2")._replace(name=""))
    assert group.purge_waiting() == 2
    (_, first, second) = group.events
    assert (first[:4], first[6:]) == ([b"e", b"cancelled", b"id", b"1"], [b"n", b"mail"])
    assert (second[:4], second[6:]) == ([b"e", b"cancelled", b"id", b"2"], [])


def test_a_purge_of_waiting_jobs_makes_no_events_for_a_queue_without(group: Group) -> None:
    group.add_with_options(job("1"), job("2")._replace(name=""))
    group.purge_waiting()
    assert KEYS.events not in group.keys
