"""inline(app): the tasks of an app in a test, without a server.

What is enqueued inside is kept. run() runs what is due, advance() moves the clock. Jobs go through MessagePack and the
checks of production, and production's own `decide_retry_or_dead` says whether a failed job runs again and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .._core.failure import read_failure
from .._core.fire_times import next_fire
from .._core.outcome import CANCELLED, EXPIRED, Retry, decide_retry_or_dead
from .._core.retry_options import RetryPolicy
from .._core.run_timeouts import RunTimeouts, check_and_make_run_timeouts
from .._tasks.current import is_in_plain_function
from .._tasks.definition import TaskDefinition
from .._tasks.dispatch import Dispatcher
from .._tasks.lifespan import open_app_runtime
from .._tasks.schedules import Schedule
from .._tasks.unfinished_results import is_awaitable_refusing_generators
from .._worker.acker import encode_result_or_log_why_not
from ..app import App
from ..errors import InvalidType, JobExpired, RetryLater, Snooze
from ..job import Job
from ..settings import find_setting
from ..tasks import BoundTask, Task
from .inline_run import InlineRun
from .recorded_queue import RecordedQueue
from .recorder import JobRecorder, RecordedJob

MAX_RUNS = 10_000  # at one time of the clock: a job that enqueues itself must not run for ever


@dataclass(frozen=True)
class DeadCall:
    """A job that will not run again: its name, its queue, its data, why, and the last error."""

    name: str
    queue: str
    data: Any
    reason: str
    error: BaseException


class InlineJobs:
    """The jobs of an app in a test; `inline(app)` makes it.

    all    every job that was added, as RecordedJob
    dead   the jobs that will not run again
    """

    def __init__(self, app: App, recorder: JobRecorder) -> None:
        self._app = app
        self._recorder = recorder
        self._began_ms = recorder.now_ms
        self._next_fires: dict[str, int | None] = {}  # by the key of a schedule

    @property
    def all(self) -> list[RecordedJob]:
        return list(self._recorder.jobs)

    @property
    def dead(self) -> list[DeadCall]:
        return [
            DeadCall(job.name, job.queue, job.data, job.reason, job.error)
            for job in self._recorder.jobs
            if job.state == "dead" and job.error is not None
        ]

    def of(self, task: Task[..., Any]) -> list[BoundTask[Any]]:
        """The calls of this task that were enqueued, in their order, whether they have run or not."""
        if not isinstance(task, Task):
            raise InvalidType(f"of() takes a task, not {type(task).__name__}")
        names, definition = task.definition.names, task.definition
        return [_to_bound_task(job, definition) for job in self._recorder.jobs if job.name in names]

    async def run(self) -> None:
        """Runs all that is due, also what is enqueued meanwhile; then raises the first error that a task raised.

        A task that asks for a later run by RetryLater or Snooze has raised no error. Delayed jobs and retries are due
        later: see advance().
        """
        errors = await self._run_until_and_return_errors(self._recorder.now_ms)
        if errors:
            raise errors[0]

    async def advance(self, span: timedelta) -> None:
        """Moves the clock, and runs what becomes due: delayed jobs, retries and schedules, each at its time. Raises no
        errors: jobs that have failed for good are in `dead`.
        """
        if not isinstance(span, timedelta) or span < timedelta(0):
            raise InvalidType("advance() takes a timedelta that is not negative")
        until_ms = self._recorder.now_ms + span // timedelta(milliseconds=1)
        await self._run_until_and_return_errors(until_ms)
        self._recorder.advance_to(until_ms)

    async def _run_until_and_return_errors(self, until_ms: int) -> list[BaseException]:
        parts = self._app.load_parts()
        async with open_app_runtime(parts.lifespan, parts.middlewares) as runtime:
            dispatcher = Dispatcher(parts.definitions, _SameThreadCalls(), runtime, stores_results=True)
            return await self._run_due_jobs_and_return_errors(dispatcher, parts.schedules, until_ms)

    async def _run_due_jobs_and_return_errors(
        self, dispatcher: Dispatcher, schedules: list[Schedule], until_ms: int
    ) -> list[BaseException]:
        errors: list[BaseException] = []
        now_ms, runs_left = self._recorder.now_ms, MAX_RUNS
        while runs_left:
            now_ms, runs_left = self._recorder.now_ms, runs_left - 1 if self._recorder.now_ms == now_ms else MAX_RUNS
            job = self._recorder.find_next_due(until_ms)
            if await self._advance_to_and_fire_next_schedule_if_due(schedules, until_ms if job is None else job.due_ms):
                continue
            if job is None:
                return errors
            self._recorder.advance_to(job.due_ms)
            error = await self._run_job_and_return_error(dispatcher, job)
            if error is not None and not issubclass(type(error), (RetryLater, Snooze)):
                errors.append(error)
        raise RuntimeError(f"{MAX_RUNS} jobs have run at one time, and more are due: does a task enqueue itself?")

    async def _advance_to_and_fire_next_schedule_if_due(self, schedules: list[Schedule], until_ms: int) -> bool:
        """Adds the job of the schedule that fires next, if one does up to this time."""
        for schedule in schedules:
            if schedule.key not in self._next_fires:
                self._next_fires[schedule.key] = next_fire(schedule.pattern, self._began_ms)
        times = [(self._next_fires[one.key], one) for one in schedules]
        due = [(at_ms, one) for at_ms, one in times if at_ms is not None and at_ms <= until_ms]
        if not due:
            return False
        at_ms, schedule = min(due, key=lambda pair: pair[0])
        self._recorder.advance_to(at_ms)
        self._next_fires[schedule.key] = next_fire(schedule.pattern, at_ms)
        queue, retry = self._app.queue(schedule.definition.queue), schedule.make_retry_options()
        added = await queue.add(schedule.definition.name, schedule.make_data(), **retry)
        job = self._recorder.find_last_job(schedule.definition.queue, added.id)
        assert job is not None
        job.note_scheduled_time(at_ms)
        return True

    async def _run_job_and_return_error(self, dispatcher: Dispatcher, job: RecordedJob) -> BaseException | None:
        if job.expires_ms is not None and self._recorder.now_ms >= job.expires_ms:
            job.end_as(EXPIRED, _make_expired_error(job))
            return job.error
        run = InlineRun(job, self._find_timeouts_of_queue(job.queue))
        given = Job(job.id, job.name, job.data, job.attempt, job.created_at_ms, run, job.id, job.name, job.extras)
        end = await run.run_to_end(_start_and_await_task(dispatcher, given))
        if end.is_cancelled:
            job.end_as(CANCELLED, None)
            return None
        if end.error is not None:
            self._plan_retry_or_bury(job, end.error)
            return job.error
        job.end_as_done(*encode_result_or_log_why_not(job.to_delivery(), end.result))
        return None

    def _find_timeouts_of_queue(self, queue: str) -> RunTimeouts:
        given = find_setting("timeout", self._app.worker_options(queue).get("timeout")).value
        definitions = (task.definition for task in self._app.tasks.values())
        own = {name: one.timeout for one in definitions if one.timeout is not None for name in one.names}
        return check_and_make_run_timeouts("timeout", given).overridden_by(check_and_make_run_timeouts("timeout", own))

    def _plan_retry_or_bury(self, job: RecordedJob, error: BaseException) -> None:
        options = self._app.worker_options(job.queue)
        max_attempts = find_setting("max_attempts", options.get("max_attempts")).value
        policy = options.get("retry") or RetryPolicy()
        failure = read_failure(error)
        snoozes = job.put_backs if failure.is_unknown_task else job.snoozes
        outcome = decide_retry_or_dead(job.to_delivery(), failure, max_attempts, policy, _choose_no_jitter, snoozes)
        if isinstance(outcome, Retry):
            job.wait_for_next_run(self._recorder.now_ms + outcome.delay_ms, failure, outcome.uses_up_attempt)
        else:
            job.end_as(outcome.reason, failure.error)


@contextmanager
def inline(app: App) -> Iterator[InlineJobs]:
    """While inside, the app sends nothing: jobs are kept, and run by `await jobs.run()`. Works from any thread."""
    if not isinstance(app, App):
        raise InvalidType(f"inline() takes an App, not {type(app).__name__}")
    recorder = JobRecorder()
    queues: dict[str, RecordedQueue] = {}

    def find_or_make_queue(name: str) -> RecordedQueue:
        return queues.setdefault(name, RecordedQueue(name, recorder))

    with app.loop_queues.replaced_by(find_or_make_queue):
        yield InlineJobs(app, recorder)


def _to_bound_task(job: RecordedJob, definition: TaskDefinition) -> BoundTask[Any]:
    return BoundTask(definition.name, job.queue, job.data or {}, job.options, definition)


def _choose_no_jitter(_: int) -> int:
    return 0


class _SameThreadCalls:
    """Plain functions run in the thread of the test, where its fixtures are."""

    async def run_to_end_once_begun(self, function: Callable[[], Any]) -> Any:
        token = is_in_plain_function.set(True)
        try:
            result = function()
        finally:
            is_in_plain_function.reset(token)
        return await result if is_awaitable_refusing_generators(result) else result


def _make_expired_error(job: RecordedJob) -> JobExpired:
    return JobExpired(job.id, reason=EXPIRED, error_type="", error="", attempts=job.attempt)


async def _start_and_await_task(dispatcher: Dispatcher, job: Job) -> Any:
    return await dispatcher.start(job)
