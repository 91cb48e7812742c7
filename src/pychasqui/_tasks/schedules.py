"""The schedules of an app: declared in the program, stored as repeatables, reconciled when workers start.

A key is <app>/<task>/<key>. What is stored as declared is left alone, also if it is paused; what differs is stored, and
what is declared no longer is removed. The last process that starts wins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._core.repeat_pattern import MissedFiresPolicy, RepeatPattern
from .._core.retry_options import check_and_make_retry_override
from .._wire.msgpack import encode_data
from ..errors import DecodeError, InvalidArgument, InvalidType
from ..queue import Queue
from ..repeatables import Repeatable
from .definition import TaskDefinition, make_add_options_for_call
from .signature import check_argument_names

log = logging.getLogger("chasqui.app")

MAX_SCHEDULES = 10_000
OPTIONS_WITHOUT_EFFECT = ("expires_in", "unique_for", "if_exists")  # a stored repeatable has no place for them


@dataclass(frozen=True)
class Schedule:
    """A time at which a task is sent, with these arguments."""

    definition: TaskDefinition
    pattern: RepeatPattern
    given: Mapping[str, Any]
    key: str
    missed_fires: MissedFiresPolicy

    def make_data(self) -> dict[str, Any]:
        """The data of its jobs; raises InvalidArgument if the arguments do not fit."""
        try:
            return self.definition.signature.check_named_arguments_and_make_stable_data(self.given)
        except InvalidArgument as error:
            raise InvalidArgument(f"the schedule {self.key!r}: {error}") from None

    def make_retry_options(self) -> dict[str, Any]:
        """The attempts and the backoff of its jobs, as Queue.add takes them; None where the task has none."""
        options = make_add_options_for_call(self.definition, {})
        return {name: options.get(name) for name in ("attempts", "backoff")}

    def warn_of_options_without_effect(self) -> None:
        """Logs which options of the task the jobs of this schedule do not have."""
        without_effect = [name for name in OPTIONS_WITHOUT_EFFECT if name in self.definition.options]
        if self.definition.unique_by:
            without_effect.insert(0, "unique_by")
        if without_effect:
            log.warning(
                "schedule %r: its jobs do not have %s of task %r, which only enqueued jobs have",
                self.key,
                ", ".join(without_effect),
                self.definition.name,
            )

    def check_argument_names(self) -> None:
        """Refuses data that names no parameter, or leaves one out. Its types are known when a worker starts."""
        if not isinstance(self.given, Mapping):
            kind = type(self.given).__name__
            raise InvalidType(f"the schedule {self.key!r}: data must be a dict of arguments by name, not {kind}")
        try:
            check_argument_names(self.definition.name, self.definition.parameters, self.given)
        except InvalidArgument as error:
            raise InvalidArgument(f"the schedule {self.key!r}: {error}") from None


def make_schedule_key(app_name: str, task_name: str, key: str | None, pattern: RepeatPattern) -> str:
    every, cron = f"every {pattern.interval_ms}", f"{pattern.expression} {pattern.tz or 'UTC'}"
    own = (every if pattern.kind == "every" else cron) if key is None else key
    return f"{app_name}/{task_name}/{own}"


async def reconcile_schedules(queue: Queue, app_name: str, schedules: Iterable[Schedule]) -> None:
    """Makes the repeatables of this app in this queue those that are declared. Writes only what differs."""
    wanted = {schedule.key: schedule for schedule in schedules}
    there = [meta.key for meta in await queue.repeatables.page(MAX_SCHEDULES) if meta.key.startswith(f"{app_name}/")]
    for key in sorted(set(there) - wanted.keys()):
        await queue.repeatables.remove(key)
        log.info("schedule %r of queue %s is declared no longer, and removed", key, queue.name)
    for key, schedule in wanted.items():
        data, retry = schedule.make_data(), schedule.make_retry_options()
        stored = await _get_repeatable_if_readable(queue, key) if key in there else None
        if stored is not None and _is_stored_as_declared(stored, schedule, data, retry):
            continue
        await queue.repeatables.upsert(
            schedule.definition.name,
            data,
            repeat=schedule.pattern,
            key=key,
            missed_fires=schedule.missed_fires,
            **retry,
        )
        log.info("schedule %r of queue %s is %s", key, queue.name, "new" if stored is None else "changed")


async def _get_repeatable_if_readable(queue: Queue, key: str) -> Repeatable | None:
    try:
        return await queue.repeatables.get(key)
    except DecodeError as error:
        log.warning("schedule %r of queue %s cannot be read, and is stored again: %s", key, queue.name, error)
        return None


def _is_stored_as_declared(stored: Repeatable, schedule: Schedule, data: Any, retry: Mapping[str, Any]) -> bool:
    meta = stored.meta
    return (
        (meta.job_name, meta.pattern) == (schedule.definition.name, schedule.pattern)
        and (meta.missed_fires or MissedFiresPolicy.skip()) == schedule.missed_fires
        and encode_data(stored.data) == encode_data(data)  # not ==, which takes True for 1
        and stored.retry == check_and_make_retry_override(retry["attempts"], retry["backoff"])
    )
