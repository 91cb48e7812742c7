"""purge_delayed.lua alone: delayed jobs go, with their indexes and their uniqueness keys."""

from __future__ import annotations

import pytest
import redis

from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from tests.scripts.group import HOUR_MS, KEYS, Group, Wanted, index_key, official_unique_key, unique_key
from tests.scripts.test_keys import monitored


def job(job_id: str, name: str = "mail") -> Wanted:
    """A unique job that is not due for long."""
    envelope = encode_envelope(job_id, encode_data(1), 0, 0, None)
    return Wanted(name, envelope, job_id, str(9_000_000_000_000), only="keep")


def leftovers(group: Group) -> list[str]:
    return sorted(key for key in group.keys if any(kind in key for kind in (":didx:", ":unique:", ":dlid:")))


def test_a_delayed_job_goes_with_its_index_and_its_uniqueness_key(group: Group) -> None:
    group.add_with_options(job("1"), job("2", name=""))
    assert len(leftovers(group)) == 6
    assert group.purge_delayed() == 2
    assert (group.delayed, leftovers(group)) == ({}, [])
    assert group.add_with_options(job("1")) == "n"


def test_an_overdue_job_goes(group: Group) -> None:
    group.client.zadd(KEYS.delayed, {make_delayed_member("mail", job("1").envelope): 1})
    assert group.purge_delayed() == 1
    assert (group.delayed, group.stream) == ({}, [])


def test_a_job_that_waits_for_its_retry_goes(group: Group) -> None:
    group.add_with_options(job("1")._replace(due=""))
    (entry_id,) = group.read("a", 1)
    member = make_delayed_member("mail", job("1").envelope)
    group.reschedule("a", (entry_id, HOUR_MS, member), job_id="1", may_be_unique=1)
    assert group.purge_delayed() == 1
    assert (group.delayed, leftovers(group)) == ({}, [])


def test_a_window_of_a_job_that_is_gone_is_over(group: Group) -> None:
    group.add_with_options(job("1")._replace(window_ms=60_000))
    group.purge_delayed()
    assert leftovers(group) == []


def test_an_empty_delayed_set_gives_zero(group: Group) -> None:
    assert group.purge_delayed() == 0
    assert group.keys == {KEYS.stream}


def test_the_given_number_of_jobs_goes_the_soonest_first(group: Group) -> None:
    for number in range(5):
        group.add_with_options(job(str(number))._replace(due=f"+{HOUR_MS - 60_000 * number}"))
    assert group.purge_delayed(2) == 2
    assert len(group.delayed) == 3
    assert {key.rpartition(":")[2] for key in leftovers(group)} == {"0", "1", "2"}


def test_no_job_goes_if_none_may(group: Group) -> None:
    group.add_with_options(job("1"), job("2"))
    before = group.delayed
    assert group.purge_delayed(0) == 0
    assert group.delayed == before


def test_the_same_call_again_removes_more(group: Group) -> None:
    group.add_with_options(*(job(str(number)) for number in range(5)))
    assert [group.purge_delayed(2) for _ in range(4)] == [2, 2, 1, 0]


def test_ids_and_names_of_any_length_are_found(group: Group) -> None:
    for size in (1, 26, 31, 32, 255, 256, 1000):
        group.add_with_options(job("x" * size, name="n" * size))
    assert group.purge_delayed() == 7
    assert leftovers(group) == []


def test_the_id_is_read_from_envelopes_of_three_to_five_fields(group: Group) -> None:
    for array in (0x92, 0x93, 0x95, 0x96):
        group.client.zadd(KEYS.delayed, {make_delayed_member("mail", bytes([array, 0xA4]) + b"id%x" % array): 1})
        group.client.set(unique_key(f"id{array:x}"), "d")
    assert group.purge_delayed() == 4
    assert sorted(key[-4:] for key in leftovers(group)) == ["id92", "id96"]


