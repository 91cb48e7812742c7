"""Sends encoded jobs, one or a bulk, in a span if tracing is on; can wait until replicas have them.

A Sender belongs to one event loop. The Encoder makes the envelopes; the Adder sends the batches and retries them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from .._core import limits
from .._core.options import PLAIN
from .._redis.broker import Broker
from .._redis.replies import NEW, REPLACED
from ..errors import AddUnknown, ChasquiError, NotReplicated
from ..job import AddedJob, Job
from ..metrics import Record
from ..tracing import SentJobs, SpanOrigin, Tracing, find_tracing
from .adder import Adder
from .config import QueueConfig
from .encoder import EncodedJob, Encoder, JobBatch, make_added_jobs
from .replicas import ReplicaAwaitingAdder


class Sender:
    """send_one() and await_added_job(), or add_bulk() -> close(), which waits for the adds in flight.

    replica_broker   a broker with its own connection for adds with wait_replicas: WAIT blocks the commands behind it
    record_metric    records the metrics of added jobs; None if there is no sink
    queue            stored on the returned jobs, for wait_for_result()
    """

    def __init__(
        self,
        broker: Broker,
        replica_broker: Broker,
        encoder: Encoder,
        config: QueueConfig,
        *,
        record_metric: Callable[[Record], None] | None,
        origin: SpanOrigin,
        queue: object,
    ) -> None:
        self._max_stream_len = config.max_stream_len or 0
        max_len, timeout_s = self._max_stream_len, config.timeout_s
        self._adder = Adder(broker, max_stream_len=max_len, timeout_s=timeout_s, record_metric=record_metric)
        self._replica_adder = ReplicaAwaitingAdder(
            replica_broker, max_stream_len=max_len, timeout_s=timeout_s, record_metric=record_metric
        )
        self._encoder = encoder
        self._tracing = find_tracing(config.tracing)
        self._origin = origin
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._bulks = 0  # in flight: close() waits for the last one
        self._bulks_done: asyncio.Future[None] | None = None

    def send_one(self, encoded: EncodedJob, wait_replicas: int = 0) -> Awaitable[str]:
        """Sends one job to Redis and `wait_replicas` of its replicas; the caller must await await_added_job()."""
        # hot: no coroutine is made before the job is written
        if self._tracing is not None:
            return self._add_in_span(self._tracing, encoded, wait_replicas)
        if wait_replicas:
            return self._start_add_with_replicas(encoded.envelope, encoded, wait_replicas)
        return self._adder.start_add(self._loop, encoded.envelope, encoded.name, encoded.id, encoded.options)

    async def await_added_job(self, sent: Awaitable[str], encoded: EncodedJob, name: str, data: Any) -> Job:
        """Returns the job that was sent, once Redis has it."""
        try:
            answer = await sent
        except AddUnknown as error:
            raise AddUnknown(f"{error} (job {encoded.id})", [encoded.id]) from None
        except NotReplicated as error:
            raise NotReplicated(f"{error} (job {encoded.id})", [encoded.id]) from None
        job = AddedJob(encoded.id, name, data, 0, encoded.created_at_ms, _queue=self._queue)
        if answer != NEW:
            _set_flags_by_answer(job, answer)
        return job

    def _start_add_with_replicas(self, envelope: bytes, encoded: EncodedJob, wait_replicas: int) -> Awaitable[str]:
        options = None if encoded.options is PLAIN else [encoded.options]
        needed_room = 1 if self._max_stream_len and not encoded.options.due else 0
        return self._replica_adder.start_add_of_batch(
            self._loop, [envelope], [encoded.name], [encoded.id], options, needed_room, wait_replicas
        )

    async def _add_in_span(self, tracing: Tracing, encoded: EncodedJob, wait_replicas: int) -> str:
        sent_jobs = SentJobs([encoded.id], [encoded.name], due=encoded.options.due)
        with tracing.sending(self._origin, sent_jobs) as extras:
            (envelope,) = self._encoder.add_extras_where_they_fit(
                [encoded.envelope], extras, have_extras=encoded.has_extras
            )
            if wait_replicas:
                return await self._start_add_with_replicas(envelope, encoded, wait_replicas)
            return await self._adder.start_add(self._loop, envelope, encoded.name, encoded.id, encoded.options)

    async def add_bulk(self, encoded: JobBatch, jobs: list[Mapping[str, Any]], wait_replicas: int) -> list[Job]:
        self._bulks += 1
        try:
            if self._tracing is None or not jobs:
                return await self._add_in_batches(encoded, jobs, wait_replicas)
            with self._tracing.sending(self._origin, SentJobs(encoded.ids, encoded.names, is_bulk=True)) as extras:
                encoded.envelopes = self._encoder.add_extras_where_they_fit(
                    encoded.envelopes, extras, have_extras=encoded.has_extras
                )
                return await self._add_in_batches(encoded, jobs, wait_replicas)
        finally:
            self._bulks -= 1
            if not self._bulks and self._bulks_done is not None and not self._bulks_done.done():
                self._bulks_done.set_result(None)

    async def _add_in_batches(self, encoded: JobBatch, jobs: list[Mapping[str, Any]], wait_replicas: int) -> list[Job]:
        batches = encoded.cut_into_batches()
        needed_room = encoded.count_due_now() if self._max_stream_len else 0
        # The first batch checks that the stream has room for all, so it goes alone; the others skip the check.
        first = batches[: 1 if needed_room else limits.ADD_WINDOW]
        answers = [self._start_add_of_batch(batch, needed_room, wait_replicas) for batch in first]
        # hot: built while Redis works. Before the first await: the caller's mappings may change.
        added = make_added_jobs(encoded, jobs, self._queue)
        if len(batches) > len(answers):  # hot: 0.2 us a bulk
            await self._start_rest_until_one_fails(batches, answers, wait_replicas)
        # hot: there is nearly always one; gather takes 20 us
        results = (
            [await _await_answer_or_return_error(answers[0])]
            if len(answers) == 1
            else await asyncio.gather(*map(_await_answer_or_return_error, answers))
        )
        if any(isinstance(result, ChasquiError) for result in results):
            _raise_bulk_error(results, batches)
        if encoded.options is not None:
            for job, answer in zip(added, "".join(map(str, results)), strict=True):
                _set_flags_by_answer(job, answer)
        return added

    def _start_add_of_batch(self, batch: JobBatch, needed_room: int, wait_replicas: int) -> asyncio.Future[str]:
        adder = self._replica_adder if wait_replicas else self._adder
        jobs = (batch.envelopes, batch.names, batch.ids, batch.options)
        return adder.start_add_of_batch(self._loop, *jobs, needed_room, wait_replicas)

    async def _start_rest_until_one_fails(
        self, batches: list[JobBatch], answers: list[asyncio.Future[str]], wait_replicas: int
    ) -> None:
        """Appends the answers of the other batches. A few are in flight; once one has failed, no more are started."""
        for position in range(len(answers), len(batches)):
            earlier = answers[max(0, position - limits.ADD_WINDOW)]
            try:
                await asyncio.wait({earlier})
            except asyncio.CancelledError:
                for answer in answers:
                    answer.cancel()  # as of a single add; asyncio would log what nobody awaits any more
                raise
            if earlier.exception() is not None:
                return
            answers.append(self._start_add_of_batch(batches[position], 0, wait_replicas))

    async def close(self) -> None:
        if self._bulks:
            self._bulks_done = self._loop.create_future()
            await self._bulks_done
        await self._adder.close()
        await self._replica_adder.close()


def _set_flags_by_answer(job: Job, answer: str) -> None:
    """Sets `is_new` and `has_replaced` from the script's answer for this job."""
    job.is_new, job.has_replaced = answer == NEW, answer == REPLACED


