"""Hypothesis drives workers, producers, the clock and faults against a real server and a plain model of it.

Each rule is one conversation with Redis, through the Broker as the engine uses it. The model says beforehand what the
answer will be and what will be stored; after each step all that is stored is compared with it, and every job that was
added must be in exactly one place. `make model` makes more examples than a quick run.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as drive

from pychasqui._core.delivery import Delivery
from pychasqui._core.failure import read_failure
from pychasqui._core.limits import RELEASED
from pychasqui._redis import delayed as delayed_module
from pychasqui._redis import scripts
from pychasqui._redis.broker import Broker
from pychasqui._redis.connector import Connector
from pychasqui._redis.keys import Keys
from pychasqui._redis.reading import ReadRequest
from pychasqui._redis.replies import ByteBounds, ClaimedEntry
from pychasqui._wire.dead_letter import LastError, encode_dead_letter
from pychasqui._wire.envelope import decode_envelope, encode_envelope
from pychasqui._wire.member import split_delayed_member
from pychasqui._wire.msgpack import encode_data
from pychasqui._worker.failures import make_next_run_member
from tests.support.outcomes import buried, rescheduled
from tests.support.server import RedisServer

T = TypeVar("T")

EXAMPLES = int(os.environ.get("CHASQUI_MODEL_EXAMPLES", "60"))
STEPS = 50
KEYS = Keys("machine")
BOUNDS = ByteBounds(2**20, 2**20)
GROUP, OFFICIAL = "default", "official"
LEDGER = KEYS.ledger("producer")
MAX_ATTEMPTS = 3
LEASE_MS, MIN_IDLE_MS, LONG_MS = 600_000, 300_000, 3_600_000
vars(delayed_module)["MAX_LEADER_LEASE_MS"] = LONG_MS  # the model's leader leads until the end
FAR_MS = 2**53  # a deadline that no call misses
OVER_MS = 1000  # for how long a lease that is over has been so
SLACK_MS = 60_000  # far more than passes between two commands, far less than makes an entry idle
FAILURE = read_failure(LookupError("the handler failed"))
LAST_ERROR = LastError(FAILURE.error_type, FAILURE.text, FAILURE.format_traceback())

slots = st.integers(0, 1)
picks = st.integers(0, 9)
counts = st.integers(1, 3)
faults = st.sampled_from(["none", "none", "sent twice", "reply lost"])
losses = st.sampled_from(["none", "none", "reply lost"])
troubles = st.sampled_from(["scripts", "scripts", "connection", "connection", "leader", "group"])
ends = st.sampled_from(["crashes", "crashes", "lives again", "leaves", "releases", "releases"])
outcomes = st.sampled_from(["success", "failure", "failure", "failure", "unrecoverable"])


@dataclass
class Entry:
    job: str
    attempt: int
    owner: str | None = None
    deliveries: int = 0
    is_idle: bool = False


@dataclass
class ModelRun:
    """What a worker knows of an entry it was given. It speaks for that delivery, and for no later one."""

    job: Delivery
    is_started: bool = False

    @property
    def place(self) -> tuple[bytes, int]:
        return self.job.entry_id, self.job.delivery_number


@dataclass
class ModelWorker:
    name: str
    runs: dict[bytes, ModelRun] = field(default_factory=dict)


@dataclass
class Model:
    """The state that should be stored."""

    added: list[str] = field(default_factory=list)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    delayed: dict[bytes, tuple[str, bool]] = field(default_factory=dict)  # member -> job, is it due
    dead: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    leases: dict[str, float] = field(default_factory=dict)
    leader: str | None = None
    ledger: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot -> number, taken
    last_attempt: dict[str, int] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    recounted: set[str] = field(default_factory=set)  # jobs some of whose deliveries were forgotten with the group
    stale: int = 0  # outcomes of runs whose entry had come back by a later delivery

    def unread(self) -> list[bytes]:
        return sorted((i for i, entry in self.entries.items() if entry.owner is None), key=order)

    def held_by(self, name: str) -> list[bytes]:
        return sorted((i for i, entry in self.entries.items() if entry.owner == name), key=order)

    def is_ours(self, name: str, entry_id: bytes, delivery: int) -> bool:
        """A count below that delivery belongs to a rebuilt group."""
        entry = self.entries.get(entry_id)
        return entry is not None and entry.owner == name and entry.deliveries <= delivery

    def places(self) -> list[str]:
        stored = [entry.job for entry in self.entries.values()] + [job for job, _ in self.delayed.values()]
        return sorted(stored + self.dead + self.done)


def order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)


class Machine(RuleBasedStateMachine):
    def __init__(self, server: RedisServer, runner: asyncio.Runner, broker: Broker, client: Any) -> None:
        super().__init__()
        self.server, self.runner, self.broker, self.client = server, runner, broker, client
        self.model = Model()
        self.workers: list[ModelWorker] = []
        self.names = 0
        self.number = 0
        self.judgements: list[tuple[str, float]] = []  # leases that a worker has seen to be over
        self.calm = 0  # steps since the last disruption: if every other step were one, no job would come far

    def _is_calm(self) -> bool:
        return self.calm >= 4

    @invariant()
    def count_steps(self) -> None:
        self.calm += 1

    @precondition(lambda self: not self._is_calm())
    @rule()
    def a_moment_passes(self) -> None:
        """So that there is always a rule that can run."""

    def wait(self, answer: Awaitable[T]) -> T:
        async def waiting() -> T:
            return await answer

        return self.runner.run(waiting())

    def ask(self, call: Callable[[], Awaitable[T]], fault: str) -> tuple[T, T]:
        """The answer, and the answer to the same sent again, if it is; a worker that lost the reply has neither."""
        first = self.wait(call())
        return first, self.wait(call()) if fault == "sent twice" else first

    # The crew -------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.client.flushdb()
        assert self.wait(self.broker.report_held_to_rebuild_group(GROUP, "anybody", LEASE_MS, []))
        for _ in range(2):
            self.workers.append(self._newcomer())
        self._add(3, 0, "none")

    def _newcomer(self) -> ModelWorker:
        self.names += 1
        worker = ModelWorker(f"w{self.names}")
        self._renew(worker, [])
        return worker

    def _renew(self, worker: ModelWorker, held: list[tuple[bytes, int]]) -> list[bytes]:
        before = self._now_ms()
        renewed = self.wait(self.broker.renew_lease_and_held_entries(GROUP, worker.name, LEASE_MS, held))
        lease = self.model.leases[worker.name] = float(self.client.zscore(KEYS.workers, worker.name))
        assert before + LEASE_MS <= lease <= self._now_ms() + LEASE_MS
        return renewed.lost

    def _now_ms(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    # Adding ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.entries) < 5)
    @rule(count=counts, slot=slots, fault=faults, age=st.integers(0, 3))
    def add(self, count: int, slot: int, fault: str, age: int) -> None:
        self._add(count, slot, fault)
        number, taken = self.model.ledger[slot]
        assert (
            self._send_schedule_resend_or_give_up(slot, max(1, number - age), ["stuck on an old connection"]) == taken
        )

    def _add(self, count: int, slot: int, fault: str) -> None:
        self.number += 1
        jobs = [f"job-{len(self.model.added) + number}" for number in range(count)]
        before = set(self._stream())
        self._send_schedule_resend_or_give_up(slot, self.number, jobs, again=fault == "sent twice")
        fresh = sorted(set(self._stream()) - before, key=order)
        assert len(fresh) == count
        for entry_id, job in zip(fresh, jobs, strict=True):
            self.model.entries[entry_id] = Entry(job, 0)
        self.model.added += jobs
        self.model.ledger[slot] = (self.number, count)

    def _send_schedule_resend_or_give_up(self, slot: int, number: int, jobs: list[str], *, again: bool = False) -> int:
        envelopes = [encode_envelope(job, encode_data(job), 0, 0, None) for job in jobs]
        arguments = (slot, number, LONG_MS, 0, 1, len(jobs), 1, "mail", "", *envelopes)
        taken: int = self.wait(self.broker.run_script(scripts.ADD, (KEYS.stream, LEDGER), arguments))
        if again:
            assert self._send_schedule_resend_or_give_up(slot, number, jobs) == taken
        return taken

    # Reading and running --------------------------------------------------------------------------------------------

    async def _read(self, consumer: str, count: int) -> list[Any]:
        return await (
            await self.broker.send_read(GROUP, consumer, ReadRequest(count, None, inf, lambda *_: None, small_below=1))
        )

    @precondition(lambda self: self.model.unread())
    @rule(slot=slots, count=counts, fault=losses, starts=st.booleans())
    def read(self, slot: int, count: int, fault: str, starts: bool) -> None:
        worker = self.workers[slot]
        expected = self.model.unread()[:count]
        came = self.wait(self._read(worker.name, count))
        assert [entry_id for entry_id, _ in came] == expected
        for entry_id, fields in came:
            entry = self.model.entries[entry_id]
            entry.owner, entry.deliveries, entry.is_idle = worker.name, 1, False
            if fault != "reply lost":
                self._hand(worker, ClaimedEntry(entry_id, fields, 0), starts=starts)

    def _hand(self, worker: ModelWorker, claimed: ClaimedEntry, *, starts: bool) -> None:
        """As the reader decodes it; some of it starts at once."""
        assert claimed.fields is not None
        envelope = decode_envelope(claimed.fields[1])
        attempt = envelope.attempt + claimed.deliveries
        job = Delivery(
            envelope.id,
            name="mail",
            attempt=attempt,
            payload=envelope.payload,
            entry_id=claimed.id,
            earlier_deliveries=claimed.deliveries,
        )
        run = worker.runs[claimed.id] = ModelRun(job)
        if starts and attempt < MAX_ATTEMPTS:
            self._start(run)

    def _start(self, run: ModelRun) -> None:
        run.is_started = True
        job = run.job.id
        self.model.runs[job] += 1
        if job not in self.model.recounted:
            assert run.job.attempt > self.model.last_attempt.get(job, -1), "the attempt does not grow"
            assert self.model.runs[job] <= MAX_ATTEMPTS, "more runs than allowed"
        self.model.last_attempt[job] = run.job.attempt

    def _startable(self, worker: ModelWorker) -> list[ModelRun]:
        """Only what is still ours: a worker whose lease is over starts nothing before it has asked."""
        return [
            run
            for run in worker.runs.values()
            if not run.is_started and run.job.attempt < MAX_ATTEMPTS and self.model.is_ours(worker.name, *run.place)
        ]

    def _ending(self, worker: ModelWorker) -> list[ModelRun]:
        return [run for run in worker.runs.values() if run.is_started or run.job.attempt >= MAX_ATTEMPTS]

    @precondition(lambda self: any(map(self._startable, self.workers)))
    @rule(slot=slots, pick=picks)
    def start(self, slot: int, pick: int) -> None:
        worker = self._one_with(self._startable, slot)
        runs = self._startable(worker)
        self._start(runs[pick % len(runs)])

    @precondition(lambda self: any(map(self._ending, self.workers)))
    @rule(slot=slots, pick=picks, outcome=outcomes, fault=faults)
    def finish(self, slot: int, pick: int, outcome: str, fault: str) -> None:
        """Also by a worker that has lost the entry and does not know it, whether or not it has come back since."""
        worker = self._one_with(self._ending, slot)
        runs = self._ending(worker)
        run = runs[pick % len(runs)]
        if not run.is_started:
            self._bury(worker, run, fault, "retries_exhausted")
        elif outcome == "success":
            self._ack(worker, run, fault)
        elif outcome == "unrecoverable" or run.job.attempt + 1 >= MAX_ATTEMPTS:
            self._bury(worker, run, fault, outcome)
        else:
            self._reschedule(worker, run, fault)

    def _one_with(self, what: Callable[[ModelWorker], list[ModelRun]], slot: int) -> ModelWorker:
        return self.workers[slot] if what(self.workers[slot]) else self.workers[1 - slot]

    def _ack(self, worker: ModelWorker, run: ModelRun, fault: str) -> None:
        self.ask(lambda: self.broker.ack(GROUP, [run.job.entry_id]), fault)
        entry = self.model.entries.pop(run.job.entry_id, None)
        if entry is not None:  # also if another worker has it by now: a late success is a success
            self.model.done.append(entry.job)
        if fault != "reply lost":
            del worker.runs[run.job.entry_id]

    def _reschedule(self, worker: ModelWorker, run: ModelRun, fault: str) -> None:
        entry_id, member = run.job.entry_id, make_next_run_member(run.job)
        is_ours = self._is_ours(worker, run)
        jobs = [rescheduled(*run.place, delay_ms=LONG_MS, member=member, job_id=run.job.id)]
        answers = self.ask(lambda: self.broker.reschedule(GROUP, worker.name, jobs, 0), fault)
        moved = [answer.answers == b"1" for answer in answers]
        assert moved == [is_ours, is_ours and fault != "sent twice"]
        if is_ours:
            self.model.delayed[member] = (self.model.entries.pop(entry_id).job, False)
        if fault != "reply lost":
            del worker.runs[entry_id]

    def _bury(self, worker: ModelWorker, run: ModelRun, fault: str, reason: str) -> None:
        entry_id = run.job.entry_id
        letter = encode_dead_letter(run.job, reason, LAST_ERROR, run.job.attempt + 1, worker.name)
        is_ours = self._is_ours(worker, run)
        jobs = [buried(*run.place, letter=letter, job_id=run.job.id)]
        answers = self.ask(lambda: self.broker.bury(GROUP, worker.name, 0, jobs, 0), fault)
        moved = [answer.answers == b"1" for answer in answers]
        assert moved == [is_ours, is_ours and fault != "sent twice"]
        if is_ours:
            self.model.dead.append(self.model.entries.pop(entry_id).job)
        if fault != "reply lost":
            del worker.runs[entry_id]

    def _is_ours(self, worker: ModelWorker, run: ModelRun) -> bool:
        is_ours = self.model.is_ours(worker.name, *run.place)
        self.model.stale += not is_ours and run.job.entry_id in self.model.held_by(worker.name)
        return is_ours

    # Leases ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(worker.runs for worker in self.workers))
    @rule(slot=slots, drops=st.booleans())
    def keep(self, slot: int, drops: bool) -> None:
        worker = self.workers[slot]
        held = [run.place for run in worker.runs.values()]
        expected = {entry_id for entry_id, delivery in held if not self.model.is_ours(worker.name, entry_id, delivery)}
        assert set(self._renew(worker, held)) == expected
        for entry_id, _ in held:
            if entry_id not in expected:
                self.model.entries[entry_id].is_idle = False
            elif drops or not worker.runs[entry_id].is_started:
                del worker.runs[entry_id]

    def _has_orphans(self, worker: ModelWorker) -> bool:
        return any(entry_id not in worker.runs for entry_id in self.model.held_by(worker.name))

    @precondition(lambda self: any(map(self._has_orphans, self.workers)))
    @rule(slot=slots, starts=st.booleans())
    def look_for_orphans(self, slot: int, starts: bool) -> None:
        worker = self.workers[slot]
        page = self.wait(self.broker.list_pending_page(GROUP, worker.name, b"", b"+", 100, BOUNDS))
        assert [(entry.id, entry.deliveries) for entry in page] == [
            (entry_id, self.model.entries[entry_id].deliveries) for entry_id in self.model.held_by(worker.name)
        ]
        for entry in page:
            if entry.id not in worker.runs:
                self._hand(worker, entry._replace(deliveries=entry.deliveries - 1), starts=starts)

    @precondition(lambda self: any(self.model.leases.values()) and self._is_calm())
    @rule(slot=slots, pick=picks)
    def let_a_lease_run_out(self, slot: int, pick: int) -> None:
        """Of a dead worker, or of one that is paused."""
        self.calm = 0
        names = sorted(name for name, lease in self.model.leases.items() if lease)
        self._end_lease(names[pick % len(names)])

    def _end_lease(self, name: str) -> None:
        over = float(self._now_ms() - OVER_MS)
        self.client.zadd(KEYS.workers, {name: over})
        self.model.leases[name] = over
        self.judgements.append((name, over))

    def _let_lie_since(self, name: str, lease: float) -> None:
        """As a dead worker does: it has touched nothing since its lease ended."""
        fresh = [entry_id for entry_id in self.model.held_by(name) if not self.model.entries[entry_id].is_idle]
        if lease and fresh:
            idle_ms = int(self._now_ms() - lease) + SLACK_MS
            self.client.xclaim(KEYS.stream, GROUP, name, 0, fresh, idle=idle_ms, justid=True)

    def _candidates(self, worker: ModelWorker) -> list[tuple[str, float]]:
        left = [(name, 0.0) for name, lease in self.model.leases.items() if not lease]
        return [candidate for candidate in self.judgements + left if candidate[0] != worker.name]

    @precondition(lambda self: any(map(self._candidates, self.workers)))
    @rule(slot=slots, pick=picks, count=counts, fault=losses, starts=st.booleans())
    def take_over(self, slot: int, pick: int, count: int, fault: str, starts: bool) -> None:
        """By a lease that was seen to be over at some time, or from one who has left."""
        worker = self.workers[slot]
        candidates = self._candidates(worker)
        if not candidates:
            return
        name, lease = candidates[pick % len(candidates)]
        self._let_lie_since(name, lease)
        judged = (name.encode(), lease, MIN_IDLE_MS)
        taken = self.wait(self.broker.take_over_if_lease_is_same(GROUP, worker.name, *judged, count, BOUNDS))
        if self.model.leases.get(name) != lease:
            assert taken is None, "the lease has moved"
            return
        expected = self.model.held_by(name)[:count]
        assert taken is not None
        self._receive(worker, taken, expected, fault, starts=starts)
        if not self.model.held_by(name):
            del self.model.leases[name]
            assert name not in self._consumers()

    @precondition(lambda self: any(worker.runs for worker in self.workers) and self._is_calm())
    @rule(slot=slots, fault=losses, starts=st.booleans())
    def pause_and_take_over(self, slot: int, fault: str, starts: bool) -> None:
        """A worker is silent for longer than its lease, and the other one takes all that it held."""
        self.calm = 0
        paused = self.workers[slot]
        if paused.name in self.model.leases:
            self._end_lease(paused.name)
            self.judgements.reverse()
            self.take_over(1 - slot, 0, 9, fault, starts)

    @precondition(lambda self: any(self._running(worker) for worker in self.workers) and self._is_calm())
    @rule(slot=slots, fault=losses, starts=st.booleans())
    def send_there_and_back(self, slot: int, fault: str, starts: bool) -> None:
        """The other one takes all that a worker held and is silent, too: what still runs here is here again."""
        slot = slot if self._running(self.workers[slot]) else 1 - slot
        self.pause_and_take_over(slot, "none", starts)
        self.pause_and_take_over(1 - slot, fault, starts)

    def _running(self, worker: ModelWorker) -> list[ModelRun]:
        return [run for run in worker.runs.values() if run.is_started and self.model.is_ours(worker.name, *run.place)]

    def _receive(
        self, worker: ModelWorker, taken: list[ClaimedEntry], expected: list[bytes], fault: str, *, starts: bool
    ) -> None:
        """What a run that had lost it still goes on with comes later: it is found when that run is over."""
        assert [(entry.id, entry.deliveries) for entry in taken] == [
            (entry_id, self.model.entries[entry_id].deliveries) for entry_id in expected
        ]
        for claimed in taken:
            entry = self.model.entries[claimed.id]
            entry.owner, entry.deliveries, entry.is_idle = worker.name, entry.deliveries + 1, False
            if fault != "reply lost" and claimed.id not in worker.runs:
                self._hand(worker, claimed, starts=starts)

    @precondition(lambda self: self.model.unread() and self._is_calm())
    @rule(count=st.integers(1, 2))
    def an_official_consumer_reads_and_dies(self, count: int) -> None:
        self.calm = 0
        expected = self.model.unread()[:count]
        replies = self.client.xreadgroup(GROUP, OFFICIAL, {KEYS.stream: ">"}, count=count)
        assert [entry_id for _, entries in replies for entry_id, _ in entries] == expected
        for entry_id in expected:
            entry = self.model.entries[entry_id]
            entry.owner, entry.deliveries, entry.is_idle = OFFICIAL, 1, False

    @precondition(lambda self: self.model.held_by(OFFICIAL))
    @rule()
    def let_entries_lie(self) -> None:
        for entry_id, entry in self.model.entries.items():
            if entry.owner is not None:
                self.client.xclaim(KEYS.stream, GROUP, entry.owner, 0, [entry_id], idle=LONG_MS, justid=True)
                entry.is_idle = True

    @precondition(lambda self: any(entry.is_idle for entry in self.model.entries.values()))
    @rule(slot=slots, count=counts, fault=losses, starts=st.booleans())
    def claim_what_lies(self, slot: int, count: int, fault: str, starts: bool) -> None:
        worker = self.workers[slot]
        spared = {worker.name, None, *self.model.leases}
        lying = [i for i, entry in self.model.entries.items() if entry.is_idle and entry.owner not in spared]
        taken = self.wait(self.broker.claim_idle_without_lease(GROUP, worker.name, MIN_IDLE_MS, count, BOUNDS))
        lying.sort(key=lambda entry_id: (self.model.entries[entry_id].owner, order(entry_id)))  # consumer by consumer
        self._receive(worker, taken, lying[:count], fault, starts=starts)

    # Ends -----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._is_calm())
    @rule(slot=slots, how=ends, fault=faults)
    def end(self, slot: int, how: str, fault: str) -> None:
        self.calm = 0
        if how in ("leaves", "releases"):
            self._release(self.workers[slot], fault)
        if how == "leaves":
            self._leave(self.workers[slot], fault)
        if how == "lives again":
            self._live_again(self.workers[slot], fault)
        elif how != "releases":
            self.workers[slot] = self._newcomer()

    def _live_again(self, worker: ModelWorker, fault: str) -> None:
        """Killed and started again under its name: its entries may have run, and count as if they had."""
        worker.runs.clear()
        page = self.wait(self.broker.list_pending_page(GROUP, worker.name, b"", b"+", 100, BOUNDS))
        seen = [(entry.id, entry.deliveries) for entry in page]
        assert [entry_id for entry_id, _ in seen] == self.model.held_by(worker.name)
        self.ask(lambda: self.broker.increment_delivery_counts_if_same(GROUP, worker.name, seen), fault)
        for entry_id, _ in seen:
            entry = self.model.entries[entry_id]
            entry.deliveries, entry.is_idle = entry.deliveries + 1, False
        self._renew(worker, [])

    def _release(self, worker: ModelWorker, fault: str) -> None:
        """What was not started; what was started goes on."""
        jobs = [run.job for run in worker.runs.values() if not run.is_started]
        held = [(job.entry_id, job.earlier_deliveries) for job in jobs]
        ours = [job for job in jobs if self.model.is_ours(worker.name, job.entry_id, job.delivery_number)]
        answers = self.ask(lambda: self.broker.release_some_entries(GROUP, worker.name, held, FAR_MS), fault)
        assert [answer.released for answer in answers] == [len(ours), 0 if fault == "sent twice" else len(ours)]
        for job in jobs:
            del worker.runs[job.entry_id]
        for job in ours:
            entry = self.model.entries[job.entry_id]
            entry.owner, entry.deliveries, entry.is_idle = RELEASED, job.earlier_deliveries, True
            self.model.leases[RELEASED] = 0

    def _leave(self, worker: ModelWorker, fault: str) -> None:
        is_free = not self.model.held_by(worker.name)
        lease = self.wait(self.broker.read_lease_end_or_zero(GROUP, worker.name))
        assert lease == self.model.leases.get(worker.name, 0)
        assert self.ask(lambda: self.broker.leave_group_if_lease_is_same(GROUP, worker.name, lease), fault) == (
            is_free,
            is_free,
        )
        if is_free:
            self.model.leases.pop(worker.name, None)
            assert worker.name not in self._consumers()
        else:
            self.model.leases[worker.name] = 0

    # Delayed jobs ---------------------------------------------------------------------------------------------------

    def _make_due(self, pick: int) -> None:
        member = sorted(self.model.delayed)[pick % len(self.model.delayed)]
        self.client.zadd(KEYS.delayed, {member: self.client.time()[0] * 1000 - 1000})
        self.model.delayed[member] = (self.model.delayed[member][0], True)

    @precondition(lambda self: self.model.delayed)
    @rule(slot=slots, batch=counts, fault=faults, due=st.lists(picks, max_size=3))
    def promote(self, slot: int, batch: int, fault: str, due: list[int]) -> None:
        for pick in due:
            self._make_due(pick)
        self._promote(slot, batch, fault)

    def _promote(self, slot: int, batch: int, fault: str) -> None:
        worker, before = self.workers[slot], set(self._stream())
        leads = self.model.leader in (None, worker.name)
        due = sorted(member for member, (_, is_due) in self.model.delayed.items() if is_due)
        expected = min(batch, len(due)) if leads else 0
        calls = 2 if fault == "sent twice" else 1
        for call in range(calls):
            done = self.wait(self.broker.try_to_lead_and_promote_batch(worker.name, LONG_MS, batch, events_max_len=0))
            left = max(0, len(due) - call * batch)
            assert (done.leads, done.promoted, done.buried_count) == (leads, min(left, expected) if expected else 0, 0)
        if leads:
            self.model.leader = worker.name
        promoted = sorted(set(self._stream()) - before, key=order)
        assert len(promoted) == min(len(due), expected * calls)
        for entry_id in promoted:
            envelope = decode_envelope(dict(self.client.xrange(KEYS.stream, entry_id, entry_id)[0][1])[b"d"])
            self.model.entries[entry_id] = Entry(envelope.id, envelope.attempt)
            (member,) = (m for m, (job, is_due) in self.model.delayed.items() if job == envelope.id and is_due)
            del self.model.delayed[member]

    # Redis ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._is_calm())
    @rule(slot=slots, trouble=troubles)
    def trouble(self, slot: int, trouble: str) -> None:
        self.calm = 0
        if trouble == "scripts":
            self.client.script_flush()
        elif trouble == "connection":
            self.client.client_kill_filter(_type="normal", skipme=True)
            self.wait(self._until_it_is_noticed())
        elif trouble == "leader":
            self.wait(self.broker.release_promoter_lease_if_held(self.workers[slot].name))
            if self.model.leader == self.workers[slot].name:
                self.model.leader = None
        else:
            self._lose_the_group()

    async def _until_it_is_noticed(self) -> None:
        async with asyncio.timeout(40):
            while self.broker.is_connected:
                await asyncio.sleep(0)

    def _lose_the_group(self) -> None:
        """Each worker reports its entries; when all live workers have reported, the group exists; when each has claimed
        what it holds, it is complete."""
        names = {worker.name for worker in self.workers}
        for name, lease in list(self.model.leases.items()):
            if lease > self._now_ms() and name not in names:
                self._end_lease(name)  # it is dead, and waiting for it is of no interest here
        self.client.xgroup_destroy(KEYS.stream, GROUP)
        said: dict[str, list[tuple[bytes, int]]] = {}
        is_there, unclaimed = False, set[str]()
        for worker in [*self.workers, *self.workers]:
            held = [run.place for run in worker.runs.values()]
            has_lease = is_there and bool(unclaimed)  # it is renewed until the group is complete
            if not is_there and self.model.entries:
                said[worker.name] = held
                unclaimed.add(worker.name)
                has_lease = True
            silent = {name for name, lease in self.model.leases.items() if lease > self._now_ms()} - said.keys()
            is_there = is_there or not silent or not self.model.entries
            if is_there:
                unclaimed.discard(worker.name)
            is_complete = is_there and not unclaimed
            assert (
                self.wait(self.broker.report_held_to_rebuild_group(GROUP, worker.name, LEASE_MS, held)) == is_complete
            )
            if has_lease:
                self.model.leases[worker.name] = float(self.client.zscore(KEYS.workers, worker.name))
        assert is_there
        assert not unclaimed
        self._share_out(said)

    def _share_out(self, said: dict[str, list[tuple[bytes, int]]]) -> None:
        named = [(delivery, name, entry_id) for name, held in said.items() for entry_id, delivery in held]
        last = max((entry_id for _, _, entry_id in named), key=order, default=b"0-0")
        for entry_id, entry in self.model.entries.items():
            before, (entry.owner, entry.deliveries, entry.is_idle) = entry.deliveries, (None, 0, False)
            if holders := [(delivery, name) for delivery, name, held in named if held == entry_id]:
                entry.deliveries, entry.owner = max(holders)
                if len([1 for delivery, _ in holders if delivery == entry.deliveries]) > 1:  # then either will do
                    entry.owner = self._owner(entry_id)
            elif order(entry_id) <= order(last):
                entry.owner, entry.is_idle = RELEASED, True
                self.model.leases[RELEASED] = 0
            if entry.deliveries < before:
                self.model.recounted.add(entry.job)

    def _owner(self, entry_id: bytes) -> str:
        (hold,) = self.client.xpending_range(KEYS.stream, GROUP, entry_id, entry_id, 1)
        return str(hold["consumer"].decode())

    # What must hold -------------------------------------------------------------------------------------------------

    def _consumers(self) -> set[str]:
        return {consumer["name"].decode() for consumer in self.client.xinfo_consumers(KEYS.stream, GROUP)}

    def _stream(self) -> list[bytes]:
        return [entry_id for entry_id, _ in self.client.xrange(KEYS.stream)]

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert self.model.places() == sorted(self.model.added)

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        if not self.workers:  # it has not begun
            return
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.xrange(KEYS.stream)
            pipeline.xpending_range(KEYS.stream, GROUP, "-", "+", 1000)
            pipeline.zrange(KEYS.delayed, 0, -1, withscores=True)
            pipeline.xrange(KEYS.dead)
            pipeline.zrange(KEYS.workers, 0, -1, withscores=True)
            stream, pending, delayed, dead, workers = pipeline.execute()
        envelopes = {entry_id: decode_envelope(fields[b"d"]) for entry_id, fields in stream}
        assert {i: (e.id, e.attempt) for i, e in envelopes.items()} == {
            i: (entry.job, entry.attempt) for i, entry in self.model.entries.items()
        }
        holds = {hold["message_id"]: (hold["consumer"].decode(), hold["times_delivered"]) for hold in pending}
        assert holds == {
            i: (entry.owner, entry.deliveries) for i, entry in self.model.entries.items() if entry.owner is not None
        }
        assert {hold["message_id"]: hold["time_since_delivered"] >= MIN_IDLE_MS for hold in pending} == {
            i: entry.is_idle for i, entry in self.model.entries.items() if entry.owner is not None
        }
        now_ms = self._now_ms()
        assert {
            member: (decode_envelope(split_delayed_member(member)[1]).id, due <= now_ms)
            for member, due in delayed
            if due <= now_ms + 1 + LONG_MS  # what was rescheduled within this very millisecond is due at the next one
        } == self.model.delayed
        assert sorted(decode_envelope(fields[b"d"]).id for _, fields in dead) == sorted(self.model.dead)
        assert {name.decode(): lease for name, lease in workers} == self.model.leases

    @invariant()
    def every_key_has_an_owner_and_an_end(self) -> None:
        if not self.workers:  # it has not begun
            return
        keys = {key.decode() for key in self.client.keys("*")}
        endless = {KEYS.stream, KEYS.delayed, KEYS.dead}
        indices = {f"{KEYS.prefix}:didx:{job}" for job, _ in self.model.delayed.values()}
        assert keys - endless - {KEYS.workers, KEYS.promoter_lease, LEDGER} == indices
        for key in keys - endless:
            assert self.client.pttl(key) > 0, f"{key} has no end"

    def teardown(self) -> None:
        """Two workers that go on finish all jobs after any history."""
        if not self.workers:
            return
        for _ in range(200):
            if not self.model.entries and not self.model.delayed:
                break
            self._carry_on()
        assert not self.model.entries
        assert not self.model.delayed
        self.redis_holds_what_the_model_holds()
        assert self.model.places() == sorted(self.model.added)
        assert len(self.model.done) + len(self.model.dead) == len(self.model.added)

    def _carry_on(self) -> None:
        for name, lease in list(self.model.leases.items()):
            if lease and name not in {worker.name for worker in self.workers}:
                self._end_lease(name)
        self.let_entries_lie()
        for slot, worker in enumerate(self.workers):
            self.keep(slot, drops=True)
            self.look_for_orphans(slot, starts=True)
            for name, lease in list(self.model.leases.items()):
                if lease < self._now_ms():
                    self.judgements = [(name, lease)]
                    self.take_over(slot, 0, 3, "none", starts=True)
            self.claim_what_lies(slot, 3, "none", starts=True)
            self.read(slot, 3, "none", starts=True)
            for run in self._startable(worker):
                self._start(run)
            while self._ending(worker):
                self.finish(slot, 0, "success", "none")
        while self.model.delayed:
            self._make_due(0)
            self.client.delete(KEYS.promoter_lease)
            self.model.leader = None
            self._promote(0, batch=3, fault="none")


@pytest.fixture
def new_machine(server: RedisServer, redis_url: str) -> Iterator[Callable[[], Machine]]:
    connection = Connector(redis_url, tls=False, client_name="machine").make_connection(timeout_s=5)
    broker = Broker(connection, KEYS)
    with asyncio.Runner() as runner, server.client() as client:
        yield lambda: Machine(server, runner, broker, client)
        runner.run(connection.close())


@pytest.mark.timeout(0)
def test_redis_holds_the_state_of_the_model_after_every_step(new_machine: Callable[[], Machine]) -> None:
    profile = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    models: list[Model] = []

    def machine() -> Machine:
        machine = new_machine()
        models.append(machine.model)
        return machine

    drive(machine, settings=profile)  # type: ignore[arg-type]
    assert len(models) >= EXAMPLES
    assert all(model.places() == sorted(model.added) for model in models)
    # And much of what can happen did: a machine that adds nothing would agree with any model.
    assert sum(len(model.done) for model in models) > EXAMPLES
    assert sum(len(model.dead) for model in models) > EXAMPLES / 10
    assert max(max(model.runs.values(), default=0) for model in models) > 1  # a third run is rare in few histories


@pytest.mark.parametrize("fault", ("none", "sent twice", "reply lost"))
@pytest.mark.parametrize("outcome", ("failure", "unrecoverable"))
def test_the_outcome_of_a_run_whose_entry_has_come_back_by_a_later_delivery_moves_nothing(
    new_machine: Callable[[], Machine], outcome: str, fault: str
) -> None:
    """What the random histories above reach too rarely to rely on."""
    machine = new_machine()
    machine.begin()
    machine.read(0, 1, "none", starts=True)
    machine.send_there_and_back(0, "none", starts=False)
    machine.finish(0, 0, outcome, fault)
    assert machine.model.stale == 1
    machine.redis_holds_what_the_model_holds()
    machine.teardown()
