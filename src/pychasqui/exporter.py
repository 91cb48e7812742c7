"""QueueExporter: serves the state of queues to Prometheus.

One exporter serves a queue: if each worker exported these numbers, sums over workers would multiply them. A scrape
costs a fixed number of commands per queue, whatever the queue holds, and its page is reused for a second. A queue that
cannot be read has chasquimq_queue_up 0; the other queues are not affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import nullcontext
from http import HTTPStatus
from types import TracebackType
from typing import Self

from ._core import checks, defaults
from ._http.server import Answer, HttpServer, SharedPage
from ._http.text_format import CONTENT_TYPE, Metric, make_short_printable_label_value, render
from ._worker.signals import catching_signals
from .errors import InvalidArgument, RedisTrouble
from .queue import Queue

log = logging.getLogger("chasqui.exporter")

MAX_REPEATABLES = 200
SERVED_FOR_S = 1.0


class QueueExporter:
    """`await exporter.render()` asks Redis and returns the text; `await exporter.run()` serves it at /metrics until
    stop(), `async with exporter:` beside other things.

    It also serves /healthz, which is 200 while the event loop runs, and /readyz, which is 200 while Redis answers.
    """

    def __init__(
        self, queues: Iterable[Queue], *, metrics_port: int = 0, metrics_host: str = defaults.METRICS_HOST
    ) -> None:
        self._queues = list(queues)
        if not self._queues:
            raise InvalidArgument("queues must not be empty")
        host, port = checks.check_metrics_address(metrics_host, metrics_port)
        self._shared = [SharedPage(self._answer_metrics, SERVED_FOR_S), SharedPage(self._answer_readyz, SERVED_FOR_S)]
        metrics, readyz = self._shared
        self._server = HttpServer(host, port, {"/metrics": metrics, "/healthz": _answer_healthz, "/readyz": readyz})
        self._stopped = asyncio.Event()

    @property
    def metrics_port(self) -> int:
        """The port that it listens on; after start() it is 0 only if metrics_host is the path of a socket."""
        return self._server.port

    async def run(self, *, handle_signals: bool = False) -> None:
        """Serves the pages until stop().

        handle_signals  whether SIGINT and SIGTERM stop it, too, in place of what the program does about them. Only in
                        the main thread, and only in this process: a forked child gets back what was there before.
        """
        checks.check_bool("handle_signals", handle_signals)
        with catching_signals(lambda _: self._stopped.set()) if handle_signals else nullcontext():
            async with self:
                await self._stopped.wait()

    async def start(self) -> None:
        """Starts to serve the pages. Safe to call twice."""
        self._stopped.clear()
        await self._server.start()

    async def stop(self) -> None:
        """Stops serving. Safe to call twice."""
        self._stopped.set()
        await self._server.stop()
        for page in self._shared:
            page.cancel_page()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def render(self) -> str:
        """Asks Redis for the state of all queues and returns it in the text format of Prometheus."""
        gauges = Gauges()
        await asyncio.gather(*(gauges.update(queue) for queue in self._queues))
        return render([metric for metric in vars(gauges).values() if isinstance(metric, Metric)], {})

    async def _answer_metrics(self) -> Answer:
        return Answer(await self.render(), content_type=CONTENT_TYPE)

    async def _answer_readyz(self) -> Answer:
        found = await asyncio.gather(*(queue.is_paused() for queue in self._queues), return_exceptions=True)
        away = [
            queue.name for queue, reply in zip(self._queues, found, strict=True) if isinstance(reply, BaseException)
        ]
        if not away:
            return Answer("ok\n")
        return Answer(f"Redis does not answer for {', '.join(away)}\n", HTTPStatus.SERVICE_UNAVAILABLE)


class Gauges:
    """The state of queues at one moment."""

    def __init__(self) -> None:
        self._up = Metric("chasquimq_queue_up", "gauge", "1 if Redis answers for the queue.", "queue")
        self._jobs = Metric("chasquimq_queue_jobs", "gauge", "Jobs in each state.", "queue", "state")
        self._oldest = Metric(
            "chasquimq_queue_oldest_job_age_seconds", "gauge", "Age of the oldest job that is not done.", "queue"
        )
        self._paused = Metric("chasquimq_queue_paused", "gauge", "1 if the queue is paused.", "queue")
        self._workers = Metric("chasquimq_workers", "gauge", "Workers that live.", "queue")
        self._repeatables = Metric("chasquimq_repeatables", "gauge", "Repeatables, paused ones included.", "queue")
        self._next_fires = Metric(
            "chasquimq_schedule_next_fire_timestamp_seconds", "gauge", "When a repeatable fires next.", "queue", "key"
        )

    async def update(self, queue: Queue) -> None:
        """Reads the state of one queue from Redis; an error sets queue_up to 0."""
        try:
            await self._read_and_set_gauges_of_queue(queue)
        except RedisTrouble:  # queue_up 0 says it; other queues may be on other servers
            self._up.set(0, queue.name)
        except Exception:
            self._up.set(0, queue.name)
            log.exception("the state of queue %s cannot be read; other queues are not affected", queue.name)

    async def _read_and_set_gauges_of_queue(self, queue: Queue) -> None:
        counts, oldest_ms, is_paused, workers, next_fires = await asyncio.gather(
            queue.counts(),
            queue.oldest_age_ms(),
            queue.is_paused(),
            queue.workers(),
            queue._inspector.next_fires(MAX_REPEATABLES),
        )
        self._up.set(1, queue.name)
        states = {"waiting": counts.waiting, "active": counts.active, "delayed": counts.delayed, "dlq": counts.dead}
        for state, number in states.items():
            self._jobs.set(number, queue.name, state)
        self._oldest.set((oldest_ms or 0) / 1000, queue.name)
        self._paused.set(int(is_paused), queue.name)
        self._workers.set(len(workers), queue.name)
        self._repeatables.set(counts.repeatables, queue.name)
        for key, fires_ms in next_fires:
            self._next_fires.set(fires_ms / 1000, queue.name, make_short_printable_label_value(key))


async def _answer_healthz() -> Answer:
    return Answer("ok\n")
