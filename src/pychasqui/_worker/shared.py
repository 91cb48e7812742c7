"""The small values that several parts of a worker share. `wiring.build_components()` makes them first, and hands them
to the parts.

A part changes such a value by a method, and registers with a signal in its own constructor. No part sets an attribute
of another one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._core.clock import lease_clock
from .._core.delivery import Delivery
from .batch_sizes import BatchSizes
from .living_workers import LivingWorkers
from .unsettled import UnsettledOutcomes

OnDeath = Callable[[str, BaseException], None]  # gets the title of the part that died, and the error


class Lease:
    """For how long this worker may start jobs, by lease_clock(). The heartbeat renews it, also from its own thread."""

    def __init__(self, until: float = 0.0) -> None:
        self.until = until  # 0: nothing starts before the first renewal
        self.lapses = 0  # how often the lease was over and began again
        self.troubled_at = float("-inf")  # when a renewal last failed, came late or followed a lapse

    @property
    def is_over(self) -> bool:
        return lease_clock() >= self.until

    def renew(self, until: float) -> None:
        self.until = until

    def renew_after_lapse(self, until: float) -> None:
        self.until = until
        self.lapses += 1

    def record_trouble(self) -> None:
        self.troubled_at = lease_clock()


class Holdings:
    """Every entry that this worker holds: in the inbox, running, or ended and not settled in Redis yet."""

    def __init__(self, concurrency: int, consumer: str) -> None:
        self.inbox: deque[Delivery] = deque()
        self.running: list[Delivery | None] = [None] * concurrency  # by lane
        self.ended: deque[tuple[Delivery, Any]] = deque()  # with their outcomes, in threads: the loop gathers them
        self.moving = threading.Lock()  # while a thread moves a job to the next of these, or a job leaves the inbox
        self.unsettled = UnsettledOutcomes(consumer)

    def settle_and_take_out_waiting_jobs(
        self, should_take: Callable[[Delivery], bool], settle: Callable[[Delivery], None]
    ) -> list[Delivery]:
        """Takes jobs out of the inbox once `settle` has put their outcomes among the unsettled ones."""
        with self.moving:
            taken = [job for job in self.inbox if should_take(job)]
            for job in taken:
                settle(job)
                self.inbox.remove(job)  # one by one: the heartbeat's thread must see the others all the time
        return taken

    def list_running_jobs(self) -> list[Delivery]:
        """Returns the jobs that run. The heartbeat's thread calls it, too: a list is copied in one step."""
        return [job for job in self.running.copy() if job is not None]

    def count_unsettled_without_refused(self) -> int:
        """Counts the jobs that have ended here and are not settled in Redis yet; see UnsettledOutcomes.count()."""
        return self.unsettled.count_without_refused()

    def collect_held_delivery_numbers(self) -> dict[bytes, int]:
        """Returns the id of each held entry, with the number of its delivery. The heartbeat's thread calls it, too.

        A job moves from the inbox to the lanes to the outcomes, in threads by way of the ended ones, and is in the next
        place before it leaves the last. So the places are copied in that order, and a job that moves meanwhile is in
        one of the copies. A large job may go back from its lane to the inbox, which is copied a second time for it.
        """
        waiting_or_running = (*self.inbox.copy(), *self.list_running_jobs(), *self.inbox.copy())
        held = {job.entry_id: job.delivery_number for job in waiting_or_running}
        held.update((job.entry_id, job.delivery_number) for job, _ in self.ended.copy())
        held.update(self.unsettled.collect_delivery_numbers())
        return held


class Signal:
    """Calls the parts that listen to it. A part sends it without knowing which parts listen."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def send(self) -> None:
        for listener in self._listeners:
            listener()


class Flag:
    """A fact that one part states and another part looks at."""

    def __init__(self, is_set: bool = False) -> None:
        self.is_set = is_set

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the parts of one worker share."""

    group: str
    consumer: str
    holdings: Holdings
    on_death: OnDeath  # a part calls it when it dies of a defect
    batch_sizes: BatchSizes = field(default_factory=BatchSizes)
    lease: Lease = field(default_factory=Lease)
    living_workers: LivingWorkers = field(default_factory=LivingWorkers)  # the workers of the group
    room: Signal = field(default_factory=Signal)  # the lanes can take more jobs
    settled: Signal = field(default_factory=Signal)  # Redis has answered for some outcomes
    drained: Signal = field(default_factory=Signal)  # a read has found no entry, for the first time after some
    group_gone: Signal = field(default_factory=Signal)  # a command found that the consumer group does not exist
    ended_leases: Signal = field(default_factory=Signal)  # a renewal found leases of other workers that are over
    may_have_orphans: Flag = field(default_factory=Flag)  # entries may be pending for this worker without its knowledge
    is_paused: Flag = field(default_factory=Flag)  # the queue is paused
    is_closing: Flag = field(default_factory=Flag)  # the worker is stopping
