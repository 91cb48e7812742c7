"""Chooses how many entries one read brings and how many jobs one ack carries.

Another client of the server waits until a command of ours has ended, so these are few. A worker that is alone on its
server sends more at a time, which saves about a tenth of its time a job. The server says whether it is alone: while
there is a backlog, the worker asks how many clients are connected.
"""

from __future__ import annotations

from time import monotonic

from .._core.defaults import READ_COUNT
from .._core.limits import (
    ACK_BATCH,
    ACK_BATCH_ALONE,
    ACK_BATCH_WITH_EVENTS,
    READ_BATCH,
    READ_BATCH_WITH_EVENTS,
)
from .._redis.broker import Broker

OWN_CONNECTIONS = 3  # of a worker: for its commands, its reads and its renewals
ASK_EVERY_S = 0.1  # for so long a client that has just connected meets large batches
KEPT_S = 1.0  # an older answer is not used
REFUSED_S = 60.0  # how long not to ask a server that does not answer, or does not tell this user


class BatchSizes:
    """The sizes for the next read and the next ack; request_client_count_if_due() adapts them."""

    def __init__(self, read_count: int = READ_COUNT, *, writes_events: bool = False) -> None:
        self._read_count = read_count  # the user's bound
        self._small_read = READ_BATCH_WITH_EVENTS if writes_events else READ_BATCH
        self._small_ack = ACK_BATCH_WITH_EVENTS if writes_events else ACK_BATCH
        self._asked_at = self._ask_at = float("-inf")
        self._use_small_batches()

    @property
    def min_entries_worth_reading(self) -> int:
        """How many entries are worth a read while others are still to be run: fewer cost a trip and gain nothing."""
        return max(self.read, self._small_read) // 2

    def request_client_count_if_due(self, broker: Broker, entries_read: int) -> None:
        """Asks how many clients are connected; called after each read that was full.

        The answer applies to the batches that follow it. Where reads are smaller than small batches, as with handlers
        that run one at a time, it would change nothing.
        """
        now = monotonic()
        if now < self._ask_at or entries_read < min(self._read_count, self._small_read):
            return
        if now - self._asked_at > KEPT_S:
            self._use_small_batches()
        self._asked_at, self._ask_at = now, now + ASK_EVERY_S
        broker.request_client_count(self._set_batches_by_client_count)

    def _set_batches_by_client_count(self, count: int | None) -> None:
        if count is None:
            self._ask_at = self._asked_at + REFUSED_S
        if count is not None and count <= OWN_CONNECTIONS:
            self._use_large_batches()
        else:
            self._use_small_batches()

    def _use_small_batches(self) -> None:
        self.read, self.ack = min(self._read_count, self._small_read), self._small_ack

    def _use_large_batches(self) -> None:
        self.read, self.ack = self._read_count, ACK_BATCH_ALONE
