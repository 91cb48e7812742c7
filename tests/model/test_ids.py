"""Hypothesis drives jobs of two ids against a real server: adds, fails, buries, replays, promotes and cancels them.

The model says which job has the id, the last one that was added, and which jobs only run beside it because they were
replayed. After each step every job is where the model says, and the keys of an id are those of the job that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as drive

from pychasqui._wire.envelope import decode_envelope, encode_envelope
from pychasqui._wire.member import make_delayed_member, split_delayed_member
from tests.scripts.group import HOUR_MS, KEYS, Group, Wanted
from tests.support.server import RedisServer

EXAMPLES = int(os.environ.get("CHASQUI_MODEL_EXAMPLES", "60"))
IDS = ("x", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
WAITING, HELD, DELAYED, DEAD, GONE = "waiting", "held", "delayed", "dead", "gone"
SOON, LATER = "+1", f"+{HOUR_MS}"
ids = st.sampled_from(IDS)
picks = st.integers(0, 9)


@dataclass
class JobOfId:
    id: str
    number: int
    place: str
    has_id: bool = True  # False: it was replayed
    attempt: int = 0
    due_soon: bool = False

    @property
    def envelope(self) -> bytes:
        return encode_envelope(self.id, b"\xce" + self.number.to_bytes(4, "big"), 5, self.attempt, None)

    @property
    def member(self) -> bytes:
        return make_delayed_member("mail", self.envelope)


def number_in(envelope: bytes) -> int:
    return int.from_bytes(decode_envelope(envelope).payload[1:], "big")


class IdMachine(RuleBasedStateMachine):
    group: Group

    @initialize()
    def begin(self) -> None:
        self.group.client.flushall()
        self.group.create()
        self.jobs: list[JobOfId] = []

    def at(self, *places: str, job_id: str = "") -> list[JobOfId]:
        return [job for job in self.jobs if job.place in places and job_id in ("", job.id)]

    def owner(self, job_id: str) -> JobOfId | None:
        return next((job for job in self.at(WAITING, HELD, DELAYED, job_id=job_id) if job.has_id), None)

    def entry_id(self, job: JobOfId) -> bytes:
        entries = self.group.client.xrange(KEYS.stream)
        return next(entry_id for entry_id, fields in entries if number_in(fields[b"d"]) == job.number)

    @rule(job_id=ids, only=st.sampled_from(("keep", "replace", "postpone")), due=st.sampled_from(("", SOON, LATER)))
    def add(self, job_id: str, only: str, due: str) -> None:
        job, owner = JobOfId(job_id, len(self.jobs), WAITING), self.owner(job_id)
        wanted = "n" if owner is None else "d" if only == "keep" or owner.place == HELD else "r"
        assert self.group.add_with_options(Wanted("mail", job.envelope, job_id, due, only)) == wanted
        if wanted == "d":
            return
        score = self.group.client.zscore(KEYS.delayed, job.member)
        if score is not None:
            job.place, job.due_soon = DELAYED, score < self.group.now_ms + HOUR_MS // 2
            self.let_the_clock_move_on()
        if owner is not None:
            owner.place = GONE
        self.jobs.append(job)

    @rule()
    def read(self) -> None:
        for entry_id in self.group.read("a", 1):
            ((_, fields),) = self.group.client.xrange(KEYS.stream, entry_id, entry_id)
            self.jobs[number_in(fields[b"d"])].place = HELD

    @precondition(lambda self: self.at(HELD))
    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        job = self.pick(pick, HELD)
        self.group.ack_unique((self.entry_id(job), job.id))
        job.place = GONE

    @precondition(lambda self: self.at(HELD))
    @rule(pick=picks, due_soon=st.booleans())
    def fail(self, pick: int, due_soon: bool) -> None:
        job = self.pick(pick, HELD)
        entry_id = self.entry_id(job)
        job.attempt, job.place, job.due_soon = job.attempt + 1, DELAYED, due_soon
        delay_ms = 0 if due_soon else HOUR_MS
        assert self.group.reschedule("a", (entry_id, delay_ms, job.member), job_id=job.id, may_be_unique=1) == 1
        self.let_the_clock_move_on()

    @precondition(lambda self: self.at(HELD))
    @rule(pick=picks)
    def bury(self, pick: int) -> None:
        job = self.pick(pick, HELD)
        entry_id = self.entry_id(job)
        job.attempt, job.place = 0, DEAD
        assert self.group.bury("a", (entry_id, [b"d", job.envelope]), job_id=job.id) == 1

    @precondition(lambda self: self.at(DEAD))
    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        job = self.pick(pick, DEAD)
        letters = self.group.client.xrange(KEYS.dead)
        (letter_id,) = [each for each, fields in letters if number_in(fields[b"d"]) == job.number]
        assert self.group.replay((letter_id, job.envelope, b"mail")) == 1
        job.place, job.has_id = WAITING, False

    @rule()
    def promote(self) -> None:
        self.group.wait_ms(2)
        self.group.promote()
        for job in self.at(DELAYED):
            job.place = WAITING if job.due_soon else DELAYED

    @rule(job_id=ids, action=st.sampled_from(("run", "cancel")))
    def move_delayed(self, job_id: str, action: str) -> None:
        """It finds the job that has the id, or perhaps another."""
        before = set(self.group.delayed)
        self.group.move_delayed(action, job_id)
        moved = before - set(self.group.delayed)
        owner = self.owner(job_id)
        if owner is not None and owner.place == DELAYED:
            assert moved == {owner.member}
        for job in self.at(DELAYED):
            if job.member in moved:
                job.place = WAITING if action == "run" else GONE

    @rule()
    def purge_delayed(self) -> None:
        self.group.purge_delayed()
        for job in self.at(DELAYED):
            job.place = GONE

    def let_the_clock_move_on(self) -> None:
        """So that jobs become due in the order in which they came, and one that is due soon is due at the next step."""
        self.group.wait_ms(2)

    def pick(self, number: int, place: str) -> JobOfId:
        jobs = self.at(place)
        return jobs[number % len(jobs)]

    @invariant()
    def every_job_is_in_its_place(self) -> None:
        assert sorted(map(number_in, self.group.envelopes)) == [job.number for job in self.at(WAITING, HELD)]
        delayed = sorted(number_in(split_delayed_member(member)[1]) for member in self.group.delayed)
        assert delayed == [job.number for job in self.at(DELAYED)]

    @invariant()
    def the_keys_of_an_id_are_those_of_the_job_that_has_it(self) -> None:
        for job_id in IDS:
            owner = self.owner(job_id)
            if owner is None:
                assert self.group.uniqueness_key(job_id) is None
            elif owner.place == DELAYED:
                assert (self.group.uniqueness_key(job_id), self.group.index(job_id)) == ("d", owner.member)
            else:
                assert self.group.uniqueness_key(job_id) == self.entry_id(owner).decode()
            if not self.at(DELAYED, job_id=job_id):
                assert self.group.index(job_id) is None


@pytest.fixture
def machine(server: RedisServer) -> Iterator[type[IdMachine]]:
    with server.client() as client:
        IdMachine.group = Group(client)
        yield IdMachine


@pytest.mark.timeout(120 + EXAMPLES // 4)
def test_the_job_of_an_id_keeps_its_keys_beside_any_that_were_replayed(machine: type[IdMachine]) -> None:
    checks = (HealthCheck.too_slow, HealthCheck.filter_too_much)
    drive(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=checks, database=None
        ),
    )
