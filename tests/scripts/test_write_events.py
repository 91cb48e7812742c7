"""write_events.lua alone: events are written as they were given, in their order, and bounded."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import KEYS, Group

NODE = 100  # entries of a stream node by default: streams are trimmed node by node


def event(number: int, *more: str | bytes) -> list[str | bytes]:
    return ["e", "active", "id", f"job-{number}", "ts", "1000", *more]


def require_bytes(words: list[str | bytes]) -> list[bytes]:
    return [word if isinstance(word, bytes) else word.encode() for word in words]


def test_an_event_is_written_with_its_fields_in_their_order(group: Group) -> None:
    written = event(1, "n", "mail", "attempt", "1")
    assert group.write_events(written) == 1
    assert group.events == [require_bytes(written)]


def test_events_of_different_lengths_come_one_after_the_other(group: Group) -> None:
    events: list[list[str | bytes]] = [
        event(1),
        event(2, "n", "mail"),
        ["e", "drained"],
        event(3, "reason", b"\x00\xff\r\n"),
    ]
    assert group.write_events(*events) == 4
    assert group.events == [require_bytes(each) for each in events]


def test_values_may_be_empty_or_large(group: Group) -> None:
    events = [event(1, "n", ""), event(2, "reason", "x" * 100_000)]
    group.write_events(*events)
    assert group.events == [require_bytes(each) for each in events]


def test_an_empty_batch_writes_no_event(group: Group) -> None:
    assert group.write_events() == 0
    assert group.keys == {KEYS.stream}


def test_the_same_call_again_writes_them_again(group: Group) -> None:
    assert (group.write_events(event(1)), group.write_events(event(1))) == (1, 1)
    assert group.events == [require_bytes(event(1))] * 2


def test_the_oldest_go_when_there_are_too_many(group: Group) -> None:
    """Node by node, so that a few more may stay."""
    for number in range(10):
        group.write_events(*(event(NODE * number + each) for each in range(NODE)), max_len=3 * NODE)
    assert 3 * NODE <= len(group.events) <= 4 * NODE
    assert group.events[-1] == require_bytes(event(10 * NODE - 1))


def test_the_stream_is_trimmed_node_by_node(group: Group) -> None:
    """This costs next to nothing."""
    left = []
    for max_len in (301, 303, 307):
        group.client.delete(KEYS.events)
        group.write_events(*(event(number) for number in range(1000)), max_len=max_len)
        left.append(len(group.events) - max_len)
    assert min(left) >= 0
    assert max(left) > 0


def test_all_events_stay_below_the_bound(group: Group) -> None:
    group.write_events(*(event(number) for number in range(300)), max_len=300)
    assert len(group.events) == 300


def test_other_keys_are_left_alone(group: Group) -> None:
    entry_ids = group.deliver_to("a", 3)
    group.write_events(event(1), max_len=1)
    assert (group.stream, group.keys) == (entry_ids, {KEYS.stream, KEYS.events})


def test_a_key_of_another_type_is_an_error_and_stays(group: Group) -> None:
    group.client.set(KEYS.events, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.write_events(event(1))
    assert group.client.get(KEYS.events) == b"a string"


def test_no_event_is_written_without_memory(group: Group) -> None:
    with group.full_memory(), pytest.raises(redis.ResponseError, match="maxmemory"):
        group.write_events(event(1))
    assert group.keys == {KEYS.stream}


def test_10_000_events_are_written_in_one_call(group: Group) -> None:
    assert group.write_events(*(event(number) for number in range(10_000)), max_len=100_000) == 10_000
    assert group.events == [require_bytes(event(number)) for number in range(10_000)]
