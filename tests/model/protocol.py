"""The protocol by which workers share jobs, as a pure model, and a search through all that can happen in it.

Two workers, two jobs, and a budget of faults: crashes, a lost reply, a pause past the lease, a worker that leaves.
Each script is one atomic step, as it is in Redis; what a worker does between two scripts is one step too. Time is not
modelled: a step that waits for time to pass may happen now or later. A worker that leaves starts again under another
name, one that crashes under another or under its own.

The search visits every state once. In each it checks what must always hold, and from each it checks that, if nothing
more goes wrong, every job can still come to its end. FLAWS are mistakes that were made, or nearly made, in such
protocols: with any of them built in, the search must find a counter-example.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

JOBS = (0, 1)
SLOTS = (0, 1)
MAX_ATTEMPTS = 2

# The owner of an entry: a name, or one of these. The workers that live are named as their slots, the dead from 2 on.
HEIR = -1  # the name that holds what was handed back
UNREAD = -2  # no owner yet
NOBODY = -3  # not pending, and not to be delivered again either
GONE = -1  # the number of an entry that is not in the stream any more

FRESH, OVER = 1, 0
HELD, RUNNING, ACKED, FAILED, BURIED = "held", "running", "acked", "failed", "buried"
# The last three: the outcome was sent, and the worker does not know that it arrived.

FLAWS = {
    "no gate": "a failed job is rescheduled or buried whether or not its entry is pending",
    "no owner": "the gate asks whether the entry is pending, but not for whom",
    "fence by owner only": "the gate asks whose the entry is, but not by which delivery: it may have come back",
    "what came back is not looked for": "an entry that an earlier run here had lost is forgotten when that run ends",
    "runs beside itself": "an entry that came back is started though the run that had lost it goes on",
    "an earlier life counts for nothing": "what a killed worker held is taken for unstarted under the same name",
    "an earlier life counts twice": "the count of what a killed worker held is not sent again as it was",
    "write, then ack": "the retry is written in one step and the entry acked in another",
    "ack, then write": "the entry is acked in one step and the retry written in another",
    "steals back": "a renewal claims entries of any owner",
    "no comparison": "a takeover does not compare the lease with the one that was judged",
    "count off by one": "a first redelivery is taken for a first delivery",
    "release counts": "handing an entry back does not undo its delivery",
    "name goes with entries": "a worker that leaves removes its name though entries are pending for it",
    "only old entries are looked at": "after a pause, what came after the last renewal is not compared with Redis",
    "lease before news": "after a pause, the lease begins again before lost jobs are dropped",
    "orphans are not looked for": "a takeover whose reply was lost is forgotten",
    "relieves itself": "a worker whose own lease is over takes over its own entries, and starts them beside themselves",
    "looks with old eyes": "the search for orphans compares with what was held before a takeover came",
}


class Entry(NamedTuple):
    number: int
    attempt: int  # in the envelope
    owner: int
    deliveries: int


class Job(NamedTuple):
    """Where a job is. There must be one place for it at any time."""

    entries: tuple[Entry, ...]
    delayed: tuple[int, ...] = ()  # attempts
    dead: int = 0
    done: int = 0
    used: int = 0  # runs that are used up, by failure or by the loss of a worker
    is_started: bool = False  # since then


class HeldEntry(NamedTuple):
    """The knowledge of a worker about an entry that it was given."""

    job: int
    number: int
    attempt: int  # as the handler sees it
    earlier: int  # deliveries before this one
    phase: str
    lapsed: bool = False  # the worker's lease was over at some time since the entry came
    known: bool = False  # seen by a renewal; only for "only old entries are looked at"


class ModelWorker(NamedTuple):
    is_paused: bool = False
    may_start: bool = True  # as far as it knows, its lease is not over
    orphans: bool = False  # a reply was lost that may have brought entries
    judged: int = 0  # the other one: 0 alive, 1 its lease is over, 2 its lease was over and has been renewed since
    records: tuple[HeldEntry, ...] = ()
    snapshot: tuple[tuple[int, int, int], ...] | None = None  # only for "looks with old eyes"
    news: tuple[tuple[int, int], ...] = ()  # only for "lease before news"


class Budget(NamedTuple):
    crashes: int = 0
    lost: int = 0
    pauses: int = 0
    departures: int = 0


class State(NamedTuple):
    jobs: tuple[Job, ...]
    workers: tuple[ModelWorker, ...]
    leases: tuple[tuple[int, int], ...]
    budget: Budget
    torn: tuple[tuple[int, int, int], ...] = ()  # second halves of what should be one step: job, number, attempt


class Step(NamedTuple):
    title: str
    state: State
    is_fault: bool = False


class Violation(Exception):
    """Something that must never be."""


def beginning(budget: Budget) -> State:
    return State(
        jobs=tuple(Job((Entry(0, 0, UNREAD, 0),)) for _ in JOBS),
        workers=tuple(ModelWorker() for _ in SLOTS),
        leases=tuple((slot, FRESH) for slot in SLOTS),
        budget=budget,
    )


# Small changes --------------------------------------------------------------------------------------------------------

# A search makes hundreds of thousands of states. A tuple that is made field by field costs a third of its _replace().


def with_job(state: State, number: int, **changes: Any) -> State:
    jobs = list(state.jobs)
    jobs[number] = jobs[number]._replace(**changes)
    return State(tuple(jobs), *state[1:])


def with_worker(state: State, slot: int, **changes: Any) -> State:
    workers = list(state.workers)
    workers[slot] = workers[slot]._replace(**changes)
    return State(state.jobs, tuple(workers), *state[2:])


def with_records(state: State, slot: int, records: list[HeldEntry]) -> State:
    return with_worker(state, slot, records=tuple(sorted(records)))


def without_record(state: State, slot: int, record: HeldEntry) -> State:
    records = list(state.workers[slot].records)
    records.remove(record)
    return with_records(state, slot, records)


def with_entry(state: State, job: int, entry: Entry) -> State:
    others = [other for other in state.jobs[job].entries if other.number != entry.number]
    return with_job(state, job, entries=tuple(sorted([*others, entry])))


def without_entry(state: State, job: int, number: int) -> State:
    return with_job(state, job, entries=tuple(entry for entry in state.jobs[job].entries if entry.number != number))


def with_lease(state: State, name: int, lease: int | None) -> State:
    others = [pair for pair in state.leases if pair[0] != name]
    leases = sorted(others if lease is None else [*others, (name, lease)])
    return State(state.jobs, state.workers, tuple(leases), *state[3:])


def with_use(state: State, job: int, used: int) -> State:
    return with_job(state, job, used=used, is_started=False)


def find_entry(state: State, job: int, number: int) -> Entry | None:
    return next((entry for entry in state.jobs[job].entries if entry.number == number), None)


def pending_for(state: State, name: int) -> list[tuple[int, Entry]]:
    return [(job, entry) for job in JOBS for entry in state.jobs[job].entries if entry.owner == name]


def _owners(state: State) -> list[int]:
    return [entry.owner for job in state.jobs for entry in job.entries]


def spend(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


# What must always hold ------------------------------------------------------------------------------------------------


def check(state: State) -> None:
    for job in state.jobs:
        places = len(job.entries) + len(job.delayed) + job.dead + job.done
        if places != 1:
            raise Violation(f"a job is in {places} places")
    running: dict[int, list[HeldEntry]] = {}
    for worker in state.workers:
        known = [record[:2] + record[3:4] for record in worker.records if record.number != GONE]
        if len(known) != len(set(known)):
            raise Violation("a worker has the same delivery twice")
        here = [record for record in worker.records if record.phase == RUNNING]
        entries = [record[:2] for record in here if record.number != GONE]
        if len(entries) != len(set(entries)):
            raise Violation("an entry runs twice at once in one worker")
        for record in here:
            running.setdefault(record.job, []).append(record)
    for records in running.values():
        if len(records) > 1 and not any(record.lapsed for record in records):
            raise Violation("a job runs twice at once, and nobody's lease was over")


def is_settled(state: State) -> bool:
    return all(job.dead + job.done for job in state.jobs)


# Steps ----------------------------------------------------------------------------------------------------------------


@dataclass
class Protocol:
    flaws: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        assert self.flaws <= FLAWS.keys(), self.flaws

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._promotions(state)
        yield from self._second_halves(state)
        for slot, worker in enumerate(state.workers):
            if worker.is_paused:
                yield Step(f"worker {slot} goes on", with_worker(state, slot, is_paused=False))
                yield from self._crashes(state, slot)
                continue
            yield from self._reads(state, slot)
            yield from self._runs(state, slot)
            yield from self._news(state, slot)
            yield from self._renewals(state, slot)
            yield from self._takeovers(state, slot)
            yield from self._claims(state, slot)
            yield from self._searches(state, slot)
            yield from self._ends(state, slot)

    def _promotions(self, state: State) -> Iterator[Step]:
        for number, job in enumerate(state.jobs):
            for attempt in set(job.delayed):
                left = list(job.delayed)
                left.remove(attempt)
                after = with_job(state, number, delayed=tuple(left))
                entry = Entry(len(job.entries), attempt, UNREAD, 0)
                yield Step(f"job {number} is promoted", with_entry(after, number, entry))

    # Reading and running

    def _record(self, state: State, slot: int, job: int, entry: Entry, earlier: int) -> State:
        runs = max(0, earlier - 1) if "count off by one" in self.flaws else earlier
        record = HeldEntry(job, entry.number, entry.attempt + runs, earlier, HELD)
        return with_records(state, slot, [*state.workers[slot].records, record])

    def _taken(self, state: State, slot: int, job: int, entry: Entry) -> State:
        """What an earlier delivery of the entry still goes on with here is not run beside it."""
        is_held = any(record[:2] == (job, entry.number) for record in state.workers[slot].records)
        if is_held and not self.flaws & {"runs beside itself", "relieves itself"}:
            return state
        return self._record(state, slot, job, entry, entry.deliveries)

    def _reads(self, state: State, slot: int) -> Iterator[Step]:
        if state.workers[slot].snapshot is not None:  # who looks for orphans does not read meanwhile
            return
        for job, entry in pending_for(state, UNREAD):
            read = with_entry(state, job, entry._replace(owner=slot, deliveries=1))
            yield Step(f"worker {slot} reads job {job}", self._record(read, slot, job, entry, 0))
            if state.budget.lost:
                lost = with_worker(spend(read, "lost"), slot, orphans=True)
                yield Step(f"job {job} is delivered to {slot}, and the reply is lost", lost, is_fault=True)

    def _runs(self, state: State, slot: int) -> Iterator[Step]:
        for record in state.workers[slot].records:
            if record.phase == HELD:
                if record.attempt >= MAX_ATTEMPTS:
                    yield from self._outcome(state, slot, record, BURIED)
                elif state.workers[slot].may_start:
                    yield Step(f"worker {slot} starts job {record.job}", self._started(state, slot, record))
            elif record.phase == RUNNING:
                yield from self._outcome(state, slot, record, ACKED)
                yield from self._outcome(state, slot, record, BURIED if record.attempt + 1 >= MAX_ATTEMPTS else FAILED)
            else:
                yield from self._outcome(state, slot, record, record.phase)

    def _started(self, state: State, slot: int, record: HeldEntry) -> State:
        job = state.jobs[record.job]
        if record.attempt != job.used:
            raise Violation(f"a job that has used up {job.used} runs is started as if it were {record.attempt}")
        if job.is_started:
            raise Violation(f"a job is started a second time with attempt {record.attempt}")
        state = with_job(without_record(state, slot, record), record.job, is_started=True)
        return with_records(state, slot, [*state.workers[slot].records, record._replace(phase=RUNNING, lapsed=False)])

    def _outcome(self, state: State, slot: int, record: HeldEntry, phase: str) -> Iterator[Step]:
        """It is sent; the reply comes, or it is lost and the same is sent again later."""
        sent = without_record(self._settled(state, slot, record, phase), slot, record)
        yield Step(f"job {record.job} of worker {slot} is {phase}", sent)
        if state.budget.lost:
            unsure = with_records(sent, slot, [*sent.workers[slot].records, record._replace(phase=phase)])
            title = f"job {record.job} of worker {slot} is {phase}, and the reply is lost"
            yield Step(title, spend(unsure, "lost"), is_fault=True)

    def _settled(self, state: State, slot: int, record: HeldEntry, phase: str) -> State:
        job, number = record.job, record.number
        entry = find_entry(state, job, number)
        is_pending = entry is not None and entry.owner not in (UNREAD, NOBODY)
        if phase == ACKED:  # a late success is a success for any owner of the entry
            return (
                with_job(without_entry(state, job, number), job, done=1 + state.jobs[job].done) if is_pending else state
            )
        if "no gate" not in self.flaws and not (
            is_pending if "no owner" in self.flaws else self._is_ours(slot, record, entry)
        ):
            return self._fenced(state, slot)
        if phase == BURIED:
            if record.phase == HELD and state.jobs[job].used < MAX_ATTEMPTS:
                raise Violation(f"a job that has used up {state.jobs[job].used} runs is buried as if they were all")
            return with_job(without_entry(state, job, number), job, dead=1 + state.jobs[job].dead)
        if "ack, then write" in self.flaws:
            return without_entry(state._replace(torn=(*state.torn, (job, number, record.attempt))), job, number)
        state = with_use(state, job, state.jobs[job].used + 1)
        state = with_job(state, job, delayed=(*state.jobs[job].delayed, record.attempt + 1))
        if "write, then ack" in self.flaws:
            return state._replace(torn=(*state.torn, (job, number, record.attempt)))
        return without_entry(state, job, number)

    def _is_ours(self, slot: int, record: HeldEntry, entry: Entry | None) -> bool:
        """Pending for this worker, and by no later delivery than the one that the record is about."""
        if entry is None or entry.owner != slot:
            return False
        return entry.deliveries <= record.earlier + 1 or "fence by owner only" in self.flaws

    def _fenced(self, state: State, slot: int) -> State:
        """An entry lost by one delivery may have come back by another."""
        if "what came back is not looked for" in self.flaws:
            return state
        return with_worker(state, slot, orphans=True)

    def _second_halves(self, state: State) -> Iterator[Step]:
        for job, number, attempt in state.torn:
            after = without_entry(state._replace(torn=()), job, number)
            if "ack, then write" in self.flaws:
                after = with_job(after, job, delayed=(*after.jobs[job].delayed, attempt + 1))
            yield Step(f"the other half of the retry of job {job}", after)

    # Leases

    def _renewals(self, state: State, slot: int) -> Iterator[Step]:
        after = self._renewed(state, slot)
        if after != state:
            yield Step(f"worker {slot} renews its lease", after)

    def _renewed(self, state: State, slot: int) -> State:
        worker = state.workers[slot]
        lost: list[HeldEntry] = []
        has_lost = False
        for record in worker.records:
            entry = find_entry(state, record.job, record.number)
            if "steals back" in self.flaws and entry is not None and entry.owner != UNREAD:
                state = with_entry(state, record.job, entry._replace(owner=slot))
            elif "only old entries are looked at" in self.flaws and not record.known:
                continue
            elif not self._is_ours(slot, record, entry) and record.phase in (HELD, RUNNING):
                has_lost = True
                if record.phase == HELD:
                    lost.append(record)  # one that runs goes on: it can finish, but not disturb
        if "lease before news" in self.flaws:
            state = with_worker(state, slot, news=tuple(sorted((record.job, record.number) for record in lost)))
            lost = []
        kept = [record for record in worker.records if record not in lost]
        if "only old entries are looked at" in self.flaws:
            kept = [record._replace(known=True) for record in kept]
        state = with_worker(with_records(state, slot, kept), slot, may_start=True)
        if has_lost:
            state = self._fenced(state, slot)
        if state.workers[1 - slot].judged == 1:
            state = with_worker(state, 1 - slot, judged=2)
        return with_lease(state, slot, FRESH)

    def _news(self, state: State, slot: int) -> Iterator[Step]:
        worker = state.workers[slot]
        if worker.news:
            kept = [record for record in worker.records if record[:2] not in worker.news or record.phase != HELD]
            later = with_worker(with_records(state, slot, kept), slot, news=())
            yield Step(f"worker {slot} hears what it has lost", later)

    def _takeovers(self, state: State, slot: int) -> Iterator[Step]:
        """Judging a dead worker and taking its entries are one step: no process renews its lease in between."""
        for name, lease in state.leases:
            if name not in SLOTS or (name == slot and lease == OVER and "relieves itself" in self.flaws):
                yield from self._takeover(state, slot, name)
        other, judged = 1 - slot, state.workers[slot].judged
        lease_of_other = dict(state.leases).get(other)
        if lease_of_other == OVER and judged != 1:
            yield Step(f"worker {slot} takes {other} for dead", with_worker(state, slot, judged=1))
        if judged:
            decided = with_worker(state, slot, judged=0)
            if lease_of_other is not None and (judged == 1 or "no comparison" in self.flaws):
                yield from self._takeover(decided, slot, other)
            else:
                yield Step(f"worker {slot} finds that {other} lives", decided)

    def _takeover(self, state: State, slot: int, dead: int) -> Iterator[Step]:
        """All that is pending for the dead passes to us, and its name goes."""
        taken = pending_for(state, dead)
        after = with_lease(state, dead, None)
        for job, entry in taken:
            after = with_entry(after, job, entry._replace(owner=slot, deliveries=entry.deliveries + 1))
            if dead != HEIR:
                after = with_use(after, job, state.jobs[job].used + 1)
        later = after
        for job, entry in taken:
            later = self._taken(later, slot, job, entry)
        yield Step(f"worker {slot} takes over from {dead}", later)
        if taken and state.budget.lost:
            looks = "orphans are not looked for" not in self.flaws
            lost = with_worker(spend(after, "lost"), slot, orphans=looks or state.workers[slot].orphans)
            yield Step(f"worker {slot} takes over from {dead}, and the reply is lost", lost, is_fault=True)

    def _claims(self, state: State, slot: int) -> Iterator[Step]:
        """Entries of consumers without a lease are taken when they have been idle for long."""
        spared = {name for name, _ in state.leases} | {UNREAD, NOBODY}
        spared |= {other for other in SLOTS if not state.workers[other].is_paused}
        for job in JOBS:
            for entry in state.jobs[job].entries:
                if entry.owner not in spared:
                    after = with_entry(state, job, entry._replace(owner=slot, deliveries=entry.deliveries + 1))
                    after = with_use(after, job, state.jobs[job].used + 1)
                    later = self._taken(after, slot, job, entry)
                    yield Step(f"worker {slot} claims job {job}, which lies idle", later)

    def _searches(self, state: State, slot: int) -> Iterator[Step]:
        """What is pending for us and unknown to us was never started: its delivery does not count."""
        worker = state.workers[slot]
        if not worker.orphans:
            return
        held = tuple(sorted(record[:2] + record[3:4] for record in worker.records))
        if "looks with old eyes" in self.flaws and worker.snapshot is None:
            yield Step(f"worker {slot} begins to look for orphans", with_worker(state, slot, snapshot=held))
            return
        known = held if worker.snapshot is None else worker.snapshot
        after = with_worker(state, slot, orphans=False, snapshot=None)
        for job, entry in pending_for(state, slot):
            if (job, entry.number) not in [each[:2] for each in known]:
                after = self._record(after, slot, job, entry, entry.deliveries - 1)
        yield Step(f"worker {slot} finds its orphans", after)

    # Ends

    def _ends(self, state: State, slot: int) -> Iterator[Step]:
        yield from self._crashes(state, slot)
        if state.budget.pauses:
            yield Step(f"worker {slot} is paused past its lease", self._paused(state, slot), is_fault=True)
        if state.budget.departures and state.workers[slot].may_start:
            yield Step(f"worker {slot} leaves", self._leave_group(spend(state, "departures"), slot), is_fault=True)

    def _crashes(self, state: State, slot: int) -> Iterator[Step]:
        if state.budget.crashes:
            crashed = spend(state, "crashes")
            yield Step(f"worker {slot} crashes", self._replaced(crashed, slot), is_fault=True)
            yield Step(f"worker {slot} crashes and lives again", self._living_again(crashed, slot), is_fault=True)
            if state.budget.lost and "an earlier life counts twice" in self.flaws:
                after = self._living_again(spend(crashed, "lost"), slot, counts=2)
                yield Step(f"worker {slot} crashes and lives again, and a reply is lost", after, is_fault=True)

    def _living_again(self, state: State, slot: int, counts: int = 1) -> State:
        """Under its name: what it held may have run. That is counted at once, and then it is found as orphans."""
        counts = 0 if "an earlier life counts for nothing" in self.flaws else counts
        for job, entry in pending_for(state, slot):
            state = with_entry(state, job, entry._replace(deliveries=entry.deliveries + counts))
            state = with_use(state, job, state.jobs[job].used + 1)
        workers = list(state.workers)
        workers[slot] = ModelWorker(orphans=True, judged=workers[slot].judged)
        if workers[1 - slot].judged == 1:
            workers[1 - slot] = workers[1 - slot]._replace(judged=2)
        return with_lease(state._replace(workers=tuple(workers)), slot, FRESH)

    def _replaced(self, state: State, slot: int) -> State:
        """Another process in its place. What was the old one's is a dead name's now."""
        name = 1 + max([*SLOTS, *(name for name, _ in state.leases), *_owners(state)])
        for job, entry in pending_for(state, slot):
            state = with_entry(state, job, entry._replace(owner=name))
        if slot in dict(state.leases):
            state = with_lease(state, name, OVER)
        workers = list(state.workers)
        workers[slot] = ModelWorker()
        if workers[1 - slot].judged:
            workers[1 - slot] = workers[1 - slot]._replace(judged=0)
        return with_lease(state._replace(workers=tuple(workers)), slot, FRESH)

    def _paused(self, state: State, slot: int) -> State:
        lapsed = [record._replace(lapsed=True) for record in state.workers[slot].records]
        state = with_records(spend(state, "pauses"), slot, lapsed)
        return with_lease(with_worker(state, slot, is_paused=True, may_start=False), slot, OVER)

    def _leave_group(self, state: State, slot: int) -> State:
        """What was not started is handed back, what runs is cut off and handed back, the name goes."""
        for record in state.workers[slot].records:
            entry = find_entry(state, record.job, record.number)
            if record.phase in (HELD, RUNNING) and entry is not None and self._is_ours(slot, record, entry):
                deliveries = entry.deliveries if "release counts" in self.flaws else record.earlier
                state = with_entry(state, record.job, entry._replace(owner=HEIR, deliveries=deliveries))
                state = with_lease(with_job(state, record.job, is_started=False), HEIR, OVER)
        if not pending_for(state, slot) or "name goes with entries" in self.flaws:
            for job, entry in pending_for(state, slot):
                state = with_entry(state, job, entry._replace(owner=NOBODY))
            state = with_lease(state, slot, None)
        return self._replaced(state, slot)


# One state for all equal ones --- -------------------------------------------------------------------------------------


def tidy(state: State, *, is_gated: bool) -> State:
    """Forget what can make no difference any more, and give names and numbers in a fixed order."""
    jobs = tuple(job if _is_in_order(job) else job._replace(entries=_in_order(job.entries)) for job in state.jobs)
    numbers = [{entry.number: index for index, entry in enumerate(job.entries)} for job in state.jobs]
    workers = tuple(
        worker._replace(records=_tidy_records(worker.records, numbers, is_gated)) if worker.records else worker
        for worker in state.workers
    )
    known = {record.job for worker in workers for record in worker.records}
    jobs = tuple(
        job._replace(used=0, is_started=False) if (job.dead or job.done) and number not in known else job
        for number, job in enumerate(jobs)
    )
    return _renamed(state._replace(jobs=jobs, workers=workers))


def _is_in_order(job: Job) -> bool:
    return not job.entries or (len(job.entries) == 1 and job.entries[0].number == 0)


def _in_order(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(entry._replace(number=index) for index, entry in enumerate(entries))


def _tidy_records(
    records: tuple[HeldEntry, ...], numbers: list[dict[int, int]], is_gated: bool
) -> tuple[HeldEntry, ...]:
    tidied = []
    for record in records:
        number = numbers[record.job].get(record.number, GONE)
        if number != record.number:
            record = record._replace(number=number)
        # An outcome of what is gone changes nothing: it may as well have been settled.
        is_over = record.phase not in (HELD, RUNNING) or (record.phase == RUNNING and record.lapsed)
        if number != GONE or not is_gated or not is_over:
            tidied.append(record)
    tidied.sort()
    return tuple(tidied)


def _renamed(state: State) -> State:
    """The dead are named in the order of the jobs that they hold; who holds none is forgotten."""
    if (not state.leases or state.leases[-1][0] < len(SLOTS)) and max(_owners(state), default=UNREAD) < len(SLOTS):
        return state
    names: dict[int, int] = {}
    for owner in _owners(state):
        if owner >= len(SLOTS):
            names.setdefault(owner, len(SLOTS) + len(names))
    leases = [(names.get(name, name), lease) for name, lease in state.leases if name < len(SLOTS) or name in names]
    jobs = tuple(
        job._replace(entries=tuple(entry._replace(owner=names.get(entry.owner, entry.owner)) for entry in job.entries))
        for job in state.jobs
    )
    return state._replace(jobs=jobs, leases=tuple(sorted(leases)))


def mirrored(state: State) -> State:
    """Jobs are alike and so are workers: of states that differ only in who is who, one stands for all."""
    if state.jobs[1] < state.jobs[0]:
        state = _with_jobs_swapped(state)
    if state.workers[0].records == state.workers[1].records and state.workers[0][:4] == state.workers[1][:4]:
        return state
    if _face(state, 1) < _face(state, 0):
        return _with_workers_swapped(state)
    return state


def _face(state: State, slot: int) -> tuple[object, ...]:
    worker = state.workers[slot]
    return (worker.records, worker[:4], [entry.owner == slot for job in state.jobs for entry in job.entries])


def _with_jobs_swapped(state: State) -> State:
    workers = tuple(
        worker._replace(
            records=tuple(sorted(record._replace(job=1 - record.job) for record in worker.records)),
            news=tuple(sorted((1 - job, number) for job, number in worker.news)),
            snapshot=worker.snapshot
            and tuple(sorted((1 - job, number, earlier) for job, number, earlier in worker.snapshot)),
        )
        for worker in state.workers
    )
    torn = tuple((1 - job, number, attempt) for job, number, attempt in state.torn)
    return _renamed(state._replace(jobs=state.jobs[::-1], workers=workers, torn=torn))


def _with_workers_swapped(state: State) -> State:
    swap = dict(zip(SLOTS, reversed(SLOTS), strict=True))
    jobs = tuple(
        job._replace(entries=tuple(entry._replace(owner=swap.get(entry.owner, entry.owner)) for entry in job.entries))
        for job in state.jobs
    )
    leases = tuple(sorted((swap.get(name, name), lease) for name, lease in state.leases))
    return state._replace(jobs=jobs, workers=state.workers[::-1], leases=leases)


# The search -----------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    states: int
    steps: int
    depth: int


class CounterExample(Exception):
    def __init__(self, what: str, path: list[str]) -> None:
        super().__init__(f"{what}:\n" + "\n".join(f"  {number}. {step}" for number, step in enumerate(path, 1)))
        self.what = what
        self.path = path


@contextmanager
def _without_collections() -> Iterator[None]:
    """All states stay until the end of a search, so a collection finds nothing: it takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collections()
