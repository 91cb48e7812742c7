"""Adds jobs that count as added once enough replicas have them.

The session that brought the answer to the add is asked, so that it is the server that took the jobs, whatever the
address leads to by then. WAIT holds up whatever is sent behind it, so these adds have a connection of
their own, where it is asked in short rounds: one for all batches that wait, and others add in between.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple

from .._redis.adding import AddSession
from ..errors import ChasquiError, NotReplicated
from .add_batch import AddBatch
from .adder import Adder

ROUND_MS = 100


class AwaitedBatch(NamedTuple):
    """A batch that the server has taken, and the session that brought its answer."""

    batch: AddBatch
    answer: int | bytes
    session: AddSession


class ReplicaAwaitingAdder(Adder):
    """Only for batches with replicas. After its answer a batch goes on: counted in rounds -> completed or failed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaiting_replicas: list[AwaitedBatch] = []
        self._counting_sessions: set[AddSession] = set()  # where a round is under way

    async def close(self) -> None:
        while waiters := self._list_unanswered_waiters():
            await asyncio.wait(waiters)
        await super().close()

    def _list_unanswered_waiters(self) -> list[asyncio.Future[str]]:
        """Those of cancelled adds are done, though their batches are still counted."""
        return [waiter for one in self._awaiting_replicas for waiter in one.batch.waiters if not waiter.done()]

    def _complete_batch(self, batch: AddBatch, answer: int | bytes) -> None:
        if not batch.was_taken_whole(answer):  # no replica will ever have the rest
            super()._complete_batch(batch, answer)
            return
        session = self._add_broker.get_or_make_session_if_connected()
        if session is None:  # the slot has moved: the socket has answered what was under way, and takes nothing more
            reason = f"added, but nobody knows whether {batch.replicas} replicas have it: the connection has moved on"
            batch.fail_waiters(NotReplicated(reason))
            return
        self._awaiting_replicas.append(AwaitedBatch(batch, answer, session))
        if session not in self._counting_sessions:
            self._start_round_if_any_batch_waits(session)

    def _start_round_if_any_batch_waits(self, session: AddSession) -> None:
        """Begins a round for all batches that this session has brought the answers to."""
        batches = [one for one in self._awaiting_replicas if one.session is session]
        if not batches:
            self._counting_sessions.discard(session)
            return
        self._counting_sessions.add(session)
        left_ms = int(1000 * (min(one.batch.deadline for one in batches) - asyncio.get_running_loop().time()))
        wanted = max(one.batch.replicas for one in batches)
        session.request_replica_count(
            wanted, max(1, min(left_ms, ROUND_MS)), partial(self._complete_fail_or_recount, session, batches)
        )

    def _complete_fail_or_recount(
        self, session: AddSession, batches: list[AwaitedBatch], replica_count: int | ChasquiError
    ) -> None:
        now = asyncio.get_running_loop().time()
        for one in batches:
            wanted = one.batch.replicas
            if isinstance(replica_count, ChasquiError):
                self._fail_unreplicated_batch(
                    one, f"added, but nobody knows whether {wanted} replicas have it: {replica_count}"
                )
            elif replica_count >= wanted:
                self._awaiting_replicas.remove(one)
                super()._complete_batch(one.batch, one.answer)
            elif now >= one.batch.deadline:
                reached = f"only {replica_count} of {wanted} replicas have confirmed it in {self._timeout_s} s"
                self._fail_unreplicated_batch(one, f"added, but {reached}")
        self._start_round_if_any_batch_waits(session)

    def _fail_unreplicated_batch(self, awaited: AwaitedBatch, reason: str) -> None:
        self._awaiting_replicas.remove(awaited)
        awaited.batch.fail_waiters(NotReplicated(reason))
