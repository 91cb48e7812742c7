"""Collects outcomes and sends them to Redis in batches: those that come while one batch is in flight form the next.

A done job is acked here; the FailedJobMover reschedules a failed one and buries a dead one. A batch that Redis does
not take is sent again until it does: a second arrival changes nothing, and a job whose outcome never arrives runs
again. Each kind of outcome has its own pauses: while Redis refuses one kind, the others are sent.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import accumulate
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .._core.guarded_log import GuardedLogger
from .._core.limits import (
    ACKS_AT_ONCE,
    ID_COST,
    MAX_RESULT_BREAKS,
    MAX_RESULT_BYTES,
    OUTCOME_BATCH,
    REGROUP_S,
    RESULT_BATCH_BYTES,
    UNIQUE_COST_BYTES,
)
from .._core.outcome import Buried, Rescheduled
from .._core.printable import printable
from .._core.user_objects import class_name_of, safe_str
from .._redis.broker import AckInFlight, Broker
from .._redis.error_actions import ErrorAction, action_for
from .._redis.event_batch import EventBatch, EventsOnSend
from .._wire.msgpack import encode_data
from ..errors import RedisTrouble
from ..metrics import GuardedSinks
from .event_writer import EventWriter
from .failed_job_mover import FailedJobMover
from .service import Service
from .shared import Shared
from .unsettled import Unsettled

log = GuardedLogger("chasqui.worker")


class OutcomeKind(NamedTuple):
    """One kind of outcome, and how it is sent."""

    unsettled: Unsettled[Any]
    settle: Callable[[], Awaitable[None]]


class CompletedEvents:
    """The events that go with the ack of some jobs, and whether Redis has taken them."""

    __slots__ = ("_is_refused", "_writer", "jobs", "were_written")

    def __init__(self, writer: EventWriter, jobs: list[Delivery]) -> None:
        self._writer = writer
        self.jobs = jobs
        self.were_written = self._is_refused = False

    def make_batch_unless_written(self) -> EventBatch:
        """Returns those that are to be written: none if the same call is sent again after they were."""
        jobs, self._is_refused = [] if self.were_written else self.jobs, False
        return self._writer.make_completed_and_missing_active_events(jobs, self._note_and_record_write_result)

    def _note_and_record_write_result(self, count: int, trouble: RedisTrouble | None) -> None:
        self._is_refused = self._is_refused or trouble is not None
        self.were_written = not self._is_refused
        self._writer.note_written_or_count_dropped(count, trouble)


class SentAck(NamedTuple):
    """Jobs whose ack is on its way."""

    jobs: list[Delivery]
    reply: asyncio.Future[None] | AckInFlight
    events: CompletedEvents | None


class Acker(Service):
    """start() -> sends outcomes as they come -> end() sends what is left."""

    title = "acker"

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        mover: FailedJobMover,
        *,
        event_writer: EventWriter | None = None,
        metrics: GuardedSinks | None = None,
        result_ttl_ms: int = 0,
    ) -> None:
        super().__init__(shared.on_death)
        self._broker = broker
        self._group = shared.group
        self._settled, self._group_gone = shared.settled, shared.group_gone
        self._event_writer = event_writer
        self._metrics = metrics
        self._result_ttl_ms = result_ttl_ms  # 0: results are not stored
        # hot: chosen once; a plain ack knows nothing of results
        self.queue_ack = self._encode_result_and_queue_ack if result_ttl_ms else self._queue_ack_without_result
        self._batch_sizes = shared.batch_sizes
        self._breaking_entry_id: bytes | None = (
            None  # the entry id of the large result that was sent when a connection ended
        )
        self._breaks = 0  # how many connections have ended at it
        self._events_of_failed_acks: list[CompletedEvents] = []  # those of acks that have failed
        self._entries_with_event: set[bytes] = set()  # entries of jobs whose event is written, and that are not acked
        self._reconnects = 0  # of the broker, when the last of them ended
        unsettled = shared.holdings.unsettled
        self._done, self._done_by_script = (
            unsettled.done.waiting,
            unsettled.done_by_script.waiting,
        )  # hot: appended to by each job
        self._failed, self._dead = unsettled.failed, unsettled.dead
        self._kinds = (
            OutcomeKind(unsettled.done, self._ack_plain_jobs),
            OutcomeKind(unsettled.done_by_script, self._ack_by_script_and_drop_breaking_result),
            OutcomeKind(self._failed, mover.reschedule_first_batches),
            OutcomeKind(self._dead, mover.bury_first_batches),
        )

    def _queue_ack_without_result(self, job: Delivery, result: Any) -> None:
        (self._done_by_script if job.may_be_unique else self._done).append(job)
        if self._sleeper is not None:
            self.wake_if_asleep()

    def _encode_result_and_queue_ack(self, job: Delivery, result: Any) -> None:
        job.result, job.why_not_stored = encode_result_or_log_why_not(job, result)
        self._done_by_script.append(job)
        if self._sleeper is not None:
            self.wake_if_asleep()

    def queue_reschedule(self, job: Rescheduled) -> None:
        self._failed.add(job, job.size)
        if self._sleeper is not None:
            self.wake_if_asleep()

    def queue_bury(self, job: Buried) -> None:
        self._dead.add(job, job.size)
        if self._sleeper is not None:
            self.wake_if_asleep()

    async def _run_until_stopped(self) -> None:
        while True:
            ready = [
                kind
                for kind in self._kinds
                if (kind.unsettled.waiting or kind.unsettled.refused) and kind.unsettled.is_ready  # hot: most have none
            ]
            if len(ready) == 1:
                await self._settle_some_outcomes_or_delay_resend(ready[0])
            elif ready:  # at the same time: on a slow line, one kind must not wait for the replies of the others
                await asyncio.gather(*map(self._settle_some_outcomes_or_delay_resend, ready))
            elif self._is_stopping and self._has_only_refused_left():
                return
            else:
                await self._wait_for_outcome_or_end_of_pause()

    async def _wait_for_outcome_or_end_of_pause(self) -> None:
        """Waits until something can be sent."""
        unsettled = [kind.unsettled for kind in self._kinds if kind.unsettled.waiting or kind.unsettled.refused]
        wait_s = min(each.wait_s for each in unsettled) if unsettled else None
        if self._is_stopping and wait_s is not None:
            await asyncio.sleep(wait_s)
        else:
            await self._sleep_until_woken(wait_s)

    def _has_only_refused_left(self) -> bool:
        """Returns whether only outcomes are left that Redis refuses for good: their entries stay pending."""
        return all(not kind.unsettled.waiting or kind.unsettled.is_refused for kind in self._kinds)

    async def _settle_some_outcomes_or_delay_resend(self, kind: OutcomeKind) -> None:
        """Sends one batch of this kind or a few. Outcomes leave their list only when Redis has answered."""
        kind.unsettled.move_refused_batch_to_waiting_if_due()
        try:
            await kind.settle()
        except RedisTrouble as error:
            self._delay_resend_and_signal_missing_group(kind.unsettled, error)
        self._settled.send()

    async def _ack_plain_jobs(self) -> None:
        await self._send_ack_batches_and_wait_for_answers(self._done, self._send_plain_ack_batch, self._kinds[0])

    async def _ack_by_script_and_drop_breaking_result(self) -> None:
        try:
            await self._send_ack_batches_and_wait_for_answers(
                self._done_by_script, self._send_ack_batch_by_script, self._kinds[1]
            )
        except RedisTrouble as error:
            self._count_break_and_drop_result_at_max(error)
            raise

    async def _send_ack_batches_and_wait_for_answers(
        self, done_jobs: list[Delivery], send_batch: Callable[[int], SentAck], kind: OutcomeKind
    ) -> None:
        """Sends small batches, the next one before the last is answered, until none is left or another kind waits."""
        asked: deque[SentAck] = deque([send_batch(0)])
        sent = len(asked[0].jobs)  # how many of the first in the list are on their way
        try:
            await asyncio.sleep(0)
            while True:
                # After a failure one by one: a result that is too large takes the answers of others with it.
                at_once = 1 if kind.unsettled.is_after_failure else ACKS_AT_ONCE
                if len(asked) < at_once and len(done_jobs) > sent and not self._is_other_kind_ready(kind):
                    asked.append(send_batch(sent))
                    sent += len(asked[-1].jobs)
                    await asyncio.sleep(0)  # so that no two leave in one write: the server would run both in one go
                elif asked:
                    await asked[0].reply
                    jobs = asked.popleft().jobs
                    sent -= len(jobs)
                    self._remove_and_record_acked_jobs(done_jobs, jobs, kind)
                    if asked:  # the caller reports the last one
                        self._settled.send()
                else:
                    return
        except RedisTrouble:  # all of them are sent again, but not the events that Redis has taken
            await asyncio.gather(*(ack.reply for ack in asked), return_exceptions=True)
            self._events_of_failed_acks += [ack.events for ack in asked if ack.events is not None]
            raise
        except asyncio.CancelledError:
            for ack in asked:
                ack.reply.cancel()
            raise

    def _send_plain_ack_batch(self, start: int) -> SentAck:
        jobs = self._done[start : start + self._batch_sizes.ack]
        ids, events = [job.entry_id for job in jobs], self._make_completed_events_if_enabled(jobs)
        make_events = None if events is None else events.make_batch_unless_written
        return SentAck(jobs, self._broker.send_ack(self._group, ids, make_events), events)

    def _send_ack_batch_by_script(self, start: int) -> SentAck:
        jobs = self._done_by_script[start : start + self._choose_script_batch_size(start)]
        events = self._make_completed_events_if_enabled(jobs)
        make_events = None if events is None else events.make_batch_unless_written
        ack = (self._ack_with_results_and_log_refused if self._result_ttl_ms else self._ack_and_release_unique_ids)(
            jobs, make_events
        )
        return SentAck(jobs, asyncio.create_task(ack), events)

    async def _ack_with_results_and_log_refused(self, jobs: list[Delivery], events: EventsOnSend | None) -> None:
        ids = [job.entry_id for job in jobs]
        results = [(job.id, job.result) for job in jobs if job.result is not None]
        unique = [(job.entry_id, job.id) for job in jobs if job.may_be_unique]
        refused = await self._broker.ack_and_store_results(
            self._group, self._result_ttl_ms, ids, results, unique, events
        )
        if refused:
            log.warning("Redis has refused %d results; their jobs are done", refused)

    def _count_break_and_drop_result_at_max(self, error: RedisTrouble) -> None:
        """Stops sending a result at which connections end.

        The server ends the connection at a result that is too large for it, and a slow line takes too long for one.
        During an outage no connection is opened, so one outage counts once.
        """
        job = self._done_by_script[0]
        if job.result is None or len(job.result) <= RESULT_BATCH_BYTES:
            return
        reconnects = self._broker.reconnects
        if job.entry_id != self._breaking_entry_id:
            self._breaking_entry_id, self._breaks = job.entry_id, 1
        elif reconnects > self._reconnects:
            self._breaks += 1
        self._reconnects = reconnects
        if self._breaks >= MAX_RESULT_BREAKS:
            why = f"the connection ends when it is sent, {len(job.result)} bytes: {printable(str(error))}"
            job.result, job.why_not_stored = None, why
            log_unstored_result(job, why)

    async def _ack_and_release_unique_ids(self, jobs: list[Delivery], events: EventsOnSend | None) -> None:
        await self._broker.ack_and_release_uniqueness_keys(
            self._group, [(job.entry_id, job.id) for job in jobs], events
        )

    def _remove_and_record_acked_jobs(
        self, done_jobs: list[Delivery], acked_jobs: list[Delivery], kind: OutcomeKind
    ) -> None:
        del done_jobs[: len(acked_jobs)]
        kind.unsettled.record_answer_and_end_pause([], "")
        if self._entries_with_event:
            self._entries_with_event.difference_update(job.entry_id for job in acked_jobs)
        if self._metrics is not None:
            self._metrics.jobs_done(acked_jobs)

    def _is_other_kind_ready(self, kind: OutcomeKind) -> bool:
        return any(other.unsettled.is_ready for other in self._kinds if other is not kind)

    def _choose_script_batch_size(self, start: int) -> int:
        """Returns how many jobs one call acks: as many as cost about RESULT_BATCH_BYTES."""
        max_jobs = self._batch_sizes.ack if self._result_ttl_ms else OUTCOME_BATCH
        costs = accumulate(
            len(job.result or b"") + (UNIQUE_COST_BYTES + ID_COST * len(job.id) if job.may_be_unique else 0)
            for job in self._done_by_script[start : start + max_jobs]
        )
        return max(1, bisect_right(list(costs), RESULT_BATCH_BYTES))

    def _make_completed_events_if_enabled(self, jobs: list[Delivery]) -> CompletedEvents | None:
        """Returns the events that the broker writes right behind the ack of these jobs."""
        if self._event_writer is None:
            return None
        if self._events_of_failed_acks or self._entries_with_event:  # hot: only after an ack has failed
            jobs = self._note_written_and_find_jobs_without_event(jobs)
        return CompletedEvents(self._event_writer, jobs)

    def _note_written_and_find_jobs_without_event(self, jobs: list[Delivery]) -> list[Delivery]:
        """Leaves out those whose event Redis has taken behind an ack that it has refused."""
        for events in self._events_of_failed_acks:
            if events.were_written:
                self._entries_with_event.update(job.entry_id for job in events.jobs)
        self._events_of_failed_acks = []
        return [job for job in jobs if job.entry_id not in self._entries_with_event]

    def _delay_resend_and_signal_missing_group(self, unsettled: Unsettled[Any], error: RedisTrouble) -> None:
        """Has this kind sent again after a pause, and reports a missing group."""
        action = action_for(error)
        if action is ErrorAction.NO_GROUP:  # a worker that drains does not read, so no other part notices
            self._group_gone.send()
            unsettled.record_failure_and_begin_pause(error, REGROUP_S)
            return
        unsettled.record_failure_and_begin_pause(error)


def encode_result_or_log_why_not(job: Delivery, result: Any) -> tuple[bytes | None, str]:
    """Returns the encoded result, or None and why: a result that cannot be stored does not fail its job."""
    try:
        encoded = encode_data(result)
    except BaseException as error:  # noqa: BLE001  encoding touches the user's object, which may raise anything
        why = printable(f"{class_name_of(error)}: {safe_str(error)}")
    else:
        if len(encoded) <= MAX_RESULT_BYTES:
            return encoded, ""
        why = f"it has {len(encoded)} bytes, and the most is {MAX_RESULT_BYTES}"
    log_unstored_result(job, why, f", a {class_name_of(result):.100s},")
    return None, why


def log_unstored_result(job: Delivery, why: str, kind: str = "") -> None:
    log.warning(
        "the result of job %.100r (%.100r)%s cannot be stored, the job is done: %s", job.id, job.name, kind, why
    )
