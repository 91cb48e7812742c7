"""Worker processes: what supervises them, and what runs inside them. `chasqui worker --processes` is made of it."""

from __future__ import annotations

from ._supervisor.link import SupervisorLink
from ._supervisor.reload import HOW_TO_INSTALL, can_reload
from ._supervisor.supervisor import ProcessSupervisor, SupervisorOptions
from ._supervisor.worker_process import adapt_to_supervisor, run_workers

__all__ = [
    "HOW_TO_INSTALL",
    "ProcessSupervisor",
    "SupervisorLink",
    "SupervisorOptions",
    "can_reload",
    "adapt_to_supervisor",
    "run_workers",
]
