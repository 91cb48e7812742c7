"""Defaults that several constructors share. All others stand beside their option, in the two config.py."""

from __future__ import annotations

REDIS_URL = "redis://127.0.0.1:6379"
GROUP = "default"  # the official consumer group
MAX_PAYLOAD_BYTES = 1024 * 1024  # the official consumers' limit: they would bury a larger job
READ_BLOCK_MS = 5000  # how long an idle read waits before it asks again
READ_COUNT = 1000  # entries in one read; bounds the reply's size and the time to decode it
EVENTS_MAX_LEN = 100_000  # the official bound
RESULT_TTL_MS = 3_600_000  # the official default
SCHEDULER_TICK_MS = 1500  # how often the leader looks for repeatables that it was not notified of
METRICS_HOST = "127.0.0.1"  # other machines reach nothing unless the user asks for it

ADD_TIMEOUT_S = 10.0  # an add succeeds or raises within this, also while Redis is away
MAX_DELAY_S = 30 * 24 * 3600  # the official cap: a longer delay is more often a mistake in units than a plan
CONCURRENCY = 100
MAX_ATTEMPTS = 25  # the official Python default
PREFETCH_BYTES = 16 * 1024 * 1024  # of unstarted jobs that a worker may hold, encoded
LEASE_MS = 6000  # how long a silent worker counts as alive: a killed one's jobs run again within 10 s
CLAIM_MIN_IDLE_MS = 30_000  # the official consumers' own limit: they have no lease, idleness is all they show
DLQ_MAX_LEN = 100_000  # the official bound; what it pushes out is counted
SHUTDOWN_DEADLINE_S = 30.0  # how long a closing worker waits for running handlers
