"""claim_name.lua alone: of the workers that start under one name, one has it."""

from __future__ import annotations

import pytest
import redis

from pychasqui._core.limits import MAX_WORKER_LEASE_MS
from tests.scripts.group import GROUP, HOUR_MS, KEYS, LEASE_MS, Group

CLAIM = KEYS.name_claim(GROUP, "a")
MINE = (0, 0)


def test_a_free_name_is_claimed(group: Group) -> None:
    assert group.claim_name("a", "first") == MINE
    assert group.client.get(CLAIM) == b"first"
    assert 0 < group.client.pttl(CLAIM) <= MAX_WORKER_LEASE_MS


def test_a_claim_without_a_lease_keeps_others_out_for_as_long_as_one(group: Group) -> None:
    group.claim_name("a", "first")
    group.client.pexpire(CLAIM, MAX_WORKER_LEASE_MS - LEASE_MS)
    assert group.claim_name("a", "second") == MINE
    assert group.claim_name("a", "first").left_ms > 0


def test_a_claim_that_is_sent_again_holds(group: Group) -> None:
    assert [group.claim_name("a", "first") for _ in range(2)] == [MINE, MINE]


def test_a_second_worker_that_starts_is_kept_out(group: Group) -> None:
    group.claim_name("a", "first")
    lease, left_ms = group.claim_name("a", "second")
    assert lease == 0
    assert 0 < left_ms <= LEASE_MS
    assert group.client.get(CLAIM) == b"first"


def test_other_names_are_free(group: Group) -> None:
    group.claim_name("a", "first")
    group.renew_worker_lease("b")
    assert group.claim_name("c", "second") == MINE


def test_a_worker_that_lives_keeps_others_out(group: Group) -> None:
    group.renew_worker_lease("a")
    lease, left_ms = group.claim_name("a", "second")
    assert lease == group.lease("a")
    assert 0 < left_ms <= LEASE_MS
    assert group.client.get(CLAIM) is None


def test_a_worker_confirms_its_claim_once_it_has_a_lease(group: Group) -> None:
    group.claim_name("a", "first")
    group.renew_worker_lease("a")
    assert [group.claim_name("a", "first", confirms=True) for _ in range(2)] == [MINE, MINE]


def test_a_worker_whose_claim_has_passed_to_another_is_kept_out(group: Group) -> None:
    """Also if the other has stopped meanwhile: only one of them confirms."""
    group.claim_name("a", "first")
    group.client.pexpire(CLAIM, 60_000)  # long ago
    assert group.claim_name("a", "second") == MINE
    group.client.pexpire(CLAIM, 60_000)
    group.renew_worker_lease("a")
    assert group.claim_name("a", "first", confirms=True).left_ms > 0
    group.end_lease("a")
    assert group.claim_name("a", "first", confirms=True).left_ms > 0
    assert group.claim_name("a", "second", confirms=True) == MINE


def test_a_slow_worker_without_a_rival_confirms_its_claim(group: Group) -> None:
    group.claim_name("a", "first")
    group.client.delete(CLAIM)
    group.renew_worker_lease("a")
    assert group.claim_name("a", "first", confirms=True) == MINE


@pytest.mark.parametrize("ends_ms", (0, 1))
def test_the_name_of_a_worker_that_has_left_or_died_is_free(group: Group, ends_ms: int) -> None:
    group.client.zadd(KEYS.workers, {"a": ends_ms})
    assert group.claim_name("a", "second") == MINE
    assert group.lease("a") == ends_ms


def test_a_claim_without_an_end_or_with_a_far_one_is_nobodys(group: Group) -> None:
    group.client.set(CLAIM, "foreign")
    assert group.claim_name("a", "first") == MINE
    group.client.set(CLAIM, "foreign", px=MAX_WORKER_LEASE_MS + HOUR_MS)
    assert group.claim_name("a", "first") == MINE


def test_a_claim_of_another_type_is_replaced(group: Group) -> None:
    group.client.rpush(CLAIM, "a list")
    assert group.claim_name("a", "first") == MINE
    assert group.client.get(CLAIM) == b"first"


def test_a_far_lease_leaves_a_bounded_time(group: Group) -> None:
    group.client.zadd(KEYS.workers, {"a": float("inf")})
    assert group.claim_name("a", "first") == (2**53, MAX_WORKER_LEASE_MS)


def test_a_worker_starts_without_memory(group: Group) -> None:
    with group.full_memory():
        assert group.claim_name("a", "first") == MINE


def test_a_list_of_workers_of_another_type_is_an_error(group: Group) -> None:
    group.client.set(KEYS.workers, "a string")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.claim_name("a", "first")
    assert group.client.get(CLAIM) is None
