"""The broker that unit tests use hints, reports and ends as the one that speaks to a real server."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import redis.asyncio

from pychasqui._redis.broker import Broker
from pychasqui._redis.event_batch import EventBatch
from pychasqui._wire.event import Event
from pychasqui.errors import ConnectionLost, RedisTrouble
from tests.support import broker_bench
from tests.support.broker_bench import KINDS, LEASE_MS, Bench, open_bench
from tests.support.memory_broker import MemoryBroker
from tests.support.waiting import eventually

HOOKS = {"asked", "answered", "add_entry", "add_group"}  # what no other Broker has

pytestmark = pytest.mark.leaves_keys("what the calls have written")


@pytest.fixture(params=KINDS)
async def bench(
    request: pytest.FixtureRequest, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
) -> AsyncIterator[Bench]:
    async with open_bench(request.param, redis_url, queue_name, witness) as bench:
        yield bench


class Replies:
    """What the broker has answered, and how its batches of events ended."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.written: list[tuple[int, type]] = []

    def make_batch(self) -> EventBatch:
        return EventBatch(
            1000,
            lambda count, trouble: self.written.append((count, type(trouble))),
            [Event("drained"), Event("drained")],
            [("job", "mail", 1, 1000, 1250, 250)],
        )


class TestHints:
    """A message comes to each subscriber, also to the one that has published it."""

    async def test_a_backlog_hint_comes_once(self, bench: Bench) -> None:
        heard: list[str] = []
        assert await bench.broker.try_to_subscribe_to_backlog_hints(lambda: heard.append("backlog"))
        bench.broker.publish_backlog_hint()
        await eventually(lambda: heard)
        assert heard == ["backlog"]

    async def test_a_due_hint_says_in_how_many_seconds(self, bench: Bench) -> None:
        heard: list[float] = []
        assert await bench.broker.try_to_subscribe_to_due_hints(heard.append)
        bench.broker.publish_due_hint(1500)
        bench.broker.publish_due_hint(0)
        await eventually(lambda: len(heard) == 2)
        assert heard == [1.5, 0.0]

    async def test_a_hint_without_a_subscriber_is_lost(self, bench: Bench) -> None:
        heard: list[float] = []
        await bench.broker.read_server_time_ms()
        bench.broker.publish_backlog_hint()
        bench.broker.publish_due_hint(1500)
        assert await bench.broker.try_to_subscribe_to_due_hints(heard.append)
        bench.broker.publish_due_hint(20)
        await eventually(lambda: heard)
        assert heard == [0.02]

    async def test_a_pause_hint_comes_from_outside(self, bench: Bench) -> None:
        heard: list[str] = []
        assert await bench.broker.try_to_subscribe_to_pause_and_cancel_hints(lambda: heard.append("pause"))
        await bench.broker.read_server_time_ms()
        await bench.publish_pause_hint()
        await eventually(lambda: heard)
        assert heard == ["pause"]


