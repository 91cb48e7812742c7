"""Runs in the official package's own environment: stores repeatables, or lists what is stored.

Standard input is a JSON list of what `upsert_repeatable` takes, payloads as hex; standard output is a JSON list with
the error of each, or null. Without input, it lists all repeatables of the queue.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import chasquimq  # type: ignore[import-not-found]

AT_ONCE = 200


async def main() -> None:
    redis_url, queue_name = sys.argv[1:]
    producer = chasquimq.Producer(redis_url, queue_name)
    text = sys.stdin.read()
    if not text:
        answer = await producer.list_repeatable(100_000)
    else:
        answer = []
        wanted = json.loads(text)
        for start in range(0, len(wanted), AT_ONCE):
            answer += await asyncio.gather(*[upsert(producer, spec) for spec in wanted[start : start + AT_ONCE]])
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # without the interpreter's own end, where the official engine sometimes crashes


async def upsert(producer: Any, spec: dict[str, Any]) -> str | None:
    try:
        await producer.upsert_repeatable({**spec, "payload": bytes.fromhex(spec["payload"])})
    except Exception as error:  # noqa: BLE001  any it is, the test should know
        return f"{type(error).__name__}: {error}"
    return None


asyncio.run(main())
