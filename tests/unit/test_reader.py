"""The reader offers each entry once, on whichever way it arrived."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._core.limits import INTAKE_SLICE, MAX_AHEAD, READ_BATCH
from pychasqui._core.retry_options import RetryOverride
from pychasqui._core.run_timeouts import RunTimeouts
from pychasqui._redis.replies import ByteBounds, ClaimedEntry, ReleasedEntries
from pychasqui._redis.socket import ReplyTooLarge
from pychasqui._wire.envelope import encode_envelope, encode_extras
from pychasqui._wire.msgpack import encode_data
from pychasqui._worker.decoder import Decoder
from pychasqui._worker.group_recovery import GroupRecovery
from pychasqui._worker.intake import Intake
from pychasqui._worker.job_stops import JobStops
from pychasqui._worker.lanes import Lanes
from pychasqui._worker.orphans import Orphans
from pychasqui._worker.pending_entries import PendingEntries
from pychasqui._worker.prefetch import MAX_UNSETTLED, Prefetch
from pychasqui._worker.reader import Reader, ReadLimits
from pychasqui._worker.reclaimer import Reclaimer
from pychasqui._worker.release import Releaser
from pychasqui._worker.server_clock import ServerClock
from pychasqui.errors import ConnectionLost, RedisTrouble, ReplyError
from pychasqui.metrics import ReaderBatch
from tests.support.clock import FakeClock
from tests.support.memory_broker import MemoryBroker
from tests.support.waiting import eventually
from tests.support.worker_parts import make_shared

PATIENCE_S = 2.0
WORTH_READING = READ_BATCH // 2


def entry(number: int, attempt: int = 0, retry: RetryOverride | None = None) -> list[Any]:
    envelope = encode_envelope(f"job-{number}", encode_data(number), 0, attempt, retry)
    return [b"%d-0" % number, [b"d", envelope, b"n", b"mail"]]


def claimed(number: int, deliveries: int = 1, attempt: int = 0) -> ClaimedEntry:
    entry_id, fields = entry(number, attempt)
    return ClaimedEntry(entry_id, fields, deliveries)


@pytest.fixture(autouse=True)
def _decode_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("pychasqui._worker.decoder.SLICE_S", 60.0)


class FakeLanes:
    """Holds what it is offered until the test takes it away. It stands for the holdings, too."""

    def __init__(self, free: int = 10) -> None:
        self.finished = 0
        self.unsettled = 0
        self.free_minus_waiting = free
        self.waiting_count = 0
        self.inbox_bytes = 0
        self.jobs: list[Delivery] = []

    def put_without_waking(self, jobs: list[Delivery]) -> None:
        self.jobs += jobs

    put_and_wake = put_without_waking

    def wake_for_waiting_jobs(self) -> None:
        """These lanes run nothing."""

    start_lone_job_or_wake = wake_for_waiting_jobs

    def take_out_unstarted_jobs(self, kept_count: int) -> list[Delivery]:
        taken, self.jobs = self.jobs[kept_count:], self.jobs[:kept_count]
        return taken

    @property
    def numbers(self) -> list[int]:
        return [job.data for job in self.jobs]

    def collect_held_delivery_numbers(self) -> dict[bytes, int]:
        return {job.entry_id: job.delivery_number for job in self.jobs}

    def count_unsettled_without_refused(self) -> int:
        return self.unsettled

    def set_low_water(self, low_water: int) -> None:
        """These lanes ask for nothing."""


class FakeReclaimer:
    may_have_claimable_entries = False

    def __init__(self) -> None:
        self.claims = 0

    async def claim_entries_of_next_source(self, count: int, bounds: ByteBounds) -> list[ClaimedEntry]:
        self.claims += 1
        return []


class Redis:
    """A broker that plays back one answer a read, then waits; an answer may be an error."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.connected_as = None
        self.broker.answer_with = {
            "send_read": self._read,
            "read_now_within_bounds": lambda *_: [],
            "read_last_pending_id": lambda *_: b"999999-0",
            "list_pending_page": self._list_pending,
            "release_some_entries": lambda group, consumer, held, deadline_ms: ReleasedEntries(len(held), len(held)),
            "report_held_to_rebuild_group": lambda *_: True,
        }
        self.answers: list[list[Any] | RedisTrouble] = []
        self.pages: list[list[ClaimedEntry]] = []
        self.is_idle = asyncio.Event()
        self.on_read: Callable[[], Awaitable[object]] | None = None  # runs before a read is answered
        self.on_page: Callable[[], object] | None = None  # runs before a page of orphans is answered

    @property
    def asked(self) -> list[tuple[int, int | None]]:
        """Count and block_ms of each read."""
        return [(request.max_count, request.block_ms) for _, _, request in self.broker.asked("send_read")]

    @property
    def released(self) -> list[bytes]:
        return [entry_id for _, _, held, _ in self.broker.asked("release_some_entries") for entry_id, _ in held]

    @property
    def unblocked(self) -> list[int]:
        return [client_id for client_id, _ in self.broker.answered("try_to_unblock_read")]

    async def _read(self, *_: Any) -> list[Any]:
        if not self.answers:
            self.is_idle.set()
            await asyncio.sleep(60)
        if self.on_read is not None:
            await self.on_read()
        answer = self.answers.pop(0)
        if isinstance(answer, RedisTrouble):
            raise answer
        return answer

    async def _list_pending(self, *_: Any) -> list[ClaimedEntry]:
        await asyncio.sleep(0)
        page = self.pages.pop(0) if self.pages else []
        if self.on_page is not None:
            self.on_page()
        return page


