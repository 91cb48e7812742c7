"""Takes over what dead workers held, and what this one was sent but never got.

Workers of our kind hold a lease. One that has left is relieved at once; one whose lease is over only after it has been
seen so twice, a renewal apart: when Redis itself was away, every lease is over for a moment, and the living renew
theirs first. Consumers of other kinds have no lease and are judged by how long their entries lie idle.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Protocol

from .._redis.broker import Broker
from .._redis.replies import Claimed
from ..config import SCAN_S
from ..errors import RedisTrouble
from .service import Service

log = logging.getLogger("chasqui.worker")

PAGE = 500
SWEEP_S = 10.0


class Intake(Protocol):
    """Where claimed entries go: decoded there, and offered to the lanes."""

    def room(self) -> int: ...
    def take(self, entries: list[Claimed]) -> None: ...


class Reclaimer(Service):
    title = "reclaimer"

    def __init__(
        self,
        broker: Broker,
        group: str,
        consumer: str,
        *,
        intake: Intake,
        claim_min_idle_ms: int,
        renew_s: float,
    ) -> None:
        super().__init__()
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._intake = intake
        self._claim_min_idle_ms = claim_min_idle_ms
        self._renew_s = renew_s
        self._suspects: dict[bytes, tuple[float, float]] = {}  # consumer -> lease, when it was first seen over
        self._sweep_at = monotonic() + SWEEP_S

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                await self._scan()
            except RedisTrouble as error:
                log.debug("the scan for abandoned entries comes later: %s", error)
            await self._sleep(SCAN_S * random.uniform(0.8, 1.0))

    async def _scan(self) -> None:
        holders = await self._broker.holders(self._group)
        holders.pop(self._consumer.encode(), None)
        sweeps = monotonic() >= self._sweep_at  # also for names that hold nothing, so that they do not pile up
        if not (holders or sweeps) or self._intake.room() <= 0:
            return
        leases = await self._broker.leases()
        if sweeps:
            self._sweep_at = monotonic() + SWEEP_S
        watched = leases.keys() | holders.keys() if sweeps or self._suspects else holders.keys()
        self._suspects = over_leases(watched, leases, await self._broker.now_ms(), self._suspects, monotonic())
        for consumer, (lease, since) in self._suspects.items():
            if lease == 0 or monotonic() - since >= 1.5 * self._renew_s:
                await self._relieve(consumer, lease)
        if holders.keys() - leases.keys() and (room := self._intake.room()) > 0:
            idle = await self._broker.claim_idle(self._group, self._consumer, self._claim_min_idle_ms, min(room, PAGE))
            self._accept(idle, "consumers without a lease")

    async def _relieve(self, consumer: bytes, lease: float) -> None:
        while (room := self._intake.room()) > 0:
            taken = await self._broker.take_over(self._group, self._consumer, consumer, lease, min(room, PAGE))
            if not taken:
                return
            self._accept(taken, f"worker {consumer.decode('utf-8', 'replace')}")

    def _accept(self, taken: list[Claimed], source: str) -> None:
        if taken:
            log.warning("worker %s has taken over %d entries of %s", self._consumer, len(taken), source)
            self._intake.take(taken)


def over_leases(
    holders: Iterable[bytes],
    leases: Mapping[bytes, float],
    now_ms: int,
    before: Mapping[bytes, tuple[float, float]],
    now: float,
) -> dict[bytes, tuple[float, float]]:
    """Holders whose lease is over, each with that lease and since when it has been seen so."""
    suspects: dict[bytes, tuple[float, float]] = {}
    for consumer in holders:
        lease = leases.get(consumer)
        if lease is not None and lease < now_ms:
            seen_lease, since = before.get(consumer, (lease, now))
            suspects[consumer] = (lease, since if seen_lease == lease else now)
    return suspects
