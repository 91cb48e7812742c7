"""The heartbeat renews held entries, and after a lapse no entry starts before its owner is known."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

from pychasqui._core.delivery import Delivery
from pychasqui._redis.cancellations import Cancellations
from pychasqui._redis.replies import QueueFlags, RenewalResult
from pychasqui._wire.worker_record import read_worker_record_or_error
from pychasqui._worker.group_recovery import GroupRecovery
from pychasqui._worker.heartbeat import Heartbeat
from pychasqui._worker.lanes import Lanes
from pychasqui._worker.lease_renewal import LeaseRenewal, RenewalTimes
from pychasqui._worker.loop_thread import LoopThread
from pychasqui._worker.loop_watch import LoopWatch
from pychasqui._worker.queue_watch import QueueWatch
from pychasqui._worker.record_maker import RecordMaker
from pychasqui._worker.registry_writer import RegistryWriter
from pychasqui._worker.round_trips import RoundTrips
from pychasqui._worker.shared import OnDeath, Shared
from pychasqui.errors import ConnectionLost, ReplyError
from tests.support.memory_broker import MemoryBroker
from tests.support.waiting import eventually
from tests.support.worker_parts import ignore_death, make_shared

PATIENCE_S = 2.0


class Redis:
    """A broker that answers as the test says: entries in `stolen` are no longer ours."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.answer_with = {
            "renew_lease_and_held_entries": self._renew_lease_and_schedule_next,
            "report_held_to_rebuild_group": self._rebuild_group,
            "leave_group_if_lease_is_same": lambda *_: True,
        }
        self.kept: list[list[bytes]] = []
        self.deliveries: list[dict[bytes, int]] = []
        self.stolen: set[bytes] = set()
        self.is_away = False
        self.has_group = True
        self.hides_flags = False
        self.living, self.over = 1, 0
        self.reports: list[dict[bytes, int]] = []
        self.reports_wanted = 1  # before the group is back

    def publish_pause(self) -> None:
        assert self.broker.on_pause is not None
        self.broker.on_pause()

    def _renew_lease_and_schedule_next(
        self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]], *record: object
    ) -> RenewalResult:
        if self.is_away:
            raise ConnectionLost("away")
        if not self.has_group:
            raise ReplyError("NOGROUP No such key")
        self.deliveries.append(dict(held))
        self.kept.append(sorted(dict(held)))
        lost = [entry_id for entry_id, _ in held if entry_id in self.stolen]
        flags = None if self.hides_flags else QueueFlags(self.broker.is_queue_paused, bool(self.broker.cancellations))
        return RenewalResult(flags, self.living, self.over, lost)

    def _rebuild_group(self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]) -> bool:
        if self.is_away:
            raise ConnectionLost("away")
        self.reports.append(dict(held))
        self.has_group = len(self.reports) >= self.reports_wanted
        return self.has_group


class FakeHoldings:
    """Holds what the test says."""

    def __init__(self, held: Callable[[], dict[bytes, int]]) -> None:
        self.collect_held_delivery_numbers = held
        self.running: list[Delivery | None] = [None]

    def list_running_jobs(self) -> list[Delivery]:
        return []


class FakeLanes:
    def __init__(self) -> None:
        self.lost: set[bytes] = set()
        self.has_them = True
        self.renewals = 0

    def wake_after_lapse(self) -> None:
        self.renewals += 1

    def drop_lost_waiting_and_undecoded_jobs(self, ids: set[bytes]) -> bool:
        self.lost |= ids
        return self.has_them


def first(*entry_ids: bytes) -> dict[bytes, int]:
    """Held by their first deliveries."""
    return dict.fromkeys(entry_ids, 1)