class ReaderBench:
    """A reader with everything around it faked."""

    def __init__(self, max_attempts: int = 3) -> None:
        self.redis, self.lanes = Redis(), FakeLanes()
        self.rejected: list[tuple[bytes, int, str]] = []
        self.exhausted: list[int] = []
        self.group_gone = 0
        self.asked_before: list[int] = []  # how many reads were asked for when each batch came
        self.shared = make_shared(holdings=self.lanes, read_count=WORTH_READING)
        self.shared.group_gone.add_listener(self._see_group_gone)
        self.orphan_flag = self.shared.may_have_orphans
        self.recovery = GroupRecovery("default", "a", 6000, self.shared.holdings)
        decoder = Decoder(
            max_payload_bytes=1000,
            max_attempts=max_attempts,
            on_rejected=lambda entry_id, delivery, _, reason, __: self.rejected.append((entry_id, delivery, reason)),
            on_exhausted=lambda job: self.exhausted.append(job.data),
            stops=JobStops(RunTimeouts()),
            server_clock=ServerClock(self.redis.broker),
            on_expired=lambda job: self.exhausted.append(job.data),
            on_cancelled=lambda job: self.exhausted.append(job.data),
        )
        broker, lanes = self.redis.broker, cast(Lanes, self.lanes)
        self.prefetch = Prefetch(self.shared, lanes, max_bytes=16 * 2**20, max_entry_bytes=2**20)
        self.intake = Intake(self.shared, lanes, decoder, self.recovery, self.prefetch, on_batch=self._note_batch)
        releaser = Releaser(broker, self.shared, lanes)
        self.orphans = Orphans(broker, self.shared, self.intake, self.prefetch, releaser)
        self.reclaimer = FakeReclaimer()
        self.reader = Reader(
            broker,
            self.shared,
            ReadLimits(block_ms=100, max_reply_bytes=32 * 2**20),
            helper=broker,
            intake=self.intake,
            prefetch=self.prefetch,
            pending=PendingEntries(
                self.shared,
                intake=self.intake,
                prefetch=self.prefetch,
                orphans=self.orphans,
                reclaimer=cast(Reclaimer, self.reclaimer),
            ),
            releaser=releaser,
        )

    def _note_batch(self, batch: ReaderBatch) -> None:
        self.asked_before.append(len(self.redis.asked))

    def _see_group_gone(self) -> None:
        self.group_gone += 1

    async def report(self) -> None:
        await self.recovery.report_held_unless_group_exists(self.redis.broker)

    async def read(self, *answers: list[Any] | RedisTrouble) -> None:
        """Let the reader have these answers, one after another."""
        self.redis.answers += answers
        self.redis.is_idle.clear()
        self.reader.start()
        async with asyncio.timeout(PATIENCE_S):
            await self.redis.is_idle.wait()
        await self.reader.end(timeout_s=0)
        self.reader._is_stopping = False


async def test_jobs_start_without_the_lock_of_the_group_recovery() -> None:
    """A handler that blocks in its first step must not keep the heartbeat from reporting the held entries."""
    bench = ReaderBench()
    was_locked: list[bool] = []
    bench.lanes.start_lone_job_or_wake = lambda: was_locked.append(bench.recovery.lock.locked())  # type: ignore[method-assign]
    await bench.read([entry(1)])
    assert bench.lanes.numbers == [1]
    assert was_locked == [False]


class TestDecoding:
    async def test_entries_become_jobs(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2)])
        assert bench.lanes.numbers == [1, 2]
        assert [(job.id, job.name, job.attempt) for job in bench.lanes.jobs] == [
            ("job-1", "mail", 0),
            ("job-2", "mail", 0),
        ]

    async def test_fields_in_any_order_and_without_a_name(self) -> None:
        bench = ReaderBench()
        (_, (_, envelope, _, _)) = entry(1)
        await bench.read([[b"1-0", [b"x", b"y", b"n", b"mail", b"d", envelope]], [b"2-0", [b"d", envelope]]])
        assert [job.name for job in bench.lanes.jobs] == ["mail", ""]

    async def test_a_job_whose_id_was_given_may_be_the_only_one_of_it(self) -> None:
        """Generated ids have 26 characters; a field flags a chosen id of that length."""
        bench = ReaderBench()
        ours, given = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "order 7"
        entries = []
        for number, (job_id, more) in enumerate(((ours, []), (given, []), (ours, [b"u", b"1"]), (given, [b"u", b"1"]))):
            envelope = encode_envelope(job_id, encode_data(number), 0, 0, None)
            entries.append([b"%d-0" % number, [b"d", envelope, b"n", b"mail", *more]])
            entries.append([b"%d-1" % number, [b"d", envelope, *more]])
        await bench.read(entries)
        assert [job.may_be_unique for job in bench.lanes.jobs] == [False] * 2 + [True] * 6
        assert [job.name for job in bench.lanes.jobs] == ["mail", ""] * 4

    async def test_the_extras_of_an_envelope_stay_with_the_job(self) -> None:
        bench = ReaderBench()
        envelope = encode_envelope("job", encode_data(1), 0, 0, None, encode_extras(s=7))
        await bench.read([[b"1-0", [b"d", envelope, b"n", b"mail"]]])
        assert [job.extras for job in bench.lanes.jobs] == [encode_extras(s=7)]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        (
            ([b"d", b"\xc1"], "decode_failed"),
            ([b"d", b""], "decode_failed"),
            ([b"n", b"mail"], "malformed"),
            ([], "malformed"),
            ([b"d", b"x" * 1001], "oversize_payload"),
        ),
    )
    async def test_an_entry_that_is_no_job_is_rejected_and_the_others_go_on(
        self, fields: list[bytes], reason: str
    ) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), [b"2-0", fields], entry(3)])
        assert bench.lanes.numbers == [1, 3]
        bench.intake.take_in_claimed_unless_stale_and_wake([ClaimedEntry(b"4-0", fields, 2)])
        assert bench.rejected == [(b"2-0", 1, reason), (b"4-0", 3, reason)]


