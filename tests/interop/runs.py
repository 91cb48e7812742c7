"""The runs that handlers of either kind saw, in one shape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from dataclasses import dataclass, field

from pychasqui import Job, UnrecoverableError


@dataclass(frozen=True)
class HandlerRun:
    """One run of a job. `data` is its repr, which separates 1 from 1.0 and finds nan equal to itself."""

    id: str
    name: str
    data: str
    attempt: int
    created_at_ms: int = field(compare=False, default=0)
    at: float = field(compare=False, default=0.0)


class Handler:
    """A handler of ours that records its runs. It fails when the attempt is one of `fails`."""

    def __init__(self, *, fails: Container[int] = (), gives_up: bool = False, lasts_s: float = 0.0) -> None:
        self.runs: list[HandlerRun] = []
        self.ended: list[str] = []
        self._fails = fails
        self._gives_up = gives_up
        self._lasts_s = lasts_s

    async def __call__(self, job: Job) -> None:
        self.runs.append(HandlerRun(job.id, job.name, repr(job.data), job.attempt, job.created_at_ms, time.time()))
        await asyncio.sleep(self._lasts_s)
        self.ended.append(job.id)
        if self._gives_up:
            raise UnrecoverableError("gives up")
        if job.attempt in self._fails:
            raise RuntimeError("fails as planned")