class HeartbeatBench:
    """A heartbeat, and the values that it shares with the other parts."""

    def __init__(
        self,
        redis: Redis,
        lanes: Any,
        shared: Shared,
        times: RenewalTimes,
        on_pause: Callable[[bool], None],
    ) -> None:
        self.shared, self.lease = shared, shared.lease
        self.cancellations: list[Any] = []
        broker = redis.broker
        thread = LoopThread("heartbeat", shared.on_death)
        queue_watch = QueueWatch(
            broker,
            on_pause=partial(thread.call_soon_in_worker_loop_if_running, on_pause),
            on_cancellations=partial(thread.call_soon_in_worker_loop_if_running, self.cancellations.append),
        )
        renewal = LeaseRenewal(
            broker,
            shared,
            times,
            lanes=lanes,
            recovery=GroupRecovery("default", "a", times.lease_ms, shared.holdings),
            queue_watch=queue_watch,
            record_maker=RecordMaker(shared, lease_ms=times.lease_ms),
            round_trips=RoundTrips(broker, "a", shared.lease, times.lease_ms),
            call_soon_in_worker_loop_if_running=thread.call_soon_in_worker_loop_if_running,
        )
        self.heartbeat = Heartbeat(
            broker,
            shared,
            renewal,
            thread=thread,
            loop_watch=LoopWatch(
                "a", shared.holdings, call_soon_in_worker_loop_if_running=thread.call_soon_in_worker_loop_if_running
            ),
            queue_watch=queue_watch,
            registry_writer=RegistryWriter(broker),
        )

    @property
    def has_news_of_orphans(self) -> bool:
        return self.shared.may_have_orphans.is_set


@asynccontextmanager
async def beating(
    redis: Redis,
    lanes: Any,
    held: Callable[[], dict[bytes, int]],
    *,
    shared: Shared | None = None,
    on_pause: Callable[[bool], None] = lambda _: None,
    lease_ms: int = 60_000,
    every_s: float = 60,
    hold_s: float | None = None,
    on_death: OnDeath = ignore_death,
) -> AsyncIterator[HeartbeatBench]:
    if shared is None:
        shared = make_shared(holdings=FakeHoldings(held), on_death=on_death)
    times = RenewalTimes(lease_ms, every_s, every_s if hold_s is None else hold_s)
    beating = HeartbeatBench(redis, lanes, shared, times, on_pause)
    async with asyncio.timeout(PATIENCE_S):
        await beating.heartbeat.start()
    yield beating
    async with asyncio.timeout(PATIENCE_S):
        await beating.heartbeat.stop()


def test_the_thread_ends_when_the_loop_of_its_worker_is_closed_without_a_stop() -> None:
    beats = beating(Redis(), FakeLanes(), dict)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(beats.__aenter__())
    loop.close()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "chasqui heartbeat"]
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_the_lease_begins_before_start_returns() -> None:
    async def check() -> None:
        redis, lanes = Redis(), FakeLanes()
        before = monotonic()
        async with beating(redis, lanes, dict, lease_ms=6000) as mine:
            assert redis.kept == [[]]
            assert before + 6 <= mine.lease.until <= monotonic() + 6

    asyncio.run(check())


async def test_an_entry_held_from_one_renewal_to_the_next_is_renewed() -> None:
    redis = Redis()
    async with beating(redis, FakeLanes(), lambda: first(b"1-0", b"2-0"), every_s=0.01):
        await eventually(lambda: len(redis.kept) >= 3, every=0.001)
    assert redis.kept[:3] == [[], [b"1-0", b"2-0"], [b"1-0", b"2-0"]]


async def test_an_entry_that_has_ended_meanwhile_is_not_renewed() -> None:
    redis = Redis()
    held = first(b"1-0", b"2-0")
    async with beating(redis, FakeLanes(), lambda: dict(held), every_s=0.01):
        await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        del held[b"1-0"]
        redis.kept.clear()
        await eventually(lambda: len(redis.kept) >= 3, every=0.001)
    assert redis.kept[-1] == [b"2-0"]


async def test_a_renewal_larger_than_one_call_goes_in_several() -> None:
    redis = Redis()
    held = first(*(b"%d-0" % number for number in range(1200)))
    async with beating(redis, FakeLanes(), lambda: held, every_s=0.01):
        await eventually(lambda: len(redis.kept) >= 4, every=0.001)
    assert [len(ids) for ids in redis.kept[:4]] == [0, 500, 500, 200]


async def test_lost_entries_are_passed_to_the_lanes() -> None:
    redis, lanes = Redis(), FakeLanes()
    redis.stolen = {b"2-0"}
    async with beating(redis, lanes, lambda: first(b"1-0", b"2-0"), every_s=0.01):
        await eventually(lambda: lanes.lost, every=0.001)
    assert lanes.lost == {b"2-0"}


