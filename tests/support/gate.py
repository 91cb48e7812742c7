"""A handler that waits until the test opens it."""

from __future__ import annotations

import asyncio
from typing import Any

from pychasqui import Job


class Gate:
    """Holds every job until it is opened; then each job returns or raises the given error."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.opened = asyncio.Event()
        self.jobs: list[Job] = []  # all that came
        self.running = 0
        self.peak = 0
        self.finished: list[Any] = []  # the data of the jobs that have ended

    async def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self.opened.wait()
        finally:
            self.running -= 1
        self.finished.append(job.data)
        if self._error is not None:
            raise self._error

    @property
    def data(self) -> list[Any]:
        return [job.data for job in self.jobs]

    @property
    def attempts(self) -> list[int]:
        return [job.attempt for job in self.jobs]
