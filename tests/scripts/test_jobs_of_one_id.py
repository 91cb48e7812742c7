"""Jobs of one id side by side, as after a replay or beyond a window: none takes or frees the keys of another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from tests.scripts.group import HOUR_MS, KEYS, Group, Wanted, index_key, official_unique_key, unique_key
from tests.scripts.test_keys import monitored

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
REPLAYED, ADDED = b"\x01", b"\x02"  # what the job holds that was replayed, and the one that was added since


def envelope(data: bytes, job_id: str = "job", attempt: int = 0) -> bytes:
    return encode_envelope(job_id, data, 5, attempt, None)


def member(data: bytes, job_id: str = "job", attempt: int = 0) -> bytes:
    return make_delayed_member("mail", envelope(data, job_id, attempt))


def add(group: Group, due: str = "", job_id: str = "job", only: str = "keep", window_ms: int = 0) -> str:
    return group.add_with_options(Wanted("mail", envelope(ADDED, job_id), job_id, due, only, window_ms))


def fail_replayed(group: Group, job_id: str = "job", delay_ms: int = 0) -> None:
    """A job is replayed, fails, and waits for its next run."""
    (letter,) = group.die()
    group.replay((letter, envelope(REPLAYED, job_id), b"mail"))
    group.read("a", 10)
    entry_id = group.stream[-1]
    moved = group.reschedule("a", (entry_id, delay_ms, member(REPLAYED, job_id, 1)), job_id=job_id, may_be_unique=1)
    assert moved == 1


def promote_retry(group: Group) -> bytes:
    group.wait_ms(2)
    assert group.promote().promoted == 1
    return group.stream[-1]


class TestDelayed:
    """The job that was added is delayed."""

    def check(self, group: Group, job_id: str, window_ms: int) -> None:
        assert group.index(job_id) == member(ADDED, job_id)
        assert group.uniqueness_key(job_id) == ("wd" if window_ms else "d")
        assert group.client.pttl(unique_key(job_id)) > (HOUR_MS // 2 if window_ms else 2 * HOUR_MS)
        assert add(group, job_id=job_id) == "d"

    @pytest.mark.parametrize("job_id", ("job", ULID))
    @pytest.mark.parametrize("window_ms", (0, HOUR_MS))
    def test_a_replayed_job_that_is_retried_leaves_the_keys_of_one_that_was_added(
        self, group: Group, job_id: str, window_ms: int
    ) -> None:
        add(group, f"+{2 * HOUR_MS}", job_id, window_ms=window_ms)
        fail_replayed(group, job_id)
        self.check(group, job_id, window_ms)
        entry_id = promote_retry(group)
        self.check(group, job_id, window_ms)
        group.read("a", 10)
        group.ack_unique((entry_id, job_id))
        self.check(group, job_id, window_ms)
        assert group.move_delayed("cancel", job_id) == [1]
        assert (group.delayed, group.keys & {unique_key(job_id), official_unique_key(job_id), index_key(job_id)}) == (
            {},
            set(),
        )

    @pytest.mark.parametrize("job_id", ("job", ULID))
    @pytest.mark.parametrize("window_ms", (0, HOUR_MS))
    def test_a_job_that_is_added_while_a_replayed_one_waits_for_its_retry_has_the_keys(
        self, group: Group, job_id: str, window_ms: int
    ) -> None:
        fail_replayed(group, job_id)
        add(group, f"+{2 * HOUR_MS}", job_id, window_ms=window_ms)
        self.check(group, job_id, window_ms)
        promote_retry(group)
        self.check(group, job_id, window_ms)


@pytest.mark.parametrize("window_ms", (0, HOUR_MS))
def test_a_job_that_has_the_id_takes_the_index_when_it_fails_beside_a_replayed_one(
    group: Group, window_ms: int
) -> None:
    fail_replayed(group, delay_ms=HOUR_MS)
    add(group, window_ms=window_ms)
    (entry_id,) = group.read("a", 10)
    group.reschedule("a", (entry_id, HOUR_MS, member(ADDED, attempt=1)), job_id="job", may_be_unique=1)
    assert group.index("job") == member(ADDED, attempt=1)
    assert group.uniqueness_key("job") == ("wd" if window_ms else "d")
    assert add(group) == "d"
    assert (group.move_delayed("cancel", "job"), list(group.delayed)) == ([1], [member(REPLAYED, attempt=1)])


class TestInStream:
    """The job that was added is in the stream, and the replayed one waits for its retry."""

    @pytest.mark.parametrize("window_ms", (0, HOUR_MS))
    @pytest.mark.parametrize(
        "remove",
        (
            promote_retry,
            lambda group: group.move_delayed("run", "job"),
            lambda group: group.move_delayed("cancel", "job"),
            lambda group: group.cancel("job"),
            lambda group: group.purge_delayed(),
        ),
        ids=["promoted", "run at once", "cancelled by its time", "cancelled", "purged"],
    )
    def test_the_end_of_the_wait_leaves_the_id_to_the_other(
        self, group: Group, remove: Callable[[Group], object], window_ms: int
    ) -> None:
        fail_replayed(group)
        add(group, window_ms=window_ms)
        (entry_id,) = group.stream
        remove(group)
        assert (group.delayed, group.index("job")) == ({}, None)
        assert group.uniqueness_key("job") == ("w" if window_ms else "") + entry_id.decode()
        assert add(group) == "d"

    def test_a_running_job_is_not_replaced_in_the_place_of_one_that_waits(self, group: Group) -> None:
        fail_replayed(group, delay_ms=HOUR_MS)
        add(group)
        assert len(group.read("a", 10)) == 1
        assert [add(group, only=only) for only in ("keep", "replace", "postpone")] == ["d", "d", "d"]
        assert list(group.delayed) == [member(REPLAYED, attempt=1)]

    def test_a_uniqueness_key_that_names_an_entry_which_is_gone_follows_a_job_that_an_official_worker_retries(
        self, group: Group
    ) -> None:
        add(group)
        (entry_id,) = group.read("a", 10)
        group.client.zadd(KEYS.delayed, {member(ADDED, attempt=1): 1})
        group.client.xack(KEYS.stream, "default", entry_id)
        group.client.xdel(KEYS.stream, entry_id)
        assert group.promote().promoted == 1
        assert group.uniqueness_key("job") == group.stream[-1].decode()


class TestWindows:
    def test_a_job_whose_window_is_over_leaves_the_index_of_the_next(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", envelope(REPLAYED), "job", "+30", "keep", 10))
        group.wait_ms(15)
        group.add_with_options(Wanted("mail", envelope(ADDED), "job", f"+{HOUR_MS}", "keep", 10))
        group.wait_ms(20)
        assert group.promote().promoted == 1
        assert group.index("job") == member(ADDED)
        assert group.move_delayed("cancel", "job") == [1]

    def test_jobs_of_one_id_that_are_due_together_leave_no_index(self, group: Group) -> None:
        group.add_with_options(Wanted("mail", envelope(REPLAYED), "job", "+5", "keep", 1))
        group.wait_ms(2)
        group.add_with_options(Wanted("mail", envelope(ADDED), "job", "+5", "keep", 1))
        group.wait_ms(7)
        assert group.promote().promoted == 2
        assert group.index("job") is None


def test_a_call_reads_a_bounded_part_of_other_jobs_and_leaves_what_is_beyond_it(group: Group) -> None:
    large = [make_delayed_member("mail", encode_envelope(f"job-{n}", b"x" * 400_000, 5, 0, None)) for n in range(4)]
    for number, other in enumerate(large):
        group.client.zadd(KEYS.delayed, {other: 2**53, member(REPLAYED, f"job-{number}"): number + 1})
        group.client.set(index_key(f"job-{number}"), other)
    with monitored(group.client) as lines:
        assert group.promote().promoted == 4
    assert sum(b'"GETRANGE"' in line for line in lines) == 4 + 3
    assert [group.index(f"job-{number}") for number in range(4)] == large


def test_a_call_looks_for_a_bounded_part_of_named_entries_and_leaves_the_keys_beyond_it(group: Group) -> None:
    for number in range(4):
        entry_id = group.client.xadd(KEYS.stream, {"d": b"x" * 400_000})
        group.client.set(unique_key(f"job-{number}"), entry_id)
        group.client.zadd(KEYS.delayed, {member(REPLAYED, f"job-{number}"): number + 1})
    named = group.stream
    with monitored(group.client) as lines:
        assert group.promote().promoted == 4
    assert sum(b'"XRANGE"' in line for line in lines) == 3
    assert [group.uniqueness_key(f"job-{number}") for number in range(4)] == [entry.decode() for entry in named]
