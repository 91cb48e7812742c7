"""Every command of the official binary, with its flags, says of a queue what the official package sees in it.

The wheel has no binary. What the binary shows it reads by the commands that `inspected` sends, and by the calls of the
package: peek_dlq, replay_dlq, the list of repeatables and the events.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis.asyncio

from tests.cli.conftest import COMMAND, plain_environment
from tests.interop.official import Official
from tests.interop.test_dead_letters import bury_there
from tests.interop.wire import Wire


async def run(*arguments: str, url: str) -> str:
    """What the command writes to standard output."""
    pipe = asyncio.subprocess.PIPE
    words = (*COMMAND, *arguments, "--redis-url", url)
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, env=plain_environment())
    out, error = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, error.decode()
    return out.decode()


async def answer(*arguments: str, url: str) -> Any:
    return json.loads(await run(*arguments, "--json", url=url))


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


@pytest.fixture
async def busy(official: Official, wire: Wire, queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[str]:
    """A queue of the official package with something of everything."""
    for number in range(3):
        await official.add(f"dies-{number}", number)
    await bury_there(official, wire, 3, gives_up=True, events_enabled=True)
    await official.add_bulk([{"name": "waits", "data": number} for number in range(5)])
    await official.add("later", 1, "delay_ms=3_600_000")
    await official.upsert("tick", 1, "repeat=RepeatPattern.every(3_600_000), limit=7")
    await official.upsert("night", 2, "repeat=RepeatPattern.cron('0 3 * * *', tz='Europe/Berlin')")
    stream = f"{{chasqui:{queue_name}}}:stream"
    await witness.xreadgroup("default", "reader", {stream: ">"}, count=2)
    yield queue_name
    await witness.flushall()


async def inspected(official: Official, witness: redis.asyncio.Redis, queue: str) -> dict[str, Any]:
    """By the pipeline of the official binary, on the keys of the official package."""
    stream, delayed, dead = await official.keys()
    first = await witness.zrange(delayed, 0, 0, withscores=True)
    seconds, _ = await witness.time()
    return {
        "queue": queue,
        "stream_depth": await witness.xlen(stream),
        "pending": (await witness.xpending(stream, "default"))["pending"],
        "group_exists": True,
        "dlq_depth": await witness.xlen(dead),
        "delayed_depth": await witness.zcard(delayed),
        "oldest_delayed_lag_ms": max(0, seconds * 1000 - int(first[0][1])),
        "repeatable_count": len(await official.listed()),
    }


async def test_inspect_and_watch_have_the_official_facts(
    official: Official, busy: str, witness: redis.asyncio.Redis, redis_url: str
) -> None:
    there = await inspected(official, witness, busy)
    assert (there["stream_depth"], there["pending"], there["dlq_depth"], there["repeatable_count"]) == (5, 2, 3, 2)
    here = await answer("inspect", busy, "--group", "default", url=redis_url)
    assert here["queues"] == [there]
    words = (*COMMAND, "watch", busy, "--interval-ms", "50", "--json", "--redis-url", redis_url)
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, env=plain_environment())
    assert process.stdout is not None
    for _ in range(2):
        seen = json.loads(await process.stdout.readline())
        assert {name: seen[name] for name in there} == there
    process.send_signal(signal.SIGINT)
    await process.communicate()


async def test_dlq_peek_and_replay_have_the_official_letters(official: Official, busy: str, redis_url: str) -> None:
    there = await official.peek_dlq(20)
    table, reasons = (await run("dlq", "peek", busy, "--limit", "20", url=redis_url)).split("\n\n")
    titles, *lines = rows(table)
    assert titles == ["dlq_id", "source_id", "name", "reason", "detail", "payload bytes"]
    assert [line[:4] for line in lines] == [
        [letter["dlq_id"], letter["source_id"], letter["name"], letter["reason"]] for letter in there
    ]
    assert [int(line[5]) for line in lines] == [len(letter["payload"]) for letter in there]
    counted = Counter(letter["reason"] for letter in there)
    assert dict(rows(reasons)[1:]) == {reason: str(count) for reason, count in counted.items()}
    assert await run("dlq", "replay", busy, "--limit", "2", "--yes", url=redis_url) == "replayed 2 of 2 entries\n"
    assert await official.peek_dlq(20) == there[2:]
    assert await run("dlq", "replay", busy, "--limit", "100", "--yes", url=redis_url) == "replayed 1 of 100 entries\n"
    assert await official.peek_dlq(20) == []


async def test_repeatable_list_and_remove_have_the_official_repeatables(
    official: Official, busy: str, redis_url: str
) -> None:
    there = await official.listed()
    titles, *lines = rows(await run("repeatable", "list", busy, "--limit", "100", url=redis_url))
    assert titles[:6] == ["key", "job_name", "pattern", "tz", "next fire", "limit"]
    found = {line[0]: line for line in lines}
    assert found.keys() == {key for key, *_ in there}
    for key, name, pattern, next_ms, limit in there:
        _, job_name, shown, tz, fires_at, bound = found[key][:6]
        assert (job_name, bound) == (name, "-" if limit is None else str(limit))
        assert (shown, tz) == (
            ("every 1 h", "-") if pattern["kind"] == "every" else (pattern["expression"], pattern["tz"])
        )
        assert datetime.fromisoformat(fires_at) == datetime.fromtimestamp(next_ms / 1000, UTC)
    key = there[0][0]
    assert await run("repeatable", "remove", busy, key, url=redis_url) == "removed\n"
    assert await official.listed() == there[1:]


async def test_events_have_the_official_fields(official: Official, busy: str, redis_url: str) -> None:
    lines = (await run("events", busy, "--from", "0", "--limit", "6", "--json", url=redis_url)).splitlines()
    here = [json.loads(line) for line in lines]
    there = await official.events(6)
    assert [(one["event"], one["job_id"], one["job_name"], one["fields"]) for one in here] == there
    (line, *_) = (await run("events", busy, "--from", "0", "--limit", "1", url=redis_url)).splitlines()
    kind, job_id, name, fields = there[0]
    moment, event_id, *words = line.split(" ")
    assert (moment, event_id) == (here[0]["at"], here[0]["event_id"])
    assert words[:3] == [kind, f"id={job_id}", f"name={name}"]
    assert words[3:] == [f"{field}={value}" for field, value in sorted(fields.items())]
