"""Worker: runs the jobs of a queue.

`_worker/wiring.py` builds its parts, `_worker/startup.py` starts them and `_worker/shutdown.py` stops them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from ._core import checks
from ._core.config import take_config_fields_as_arguments
from ._core.guarded_log import GuardedLogger
from ._core.run_timeouts import check_and_make_run_timeouts
from ._http.server import HttpServer
from ._http.worker_pages import WorkerPages, combine_user_and_served_sinks
from ._redis.connector import Connector
from ._redis.keys import Keys
from ._worker.config import WorkerConfig
from ._worker.idle import wait_until_idle
from ._worker.lifecycle import Lifecycle
from ._worker.shutdown import Shutdown
from ._worker.startup import Startup
from ._worker.wiring import Components, build_components
from .settings import find_settings_not_given

log = GuardedLogger("chasqui.worker")

SECOND_SIGNAL_S = 0.2  # a signal that comes sooner is the first once more: `timeout` and terminals send it twice


class Worker(Lifecycle):
    """Runs a queue's jobs: `await worker.run()` until it is closed, or `async with worker:` beside other things.

    queue_name            the queue whose jobs it runs
    handler               called with each Job: an `async def`, or a plain function, which then runs in a thread
    redis_url             redis://, rediss:// (TLS), unix://, embedded://, redis+sentinel:// or redis+cluster://
    tls                   use TLS although the URL says redis://
    concurrency           how many handlers may run at the same time
    max_attempts          how many runs a job has in all, crashes included, unless the job sets its own number
    retry                 the delays between runs, unless the job sets its own
    timeout               how long a run may take (seconds, a timedelta, or either for each name), unless the job sets
                          its own time
    group                 the consumer group; official workers are in "default"
    consumer_id           its name in the group, one for each living worker; None makes one up
    read_block_ms         how long an idle read waits before it asks again
    read_count            how many entries one read brings at most; 200 beside other clients of the server
    claim_min_idle_ms     how long an official consumer's entry lies idle before this worker takes it over
    lease_ms              how long this worker counts as alive after its last heartbeat
    max_payload_bytes     a larger encoded job is buried instead of run
    prefetch_bytes        how many bytes of encoded jobs may wait here for a free handler
    dlq_max_stream_len    how many dead letters are kept; those that a new one pushes out are counted
    strict                refuse a server whose settings put jobs at risk, instead of logging a warning
    events_enabled        whether to write events to the queue's event stream
    events_max_stream_len about how many events that stream keeps
    store_results         whether to keep what handlers return
    result_ttl_ms         for how long results are kept, and with them progress and job logs
    delayed_enabled       whether it may be the worker that promotes delayed jobs and retries
    run_scheduler         whether it may be the worker that fires repeatables
    scheduler_tick_ms     how often it then looks for repeatables that it was not notified of
    metrics               a sink that receives a record of what happens, or several; see MetricsSink
    metrics_port          the port for /metrics, /healthz and /readyz; 0 takes any free port, None serves nothing
    metrics_host          the address to serve them on, or the path of a Unix socket
    shutdown_deadline_s   how long close() waits for running handlers before it cancels them; each then has 5 s to clean
                          up
    credential_provider   a function, or an object with get_credentials(): asked for user name and password before each
                          connection is made
    tracing               "auto" traces runs if OpenTelemetry has a provider; "off"; or an OpenTelemetry of your own
    """

    @take_config_fields_as_arguments(WorkerConfig, find_settings_not_given)
    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._shutdown_deadline_s = config.shutdown_deadline_s
        connector = Connector(
            config.redis_url,
            tls=config.tls,
            client_name=f"chasqui-worker-{config.queue_name}",
            credential_provider=config.credential_provider,
        )
        super().__init__("worker", config.queue_name, connector)
        self._hurry_wanted = asyncio.Event()
        self._signalled_at: float | None = None  # monotonic
        self._components: Components | None = None  # from the start on
        self._http: HttpServer | None = None

    @property
    def name(self) -> str:
        return self.queue_name

    @property
    def consumer_id(self) -> str:
        return self._config.consumer_id

    @property
    def concurrency(self) -> int:
        return self._config.concurrency

    @property
    def config(self) -> WorkerConfig:
        """All its options, checked."""
        return self._config

    def with_options(self, **options: Any) -> Worker:
        """Returns a new worker that has these options, and all others of this one. This one must not be running.

        A `timeout` for all jobs leaves those of single names as they are.
        """
        if "timeout" in options:
            options["timeout"] = self._config.timeout.overridden_by(
                check_and_make_run_timeouts("timeout", options["timeout"])
            )
        return Worker(**{**vars(self._config), **options})

    @property
    def metrics_port(self) -> int | None:
        """Where metrics are served, once it runs; None if they are not."""
        return None if self._http is None else self._http.port

    async def wait_until_idle(self) -> None:
        """Waits, while it runs, until no job waits or is due, and it holds none itself."""
        if self._components is not None:
            await wait_until_idle(self._components.broker, Keys(self.queue_name), self._components.shared)

    async def drain(self, timeout_s: float | None = None) -> None:
        """close(), with another deadline for the handlers that are running."""
        if timeout_s is not None:
            self._shutdown_deadline_s = checks.check_seconds("timeout_s", timeout_s)
        await self.close()

    async def _run_until_stopped(self) -> None:
        config = self._config
        sinks = combine_user_and_served_sinks(
            config.metrics_sinks, self.queue_name, serves_metrics=config.metrics_address is not None
        )
        components = self._components = build_components(
            config,
            self._connector,
            sinks.guarded,
            on_death=self._log_death_and_stop,
            is_abandoned=self._is_main_task_ending,
        )
        if config.metrics_address is not None and sinks.served is not None:
            pages = WorkerPages(sinks.served, components.health.read_health).get_pages_by_path()
            self._http = HttpServer(*config.metrics_address, pages)
        try:
            if await self._await_start_unless_stopped(self._start_pages_and_components(components)):
                self._report_started()
                log.info("worker %s runs queue %s with %d lanes", self.consumer_id, self.queue_name, self.concurrency)
                await self._stop_wanted.wait()
                await self._shut_down_components(components)
            log.info("worker %s has stopped", self.consumer_id)
        finally:
            if self._http is not None:
                await self._http.stop()
            await components.close()

    async def _start_pages_and_components(self, components: Components) -> None:
        if self._http is not None:
            await self._http.start()  # before Redis is found: a worker that waits for it is alive, and not ready
        await Startup(components, self._config, self._connector).run()

    async def _shut_down_components(self, components: Components) -> None:
        await Shutdown(
            components=components,
            lease_ms=self._config.lease_ms,
            deadline_s=lambda: self._shutdown_deadline_s,
            hurried=self._hurry_wanted,
            stopped_by=self._stopped_by,
            has_signals=self._signalled_at is not None,
        ).run()

    async def _await_start_unless_stopped(self, starting: Coroutine[Any, Any, None]) -> bool:
        """Whether the start came to its end; a stop that is asked for meanwhile ends it at once."""
        task = asyncio.ensure_future(starting)
        stop = asyncio.ensure_future(self._stop_wanted.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.wait({task, stop})
        return False

    def _is_own_task(self, task: asyncio.Task[object] | None) -> bool:
        """A handler that closes its own worker must not wait for itself."""
        return self._components is not None and self._components.lanes.is_lane_task(task)

    def _is_main_task_ending(self) -> bool:
        """A loop that ends cancels everything, the worker's own task with it."""
        return self._main is None or self._main.done() or self._main.cancelling() > 0

    def _log_death_and_stop(self, title: str, error: BaseException) -> None:
        """A part has died, which only a defect can bring about: the worker dies with it and logs it."""
        self._request_stop_with_error(error)
        log.critical("the %s of worker %s has died, the worker stops", title, self.consumer_id, exc_info=error)

    def _request_stop_by_signal(self, signal_name: str) -> None:
        now = monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            super()._request_stop_by_signal(signal_name)
        elif now - self._signalled_at >= SECOND_SIGNAL_S:
            log.warning("%s again: worker %s stops now", signal_name, self.consumer_id)
            self._hurry_wanted.set()
