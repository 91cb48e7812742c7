"""Results: waits for what handlers return.

All waits of a queue share one subscription to its events: a thousand waits cost one blocked read. When an event says
that a job has ended, its result is fetched; results that are wanted at the same time are fetched in one command. Jobs
that have ended lately are remembered, so that a wait that begins after the end returns at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from ._core.outcome import EXPIRED
from ._core.pauses import compute_longer_pause_s
from ._redis.error_actions import ErrorAction, action_for
from ._redis.events import EventsBroker
from ._redis.results import ResultsBroker
from ._wire.event import JobEnd, QueueEvent, read_event, read_failure_text, read_job_end
from ._wire.lenient import read_entry_id
from ._wire.msgpack import decode_data
from .errors import (
    Closed,
    DecodeError,
    JobCancelled,
    JobExpired,
    JobFailed,
    RedisTrouble,
    ResultExpired,
    ResultNotStored,
)
from .events import QueueEvents
from .inspector import Inspector

log = logging.getLogger("chasqui.results")

Remembered = TypeVar("Remembered")

ENDS = ("completed", "cancelled", "dlq")  # the events of jobs that have ended
MAX_REMEMBERED_JOBS = 10_000  # ended jobs
MAX_PAST_EVENTS = 1000  # past events that are read when the first wait begins
ASKED_AT_ONCE = 500
ASK_AGAIN_S = 0.1
OFFICIAL_RESULT_DELAY_S = 1.0  # how long after its event an official worker may take to store a result
DOUBT_S = 0.05
SECOND_LOOK_S = 5.0
EXPLAIN_S = 1.0  # how long a wait that has timed out looks for its job, to say where it is
EXPLAINED_AT_ONCE = 10


class ReplayedJobs:
    """The jobs that this process has replayed, each with the newest event before that: how it ended until then is past.

    It outlives the Results of a queue and is there before them, because the first wait reads events of the past.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def add(self, job_ids: Iterable[str], newest_event_id: str) -> None:
        for job_id in job_ids:
            _remember_last_and_drop_oldest(self._events, job_id, read_entry_id(newest_event_id))

    def was_replayed_after(self, job_id: str, end: QueueEvent) -> bool:
        """Whether the job has been replayed since this end of it."""
        return job_id in self._events and read_entry_id(end.event_id) <= self._events[job_id]


