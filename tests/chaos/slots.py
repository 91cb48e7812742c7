"""Adds jobs while the slot of their queue opens and closes: `python -m tests.chaos --slots 100000`.

Again and again some of its keys move to another node, and after a moment the others follow; or none moves, and the slot
closes where it was. Each add has little time, and a part of them is refused. No job may run whose add raised anything
but AddUnknown, none that was added may be lost, and none may run twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pychasqui import AddUnknown
from pychasqui._redis.topology.node_map import compute_slot_of_key
from tests.support.cluster import ClusterServers
from tests.support.traffic import Traffic

ADDERS = 32
TIMEOUT_S = 0.3  # of an add
OPEN_S = (0.0, 0.5)
CLOSED_S = (0.2, 0.6)  # between two openings
MOST_KEYS = 8  # that move when the slot opens
END_S = 60


@dataclass
class SlotFigures:
    openings: int
    added: int
    unknown: int
    refused: int
    refusals: dict[str, int]  # by the type of the error
    refused_and_ran: int
    lost: int
    twice: int

    @property
    def is_bad(self) -> bool:
        return bool(self.refused_and_ran or self.lost or self.twice)

    def __str__(self) -> str:
        return (
            f"{self.openings} openings of the slot, {self.added} added, {self.unknown} unknown, {self.refused} refused "
            f"{self.refusals}, {self.refused_and_ran} of them ran, {self.lost} lost, {self.twice} twice"
        )


async def add_while_slots_move(adds: int, seed: int) -> SlotFigures:
    draw = random.Random(seed)
    with ClusterServers() as cluster:
        name = cluster.queue_name(0)
        traffic = Traffic(name, cluster.url, adders=ADDERS, timeout_s=TIMEOUT_S, is_varied=True)
        openings = 0
        async with traffic:
            while len(traffic.added) + len(traffic.refused) < adds:
                await asyncio.to_thread(_open_and_close, cluster, compute_slot_of_key(f"{{chasqui:{name}}}"), draw)
                openings += 1
                await asyncio.sleep(draw.uniform(*CLOSED_S))
            await traffic.stop_adding()
            await traffic.try_to_end(END_S)
        return _count(traffic, openings)


def _open_and_close(cluster: ClusterServers, slot: int, draw: random.Random) -> None:
    here = cluster.master_of(slot)
    there = draw.choice([node for node in cluster.nodes[:3] if node is not here])
    keys = draw.choice((0, draw.randint(1, MOST_KEYS)))
    cluster.open_slot(slot, there, keys=keys)
    time.sleep(draw.uniform(*OPEN_S))
    if keys:
        cluster.move_slot(slot, there)
    else:
        cluster.close_slot(slot, here, there)


def _count(traffic: Traffic, openings: int) -> SlotFigures:
    unknown = sum(isinstance(error, AddUnknown) for error in traffic.refused.values())
    kinds: Counter[Any] = Counter(type(error).__name__ for error in traffic.refused.values())
    return SlotFigures(
        openings=openings,
        added=len(traffic.added),
        unknown=unknown,
        refused=len(traffic.refused) - unknown,
        refusals=dict(kinds),
        refused_and_ran=len(traffic.wrongly_refused),
        lost=len(traffic.lost),
        twice=len(traffic.twice),
    )
