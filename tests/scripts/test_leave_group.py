"""leave_group.lua alone: a worker's name goes, but never with entries that are still pending for it."""

from __future__ import annotations

from tests.scripts.group import GROUP, KEYS, Group, Hold


def test_the_consumer_goes_if_no_entry_is_pending(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.renew_worker_lease("a")
    group.client.xack(KEYS.stream, GROUP, entry_id)
    assert group.leave_group("a") == 1
    assert group.consumers == set()
    assert group.workers == {}


def test_entries_keep_the_name(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.renew_worker_lease("a")
    assert group.leave_group("a") == 0
    assert group.holds == {entry_id: Hold("a", 1)}
    assert group.consumers == {"a"}


def test_a_name_that_stays_is_marked_as_having_left(group: Group) -> None:
    group.deliver_to("a")
    group.renew_worker_lease("a")
    group.leave_group("a")
    assert group.lease("a") == 0


def test_the_entries_of_a_leaving_worker_can_be_taken_over_at_once(group: Group) -> None:
    entry_ids = group.deliver_to("a", 3)
    group.renew_worker_lease("a")
    group.leave_group("a")
    taken = group.take_over("b", "a", lease=0)
    assert taken is not None
    assert [entry.id for entry in taken] == entry_ids
    assert group.consumers == {"b"}


def test_the_others_stay(group: Group) -> None:
    (entry_id,) = group.deliver_to("b")
    group.renew_worker_lease("a")
    group.renew_worker_lease("b")
    lease = group.lease("b")
    assert group.leave_group("a") == 1
    assert group.holds == {entry_id: Hold("b", 1)}
    assert group.consumers == {"b"}
    assert group.workers == {b"b": lease}


def test_the_same_call_again_says_the_same(group: Group) -> None:
    group.deliver_to("a")
    group.renew_worker_lease("a")
    assert [group.leave_group("a") for _ in range(3)] == [0, 0, 0]
    assert len(group.holds) == 1
    assert group.renew_worker_lease("b") == []
    assert [group.leave_group("b") for _ in range(3)] == [1, 1, 1]


def test_a_second_arrival_after_all_was_taken_over_removes_the_mark(group: Group) -> None:
    group.deliver_to("a")
    group.renew_worker_lease("a")
    group.leave_group("a")
    group.take_over("b", "a", lease=0)
    assert group.leave_group("a") == 1
    assert (group.consumers, group.workers) == ({"b"}, {})


def test_an_unknown_name_leaves_no_trace(group: Group) -> None:
    assert group.leave_group("nobody") == 1
    assert group.keys == {KEYS.stream}


def test_entries_deleted_while_pending_keep_the_consumer_until_a_takeover(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.renew_worker_lease("a")
    group.client.xdel(KEYS.stream, entry_id)
    assert group.leave_group("a") == 0
    assert group.take_over("b", "a", lease=0) == []
    assert group.holds == {}
    assert group.workers == {}


def test_the_worker_goes_from_the_list_without_the_group(group: Group) -> None:
    group.deliver_to("a")
    group.renew_worker_lease("a")
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.leave_group("a") == 1
    assert group.workers == {}


def test_no_stream_is_created(group: Group) -> None:
    group.renew_worker_lease("a")
    group.client.delete(KEYS.stream)
    assert group.leave_group("a") == 1
    assert group.keys == set()


def test_10_000_pending_entries_stay(group: Group) -> None:
    group.deliver_to("a", 10_000)
    assert group.leave_group("a") == 0
    assert len(group.holds) == 10_000


def test_the_list_of_workers_has_an_end_also_if_it_begins_here(group: Group) -> None:
    group.deliver_to("a")
    assert group.leave_group("a") == 0
    assert group.client.pttl(KEYS.workers) > 0


def test_a_mark_that_stands_has_an_end_again(group: Group) -> None:
    group.deliver_to("a")
    group.renew_worker_lease("a")
    for _ in range(2):
        group.leave_group("a")
        assert group.client.pttl(KEYS.workers) > 0


def test_a_consumer_that_stays_is_marked_without_memory_too(group: Group) -> None:
    group.deliver_to("a")
    with group.full_memory():
        assert group.leave_group("a") == 0
    assert group.lease("a") == 0
    assert group.client.pttl(KEYS.workers) > 0


def test_a_call_that_is_repeated_with_the_lease_that_it_has_ended_says_the_same(group: Group) -> None:
    """A worker reads its lease once, and sends the call again if the answer was lost."""
    assert group.renew_worker_lease("a") == []
    lease = group.lease("a")
    assert [group.leave_group("a", lease=lease) for _ in range(2)] == [1, 1]


def test_a_call_about_an_earlier_lease_changes_nothing(group: Group) -> None:
    """The network has delivered it late: a worker lives under the name again."""
    record, claim = KEYS.worker("a"), KEYS.name_claim(GROUP, "a")
    (entry_id,) = group.deliver_to("a")
    group.renew_worker_lease("a")
    group.client.mset({record: "record", claim: "token"})
    lease = group.lease("a")
    assert lease is not None
    for earlier in (lease - 1, 0.0):
        assert group.leave_group("a", lease=earlier) == 0
    assert (group.lease("a"), group.holds) == (lease, {entry_id: Hold("a", 1)})
    assert group.client.mget(record, claim) == [b"record", b"token"]


def test_the_record_and_the_claim_of_the_name_go_with_the_lease(group: Group) -> None:
    record, claim = KEYS.worker("a"), KEYS.name_claim(GROUP, "a")
    for gone in (1, 0):
        if not gone:
            group.deliver_to("a")
        group.renew_worker_lease("a")
        group.client.mset({record: "record", claim: "token"})
        assert group.leave_group("a") == gone
        assert group.client.exists(record, claim) == 0
