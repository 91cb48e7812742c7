"""Fakes of surface brokers, which answer as the test says.

tests/integration/test_fake_surfaces.py holds that the real ones answer in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pychasqui._redis.repeatables import DueRepeatables, DueSpec, FireDecision
from pychasqui.errors import RedisTrouble


class FakeRepeats:
    """A RepeatablesBroker that answers with `found`; `meanwhile` happens while a call is on its way."""

    def __init__(self, now_ms: int) -> None:
        self.found = DueRepeatables(True, now_ms, -1, [])
        self.fired: list[list[FireDecision]] = []
        self.aside: list[tuple[DueSpec, str]] = []
        self.refusal: str | None = ""
        self.moves = True
        self.releases = 0
        self.asked_for: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def try_to_lead_and_list_due(self, holder: str, lease_ms: int, batch: int) -> DueRepeatables:
        self.asked_for.append(batch)
        return self.found

    async def fire_those_unchanged(self, fires: list[FireDecision]) -> list[bool]:
        self.fired.append(fires)
        self.meanwhile()
        return [self.moves] * len(fires)

    async def release_scheduler_lease_if_held(self, holder: str) -> None:
        self.releases += 1

    async def try_to_bury_repeatable(self, due: DueSpec, detail: str, now_ms: int) -> str | None:
        self.aside.append((due, detail))
        return self.refusal


class FakeResults:
    """Stored results and recent events, as ResultsBroker and EventsBroker read them."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.recent: list[list[Any]] = []
        self.asked: list[list[str]] = []
        self.troubles: list[RedisTrouble] = []

    async def read_results(self, job_ids: list[str]) -> list[bytes | None]:
        self.asked.append(list(job_ids))
        await asyncio.sleep(0)
        return [self.stored.get(job_id) for job_id in job_ids]

    async def read_newest_events(self, count: int) -> list[list[Any]]:
        if self.troubles:
            raise self.troubles.pop()
        return self.recent[-count:]