async def test_each_entry_is_renewed_by_its_delivery() -> None:
    redis = Redis()
    held = {b"1-0": 1, b"2-0": 3}
    async with beating(redis, FakeLanes(), lambda: held, every_s=0.01):
        await eventually(lambda: len(redis.deliveries) >= 2, every=0.001)
    assert redis.deliveries[1] == held


async def test_an_entry_that_has_come_back_by_another_delivery_is_new() -> None:
    """The last renewal was about the earlier delivery."""
    redis = Redis()
    held = first(b"1-0", b"2-0")
    async with beating(redis, FakeLanes(), lambda: dict(held), every_s=0.05):
        await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        held[b"1-0"] = 3
        await eventually(lambda: len(redis.kept) >= 4, every=0.001)
    assert redis.deliveries[2:4] == [{b"2-0": 1}, {b"1-0": 3, b"2-0": 1}]


async def test_a_lost_entry_starts_a_search_for_orphans() -> None:
    redis = Redis()
    redis.stolen = {b"2-0"}
    async with beating(redis, FakeLanes(), lambda: first(b"1-0", b"2-0"), every_s=0.01) as mine:
        await eventually(lambda: mine.has_news_of_orphans, every=0.001)
    assert mine.has_news_of_orphans


async def test_an_entry_found_lost_after_a_lapse_is_reported() -> None:
    redis, lanes = Redis(), FakeLanes()
    async with beating(redis, lanes, lambda: first(b"1-0"), every_s=0.05) as mine:
        await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        redis.stolen = {b"1-0"}
        mine.lease.renew(monotonic() - 1)
        await eventually(lambda: mine.has_news_of_orphans, every=0.001)
        assert lanes.renewals == 1
        assert mine.lease.lapses == 1


async def test_a_lost_entry_that_is_settled_by_then_is_not_reported() -> None:
    redis, lanes = Redis(), FakeLanes()
    redis.stolen = {b"2-0"}
    lanes.has_them = False
    async with beating(redis, lanes, lambda: first(b"1-0", b"2-0"), every_s=0.01) as mine:
        await eventually(lambda: lanes.lost, every=0.001)
    assert not mine.has_news_of_orphans


async def test_the_lease_ends_while_redis_is_away_and_begins_again() -> None:
    redis, lanes = Redis(), FakeLanes()
    async with beating(redis, lanes, dict, lease_ms=30, every_s=0.01) as mine:
        redis.is_away = True
        await eventually(lambda: monotonic() > mine.lease.until, every=0.001)
        renewals, ran_out = lanes.renewals, mine.lease.until
        redis.is_away = False
        await eventually(lambda: lanes.renewals > renewals, every=0.001)
        assert mine.lease.until > ran_out


async def test_every_held_entry_is_checked_after_a_lapse_before_it_may_start() -> None:
    """As after a pause of the whole process: an entry that was read just before may have another owner by now."""
    redis, lanes = Redis(), FakeLanes()
    held: dict[bytes, int] = {}
    async with beating(redis, lanes, lambda: dict(held), lease_ms=60_000, every_s=0.05) as mine:
        await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        held[b"1-0"] = 1
        redis.stolen = {b"1-0"}
        mine.lease.renew(monotonic() - 1)
        await eventually(lambda: mine.lease.until > monotonic(), every=0.001)
        await asyncio.sleep(0.005)
        assert lanes.lost == {b"1-0"}


