"""Defaults that several constructors share. The others stand beside their option, in a config.py of its package."""

from __future__ import annotations

REDIS_URL = "redis://127.0.0.1:6379"
GROUP = "default"  # the official consumer group
MAX_PAYLOAD_BYTES = 1024 * 1024  # the official consumers' limit: they would bury a larger job
READ_BLOCK_MS = 5000  # how long an idle read waits before it asks again
# Entries in one read, if no other client waits for the server. The lists of 600, two for each entry, made Python
# collect garbage while it parsed them, and often in all of the heap: 10 ms every 80,000 jobs.
READ_COUNT = 300
EVENTS_MAX_LEN = 100_000  # the official bound
RESULT_TTL_MS = 3_600_000  # the official default
SCHEDULER_TICK_MS = 1500  # how often the leader looks for repeatables that it was not notified of
CONCURRENCY = 100
MAX_ATTEMPTS = 25  # the official Python default
SHUTDOWN_DEADLINE_S = 30.0
METRICS_HOST = "127.0.0.1"  # other machines reach nothing unless the user asks for it
