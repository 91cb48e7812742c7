"""make_crew(): the workers of a Django project, one for each queue of each ChasquiBackend in TASKS.

`manage.py chasqui_worker` runs it by `chasqui worker pychasqui.integrations.django.workers:make_crew`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ..._tasks.app_options import shift_shared_metrics_port_by_position
from ..._tasks.thread_calls import ThreadCalls
from ...crew import Crew
from ...errors import InvalidArgument, RedisTrouble
from ...settings import find_setting
from ...worker import Worker

if TYPE_CHECKING:
    from .backend import ChasquiBackend
    from .run_records import RunHistory

__all__ = ["make_crew"]


def make_crew() -> Crew:
    """Sets Django up, imports the modules with tasks, and returns the workers, not started."""
    import django

    django.setup()
    from .backend import ChasquiBackend
    from .declared_tasks import import_task_modules
    from .framework import tasks

    backends = [one for one in tasks.task_backends.all() if isinstance(one, ChasquiBackend)]
    if not backends:
        raise InvalidArgument("no entry of TASKS has the BACKEND pychasqui.integrations.django.ChasquiBackend")
    for backend in backends:
        import_task_modules(backend.chasqui_options.modules)
    return Crew(lambda: _make_workers_and_clean_up_at_exit(backends))


@asynccontextmanager
async def _make_workers_and_clean_up_at_exit(backends: list[ChasquiBackend]) -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack:
        workers: list[Worker] = []
        for backend in backends:
            thread_calls = ThreadCalls(backend.chasqui_options.threads)
            stack.callback(thread_calls.close_without_waiting)
            stack.push_async_callback(backend.app.close)
            for name in sorted(backend.queues):
                workers.append(_make_worker(backend, name, thread_calls, position=len(workers)))
        yield workers


def _make_worker(backend: ChasquiBackend, queue_name: str, thread_calls: ThreadCalls, *, position: int) -> Worker:
    from .backend import read_run_history
    from .task_runner import TaskRunner

    async def read_run_history_or_empty(job_id: str) -> RunHistory:
        from .run_records import RunHistory

        try:
            return await read_run_history(backend.app.queue(queue_name), job_id)
        except RedisTrouble:  # the task runs all the same, and its result has this run alone
            return RunHistory()

    options = {"store_results": True, **backend.app.worker_options(queue_name)}
    shift_shared_metrics_port_by_position(options, backend.chasqui_options.queues.get(queue_name, {}), position)
    runner = TaskRunner(
        backend,
        queue_name,
        thread_calls=thread_calls,
        read_run_history=read_run_history_or_empty,
        max_attempts=find_setting("max_attempts", options.get("max_attempts")).value,
        worker_id=f"{socket.gethostname()}:{os.getpid()}",
    )
    return Worker(queue_name, runner.run, redis_url=backend.chasqui_options.redis_url, **options)
