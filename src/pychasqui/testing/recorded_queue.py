"""RecordedQueue: a Queue that sends nothing, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Unpack, cast

from .._core import checks
from .._core.defaults import MAX_PAYLOAD_BYTES
from .._core.failure import read_failure
from .._core.options import JobOptions
from .._core.outcome import EXPIRED
from .._producer.config import MAX_DELAY_S
from .._producer.encoder import Encoder
from .._redis.replies import NEW, REPLACED
from .._wire.event import cut_event_text
from ..cancellation import Cancellation
from ..errors import JobCancelled, JobExpired, JobFailed, NotSupportedError
from ..job import Job
from ..queue import Queue
from ..results import make_not_stored_error
from .recorder import JobRecorder, RecordedJob


class RecordedQueue(Queue):
    """A Queue that keeps what is added instead of sending it: pass it where the program takes a Queue.

    `recorded` has the jobs. Arguments are checked and encoded as for a server. What needs a server, as counts(),
    raises NotSupportedError.
    """

    def __init__(self, name: str, recorder: JobRecorder | None = None) -> None:
        super().__init__(name, redis_url="redis://no-server.invalid")
        self._recorder = recorder or JobRecorder()
        self._own_encoder = Encoder(MAX_PAYLOAD_BYTES, 1000 * MAX_DELAY_S)

    @property
    def recorded(self) -> list[RecordedJob]:
        """The jobs that were added, in their order."""
        return [job for job in self._recorder.jobs if job.queue == self.name]

    async def add(
        self,
        name: str,
        data: Any = None,
        *,
        job_id: str | None = None,
        repeat: Any = None,
        missed_fires: Any = None,
        wait_replicas: int = 0,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Keeps one job; see Queue.add()."""
        if repeat is not None or missed_fires is not None:
            raise NotSupportedError("a RecordedQueue has no repeatables")
        checks.check_int("wait_replicas", wait_replicas, 0)
        return self._encode_and_record_job(name, data, job_id, options)

    async def add_bulk(self, jobs: Iterable[Mapping[str, Any]], *, wait_replicas: int = 0) -> list[Job]:
        """Keeps many jobs; if one cannot be encoded, none is kept. See Queue.add_bulk()."""
        checks.check_int("wait_replicas", wait_replicas, 0)
        checks.check_is_iterable("jobs", jobs, "of mappings with add()'s arguments")
        given = list(jobs)
        self._own_encoder.check_and_encode_all(given)
        kept = []
        for job in given:
            options: Any = {key: value for key, value in job.items() if key not in ("name", "data", "job_id")}
            kept.append(self._encode_and_record_job(job["name"], job.get("data"), job.get("job_id"), options))
        return kept

    def _encode_and_record_job(self, name: str, data: Any, job_id: str | None, options: JobOptions) -> Job:
        encoded = self._own_encoder.check_and_encode(name, data, job_id, options)
        given = {key: value for key, value in {**options, "job_id": job_id}.items() if value is not None}
        answer = self._recorder.record_or_replace_unless_duplicate(self.name, name, encoded, given)
        return Job(
            encoded.id,
            name,
            data,
            0,
            encoded.created_at_ms,
            _queue=self,
            is_new=answer == NEW,
            has_replaced=answer == REPLACED,
        )

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancels a job that has not run, or the run that calls this; see Queue.cancel()."""
        job = self._recorder.find_last_job(self.name, checks.check_job_id_of_lookup(job_id))
        return "unknown" if job is None else cast(Cancellation, job.cancel())

    async def wait_for_result(self, job_id: str, *, timeout: float = 30.0) -> Any:  # noqa: ASYNC109
        """Returns the result of a job that has run; raises at once where a server would let it wait."""
        job = self._find_job_or_raise_timeout(job_id)
        if job.state == "dead":
            if job.reason == EXPIRED:  # it has not run
                raise JobExpired(job_id, reason=EXPIRED, error_type="", error="", attempts=job.attempt)
            assert job.error is not None
            last, runs = read_failure(job.error), job.attempt + 1
            kind, error = last.error_type, cut_event_text(last.text)
            raise JobFailed(job_id, reason=job.reason, error_type=kind, error=error, attempts=runs)
        if job.state == "cancelled":
            raise JobCancelled(f"job {job_id[:100]!r} was cancelled")
        if job.state != "done":
            raise TimeoutError(f"job {job_id[:100]!r} has not run: await jobs.run() runs what is due")
        if job.why_not_stored:
            raise make_not_stored_error(job_id, job.why_not_stored)
        return job.result

    async def get_job_progress(self, job_id: str) -> int | None:
        job = self._recorder.find_last_job(self.name, checks.check_job_id_of_lookup(job_id))
        return None if job is None else job.progress

    async def get_job_logs(self, job_id: str, *, limit: int = 100) -> list[str]:
        job = self._recorder.find_last_job(self.name, checks.check_job_id_of_lookup(job_id))
        lines = checks.check_int("limit", limit, 1)
        return [] if job is None else job.log[-lines:]

    async def close(self) -> None:
        """Does nothing: it may be used after the code under test has closed it."""

    def _find_job_or_raise_timeout(self, job_id: str) -> RecordedJob:
        job = self._recorder.find_last_job(self.name, job_id)
        if job is None:
            raise TimeoutError(f"there is no job {job_id[:100]!r} in queue {self.name!r}")
        return job

    def _get_or_open_loop_session(self) -> NoReturn:
        raise NotSupportedError(
            f"the RecordedQueue {self.name!r} of this test has no server: it adds jobs and knows their results; "
            "for the rest use the fixture chasqui_server"
        )
