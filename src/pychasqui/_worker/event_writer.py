"""Writes the event stream in batches; drops rather than delays.

Nobody waits for an event. That a job was active is written within a moment; that it was completed goes out in the same
write as its ack, behind it. If the server is slow to take what is written, or refuses it, events are dropped and
counted. What a failed job becomes is told by the script that does it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from time import monotonic
from typing import Any

from .._core.delivery import Delivery
from .._redis.broker import Broker
from .._redis.socket import Socket
from .._wire.event import Event, joined
from ..errors import RedisTrouble
from .service import Service
from .shared import OnDeath

log = logging.getLogger("chasqui.worker")

GATHER_S = 0.01  # how long starts are gathered
SETTLED_IN_S = 1.0  # for so long a job that has ended may wait for its ack, and what is told of it with that


class EventWriter(Service):
    """start() -> writes that jobs are active; the others call it with what they have done -> end()."""

    title = "event writer"

    def __init__(self, broker: Broker, *, on_death: OnDeath, max_len: int, stores_results: bool) -> None:
        super().__init__(on_death)
        self.dropped = 0
        self._broker = broker
        self._max_len = max_len
        self._stores_results = stores_results
        self._started: list[Delivery] = []
        self._is_dropping = False
        self._epoch_s = time.time() - monotonic()

    def started(self, job: Delivery) -> None:
        """A handler is about to be called."""
        self._started.append(job)  # hot: everything else is done once per batch
        if self._sleeper is not None:
            self.wake()

    def done(self, socket: Socket, jobs: list[Delivery]) -> None:
        """Write behind the ack of these jobs, on the same socket and in the same turn."""
        if self._stores_results and any(job.result is None for job in jobs):
            self._tell_unstored(socket, [job for job in jobs if job.result is None])
            jobs = [job for job in jobs if job.result is not None]
        if jobs:
            self._tell_done(socket, jobs, int(self._stores_results))

    def _tell_done(self, socket: Socket, jobs: list[Delivery], stored: int) -> None:
        words: list[str | int] = [self._max_len, stored]
        epoch_s = self._epoch_s
        for job in jobs:
            started_at, ended_at = job.started_at, job.ended_at
            started = "" if job.is_told else int((started_at + epoch_s) * 1000)
            job.is_told = True
            duration_us = int((ended_at - started_at) * 1_000_000)
            words += (job.id, job.name, job.attempt + 1, started, int((ended_at + epoch_s) * 1000), duration_us)
        self._write(socket, "done", words, len(jobs))

    def _tell_unstored(self, socket: Socket, jobs: list[Delivery]) -> None:
        """They returned what cannot be stored: nobody is to look for it, and who waits is told why there is nothing."""
        events: list[Event] = []
        for job in jobs:
            if not job.is_told:
                events.append(self._active(job))
            job.is_told = True
            duration_us = int((job.ended_at - job.started_at) * 1_000_000)
            extras = ("attempt", job.attempt + 1, "duration_us", duration_us, "stored", 0, "why", job.why_not_stored)
            events.append(Event("completed", job.id, job.name, extras, int((job.ended_at + self._epoch_s) * 1000)))
        self._tell_on(socket, events)

    def tell(self, events: list[Event]) -> None:
        """Write what has become of jobs, behind what was written of them before: that they are active."""
        self.tell_started()
        socket = self._broker.connection.live_socket()
        if socket is None:
            self.miss(len(events), "the connection is lost")
            return
        self._tell_on(socket, events)

    def _tell_on(self, socket: Socket, events: list[Event]) -> None:
        self._write(socket, "any", [self._max_len, *joined(*events)], len(events))

    async def _run(self) -> None:
        while True:
            while not self._started:
                if self._is_stopping:
                    return
                await self._sleep()
            await asyncio.sleep(GATHER_S)  # not to be woken by those who start meanwhile
            if self._is_stopping:
                self.tell_started()
            else:
                self._tell_running()

    def _tell_running(self) -> None:
        """Write that those are active of which it is not written yet; of those that have ended it is said with that."""
        # hot: with short jobs that is nearly all of them, and both events in one go cost half
        untold, lately = [job for job in self._started if not job.is_told], max(0.0, monotonic() - SETTLED_IN_S)
        self._started = [job for job in untold if job.ended_at > lately]
        self._tell_active([job for job in untold if job.ended_at <= lately])

    def tell_started(self) -> None:
        """Write that those are active of which it is not written yet."""
        jobs, self._started = self._started, []
        self._tell_active([job for job in jobs if not job.is_told])

    def _tell_active(self, jobs: list[Delivery]) -> None:
        for job in jobs:
            job.is_told = True
        if jobs:
            self.tell([self._active(job) for job in jobs])

    def _active(self, job: Delivery) -> Event:
        at_ms = int((job.started_at + self._epoch_s) * 1000)
        return Event("active", job.id, job.name, ("attempt", job.attempt + 1), at_ms)

    def _write(self, socket: Socket, kind: str, words: list[str | int], count: int) -> None:
        if socket.is_congested:
            self.miss(count, "the server is slow to take what is written")
            return
        deadline = self._broker.connection.deadline()
        self._broker.announce(socket, kind, words, deadline, partial(self._answered, count))

    def _answered(self, count: int, reply: Any) -> None:
        if isinstance(reply, RedisTrouble):
            self.miss(count, str(reply))
        else:
            self._is_dropping = False

    def miss(self, count: int, why: str) -> None:
        """Events are lost."""
        self.dropped += count
        if not self._is_dropping:
            self._is_dropping = True
            log.warning("events are dropped, jobs go on: %s", why)
