"""The acker settles outcomes by their deliveries, holds them until Redis has answered, and tells of those in vain."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pychasqui._engine.acker import Acker
from pychasqui._redis.broker import Also, Broker, Dead, Failed
from pychasqui._redis.connection import Socket
from pychasqui.errors import CommandTimeout, ConnectionLost
from pychasqui.job import Job

PATIENCE_S = 2.0


class FakeBroker:
    """Moves what is not in `fenced`. While `line` is closed nothing is answered."""

    def __init__(self) -> None:
        self.connection = self
        self.fenced: set[bytes] = set()
        self.troubles: list[Exception] = []
        self.line = asyncio.Event()
        self.line.set()
        self.acked: list[bytes] = []
        self.finished: list[tuple[bytes, str]] = []
        self.rescheduled: list[Failed] = []
        self.buried: list[Dead] = []

    async def _answer(self, also: Also | None = None) -> None:
        if also is not None:
            also(cast(Socket, self))
        await self.line.wait()
        if self.troubles:
            raise self.troubles.pop(0)

    def _count(self, jobs: list[Failed] | list[Dead]) -> int:
        return sum(job.entry_id not in self.fenced for job in jobs)

    async def ack(self, group: str, ids: list[bytes], also: Also | None = None) -> None:
        await self._answer(also)
        self.acked += ids

    async def finish(self, group: str, entries: list[tuple[bytes, str]], also: Also | None = None) -> None:
        await self._answer(also)
        self.finished += entries

    async def reschedule(self, group: str, consumer: str, jobs: list[Failed]) -> int:
        await self._answer()
        self.rescheduled += jobs
        return self._count(jobs)

    async def bury(self, group: str, consumer: str, max_len: int, jobs: list[Dead]) -> int:
        await self._answer()
        self.buried += jobs
        return self._count(jobs)


class Office:
    """An acker at work."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.expected: list[int] = []
        self.fences = 0
        self.acker = Acker(
            cast(Broker, self.broker),
            "default",
            "a",
            dlq_max_len=0,
            on_rescheduled=self.expected.append,
            on_fenced=self._on_fenced,
        )

    def _on_fenced(self) -> None:
        self.fences += 1

    async def settle(self) -> None:
        self.acker.start()
        async with asyncio.timeout(PATIENCE_S):
            while self.acker.held():
                await asyncio.sleep(0.001)
        await self.acker.end(patience_s=PATIENCE_S)


@pytest.fixture
async def office() -> Office:
    return Office()


def job(number: int, deliveries: int = 0, *, is_marked: bool = False) -> Job:
    return Job(
        f"job-{number}",
        "mail",
        number,
        _entry_id=b"%d-0" % number,
        _deliveries=deliveries,
        _is_marked=is_marked,
    )


def failed(number: int, delivery: int = 1) -> Failed:
    return Failed(b"%d-0" % number, delivery, 100, b"member", f"job-{number}", 0)


def dead(number: int, delivery: int = 1) -> Dead:
    return Dead(b"%d-0" % number, delivery, "", [b"d", b"x"])


def give_one_of_each(office: Office) -> None:
    office.acker.done(job(1), None)
    office.acker.reschedule(failed(2, delivery=2))
    office.acker.bury(dead(3, delivery=3))


async def test_each_outcome_goes_its_way_with_its_delivery(office: Office) -> None:
    give_one_of_each(office)
    await office.settle()
    assert office.broker.acked == [b"1-0"]
    assert office.broker.rescheduled == [failed(2, delivery=2)]
    assert office.broker.buried == [dead(3, delivery=3)]
    assert office.expected == [100]


async def test_one_that_may_be_the_only_one_of_its_id_lets_the_next_in(office: Office) -> None:
    office.acker.done(job(1, is_marked=True), None)
    office.acker.done(job(2), None)
    await office.settle()
    assert (office.broker.finished, office.broker.acked) == ([(b"1-0", "job-1")], [b"2-0"])


async def test_what_has_no_answer_yet_is_held_by_its_delivery(office: Office) -> None:
    office.broker.line.clear()
    give_one_of_each(office)
    office.acker.done(job(4, deliveries=3), None)
    office.acker.done(job(5, deliveries=4, is_marked=True), None)
    office.acker.start()
    await asyncio.sleep(0.01)
    assert office.acker.held() == {b"1-0": 1, b"2-0": 2, b"3-0": 3, b"4-0": 4, b"5-0": 5}
    office.broker.line.set()
    await office.acker.end(patience_s=PATIENCE_S)
    assert office.acker.held() == {}


async def test_an_outcome_without_an_answer_is_sent_again_as_it_was(office: Office) -> None:
    office.broker.troubles = [ConnectionLost("cut"), CommandTimeout("late")]
    office.acker.reschedule(failed(2, delivery=2))
    await office.settle()
    assert office.broker.rescheduled == [failed(2, delivery=2)]
    assert office.fences == 0


async def test_a_failure_that_did_not_count_is_told(office: Office) -> None:
    """The entry may have come back by another delivery, and wait for us."""
    office.broker.fenced = {b"2-0"}
    office.acker.reschedule(failed(2))
    office.acker.reschedule(failed(4))
    await office.settle()
    assert office.fences == 1


async def test_so_is_a_death(office: Office) -> None:
    office.broker.fenced = {b"3-0"}
    office.acker.bury(dead(3))
    await office.settle()
    assert office.fences == 1


async def test_of_outcomes_that_count_nothing_is_told(office: Office) -> None:
    give_one_of_each(office)
    await office.settle()
    assert office.fences == 0
