"""Waits until there is nothing left to do for a worker: how a burst ends."""

from __future__ import annotations

import asyncio

from .._core.limits import RELEASED
from .._redis.broker import Broker
from .._redis.inspector import InspectorBroker
from .._redis.keys import Keys
from ..errors import RedisTrouble
from .outage import Outage
from .shared import Shared

LOOK_EVERY_S = 0.1


async def wait_until_idle(broker: Broker, keys: Keys, shared: Shared) -> None:
    """Returns once no job waits or is due, and this worker holds none. What others run is not waited for."""
    inspector = InspectorBroker(broker, keys, shared.group)
    name = f"worker {shared.consumer}"
    outage = Outage(f"{name} cannot see whether jobs wait", f"{name} sees again whether jobs wait")
    while True:
        try:
            is_idle = await _check_if_idle(broker, inspector, shared)
        except RedisTrouble as error:
            await asyncio.sleep(outage.record_error_and_choose_pause_s(error))
            continue
        outage.end()
        if is_idle:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _check_if_idle(broker: Broker, inspector: InspectorBroker, shared: Shared) -> bool:
    """A paused queue has nothing to do. Looks from where jobs come to where they go, so that none slips past."""
    _, due_for_ms = await broker.count_delayed_and_read_overdue_ms()
    if not shared.is_paused.is_set and (due_for_ms or await inspector.read_waiting_page("", 1)):
        return False
    holders = await broker.count_held_entries_by_consumer(shared.group)
    own, released = holders.get(shared.consumer.encode(), 0), holders.get(RELEASED.encode(), 0)
    return own == 0 and (released == 0 or shared.is_paused.is_set)
