"""What the command of dramatiq imports where everybody is measured as it comes."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.roles import QUEUE

broker = RedisBroker(url=os.environ["BENCH_REDIS_URL"])


@dramatiq.actor(actor_name="bench", queue_name=QUEUE, broker=broker)
def bench(data: dict[str, Any]) -> None:
    pass