class TestAttempts:
    async def test_a_first_delivery_leaves_the_attempt_as_it_is(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1, attempt=2)])
        assert [(job.attempt, job.earlier_deliveries) for job in bench.lanes.jobs] == [(2, 0)]

    async def test_a_job_knows_by_which_delivery_it_came(self) -> None:
        bench = ReaderBench(max_attempts=9)
        await bench.read([entry(1)])
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(2, deliveries=2)])
        bench.redis.pages = [[claimed(3, deliveries=4)]]
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.collect_held_delivery_numbers() == {b"1-0": 1, b"2-0": 3, b"3-0": 4}

    def test_earlier_deliveries_count_as_runs(self) -> None:
        bench = ReaderBench(max_attempts=9)
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=2, attempt=3)])
        assert [(job.attempt, job.earlier_deliveries) for job in bench.lanes.jobs] == [(5, 2)]

    def test_a_job_without_attempts_left_is_dead_on_arrival(self) -> None:
        bench = ReaderBench(max_attempts=3)
        bench.intake.take_in_claimed_unless_stale_and_wake(
            [claimed(1, deliveries=2), claimed(2, deliveries=3), claimed(3, deliveries=1, attempt=2)]
        )
        assert (bench.lanes.numbers, bench.exhausted) == ([1], [2, 3])

    async def test_a_jobs_own_number_of_attempts_wins(self) -> None:
        bench = ReaderBench(max_attempts=3)
        own = [entry(1, 4, RetryOverride(5)), entry(2, 1, RetryOverride(1)), entry(3, 3, RetryOverride(None))]
        await bench.read(own)
        assert (bench.lanes.numbers, bench.exhausted) == ([1], [2, 3])


class TestLostReplies:
    async def test_the_reader_finds_the_entries_of_a_lost_reply(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1), claimed(2)], [claimed(3, deliveries=3)]]
        await bench.read(ConnectionLost("cut"), [entry(4)])
        assert bench.lanes.numbers == [1, 2, 3, 4]
        assert [job.attempt for job in bench.lanes.jobs] == [0, 0, 2, 0]

    async def test_an_entry_that_is_held_already_is_not_offered_again(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1), claimed(2)]]
        await bench.read([entry(1)], ConnectionLost("cut"))
        assert sorted(bench.lanes.numbers) == [1, 2]

    async def test_the_reader_searches_once_for_each_loss(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1)], [], [claimed(1)]]
        await bench.read(ConnectionLost("cut"), [entry(2)], [entry(3)])
        assert bench.lanes.numbers == [1, 2, 3]

    async def test_an_entry_claimed_while_the_reader_searches_is_offered_once(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1, deliveries=2)]]
        bench.redis.on_page = lambda: (
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)]) if not bench.lanes.jobs else None
        )
        await bench.read(ConnectionLost("cut"))
        assert bench.lanes.numbers == [1]

    async def test_an_entry_that_was_found_and_is_claimed_later_is_offered_once(self) -> None:
        """The takeover came before the search in Redis, and its reply after it."""
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1, deliveries=2)]]
        await bench.read(ConnectionLost("cut"))
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        assert bench.lanes.numbers == [1]

    async def test_an_entry_found_while_its_delivery_is_on_its_way_is_offered_once(self) -> None:
        """The reclaimer searches for orphans too, at the start and after its own losses, while the reader reads."""
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1)]]
        bench.redis.on_read = bench.orphans.adopt_orphans_until_full_unless_paused
        await bench.read([entry(1), entry(2)])
        assert sorted(bench.lanes.numbers) == [1, 2]

    async def test_an_entry_found_and_done_before_its_delivery_comes_is_not_run_again(self) -> None:
        bench = ReaderBench()

        async def find_and_finish() -> None:
            await bench.orphans.adopt_orphans_until_full_unless_paused()
            assert bench.lanes.numbers == [1]
            bench.lanes.jobs.clear()

        bench.redis.pages = [[claimed(1)]]
        bench.redis.on_read = find_and_finish
        await bench.read([entry(1), entry(2)])
        assert bench.lanes.numbers == [2]

    async def test_an_entry_that_arrives_while_deleted_orphans_are_acked_is_offered_once(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[ClaimedEntry(b"9-0", None, 1), claimed(1)]]
        bench.redis.broker.meanwhile["ack"] = lambda *_: bench.intake.take_in_new_unless_stale_and_wake([entry(1)])
        await bench.read(ConnectionLost("cut"))
        assert bench.lanes.numbers == [1]


