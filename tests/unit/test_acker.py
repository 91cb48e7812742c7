"""The acker settles outcomes by their deliveries, and holds them until Redis has answered."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import cast

import pytest
from msgspec.structs import replace

from pychasqui._core.delivery import Delivery
from pychasqui._core.limits import (
    ACK_BATCH,
    ACK_BATCH_WITH_EVENTS,
    ACKS_AT_ONCE,
    OUTCOME_BATCH,
    RESULT_BATCH_BYTES,
)
from pychasqui._core.outcome import Buried, Rescheduled
from pychasqui._redis.event_batch import EventBatch, OnWritten
from pychasqui._redis.replies import SettledJobs
from pychasqui._wire.msgpack import encode_data
from pychasqui._worker.acker import Acker, CompletedEvents
from pychasqui._worker.event_writer import EventWriter
from pychasqui._worker.failed_job_mover import MOVES_AT_ONCE, FailedJobMover
from pychasqui._worker.unsettled import REFUSED_BYTES
from pychasqui.errors import CommandTimeout, ConnectionLost, ReplyError
from pychasqui.metrics import DlqRouted, GuardedSinks, InMemorySink, JobOutcome, RetryScheduled
from tests.support.jobs import job
from tests.support.memory_broker import MemoryBroker
from tests.support.outcomes import buried, rescheduled
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared

PATIENCE_S = 2.0


class FakeEventWriter:
    def __init__(self) -> None:
        self.written: list[str] = []

    def make_completed_and_missing_active_events(
        self, jobs: list[Delivery], on_written: OnWritten | None = None
    ) -> EventBatch:
        self.written += [f"done {job.id}" for job in jobs]
        return EventBatch(1000, lambda *_: None)

    def write_or_drop_active_events(self) -> None:
        self.written.append("active")

    def count_dropped_and_log_first(self, count: int, why: str) -> None:
        self.written.append(f"dropped {count}")


class AckerBench:
    """An acker at work."""

    def __init__(
        self,
        event_writer: FakeEventWriter | None = None,
        result_ttl_ms: int = 0,
        metrics: GuardedSinks | None = None,
    ) -> None:
        self.broker = MemoryBroker()
        self.broker.answer_with = {
            "reschedule": self._reschedule,
            "bury": self._bury,
            "ack_and_store_results": lambda *_: self.refused_results,
        }
        self.fenced: set[bytes] = set()  # entries that are no longer this worker's
        self.refused_jobs: set[bytes] = set()
        self.unwritten_events = 0
        self.refused_results = 0
        self.rescheduled: list[Rescheduled] = []
        self.buried: list[Buried] = []
        self.written = [] if event_writer is None else event_writer.written
        self.expected: list[int] = []
        self.group_gone = 0
        self.shared = make_shared(writes_events=event_writer is not None)
        self.shared.group_gone.add_listener(self._on_group_gone)
        self.unsettled = self.shared.holdings.unsettled
        writer = cast(EventWriter, event_writer)
        mover = FailedJobMover(
            self.broker,
            self.shared,
            dlq_max_len=0,
            on_rescheduled=self.expected.append,
            event_writer=writer,
            metrics=metrics,
        )
        self.acker = Acker(
            self.broker, self.shared, mover, event_writer=writer, result_ttl_ms=result_ttl_ms, metrics=metrics
        )

    @property
    def has_news_of_orphans(self) -> bool:
        return self.shared.may_have_orphans.is_set

    def _on_group_gone(self) -> None:
        self.group_gone += 1

    @property
    def acked(self) -> list[bytes]:
        return [entry_id for _, ids in self.broker.answered("ack") for entry_id in ids]

    @property
    def acked_unique(self) -> list[tuple[bytes, str]]:
        return [entry for _, entries in self.broker.answered("ack_and_release_uniqueness_keys") for entry in entries]

    @property
    def stored(self) -> list[tuple[list[bytes], list[tuple[str, bytes]], list[tuple[bytes, str]]]]:
        """Entry ids, results and unique entries of each call."""
        return [arguments[2:] for arguments in self.broker.answered("ack_and_store_results")]

    def _reschedule(self, group: str, consumer: str, jobs: list[Rescheduled], events_max_len: int) -> SettledJobs:
        self.rescheduled += [job for job in jobs if job.entry_id not in self.refused_jobs]
        return self._answers(jobs)

    def _bury(self, group: str, consumer: str, max_len: int, jobs: list[Buried], events_max_len: int) -> SettledJobs:
        self.buried += [job for job in jobs if job.entry_id not in self.refused_jobs]
        return self._answers(jobs)

    def _answers(self, jobs: list[Rescheduled] | list[Buried]) -> SettledJobs:
        letters = ("x" if job.entry_id in self.refused_jobs else "10"[job.entry_id in self.fenced] for job in jobs)
        return SettledJobs("".join(letters).encode(), "ERR not that one", self.unwritten_events)

    async def settle(self) -> None:
        self.acker.start()
        async with asyncio.timeout(PATIENCE_S):
            while self.unsettled.collect_delivery_numbers():
                await asyncio.sleep(0.001)
        await self.acker.end(timeout_s=PATIENCE_S)


@pytest.fixture
async def bench() -> AckerBench:
    return AckerBench()


def failed(number: int, delivery: int = 1) -> Rescheduled:
    return rescheduled(b"%d-0" % number, delivery, job_id=f"job-{number}")


def dead(number: int, delivery: int = 1) -> Buried:
    return buried(b"%d-0" % number, delivery, job_id=f"job-{number}")


def give_one_of_each(bench: AckerBench) -> None:
    bench.acker.queue_ack(job(1), None)
    bench.acker.queue_reschedule(failed(2, delivery=2))
    bench.acker.queue_bury(dead(3, delivery=3))


async def test_each_outcome_is_sent_with_its_delivery(bench: AckerBench) -> None:
    give_one_of_each(bench)
    await bench.settle()
    assert bench.acked == [b"1-0"]
    assert bench.rescheduled == [failed(2, delivery=2)]
    assert bench.buried == [dead(3, delivery=3)]
    assert bench.expected == [100]


async def test_a_unique_job_frees_its_id(bench: AckerBench) -> None:
    bench.acker.queue_ack(job(1, may_be_unique=True), None)
    bench.acker.queue_ack(job(2), None)
    await bench.settle()
    assert (bench.acked_unique, bench.acked) == ([(b"1-0", "job-1")], [b"2-0"])


class TestEvents:
    @pytest.fixture
    async def bench(self) -> AckerBench:
        return AckerBench(FakeEventWriter())

    async def test_completed_events_are_written_with_the_ack_and_not_before(self, bench: AckerBench) -> None:
        bench.broker.line.clear()
        bench.acker.queue_ack(job(1), None)
        bench.acker.queue_ack(job(2, may_be_unique=True), None)
        assert bench.written == []
        bench.broker.line.set()
        await bench.settle()
        assert bench.written == ["done job-1", "done job-2"]

    async def test_active_events_are_written_before_the_outcome(self, bench: AckerBench) -> None:
        bench.broker.line.clear()
        bench.acker.queue_reschedule(failed(2))
        bench.acker.start()
        await asyncio.sleep(0.01)
        assert bench.written == ["active"]
        bench.broker.line.set()
        await bench.acker.end(timeout_s=PATIENCE_S)

    async def test_events_that_redis_refused_are_counted(self, bench: AckerBench) -> None:
        bench.unwritten_events = 2
        bench.acker.queue_bury(dead(3))
        await bench.settle()
        assert bench.written == ["active", "dropped 2"]

    async def test_the_events_of_a_lost_ack_are_written_again(self, bench: AckerBench) -> None:
        bench.broker.troubles = [ConnectionLost("cut")]
        bench.acker.queue_ack(job(1), None)
        await bench.settle()
        assert bench.written == ["done job-1"] * 2


class TestResults:
    @pytest.fixture
    async def bench(self) -> AckerBench:
        return AckerBench(result_ttl_ms=5000)

    async def test_results_are_stored_with_the_acks(self, bench: AckerBench) -> None:
        bench.acker.queue_ack(job(1), {"a": 1})
        bench.acker.queue_ack(job(2, may_be_unique=True), None)
        await bench.settle()
        assert bench.stored == [
            (
                [b"1-0", b"2-0"],
                [("job-1", encode_data({"a": 1})), ("job-2", encode_data(None))],
                [(b"2-0", "job-2")],
            )
        ]
        assert (
            {ttl_ms for _, ttl_ms, *_ in bench.broker.asked("ack_and_store_results")},
            bench.acked,
            bench.acked_unique,
        ) == ({5000}, [], [])

    async def test_a_result_that_cannot_be_stored_does_not_fail_its_job(
        self, bench: AckerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.acker.queue_ack(job(1), object())
        await bench.settle()
        assert bench.stored == [([b"1-0"], [], [])]
        assert "cannot be stored, the job is done" in caplog.text

    async def test_refused_results_are_one_line_of_the_log(
        self, bench: AckerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.refused_results = 2
        bench.acker.queue_ack(job(1), 1)
        bench.acker.queue_ack(job(2), 2)
        await bench.settle()
        assert [record.getMessage() for record in caplog.records] == [
            "Redis has refused 2 results; their jobs are done"
        ]

    async def test_results_without_an_answer_are_held_and_sent_again(self, bench: AckerBench) -> None:
        bench.broker.troubles = [ConnectionLost("cut")]
        bench.acker.queue_ack(job(1, deliveries=2), 7)
        assert bench.unsettled.collect_delivery_numbers() == {b"1-0": 3}
        await bench.settle()
        assert bench.stored == [([b"1-0"], [("job-1", encode_data(7))], [])]

    async def test_results_share_calls_of_bounded_number_and_bytes(self, bench: AckerBench) -> None:
        for number in range(ACK_BATCH + 1):
            bench.acker.queue_ack(job(number), number)
        for number in range(3):
            bench.acker.queue_ack(job(number), b"x" * (RESULT_BATCH_BYTES // 2))
        bench.acker.queue_ack(job(4), b"x" * (2 * RESULT_BATCH_BYTES))
        bench.acker.queue_ack(job(5), 5)
        await bench.settle()
        assert [len(ids) for ids, _, _ in bench.stored] == [ACK_BATCH, 2, 1, 1, 1, 1]


REFUSED = ReplyError("OOM")


@pytest.mark.parametrize(
    ("answers", "are_written"), (((None, None), True), ((REFUSED, None), False), ((None, REFUSED), False)), ids=str
)
async def test_events_of_which_redis_has_refused_a_part_count_as_not_written(
    answers: tuple[ReplyError | None, ...], are_written: bool
) -> None:
    shared = make_shared(writes_events=True)
    writer = EventWriter(MemoryBroker(), shared, max_len=1000, stores_results=True)
    events = CompletedEvents(writer, [job(1)])
    batch = events.make_batch_unless_written()
    for trouble in answers:  # about the events of jobs without a result, and about the others
        batch.on_written(1, trouble)
    assert events.were_written is are_written


async def test_a_result_is_not_encoded_without_results_and_events(bench: AckerBench) -> None:
    done = job(1)
    bench.acker.queue_ack(done, object())
    await bench.settle()
    assert (done.ended_at, done.result, bench.acked) == (0.0, None, [b"1-0"])


async def test_an_outcome_without_an_answer_is_held_by_its_delivery(bench: AckerBench) -> None:
    bench.broker.line.clear()
    give_one_of_each(bench)
    bench.acker.queue_ack(job(4, deliveries=3), None)
    bench.acker.queue_ack(job(5, deliveries=4, may_be_unique=True), None)
    bench.acker.start()
    await asyncio.sleep(0.01)
    assert bench.unsettled.collect_delivery_numbers() == {b"1-0": 1, b"2-0": 2, b"3-0": 3, b"4-0": 4, b"5-0": 5}
    bench.broker.line.set()
    await bench.acker.end(timeout_s=PATIENCE_S)
    assert bench.unsettled.collect_delivery_numbers() == {}


async def test_an_outcome_without_an_answer_is_sent_again_as_it_was(bench: AckerBench) -> None:
    bench.broker.troubles = [ConnectionLost("cut"), CommandTimeout("late")]
    bench.acker.queue_reschedule(failed(2, delivery=2))
    await bench.settle()
    assert bench.rescheduled == [failed(2, delivery=2)]
    assert not bench.has_news_of_orphans


async def test_a_missing_group_is_reported_and_the_outcome_is_sent_again_soon(bench: AckerBench) -> None:
    bench.broker.troubles = [ReplyError("NOGROUP No such key") for _ in range(8)]
    bench.acker.queue_reschedule(failed(2))
    began = monotonic()
    await bench.settle()
    assert (bench.group_gone, bench.rescheduled) == (8, [failed(2)])
    assert monotonic() - began < 3, "an outage's pauses would have grown to 4 s"


async def test_settled_outcomes_start_no_search_for_orphans(bench: AckerBench) -> None:
    give_one_of_each(bench)
    await bench.settle()
    assert not bench.has_news_of_orphans


async def test_on_settled_is_called_after_each_batch(bench: AckerBench) -> None:
    left: list[int] = []
    bench.shared.settled.add_listener(lambda: left.append(bench.unsettled.count_without_refused()))
    for number in range(ACK_BATCH + 10):
        bench.acker.queue_ack(job(number), None)
    assert bench.unsettled.count_without_refused() == ACK_BATCH + 10
    await bench.settle()
    assert left == [10, 0]


class TestSmallAcks:
    """Others on the server wait for as long as one of them takes."""

    async def test_an_ack_is_small_and_two_are_on_their_way_at_most(self, bench: AckerBench) -> None:
        def sent() -> list[int]:
            return [len(ids) for _, ids in bench.broker.asked("ack")]

        bench.broker.line.clear()
        for number in range(5 * ACK_BATCH // 2):
            bench.acker.queue_ack(job(number), None)
        bench.acker.start()
        await eventually(lambda: len(sent()) == ACKS_AT_ONCE)
        await asyncio.sleep(0.01)
        assert sent() == [ACK_BATCH] * ACKS_AT_ONCE
        bench.broker.line.set()
        await bench.acker.end(timeout_s=PATIENCE_S)
        assert sent() == [ACK_BATCH, ACK_BATCH, ACK_BATCH // 2]
        assert bench.acked == [b"%d-0" % number for number in range(5 * ACK_BATCH // 2)]

    async def test_an_ack_with_events_is_smaller(self) -> None:
        bench = AckerBench(FakeEventWriter())
        for number in range(ACK_BATCH_WITH_EVENTS + 1):
            bench.acker.queue_ack(job(number), None)
        await bench.settle()
        assert [len(ids) for _, ids in bench.broker.asked("ack")] == [ACK_BATCH_WITH_EVENTS, 1]

    async def test_jobs_of_acks_that_are_lost_are_acked_again(self, bench: AckerBench) -> None:
        bench.broker.troubles = [ConnectionLost("cut"), ConnectionLost("cut")]
        for number in range(3 * ACK_BATCH):
            bench.acker.queue_ack(job(number), None)
        await bench.settle()
        assert set(bench.acked) == {b"%d-0" % number for number in range(3 * ACK_BATCH)}

    async def test_acks_without_end_hold_up_no_other_outcome(self, bench: AckerBench) -> None:
        bench.acker.start()
        for number in range(20):
            for position in range(ACK_BATCH):
                bench.acker.queue_ack(job(1000 * number + position), None)
            if number == 2:
                bench.acker.queue_bury(dead(99_000))
            await asyncio.sleep(0)
        await eventually(lambda: bench.buried == [dead(99_000)])
        await bench.acker.end(timeout_s=PATIENCE_S)


async def test_a_few_batches_of_the_dead_are_on_their_way_at_once_and_more_wait(bench: AckerBench) -> None:
    def sent() -> list[int]:
        return [len(jobs) for _, _, _, jobs, _ in bench.broker.asked("bury")]

    bench.broker.line.clear()
    for number in range(MOVES_AT_ONCE * OUTCOME_BATCH + 1):
        bench.acker.queue_bury(dead(number))
    bench.acker.start()
    await asyncio.sleep(0.01)
    assert sent() == [OUTCOME_BATCH] * MOVES_AT_ONCE
    bench.broker.line.set()
    await bench.acker.end(timeout_s=PATIENCE_S)
    assert sent() == [*[OUTCOME_BATCH] * MOVES_AT_ONCE, 1]
    assert len(bench.buried) == MOVES_AT_ONCE * OUTCOME_BATCH + 1


async def test_a_batch_without_an_answer_is_sent_again_and_the_others_are_not(bench: AckerBench) -> None:
    bench.broker.troubles = [ConnectionLost("cut")]
    jobs = [failed(number) for number in range(2 * OUTCOME_BATCH)]
    for one in jobs:
        bench.acker.queue_reschedule(one)
    await bench.settle()
    assert bench.rescheduled == [*jobs[OUTCOME_BATCH:], *jobs[:OUTCOME_BATCH]]
    assert not bench.has_news_of_orphans
    assert bench.unsettled.collect_delivery_numbers() == {}


class TestKinds:
    async def test_the_kinds_are_on_their_way_at_the_same_time(self, bench: AckerBench) -> None:
        bench.broker.line.clear()
        give_one_of_each(bench)
        bench.acker.queue_ack(job(4, may_be_unique=True), None)
        bench.acker.start()
        methods = ("ack", "ack_and_release_uniqueness_keys", "reschedule", "bury")
        await eventually(lambda: [len(bench.broker.asked(method)) for method in methods] == [1, 1, 1, 1])
        bench.broker.line.set()
        await bench.acker.end(timeout_s=PATIENCE_S)
        assert bench.unsettled.collect_delivery_numbers() == {}

    async def test_an_end_that_cancels_the_calls_leaves_no_task_behind(self, bench: AckerBench) -> None:
        bench.broker.line.clear()
        give_one_of_each(bench)
        bench.acker.start()
        await eventually(lambda: len(bench.broker.asked("bury")) == 1)
        await bench.acker.end(timeout_s=0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_acks_and_burials_go_on_while_retries_are_refused(
        self, bench: AckerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.broker.trouble_of["reschedule"] = ReplyError("WRONGTYPE delayed is a string")
        bench.acker.queue_reschedule(failed(1))
        bench.acker.start()
        for number in range(2, 5):
            bench.acker.queue_ack(job(10 * number), None)
            bench.acker.queue_bury(dead(number))
            await eventually(lambda: not bench.unsettled.count_without_refused())
        assert (len(bench.acked), len(bench.buried)) == (3, 3)
        assert bench.unsettled.collect_delivery_numbers() == {b"1-0": 1}
        assert [record.getMessage() for record in caplog.records] == [
            "worker a cannot reschedule failed jobs; they stay pending, and it keeps trying: "
            "WRONGTYPE delayed is a string"
        ]
        del bench.broker.trouble_of["reschedule"]
        await eventually(lambda: not bench.unsettled.collect_delivery_numbers())
        assert bench.rescheduled == [failed(1)]
        await bench.acker.end(timeout_s=PATIENCE_S)

    async def test_a_refused_outcome_holds_up_no_other_of_its_kind(
        self, bench: AckerBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.refused_jobs = {b"1-0"}
        bench.acker.start()
        for number in range(1, 5):
            bench.acker.queue_bury(dead(number))
            await eventually(lambda: not bench.unsettled.count_without_refused())
        assert bench.buried == [dead(2), dead(3), dead(4)]
        assert bench.unsettled.collect_delivery_numbers() == {b"1-0": 1}
        assert len(caplog.records) == 1
        assert "ERR not that one" in caplog.text
        bench.refused_jobs = set()
        await eventually(lambda: not bench.unsettled.collect_delivery_numbers())
        assert bench.buried[-1] == dead(1)
        await bench.acker.end(timeout_s=PATIENCE_S)

    async def test_jobs_that_are_refused_keep_no_others_from_being_read_until_they_take_too_much(
        self, bench: AckerBench
    ) -> None:
        bench.broker.trouble_of["reschedule"] = ReplyError("WRONGTYPE delayed is a string")
        for number in range(5000):
            bench.acker.queue_reschedule(failed(number))
        assert bench.unsettled.count_without_refused() == 5000
        bench.acker.start()
        await eventually(lambda: not bench.unsettled.count_without_refused())
        bench.acker.queue_reschedule(replace(failed(5000), member=b"x" * REFUSED_BYTES))
        assert bench.unsettled.count_without_refused() == 5001
        await bench.acker.end(timeout_s=PATIENCE_S)

    async def test_an_end_does_not_wait_for_what_is_refused(self, bench: AckerBench) -> None:
        bench.broker.trouble_of["reschedule"] = ReplyError("WRONGTYPE delayed is a string")
        bench.acker.queue_reschedule(failed(1))
        bench.acker.start()
        await eventually(lambda: not bench.unsettled.count_without_refused())
        began = monotonic()
        await bench.acker.end(timeout_s=30)
        assert monotonic() - began < 10
        assert bench.unsettled.collect_delivery_numbers() == {b"1-0": 1}


class TestMetrics:
    async def test_each_job_is_counted_by_its_own_answer(self) -> None:
        sink = InMemorySink()
        bench = AckerBench(metrics=GuardedSinks([sink]))
        bench.fenced = {b"2-0", b"4-0"}
        for number in (1, 2):
            bench.acker.queue_reschedule(failed(number))
        for number in (3, 4):
            bench.acker.queue_bury(dead(number))
        await bench.settle()
        assert sink.job_outcomes == [JobOutcome("err", 1, 100, f"job-{number}") for number in (1, 2, 3, 4)]
        assert sink.retries_scheduled == [RetryScheduled(2, 100, "job-1")]
        assert sink.dlq_routes == [DlqRouted("unrecoverable", 1, "job-3")]

    async def test_a_job_that_is_refused_is_counted_once_it_is_moved(self) -> None:
        sink = InMemorySink()
        bench = AckerBench(metrics=GuardedSinks([sink]))
        bench.refused_jobs = {b"1-0"}
        bench.acker.queue_bury(dead(1))
        bench.acker.start()
        await eventually(
            lambda: len(bench.unsettled.collect_delivery_numbers()) == 1 and not bench.unsettled.count_without_refused()
        )
        assert (sink.job_outcomes, sink.dlq_routes) == ([], [])
        bench.refused_jobs = set()
        await eventually(lambda: not bench.unsettled.collect_delivery_numbers())
        assert (len(sink.job_outcomes), len(sink.dlq_routes)) == (1, 1)
        await bench.acker.end(timeout_s=PATIENCE_S)
