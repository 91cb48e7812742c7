"""rebuild_group.lua alone: a lost group is rebuilt with the entries of the live workers, once all have reported."""

from __future__ import annotations

import pytest
import redis

from pychasqui._redis.leases import MUST_CLAIM
from tests.scripts.group import GROUP, HEIR, KEPT_MS, KEYS, LEASE_MS, RELEASED_IDLE_MS, REPORTS, Group, Hold
from tests.support.server import RedisServer


def lose_group(group: Group, *living: str) -> None:
    """Destroys the group, with these workers alive."""
    group.destroy()
    for consumer in living:
        group.client.zadd(KEYS.workers, {consumer: group.now_ms + LEASE_MS})


def rebuild_with(group: Group, held: dict[str, dict[bytes, int]]) -> None:
    """All of them report until the group is complete."""
    for _ in range(100):
        if 1 in [group.rebuild_group(name, entries) for name, entries in held.items()]:
            return
    pytest.fail("the group does not become complete")


class TestExistingGroup:
    def test_an_existing_group_is_left_as_it_is(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.add(1)
        assert group.rebuild_group("b", {entry_id: 5}) == 1
        assert group.holds == {entry_id: Hold("a", 1)}
        assert len(group.read("b", 9)) == 1
        assert group.workers == {}

    def test_reports_from_before_the_group_existed_are_forgotten(self, group: Group) -> None:
        """As when an official process has created the group: in a later round the reports would be out of date."""
        group.add(1)
        lose_group(group, "a", "b")
        assert group.rebuild_group("a") == 0
        group.create()
        assert group.rebuild_group("a") == 1
        assert REPORTS not in group.keys


class TestNoLiveWorker:
    def test_the_group_of_a_fresh_queue_is_created_at_once(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        assert group.rebuild_group("a") == 1
        assert group.exists
        assert group.keys == {KEYS.stream}

    def test_jobs_that_came_before_the_first_worker_are_read(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        added = group.add(3)
        assert group.rebuild_group("a") == 1
        assert group.read("a", 9) == added
        assert REPORTS not in group.keys

    def test_an_empty_stream_needs_no_reports(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("b")
        group.client.xdel(KEYS.stream, entry_id)
        lose_group(group, "b")
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        added = group.add(1)
        assert group.read("a", 9) == added

    def test_the_list_of_workers_still_expires(self, group: Group) -> None:
        group.renew_worker_lease("b")
        group.destroy()
        assert group.rebuild_group("a") == 1
        assert group.client.pttl(KEYS.workers) > 0

    def test_a_list_of_workers_that_begins_with_a_report_ends_by_itself(self, group: Group) -> None:
        group.deliver_to("b")
        group.destroy()
        group.client.delete(KEYS.workers)
        assert group.report("a") == MUST_CLAIM
        assert LEASE_MS < group.client.pttl(KEYS.workers) <= KEPT_MS

    def test_reports_outlive_a_lease_from_the_moment_that_the_group_exists(self, group: Group) -> None:
        group.deliver_to("b")
        group.destroy()
        assert group.report("a") == MUST_CLAIM
        assert group.client.pttl(REPORTS) > 10 * LEASE_MS

    def test_reports_of_another_type_are_removed_where_a_group_exists(self, group: Group) -> None:
        group.client.set(REPORTS, "text")
        assert group.report("a") == 1
        assert REPORTS not in group.keys

    def test_a_user_that_cannot_store_how_far_it_is_hands_nothing_over(self, group: Group) -> None:
        *others, last = group.deliver_to("b", 600)
        group.destroy()
        assert group.report("a", last) == MUST_CLAIM
        group.claim_held("a", {last: 1})
        with (
            group.as_user("+@all", "-hset", "~*", "&*") as confined,
            pytest.raises(redis.ResponseError, match=r"permissions|can't run this command"),
        ):
            confined.report("a", last)
        assert group.holds.keys() == {last}
        assert group.report("a", last) == 0
        assert len(group.holds) > len(others) / 2

    def test_no_report_is_left_when_the_stream_is_empty(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        lose_group(group, "b")
        assert group.rebuild_group("a") == 0
        group.client.xdel(KEYS.stream, entry_id)
        assert group.rebuild_group("a") == 1
        assert REPORTS not in group.keys

    def test_no_worker_is_waited_for_after_a_flush(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.renew_worker_lease("a", entry_id)
        group.client.flushall()
        group.wait_ms(2)  # else the new ids begin where the old ones did
        added = group.add(2)
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.read("b", 9) == added

    def test_the_list_of_workers_ends_by_itself_also_if_it_begins_here(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.client.pttl(KEYS.workers) > 0

    def test_workers_that_are_dead_or_have_left_are_not_waited_for(self, group: Group) -> None:
        group.add(1)
        lose_group(group)
        group.client.zadd(KEYS.workers, {"dead": group.now_ms - 1, HEIR: 0})
        assert group.rebuild_group("a") == 1

    def test_a_single_live_worker_rebuilds_the_group_at_once(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        lose_group(group, "a")
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.holds == {entry_id: Hold("a", 1)}


class TestWaiting:
    def test_the_group_is_rebuilt_when_the_last_live_worker_has_reported(self, group: Group) -> None:
        first, second = group.deliver_to("a")[0], group.deliver_to("b")[0]
        lose_group(group, "a", "b", "c")
        assert group.rebuild_group("a", {first: 1}) == 0
        assert group.rebuild_group("b", {second: 1}) == 0
        assert not group.exists
        assert group.rebuild_group("c") == 0
        assert group.exists
        assert group.rebuild_group("a", {first: 1}) == 0
        assert group.rebuild_group("b", {second: 1}) == 1
        assert group.holds == {first: Hold("a", 1), second: Hold("b", 1)}
        assert REPORTS not in group.keys

    def test_the_same_report_again_changes_nothing(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        lose_group(group, "a", "b")
        assert [group.rebuild_group("a", {entry_id: 1}) for _ in range(3)] == [0, 0, 0]
        assert [group.rebuild_group("b") for _ in range(3)] == [0, 0, 0]
        assert [group.rebuild_group("a", {entry_id: 1}) for _ in range(3)] == [1, 1, 1]
        assert [group.rebuild_group("b") for _ in range(3)] == [1, 1, 1]
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_the_last_report_of_each_worker_counts(self, group: Group) -> None:
        done, held = group.deliver_to("a", 2)
        lose_group(group, "a", "b")
        group.rebuild_group("a", {done: 1, held: 1})
        group.rebuild_group("a", {held: 1})
        rebuild_with(group, {"b": {}, "a": {held: 1}})
        assert group.holds == {done: Hold(HEIR, 0), held: Hold("a", 1)}

    def test_no_worker_is_waited_for_past_the_lease_it_had_at_the_first_report(self, group: Group) -> None:
        """As a worker of another group, which renews its lease and never reports here."""
        group.add(1)
        lose_group(group, "other")
        assert group.rebuild_group("a") == 0
        until = float(group.client.hget(REPORTS, "until"))
        assert until == group.lease("other")
        group.client.zadd(KEYS.workers, {"other": until + LEASE_MS})
        assert group.rebuild_group("a") == 0
        assert float(group.client.hget(REPORTS, "until")) == until
        group.client.hset(REPORTS, "until", group.now_ms)
        assert group.rebuild_group("a") == 1

    def test_a_worker_that_dies_meanwhile_is_not_waited_for_and_the_others_still_are(self, group: Group) -> None:
        group.add(1)
        lose_group(group, "lives", "dies")
        group.end_lease("dead")
        assert group.rebuild_group("a") == 0
        group.end_lease("dies")
        assert group.rebuild_group("a") == 0
        assert group.rebuild_group("lives") == 0
        assert group.exists
        assert group.rebuild_group("a") == 1

    def test_a_worker_that_comes_later_is_waited_for_too(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        lose_group(group, "a")
        assert group.rebuild_group("new") == 0
        assert group.rebuild_group("a", {entry_id: 1}) == 0
        assert group.rebuild_group("new") == 1
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_a_report_renews_the_lease(self, group: Group) -> None:
        group.add(1)
        lose_group(group, "b")
        before = group.now_ms
        group.rebuild_group("a")
        lease = group.lease("a")
        assert lease is not None
        assert before + LEASE_MS <= lease <= group.now_ms + LEASE_MS
        assert 0 < group.client.pttl(KEYS.workers) <= KEPT_MS

    def test_a_report_does_not_outlive_its_lease(self, group: Group) -> None:
        group.add(1)
        lose_group(group, "b")
        group.rebuild_group("a", lease_ms=5000)
        assert 0 < group.client.pttl(REPORTS) <= 5000

    def test_a_report_of_a_worker_that_died_or_left_since_does_not_count(self, group: Group) -> None:
        died, left = group.deliver_to("a")[0], group.deliver_to("b")[0]
        lose_group(group, "a", "b", "c")
        group.rebuild_group("a", {died: 1})
        group.rebuild_group("b", {left: 1})
        group.end_lease("a")
        group.leave_group("b")
        assert group.rebuild_group("c", {left: 0}) == 1
        assert group.holds == {died: Hold(HEIR, 0), left: Hold("c", 0)}

    def test_a_worker_may_be_called_anything(self, group: Group) -> None:
        names = ("until", "of until", "of ", "1-1 1")
        held = group.deliver_to("a", len(names))
        lose_group(group, *names)
        reports = 2 * list(zip(names, held, strict=True))
        replies = [group.rebuild_group(name, {entry_id: 1}) for name, entry_id in reports]
        assert replies == [0, 0, 0, 0, 0, 0, 1, 1]
        assert group.holds == {entry_id: Hold(name, 1) for name, entry_id in zip(names, held, strict=True)}

    def test_each_group_has_its_own_reports(self, group: Group) -> None:
        assert KEYS.group_reports("one") != KEYS.group_reports("two")
        assert REPORTS.startswith(KEYS.prefix)


class TestHeldEntries:
    def test_a_held_entry_is_pending_for_its_holder_by_its_delivery_and_fresh(self, group: Group) -> None:
        first, second = group.deliver_to("a", 2)
        lose_group(group, "a")
        group.rebuild_group("a", {first: 1, second: 3})
        assert group.holds == {first: Hold("a", 1), second: Hold("a", 3)}
        assert group.idle_ms(first) < 10_000
        assert group.renew_lease_of("a", {first: 1, second: 3}) == []

    def test_an_entry_that_is_gone_from_the_stream_is_not_brought_back(self, group: Group) -> None:
        done, held = group.deliver_to("a", 2)
        lose_group(group, "a")
        group.client.xdel(KEYS.stream, done)
        group.rebuild_group("a", {done: 1, held: 1})
        assert group.holds == {held: Hold("a", 1)}

    def test_the_last_entry_is_not_brought_back_if_it_is_gone(self, group: Group) -> None:
        held, done = group.deliver_to("a", 2)
        lose_group(group, "a")
        group.client.xdel(KEYS.stream, done)
        group.rebuild_group("a", {held: 1, done: 1})
        assert group.holds == {held: Hold("a", 1)}

    @pytest.mark.parametrize("order", (("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")))
    def test_an_entry_of_several_holders_goes_to_the_last_delivery(self, group: Group, order: tuple[str, ...]) -> None:
        self.check_last_delivery(group, order)

    def test_the_last_delivery_wins_if_it_is_reported_first(self, group: Group) -> None:
        self.check_last_delivery(group, ("b", "a", "c"))

    def test_the_last_delivery_wins_if_it_is_reported_last(self, group: Group) -> None:
        self.check_last_delivery(group, ("a", "c", "b"))

    def check_last_delivery(self, group: Group, order: tuple[str, ...]) -> None:
        entry_ids = group.deliver_to("a", 6)
        lose_group(group, *order)
        numbers = {name: "abc".index(name) for name in order}
        held = {
            name: {entry_id: 1 + (number + shift) % 3 for shift, entry_id in enumerate(entry_ids)}
            for name, number in numbers.items()
        }
        rebuild_with(group, held)
        assert group.holds == {entry_id: Hold("abc"[(2 - shift) % 3], 3) for shift, entry_id in enumerate(entry_ids)}

    def test_an_empty_report_leaves_every_entry_unread(self, group: Group) -> None:
        added = group.deliver_to("dead", 2)
        lose_group(group)
        group.rebuild_group("a")
        assert group.holds == {}
        assert group.read("a", 9) == added

    def test_an_invalid_report_is_skipped(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        lose_group(group)
        group.client.hset(REPORTS, mapping={"of b": "not an id", "of c": f"{'9' * 50}-1"})
        group.client.zadd(KEYS.workers, dict.fromkeys("bc", group.now_ms + 60_000))
        assert group.rebuild_group("a", {entry_id: 1}) == 0
        for name in "bc":
            group.end_lease(name)
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.holds == {entry_id: Hold("a", 1)}


class TestEntriesWithoutHolder:
    def test_an_entry_before_the_last_held_one_goes_to_the_heir(self, group: Group) -> None:
        left, held = group.deliver_to("dead")[0], group.deliver_to("a")[0]
        (waiting,) = group.add(1)
        lose_group(group, "a")
        assert group.rebuild_group("a", {held: 1}) == 1
        assert group.holds == {left: Hold(HEIR, 0), held: Hold("a", 1)}
        assert group.idle_ms(left) >= RELEASED_IDLE_MS
        assert group.lease(HEIR) == 0
        assert group.read("b", 9) == [waiting]

    def test_any_worker_takes_such_an_entry_at_once_as_its_first_delivery(self, group: Group) -> None:
        left, held = group.deliver_to("dead")[0], group.deliver_to("a")[0]
        lose_group(group, "a")
        group.rebuild_group("a", {held: 1})
        taken = group.take_over("a", HEIR)
        assert taken is not None
        assert [(entry.id, entry.deliveries) for entry in taken] == [(left, 0)]
        assert group.lease(HEIR) is None

    def test_entries_deleted_while_pending_hide_no_other_entry_from_its_holder(self, group: Group) -> None:
        """Each is still pending, and has no entry in the stream: counted as one, it would take the place of another."""
        held = dict.fromkeys(group.deliver_to("a", 15), 1)
        lose_group(group, "a", "b")
        assert group.rebuild_group("b") == 0
        assert group.rebuild_group("a", held) == 0
        deleted = [*held][5:8]
        group.client.xdel(KEYS.stream, *deleted)
        assert group.rebuild_group("b") == 1
        kept = [entry for entry in held if entry not in deleted]
        assert {entry: group.holds[entry] for entry in kept} == dict.fromkeys(kept, Hold("a", 1))

    def test_the_heir_is_not_listed_without_entries(self, group: Group) -> None:
        (held,) = group.deliver_to("a")
        lose_group(group, "a")
        group.rebuild_group("a", {held: 1})
        assert set(group.workers) == {b"a"}

    def test_more_than_a_page_of_entries_goes_to_the_heir(self, group: Group) -> None:
        entry_ids = group.deliver_to("dead", 251)
        lose_group(group)
        group.rebuild_group("a", {entry_ids[0]: 1, entry_ids[-2]: 1})
        assert len(group.holds) == 250
        assert {entry_id for entry_id, hold in group.holds.items() if hold.owner == "a"} == {
            entry_ids[0],
            entry_ids[-2],
        }
        assert group.read("b", 9) == entry_ids[-1:]

    def test_ids_are_compared_as_numbers_of_any_size(self, group: Group) -> None:
        largest = 2**64 - 1
        ids = ["9-5", "10-9", "10-10", f"10-{largest - 1}", f"10-{largest}", "11-0", "100-1", "100-2"]
        for held in range(len(ids)):
            group.client.delete(KEYS.stream, KEYS.workers)
            for entry_id in ids:
                group.client.xadd(KEYS.stream, {"d": "x"}, id=entry_id)
            expected = [entry_id.encode() for entry_id in ids]
            group.rebuild_group("a", dict.fromkeys(expected[: held + 1], 1))
            assert sorted(group.holds) == sorted(expected[: held + 1])
            assert group.read("b", 9) == expected[held + 1 :]

    def test_the_order_of_the_report_does_not_matter(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 12)
        lose_group(group, "a")
        group.rebuild_group("a", dict.fromkeys(reversed(entry_ids[:11]), 1))
        assert list(group.holds) == entry_ids[:11]
        assert group.read("b", 9) == entry_ids[11:]


class TestStreamThatIsBehind:
    """A stream restored from a snapshot, or begun again: held entries may lie beyond its last id."""

    def test_entries_added_later_are_read(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        waiting = group.client.xadd(KEYS.stream, {"d": "x"}, "5-1")
        assert group.rebuild_group("a", {b"9-9": 1}) == 1
        added = group.client.xadd(KEYS.stream, {"d": "y"}, "7-1")
        assert group.read("a", 9) == [added]
        taken = group.take_over("a", HEIR)
        assert taken is not None
        assert [entry.id for entry in taken] == [waiting]

    def test_the_group_starts_at_the_last_id_behind_deleted_entries(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        for entry_id in ("5-1", "6-1"):
            group.client.xadd(KEYS.stream, {"d": "x"}, entry_id)
        group.client.xdel(KEYS.stream, "6-1")
        assert group.rebuild_group("a", {b"6-2": 1, b"5-1": 3}) == 1
        assert group.holds == {b"5-1": Hold("a", 3)}
        assert group.client.xinfo_groups(KEYS.stream)[0]["last-delivered-id"] == b"6-1"


class TestNarrowUser:
    def test_a_user_without_all_commands_builds_no_half_group(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        for command in ("xclaim", "xgroup", "xrange", "zadd", "hset", "pexpire", "zrangebyscore", "hmget"):
            refused = pytest.raises(redis.ResponseError, match=r"NOPERM|permission|can.t run|ACL")
            with group.as_user("allkeys", "+@all", f"-{command}") as narrow, refused:
                narrow.rebuild_group("a", {entry_id: 1})
            assert not group.exists
            assert REPORTS not in group.keys
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.holds == {entry_id: Hold("a", 1)}


class TestTrouble:
    @pytest.mark.parametrize("key", (KEYS.workers, REPORTS))
    def test_a_list_of_another_type_changes_nothing(self, group: Group, key: str) -> None:
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        group.client.delete(key)
        group.client.set(key, "odd", ex=1000)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.rebuild_group("a", {entry_id: 1})
        assert not group.exists
        assert group.client.ttl(key) > 0

    def test_a_malformed_end_of_the_wait_is_skipped(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        lose_group(group, "a", "b")
        group.client.hset(REPORTS, "until", "soon")
        assert group.rebuild_group("a", {entry_id: 1}) == 1
        assert group.holds == {entry_id: Hold("a", 1)}

    def test_a_key_of_another_type_is_an_error(self, group: Group) -> None:
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "x")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.rebuild_group("a")
        assert group.keys == {KEYS.stream}

    def test_a_user_without_xpending_gets_the_error_and_changes_nothing(self, group: Group) -> None:
        group.deliver_to("a")
        group.client.execute_command("ACL", "SETUSER", "blind", "on", "nopass", "~*", "+@all", "-xpending")
        path = group.client.connection_pool.connection_kwargs["path"]
        blind = redis.Redis(unix_socket_path=path, username="blind", password="x")
        with blind, pytest.raises(redis.ResponseError, match=r"can't run this command|no permissions"):
            Group(blind).rebuild_group("a")
        group.client.execute_command("ACL", "DELUSER", "blind")
        assert group.keys == {KEYS.stream}

    def test_the_group_is_rebuilt_without_memory_too(self, group: Group) -> None:
        left, held = group.deliver_to("dead")[0], group.deliver_to("a")[0]
        lose_group(group, "a", "b")
        with group.full_memory():
            assert group.rebuild_group("a", {held: 1}) == 0
            assert group.rebuild_group("b") == 0
            assert group.rebuild_group("a", {held: 1}) == 1
        assert group.holds == {left: Hold(HEIR, 0), held: Hold("a", 1)}

    def test_the_group_of_a_fresh_queue_is_created_without_memory_too(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            client.config_set("maxmemory", 1)
            assert group.rebuild_group("a") == 1
            assert group.exists

    def test_a_worker_in_another_group_reads_on(self, group: Group) -> None:
        (entry_id,) = group.deliver_to("a")
        group.client.xgroup_create(KEYS.stream, "other", "0")
        lose_group(group, "a")
        group.rebuild_group("a", {entry_id: 1})
        replies = group.client.xreadgroup("other", "x", {KEYS.stream: ">"})
        assert [found for _, entries in replies for found, _ in entries] == [entry_id]

    def test_a_report_may_hold_10_000_entries(self, group: Group) -> None:
        entry_ids = group.deliver_to("a", 10_000)
        lose_group(group, "a", "b")
        rebuild_with(group, {"b": dict.fromkeys(entry_ids[1::2], 1), "a": dict.fromkeys(entry_ids[::2], 2)})
        holds = group.holds
        assert [holds[entry_id] for entry_id in entry_ids] == [Hold("a", 2), Hold("b", 1)] * 5000

    def test_a_group_that_is_lost_again_and_again_is_rebuilt_each_time(self, group: Group) -> None:
        held = {"a": dict.fromkeys(group.deliver_to("a", 3), 1), "b": dict.fromkeys(group.deliver_to("b", 3), 2)}
        for _ in range(5):
            lose_group(group, "a", "b")
            rebuild_with(group, held)
            for name, entries in held.items():
                assert group.rebuild_group(name, entries) == 1
                assert group.renew_lease_of(name, entries) == []
        assert {entry_id: hold.deliveries for entry_id, hold in group.holds.items()} == {**held["a"], **held["b"]}


def test_the_keys_of_the_script_are_all_that_it_touches(group: Group) -> None:
    group.deliver_to("a")
    lose_group(group, "a", "b")
    group.rebuild_group("a")
    assert group.keys == {KEYS.stream, KEYS.workers, REPORTS}


class TestBounds:
    """A call hands over a bounded number of entries: the server is not held while a large group is recreated."""

    @staticmethod
    def _lose_group(group: Group, count: int) -> tuple[list[bytes], bytes]:
        """Entries that a dead worker held, and behind them one that a living worker holds."""
        abandoned = group.deliver_to("dead", count)
        (held,) = group.deliver_to("a")
        group.destroy()
        return abandoned, held

    def test_a_large_group_is_recreated_in_several_calls(self, group: Group) -> None:
        abandoned, held = self._lose_group(group, 1200)
        answers: list[int] = []
        while not answers or not answers[-1]:
            group.client.config_resetstat()
            answers.append(group.rebuild_group("a", {held: 1}))
            assert group.client.info("commandstats")["cmdstat_xclaim"]["calls"] <= 512
        assert answers == [0, 0, 1]
        assert group.holds == dict.fromkeys(abandoned, Hold(HEIR, 0)) | {held: Hold("a", 1)}
        assert group.lease(HEIR) == 0
        assert not group.client.exists(REPORTS)

    def test_the_entries_of_a_worker_are_its_own_from_the_first_call_on(self, group: Group) -> None:
        _, held = self._lose_group(group, 700)
        assert group.rebuild_group("a", {held: 1}) == 0
        assert group.holds[held] == Hold("a", 1)

    def test_large_entries_are_handed_over_in_smaller_numbers(self, group: Group) -> None:
        for _ in range(40):
            group.client.xadd(KEYS.stream, {"d": b"x" * 2**20})
        group.read("dead", 40)
        (held,) = group.deliver_to("a")
        group.destroy()
        assert group.rebuild_group("a", {held: 1}) == 0
        assert len(group.holds) == 5
        while not group.rebuild_group("a", {held: 1}):
            assert len(group.holds) % 4 == 1
        assert len(group.holds) == 41

    def test_no_worker_renews_until_the_group_is_complete(self, group: Group) -> None:
        _, held = self._lose_group(group, 700)
        group.rebuild_group("a", {held: 1})
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            group.renew_worker_lease("a", held)
        assert group.rebuild_group("a", {held: 1}) == 1
        assert group.renew_worker_lease("a", held) == []

    def test_the_lease_goes_on_meanwhile(self, group: Group) -> None:
        _, held = self._lose_group(group, 1200)
        group.rebuild_group("a", {held: 1})
        group.client.zadd(KEYS.workers, {"a": 5})
        group.rebuild_group("a", {held: 1})
        assert (group.lease("a") or 0) > group.now_ms

    def test_a_worker_that_starts_later_goes_on_where_others_died(self, group: Group) -> None:
        abandoned, held = self._lose_group(group, 700)
        group.rebuild_group("a", {held: 1})
        assert group.client.pttl(REPORTS) > 10 * LEASE_MS
        assert group.rebuild_group("newcomer") == 1
        assert group.holds.keys() == {*abandoned, held}

    def test_an_entry_that_is_done_meanwhile_does_not_come_back(self, group: Group) -> None:
        abandoned, held = self._lose_group(group, 700)
        group.rebuild_group("a", {held: 1})
        group.client.xack(KEYS.stream, GROUP, held)
        group.client.xdel(KEYS.stream, held)
        assert group.rebuild_group("a") == 1
        assert group.holds.keys() == set(abandoned)

    def test_a_group_that_is_lost_again_meanwhile_is_recreated_from_the_start(self, group: Group) -> None:
        abandoned, held = self._lose_group(group, 700)
        group.rebuild_group("a", {held: 1})
        group.destroy()
        answers = [group.rebuild_group("a", {held: 1}) for _ in range(2)]
        assert answers == [0, 1]
        assert group.holds == dict.fromkeys(abandoned, Hold(HEIR, 0)) | {held: Hold("a", 1)}

    def test_reports_from_before_a_second_loss_do_not_count(self, group: Group) -> None:
        """Another worker has read since it reported, and keeps those entries."""
        abandoned = group.deliver_to("dead", 1200)
        (held,) = group.deliver_to("a")
        lose_group(group, "a", "b")
        assert group.rebuild_group("b") == 0
        assert group.rebuild_group("a", {held: 1}) == 0
        assert group.rebuild_group("b") == 0  # the group is there, and not all is handed over
        (read_since,) = group.deliver_to("b")
        lose_group(group, "a", "b")
        assert group.rebuild_group("a", {held: 1}) == 0
        assert not group.exists  # it waits for what the other worker holds now
        rebuild_with(group, {"b": {read_since: 1}, "a": {held: 1}})
        holds = group.holds
        assert (holds[held], holds[read_since]) == (Hold("a", 1), Hold("b", 1))
        assert {holds[entry_id].owner for entry_id in abandoned} == {HEIR}

    def test_entries_added_meanwhile_are_read_as_new(self, group: Group) -> None:
        _, held = self._lose_group(group, 700)
        group.rebuild_group("a", {held: 1})
        added = group.add(3)
        assert group.read("b", 10) == added
        assert group.rebuild_group("a", {held: 1}) == 1
        assert [group.holds[entry_id].owner for entry_id in added] == ["b", "b", "b"]

    @pytest.mark.parametrize("report", (f"5-{2**64}", "5-" + "9" * 5000, "9" * 5000 + "-1", "0005-1", "junk"))
    def test_a_foreign_report_does_not_hold_the_group_up(self, group: Group, report: str) -> None:
        """As if it were one of a worker of another group, which lives and does not report here."""
        (entry_id,) = group.deliver_to("a")
        group.destroy()
        group.client.zadd(KEYS.workers, {"other": group.now_ms + 3_600_000})
        group.client.hset(REPORTS, "of other", report)
        assert group.report("a", entry_id) == MUST_CLAIM
        assert group.exists

    @pytest.mark.parametrize(("start", "last"), (("junk", "5-0"), ("-", "junk"), ("(9" * 30, "9-9"), ("-", "")))
    def test_junk_in_the_reports_holds_no_worker_up(self, group: Group, start: str, last: str) -> None:
        (held,) = group.deliver_to("a")
        group.client.hset(REPORTS, mapping={"start": start, "last": last})
        assert group.rebuild_group("a", {held: 1}) == 1
        assert group.renew_worker_lease("a", held) == []