async def test_a_lost_job_is_not_started_between_the_renewal_and_the_news_of_the_loss() -> None:
    started: list[int] = []
    gate = asyncio.Event()

    async def handler(job: Delivery) -> None:
        started.append(job.data)
        await gate.wait()

    shared = make_shared()
    lanes = Lanes(
        handler,
        shared,
        on_start=None,
        on_done=lambda *_: None,
        on_failed=lambda *_: None,
        decode_or_settle=AsyncMock(),
        is_abandoned=bool,
    )
    redis = Redis()
    async with beating(redis, lanes, dict, shared=shared, lease_ms=60_000, every_s=0.05) as mine:
        lanes.start()
        lanes.put_and_wake(
            [Delivery("j1", name="", data=1, entry_id=b"1-0"), Delivery("j2", name="", data=2, entry_id=b"2-0")]
        )
        await eventually(lambda: started, every=0.001)
        await eventually(lambda: redis.kept[-1] == [b"1-0", b"2-0"], every=0.001)
        redis.stolen = {b"2-0"}
        mine.lease.renew(monotonic() - 1)

        gate.set()  # the lane's next step now stands in the loop's queue, before anything that the heartbeat adds
        give_up_at = monotonic() + 0.3
        while mine.lease.until < monotonic() < give_up_at:
            time.sleep(0.001)
        await asyncio.sleep(0.02)
        await lanes.stop()
    assert started == [1]


class TestGroupGone:
    async def test_held_entries_are_reported_until_the_group_is_back(self) -> None:
        redis = Redis()
        redis.reports_wanted = 3
        async with beating(redis, FakeLanes(), lambda: {b"1-0": 1, b"2-0": 3}, every_s=0.2):
            redis.has_group = False
            await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        assert redis.reports == [{b"1-0": 1, b"2-0": 3}] * 3

    async def test_a_heartbeat_that_is_hurried_reports_before_the_next_renewal(self) -> None:
        redis = Redis()
        async with beating(redis, FakeLanes(), lambda: first(b"1-0"), every_s=60) as mine:
            redis.has_group = False
            mine.shared.group_gone.send()
            await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        assert redis.reports == [first(b"1-0")]

    async def test_held_entries_are_reported_also_while_the_loop_is_blocked(self) -> None:
        redis = Redis()
        redis.reports_wanted = 1000
        async with beating(redis, FakeLanes(), lambda: first(b"1-0"), every_s=0.01):
            redis.has_group = False
            time.sleep(0.3)
            assert len(redis.reports) >= 2

    async def test_the_lease_goes_on_during_the_reports(self) -> None:
        redis, lanes = Redis(), FakeLanes()
        redis.reports_wanted = 1000
        async with beating(redis, lanes, dict, lease_ms=200, every_s=0.01) as mine:
            redis.has_group = False
            await eventually(lambda: len(redis.reports) >= 8, every=0.001)
            assert mine.lease.until > monotonic()
        assert lanes.renewals == 0

    async def test_a_lapsed_lease_begins_again_only_when_every_owner_is_known(self) -> None:
        redis, lanes = Redis(), FakeLanes()
        redis.reports_wanted = 4
        async with beating(redis, lanes, lambda: first(b"1-0"), every_s=0.05) as mine:
            await eventually(lambda: len(redis.kept) >= 2, every=0.001)
            redis.stolen = {b"1-0"}
            mine.lease.renew(monotonic() - 1)
            redis.has_group = False
            await eventually(lambda: len(redis.reports) >= 3, every=0.001)
            assert mine.lease.until < monotonic()
            await eventually(lambda: lanes.renewals, every=0.001)
            assert (lanes.lost, len(redis.reports)) == ({b"1-0"}, 4)

    async def test_a_lease_that_ends_during_a_report_begins_again_with_the_group_and_wakes_the_lanes(self) -> None:
        redis, lanes = Redis(), FakeLanes()
        redis.reports_wanted = 4
        answer = redis.broker.answer_with["report_held_to_rebuild_group"]

        def end_lease_and_answer(*report: Any) -> Any:
            if not redis.reports:
                mine.lease.renew(monotonic() - 1)
            return answer(*report)

        redis.broker.answer_with["report_held_to_rebuild_group"] = end_lease_and_answer
        async with beating(redis, lanes, dict, every_s=0.05) as mine:
            redis.has_group = False
            await eventually(lambda: len(redis.reports) >= 3, every=0.001)
            assert mine.lease.is_over
            await eventually(lambda: lanes.renewals, every=0.001)
            assert not mine.lease.is_over

    async def test_orphans_are_searched_for_when_the_group_is_back(self) -> None:
        """An entry handed back since the last report is pending for this worker, by that report."""
        redis = Redis()
        async with beating(redis, FakeLanes(), dict) as mine:
            assert not mine.has_news_of_orphans
            redis.has_group = False
            mine.shared.group_gone.send()
            await eventually(lambda: mine.has_news_of_orphans, every=0.001)
        assert mine.has_news_of_orphans

    async def test_a_redis_that_is_away_then_is_asked_again(self) -> None:
        redis = Redis()
        async with beating(redis, FakeLanes(), dict, every_s=0.05):
            redis.has_group = False
            redis.is_away = True
            await asyncio.sleep(0.1)
            redis.is_away = False
            await eventually(lambda: len(redis.kept) >= 2, every=0.001)
        assert len(redis.reports) == 1