class TestComingBack:
    def test_an_entry_that_still_runs_here_is_not_run_beside_itself(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=0)])
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=2)])
        assert [job.delivery_number for job in bench.lanes.jobs] == [1]

    async def test_an_entry_that_still_runs_here_is_no_orphan(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=0)])
        bench.redis.pages = [[claimed(1, deliveries=3)]]
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert [job.delivery_number for job in bench.lanes.jobs] == [1]

    async def test_an_entry_is_found_by_its_present_delivery_when_the_earlier_run_has_ended(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=0)])
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=2)])
        bench.lanes.jobs.clear()
        bench.redis.pages = [[claimed(1, deliveries=3)]]
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert [(job.delivery_number, job.attempt) for job in bench.lanes.jobs] == [(3, 2)]

    async def test_orphans_do_not_start_while_the_queue_is_paused(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1)]]
        bench.orphan_flag.set()
        bench.shared.is_paused.set()
        assert not await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert (bench.lanes.numbers, bench.orphans.may_exist) == ([], True)
        bench.shared.is_paused.clear()
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.numbers == [1]

    async def test_orphans_are_looked_for_once_more_entries_stay_pending_than_are_known(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        for pending in (2, 2, 2, 1, 2, 2, 2):
            bench.orphans.flag_orphans_after_repeated_surplus(pending)
        assert not bench.orphans.may_exist, "replies may have been on their way"
        bench.orphans.flag_orphans_after_repeated_surplus(2)
        assert bench.orphans.may_exist


class TestShedding:
    async def test_entries_that_wait_for_too_long_are_handed_back(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2), entry(3)])
        await bench.reader._try_release_surplus_jobs()
        assert (bench.lanes.numbers, bench.redis.released) == ([1], [b"2-0", b"3-0"])

    async def test_an_entry_that_is_being_handed_back_is_no_orphan(self) -> None:
        """Another worker takes it as soon as it is released, so it must not run here as well."""
        bench = ReaderBench()
        await bench.read([entry(1), entry(2), entry(3)])
        bench.redis.pages = [[claimed(1), claimed(2), claimed(3)]]
        bench.redis.broker.meanwhile["release_some_entries"] = lambda *_: (
            bench.orphans.adopt_orphans_until_full_unless_paused()
        )
        await bench.reader._try_release_surplus_jobs()
        assert (bench.lanes.numbers, bench.redis.released) == ([1], [b"2-0", b"3-0"])

    @staticmethod
    async def lose_a_release(bench: ReaderBench) -> None:
        """A release of entries 2 and 3 is given up, and may still reach Redis."""
        await bench.read([entry(1), entry(2), entry(3)])
        bench.redis.broker.trouble_of["release_some_entries"] = ConnectionLost("")
        await bench.reader._try_release_surplus_jobs()
        del bench.redis.broker.trouble_of["release_some_entries"]
        bench.redis.pages = [[claimed(2), claimed(3)]]

    async def test_an_entry_whose_release_is_unknown_is_no_orphan(self) -> None:
        """Redis may get the release later, and would give a job that runs here to another worker."""
        bench = ReaderBench()
        await self.lose_a_release(bench)
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        await bench.orphans.try_release_orphans()
        assert (bench.lanes.numbers, bench.redis.released) == ([1], [b"2-0", b"3-0"])

    async def test_an_entry_is_an_orphan_once_redis_would_refuse_its_release(self) -> None:
        bench = ReaderBench()
        await self.lose_a_release(bench)
        bench.redis.broker.now = bench.redis.broker.asked("release_some_entries")[0][3] + 1
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.numbers == [1, 2, 3]

    async def test_orphans_are_looked_for_again_once_redis_would_refuse_a_release(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui._worker.release.RELEASE_WITHIN_MS", 30)
        bench = ReaderBench()
        await self.lose_a_release(bench)
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert not bench.orphans.may_exist
        await eventually(lambda: bench.orphan_flag.is_set)

    async def test_a_server_clock_that_is_set_back_strands_nothing(self) -> None:
        bench = ReaderBench()
        await self.lose_a_release(bench)
        bench.redis.broker.now -= 3_600_000
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.numbers == [1, 2, 3]

    @pytest.mark.parametrize("answer", ("too late", "refused"))
    async def test_entries_whose_release_was_not_executed_are_found_at_once(self, answer: str) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2), entry(3)])
        if answer == "too late":
            bench.redis.broker.answer_with["release_some_entries"] = lambda *_: ReleasedEntries(0, 0)
        else:
            bench.redis.broker.trouble_of["release_some_entries"] = ReplyError("NOPERM")
        await bench.reader._try_release_surplus_jobs()
        bench.redis.pages = [[claimed(2), claimed(3)]]
        assert bench.orphans.may_exist
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.numbers == [1, 2, 3]


