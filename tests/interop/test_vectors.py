"""The official package writes the bytes of docs/reference/vectors.json that are marked as official."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis.asyncio

from tests.interop.official import Official
from tests.interop.wire import Wire, split, timeless
from tests.support.server import PROJECT

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((PROJECT / "docs" / "reference" / "vectors.json").read_text())


def official(section: str) -> list[Any]:
    return [pytest.param(vector, id=vector["about"][:60]) for vector in VECTORS[section] if vector["official"]]


@pytest.mark.parametrize("vector", official("envelope"))
async def test_an_envelope_has_these_bytes(
    official: Official, wire: Wire, witness: redis.asyncio.Redis, vector: dict[str, Any]
) -> None:
    await official.add("mail", vector["data"], vector["options"])
    (entry,) = await wire.entries()
    assert timeless(entry[b"d"]) == timeless(bytes.fromhex(vector["hex"]))
    assert entry[b"n"] == b"mail"
    await witness.delete(wire.stream)


@pytest.mark.parametrize("vector", official("member"))
async def test_a_delayed_member_has_these_bytes(official: Official, wire: Wire, vector: dict[str, Any]) -> None:
    job_id = "dly-1" if vector["name"] else "dly-2"
    await official.add(vector["name"], {"x": 1}, f"job_id={job_id!r}, delay_ms=60_000")
    (member,) = await wire.members()
    stored, expected = split(member), split(bytes.fromhex(vector["hex"]))
    assert (stored[0], timeless(stored[1])) == (expected[0], timeless(expected[1]))
    assert member[:4] == bytes.fromhex(vector["hex"])[:4]
    assert await official.cancel_delayed(job_id)


@pytest.mark.parametrize("vector", official("repeatable"))
async def test_a_repeatable_has_these_bytes(
    official: Official, witness: redis.asyncio.Redis, queue_name: str, vector: dict[str, Any]
) -> None:
    pattern = vector["pattern"]
    repeat = (
        f"RepeatPattern.every({pattern['every']})"
        if "every" in pattern
        else f"RepeatPattern.cron({pattern['cron']!r}, tz={pattern['tz']!r})"
    )
    policies = {"skip": "MissedFiresPolicy.skip()", "fire-once": "MissedFiresPolicy.fire_once()"}
    missed = policies.get(vector["missed_fires"], f"MissedFiresPolicy.fire_all({vector['missed_fires']})")
    options = f"repeat={repeat}, missed_fires={missed}, limit={vector['limit']}"
    options += f", start_after_ms={vector['start_after_ms']}, end_before_ms={vector['end_before_ms']}"
    await official.upsert(vector["job_name"], vector["data"], options)
    stored = await witness.hget(f"{{chasqui:{queue_name}}}:repeat:spec:{vector['key']}", "spec")
    assert stored == bytes.fromhex(vector["hex"])
    assert await official.remove_repeatable(vector["key"])
