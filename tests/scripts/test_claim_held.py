"""claim_held.lua alone: in a recreated group, each worker that reported makes what it holds its own again."""

from __future__ import annotations

import pytest
import redis

from pychasqui._redis.leases import MUST_CLAIM
from tests.scripts.group import GROUP, HEIR, KEPT_MS, KEYS, LEASE_MS, REPORTS, Group, Hold


def recreate(group: Group, *reporting: str) -> None:
    """A lost group that exists again, since all of these have reported that they hold all there is."""
    last = group.stream[-1]
    group.destroy()
    for consumer in reporting:
        group.client.zadd(KEYS.workers, {consumer: group.now_ms + LEASE_MS})
    assert [group.report(consumer, last) for consumer in reporting][-1] == MUST_CLAIM


class TestClaiming:
    def test_a_held_entry_is_pending_for_its_worker_by_its_delivery_and_fresh(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a")
        assert group.claim_held("a", {first: 1, second: 3}) == 1
        assert group.holds == {first: Hold("a", 1), second: Hold("a", 3)}
        assert group.idle_ms(first) < 10_000

    def test_an_entry_that_is_gone_is_not_brought_back(self, group: Group) -> None:
        first, done = group.deliver_to("a", 2)
        recreate(group, "a")
        group.client.xdel(KEYS.stream, done)
        group.claim_held("a", {first: 1, done: 1})
        assert set(group.holds) == {first}

    def test_the_later_delivery_keeps_an_entry_whichever_claims_first(self, group: Group) -> None:
        first, second, third = group.deliver_to("a", 3)
        recreate(group, "a", "b")
        group.claim_held("a", {first: 1, second: 2, third: 2})
        group.claim_held("b", {first: 2, second: 1, third: 2})
        assert group.holds == {first: Hold("b", 2), second: Hold("a", 2), third: Hold("a", 2)}

    def test_an_entry_that_was_read_from_the_new_group_keeps_its_owner(self, group: Group) -> None:
        (held,) = group.deliver_to("a")
        recreate(group, "a")
        (fresh,) = group.deliver_to("b")
        group.claim_held("a", {held: 1, fresh: 5})
        assert group.holds == {held: Hold("a", 1), fresh: Hold("b", 1)}

    def test_an_unread_entry_of_the_new_group_stays_unread(self, group: Group) -> None:
        (held,) = group.deliver_to("a")
        recreate(group, "a")
        (added,) = group.add(1)
        group.claim_held("a", {held: 1, added: 1})
        assert group.holds == {held: Hold("a", 1)}
        assert group.read("b", 9) == [added]

    def test_an_entry_that_was_handed_over_is_claimed_back_unless_it_was_taken(self, group: Group) -> None:
        back, taken = group.deliver_to("a", 2)
        recreate(group, "a")
        for entry_id in (back, taken):
            group.client.xclaim(KEYS.stream, GROUP, HEIR, 0, [entry_id], retrycount=0, force=True, justid=True)
        group.steal(taken, "b")
        group.claim_held("a", {back: 1, taken: 1})
        assert group.holds == {back: Hold("a", 1), taken: Hold("b", 1)}

    def test_a_huge_delivery_is_cut(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        group.claim_held("a", {entry_id: 2**63})
        assert group.holds == {entry_id: Hold("a", 1_000_000_000)}


class TestPieces:
    def test_the_report_goes_with_the_last_piece(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a", "b")
        assert group.claim_held("a", {first: 1}, is_last=0) == 1
        assert group.report("a") == MUST_CLAIM
        assert group.claim_held("a", {second: 1}) == 1
        assert group.report("a") == 0  # the other worker has not claimed
        assert group.claim_held("b", {}) == 1
        assert group.report("b") == 1
        assert group.holds == dict.fromkeys((first, second), Hold("a", 1))

    def test_no_entry_is_handed_over_before_the_last_piece_of_every_living_worker(self, group: Group) -> None:
        unheld, first, second = group.deliver_to("a", 3)
        recreate(group, "a", "b")
        group.claim_held("a", {first: 1}, is_last=0)
        group.claim_held("b", {})
        assert group.report("b") == 0
        assert HEIR not in {hold.owner for hold in group.holds.values()}
        group.claim_held("a", {second: 1})
        assert group.report("b") == 1
        assert group.holds == {unheld: Hold(HEIR, 0), first: Hold("a", 1), second: Hold("a", 1)}

    def test_a_worker_that_dies_before_its_last_piece_is_not_waited_for(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a", "b")
        group.claim_held("a", {first: 1}, is_last=0)
        group.claim_held("b", {})
        group.end_lease("a")
        assert group.report("b") == 1
        assert group.holds == {first: Hold("a", 1), second: Hold(HEIR, 0)}

    def test_each_piece_renews_the_lease(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        group.client.delete(KEYS.workers)
        group.claim_held("a", {entry_id: 1}, is_last=0)
        assert group.now_ms < (group.lease("a") or 0) <= group.now_ms + LEASE_MS
        assert 0 < group.client.pttl(KEYS.workers) <= KEPT_MS

    def test_the_same_piece_again_changes_nothing(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a")
        assert [group.claim_held("a", {first: 1}, is_last=0) for _ in range(2)] == [1, 1]
        assert [group.claim_held("a", {second: 1}) for _ in range(2)] == [1, 0]
        assert group.holds == dict.fromkeys((first, second), Hold("a", 1))


class TestMeanwhile:
    """While claims are missing, no script takes an entry for lost."""

    def test_a_failed_job_waits_for_the_claim(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a")
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.reschedule("a", (first, 10, b"member"))
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.bury("a", (second, [b"d", b"x"]))
        group.rebuild_group("a", {first: 1, second: 1})
        assert group.reschedule("a", (first, 10, b"member")) == 1
        assert group.bury("a", (second, [b"d", b"x"])) == 1

    def test_a_failed_job_that_is_claimed_does_not_wait(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        recreate(group, "a", "b")
        group.claim_held("a", {first: 1, second: 1})
        assert group.reschedule("a", (first, 10, b"member")) == 1
        assert group.bury("a", (second, [b"d", b"x"])) == 1

    def test_no_worker_renews(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.renew_worker_lease("a", entry_id)


class TestNoReport:
    def test_no_entry_is_claimed_without_a_report_of_this_group(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        for missing in ("last", "of a"):
            recreate(group, "a")
            group.client.hdel(REPORTS, missing)
            assert group.claim_held("a", {entry_id: 1}) == 0
            assert group.holds == {}

    def test_no_entry_is_claimed_while_reports_come_in(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        group.client.zadd(KEYS.workers, {"b": group.now_ms + LEASE_MS})
        assert group.report("a", entry_id) == 0
        assert group.claim_held("a", {entry_id: 1}) == 0

    def test_a_malformed_end_is_none(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        group.client.hset(REPORTS, "last", "junk")
        assert group.claim_held("a", {entry_id: 1}) == 0

    def test_a_group_that_is_lost_again_is_an_error_and_the_report_stays(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        group.destroy()
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.claim_held("a", {entry_id: 1})
        assert group.client.hexists(REPORTS, "of a")

    def test_the_lease_is_not_renewed_for_a_user_without_all_commands(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        recreate(group, "a")
        group.client.delete(KEYS.workers)
        for command in ("xclaim", "hdel", "xpending", "pexpire", "zadd"):
            refused = pytest.raises(redis.ResponseError, match=r"NOPERM|permission|can.t run|ACL")
            with group.as_user("allkeys", "+@all", f"-{command}") as narrow, refused:
                narrow.claim_held("a", {entry_id: 1})
            assert group.workers == {}