class TestReadingAhead:
    """While a full batch is run, the next is on its way."""

    @pytest.fixture
    async def bench(self) -> ReaderBench:
        bench = ReaderBench()
        bench.redis.broker.connected_as = 7
        bench.lanes.free_minus_waiting = WORTH_READING
        bench.prefetch._estimate.rate = 1e6
        bench.prefetch._estimate._at = float("inf")  # nothing is measured: it stays so
        return bench

    @staticmethod
    def batch(start: int, count: int = WORTH_READING) -> list[Any]:
        return [entry(number) for number in range(start, start + count)]

    async def test_the_next_batch_is_asked_for_before_the_last_is_offered(self, bench: ReaderBench) -> None:
        await bench.read(self.batch(0), self.batch(1000), self.batch(2000, 3))
        assert len(bench.lanes.jobs) == 2 * WORTH_READING + 3
        assert bench.asked_before == [2, 3, 3]
        assert [block_ms for _, block_ms in bench.redis.asked] == [100, None, None, 100]

    async def test_a_read_that_brings_less_ends_it(self, bench: ReaderBench) -> None:
        await bench.read(self.batch(0, WORTH_READING - 1), self.batch(1000, 3))
        assert [block_ms for _, block_ms in bench.redis.asked] == [100, 100, 100]

    @pytest.mark.parametrize(
        "why",
        (
            "stopping",
            "paused",
            "orphans",
            "claims",
            "unsettled",
            "slow handler",
            "no connection",
            "little room",
            "weight",
        ),
    )
    async def test_the_reader_does_not_read_ahead_before_more_urgent_work(self, bench: ReaderBench, why: str) -> None:
        reader = bench.reader
        assert reader._count_to_read_next(WORTH_READING) == 0  # what jobs weigh here is not known yet
        bench.prefetch.record_entry_sizes(1, 100)
        assert reader._count_to_read_next(WORTH_READING) == WORTH_READING
        reader._is_stopping = why == "stopping"
        if why == "paused":
            bench.shared.is_paused.set()
        if why == "orphans":
            bench.orphan_flag.set()
        bench.reclaimer.may_have_claimable_entries = why == "claims"
        if why == "unsettled":
            bench.lanes.unsettled = MAX_UNSETTLED + 1
        if why == "slow handler":
            bench.prefetch._estimate.rate = 10 * WORTH_READING - 11
        if why == "no connection":
            bench.redis.broker.connected_as = None
        if why == "little room":
            bench.lanes.free_minus_waiting = -MAX_AHEAD
        if why == "weight":
            bench.prefetch.record_entry_sizes(1, 200_000)
        assert reader._count_to_read_next(WORTH_READING) == 0

    async def test_the_loop_turns_while_a_large_batch_is_taken_in(self, bench: ReaderBench) -> None:
        taking = asyncio.create_task(bench.reader._take_in_entries_in_slices(self.batch(0, 2 * INTAKE_SLICE + 1)))
        taken = []
        while not taking.done():
            await asyncio.sleep(0)
            taken.append(len(bench.lanes.jobs))
        assert taken[:3] == [INTAKE_SLICE, 2 * INTAKE_SLICE, 2 * INTAKE_SLICE + 1]

    async def test_entries_that_came_are_not_lost_when_the_next_read_is(self, bench: ReaderBench) -> None:
        await bench.read(self.batch(0), ConnectionLost("cut"))
        assert len(bench.lanes.jobs) == WORTH_READING

    async def test_a_report_in_between_ends_it_and_nothing_that_was_on_its_way_is_started(
        self, bench: ReaderBench
    ) -> None:
        answered = 0

        async def report_at_the_second() -> None:
            nonlocal answered
            answered += 1
            if answered == 2:
                await bench.report()

        bench.redis.on_read = report_at_the_second
        await bench.read(self.batch(0), self.batch(1000), self.batch(2000, 3), self.batch(3000, 3))
        assert {job.data // 1000 for job in bench.lanes.jobs} == {0, 3}
        assert len(bench.lanes.jobs) == WORTH_READING + 3

    async def test_no_entry_is_read_while_too_many_outcomes_are_unsettled(self, bench: ReaderBench) -> None:
        bench.lanes.unsettled = MAX_UNSETTLED + 1
        bench.redis.answers = [[entry(1)]]
        bench.reader.start()
        await asyncio.sleep(0.05)
        assert bench.redis.asked == []
        bench.lanes.unsettled = MAX_UNSETTLED
        bench.shared.settled.send()
        async with asyncio.timeout(PATIENCE_S):
            await bench.redis.is_idle.wait()
        assert bench.lanes.numbers == [1]
        await bench.reader.end(timeout_s=0)


class TestReport:
    """This worker has reported its entries: an entry that is not in the report may belong to another worker."""

    async def test_an_entry_asked_for_before_the_report_that_comes_after_it_is_not_started(self) -> None:
        bench = ReaderBench()
        bench.redis.on_read = bench.report
        await bench.read([entry(1)])
        assert bench.lanes.numbers == []

    async def test_such_an_entry_is_found_if_it_is_still_ours(self) -> None:
        bench = ReaderBench()

        async def report_once() -> None:
            bench.redis.on_read = None
            await bench.report()

        bench.redis.on_read = report_once
        bench.redis.pages = [[claimed(1)]]
        await bench.read([entry(1)], [entry(2)])
        assert bench.lanes.numbers == [1, 2]

    async def test_a_claim_from_before_the_report_is_not_started(self) -> None:
        bench = ReaderBench()
        with bench.intake.guarding_against_stale_entries():
            await bench.report()
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        assert bench.lanes.numbers == []
        with bench.intake.guarding_against_stale_entries():
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        assert bench.lanes.numbers == [1]

    async def test_a_page_of_orphans_from_before_the_report_is_not_started(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1)], [claimed(2)], [claimed(1)]]
        reports = iter([False, True])

        async def page(*_: Any) -> list[ClaimedEntry]:
            if next(reports, False):
                await bench.report()
            return bench.redis.pages.pop(0) if bench.redis.pages else []

        bench.redis.broker.answer_with["list_pending_page"] = page
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert bench.lanes.numbers == [1]
        assert bench.orphan_flag.is_set

    async def test_an_entry_asked_for_during_a_report_is_not_started(self) -> None:
        """It may belong to the group as it was before the report arrived."""
        bench = ReaderBench()
        asked, arrived = asyncio.Event(), asyncio.Event()

        async def under_way(held: dict[bytes, int]) -> None:
            asked.set()
            await arrived.wait()

        bench.redis.broker.meanwhile["report_held_to_rebuild_group"] = lambda *arguments: under_way(dict(arguments[-1]))
        reporting = asyncio.create_task(bench.report())
        await asked.wait()
        with bench.intake.guarding_against_stale_entries():
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
            assert bench.lanes.numbers == []
            arrived.set()
            await reporting
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        assert bench.lanes.numbers == []

    async def test_a_report_that_fails_is_over(self) -> None:
        bench = ReaderBench()

        async def fails(held: dict[bytes, int]) -> None:
            raise ConnectionLost("cut")

        bench.redis.broker.meanwhile["report_held_to_rebuild_group"] = lambda *arguments: fails(dict(arguments[-1]))
        with pytest.raises(ConnectionLost):
            await bench.report()
        await bench.read([entry(1)])
        assert bench.lanes.numbers == [1]

    async def test_the_report_names_all_held_entries_and_waits_for_arriving_ones(self) -> None:
        """The heartbeat's thread reports while the loop decodes: entries that have arrived by then are reported."""
        bench, said, decoding = ReaderBench(), list[dict[bytes, int]](), threading.Event()
        genuine = bench.lanes.put_and_wake

        def slowly(jobs: list[Delivery]) -> None:
            decoding.set()
            time.sleep(0.05)
            genuine(jobs)

        async def note(held: dict[bytes, int]) -> None:
            said.append(held)

        def speak() -> None:
            decoding.wait(PATIENCE_S)
            asyncio.run(bench.report())

        bench.lanes.put_and_wake = slowly  # type: ignore[method-assign]
        bench.redis.broker.meanwhile["report_held_to_rebuild_group"] = lambda *arguments: note(dict(arguments[-1]))
        speaking = threading.Thread(target=speak)
        speaking.start()
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1, deliveries=2), claimed(2)])
        speaking.join(PATIENCE_S)
        assert said == [{b"1-0": 3, b"2-0": 2}]


