"""A round: jobs are added, hostile writes happen, ruined keys are cleared, and every part must go on.

What must hold:
  no part dies     the worker, promoter, scheduler, exporter and subscriber live, and no task ends unseen
  readers answer   each public reader returns, or raises one of pychasqui's own errors
  no job is lost   a job that was added before the writes runs, unless its key is ruined
  no job is stuck  jobs that are added after the ruined keys are cleared run, in every way, and have events
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import redis.asyncio

from pychasqui._redis.keys import Keys
from pychasqui.errors import ChasquiError
from pychasqui.job import Job
from tests.hostile.stage import DEADLY, TICK, Alarm, HostileStage
from tests.hostile.writes import PLACES, Write, random_write

KINDS = ("now", "later", "again", "only", DEADLY)
SWEEP_EVERY = 20
PATIENCE_S = 15.0
# A job of this kind may be gone if one of these keys was ruined while it was on its way.
EXCUSES = {
    "now": {"stream"},
    "only": {"stream"},
    "later": {"stream", "delayed"},
    "again": {"stream", "delayed"},
    DEADLY: {"stream", "dlq"},
}


@dataclass
class Outcome:
    seed: str
    writes: list[str]
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def run_round(
    stage: HostileStage, client: redis.asyncio.Redis, alarm: Alarm, seed: str, patience_s: float = PATIENCE_S
) -> Outcome:
    rng = random.Random(seed)
    began = monotonic()
    before = {kind: await stage.add(kind) for kind in KINDS}
    target = await stage.target(client, [job.id for _, job in before.values()])
    writes = [random_write(rng, target) for _ in range(rng.choice((1, 1, 2, 4, 8)))]
    outcome = Outcome(seed, [write.about for write in writes])
    problems = outcome.problems
    for write in writes:
        await _send(client, write)
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() * 0.05)
    ruins = frozenset[str]().union(*(write.ruins for write in writes))
    waiter = asyncio.create_task(stage.queue.wait_for_result(before["now"][1].id, timeout=0.5))
    problems += await _read_all(stage, rng.choice(target.job_ids))
    await _clear(client, target.keys, ruins)
    problems += await _problem_of("wait_for_result", waiter)
    await _forget_foreign_repeatables(client, target.keys)
    problems += stage.deaths()  # a part that has died is started again, so that its death is one problem and not many
    problems += await _after(stage, patience_s)
    problems += await _lost(stage, client, before, ruins, patience_s)
    problems += stage.deaths() + alarm.take()
    outcome.seconds = monotonic() - began
    return outcome


async def _send(client: redis.asyncio.Redis, write: Write) -> None:
    for words in write.commands:
        with suppress(redis.exceptions.ResponseError):
            await client.execute_command(*words)


async def _read_all(stage: HostileStage, job_id: str) -> list[str]:
    readers = stage.readers(job_id)
    found = await asyncio.gather(*readers.values(), return_exceptions=True)
    return [
        f"{name} raised {type(error).__name__}: {error!s:.200}"
        for name, error in zip(readers, found, strict=True)
        if isinstance(error, BaseException) and not isinstance(error, ChasquiError)
    ]


async def _problem_of(name: str, waiting: asyncio.Task[Any]) -> list[str]:
    try:
        await waiting
    except (ChasquiError, TimeoutError):
        return []
    except BaseException as error:  # noqa: BLE001  the round reports any error
        return [f"{name} raised {type(error).__name__}: {error!s:.200}"]
    return []


async def _clear(client: redis.asyncio.Redis, keys: Keys, ruins: frozenset[str]) -> None:
    """Removes the ruined keys, as an operator would."""
    for place in sorted(ruins):
        found = [key async for key in client.scan_iter(match=f"{keys.prefix}:{place}*", count=1000)]
        exact = [key for key in found if _place(keys, key) == place]
        if exact:
            await client.delete(*exact)


def _place(keys: Keys, key: bytes) -> str | None:
    rest = key.decode("utf-8", "replace").removeprefix(keys.prefix + ":")
    fits = [place for place in PLACES if rest == place or rest.startswith(f"{place}:")]
    return max(fits, key=len, default=None)


async def _forget_foreign_repeatables(client: redis.asyncio.Redis, keys: Keys) -> None:
    """Removes foreign repeatables: a valid one would fire for ever."""
    for zset in (keys.repeat, keys.repeat_paused):
        with suppress(redis.exceptions.ResponseError):
            for member in await client.zrange(zset, 0, -1):
                if member != TICK.encode():
                    await client.zrem(zset, member)


async def _after(stage: HostileStage, patience_s: float) -> list[str]:
    """Every way that a job can take is open again."""
    deadline = monotonic() + patience_s
    try:
        await stage.upsert_tick()
        stage.ticks.clear()
        added = {kind: await _add(stage, kind, deadline) for kind in KINDS}
    except ChasquiError as error:
        return [f"stuck: nothing can be added: {type(error).__name__}: {error!s:.200}"]
    expected = {job.id for kind, (_, job) in added.items() if kind != DEADLY}  # unless their events were dropped

    def missing() -> list[str]:
        late = [f"a job of kind {kind}" for kind, (token, _) in added.items() if not stage.ran[token]]
        return [
            *late,
            *(["a repeatable"] if not stage.ticks else []),
            *(["events"] if not late and not (expected | stage.ticks) & stage.seen else []),
        ]

    while missing() and monotonic() < deadline:
        await asyncio.sleep(0.01)
    problems = [f"stuck: {what} within {patience_s:g} s" for what in missing()]
    for path in ("/healthz", "/readyz", "/metrics"):
        async with asyncio.timeout(40):
            status = await stage.fetch(path)
        if status != 200:
            problems.append(f"stuck: {path} answers {status}")
    stage.seen.clear()
    return problems


async def _add(stage: HostileStage, kind: str, deadline: float) -> tuple[str, Job]:
    """Adds jobs; a key that was ruined a moment ago may seem so for a moment more."""
    while True:
        try:
            return await stage.add(kind)
        except ChasquiError:
            if monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def _lost(
    stage: HostileStage,
    client: redis.asyncio.Redis,
    before: dict[str, tuple[str, Job]],
    ruins: frozenset[str],
    patience_s: float,
) -> list[str]:
    """Jobs from before the writes that have neither run nor an excuse, once they had all the time there is."""
    owed = {kind: token for kind, (token, _) in before.items() if not EXCUSES[kind] & ruins}
    deadline = monotonic() + patience_s
    while any(not stage.ran[token] for token in owed.values()) and monotonic() < deadline:
        await asyncio.sleep(0.01)
    lost = [f"lost: a job of kind {kind}" for kind, token in owed.items() if not stage.ran[token]]
    if not lost and DEADLY in owed:
        dead = before[DEADLY][1].id.encode()
        while not await _has_letter(client, stage, dead) and monotonic() < deadline:
            await asyncio.sleep(0.01)
        if not await _has_letter(client, stage, dead):
            lost.append("lost: the letter of a dead job")
    return lost


async def _has_letter(client: redis.asyncio.Redis, stage: HostileStage, job_id: bytes) -> bool:
    letters = await client.xrevrange(Keys(stage.queue.name).dead, count=500)
    return any(job_id in word for _, fields in letters for word in (fields or {}).values())


async def sweep(stage: HostileStage, client: redis.asyncio.Redis) -> None:
    """Begin with an empty queue again, so that a thousand rounds leave no more behind than twenty."""
    keys = [key async for key in client.scan_iter(match=f"{Keys(stage.queue.name).prefix}:*", count=1000)]
    if keys:
        await client.delete(*keys)
    stage.ran.clear()
