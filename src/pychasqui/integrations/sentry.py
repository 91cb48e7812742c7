"""Sentry: reports the errors of an app's tasks, traces their runs, and checks in for its schedules.

    sentry_sdk.init(...)
    report_to_sentry(app)

It needs sentry-sdk 2. A job's data is not sent.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from itertools import chain
from time import monotonic
from typing import Any

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.utils import event_from_exception

from .._core.failure import Failure, read_failure
from .._core.guarded_log import GuardedLogger
from .._core.outcome import find_reason_of_death
from .._tasks.definition import TaskDefinition
from .._tasks.lifespan import Call
from .._tasks.schedules import Schedule
from ..app import App
from ..job import Job, find_timeout_error
from ..schedule import RepeatPattern, next_fire
from ..settings import find_setting

__all__ = ["report_to_sentry"]

log = GuardedLogger("chasqui.tasks")

ORIGIN = "auto.queue.chasqui"
MAX_SLUG_CHARS = 50
MINUTE_MS = 60_000
UNITS = (("day", 1440), ("hour", 60), ("minute", 1))


def report_to_sentry(app: App, *, every_failure: bool = False, monitors: bool = True) -> None:
    """Adds a middleware to the app: each run has a scope with tags and a transaction of the op `queue.process`.

    every_failure   report the error of every failed run, instead of that of a job's last run
    monitors        check in for jobs that a schedule has sent; the monitor is made of the schedule
    """
    app.middleware(SentryReporter(app, reports_every_failure=every_failure, has_monitors=monitors).run_in_scope)


class SentryReporter:
    """run_in_scope(job, run_task) is the middleware."""

    def __init__(self, app: App, *, reports_every_failure: bool, has_monitors: bool) -> None:
        self._app = app
        self._reports_every_failure = reports_every_failure
        self._has_monitors = has_monitors

    async def run_in_scope(self, job: Job, run_task: Call) -> Any:
        definition = self._find_definition(job.name)
        check_in = self._make_check_in_if_scheduled(job, definition)
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_tag("chasqui.task", definition.name)
            scope.set_tag("chasqui.queue", definition.queue)
            scope.set_context("chasqui job", {"id": job.id, "name": job.name, "run": job.attempt + 1})
            with sentry_sdk.start_transaction(
                op="queue.process", name=definition.name, source="task", origin=ORIGIN
            ) as transaction:
                transaction.set_data("messaging.system", "redis")
                transaction.set_data("messaging.destination.name", definition.queue)
                transaction.set_data("messaging.message.id", job.id)
                transaction.set_data("messaging.message.retry.count", job.attempt)
                return await self._run_and_report(job, run_task, definition, check_in)

    async def _run_and_report(
        self, job: Job, run_task: Call, definition: TaskDefinition, check_in: CheckIn | None
    ) -> Any:
        _send_if_scheduled(check_in, "in_progress")
        try:
            result = await run_task()
        except BaseException as raised:
            timeout_error = find_timeout_error(job, raised)
            error = timeout_error or raised
            if timeout_error is None and job.is_cancelled:  # which is no error, whatever its run raises about it
                _send_if_scheduled(check_in, "ok")
            elif not issubclass(type(error), (asyncio.CancelledError, GeneratorExit)):
                with _log_and_suppress_errors():
                    self._report_failure_if_wanted(job, error, definition, check_in)
            raise  # else its worker closes, and leaves the job to another
        _send_if_scheduled(check_in, "ok")
        return result

    def _report_failure_if_wanted(
        self, job: Job, error: BaseException, definition: TaskDefinition, check_in: CheckIn | None
    ) -> None:
        failure = read_failure(error)
        is_last = self._is_probably_last_run(job, failure, definition)
        if is_last and check_in is not None:
            check_in.send_ignoring_errors("error")
        if is_last or (self._reports_every_failure and failure.delay_ms is None):
            _capture_error(error, is_last)

    def _is_probably_last_run(self, job: Job, failure: Failure, definition: TaskDefinition) -> bool:
        """Whether no run follows. The attempts of one call, by with_options(), are not known here."""
        if failure.delay_ms is None and isinstance(failure.error, definition.give_up_on):
            return True
        own = self._app.worker_options(definition.queue).get("max_attempts")
        attempts = definition.options.get("attempts") or find_setting("max_attempts", own).value
        return find_reason_of_death(failure, job.attempt, attempts, job.snoozes) is not None

    def _find_definition(self, job_name: str) -> TaskDefinition:
        tasks = self._app.tasks
        if job_name in tasks:
            return tasks[job_name].definition
        return next(task.definition for task in tasks.values() if job_name in task.aliases)

    # Schedules ------------------------------------------------------------------------------------------------------

    def _make_check_in_if_scheduled(self, job: Job, definition: TaskDefinition) -> CheckIn | None:
        if not self._has_monitors or job.scheduled_at_ms is None:
            return None
        schedules = self._app.load_parts().schedules
        found = guess_schedule_that_fired(
            [one for one in schedules if one.definition is definition], job.scheduled_at_ms
        )
        schedule = None if found is None else _to_monitor_schedule_if_possible(found.pattern)
        if found is None or schedule is None:
            return None
        config = {"schedule": schedule, "timezone": found.pattern.tz or "UTC"}
        return CheckIn(make_monitor_slugs(self._app.name, schedules)[found.key], job.id, config)


class CheckIn:
    """The check-in of one job; its runs share it, whichever process they are in."""

    def __init__(self, slug: str, job_id: str, config: dict[str, Any]) -> None:
        self._slug = slug
        self._id = uuid.uuid5(uuid.NAMESPACE_OID, job_id).hex
        self._config = config
        self._began_at = monotonic()

    def send_ignoring_errors(self, status: str) -> None:
        duration = None if status == "in_progress" else monotonic() - self._began_at
        with _log_and_suppress_errors():
            capture_checkin(self._slug, self._id, status, duration, self._config)


def _send_if_scheduled(check_in: CheckIn | None, status: str) -> None:
    if check_in is not None:
        check_in.send_ignoring_errors(status)


@contextmanager
def _log_and_suppress_errors() -> Iterator[None]:
    """What is reported must not change what becomes of a job."""
    try:
        yield
    except BaseException:  # a foreign transport or error may raise anything
        log.exception("a run could not be reported to Sentry; its job goes on")


def _capture_error(error: BaseException, is_last: bool) -> None:
    options = sentry_sdk.get_client().options
    event, hint = event_from_exception(
        error, client_options=options, mechanism={"type": "chasqui", "handled": not is_last}
    )
    event["level"] = "error" if is_last else "warning"
    sentry_sdk.capture_event(event, hint=hint)


def guess_schedule_that_fired(own: list[Schedule], at_ms: int) -> Schedule | None:
    """Returns the first schedule whose cron expression fits the time, else the first interval, else the first of all.

    A job has only its time, and no key of a schedule.
    """
    by_cron = (one for one in own if _is_cron_fire_time(one.pattern, at_ms))
    by_interval = (one for one in own if one.pattern.kind == "every")
    return next(chain(by_cron, by_interval, own), None)


def _is_cron_fire_time(pattern: RepeatPattern, at_ms: int) -> bool:
    return pattern.kind == "cron" and next_fire(pattern, max(0, at_ms - 1)) == at_ms


def _to_monitor_schedule_if_possible(pattern: RepeatPattern) -> dict[str, Any] | None:
    """The schedule as Sentry has it; None if it has none of this kind: it counts in minutes."""
    if pattern.interval_ms is None:
        expression = pattern.expression or ""
        is_known = len(expression.split()) == 5 or expression.startswith("@")
        return {"type": "crontab", "value": expression} if is_known else None
    minutes, rest = divmod(pattern.interval_ms, MINUTE_MS)
    if rest or not minutes:
        return None
    unit, size = next((unit, size) for unit, size in UNITS if minutes % size == 0)
    return {"type": "interval", "value": minutes // size, "unit": unit}


def make_monitor_slugs(app_name: str, schedules: Sequence[Schedule]) -> dict[str, str]:
    """The names of the monitors by the keys of the schedules: app and task, and the key if the task has several.

    Sentry takes few kinds of letters, and MAX_SLUG_CHARS of them. Where that leaves several schedules the same name,
    each has a digest of its key: "*/5 * * * *" and "5 * * * *" are two monitors.
    """
    schedules_of_task = Counter(one.definition.name for one in schedules)
    slugs = {
        one.key: _to_slug(
            f"{app_name}-{one.definition.name}" if schedules_of_task[one.definition.name] == 1 else one.key
        )
        for one in schedules
    }
    uses = Counter(slugs.values())
    return {key: slug if uses[slug] == 1 else _add_digest(slug, key) for key, slug in slugs.items()}


def _to_slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:MAX_SLUG_CHARS]


def _add_digest(slug: str, key: str) -> str:
    digest = sha1(key.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()[:8]
    return f"{slug[: MAX_SLUG_CHARS - len(digest) - 1]}-{digest}"