class TestRebuiltGroup:
    async def test_a_missing_group_is_reported(self) -> None:
        bench = ReaderBench()
        await bench.read(ReplyError("NOGROUP No such key"), ReplyError("NOGROUP No such key"), [entry(1)])
        assert (bench.group_gone, bench.lanes.numbers) == (2, [1])

    async def test_held_entries_that_a_new_group_delivers_again_are_not_offered(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2)], ReplyError("NOGROUP No such key"), [entry(1), entry(2), entry(3)])
        assert bench.lanes.numbers == [1, 2, 3]

    @pytest.mark.parametrize(
        ("before", "after"),
        (
            ([b"1763500000000-9"], [b"1763500000000-9", b"1763500000000-10"]),
            ([b"1763500000000-10"], [b"1763500000000-9", b"1763500000000-10"]),
            ([b"1763500000000-0", b"1763500000001-0"], [b"1763500000001-0"]),
            ([b"9999999999999-0", b"10000000000000-0"], [b"9999999999999-0", b"10000000000000-0"]),
            ([b"9-0", b"10-0"], [b"9-0", b"10-0", b"1763500000000-0"]),
            ([b"99999999999999-0"], [b"99999999999999-0", b"100000000000000-0"]),
        ),
    )
    async def test_an_entry_that_is_held_is_not_offered_again_for_any_length_of_its_id(
        self, before: list[bytes], after: list[bytes]
    ) -> None:
        bench = ReaderBench()
        _, fields = entry(1)
        await bench.read(*([[entry_id, fields] for entry_id in ids] for ids in (before, after)))
        offered = [job.entry_id for job in bench.lanes.jobs]
        assert sorted(offered) == sorted({*before, *after})

    async def test_an_entry_that_is_no_longer_held_is_offered_when_it_is_taken_over(self) -> None:
        """Another worker read it from the new group and died."""
        bench = ReaderBench()
        await bench.read([entry(1)], ReplyError("NOGROUP No such key"), [entry(2)])
        bench.lanes.jobs = [job for job in bench.lanes.jobs if job.data != 1]
        bench.intake.take_in_claimed_unless_stale_and_wake([claimed(1)])
        assert sorted(bench.lanes.numbers) == [1, 2]


class TestPause:
    async def test_no_entry_is_read_while_the_queue_is_paused(self) -> None:
        bench = ReaderBench()
        bench.redis.answers = [[entry(1)]]
        bench.reader.pause_or_resume_reading(True)
        bench.reader.start()
        await asyncio.sleep(0.01)
        assert bench.lanes.numbers == []
        bench.reader.pause_or_resume_reading(False)
        async with asyncio.timeout(PATIENCE_S):
            await bench.redis.is_idle.wait()
        assert bench.lanes.numbers == [1]
        await bench.reader.end(timeout_s=0)

    async def wait_in_a_read(self) -> ReaderBench:
        bench = ReaderBench()
        bench.redis.broker.connected_as = 7
        bench.reader.start()
        async with asyncio.timeout(PATIENCE_S):
            await bench.redis.is_idle.wait()
        return bench

    async def test_a_read_that_waits_ends_when_the_queue_is_paused(self) -> None:
        bench = await self.wait_in_a_read()
        bench.reader.pause_or_resume_reading(True)
        await asyncio.sleep(0)
        assert bench.redis.unblocked == [7]
        await bench.reader.end(timeout_s=0)

    async def test_a_repeated_pause_or_resume_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "chasqui.worker")
        bench = await self.wait_in_a_read()
        for is_paused in (False, True, True, False, False):
            bench.reader.pause_or_resume_reading(is_paused)
            await asyncio.sleep(0)
        assert bench.redis.unblocked == [7]
        assert [record.getMessage() for record in caplog.records] == [
            "the queue is paused for worker a",
            "the queue is resumed for worker a",
        ]
        await bench.reader.end(timeout_s=0)

    async def test_a_server_that_cannot_end_the_read_harms_nothing(self) -> None:
        bench = await self.wait_in_a_read()
        bench.redis.broker.trouble_of["try_to_unblock_read"] = ConnectionLost("away")
        bench.reader.pause_or_resume_reading(True)
        await asyncio.sleep(0)
        await bench.reader.end(timeout_s=0)
        assert bench.reader._unblocking is not None
        await bench.reader._unblocking

    async def test_unstarted_entries_are_handed_back(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2)])
        bench.reader.pause_or_resume_reading(True)
        bench.reader.start()
        async with asyncio.timeout(PATIENCE_S):
            while not bench.redis.released:
                await asyncio.sleep(0)
        assert (bench.lanes.numbers, bench.redis.released) == ([], [b"1-0", b"2-0"])
        await bench.reader.end(timeout_s=0)

    async def test_a_paused_reader_stops(self) -> None:
        bench = ReaderBench()
        bench.reader.pause_or_resume_reading(True)
        bench.reader.start()
        await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            await bench.reader.end(timeout_s=PATIENCE_S)
        assert bench.lanes.numbers == []


class TestRoom:
    @pytest.mark.parametrize("stops", (True, False))
    async def test_a_reader_that_stops_takes_no_claims(self, stops: bool) -> None:
        """Also if it is asked to stop while it looks for orphans."""
        bench = ReaderBench()
        bench.reclaimer.may_have_claimable_entries = True
        bench.orphan_flag.set()
        ends: list[asyncio.Future[None]] = []

        def stop() -> None:
            if stops and not ends:
                bench.shared.is_closing.set()
                ends.append(asyncio.ensure_future(bench.reader.end(timeout_s=PATIENCE_S)))

        bench.redis.on_page = stop
        bench.reader.start()
        await eventually(
            lambda: bench.reader._task is not None and (bench.reader._task.done() or bench.reclaimer.claims)
        )
        assert bool(bench.reclaimer.claims) is not stops
        await bench.reader.end(timeout_s=0)

    @pytest.mark.parametrize("why", ("paused", "closing", "no lease"))
    def test_claims_have_no_room_while_no_job_may_start(self, why: str) -> None:
        bench = ReaderBench()
        assert bench.prefetch.count_room_for_claims() == 10
        if why == "paused":
            bench.shared.is_paused.set()
        elif why == "closing":
            bench.shared.is_closing.set()
        else:
            bench.shared.lease.renew(0.0)
        assert bench.prefetch.count_room_for_claims() == 0

    def test_deleted_entries_are_skipped(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_claimed_unless_stale_and_wake([ClaimedEntry(b"1-0", None, 1), claimed(2)])
        assert bench.lanes.numbers == [2]


class TestHeldEntries:
    """Redis may be restored from an older copy, or the group rebuilt: entries that were read come again as new."""

    async def test_a_held_entry_does_not_run_beside_itself(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2)], [entry(1), entry(2), entry(3)])
        assert bench.lanes.numbers == [1, 2, 3]

    async def test_a_claimed_or_adopted_entry_does_not_run_beside_itself(self) -> None:
        bench = ReaderBench()
        with bench.intake.guarding_against_stale_entries():
            bench.intake.take_in_claimed_unless_stale_and_wake([claimed(5)])
        bench.redis.pages = [[claimed(7)]]
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        await bench.read([entry(5), entry(6), entry(7)])
        assert bench.lanes.numbers == [5, 7, 6]

    async def test_an_entry_that_is_no_longer_held_runs_again(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(1), entry(2)])
        bench.lanes.jobs.clear()
        await bench.read([entry(1), entry(2)])
        assert bench.lanes.numbers == [1, 2]

    async def test_ids_are_compared_as_numbers(self) -> None:
        bench = ReaderBench()
        await bench.read([entry(9)], [entry(10)])
        asked: list[int] = []
        held = bench.lanes.collect_held_delivery_numbers
        bench.lanes.collect_held_delivery_numbers = lambda: asked.append(1) or held()  # type: ignore[func-returns-value, method-assign]
        bench.intake.take_in_new_unless_stale_and_wake([entry(11)])
        assert asked == []  # no held entry can be among entries that arrive in order
        bench.intake.take_in_new_unless_stale_and_wake([entry(10)])
        assert (asked, bench.lanes.numbers) == ([1], [9, 10, 11])

    async def test_an_id_that_no_server_makes_does_no_harm(self) -> None:
        bench = ReaderBench()
        bench.intake.take_in_new_unless_stale_and_wake([[b"odd", entry(1)[1]]])
        bench.intake.take_in_new_unless_stale_and_wake([[b"odd", entry(1)[1]]])
        assert bench.lanes.numbers == [1]


