"""ack.lua alone: finished entries leave the pending list and the stream together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from pychasqui._core.limits import ACK_BATCH
from pychasqui._redis.scripts import ACK
from tests.support.server import RedisServer

STREAM, GROUP = "{chasqui:q}:stream", "default"


@dataclass
class Acking:
    client: Any  # redis-py types replies as everything they could be under any setting

    def __call__(self, *ids: bytes, group: str = GROUP) -> int:
        acked = self.client.eval(ACK.text, 1, STREAM, group, *ids)
        assert isinstance(acked, int)
        return acked

    def add(self, count: int) -> list[bytes]:
        with self.client.pipeline(transaction=False) as pipeline:
            for number in range(count):
                pipeline.xadd(STREAM, {"d": number})
            return list(pipeline.execute())

    def read(self, count: int, consumer: str = "c") -> list[bytes]:
        replies = self.client.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=count)
        return [entry_id for _, entries in replies for entry_id, _ in entries]

    @property
    def state(self) -> tuple[int, int]:
        """Entries in the stream, and how many of them are pending."""
        return self.client.xlen(STREAM), self.client.xpending(STREAM, GROUP)["pending"]


@pytest.fixture
def acking(server: RedisServer, redis_url: str) -> Iterator[Acking]:
    with server.client() as client:
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        yield Acking(client)


def test_read_entries_leave_the_pending_list_and_the_stream(acking: Acking) -> None:
    acking.add(3)
    assert acking(*acking.read(3)) == 3
    assert acking.state == (0, 0)


def test_the_others_stay(acking: Acking) -> None:
    acking.add(5)
    first, second, third = acking.read(3)
    assert acking(first, third) == 2
    assert acking.state == (3, 1)
    assert next(entry_id for entry_id, _ in acking.client.xrange(STREAM)) == second


def test_the_same_ack_again_changes_nothing(acking: Acking) -> None:
    acking.add(4)
    ids = acking.read(2)
    assert [acking(*ids) for _ in range(3)] == [2, 0, 0]
    assert acking.state == (2, 0)


def test_an_ack_that_is_partly_known_finishes_the_rest(acking: Acking) -> None:
    acking.add(3)
    ids = acking.read(3)
    assert acking(ids[0]) == 1
    assert acking(*ids) == 2
    assert acking.state == (0, 0)


def test_an_id_twice_in_one_ack_counts_once(acking: Acking) -> None:
    acking.add(1)
    (entry_id,) = acking.read(1)
    assert acking(entry_id, entry_id) == 1
    assert acking.state == (0, 0)


def test_ids_that_never_were_are_skipped(acking: Acking) -> None:
    acking.add(1)
    (entry_id,) = acking.read(1)
    assert acking(b"1-1", entry_id, b"999999999999999-0") == 1
    assert acking.state == (0, 0)


def test_an_entry_deleted_by_others_still_leaves_the_pending_list(acking: Acking) -> None:
    acking.add(1)
    (entry_id,) = acking.read(1)
    acking.client.xdel(STREAM, entry_id)
    assert acking(entry_id) == 1
    assert acking.state == (0, 0)


def test_an_entry_of_another_consumer_is_finished_all_the_same(acking: Acking) -> None:
    """A late success is a success: the worker that took the entry over need not run it again."""
    acking.add(1)
    (entry_id,) = acking.read(1, consumer="slow")
    acking.client.xclaim(STREAM, GROUP, "other", 0, [entry_id])
    assert acking(entry_id) == 1
    assert acking.state == (0, 0)


def test_a_missing_stream_is_not_created(acking: Acking) -> None:
    acking.client.delete(STREAM)
    assert acking(b"1-1") == 0
    assert not acking.client.exists(STREAM)


def test_a_finished_entry_goes_also_without_the_group(acking: Acking) -> None:
    acking.add(1)
    (entry_id,) = acking.read(1)
    acking.client.xgroup_destroy(STREAM, GROUP)
    assert acking(entry_id) == 0
    assert acking.client.xlen(STREAM) == 0


def test_an_invalid_entry_id_is_an_error_and_no_entry_is_acked(acking: Acking) -> None:
    acking.add(1)
    (entry_id,) = acking.read(1)
    with pytest.raises(redis.ResponseError):
        acking(entry_id, b"not an id")
    assert acking.state == (1, 1)


def test_the_largest_batch_that_is_ever_sent(acking: Acking) -> None:
    acking.add(ACK_BATCH)
    assert acking(*acking.read(ACK_BATCH)) == ACK_BATCH
    assert acking.state == (0, 0)


def test_10_000_entries_are_acked_in_batches(acking: Acking) -> None:
    acking.add(10_000)
    ids = acking.read(10_000)
    assert sum(acking(*ids[start : start + ACK_BATCH]) for start in range(0, 10_000, ACK_BATCH)) == 10_000
    assert acking.state == (0, 0)


def test_a_batch_larger_than_lua_can_unpack_is_an_error_and_no_entry_is_acked(acking: Acking) -> None:
    acking.add(10_000)
    with pytest.raises(redis.ResponseError, match="too many results to unpack"):
        acking(*acking.read(10_000))
    assert acking.state == (10_000, 10_000)
