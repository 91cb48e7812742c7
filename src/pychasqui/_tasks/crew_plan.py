"""CrewPlan: makes the workers of an app, one for each queue, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InvalidArgument
from ..settings import find_setting
from ..worker import Worker
from .app_options import AppQueueOptions, worker_options
from .definition import TaskDefinition
from .dispatch import Dispatcher
from .thread_calls import ThreadCalls


class CrewPlan:
    """make_workers() -> workers that are not started; close() when they have ended."""

    def __init__(
        self,
        *,
        load_tasks: Callable[[], list[TaskDefinition]],
        queue_options: AppQueueOptions,
        redis_url: str | None,
        threads: int,
        wanted: Sequence[str] | None,
    ) -> None:
        self._load_tasks = load_tasks
        self._options = queue_options
        self._redis_url = redis_url
        self._thread_calls = ThreadCalls(threads)
        self._wanted = wanted

    def make_workers(self) -> list[Worker]:
        """Imports the modules, reads all signatures, and makes a worker for each queue."""
        definitions = self._load_tasks()
        if not definitions:
            raise InvalidArgument("the app has no tasks: name the modules that have them in App(modules=[...])")
        names = self._queue_names(definitions)
        return [self._make_worker(name, position, definitions) for position, name in enumerate(names)]

    def close(self) -> None:
        self._thread_calls.close()

    def _queue_names(self, definitions: list[TaskDefinition]) -> list[str]:
        known = sorted({*(definition.queue for definition in definitions), *self._options.by_queue})
        return known if self._wanted is None else list(dict.fromkeys(self._wanted))

    def _make_worker(self, name: str, position: int, definitions: list[TaskDefinition]) -> Worker:
        options = worker_options(self._options, name)
        if "store_results" not in options:
            has_results = any(one.has_result for one in definitions if one.queue == name)
            options["store_results"] = has_results or find_setting("store_results").value
        port = find_setting("metrics_port", options.get("metrics_port")).value
        if port and "metrics_port" not in self._options.by_queue.get(name, {}):
            options["metrics_port"] = port + position  # each worker serves its own pages
        dispatcher = Dispatcher(definitions, self._thread_calls, stores_results=options["store_results"])
        return Worker(name, dispatcher.handle, redis_url=self._redis_url, **options)
