"""Handlers that several tests use: one that records its jobs, and one that fails by the name of a job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from pychasqui import Job, UnrecoverableError


class RecordingHandler:
    """Records its jobs and their arrival times, and takes `lasts_s` for each."""

    def __init__(self, lasts_s: float = 0.0) -> None:
        self._lasts_s = lasts_s
        self.jobs: list[Job] = []
        self.at_ms: dict[Any, float] = {}

    async def __call__(self, job: Job) -> None:
        self.at_ms[job.data] = time.time() * 1000
        self.jobs.append(job)
        if self._lasts_s:
            await asyncio.sleep(self._lasts_s)

    def has_run(self, data: Any) -> bool:
        return data in self.at_ms

    @property
    def data(self) -> list[Any]:
        return [job.data for job in self.jobs]

    @property
    def begun(self) -> Counter[Any]:
        """The number of runs by the data of the job."""
        return Counter(self.data)

    @property
    def attempts(self) -> dict[str, list[int]]:
        """The attempts by the id of the job."""
        attempts: dict[str, list[int]] = {}
        for job in self.jobs:
            attempts.setdefault(job.id, []).append(job.attempt)
        return attempts

    @property
    def ids(self) -> set[str]:
        return {job.id for job in self.jobs}


async def fail_by_name(job: Job) -> None:
    """A job "bad" dies, a job "flaky" fails at its first attempt, and any other is done."""
    if job.name == "bad":
        raise UnrecoverableError
    if job.name == "flaky" and not job.attempt:
        raise ValueError