class TestBytes:
    async def test_waiting_entries_leave_less_room(self) -> None:
        bench = ReaderBench()
        bench.prefetch._entry_size.record_entries(1, 2**20)
        bench.lanes.waiting_count, bench.lanes.inbox_bytes = 10, 10 * 2**20
        assert bench.prefetch.bytes_left == 6 * 2**20
        assert bench.prefetch.choose_byte_bounds() == ByteBounds(2**20, 2**20)
        bench.lanes.waiting_count, bench.lanes.inbox_bytes = 16, 16 * 2**20
        assert (bench.prefetch.count_room_for_claims(), bench.prefetch.choose_byte_bounds().max_bytes) == (0, 1)

    async def test_unsettled_entries_leave_less_room(self) -> None:
        bench = ReaderBench()
        bench.prefetch._entry_size.record_entries(1, 2**20)
        bench.lanes.unsettled = 14
        assert bench.prefetch.bytes_left == 2 * 2**20

    async def test_small_jobs_are_not_added_up(self) -> None:
        bench = ReaderBench()
        bench.prefetch._entry_size.record_entries(10, 1000)
        bench.lanes.waiting_count, bench.lanes.inbox_bytes = 50, 2**40
        assert bench.prefetch.bytes_left == 16 * 2**20 - 5000

    async def test_large_entries_are_read_by_a_script_as_long_as_there_are_any(self) -> None:
        bench = ReaderBench()
        read: list[tuple[int, ByteBounds]] = []
        waiting = [[claimed(1, deliveries=0)], [claimed(2, deliveries=0)]]

        async def read_now_within_bounds(
            group: str, consumer: str, count: int, bounds: ByteBounds
        ) -> list[ClaimedEntry]:
            read.append((count, bounds))
            return waiting.pop(0) if waiting else []

        bench.redis.broker.answer_with["read_now_within_bounds"] = read_now_within_bounds
        bench.prefetch._entry_size.bytes = 2.0**28
        await bench.read([entry(3)], [entry(4)])
        assert bench.lanes.numbers == [1, 2, 3, 4]
        assert [count for count, _ in bench.redis.asked] == [1, 1, 1]
        assert {bounds.max_bytes for _, bounds in read} == {2**20}

    async def test_a_reply_that_is_too_large_makes_it_read_by_bytes(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        bench = ReaderBench()
        await bench.read([entry(1)])
        assert bench.prefetch._entry_size.bytes < 1000
        bench.redis.pages = [[claimed(2)]]
        await bench.read(ReplyTooLarge("a reply takes more than 9 bytes"), [entry(3)])
        assert bench.lanes.numbers == [1, 2, 3]
        assert bench.prefetch._entry_size.bytes > 2**22
        assert "reads fewer at a time" in caplog.text

    async def test_orphans_are_adopted_as_there_is_room_for_them(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[claimed(1)], [claimed(2)], [claimed(3)]]
        bench.prefetch._entry_size.bytes, bench.lanes.waiting_count = 2.0**28, 1

        def fill_up() -> None:
            bench.lanes.inbox_bytes = 2**30

        bench.redis.on_page = fill_up
        assert await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert (bench.lanes.numbers, bench.orphans.may_exist) == ([1], True)
        bench.redis.on_page, bench.lanes.inbox_bytes = None, 0
        assert await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert (bench.lanes.numbers, bench.orphans.may_exist) == ([1, 2, 3], False)
        assert not await bench.orphans.adopt_orphans_until_full_unless_paused()

    async def test_a_search_that_waits_for_room_begins_again_if_there_may_be_orphans_behind_it(self) -> None:
        """A reply that is lost meanwhile may have brought entries that it has passed already, or will not come to."""
        bench = ReaderBench()
        bench.redis.pages = [[claimed(2)]]
        bench.prefetch._entry_size.bytes, bench.lanes.waiting_count = 2.0**28, 1

        def fill_up() -> None:
            bench.lanes.inbox_bytes = 2**30

        bench.redis.on_page = fill_up
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        bench.orphan_flag.set()
        bench.redis.on_page, bench.lanes.inbox_bytes = None, 0
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        starts = [after for _, _, after, *_ in bench.redis.broker.asked("list_pending_page")]
        assert starts == [b"", b""]

    async def test_orphans_that_were_adopted_leave_less_room_for_the_next_read(self) -> None:
        bench = ReaderBench()
        bench.orphan_flag.set()
        bench.redis.pages = [[claimed(number) for number in range(1, 9)]]

        def take_lanes() -> None:
            bench.lanes.free_minus_waiting = 2

        bench.redis.on_page = take_lanes
        await bench.read([entry(9)])
        assert bench.lanes.numbers == list(range(1, 10))
        assert bench.redis.asked[0][0] == 2

    async def test_an_orphan_that_is_too_large_is_rejected_by_its_size(self) -> None:
        bench = ReaderBench()
        bench.redis.pages = [[ClaimedEntry(b"1-0", None, 3, size=2**27), claimed(2)]]
        await bench.orphans.adopt_orphans_until_full_unless_paused()
        assert (bench.lanes.numbers, bench.rejected) == ([2], [(b"1-0", 3, "oversize_payload")])


class TestDecodingLater:
    def decoder(self, rejected: list[str]) -> Decoder:
        return Decoder(
            max_payload_bytes=2**20,
            max_attempts=3,
            on_rejected=lambda _, __, ___, reason, ____: rejected.append(reason),
            on_exhausted=lambda _: rejected.append("exhausted"),
            stops=JobStops(RunTimeouts()),
            server_clock=ServerClock(cast(Any, None)),
            on_expired=lambda _: rejected.append("expired"),
            on_cancelled=lambda _: rejected.append("cancelled"),
        )

    @staticmethod
    def large(payload: bytes, attempt: int = 0) -> list[Any]:
        return [b"1-0", [b"d", encode_envelope("x", payload, 5, attempt, None), b"n", b"mail", b"u", b"1"]]

    async def test_a_large_job_waits_as_it_came_and_is_whole_afterwards(self) -> None:
        decoder, data = self.decoder([]), ["x" * 50_000, {"k": 1}]
        (late,) = decoder.decode_put_off_or_settle_entries([self.large(encode_data(data), attempt=1)], 1)
        assert (late.is_decoded, late.entry_id, late.delivery_number, len(late.payload) > 50_000) == (
            False,
            b"1-0",
            2,
            True,
        )
        assert await decoder.decode_or_settle_put_off_job(late)
        assert (late.is_decoded, late.id, late.name, late.data, late.attempt) == (True, "x", "mail", data, 2)
        assert (late.payload, late.created_at_ms, late.may_be_unique) == (encode_data(data), 5, True)

    @pytest.mark.parametrize(
        ("payload", "attempt", "reason"),
        ((b"\xc1" * 50_000, 0, "decode_failed"), (encode_data("x" * 50_000), 3, "exhausted")),
    )
    async def test_a_late_job_that_cannot_run_is_settled_then(self, payload: bytes, attempt: int, reason: str) -> None:
        rejected: list[str] = []
        decoder = self.decoder(rejected)
        (late,) = decoder.decode_put_off_or_settle_entries([self.large(payload, attempt)], 0)
        assert rejected == []
        assert not await decoder.decode_or_settle_put_off_job(late)
        assert rejected == [reason]

    async def test_an_entry_larger_than_any_job_is_rejected_at_once(self) -> None:
        rejected: list[str] = []
        assert self.decoder(rejected).decode_put_off_or_settle_entries([self.large(b"x" * 2**20)], 0) == []
        assert rejected == ["oversize_payload"]

    async def test_a_batch_that_takes_long_is_decoded_in_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pychasqui._worker.decoder.monotonic", FakeClock(step_s=0.001))
        monkeypatch.setattr("pychasqui._worker.decoder.SLICE_S", 0.01)
        rejected: list[str] = []
        decoder = self.decoder(rejected)
        medium = [self.large(encode_data("x" * 1000)) for _ in range(30)]
        assert 5 <= sum(job.is_decoded for job in decoder.decode_put_off_or_settle_entries(medium, 0)) <= 15
        small = [self.large(encode_data("x")) for _ in range(3000)]
        jobs = decoder.decode_put_off_or_settle_entries([*small, [b"2-0", None], [b"3-0", [b"odd"]]], 0)
        assert len(jobs) == 3002
        assert 500 <= sum(job.is_decoded for job in jobs) <= 1500
        assert [await decoder.decode_or_settle_put_off_job(job) for job in jobs[-3:]] == [True, False, False]
        assert rejected == ["malformed", "malformed"]

    async def test_the_loop_turns_while_a_hostile_job_is_looked_through(self) -> None:
        decoder = self.decoder([])
        (late,) = decoder.decode_put_off_or_settle_entries(
            [self.large(b"\xdd\x00\x03\x00\x00" + b"\x91\x01\xa1x\xcc\xff" * 65536)], 0
        )
        finishing = asyncio.ensure_future(decoder.decode_or_settle_put_off_job(late))
        turns = 0
        while not finishing.done():
            await asyncio.sleep(0)
            turns += 1
        assert (finishing.result(), turns > 5) == (True, True)


class TestManyWorkers:
    async def test_an_idle_worker_looks_pauses_and_is_woken_by_a_message(self) -> None:
        bench = ReaderBench()
        bench.shared.living_workers.set_count(count=1000)
        bench.redis.answers = [[], [entry(1)]]
        bench.reader.start()
        await eventually(lambda: bench.redis.broker.on_backlog is not None, every=0.001)
        await asyncio.sleep(0.01)
        assert bench.lanes.numbers == []
        assert bench.redis.broker.on_backlog is not None
        bench.redis.broker.on_backlog()
        await eventually(lambda: bench.lanes.numbers == [1], every=0.001)
        assert [block_ms for _, block_ms in bench.redis.asked[:2]] == [None, None]
        await bench.reader.end(timeout_s=0)

    @pytest.mark.parametrize(("living", "published"), ((1000, 1), (16, 0)))
    async def test_an_idle_worker_that_finds_more_than_it_can_take_publishes_that(
        self, living: int, published: int
    ) -> None:
        bench = ReaderBench()
        bench.shared.living_workers.set_count(count=living)
        bench.redis.broker.answer_with["may_have_unread_entries"] = lambda *_: True
        bench.lanes.free_minus_waiting = 1
        bench.redis.answers = [[entry(1)], [entry(2)], [entry(3)]]
        bench.reader.start()
        await eventually(lambda: bench.lanes.numbers == [1, 2, 3], every=0.001)
        assert len(bench.redis.broker.asked("publish_backlog_hint")) == published
        await bench.reader.end(timeout_s=0)
