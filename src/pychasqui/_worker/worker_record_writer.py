"""Writes the record by which Queue.workers() shows this worker."""

from __future__ import annotations

import os
import socket
import time

from .._redis.broker import Broker
from .._wire.worker_record import WorkerInfo, encode_worker
from .shared import Shared

HOST = socket.gethostname()
JOBS_SHOWN = 20  # of those that run; a worker may run thousands


class WorkerRecordWriter:
    """write() is called from the heartbeat's thread, after each renewal; the record ends two leases later."""

    def __init__(self, broker: Broker, shared: Shared, *, lease_ms: int) -> None:
        self._broker = broker
        self._consumer = shared.consumer
        self._holdings = shared.holdings
        self._kept_ms = 2 * lease_ms
        self._started_at_ms = time.time_ns() // 1_000_000

    async def write(self) -> None:
        running = self._holdings.running_jobs()
        info = WorkerInfo(
            consumer_id=self._consumer,
            host=HOST,
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            concurrency=len(self._holdings.running),
            busy=len(running),
            job_ids=[job.id for job in running[:JOBS_SHOWN]],
        )
        await self._broker.write_worker_record(self._consumer, encode_worker(info), self._kept_ms)
