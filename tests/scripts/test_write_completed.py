"""write_completed.lua alone: each job gets an active event, unless it has one, and a completed event."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import KEYS, CompletedRun, Group

NODE = 100  # entries of a stream node by default: streams are trimmed node by node


def words(text: str) -> list[bytes]:
    return text.encode().split()


def test_a_job_was_active_and_then_completed(group: Group) -> None:
    assert group.write_completed(CompletedRun("job", "mail", 2, 1000, 2000, 999_999)) == 1
    assert group.events == [
        words("e active id job ts 1000 n mail attempt 2"),
        words("e completed id job ts 2000 n mail attempt 2 duration_us 999999 stored 0"),
    ]


def test_a_job_without_a_name_has_no_field_for_it(group: Group) -> None:
    assert group.write_completed(CompletedRun("job", "", 1, 1000, 2000, 5)) == 1
    assert group.events == [
        words("e active id job ts 1000 attempt 1"),
        words("e completed id job ts 2000 attempt 1 duration_us 5 stored 0"),
    ]


def test_an_active_event_that_exists_is_not_written_again(group: Group) -> None:
    assert group.write_completed(CompletedRun("1", "mail"), CompletedRun("2")) == 2
    assert group.events == [
        words("e completed id 1 ts 2000 n mail attempt 1 duration_us 500 stored 0"),
        words("e completed id 2 ts 2000 attempt 1 duration_us 500 stored 0"),
    ]


def test_the_event_says_that_its_result_is_stored(group: Group) -> None:
    for job_id in ("1", "2"):
        group.client.set(KEYS.result(job_id), b"result")
    group.write_completed(CompletedRun("1", "mail"), CompletedRun("2"), results=KEYS.result(""))
    assert [event[-2:] for event in group.events] == [[b"stored", b"1"]] * 2
    assert [group.result(job_id) for job_id in ("1", "2")] == [b"result", b"result"]


def test_the_event_says_why_the_server_has_refused_the_result(group: Group) -> None:
    """The ack that was to store it is not answered yet when the events are sent."""
    group.client.set(KEYS.result("kept"), b"result")
    runs = (CompletedRun("1", "mail", started=7), CompletedRun("2"), CompletedRun("kept"))
    with group.as_user("+@all", f"~{KEYS.events}", f"~{KEYS.result('kept')}") as narrow:
        narrow.write_completed(*runs, results=KEYS.result(""))
    active, first, second, kept = group.events
    assert active[1] == b"active"
    assert first[:-1] == words("e completed id 1 ts 2000 n mail attempt 1 duration_us 500 stored 0 why")
    assert second[:-1] == words("e completed id 2 ts 2000 attempt 1 duration_us 500 stored 0 why")
    assert b"key" in first[-1]
    assert kept[-2:] == [b"stored", b"1"]
    assert group.result("kept") == b"result"


def test_the_event_says_so_if_the_user_may_not_store_at_all(group: Group) -> None:
    with group.as_user("+@all", "-set", "~*") as narrow:
        narrow.write_completed(CompletedRun("1"), results=KEYS.result(""))
    assert group.events[0][-4:-1] == [b"stored", b"0", b"why"]
    assert group.keys == {KEYS.stream, KEYS.events}


def test_a_result_whose_time_is_over_was_stored(group: Group) -> None:
    group.write_completed(CompletedRun("1"), results=KEYS.result(""))
    assert [event[-2:] for event in group.events] == [[b"stored", b"1"]]
    assert group.keys == {KEYS.stream, KEYS.events}


def test_a_user_without_the_right_to_look_changes_no_result(group: Group) -> None:
    group.client.set(KEYS.result("1"), b"result")
    with group.as_user("+@all", "-exists", "~*") as narrow:
        narrow.write_completed(CompletedRun("1"), results=KEYS.result(""))
    assert [event[-2:] for event in group.events] == [[b"stored", b"1"]]
    assert (group.result("1"), group.client.pttl(KEYS.result("1"))) == (b"result", -1)


def test_each_job_of_a_batch_has_its_own_events(group: Group) -> None:
    runs = [
        CompletedRun("1", "a", 1, 10, 20, 30),
        CompletedRun("2", "", 2, "", 21, 31),
        CompletedRun("3", "c", 3, 12, 22, 32),
    ]
    assert group.write_completed(*runs) == 3
    assert group.events == [
        words("e active id 1 ts 10 n a attempt 1"),
        words("e completed id 1 ts 20 n a attempt 1 duration_us 30 stored 0"),
        words("e completed id 2 ts 21 attempt 2 duration_us 31 stored 0"),
        words("e active id 3 ts 12 n c attempt 3"),
        words("e completed id 3 ts 22 n c attempt 3 duration_us 32 stored 0"),
    ]


def test_a_result_that_is_there_counts_as_stored_beside_one_that_is_refused(group: Group) -> None:
    group.client.set(KEYS.result("1"), "result")
    with group.as_user("+@all", "-set", "~*", "&*") as narrow:
        narrow.write_completed(CompletedRun("1"), CompletedRun("2"), results=KEYS.result(""))
    first, second = group.events
    assert first[-2:] == [b"stored", b"1"]
    assert second[-4:-1] == [b"stored", b"0", b"why"]


def test_an_empty_batch_writes_no_event(group: Group) -> None:
    assert group.write_completed() == 0
    assert group.keys == {KEYS.stream}


def test_the_same_call_again_writes_them_again(group: Group) -> None:
    assert (group.write_completed(CompletedRun("job")), group.write_completed(CompletedRun("job"))) == (1, 1)
    assert len(group.events) == 2


def test_the_oldest_go_when_there_are_too_many(group: Group) -> None:
    """Node by node, so that a few more may stay."""
    for number in range(10):
        group.write_completed(*(CompletedRun(str(NODE * number + each)) for each in range(NODE)), max_len=3 * NODE)
    assert 3 * NODE <= len(group.events) <= 4 * NODE
    assert group.events[-1][3] == b"%d" % (10 * NODE - 1)


def test_the_stream_is_trimmed_node_by_node(group: Group) -> None:
    """This costs next to nothing."""
    left = []
    for max_len in (301, 303, 307):
        group.client.delete(KEYS.events)
        group.write_completed(*(CompletedRun(str(number)) for number in range(1000)), max_len=max_len)
        left.append(len(group.events) - max_len)
    assert min(left) >= 0
    assert max(left) > 0


def test_all_events_stay_below_the_bound(group: Group) -> None:
    group.write_completed(*(CompletedRun(str(number), "", 1, 1) for number in range(300)), max_len=600)
    assert len(group.events) == 600


def test_other_keys_are_left_alone(group: Group) -> None:
    entry_ids = group.deliver_to("a", 3)
    group.write_completed(CompletedRun("job"), max_len=1)
    assert (group.stream, group.keys) == (entry_ids, {KEYS.stream, KEYS.events})


def test_a_key_of_another_type_is_an_error_and_stays(group: Group) -> None:
    group.client.set(KEYS.events, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.write_completed(CompletedRun("job"))
    assert group.client.get(KEYS.events) == b"a string"


def test_no_event_is_written_without_memory(group: Group) -> None:
    with group.full_memory(), pytest.raises(redis.ResponseError, match="maxmemory"):
        group.write_completed(CompletedRun("job"))
    assert group.keys == {KEYS.stream}


def test_events_of_10_000_jobs_are_written_in_one_call(group: Group) -> None:
    runs = (CompletedRun(f"job-{number}", "mail", 1, 1000) for number in range(10_000))
    assert group.write_completed(*runs, max_len=100_000) == 10_000
    assert [event[3] for event in group.events[1::2]] == [b"job-%d" % number for number in range(10_000)]
