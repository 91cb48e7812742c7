"""Batches are large only while the worker is alone on its server."""

from __future__ import annotations

import pytest

from pychasqui._core.defaults import READ_COUNT
from pychasqui._core.limits import (
    ACK_BATCH,
    ACK_BATCH_ALONE,
    ACK_BATCH_WITH_EVENTS,
    READ_BATCH,
    READ_BATCH_WITH_EVENTS,
)
from pychasqui._redis.command_replies import find_client_count
from pychasqui._worker.batch_sizes import ASK_EVERY_S, KEPT_S, OWN_CONNECTIONS, REFUSED_S, BatchSizes
from pychasqui.errors import ReplyError
from tests.support.clock import FakeClock
from tests.support.memory_broker import MemoryBroker

SMALL = (READ_BATCH, ACK_BATCH)
LARGE = (READ_COUNT, ACK_BATCH_ALONE)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Batch sizes are hot: they import the clock from `time`, where install() does not replace it."""
    clock = FakeClock()
    monkeypatch.setattr("pychasqui._worker.batch_sizes.monotonic", clock)
    return clock


def sizes_of(batch_sizes: BatchSizes) -> tuple[int, int]:
    return batch_sizes.read, batch_sizes.ack


@pytest.fixture
async def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.client_count = OWN_CONNECTIONS
    return broker


def test_batches_are_small_until_the_server_has_answered() -> None:
    assert sizes_of(BatchSizes()) == SMALL


async def test_a_worker_that_is_alone_uses_large_ones(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes()
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert sizes_of(batch_sizes) == LARGE


async def test_batches_of_a_worker_that_writes_events_are_smaller(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes(writes_events=True)
    assert sizes_of(batch_sizes) == (READ_BATCH_WITH_EVENTS, ACK_BATCH_WITH_EVENTS)
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert sizes_of(batch_sizes) == (READ_COUNT, ACK_BATCH_ALONE)


async def test_one_more_client_makes_them_small_at_the_next_answer(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes()
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    broker.client_count = OWN_CONNECTIONS + 1
    clock.now += ASK_EVERY_S / 2
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert (sizes_of(batch_sizes), len(broker.calls)) == (LARGE, 1)
    clock.now += ASK_EVERY_S
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert (sizes_of(batch_sizes), len(broker.calls)) == (SMALL, 2)


async def test_a_worker_whose_reads_are_small_does_not_ask(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes()
    batch_sizes.request_client_count_if_due(broker, READ_BATCH - 1)
    assert (sizes_of(batch_sizes), broker.calls) == (SMALL, [])
    batch_sizes.request_client_count_if_due(broker, READ_BATCH)
    assert sizes_of(batch_sizes) == LARGE


async def test_an_old_answer_does_not_count(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes()
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    broker.request_client_count = lambda on_count: None  # type: ignore[method-assign]  # the reply is on its way
    clock.now += KEPT_S + 0.1
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert sizes_of(batch_sizes) == SMALL


async def test_a_server_that_does_not_say_is_asked_rarely(clock: FakeClock, broker: MemoryBroker) -> None:
    batch_sizes = BatchSizes()
    broker.client_count = None
    for _ in range(10):
        batch_sizes.request_client_count_if_due(broker, READ_COUNT)
        clock.now += ASK_EVERY_S
    assert (sizes_of(batch_sizes), len(broker.calls)) == (SMALL, 1)
    clock.now += REFUSED_S
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert len(broker.calls) == 2


@pytest.mark.parametrize("read_count", (1, READ_BATCH, 5000))
async def test_the_users_bound_holds(clock: FakeClock, broker: MemoryBroker, read_count: int) -> None:
    batch_sizes = BatchSizes(read_count)
    assert batch_sizes.read == min(read_count, READ_BATCH)
    batch_sizes.request_client_count_if_due(broker, READ_COUNT)
    assert batch_sizes.read == read_count


@pytest.mark.parametrize(
    ("reply", "count"),
    (
        (b"# Clients\r\nconnected_clients:12\r\ncluster_connections:0\r\n", 12),
        ("# Clients\r\nconnected_clients:1\r\n", 1),
        (b"# Clients\r\nconnected_clients:" + 5000 * b"9", None),
        (b"connected_clients:x\r\n", None),
        (b"", None),
        (None, None),
        ([], None),
        (ReplyError("NOPERM this user has no permissions"), None),
    ),
)
def test_the_reply_of_info_is_read(reply: object, count: int | None) -> None:
    assert find_client_count(reply) == count
