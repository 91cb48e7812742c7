"""Each waiter gets the end of its own job, and one read serves all waiters."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from pychasqui._redis.events import EventsBroker
from pychasqui._redis.results import ResultsBroker
from pychasqui._wire.msgpack import encode_data
from pychasqui.errors import (
    Closed,
    ConnectionLost,
    DecodeError,
    JobFailed,
    ReplyError,
    ResultExpired,
    ResultNotStored,
)
from pychasqui.events import QueueEvent, QueueEvents
from pychasqui.inspector import Inspector
from pychasqui.results import EXPLAINED_AT_ONCE, MAX_REMEMBERED_JOBS, ReplayedJobs, Results, decode_results
from tests.support.fake_surfaces import FakeResults
from tests.support.waiting import eventually

PATIENCE_S = 2.0


class FakeEvents:
    """Events that the test makes happen; those that happen together come together."""

    def __init__(self) -> None:
        self.inbox: list[QueueEvent] = []
        self.news = asyncio.Event()
        self.is_closed = False

    def happen(self, *events: QueueEvent) -> None:
        self.inbox += events
        self.news.set()

    async def start(self) -> None: ...

    def __aiter__(self) -> FakeEvents:
        return self

    async def __anext__(self) -> QueueEvent:
        while not self.inbox:
            self.news.clear()
            await self.news.wait()
        return self.inbox.pop(0)

    def take_ready(self) -> list[QueueEvent]:
        ready, self.inbox = self.inbox, []
        return ready

    async def close(self) -> None:
        self.is_closed = True


class FakeLook:
    def __init__(self) -> None:
        self.held_ids: set[str] = set()
        self.asked = 0
        self.silent = False

    async def find_delivered(self, job_ids: list[str]) -> set[str]:
        return self.held_ids & set(job_ids)

    async def describe_where_job_is(self, job_id: str) -> str:
        self.asked += 1
        if self.silent:
            await asyncio.sleep(3600)
        return f"it is at rest in {job_id}"


def completed(job_id: str, **fields: Any) -> QueueEvent:
    return QueueEvent("completed", job_id, "mail", fields)


def dead(job_id: str, **fields: Any) -> QueueEvent:
    return QueueEvent("dlq", job_id, "mail", fields)


class ResultsBench:
    def __init__(self) -> None:
        self.broker, self.events = FakeResults(), FakeEvents()
        self.look = FakeLook()
        self.replayed = ReplayedJobs()
        self.results = Results(
            lambda: cast(ResultsBroker, self.broker),
            lambda: cast(EventsBroker, self.broker),
            cast(QueueEvents, self.events),
            cast(Inspector, self.look),
            self.replayed,
        )

    async def wait(self, *job_ids: str, timeout_s: float = PATIENCE_S) -> list[asyncio.Task[Any]]:
        """Tasks that have looked once and wait."""
        waiting = [asyncio.ensure_future(self.results.wait(job_id, timeout_s)) for job_id in job_ids]
        self.broker.asked.clear()
        async with asyncio.timeout(PATIENCE_S):
            while set(job_ids) - {job_id for asked in self.broker.asked for job_id in asked}:
                await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return waiting

    def store(self, job_id: str, result: Any) -> None:
        self.broker.stored[job_id] = encode_data(result)


@pytest.fixture
async def bench() -> Any:
    bench = ResultsBench()
    yield bench
    await bench.results.close()


async def test_a_result_that_is_there_is_returned_at_once(bench: ResultsBench) -> None:
    bench.store("job", {"a": 1})
    assert await bench.results.wait("job", PATIENCE_S) == {"a": 1}


async def test_a_later_result_is_returned_at_its_event(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    assert not waiting.done()
    bench.store("job", 7)
    bench.events.happen(completed("job", stored="1"))
    assert await waiting == 7


async def test_all_waiters_for_one_job_are_answered(bench: ResultsBench) -> None:
    waiting = await bench.wait("job", "job", "job")
    bench.store("job", 7)
    bench.events.happen(completed("job"))
    assert await asyncio.gather(*waiting) == [7, 7, 7]


async def test_results_of_jobs_that_end_together_are_read_together(bench: ResultsBench) -> None:
    job_ids = [f"job-{number}" for number in range(100)]
    waiting = await bench.wait(*job_ids)
    bench.broker.asked.clear()
    for job_id in job_ids:
        bench.store(job_id, job_id)
    bench.events.happen(*(completed(job_id) for job_id in job_ids))
    assert await asyncio.gather(*waiting) == job_ids
    assert [len(asked) for asked in bench.broker.asked] == [100]


async def test_jobs_that_are_waited_for_together_are_read_together(bench: ResultsBench) -> None:
    waiting = await bench.wait(*(f"job-{number}" for number in range(100)))
    assert [len(asked) for asked in bench.broker.asked] == [100]
    for task in waiting:
        task.cancel()


async def test_events_of_jobs_without_waiters_cost_nothing(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    bench.broker.asked.clear()
    bench.events.happen(*(completed(f"other-{number}") for number in range(10)))
    await asyncio.sleep(0.005)
    assert bench.broker.asked == []
    waiting.cancel()


async def test_a_dead_job_is_a_failure_that_says_why(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    bench.events.happen(
        dead("job", reason="unrecoverable", error_type="ValueError", error="no such address", attempt=3)
    )
    with pytest.raises(JobFailed) as caught:
        await waiting
    failure = caught.value
    assert (failure.job_id, failure.reason, failure.error_type) == ("job", "unrecoverable", "ValueError")
    assert (failure.error, failure.attempts) == ("no such address", 3)


async def test_each_waiter_has_an_error_of_its_own(bench: ResultsBench) -> None:
    waiting = await bench.wait("job", "job")
    bench.events.happen(dead("job", reason="unrecoverable"))
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [JobFailed, JobFailed]
    assert errors[0] is not errors[1]


async def test_an_official_workers_death_is_explained_by_its_last_failure(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    failed = QueueEvent("failed", "job", "mail", {"reason": "boom", "attempt": 3})
    bench.events.happen(failed, dead("job", reason="retries_exhausted", attempt=3))
    with pytest.raises(JobFailed) as caught:
        await waiting
    assert caught.value.error == "boom"


@pytest.mark.parametrize(
    ("stored", "error"), (("1", ResultExpired), ("0", ResultNotStored)), ids=("expired", "never stored")
)
async def test_a_missing_result_is_an_error_that_says_why(
    bench: ResultsBench, stored: str, error: type[Exception]
) -> None:
    (waiting,) = await bench.wait("job")
    bench.events.happen(completed("job", stored=stored))
    with pytest.raises(error):
        await waiting


async def test_a_job_that_ended_before_the_wait_is_known_from_the_last_events(bench: ResultsBench) -> None:
    bench.broker.recent = [[b"1-1", [b"e", b"dlq", b"id", b"job", b"ts", b"1", b"reason", b"unrecoverable"]]]
    with pytest.raises(JobFailed):
        await bench.results.wait("job", PATIENCE_S)


async def test_a_job_that_runs_again_has_not_ended(bench: ResultsBench) -> None:
    bench.broker.recent = [
        [b"1-1", [b"e", b"dlq", b"id", b"job", b"ts", b"1"]],
        [b"2-1", [b"e", b"active", b"id", b"job", b"ts", b"2"]],
    ]
    (waiting,) = await bench.wait("job")
    assert not waiting.done()
    bench.store("job", 7)
    bench.events.happen(completed("job"))
    assert await waiting == 7


async def test_a_replayed_job_has_not_ended(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    bench.events.happen(QueueEvent("dlq", "job", "mail", {}, "1-1"))
    with pytest.raises(JobFailed):
        await waiting
    bench.replayed.add(["job", "another"], "1-1")
    (waiting,) = await bench.wait("job")
    assert not waiting.done()
    bench.store("job", 7)
    bench.events.happen(completed("job"))
    assert await waiting == 7


async def test_the_death_of_a_job_before_its_replay_is_past_for_the_first_wait(bench: ResultsBench) -> None:
    bench.broker.recent = [[b"1-1", [b"e", b"dlq", b"id", b"job", b"ts", b"1"]]]
    bench.replayed.add(["job"], "1-1")
    (waiting,) = await bench.wait("job")
    assert not waiting.done()
    bench.events.happen(QueueEvent("dlq", "job", "mail", {}, "1-2"))
    with pytest.raises(JobFailed):
        await waiting


async def test_ended_jobs_are_remembered_within_bounds(bench: ResultsBench) -> None:
    (waiting,) = await bench.wait("job")
    bench.events.happen(*(completed(f"other-{number}") for number in range(MAX_REMEMBERED_JOBS + 10)))
    async with asyncio.timeout(PATIENCE_S):
        while bench.events.inbox:
            await asyncio.sleep(0.001)
    assert len(bench.results._ended) == MAX_REMEMBERED_JOBS
    assert "other-9" not in bench.results._ended
    waiting.cancel()


async def test_a_wait_has_an_end_and_leaves_nothing_behind(bench: ResultsBench) -> None:
    with pytest.raises(TimeoutError):
        await bench.results.wait("job", 0.01)
    assert bench.results._waiting == {}


async def test_a_waiter_that_gives_up_leaves_the_others_alone(bench: ResultsBench) -> None:
    first, second = await bench.wait("job", "job")
    first.cancel()
    await asyncio.wait({first})
    bench.store("job", 7)
    bench.events.happen(completed("job"))
    assert await second == 7


async def test_a_result_that_cannot_be_read_is_an_error(bench: ResultsBench) -> None:
    bench.broker.stored["job"] = b"\xc1"
    with pytest.raises(DecodeError, match="the result of job 'job' cannot be read"):
        await bench.results.wait("job", PATIENCE_S)


async def test_closing_ends_every_wait(bench: ResultsBench) -> None:
    waiting = await bench.wait("1", "2")
    await bench.results.close()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert Counter(map(type, errors)) == {Closed: 2}
    assert bench.events.is_closed


async def test_trouble_at_the_beginning_does_not_last(bench: ResultsBench) -> None:
    bench.broker.troubles = [ReplyError("LOADING Redis is loading")]
    (waiting,) = await bench.wait("job")
    bench.store("job", 7)
    bench.events.happen(completed("job"))
    assert await waiting == 7


async def test_the_last_events_are_read_after_an_outage_at_the_beginning(bench: ResultsBench) -> None:
    bench.broker.recent = [[b"1-0", [b"e", b"dlq", b"id", b"job", b"reason", b"unrecoverable"]]]
    bench.broker.troubles = [ConnectionLost("the server is away")] * 3
    with pytest.raises(JobFailed):
        await bench.results.wait("job", PATIENCE_S)


def test_results_are_decoded_in_their_order() -> None:
    assert decode_results([encode_data(1), None, encode_data([2])]) == [1, None, [2]]


class TestOfficialWorker:
    """An official worker writes completed before the ack, and does not say whether it stores a result."""

    @pytest.fixture(autouse=True)
    def shorten_doubt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pychasqui.results.OFFICIAL_RESULT_DELAY_S", 0.02)
        monkeypatch.setattr("pychasqui.results.DOUBT_S", 0.005)

    async def test_a_job_that_is_gone_without_a_result_returned_none(self, bench: ResultsBench) -> None:
        (waiting,) = await bench.wait("a")
        bench.events.happen(completed("a"))
        assert await waiting is None

    async def test_a_job_that_is_still_held_is_waited_for(self, bench: ResultsBench) -> None:
        """Its worker died between the two, and another one runs it again."""
        bench.look.held_ids = {"a"}
        (waiting,) = await bench.wait("a")
        bench.events.happen(completed("a"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        bench.store("a", 17)
        bench.look.held_ids = set()
        assert await waiting == 17

    async def test_a_result_that_comes_with_the_ack_is_not_missed(self, bench: ResultsBench) -> None:
        (waiting,) = await bench.wait("a")
        found_held = bench.look.find_delivered

        async def held(job_ids: list[str]) -> set[str]:
            bench.store("a", 17)  # between the look for results and the one for what is held
            return await found_held(job_ids)

        bench.look.find_delivered = held  # type: ignore[method-assign]
        bench.events.happen(completed("a"))
        assert await waiting == 17


class TestTimeout:
    async def test_the_timeout_says_where_the_job_is(self, bench: ResultsBench) -> None:
        with pytest.raises(TimeoutError, match=r"no result of job 'a' within 0.01 s: it is at rest in a"):
            await bench.results.wait("a", 0.01)

    async def test_a_slow_search_for_the_job_is_given_up(
        self, bench: ResultsBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui.results.EXPLAIN_S", 0.01)
        bench.look.silent = True
        with pytest.raises(TimeoutError, match="Redis did not answer where the job is"):
            await bench.results.wait("a", 0.01)

    async def test_a_few_of_many_timeouts_look_for_their_jobs(self, bench: ResultsBench) -> None:
        waits = [bench.results.wait(f"job {number}", 0.01) for number in range(100)]
        errors = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(error, TimeoutError) for error in errors)
        assert 1 <= bench.look.asked <= 100
        bench.look.silent, bench.look.asked = True, 0
        waiting = [asyncio.ensure_future(bench.results.wait(f"job {number}", 0.01)) for number in range(100)]
        await eventually(lambda: sum(wait.done() for wait in waiting) >= 100 - EXPLAINED_AT_ONCE)
        assert bench.look.asked == EXPLAINED_AT_ONCE
        assert sum(wait.done() for wait in waiting) == 100 - EXPLAINED_AT_ONCE
        for wait in waiting:
            wait.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
