"""renew_worker_lease.lua alone: a worker renews its lease and its entries, and claims no lost entry back."""

from __future__ import annotations

import pytest
import redis

from pychasqui._worker.lease_renewal import IDS_A_CALL
from tests.scripts.group import GROUP, HEIR, HOUR_MS, KEPT_MS, KEYS, LEASE_MS, RECORD_KEPT_MS, REPORTS, Group, Hold
from tests.support.server import RedisServer


class TestLease:
    def test_the_lease_ends_by_the_servers_clock(self, group: Group) -> None:
        before = group.now_ms
        assert group.renew_worker_lease("a") == []
        lease = group.lease("a")
        assert lease is not None
        assert before + LEASE_MS <= lease <= group.now_ms + LEASE_MS

    def test_each_renewal_extends_the_lease(self, group: Group) -> None:
        group.end_lease("a")
        ended = group.lease("a")
        group.renew_worker_lease("a")
        lease = group.lease("a")
        assert lease is not None
        assert ended is not None
        assert lease > ended + LEASE_MS

    def test_a_worker_that_had_left_is_back(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"a": 0})
        group.renew_worker_lease("a")
        assert (group.lease("a") or 0) >= group.now_ms

    def test_the_others_keep_theirs(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"b": 12345, "c": 0})
        group.renew_worker_lease("a")
        assert (group.lease("b"), group.lease("c")) == (12345, 0)

    def test_the_list_of_workers_ends_by_itself(self, group: Group) -> None:
        group.renew_worker_lease("a")
        assert 0 < group.client.pttl(KEYS.workers) <= KEPT_MS
        group.client.pexpire(KEYS.workers, 1000)
        group.renew_worker_lease("a")
        assert group.client.pttl(KEYS.workers) > 1000

    def test_the_lease_is_renewed_also_while_every_entry_is_lost(self, group: Group) -> None:
        assert group.renew_worker_lease("a", b"1-1") == [b"1-1"]
        assert group.lease("a") is not None


