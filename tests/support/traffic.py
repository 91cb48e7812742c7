"""Adds and runs jobs all the time, and says what was lost, what ran twice and the longest gap."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from types import TracebackType
from typing import Any, Self

from pychasqui import AddUnknown, Job, NotReplicated, Queue, Worker
from pychasqui._redis.credentials import CredentialProvider
from pychasqui.errors import ChasquiError
from tests.support.waiting import eventually

TURN_S = 0.01


class Traffic:
    """`async with Traffic(queue_name, url) as traffic:` has a queue that adds and a worker that runs.

    Where adds wait for replicas, one more task adds without waiting, because behind a failover all others wait in vain
    for a while: its jobs show when jobs flow again, and may be lost. Their numbers are negative.
    """

    def __init__(
        self,
        queue_name: str,
        url: str,
        *,
        adders: int = 1,
        wait_replicas: int = 0,
        timeout_s: float = 20,
        is_varied: bool = False,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        place: dict[str, Any] = {"redis_url": url, "credential_provider": credential_provider}
        self.queue = Queue(queue_name, timeout_s=timeout_s, **place)
        self.worker = Worker(queue_name, self._run, lease_ms=3000, **place)
        self.runs: Counter[Any] = Counter()
        self.added: set[Any] = set()
        self.refused: dict[Any, ChasquiError] = {}
        self._wait_replicas = wait_replicas
        self._is_over = False
        self._may_add = asyncio.Event()
        self._adders = adders
        self._is_varied = is_varied  # some jobs have ids, and some of those are delayed
        self._adding: list[asyncio.Task[None]] = []
        self._number = 0
        self.added_at: list[float] = []
        self.run_at: list[float] = []
        self.runs_at: dict[Any, list[float]] = {}
        self.answered_at: dict[Any, float] = {}  # when its add returned or raised
        self.slowest_add_s = 0.0
        self._turned_at: list[float] = []
        self._turning: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._turning = asyncio.create_task(self._note_turns())
        await self.queue.__aenter__()
        await self.worker.__aenter__()
        self._may_add.set()
        self._adding = [asyncio.create_task(self._add(self._wait_replicas)) for _ in range(self._adders)]
        if self._wait_replicas:
            self._adding.append(asyncio.create_task(self._add(wait_replicas=0, is_probe=True)))
        await self.flow()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop_adding()
        await self.worker.__aexit__(kind, error, at)
        await self.queue.__aexit__(kind, error, at)
        if self._turning is not None:
            self._turning.cancel()

    async def _run(self, job: Job) -> None:
        self.runs[job.data] += 1
        self.run_at.append(monotonic())
        self.runs_at.setdefault(job.data, []).append(self.run_at[-1])

    async def _note_turns(self) -> None:
        while True:
            self._turned_at.append(monotonic())
            await asyncio.sleep(TURN_S)

    async def _add(self, wait_replicas: int, *, is_probe: bool = False) -> None:
        while not self._is_over:
            await self._may_add.wait()
            self._number += 1
            number = -self._number if is_probe else self._number
            options: dict[str, Any] = {"delay_ms": 20} if number % 5 == 0 else {}
            if self._is_varied and number % 3 == 0:
                options["job_id"] = f"job-{number}"
            start = monotonic()
            try:
                await self.queue.add("run", number, wait_replicas=wait_replicas, **options)
            except ChasquiError as error:
                self.refused[number] = error
            else:
                if not is_probe:
                    self.added.add(number)
                self.added_at.append(monotonic())
            self.answered_at[number] = monotonic()
            self.slowest_add_s = max(self.slowest_add_s, self.answered_at[number] - start)
            await asyncio.sleep(0.002)

    async def flow(self) -> None:
        """Waits until jobs are added and run again; jobs that are added and not replicated count as well."""
        run, answered = self.runs.total() + 20, len(self.added) + len(self.refused) + 20
        await eventually(lambda: self.runs.total() >= run, timeout=60)
        await eventually(lambda: len(self.added) + len(self.refused) >= answered, timeout=60)

    async def be_acked(self) -> None:
        """Waits until adds succeed, which is more than flow() does where they wait for replicas."""
        acked = len(self.added) + 20
        await eventually(lambda: len(self.added) >= acked, timeout=60)

    async def rest(self) -> None:
        """Adds no more for now, and waits until everything has run and is acked."""
        self._may_add.clear()
        await eventually(self._is_at_rest, timeout=60)

    async def _is_at_rest(self) -> bool:
        counts = await self.queue.counts()
        return not self.lost and not (counts.waiting + counts.active + counts.delayed)

    def go_on(self) -> None:
        self._may_add.set()

    async def stop_adding(self) -> None:
        self._is_over = True
        self.go_on()
        if self._adding:
            await asyncio.wait(self._adding)

    async def end(self) -> None:
        """Waits until every job that was added has run."""
        await self.stop_adding()
        await eventually(lambda: not self.lost, timeout=60)

    async def try_to_end(self, within_s: float) -> None:
        """Waits for that long until every job that was added has run."""
        with suppress(AssertionError):
            await eventually(lambda: not self.lost, timeout=within_s)

    @property
    def lost(self) -> set[Any]:
        return self.added - set(self.runs)

    @property
    def twice(self) -> set[Any]:
        return {data for data, runs in self.runs.items() if runs > 1}

    @property
    def wrongly_refused(self) -> set[Any]:
        """Jobs that ran although their add raised an error that says that they were not added."""
        known = (AddUnknown, NotReplicated)
        return {data for data, error in self.refused.items() if data in self.runs and not isinstance(error, known)}

    def gap_s(self, since: float) -> float:
        """The longest time since then without an add or a run."""
        return max(_longest(self.added_at, since), _longest(self.run_at, since))

    def stalled_s(self, since: float) -> float:
        """The longest time since then for which the loop of this process did not turn."""
        return max(0.0, _longest(self._turned_at, since) - TURN_S)


def _longest(moments: list[float], since: float) -> float:
    later = [since, *(moment for moment in moments if moment >= since)]
    return max((after - before for before, after in pairwise(later)), default=0.0)