def search(protocol: Protocol, budget: Budget, *, at_most: int = 1_000_000) -> Found:
    """Breadth first, so that a counter-example is as short as can be."""
    is_gated = "no gate" not in protocol.flaws
    start = beginning(budget)
    numbers: dict[State, int] = {start: 0}
    led_to: dict[State, int] = {}  # the same by the state as a step leaves it
    states, origin, depths = [start], [-1], [0]
    before: list[list[int]] = [[]]  # from where each can be reached without another fault
    settled: list[int] = []
    steps = 0
    number = 0
    while number < len(states):
        state = states[number]
        if is_settled(state):
            settled.append(number)
        try:
            check(state)
            for step in protocol.steps(state):
                steps += 1
                known = led_to.get(step.state)  # half of all steps lead to where another one has led
                if known is None:
                    after = mirrored(tidy(step.state, is_gated=is_gated))
                    known = led_to[step.state] = numbers.setdefault(after, len(states))
                    if known == len(states):
                        states.append(after)
                        origin.append(number)
                        depths.append(depths[number] + 1)
                        before.append([])
                        assert len(states) <= at_most, f"more than {at_most} states"
                if not step.is_fault and known != number:
                    before[known].append(number)
        except Violation as violation:
            raise CounterExample(str(violation), _path(protocol, states, origin, number)) from None
        number += 1
    stuck = _find_stuck(before, settled)
    if stuck is not None:
        raise CounterExample("a job can never come to its end any more", _path(protocol, states, origin, stuck))
    return Found(len(states), steps, max(depths))


def _find_stuck(before: list[list[int]], settled: list[int]) -> int | None:
    """The first state from which no way leads to an end."""
    can_end = [False] * len(before)
    for number in settled:
        can_end[number] = True
    waiting = deque(settled)
    while waiting:
        for number in before[waiting.popleft()]:
            if not can_end[number]:
                can_end[number] = True
                waiting.append(number)
    return next((number for number, ends in enumerate(can_end) if not ends), None)


def _path(protocol: Protocol, states: list[State], origin: list[int], number: int) -> list[str]:
    """The steps to that state, with each worker under the same name all the way."""
    is_gated = "no gate" not in protocol.flaws
    goals = []
    while number > 0:
        goals.append(number)
        number = origin[number]
    state, path = states[0], []
    for goal in reversed(goals):
        tidied = ((step.title, tidy(step.state, is_gated=is_gated)) for step in protocol.steps(state))
        title, state = next((title, after) for title, after in tidied if _are_alike(after, states[goal]))
        path.append(title)
    return path


def _are_alike(state: State, other: State) -> bool:
    swapped = _with_jobs_swapped(state)
    return other in (state, swapped, _with_workers_swapped(state), _with_workers_swapped(swapped))
