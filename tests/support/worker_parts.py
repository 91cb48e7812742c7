"""The shared values of a worker, for tests that make some of its parts."""

from __future__ import annotations

from typing import Any, cast

from pychasqui import Worker
from pychasqui._core.defaults import READ_COUNT
from pychasqui._worker.batch_sizes import BatchSizes
from pychasqui._worker.living_workers import LivingWorkers
from pychasqui._worker.shared import Holdings, Lease, OnDeath, Shared


def ignore_death(title: str, error: BaseException) -> None:
    """For parts whose death the test does not look at."""


def make_shared(
    concurrency: int = 1,
    *,
    consumer: str = "a",
    holdings: Any = None,
    lease_until: float = float("inf"),
    on_death: OnDeath = ignore_death,
    living_workers: LivingWorkers | None = None,
    read_count: int = READ_COUNT,
    writes_events: bool = False,
) -> Shared:
    """Shared values under a lease that holds. `holdings` may be a fake."""
    return Shared(
        group="default",
        consumer=consumer,
        holdings=Holdings(concurrency, consumer) if holdings is None else cast(Holdings, holdings),
        on_death=on_death,
        batch_sizes=BatchSizes(read_count, writes_events=writes_events),
        lease=Lease(lease_until),
        living_workers=living_workers or LivingWorkers(),
    )


def heeds_pause(worker: Worker) -> bool:
    """Whether a worker knows of a pause, has ended its read and has handed back what it had not started."""
    parts = worker._components
    return (
        parts is not None
        and parts.shared.is_paused.is_set
        and not parts.intake.is_expecting
        and not parts.lanes.waiting_count
    )