def test_a_member_of_any_shape_goes(group: Group) -> None:
    envelopes = (b"", b"\x94", b"\xc1x", b"\x94\xd9", b"\x94\xda\x01", b"\x94\xda", b"\x94\x05", b"text")
    members = [
        b"",
        b"x",
        b"\xff\xff\xff\xff",
        b"\x09\x00\x00\x00",
        *(make_delayed_member("", each) for each in envelopes),
    ]
    group.client.zadd(KEYS.delayed, dict.fromkeys(members, 1))
    assert group.purge_delayed() == len(set(members))
    assert group.delayed == {}


def test_waiting_and_running_jobs_stay(group: Group) -> None:
    entry_ids = group.deliver_to("a", 1) + group.add(1)
    group.add_with_options(job("1"), job("2")._replace(due=""))
    assert group.purge_delayed() == 1
    assert group.stream[:2] == entry_ids
    assert group.uniqueness_key("2") == group.stream[2].decode()


def test_an_index_or_a_uniqueness_key_of_another_type_stops_no_job(group: Group) -> None:
    group.add_with_options(job("1"), job("2"))
    for key in (index_key("1"), unique_key("1")):
        group.client.delete(key)
        group.client.rpush(key, "a list")
    assert group.purge_delayed() == 2
    assert (group.delayed, leftovers(group)) == ({}, [])


def test_a_key_of_another_type_is_an_error_and_stays(group: Group) -> None:
    group.client.set(KEYS.delayed, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.purge_delayed()
    assert group.client.get(KEYS.delayed) == b"a string"


def test_delayed_jobs_go_without_memory_too(group: Group) -> None:
    group.add_with_options(job("1"))
    with group.full_memory():
        assert group.purge_delayed() == 1


def test_10_000_jobs_go_in_one_call(group: Group) -> None:
    group.add_with_options(*(job(f"job-{number}") for number in range(10_000)))
    assert group.purge_delayed(10_000) == 10_000
    assert (group.delayed, leftovers(group)) == ({}, [])


def test_the_bytes_bound_one_call(group: Group) -> None:
    """The last job may go beyond them; small jobs in front do not let many large ones in."""
    sizes = [10] * 12 + [1000] * 12
    for number, size in enumerate(sizes):
        envelope = encode_envelope(f"{number:02d}", encode_data("x" * size), 0, 0, None)
        group.add_with_options(job(f"{number:02d}")._replace(envelope=envelope))
    assert group.purge_delayed(max_bytes=1) == 1
    assert group.purge_delayed(max_bytes=3000) == 14
    assert group.purge_delayed(5) == 5
    assert group.purge_delayed() == 4


def test_the_keys_of_many_jobs_are_all_touched_before_the_first_write(group: Group) -> None:
    """One command touches a thousand."""
    ids = [f"job-{number:03d}" for number in range(700)]
    group.add_with_options(*map(job, ids))
    with monitored(group.client) as lines:
        assert group.purge_delayed(700) == 700
    touched = b"".join(line for line in lines if b'"EXISTS"' in line)
    keys = [key(job_id) for job_id in ids for key in (unique_key, official_unique_key, index_key)]
    assert [key for key in keys if f'"{key}"'.encode() not in touched] == []


def test_each_delayed_job_that_goes_has_an_event_of_a_cancelled_job(group: Group) -> None:
    group.client.xadd(KEYS.events, {"e": "other"})
    group.add_with_options(job("1"), job("2", name=""))
    assert group.purge_delayed() == 2
    first, second = sorted(group.events[1:], key=lambda event: event[3])
    assert (first[:4], first[6:]) == ([b"e", b"cancelled", b"id", b"1"], [b"n", b"mail"])
    assert (second[:4], second[6:]) == ([b"e", b"cancelled", b"id", b"2"], [])


def test_a_purge_of_delayed_jobs_makes_no_events_for_a_queue_without(group: Group) -> None:
    group.add_with_options(job("1"), job("2", name=""))
    group.purge_delayed()
    assert KEYS.events not in group.keys
