"""hold_lease.lua alone: a supervisor renews the lease of a worker that lives and does not renew it itself."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import GROUP, HOUR_MS, KEPT_MS, KEYS, LEASE_MS, REPORTS, Group, Hold
from tests.support.server import RedisServer

PAGE = 500


def set_lease(group: Group, left_ms: int) -> int:
    lease = group.now_ms + left_ms
    group.client.zadd(KEYS.workers, {"a": lease})
    return lease


class TestLease:
    def test_a_lease_that_is_about_to_end_is_renewed(self, group: Group) -> None:
        set_lease(group, LEASE_MS // 4)
        before = group.now_ms
        assert group.hold_lease("a") == b""
        assert before + LEASE_MS <= (group.lease("a") or 0) <= group.now_ms + LEASE_MS

    def test_a_lease_that_has_ended_is_renewed(self, group: Group) -> None:
        set_lease(group, -HOUR_MS)
        assert group.hold_lease("a") == b""
        assert (group.lease("a") or 0) > group.now_ms

    def test_a_lease_that_the_worker_renews_itself_is_left_alone(self, group: Group) -> None:
        lease = set_lease(group, LEASE_MS)
        assert group.hold_lease("a") is None
        assert group.lease("a") == lease

    def test_a_worker_that_has_left_stays_away(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"a": 0})
        (entry_id,) = group.deliver_to("a")
        group.make_idle(HOUR_MS, entry_id)
        assert group.hold_lease("a") is None
        assert group.lease("a") == 0
        assert group.idle_ms(entry_id) >= HOUR_MS

    def test_a_worker_without_a_lease_gets_none(self, group: Group) -> None:
        group.deliver_to("a")
        assert group.hold_lease("a") is None
        assert group.lease("a") is None

    def test_the_list_of_workers_ends_by_itself(self, group: Group) -> None:
        set_lease(group, 1)
        group.hold_lease("a")
        assert LEASE_MS < group.client.pttl(KEYS.workers) <= KEPT_MS


class TestHoldOnEntries:
    def test_its_entries_look_fresh_and_no_delivery_is_counted(self, group: Group) -> None:
        set_lease(group, 1)
        entries = group.deliver_to("a", 3)
        group.make_idle(HOUR_MS, *entries)
        assert group.hold_lease("a") == b""
        assert max(group.idle_ms(entry_id) for entry_id in entries) < 10_000
        assert group.holds == dict.fromkeys(entries, Hold("a", 1))

    def test_its_only_entry_looks_fresh(self, group: Group) -> None:
        set_lease(group, 1)
        (entry_id,) = group.deliver_to("a")
        group.make_idle(HOUR_MS, entry_id)
        assert group.hold_lease("a") == b""
        assert group.idle_ms(entry_id) < 10_000

    def test_an_entry_of_another_worker_grows_older(self, group: Group) -> None:
        set_lease(group, 1)
        mine, theirs = group.deliver_to("a", 2)
        group.steal(theirs, "b")
        group.make_idle(HOUR_MS, mine, theirs)
        group.hold_lease("a")
        assert group.idle_ms(theirs) >= HOUR_MS
        assert group.holds == {mine: Hold("a", 1), theirs: Hold("b", 2)}

    def test_a_full_page_is_followed_by_the_next(self, group: Group) -> None:
        set_lease(group, 1)
        entries = group.deliver_to("a", PAGE + 3)
        group.make_idle(HOUR_MS, *entries)
        last = group.hold_lease("a")
        assert last == entries[PAGE - 1]
        assert max(group.idle_ms(entry_id) for entry_id in entries[:PAGE]) < 10_000
        assert group.idle_ms(entries[-1]) >= HOUR_MS
        group.make_idle(HOUR_MS, last)
        assert group.hold_lease("a", last) == b""
        assert max(group.idle_ms(entry_id) for entry_id in entries[PAGE:]) < 10_000
        assert group.idle_ms(last) >= HOUR_MS

    def test_a_page_that_ends_with_the_last_entry_is_followed_by_an_empty_one(self, group: Group) -> None:
        set_lease(group, 1)
        entries = group.deliver_to("a", PAGE)
        assert group.hold_lease("a") == entries[-1]
        assert group.hold_lease("a", entries[-1]) == b""

    def test_a_worker_that_leaves_between_two_pages_stays_away(self, group: Group) -> None:
        set_lease(group, 1)
        entries = group.deliver_to("a", PAGE + 1)
        group.make_idle(HOUR_MS, *entries)
        last = group.hold_lease("a")
        group.client.zadd(KEYS.workers, {"a": 0})
        assert group.hold_lease("a", last or b"") is None
        assert group.lease("a") == 0
        assert group.idle_ms(entries[-1]) >= HOUR_MS


class TestTrouble:
    def test_no_lease_is_renewed_without_a_group(self, group: Group) -> None:
        lease = set_lease(group, 1)
        group.destroy()
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.hold_lease("a")
        assert group.lease("a") == lease

    def test_no_lease_is_renewed_while_a_group_is_not_complete(self, group: Group) -> None:
        lease = set_lease(group, 1)
        group.client.hset(REPORTS, "start", "0-0")
        with pytest.raises(redis.ResponseError, match=f"NOGROUP.*{GROUP}"):
            group.hold_lease("a")
        assert group.lease("a") == lease

    def test_no_lease_is_renewed_in_a_list_whose_end_cannot_be_moved(self, group: Group) -> None:
        lease = set_lease(group, 1)
        with (
            group.as_user("+@all", "-pexpire", "~*", "&*") as confined,
            pytest.raises(redis.ResponseError, match=r"permissions|can't run this command"),
        ):
            confined.hold_lease("a")
        assert group.lease("a") == lease

    def test_a_full_memory_ends_no_lease(self, group: Group, server: RedisServer) -> None:
        set_lease(group, 1)
        (entry_id,) = group.deliver_to("a")
        group.make_idle(HOUR_MS, entry_id)
        with group.full_memory():
            assert group.hold_lease("a") == b""
        assert (group.lease("a") or 0) > group.now_ms
        assert group.idle_ms(entry_id) < 10_000