class TestReporting:
    async def test_progress_is_stored_and_answered(self, bench: Bench) -> None:
        got = Replies()
        await bench.broker.read_server_time_ms()
        for percent in (10, 20):
            bench.broker.send_progress("job", percent, LEASE_MS, got.replies.append)
        await eventually(lambda: len(got.replies) == 2)
        assert not [reply for reply in got.replies if isinstance(reply, RedisTrouble)]
        assert (await bench.progress_of("job"), await bench.progress_of("other")) == (20, None)

    async def test_a_line_of_a_log_is_stored_and_answered_twice(self, bench: Bench) -> None:
        """Once as a line, once for how long the log is kept."""
        got = Replies()
        await bench.broker.read_server_time_ms()
        for line in ("first", "second"):
            bench.broker.send_log_line("job", line, 10, LEASE_MS, got.replies.append)
        await eventually(lambda: len(got.replies) == 4)
        assert not [reply for reply in got.replies if isinstance(reply, RedisTrouble)]
        assert (await bench.log_of("job"), await bench.log_of("other")) == (["first", "second"], [])

    async def test_each_kind_of_event_is_counted_when_it_is_written(self, bench: Bench) -> None:
        got = Replies()
        await bench.broker.read_server_time_ms()
        bench.broker.write_or_drop_events(got.make_batch())
        await eventually(lambda: len(got.written) == 2)
        assert got.written == [(2, NoneType), (1, NoneType)]
        assert await bench.event_kinds() == ["drained", "drained", "active", "completed"]

    async def test_the_queue_is_registered_more_than_once_without_harm(self, bench: Bench) -> None:
        assert not await bench.is_registered()
        for _ in range(2):
            await bench.broker.register_queue_or_log_refusal()
            assert await bench.is_registered()

    async def test_reports_without_a_connection_are_lost_at_once(self, bench: Bench) -> None:
        got = Replies()
        await bench.broker.read_server_time_ms()
        await bench.broker.close()
        bench.broker.send_progress("job", 10, LEASE_MS, got.replies.append)
        bench.broker.send_log_line("job", "line", 10, LEASE_MS, got.replies.append)
        bench.broker.write_or_drop_events(got.make_batch())
        bench.broker.request_client_count(got.replies.append)
        *lost, count = got.replies
        assert ([type(reply) for reply in lost], count) == ([ConnectionLost] * 3, None)
        assert got.written == [(3, ConnectionLost)]


class TestConnection:
    async def test_a_connected_broker_says_so_until_it_is_closed(self, bench: Bench) -> None:
        await bench.broker.read_server_time_ms()
        assert (bench.broker.is_connected, bench.broker.is_congested) == (True, False)
        assert bench.broker.client_id is not None
        assert bench.broker.server_address
        assert await bench.broker.read_queue_flags() == (False, False)
        assert not await bench.broker.read_cancellations_and_remove_outdated()
        await bench.broker.close()
        assert (bench.broker.is_connected, bench.broker.is_congested) == (False, False)
        assert bench.broker.client_id is None
        assert bench.broker.server_address == ""

    async def test_clients_are_counted_once_for_each_request(self, bench: Bench) -> None:
        counts: list[int | None] = []
        await bench.broker.read_server_time_ms()
        for _ in range(2):
            bench.broker.request_client_count(counts.append)
        await eventually(lambda: len(counts) == 2)
        assert all(count is not None and count >= 1 for count in counts)

    async def test_calls_are_answered_within_a_timeout_that_is_set_later(self, bench: Bench) -> None:
        before_ms = await bench.broker.read_server_time_ms()
        bench.broker.set_timeout(30)
        assert await bench.broker.read_server_time_ms() >= before_ms

    async def test_a_read_is_unblocked_only_by_its_number_and_at_its_own_server(self, bench: Bench) -> None:
        await bench.broker.read_server_time_ms()
        client_id, address = bench.broker.client_id, bench.broker.server_address
        assert client_id is not None
        assert await bench.broker.try_to_unblock_read(client_id, address)
        assert not await bench.broker.try_to_unblock_read(client_id, "elsewhere:6379")
        assert not await bench.broker.try_to_unblock_read(0, address)


def called_methods(path: Path) -> set[str]:
    """What is named as an attribute of something that is called `broker`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "broker"
    }


def test_each_public_method_of_the_memory_broker_is_compared_with_the_real_one() -> None:
    pages = (Path(__file__), Path(__file__).with_name("test_memory_broker.py"), Path(broker_bench.__file__))
    compared = set[str]().union(*map(called_methods, pages))
    own = {name for kind in MemoryBroker.__mro__ if kind.__module__.startswith("tests.") for name in vars(kind)}
    public = {name for name in own if not name.startswith("_")} - HOOKS
    assert len(public) > 40
    assert public - compared == set()
    assert [name for name in public if not hasattr(Broker, name)] == []