async def test_the_worker_record_is_written_with_each_renewal() -> None:
    redis = Redis()
    async with beating(redis, FakeLanes(), dict, lease_ms=6000, every_s=0.01):
        await eventually(lambda: len(redis.kept) >= 2, every=0.001)
    for _, consumer, _, _, record, kept_ms in redis.broker.asked("renew_lease_and_held_entries"):
        assert (consumer, read_worker_record_or_error("a", record).concurrency, kept_ms) == ("a", 1, 12_000)


async def test_each_renewal_finds_how_many_workers_live_and_whether_leases_are_over() -> None:
    redis, shared, news = Redis(), make_shared(holdings=FakeHoldings(dict)), list[bool]()
    shared.ended_leases.add_listener(lambda: news.append(True))
    redis.living = 5
    async with beating(redis, FakeLanes(), dict, shared=shared, lease_ms=6000, every_s=0.01):
        assert shared.living_workers.count == 5
        await eventually(lambda: len(redis.kept) >= 3, every=0.001)
        assert news == []
        redis.over = 2
        await eventually(lambda: len(news) >= 2, every=0.001)


async def test_a_pause_is_read_at_each_renewal_and_at_each_message_and_passed_on_when_it_begins_or_ends() -> None:
    redis, heard = Redis(), list[bool]()
    redis.broker.is_queue_paused = True
    async with beating(redis, FakeLanes(), dict, on_pause=heard.append):
        await eventually(lambda: heard == [True], every=0.001)
        redis.publish_pause()
        await eventually(lambda: redis.broker.asked("read_queue_flags"), every=0.001)
        redis.broker.is_queue_paused = False
        redis.publish_pause()
        await eventually(lambda: len(heard) > 1, every=0.001)
    assert heard == [True, False]


async def test_notes_about_cancelled_jobs_are_read_while_there_are_some_and_once_more() -> None:
    redis, notes = Redis(), Cancellations(frozenset({b"1-0"}))
    async with beating(redis, FakeLanes(), dict) as bench:
        redis.broker.cancellations = notes
        redis.publish_pause()
        await eventually(lambda: bench.cancellations and bench.cancellations[-1] == notes, every=0.001)
        redis.broker.cancellations = Cancellations()
        redis.publish_pause()
        await eventually(lambda: not bench.cancellations[-1], every=0.001)
        asked = len(redis.broker.asked("read_cancellations_and_remove_outdated"))
        redis.publish_pause()
        await asyncio.sleep(0.05)
        assert len(redis.broker.asked("read_cancellations_and_remove_outdated")) == asked


async def test_the_pause_callback_runs_in_the_thread_of_the_worker() -> None:
    redis, threads = Redis(), set[int]()
    async with beating(redis, FakeLanes(), dict, on_pause=lambda _: threads.add(threading.get_ident())):
        await eventually(lambda: threads, every=0.001)
    assert threads == {threading.get_ident()}


async def test_the_lease_holds_also_if_the_pause_cannot_be_read() -> None:
    redis, lanes, heard = Redis(), FakeLanes(), list[bool]()
    redis.hides_flags = True
    redis.broker.trouble_of["read_queue_flags"] = ConnectionLost("away again")
    async with beating(redis, lanes, dict, on_pause=heard.append, every_s=0.01) as mine:
        await eventually(lambda: len(redis.kept) >= 3, every=0.001)
        assert mine.lease.until > monotonic()
    assert heard == []


