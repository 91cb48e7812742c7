"""WorkerHealth: what a worker knows of itself without counting, as plain values."""

from __future__ import annotations

from typing import NamedTuple


class WorkerHealth(NamedTuple):
    """How a worker is at one moment."""

    trouble: str | None  # why it cannot run jobs now, or why delayed jobs or repeatables wait
    concurrency: int
    busy: int  # handlers that run
    waiting: int  # jobs that were read and not started yet
    loop_lag_s: float  # how late the event loop was last
    reconnects: int
    missed_fires: int
    buried_count: int  # delayed members and repeatables that could not be read
    dropped_events: int
    refused_records: int  # metric records that a sink has raised at
    redis: str  # what is known of the server; "" before the first connection
