"""The producer of a round: adds jobs at a rate during every fault, and records the answer to each add."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any

from pychasqui import AddUnknown, ChasquiError, Queue
from tests.chaos.diary import Added, Answer

TICK_S = 0.02
ATTEMPTS = 5  # the workers' own setting
FEW_ATTEMPTS = 3  # of jobs that are meant to fail for good
UNANSWERED = 2000  # the most adds that wait for an answer


@dataclass(frozen=True)
class Plan:
    """What the handler of a job does, and how often such a job is added."""

    name: str
    share: float
    does: str = "ok"
    acts: dict[str, str] = field(default_factory=dict)  # other behaviour for some attempts
    leases: float = 0.0  # how long it takes, in leases; 0: some milliseconds
    is_to_die: bool = False
    options: dict[str, Any] = field(default_factory=dict)


PLANS = (
    Plan("ok", 0.86),
    Plan("fail once", 0.07, acts={"0": "fail"}, options={"backoff": 50}),
    Plan("fail", 0.03, does="fail", is_to_die=True, options={"attempts": FEW_ATTEMPTS, "backoff": 30}),
    Plan("give up", 0.03, does="give up", is_to_die=True),
    Plan("slow", 0.01, leases=1.7),
)

# Hostile handlers; worker_process.py has their code.
HOSTILE_PLANS = (
    Plan("panic once", 1, acts={"0": "panic"}, options={"backoff": 50}),
    Plan("panic", 1, does="panic", is_to_die=True, options={"attempts": FEW_ATTEMPTS, "backoff": 30}),
    Plan("exit once", 1, acts={"0": "exit"}, options={"backoff": 50}),
    Plan("exit", 1, does="exit", is_to_die=True, options={"attempts": FEW_ATTEMPTS, "backoff": 30}),
    Plan("generator exit", 1, acts={"0": "generator exit"}, options={"backoff": 50}),
    Plan("monster result", 1, does="monster"),
    Plan("monster error", 1, does="monster error", is_to_die=True, options={"attempts": FEW_ATTEMPTS, "backoff": 30}),
)
HANGING = Plan("hang", 0, acts={"0": "hang"})  # for far longer than its worker is to live
DYING = {plan.name for plan in (*PLANS, *HOSTILE_PLANS) if plan.is_to_die}
LARGE_BYTES = (100_000, 300_000, 900_000)


class Producer:
    def __init__(self, queue: Queue, rng: Random, *, jobs: int, rate: float, lease_s: float) -> None:
        self.added: dict[int, Added] = {}
        self._queue = queue
        self._rng = rng
        self._jobs = jobs
        self._rate = rate
        self._lease_s = lease_s
        self._begun = 0
        self._refused = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until as many jobs as asked for are in, or may be."""
        due = 0.0
        while self._begun - self._refused < self._jobs or self._tasks:
            due = min(due + self._rate * TICK_S, self._jobs - self._begun + self._refused)
            while due >= 1 and len(self._tasks) < UNANSWERED:
                size = min(int(due), self._rng.choice((1, 1, 1, 3, 10)))
                self.add([self._job() for _ in range(size)])
                due -= size
            await asyncio.sleep(TICK_S)

    async def add_blocking(self, count: int, *, leases: float) -> None:
        """Jobs that hold their worker's event loop up."""
        plan = Plan("blocks", 0, leases=leases)
        self.add([{**self._job(plan), "data": {**self._data(plan), "blocks": True}} for _ in range(count)])

    async def add_hostile(self, count: int) -> None:
        """Jobs whose handlers panic, exit, or return and raise what cannot be shown."""
        self.add([self._job(self._rng.choice(HOSTILE_PLANS)) for _ in range(count)])

    async def add_hanging(self, count: int) -> None:
        """Jobs whose first run is to end with its worker."""
        self.add([self._job(HANGING) for _ in range(count)])

    async def add_batch_by_transaction(self, count: int) -> None:
        """Jobs with much data, of all the usual kinds; some of them are delayed."""
        for _ in range(count):
            job = self._job()
            data = {**job["data"], "filling": self._rng.randbytes(self._rng.choice(LARGE_BYTES))}
            delay_ms = self._rng.choice((0, 0, self._rng.randrange(100, 1000)))
            self.add([{**job, "data": data, **({"delay_ms": delay_ms} if delay_ms else {})}])

    def add(self, jobs: list[dict[str, Any]]) -> None:
        numbered = []
        for job in jobs:
            self._begun += 1
            numbered.append({**job, "data": {**job["data"], "n": self._begun}})
        task = asyncio.create_task(self._add(numbered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _add(self, jobs: list[dict[str, Any]]) -> None:
        answer: Answer = "ok"
        ids: list[str] = []
        try:
            if len(jobs) == 1:
                options = {key: jobs[0][key] for key in ("attempts", "backoff", "delay_ms") if key in jobs[0]}
                ids = [(await self._queue.add(jobs[0]["name"], jobs[0]["data"], **options)).id]
            else:
                ids = [job.id for job in await self._queue.add_bulk(jobs)]
        except AddUnknown:
            answer = "unknown"
        except ChasquiError:
            answer = "failed"
            self._refused += len(jobs)
        for position, job in enumerate(jobs):
            number = job["data"]["n"]
            self.added[number] = Added(
                number,
                answer,
                monotonic(),
                job.get("attempts", ATTEMPTS),
                job["name"],
                ids[position] if ids else "",
                job["name"] in DYING,
            )

    def _job(self, plan: Plan | None = None) -> dict[str, Any]:
        if plan is None:
            plan = self._rng.choices(PLANS, [plan.share for plan in PLANS])[0]
        return {"name": plan.name, "data": self._data(plan), **plan.options}

    def _data(self, plan: Plan) -> dict[str, Any]:
        ms = plan.leases * self._lease_s * 1000 if plan.leases else self._rng.uniform(5, 35)
        return {"does": plan.does, "acts": plan.acts, "ms": ms}
