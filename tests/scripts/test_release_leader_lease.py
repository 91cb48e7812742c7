"""release_leader_lease.lua alone: a process releases its own lease and no other."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import KEYS, Group


def test_the_holder_lets_go(group: Group) -> None:
    group.promote("a")
    assert group.release_leader_lease("a") == 1
    assert KEYS.promoter_lease not in group.keys


def test_the_lease_of_another_process_stays(group: Group) -> None:
    group.promote("a", lease_ms=5000)
    assert group.release_leader_lease("b") == 0
    assert group.client.get(KEYS.promoter_lease) == b"a"
    assert 0 < group.client.pttl(KEYS.promoter_lease) <= 5000


def test_a_free_lease_stays_free(group: Group) -> None:
    assert group.release_leader_lease("a") == 0
    assert KEYS.promoter_lease not in group.keys


def test_the_same_call_again_does_not_reach_the_next_holder(group: Group) -> None:
    group.promote("a")
    assert group.release_leader_lease("a") == 1
    group.promote("b")
    assert group.release_leader_lease("a") == 0
    assert group.client.get(KEYS.promoter_lease) == b"b"


def test_names_are_compared_to_the_last_byte(group: Group) -> None:
    group.promote("ab")
    assert [group.release_leader_lease(name) for name in ("a", "abc", "AB", "")] == [0, 0, 0, 0]
    assert group.release_leader_lease("ab") == 1


def test_a_key_of_another_type_is_an_error_and_stays(group: Group) -> None:
    group.client.rpush(KEYS.promoter_lease, "a")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.release_leader_lease("a")
    assert KEYS.promoter_lease in group.keys
