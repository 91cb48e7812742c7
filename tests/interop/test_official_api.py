"""Code written for the official package runs here with another import line: every name, every argument."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
from functools import cache
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

import pychasqui
from pychasqui import BackoffSpec, Consumer, NotSupportedError, Producer, Queue, QueueEvents, Scheduler, Worker
from tests.interop.official import PYTHON
from tests.support.server import PROJECT
from tests.support.waiting import eventually

PROGRAM = PROJECT / "tests" / "interop" / "official_names.py"
NAMES = (
    "BackoffSpec",
    "Consumer",
    "Handler",
    "Job",
    "MissedFiresPolicy",
    "NotSupportedError",
    "Producer",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "RepeatPattern",
    "RepeatableMeta",
    "Scheduler",
    "UnrecoverableError",
    "Worker",
    "version",
)


@cache
def official_names() -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip("the official package is not installed")
    printed = subprocess.run([PYTHON, PROGRAM], capture_output=True, text=True, check=True).stdout
    names: dict[str, Any] = json.loads(printed)
    return names


def test_the_list_below_is_the_official_one() -> None:
    assert sorted(official_names()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there_with_everything_it_has_and_takes(name: str) -> None:
    theirs = official_names()[name]
    assert name in pychasqui.__all__
    ours = getattr(pychasqui, name)
    assert set(theirs["bases"]) - {name} <= {base.__name__ for base in getattr(ours, "__mro__", ())}
    if name != "Handler" and theirs["parameters"] is not None:
        assert not refused_arguments(ours, theirs["parameters"])
    for member, wanted in theirs["members"].items():
        assert hasattr(ours, member) or member in getattr(ours, "__annotations__", {}), f"{name}.{member}"
        own = getattr(ours, member, None)
        if wanted is not None and callable(own):
            assert not refused_arguments(own, wanted), f"{name}.{member}"


def refused_arguments(ours: Any, wanted: list[list[Any]]) -> list[str]:
    """Arguments that only the official function takes, or that only ours needs."""
    have = inspect.signature(ours).parameters
    kinds = {one.kind for one in have.values()}
    by_place = [one.name for one in have.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    trouble = []
    for place, (name, kind, _) in enumerate(wanted):
        if name.startswith("_") or name in ("self", "tb", "exc", "exc_type"):
            continue
        if name not in have and inspect.Parameter.VAR_KEYWORD not in kinds:
            trouble.append(f"takes no {name}")
        is_in_place = place < len(by_place) and by_place[place] == name
        if kind != "KEYWORD_ONLY" and not is_in_place and inspect.Parameter.VAR_POSITIONAL not in kinds:
            trouble.append(f"takes no {name} at place {place}")
    known = {name for name, _, _ in wanted}
    for one in have.values():
        is_needed = one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if is_needed and one.name not in known | {"self", "kind", "error", "trace"}:
            trouble.append(f"needs {one.name}")
    return trouble


def test_the_options_of_a_worker_may_be_none() -> None:
    async def handle(job: pychasqui.Job) -> None:
        pass

    wanted = official_names()["Worker"]["parameters"]
    optional = [
        name for name, kind, _ in wanted if kind == "KEYWORD_ONLY" and name.endswith(("_ms", "_count", "_bytes"))
    ]
    assert len(optional) >= 5
    nothing: dict[str, Any] = dict.fromkeys([*optional, "dlq_max_stream_len", "consumer_id"])
    worker = Worker("emails", handle, **nothing)
    assert worker._config == Worker("emails", handle, consumer_id=worker.consumer_id)._config


def test_small_helpers_exist_too() -> None:
    assert pychasqui.version() == pychasqui.__version__
    assert QueueEvents("emails").name == "emails"
    assert BackoffSpec.fixed(5).to_dict() == {"kind": "fixed", "delay_ms": 5}
    assert BackoffSpec.exponential(5, max_ms=9).to_dict() == {
        "kind": "exponential",
        "delay_ms": 5,
        "max_delay_ms": 9,
        "multiplier": 2.0,
    }
    assert issubclass(NotSupportedError, RuntimeError)


class TestProducerAndConsumer:
    async def test_bytes_go_in_and_bytes_come_out(self, redis_url: str, queue_name: str) -> None:
        producer = Producer(redis_url, queue_name, pool_size=4)
        consumer = Consumer(redis_url, queue_name, store_results=True)
        seen: list[tuple[str, bytes, int]] = []

        async def handle(job: Any) -> bytes | None:
            seen.append((job.name, job.payload, job.attempt))
            return msgpack.packb(len(seen))

        one = await producer.add(msgpack.packb({"a": [1, 2.5, None]}))
        await producer.add_with_options(msgpack.packb(2), {"id": "two", "name": "second", "retry": {"max_attempts": 2}})
        await producer.add_in(5, msgpack.packb(3))
        await producer.add_at_with_options(1, msgpack.packb(4), {"name": "long ago"})
        await producer.add_bulk_named([("five", msgpack.packb(5))])
        await producer.add_in_bulk(5, [msgpack.packb(6)])
        later = await producer.add_in_with_options(60_000, msgpack.packb(7), {"id": "later"})
        assert await producer.cancel_delayed_bulk([later, "none"]) == [True, False]
        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: len(seen) == 6)
        assert sorted(msgpack.unpackb(payload) for _, payload, _ in seen if payload[0] < 128) == [2, 3, 4, 5, 6]
        assert msgpack.packb({"a": [1, 2.5, None]}) in [payload for _, payload, _ in seen]
        await eventually(lambda: producer.get_result(one))
        assert await producer.get_result_bulk(["none"]) == [None]
        consumer.shutdown()
        await running
        await producer.shutdown()

    async def test_repeatables_and_dead_letters_have_the_official_shapes(self, redis_url: str, queue_name: str) -> None:
        producer = Producer(redis_url, queue_name)
        spec = {"key": "", "job_name": "again", "pattern": {"kind": "every", "interval_ms": 60_000}, "payload": b"\x01"}
        key = await producer.upsert_repeatable(spec | {"missed_fires": {"kind": "fire-once"}, "limit": 3})
        (listed,) = await producer.list_repeatable(10)
        assert listed.pop("next_fire_ms") > 0
        assert listed == {
            "key": key,
            "job_name": "again",
            "pattern": {"kind": "every", "interval_ms": 60_000},
            "limit": 3,
            "missed_fires": {"kind": "fire-once"},
        }
        assert await producer.remove_repeatable_by_key(key)
        assert await producer.peek_dlq(10) == []
        assert await producer.replay_dlq(10) == 0
        await producer.shutdown()

    @pytest.mark.parametrize("payload", (b"", b"\xc1", b'{"json": true}', b"\xc7\x01\x05x"))
    async def test_payloads_that_no_worker_could_read_are_refused_with_the_reason(
        self, redis_url: str, payload: bytes
    ) -> None:
        producer = Producer(redis_url, "emails")
        with pytest.raises(NotSupportedError, match="payload must be MessagePack"):
            await producer.add(payload)
        await producer.shutdown()


class TestScheduler:
    def test_a_scheduler_takes_both_orders_of_arguments(self) -> None:
        url = "redis://127.0.0.1:1"
        made = (
            Scheduler("emails", redis_url=url),
            Scheduler(url, "emails"),
            Scheduler(url, queue_name="emails"),
            Scheduler(queue_name="emails", redis_url=url, tick_interval_ms=50, batch=5, lock_ttl_secs=2),
        )
        for scheduler in made:
            assert scheduler.queue_name == "emails"
            assert str(scheduler._connector) == f"{url}/0"
        with pytest.raises(TypeError, match="queue_name"):
            Scheduler()

    async def test_shutdown_ends_the_run(self, redis_url: str, queue_name: str) -> None:
        scheduler = Scheduler(redis_url, queue_name, tick_interval_ms=20)
        running = asyncio.create_task(scheduler.run())
        await eventually(lambda: scheduler.is_running)
        scheduler.shutdown()
        await asyncio.wait_for(running, 40)

    async def test_a_repeatable_fires_under_it(self, redis_url: str, queue_name: str) -> None:
        async with Queue(queue_name, redis_url=redis_url) as queue, Scheduler(redis_url, queue_name):
            await queue.repeatables.upsert("again", repeat={"kind": "every", "interval_ms": 20}, limit=1)
            await eventually(lambda: _has_waiting(queue))
            await queue.obliterate()


async def _has_waiting(queue: Queue) -> bool:
    return (await queue.counts()).waiting == 1
