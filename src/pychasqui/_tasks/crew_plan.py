"""CrewPlan: starts what the workers of an app share, and makes the workers, one for each queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from .._core.run_timeouts import RunTimeouts, check_and_make_run_timeouts
from ..errors import InvalidArgument, RedisTrouble
from ..queue import Queue
from ..settings import find_setting
from ..worker import Worker
from .app_options import AppQueueOptions, select_options_for_worker_class, shift_shared_metrics_port_by_position
from .definition import TaskDefinition
from .dispatch import Dispatcher, check_dependencies
from .lifespan import AppRuntime, Lifespan, Middleware, open_app_runtime
from .schedules import Schedule, reconcile_schedules
from .thread_calls import ThreadCalls

log = logging.getLogger("chasqui.app")

RECONCILE_AGAIN_S = 2.0


@dataclass(frozen=True, kw_only=True)
class AppParts:
    """What an app has declared, read when its workers start: its modules may declare more."""

    name: str
    modules: tuple[str, ...]
    definitions: list[TaskDefinition]
    schedules: list[Schedule]
    lifespan: Lifespan | None
    middlewares: tuple[Middleware, ...]


class CrewPlan:
    """`async with plan.open_app_with_workers_and_schedules() as workers:` makes workers, not started, and ends
    what they share behind them."""

    def __init__(
        self,
        *,
        load_parts: Callable[[], AppParts],
        make_queue: Callable[[str], Queue],
        queue_options: AppQueueOptions,
        redis_url: str | None,
        threads: int,
        queue_names: Sequence[str] | None,
    ) -> None:
        self._load_parts = load_parts
        self._make_queue = make_queue
        self._options = queue_options
        self._redis_url = redis_url
        self._threads = threads
        self._queue_names = queue_names

    @asynccontextmanager
    async def open_app_with_workers_and_schedules(self) -> AsyncIterator[list[Worker]]:
        """Loads the app, reconciles its schedules, begins its lifespan, and makes a worker for each queue."""
        parts = self._load_parts()
        if not parts.definitions:
            raise InvalidArgument(_describe_missing_tasks(parts.modules))
        names = self._choose_queue_names(parts)
        check_dependencies(parts.definitions, parts.lifespan)  # before Redis is waited for
        for schedule in parts.schedules:
            schedule.make_data()  # raises here, and not in the background
            if schedule.definition.queue in names:
                schedule.warn_of_options_without_effect()
        thread_calls = ThreadCalls(self._threads)
        failed = await self._reconcile_and_list_failed_queues(parts, names)
        again = asyncio.ensure_future(self._retry_failed_queues_until_reconciled(parts, failed)) if failed else None
        try:
            async with open_app_runtime(parts.lifespan, parts.middlewares) as runtime:
                yield [
                    self._make_worker(name, position, parts.definitions, thread_calls, runtime)
                    for position, name in enumerate(names)
                ]
        finally:
            thread_calls.close_without_waiting()
            if again is not None:
                again.cancel()

    async def _reconcile_and_list_failed_queues(self, parts: AppParts, names: list[str]) -> list[str]:
        """Returns the queues for which Redis refuses it. They hold up no other: each may lie at a node of its own."""
        ends = await asyncio.gather(
            *(self._reconcile_schedules_of_queue(parts, name) for name in names), return_exceptions=True
        )
        errors = {name: error for name, error in zip(names, ends, strict=True) if error is not None}
        for error in errors.values():
            if not isinstance(error, RedisTrouble):
                raise error
        if errors:
            log.warning(
                "the schedules of %s cannot be stored, the next attempt is in %g s: %s",
                ", ".join(errors),
                RECONCILE_AGAIN_S,
                next(iter(errors.values())),
            )
        return list(errors)

    async def _reconcile_schedules_of_queue(self, parts: AppParts, name: str) -> None:
        async with self._make_queue(name) as queue:
            await reconcile_schedules(
                queue, parts.name, [one for one in parts.schedules if one.definition.queue == name]
            )

    async def _retry_failed_queues_until_reconciled(self, parts: AppParts, names: list[str]) -> None:
        """Workers wait for Redis when they start, and so do the schedules."""
        try:
            while names:
                await asyncio.sleep(RECONCILE_AGAIN_S)
                names = await self._reconcile_and_list_failed_queues(parts, names)
        except Exception:  # without Redis trouble before, the start would have raised it
            log.exception("the schedules cannot be stored, and nothing tries again before the next start")

    def _choose_queue_names(self, parts: AppParts) -> list[str]:
        known = sorted({*(definition.queue for definition in parts.definitions), *self._options.by_queue})
        return known if self._queue_names is None else list(dict.fromkeys(self._queue_names))

    def _make_worker(
        self,
        name: str,
        position: int,
        definitions: list[TaskDefinition],
        thread_calls: ThreadCalls,
        runtime: AppRuntime,
    ) -> Worker:
        options = select_options_for_worker_class(self._options, name)
        if "store_results" not in options:
            has_results = any(one.may_have_result for one in definitions if one.queue == name)
            options["store_results"] = has_results or find_setting("store_results").value
        shift_shared_metrics_port_by_position(options, self._options.by_queue.get(name, {}), position)
        options["timeout"] = _merge_run_timeouts(options.get("timeout"), definitions)
        stores_results: bool = options["store_results"]
        dispatcher = Dispatcher(definitions, thread_calls, runtime, stores_results=stores_results)
        return Worker(name, dispatcher.start, redis_url=self._redis_url, **options)


def _describe_missing_tasks(modules: tuple[str, ...]) -> str:
    if not modules:
        return "the app has no tasks: name the modules that have them in App(modules=[...])"
    return (
        f"the app has no tasks, and {', '.join(modules)} declared none on it: a program that is run is __main__, and "
        "modules that import it by its name get a second App. Run chasqui worker, or keep the App in its own module"
    )


def _merge_run_timeouts(given: Any, definitions: list[TaskDefinition]) -> RunTimeouts:
    """The timeouts of a worker: those of the tasks by their names, and that of the queue for all others."""
    queue_timeouts = check_and_make_run_timeouts("timeout", find_setting("timeout", given).value)
    own = {name: one.timeout.total_seconds() for one in definitions for name in one.names if one.timeout is not None}
    return queue_timeouts.overridden_by(RunTimeouts(None, own))