class Results:
    """Made when the first result is waited for; close() ends every wait."""

    def __init__(
        self,
        get_broker: Callable[[], ResultsBroker],
        get_events_broker: Callable[[], EventsBroker],
        events: QueueEvents,
        inspector: Inspector,
        replayed: ReplayedJobs,
    ) -> None:
        self._get_broker = get_broker
        self._get_events_broker = get_events_broker  # not the broker of `events`, whose connection a blocked read holds
        self._events = events
        self._inspector = inspector
        self._replayed = replayed
        self._explaining = 0  # waits that have timed out and look for their jobs
        self._waiting: dict[str, list[asyncio.Future[Any]]] = {}
        self._ended: OrderedDict[str, QueueEvent] = OrderedDict()
        self._last_failures: OrderedDict[str, QueueEvent] = OrderedDict()  # the last failure of jobs that failed lately
        self._starting: asyncio.Task[None] | None = None
        self._listening: list[asyncio.Task[None]] = []  # one that follows the events, one that polls
        self._doubted: dict[str, float] = {}  # jobs whose official worker may be about to store a result, since when
        self._lookups_due: dict[str, None] = {}  # jobs whose results are to be fetched, in this order
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def wait(self, job_id: str, timeout_s: float) -> Any:
        """Returns what the job's handler returned. Raises JobFailed, JobCancelled, ResultExpired and others."""
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._subscribe_and_wait_for_answer(job_id)
        except TimeoutError:
            if not limit.expired():
                raise
        raise TimeoutError(await self._describe_timeout_and_try_to_find_job(job_id, timeout_s))

    async def _subscribe_and_wait_for_answer(self, job_id: str) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, []).append(future)
        try:
            await asyncio.wait(
                {self._start_or_restart_listening_if_needed(), future}, return_when=asyncio.FIRST_COMPLETED
            )
            # Only now: a job that ends between a lookup and the subscription would be missed.
            self._request_lookup_unless_closed([job_id])
            return await future
        finally:
            self._forget_wait(job_id, future)

    async def _describe_timeout_and_try_to_find_job(self, job_id: str, timeout_s: float) -> str:
        """Says where the job is, for the TimeoutError. Only a few waits search at a time: a search costs reads."""
        text = f"no result of job {job_id[:100]!r} within {timeout_s:g} s"
        if self._explaining >= EXPLAINED_AT_ONCE:
            return text
        self._explaining += 1
        try:
            async with asyncio.timeout(EXPLAIN_S):
                return f"{text}: {await self._inspector.describe_where_job_is(job_id)}"
        except (RedisTrouble, TimeoutError):
            return f"{text}; Redis did not answer where the job is"
        finally:
            self._explaining -= 1

    async def close(self) -> None:
        """Ends all waits with Closed, and the subscription."""
        self._is_closed = True
        for futures in list(self._waiting.values()):
            for future in futures:
                if not future.done():
                    future.set_exception(Closed("the queue was closed during a wait for a result"))
        tasks = [task for task in (self._starting, *self._listening, self._asking) if task is not None]
        for task in tasks:  # all of them first: their queue may be collected already
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._events.close()

    def _start_or_restart_listening_if_needed(self) -> asyncio.Task[None]:
        """Begins again after a program has cancelled all tasks of its loop, these among them."""
        begun, tasks = self._starting, self._listening
        if begun is None or begun.cancelled() or any(task.cancelled() for task in tasks):
            for task in tasks:
                task.cancel()
            self._listening = []
            begun = self._starting = asyncio.ensure_future(self._read_past_events_and_start_listening())
        return begun

    async def _read_past_events_and_start_listening(self) -> None:
        """Reads which jobs have ended lately, and subscribes to the events from there on."""
        is_past_known = await self._try_to_read_past_events()
        both = (self._read_past_then_follow_events(is_past_known=is_past_known), self._keep_requesting_lookups())
        self._listening = [asyncio.ensure_future(one) for one in both]

    async def _try_to_read_past_events(self) -> bool:
        """Returns False if another try may succeed; what is refused for good is left to the reading of events."""
        try:
            await self._events.start()
            for entry in await self._get_events_broker().read_newest_events(MAX_PAST_EVENTS):
                self._update_remembered_ends(read_event(entry))
        except RedisTrouble as error:
            return action_for(error) is ErrorAction.FATAL
        return True

    async def _keep_requesting_lookups(self) -> None:
        """Looks up all awaited jobs now and then, in one command: a worker may have dropped their events."""
        while True:
            await asyncio.sleep(SECOND_LOOK_S)
            self._request_lookup_unless_closed(self._waiting)

    async def _read_past_then_follow_events(self, *, is_past_known: bool) -> None:
        pause_s = 0.0
        while not is_past_known:
            await asyncio.sleep(pause_s := compute_longer_pause_s(pause_s))
            is_past_known = await self._try_to_read_past_events()
        if pause_s:
            self._request_lookup_unless_closed(self._waiting)
        try:
            async for event in self._events:
                for one in (event, *self._events.take_ready()):
                    self._update_remembered_ends(one)
                    if one.job_id in self._waiting and one.name in ENDS:
                        self._request_lookup_unless_closed([one.job_id])
        except RedisTrouble as error:
            log.warning("events cannot be read; results are looked up every %g s: %s", SECOND_LOOK_S, error)

    def _update_remembered_ends(self, event: QueueEvent) -> None:
        if event.job_id is None:
            return
        if event.name in ENDS:
            _remember_last_and_drop_oldest(self._ended, event.job_id, event)
        elif event.name == "failed":
            _remember_last_and_drop_oldest(self._last_failures, event.job_id, event)
        elif event.name == "active":  # it runs again: it was replayed, or it is another job of the same id
            self._ended.pop(event.job_id, None)

    def _request_lookup_unless_closed(self, job_ids: Iterable[str]) -> None:
        """Has these jobs looked up, together with all others of this turn and of the command in flight."""
        if self._is_closed:  # a wait that ends by that asks once more
            return
        self._lookups_due.update(dict.fromkeys(job_ids))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._look_up_results_and_end_waits())

    async def _look_up_results_and_end_waits(self) -> None:
        """Fetches the results of the jobs in `_lookups_due`, and ends the waits whose answer is known."""
        while self._lookups_due:
            # How each ended, read before the fetch: a job that ends during the fetch is fetched again.
            due = list(islice(self._lookups_due, ASKED_AT_ONCE))
            some = {job_id: self._get_heard_end_event_unless_replayed(job_id) for job_id in due}
            for job_id in some:
                del self._lookups_due[job_id]
            try:
                found = await self._get_broker().read_results(list(some))
            except RedisTrouble as error:
                if action_for(error) is ErrorAction.FATAL:
                    for job_id in some:
                        self._fail_waits(job_id, partial(type(error), str(error)))
                else:
                    self._lookups_due.update(dict.fromkeys(some))
                    await asyncio.sleep(ASK_AGAIN_S)
                continue
            doubted = []
            for (job_id, ended), raw in zip(some.items(), found, strict=True):
                if raw is not None:
                    self._decode_and_answer_or_fail_waits(job_id, raw)
                elif ended is not None and not self._end_waits_or_look_up_again_later(job_id, ended):
                    doubted.append(job_id)
            if doubted:
                await self._answer_none_or_result_unless_pending(doubted)

    def _get_heard_end_event_unless_replayed(self, job_id: str) -> QueueEvent | None:
        end = self._ended.get(job_id)
        return None if end is None or self._replayed.was_replayed_after(job_id, end) else end

    async def _answer_none_or_result_unless_pending(self, job_ids: list[str]) -> None:
        """Answers None for jobs of official workers that have stored no result, unless the job is still pending.

        An official worker emits the event before it acks. If it dies in between, the job runs again, so the wait
        goes on while the entry is pending.
        """
        try:
            held = await self._inspector.find_delivered(job_ids)
            found = await self._get_broker().read_results(job_ids)
        except RedisTrouble:
            held, found = set(job_ids), [None] * len(job_ids)
        for job_id, raw in zip(job_ids, found, strict=True):
            if raw is not None:
                self._decode_and_answer_or_fail_waits(job_id, raw)
            elif job_id in held:
                self._doubted[job_id] = monotonic()
                asyncio.get_running_loop().call_later(DOUBT_S, self._request_lookup_if_awaited, job_id)
            elif job_id in self._ended:  # else it runs again
                self._answer_waits(job_id, None)

    def _decode_and_answer_or_fail_waits(self, job_id: str, raw: bytes) -> None:
        try:
            result = decode_data(raw)
        except DecodeError as error:
            text = f"the result of job {job_id[:100]!r} cannot be read: {error}"
            self._fail_waits(job_id, partial(DecodeError, text))
        else:
            self._answer_waits(job_id, result)

    def _end_waits_or_look_up_again_later(self, job_id: str, event: QueueEvent) -> bool:
        """Ends the waits for a job that has ended without a result; False if it may have returned None.

        Where an official worker may be about to store the result, it has the job looked up again instead.
        """
        end = read_job_end(event)
        if end.is_cancelled:
            self._fail_waits(job_id, partial(JobCancelled, f"job {job_id[:100]!r} was cancelled"))
        elif end.is_dead:
            self._fail_waits(job_id, partial(self._make_job_failure, job_id, end))
        elif end.is_stored:
            self._fail_waits(job_id, partial(ResultExpired, f"the result of job {job_id[:100]!r} has expired"))
        elif end.is_stored is False:
            self._fail_waits(job_id, partial(make_not_stored_error, job_id, end.why_not_stored))
        elif monotonic() - self._doubted.setdefault(job_id, monotonic()) < OFFICIAL_RESULT_DELAY_S:
            # An official worker emits the event before it stores the result, if it stores any; the event does not say.
            asyncio.get_running_loop().call_later(DOUBT_S, self._request_lookup_if_awaited, job_id)
        else:
            return False
        return True

    def _request_lookup_if_awaited(self, job_id: str) -> None:
        if job_id in self._waiting:
            self._request_lookup_unless_closed([job_id])

    def _answer_waits(self, job_id: str, result: Any) -> None:
        for future in self._waiting.get(job_id, ()):
            if not future.done():
                future.set_result(result)

    def _make_job_failure(self, job_id: str, end: JobEnd) -> JobFailed:
        last = self._last_failures.get(job_id)
        error = end.error
        if error is None:  # an official worker writes it only into the event failed
            error = "" if last is None else read_failure_text(last)
        kind = JobExpired if end.reason == EXPIRED else JobFailed
        return kind(job_id, reason=end.reason, error_type=end.error_type, error=error, attempts=end.attempts)

    def _fail_waits(self, job_id: str, make_error: Callable[[], Exception]) -> None:
        for future in self._waiting.get(job_id, ()):
            if not future.done():
                future.set_exception(make_error())

    def _forget_wait(self, job_id: str, future: asyncio.Future[Any]) -> None:
        futures = self._waiting.get(job_id, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(job_id, None)
            self._doubted.pop(job_id, None)
        if future.done() and not future.cancelled():
            future.exception()  # marks it as retrieved, so that asyncio logs nothing


def _remember_last_and_drop_oldest(events: OrderedDict[str, Remembered], job_id: str, event: Remembered) -> None:
    events[job_id] = event
    events.move_to_end(job_id)
    if len(events) > MAX_REMEMBERED_JOBS:
        events.popitem(last=False)


def make_not_stored_error(job_id: str, why: str) -> ResultNotStored:
    trouble = "its worker stores no results: set store_results=True, or annotate the task with what it returns"
    if why:
        trouble = f"its result could not be stored: {why:.300}"
    return ResultNotStored(f"job {job_id[:100]!r} is done; {trouble}")


def decode_results(raw_results: Iterable[bytes | None]) -> list[Any]:
    """Decodes each result; None where there is none, as in the official package."""
    return [None if raw is None else decode_data(raw) for raw in raw_results]