async def _await_answer_or_return_error(answer: asyncio.Future[str]) -> str | ChasquiError:
    try:
        return await answer
    except ChasquiError as error:
        return error


def _raise_bulk_error(results: list[str | ChasquiError], batches: list[JobBatch]) -> NoReturn:
    """Raises a batch's own error if nothing of the bulk was added, else AddUnknown with the ids in doubt.

    NotReplicated says that all of it was added, so it is raised only if that is so.
    """
    trouble = next(result for result in results if isinstance(result, ChasquiError))
    confirmed = {position for position, result in enumerate(results) if isinstance(result, str)}
    added = sum(isinstance(result, (str, NotReplicated)) for result in results)
    if added == len(batches):
        raise NotReplicated(str(trouble), [job_id for batch in batches for job_id in batch.ids])
    if not (added or any(isinstance(result, AddUnknown) for result in results)):
        raise trouble
    in_doubt = [job_id for position, batch in enumerate(batches) if position not in confirmed for job_id in batch.ids]
    total = sum(len(batch.ids) for batch in batches)
    doubt = "may lack replicas, and" if isinstance(trouble, NotReplicated) else "may or"
    raise AddUnknown(f"{len(in_doubt)} of {total} jobs {doubt} may not have been added: {trouble}", in_doubt)
