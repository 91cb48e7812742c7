"""The event writer writes events without waiting, drops them rather than delay a job, and counts drops."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._redis.broker import Broker
from pychasqui._redis.socket import Socket
from pychasqui._wire.event import Event
from pychasqui._worker.event_writer import GATHER_S, SETTLED_IN_S, EventWriter
from pychasqui.errors import ConnectionLost, ReplyError
from tests.support.worker_parts import ignore_death

PATIENCE_S = 2.0
DROPPED = "events are dropped, jobs go on"


class FakeBroker:
    """Keeps what is announced, and the callbacks that wait for answers."""

    def __init__(self) -> None:
        self.connection = self
        self.socket: Any = SimpleNamespace(is_congested=False)
        self.calls: list[tuple[str, list[str | int]]] = []
        self.answers: list[Callable[[Any], None]] = []

    def live_socket(self) -> Any:
        return self.socket

    def deadline(self) -> float:
        return 0.0

    def announce(
        self, socket: Socket, kind: str, words: list[str | int], deadline: float, on_reply: Callable[[Any], None]
    ) -> None:
        self.calls.append((kind, words))
        self.answers.append(on_reply)

    @property
    def kinds(self) -> list[tuple[Any, Any]]:
        """What the calls so far tell, in their order: kinds of events and job ids."""
        told: list[tuple[Any, Any]] = []
        for call, words in self.calls:
            if call == "done":
                for position in range(2, len(words), 6):
                    told += [("active", words[position])] if words[position + 3] != "" else []
                    told.append(("completed", words[position]))
            else:
                position = 1
                while position < len(words):
                    told.append((words[position + 2], words[position + 4]))
                    position += 1 + int(words[position])
        return told


class Office:
    def __init__(self, *, stores_results: bool = False) -> None:
        self.broker = FakeBroker()
        self.event_writer = EventWriter(
            cast(Broker, self.broker), on_death=ignore_death, max_len=1000, stores_results=stores_results
        )

    def start(self, number: int, **fields: Any) -> Delivery:
        job = Delivery(f"job-{number}", "mail", number, **fields)
        self.event_writer.started(job)
        return job

    def end(self, *jobs: Delivery) -> None:
        for job in jobs:
            job.ended_at = job.started_at + 0.25
        self.event_writer.done(self.broker.socket, list(jobs))


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "chasqui.worker")
    return lambda: [record.getMessage() for record in caplog.records]


class TestOrder:
    def test_both_events_of_a_quick_job_are_written_with_its_ack(self, office: Office) -> None:
        office.end(office.start(1))
        assert office.broker.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert len(office.broker.calls) == 1

    def test_an_active_event_is_written_once(self, office: Office) -> None:
        job = office.start(1)
        office.event_writer.tell_started()
        office.end(job)
        office.event_writer.tell_started()
        assert office.broker.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert [kind for kind, _ in office.broker.calls] == ["any", "done"]

    def test_no_active_event_is_written_after_the_end_of_the_job(self, office: Office) -> None:
        office.end(office.start(1))
        office.event_writer.tell_started()
        assert len(office.broker.calls) == 1

    def test_the_failed_event_comes_after_the_active_event(self, office: Office) -> None:
        job = office.start(1)
        office.event_writer.tell([Event("failed", job.id, job.name)])
        assert office.broker.kinds == [("active", "job-1"), ("failed", "job-1")]

    def test_an_ack_that_is_sent_again_writes_the_active_event_once(self, office: Office) -> None:
        job = office.start(1)
        office.end(job)
        office.end(job)
        assert office.broker.kinds == [("active", "job-1"), ("completed", "job-1"), ("completed", "job-1")]

    async def test_starts_are_gathered_for_a_moment_and_written_at_once(self, office: Office) -> None:
        office.event_writer.start()
        await asyncio.sleep(0)
        for number in range(5):
            office.start(number)
            await asyncio.sleep(0)
        assert office.broker.calls == []
        async with asyncio.timeout(PATIENCE_S):
            while not office.broker.calls:
                await asyncio.sleep(0.001)
        assert office.broker.kinds == [("active", f"job-{number}") for number in range(5)]
        assert len(office.broker.calls) == 1
        await office.event_writer.end(patience_s=PATIENCE_S)

    async def test_the_active_event_of_an_ended_job_is_written_with_its_ack(self, office: Office) -> None:
        job = office.start(1)
        job.started_at, job.ended_at = monotonic() - 0.1, monotonic()
        office.event_writer.start()
        await asyncio.sleep(3 * GATHER_S)
        assert office.broker.calls == []
        office.event_writer.done(office.broker.socket, [job])
        await office.event_writer.end(patience_s=PATIENCE_S)
        assert office.broker.kinds == [("active", "job-1"), ("completed", "job-1")]
        assert len(office.broker.calls) == 1

    async def test_the_active_event_is_written_before_a_late_ack(self, office: Office) -> None:
        office.start(1).ended_at = monotonic() - SETTLED_IN_S
        office.event_writer.start()
        async with asyncio.timeout(PATIENCE_S):
            while not office.broker.calls:
                await asyncio.sleep(0.001)
        assert office.broker.kinds == [("active", "job-1")]
        await office.event_writer.end(patience_s=PATIENCE_S)

    async def test_no_active_event_is_left_unwritten_at_the_end(self, office: Office) -> None:
        office.event_writer.start()
        await asyncio.sleep(0)
        office.start(1)
        await office.event_writer.end(patience_s=PATIENCE_S)
        assert office.broker.kinds == [("active", "job-1")]


class TestWords:
    def test_the_completed_event_has_attempt_times_and_duration(self, office: Office) -> None:
        job = office.start(1, attempt=2)
        office.end(job)
        ((_, (max_len, stored, job_id, name, attempt, started, ended, duration_us)),) = office.broker.calls
        assert (max_len, stored, job_id, name, attempt) == (1000, 0, "job-1", "mail", 3)
        assert abs(int(duration_us) - 250_000) <= 1
        assert 249 <= int(ended) - int(started) <= 251

    def test_the_completed_event_says_whether_the_result_is_stored(self) -> None:
        office = Office(stores_results=True)
        unstored = office.start(2, why_not_stored="a set is in it")
        office.end(office.start(1, result=b"x"), unstored, office.start(3, result=b"y"))
        (any_kind, words), (done, (_, stored, *_)) = office.broker.calls
        assert (any_kind, done, stored) == ("any", "done", 1)
        assert words[-4:] == ["stored", 0, "why", "a set is in it"]
        assert sorted(job_id for kind, job_id in office.broker.kinds if kind == "completed") == [
            "job-1",
            "job-2",
            "job-3",
        ]

    def test_completed_events_with_stored_results_go_in_one_call(self) -> None:
        office = Office(stores_results=True)
        office.end(office.start(1, result=b"x"), office.start(2, result=b"y"))
        assert len(office.broker.calls) == 1


class TestDropping:
    def test_no_event_is_written_to_a_congested_server(self, office: Office, lines: Callable[[], list[str]]) -> None:
        office.broker.socket.is_congested = True
        office.end(office.start(1), office.start(2))
        office.event_writer.tell([Event("drained")])
        assert (office.broker.calls, office.event_writer.dropped) == ([], 3)
        assert lines() == [f"{DROPPED}: the server is slow to take what is written"]

    def test_events_are_dropped_without_a_connection(self, office: Office, lines: Callable[[], list[str]]) -> None:
        office.broker.socket = None
        office.event_writer.tell([Event("drained"), Event("drained")])
        assert office.event_writer.dropped == 2
        assert lines() == [f"{DROPPED}: the connection is lost"]

    @pytest.mark.parametrize("trouble", (ReplyError("OOM command not allowed"), ConnectionLost("cut")))
    def test_events_that_are_refused_or_lost_are_counted(self, office: Office, trouble: Exception) -> None:
        office.event_writer.tell([Event("drained")])
        office.end(office.start(1), office.start(2))
        assert office.event_writer.dropped == 0
        for answer in office.broker.answers:
            answer(trouble)
        assert office.event_writer.dropped == 3

    def test_a_line_is_written_once_until_events_are_taken_again(
        self, office: Office, lines: Callable[[], list[str]]
    ) -> None:
        for reply in (1, ReplyError("OOM no"), ReplyError("OOM no"), 1, 1, ConnectionLost("cut"), ReplyError("OOM no")):
            office.event_writer.tell([Event("drained")])
            office.broker.answers[-1](reply)
        assert lines() == [f"{DROPPED}: OOM no", f"{DROPPED}: cut"]
        assert office.event_writer.dropped == 4


def test_no_method_of_the_event_writer_can_wait() -> None:
    """A plain function runs to its end before any other code of the loop."""
    for name in ("started", "done", "tell", "tell_started"):
        assert not inspect.iscoroutinefunction(getattr(EventWriter, name))