async def test_stopping_ends_a_renewal_that_waits() -> None:
    redis, waiting = Redis(), list[bool]()

    async def hang(*_: object) -> None:
        if redis.kept:
            waiting.append(True)
            try:
                await asyncio.sleep(60)
            finally:
                waiting.clear()

    redis.broker.meanwhile["renew_lease_and_held_entries"] = hang
    async with beating(redis, FakeLanes(), dict, every_s=0.01):
        await eventually(lambda: waiting, every=0.001)
        stopping_at = monotonic()
    assert monotonic() - stopping_at < PATIENCE_S
    assert not waiting
    assert redis.kept == [[]]


async def test_a_patient_stop_waits_for_the_answer_of_a_renewal_and_sends_no_other() -> None:
    redis, sent, answered = Redis(), list[bool](), list[bool]()

    async def travel(*_: object) -> None:
        if redis.kept:
            sent.append(True)
            await asyncio.sleep(0.3)
            answered.append(True)

    redis.broker.meanwhile["renew_lease_and_held_entries"] = travel
    async with beating(redis, FakeLanes(), dict, every_s=0.1) as mine:
        await eventually(lambda: sent, every=0.001)
        await mine.heartbeat.stop(timeout_s=PATIENCE_S)
        count = len(sent)
        assert answered == sent
        await asyncio.sleep(0.2)
        assert len(sent) == count


async def test_the_hold_on_entries_is_renewed_less_often_than_the_lease() -> None:
    """A thousand sleeping jobs would otherwise fill the append-only file."""
    redis, began = Redis(), monotonic()
    async with beating(redis, FakeLanes(), lambda: first(b"1-0"), every_s=0.01, hold_s=0.2):
        await eventually(lambda: len(redis.kept) >= 30 and any(redis.kept), every=0.001)
    held = [ids for ids in redis.kept if ids]
    assert len(held) <= (monotonic() - began) / (0.2 - 0.01 / 2)  # half of a renewal too soon is soon enough


async def test_a_hold_on_entries_that_could_not_be_renewed_is_renewed_by_the_next_call() -> None:
    """Else they lie idle for as long as official consumers wait before they take them."""
    redis, failed = Redis(), list[int]()
    renew = redis.broker.answer_with["renew_lease_and_held_entries"]

    def fail_once(*words: Any) -> Any:
        if words[3] and not failed:
            failed.append(len(redis.kept))
            raise ConnectionLost("away")
        return renew(*words)

    redis.broker.answer_with["renew_lease_and_held_entries"] = fail_once
    async with beating(redis, FakeLanes(), lambda: first(b"1-0"), every_s=0.01, hold_s=0.2):
        await eventually(lambda: failed and len(redis.kept) > failed[0], every=0.001)
    assert redis.kept[failed[0]] == [b"1-0"]


async def test_a_renewal_is_sent_while_the_last_is_on_its_way() -> None:
    """Else no lease would hold where a round trip takes a good part of it."""
    redis, lanes, under_way = Redis(), FakeLanes(), list[bool]()
    have_met: list[bool] = []

    async def travel(*_: object) -> None:
        """Arrives once the next one is on its way, too."""
        if redis.kept:  # the first is alone: start() awaits it
            under_way.append(True)
            if len(under_way) == 2:
                have_met.append(True)
            while not have_met:
                await asyncio.sleep(0.001)
            under_way.pop()

    redis.broker.meanwhile["renew_lease_and_held_entries"] = travel
    async with beating(redis, lanes, dict, every_s=0.01) as mine:
        await eventually(lambda: have_met and len(redis.kept) >= 4, every=0.001)
        assert mine.lease.until > monotonic()
    assert lanes.renewals == 0


async def test_a_death_of_the_thread_is_reported() -> None:
    redis, deaths = Redis(), list[str]()

    def fail(*_: object) -> None:
        if len(redis.kept) > 1:
            raise AssertionError("a defect")

    redis.broker.meanwhile["try_to_subscribe_to_pause_and_cancel_hints"] = fail
    async with beating(redis, FakeLanes(), dict, every_s=0.01, on_death=lambda title, _: deaths.append(title)):
        await eventually(lambda: deaths, every=0.001)
    assert deaths == ["heartbeat"]
