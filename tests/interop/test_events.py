"""Events of both kinds in one stream: the same fields in the same order for the same jobs, read by both subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Queue, QueueEvents, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler
from tests.interop.wire import Wire
from tests.support.waiting import eventually

OURS = ("stored", "error_type", "error")  # what our events say beyond the official ones
ALWAYS = range(1000)
Told = list[tuple[str, str]]


@dataclass(frozen=True)
class Story:
    """A job, how its handler behaves, and the event that is its last."""

    last: str
    waits: int = 0  # how often the job is promoted
    name: str = "wörk"
    fails: Sequence[int] = ()
    gives_up: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    entry: dict[str, bytes] = field(default_factory=dict)  # instead of a job: what is put into the stream


STORIES = {
    "done": Story("completed"),
    "done without a name": Story("completed", name=""),
    "failed once": Story("completed", 1, fails=[0], options={"backoff": 1}),
    "failed to the end": Story("dlq", 1, fails=ALWAYS, options={"attempts": 2, "backoff": 1}),
    "gave up": Story("dlq", gives_up=True),
    "delayed": Story("completed", 1, options={"delay_ms": 20}),
    "not a job": Story("dlq", entry={"d": b"\xc1", "n": b"bad"}),
    "without a body": Story("dlq", entry={"x": b"1"}),
    "runs used up": Story("dlq", entry={"d": b"\x94\xa1j\xc4\x01\x01\x01\x09", "n": b"spent"}),
}


@pytest.fixture
def key(queue_name: str) -> str:
    return f"{{chasqui:{queue_name}}}:events"


async def events_of(witness: Any, key: str) -> list[dict[str, str]]:
    entries = await witness.xrange(key)
    events = [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]
    return [event for event in events if event["e"] != "drained"]


def comparable(events: list[dict[str, str]]) -> list[Told]:
    """Sorted by kind and attempt, because the order of writing differs, and without times."""
    comparable_events = []
    for event in events:
        for measured in ("ts", "duration_us", "backoff_ms"):
            if measured in event:
                assert event[measured].isdigit()
                event = {**event, measured: "some"}
        if event["id"]:
            event = {**event, "id": "one"}
        if event["e"] == "waiting":
            event.pop("n", None)  # ours say it
        comparable_events.append([(name, value) for name, value in event.items() if name not in OURS])
    return sorted(comparable_events, key=lambda pairs: (pairs[0], dict(pairs).get("attempt", "")))


@pytest.mark.parametrize("kind", STORIES)
async def test_both_kinds_write_the_same_fields_and_values_in_the_same_order(
    official: Official, queue: Queue, wire: Wire, redis_url: str, queue_name: str, witness: Any, key: str, kind: str
) -> None:
    story = STORIES[kind]

    async def begin() -> None:
        if story.entry:
            await wire.put(**story.entry)
        else:
            await queue.add(story.name, 1, **story.options)

    async def end() -> list[dict[str, str]]:
        await eventually(lambda: _has(witness, key, story.last))
        await eventually(lambda: _has(witness, key, "waiting", story.waits))  # theirs may come late
        events = await events_of(witness, key)
        await eventually(lambda: _is_empty(queue))
        await wire.clear()
        await witness.delete(key)
        return events

    await official.work(fails=list(story.fails)[:5], gives_up=story.gives_up, events_enabled=True, max_attempts=5)
    await begin()
    theirs = await end()
    await official.stop_working()
    handler = Handler(fails=story.fails, gives_up=story.gives_up)
    async with Worker(queue_name, handler, redis_url=redis_url, max_attempts=5):
        await begin()
        ours = await end()
    assert comparable(ours) == comparable(theirs)
    assert ours


async def test_both_subscribers_see_the_same_events_of_both_workers(
    official: Official, queue: Queue, redis_url: str, queue_name: str, witness: redis.asyncio.Redis, key: str
) -> None:
    await official.work(fails=[0], events_enabled=True)
    await queue.add("wörk", 1, backoff=1)
    await eventually(lambda: _has(witness, key, "completed"))
    await official.stop_working()
    async with Worker(queue_name, Handler(fails=[0]), redis_url=redis_url):
        await queue.add("", 2, backoff=1)
        await eventually(lambda: _has(witness, key, "completed", 2))
    count = await witness.xlen(key)
    theirs = await official.events(count)
    async with QueueEvents(queue_name, redis_url=redis_url, last_event_id="0") as events:
        seen = [await anext(events) for _ in range(count)]
    assert [(event.name, event.job_id, event.job_name, event.fields) for event in seen] == theirs
    assert {"active", "failed", "retry-scheduled", "waiting", "completed"} <= {event.name for event in seen}


async def _has(witness: Any, key: str, kind: str, times: int = 1) -> bool:
    return [event["e"] for event in await events_of(witness, key)].count(kind) >= times


async def _is_empty(queue: Queue) -> bool:
    counts = await queue.counts()
    return counts.waiting == counts.active == counts.delayed == 0
