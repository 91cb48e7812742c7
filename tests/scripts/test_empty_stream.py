"""empty_stream.lua alone: everything in the stream goes, and the groups that consumers are in stay."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, KEYS, Group


def test_a_missing_stream_is_not_created(group: Group) -> None:
    group.client.delete(KEYS.stream)
    assert group.empty_stream() == 0
    assert group.keys == set()


def test_a_stream_whose_groups_have_no_consumers_goes(group: Group) -> None:
    group.add(3)
    assert group.empty_stream() == 1
    assert group.keys == set()


def test_a_group_that_a_consumer_is_in_stays_with_nothing_to_read(group: Group) -> None:
    group.deliver_to("official", 2)
    group.add(2)
    assert group.empty_stream() == 1
    assert (group.stream, group.holds) == ([], {})
    assert group.exists
    assert group.read("official", 10) == []


def test_entries_added_later_are_read(group: Group) -> None:
    group.deliver_to("official", 2)
    group.empty_stream()
    added = group.add(3)
    assert group.read("official", 10) == added


def test_groups_without_consumers_go(group: Group) -> None:
    group.deliver_to("official")
    group.client.xgroup_create(KEYS.stream, "empty", "0")
    group.empty_stream()
    assert [each["name"] for each in group.client.xinfo_groups(KEYS.stream)] == [GROUP.encode()]


def test_ids_go_on_where_they_were(group: Group) -> None:
    """The ack of a job that still runs must not remove a new one."""
    group.deliver_to("official")
    group.client.xadd(KEYS.stream, {"d": "x"}, f"{group.now_ms + 60_000}-7")
    last = group.client.xinfo_stream(KEYS.stream)["last-generated-id"]
    group.empty_stream()
    (added,) = group.add(1)
    assert added.decode() == last.decode().replace("-7", "-8")


def test_a_stream_whose_ids_are_used_up_begins_again(group: Group) -> None:
    group.deliver_to("official")
    group.client.xadd(KEYS.stream, {"d": "last"}, f"{2**64 - 1}-{2**64 - 1}")
    group.empty_stream()
    assert group.read("official", 10) == []
    assert len(group.add(1)) == 1


def test_a_key_of_another_type_goes(group: Group) -> None:
    group.client.delete(KEYS.stream)
    group.client.set(KEYS.stream, "a string")
    assert group.empty_stream() == 1
    assert group.keys == set()


def test_a_second_sending_changes_nothing(group: Group) -> None:
    group.deliver_to("official", 2)
    assert [group.empty_stream() for _ in range(3)] == [1, 1, 1]
    assert (group.exists, group.stream, group.consumers) == (True, [], {"official"})


@pytest.mark.parametrize("count", (1000, 1001))
def test_a_group_with_the_names_of_many_consumers_stays_without_the_names(group: Group, count: int) -> None:
    """Official consumers leave theirs behind: 100,000 of them would hold the server for 200 ms."""
    names = {f"consumer {number}" for number in range(count)}
    with group.client.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.xgroup_createconsumer(KEYS.stream, GROUP, name)
        pipeline.execute()
    assert group.empty_stream() == 1
    assert group.exists
    assert group.consumers == (names if count == 1000 else set())


def test_a_full_server_is_emptied(group: Group) -> None:
    group.deliver_to("official", 3)
    with group.full_memory():
        assert group.empty_stream() == 1
    assert (group.stream, group.holds, group.consumers) == ([], {}, {"official"})


def test_a_user_without_group_commands_removes_no_entry(group: Group) -> None:
    entry_ids = group.deliver_to("official", 2)
    for rule in ("-xgroup", "-xsetid"):
        refused = pytest.raises(redis.ResponseError, match=r"NOPERM|permission|can.t run|ACL")
        with group.as_user("allkeys", "+@all", rule) as narrow, refused:
            narrow.empty_stream()
        assert (group.stream, set(group.holds)) == (entry_ids, set(entry_ids))