class TestHold:
    def test_an_entry_that_lay_idle_looks_fresh(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.make_idle(HOUR_MS, entry_id)
        assert group.renew_worker_lease("a", entry_id) == []
        assert group.idle_ms(entry_id) < 10_000

    def test_no_delivery_is_counted(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        for _ in range(5):
            group.renew_worker_lease("a", entry_id)
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_an_entry_that_is_not_named_grows_older(self, group: Group) -> None:
        named, unnamed = group.deliver_to("a", 2)
        group.make_idle(HOUR_MS, named, unnamed)
        group.renew_worker_lease("a", named)
        assert group.idle_ms(unnamed) >= HOUR_MS

    def test_an_entry_that_was_taken_over_is_not_stolen_back(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.steal(entry_id, "b")
        group.make_idle(HOUR_MS, entry_id)
        assert group.renew_worker_lease("a", entry_id) == [entry_id]
        assert group.holds == {entry_id: Hold("b", 2)}
        assert group.idle_ms(entry_id) >= HOUR_MS

    def test_an_entry_that_came_back_is_lost_by_its_earlier_delivery(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.lose_and_get_back("a", entry_id)
        group.make_idle(HOUR_MS, entry_id)
        assert [group.renew_worker_lease("a", entry_id, delivery=delivery) for delivery in (1, 2)] == [[entry_id]] * 2
        assert group.idle_ms(entry_id) >= HOUR_MS
        assert group.renew_worker_lease("a", entry_id, delivery=3) == []
        assert group.idle_ms(entry_id) < 10_000
        assert group.holds == {entry_id: Hold("a", 3)}

    def test_an_entry_that_a_rebuilt_group_delivers_to_the_same_worker_is_still_its_own(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("dead")
        group.steal(entry_id, "a")
        group.recreate()
        group.read("a", 1)
        assert group.renew_worker_lease("a", entry_id, delivery=2) == []
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_each_entry_is_judged_by_its_own_delivery(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        group.lose_and_get_back("a", second)
        assert group.renew_lease_of("a", {first: 1, second: 1}) == [second]
        assert group.renew_lease_of("a", {first: 1, second: 3}) == []
        assert group.renew_lease_of("a", {second: 3, first: 0}) == [first]

    def test_an_unread_entry_is_not_claimed(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        assert group.renew_worker_lease("a", entry_id) == [entry_id]
        assert group.holds == {}
        assert group.read("b", 1) == [entry_id]

    def test_an_entry_that_is_finished_is_not_brought_back(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.xack(KEYS.stream, GROUP, entry_id)
        assert group.renew_worker_lease("a", entry_id) == [entry_id]
        assert group.holds == {}

    def test_the_lost_entries_are_named_and_the_others_are_kept(self, group: Group) -> None:
        first, second, third, fourth = group.deliver_to("a", 4)
        group.steal(second, "b")
        group.client.xack(KEYS.stream, GROUP, fourth)
        group.make_idle(HOUR_MS, first, second, third)
        assert group.renew_worker_lease("a", first, second, third, fourth, b"1-1") == [second, fourth, b"1-1"]
        assert group.idle_ms(first) < 10_000
        assert group.idle_ms(third) < 10_000
        assert group.idle_ms(second) >= HOUR_MS

    def test_the_same_call_again_answers_the_same(self, group: Group) -> None:
        mine, theirs = group.deliver_to("a", 2)
        group.steal(theirs, "b")
        assert [group.renew_worker_lease("a", mine, theirs) for _ in range(3)] == [[theirs]] * 3
        assert group.holds == {mine: Hold("a", 1), theirs: Hold("b", 2)}

    def test_a_released_entry_that_is_kept_by_mistake_stays_released(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.release_entries("a", (entry_id, 0))
        assert group.renew_worker_lease("a", entry_id) == [entry_id]
        assert group.holds == {entry_id: Hold(HEIR, 0)}
        assert group.idle_ms(entry_id) >= HOUR_MS

    def test_an_entry_deleted_by_others_does_no_harm_to_the_rest(self, group: Group) -> None:
        deleted, mine = group.deliver_to("a", 2)
        group.make_idle(HOUR_MS, deleted, mine)
        group.client.xdel(KEYS.stream, deleted)
        assert group.renew_worker_lease("a", deleted, mine) in ([], [deleted])
        assert group.idle_ms(mine) < 10_000

    def test_an_invalid_entry_id_is_lost(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        assert group.renew_worker_lease("a", b"not an id", entry_id) == [b"not an id"]


class TestTrouble:
    def test_no_lease_is_renewed_without_the_group(self, group: Group) -> None:
        """A live worker reports what it holds instead: rebuild_group.lua renews its lease."""
        (entry_id,) = group.deliver_to("a")
        group.client.zadd(KEYS.workers, {"a": 12345})
        group.destroy()
        for held in ([], [entry_id]):
            with pytest.raises(redis.ResponseError, match="NOGROUP"):
                group.renew_worker_lease("a", *held)
        assert group.workers == {b"a": 12345}

    def test_no_stream_is_created(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.renew_worker_lease("a", b"1-1")
        assert group.keys == set()

    def test_the_largest_batch_that_is_ever_sent(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", IDS_A_CALL)
        group.make_idle(HOUR_MS, *entry_ids)
        assert group.renew_worker_lease("a", *entry_ids) == []
        assert max(group.idle_ms(entry_id) for entry_id in entry_ids) < 10_000

    def test_10_000_entries_are_renewed_in_batches(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 10_000)
        group.steal_all(entry_ids[::2], "b")
        lost = []
        for start in range(0, 10_000, IDS_A_CALL):
            lost += group.renew_worker_lease("a", *entry_ids[start : start + IDS_A_CALL])
        assert lost == entry_ids[::2]

    def test_a_batch_larger_than_lua_can_unpack_is_an_error_and_costs_no_lease(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 10_000)
        with pytest.raises(redis.ResponseError, match="too many results to unpack"):
            group.renew_worker_lease("a", *entry_ids)
        assert group.lease("a") is not None
        assert len(group.holds) == 10_000

    def test_lease_and_entries_are_renewed_without_memory_too(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            group.create()
            (entry_id,) = group.deliver_to("a")
            group.make_idle(HOUR_MS, entry_id)
            client.config_set("maxmemory", 1)
            assert group.renew_worker_lease("a", entry_id) == []
            assert group.renew_worker_lease("b") == []
            assert set(group.workers) == {b"a", b"b"}
            assert group.idle_ms(entry_id) < 10_000


class TestUnfinishedGroup:
    """rebuild_group stores where it goes on; until it has ended no worker renews."""

    def test_no_lease_is_renewed_while_a_start_is_stored(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.hset(REPORTS, "start", "-")
        with pytest.raises(redis.ResponseError, match=f"NOGROUP rebuild_group has not completed {GROUP}"):
            group.renew_worker_lease("a", entry_id)
        assert group.workers == {}

    def test_reports_without_a_start_hold_no_worker_up(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        for fields in ({"start": ""}, {"until": "5"}):
            group.client.delete(REPORTS)
            group.client.hset(REPORTS, mapping=fields)
            assert group.renew_worker_lease("a", entry_id) == []
        assert group.lease("a") is not None

    def test_reports_of_another_type_hold_no_worker_up(self, group: Group) -> None:
        group.client.set(REPORTS, "a string")
        assert group.renew_worker_lease("a") == []
        assert group.lease("a") is not None


class TestWhatElseItFinds:
    def test_a_renewal_says_whether_the_queue_is_paused_and_whether_jobs_are_cancelled(self, group: Group) -> None:
        assert group.renew_with_record("a", b"").flags == (False, False)
        group.client.set(KEYS.paused, "1")
        assert group.renew_with_record("a", b"").flags == (True, False)
        group.client.hset(KEYS.cancelled, "1-1", "")
        assert group.renew_with_record("a", b"").flags == (True, True)

    def test_a_renewal_counts_the_leases_that_go_on_and_those_that_are_over(self, group: Group) -> None:
        group.client.zadd(KEYS.workers, {"b": group.now_ms + 60_000, "dead": group.now_ms - 1, "left": 0, HEIR: 0})
        renewed = group.renew_with_record("a", b"")
        assert (renewed.living_count, renewed.ended_count) == (2, 3)

    def test_a_renewal_writes_the_record_which_ends_by_itself(self, group: Group) -> None:
        group.renew_with_record("a", b"about a")
        assert group.client.get(KEYS.worker("a")) == b"about a"
        assert 0 < group.client.pttl(KEYS.worker("a")) <= RECORD_KEPT_MS
        group.renew_with_record("a", b"")
        assert group.client.get(KEYS.worker("a")) == b"about a"

    def test_a_user_who_may_not_do_that_has_a_lease_all_the_same(self, group: Group) -> None:
        with group.as_user("~*", "+@all", "-set", "-exists", "-zcount") as narrow:
            renewed = narrow.renew_with_record("a", b"about a")
        assert renewed == (None, 1, 0, [])
        assert group.lease("a") is not None
