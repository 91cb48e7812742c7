"""Makes the record by which Queue.workers() shows this worker."""

from __future__ import annotations

import os
import socket
import time

from .._wire.worker_record import WorkerInfo, encode_worker
from .shared import Shared

HOST = socket.gethostname()
JOBS_SHOWN = 20  # of those that run; a worker may run thousands


class RecordMaker:
    """make_worker_record() is called from the heartbeat's thread: each renewal of the lease writes the record."""

    def __init__(self, shared: Shared, *, lease_ms: int) -> None:
        self.kept_ms = 2 * lease_ms  # how long the record outlives the renewal
        self._consumer = shared.consumer
        self._holdings = shared.holdings
        self._started_at_ms = time.time_ns() // 1_000_000

    def make_worker_record(self) -> bytes:
        running = self._holdings.list_running_jobs()
        info = WorkerInfo(
            consumer_id=self._consumer,
            host=HOST,
            pid=os.getpid(),
            started_at_ms=self._started_at_ms,
            concurrency=len(self._holdings.running),
            busy=len(running),
            job_ids=[job.id for job in running[:JOBS_SHOWN]],
        )
        return encode_worker(info)
