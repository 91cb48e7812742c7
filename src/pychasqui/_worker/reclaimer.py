"""Takes over the entries of dead workers.

Workers of our kind hold a lease. The entries of one that has left are taken over at once; those of one whose lease is
over as soon as it could have come back: it renews each third of a lease, and tries to connect once a second. After an
outage of Redis no worker is judged before all could renew: every lease is over then. Official consumers have no lease
and are judged by how long their entries lie idle.

A look at all leases and holders takes the longer the more workers there are. So more than MAX_FULL_SCANNERS workers
share such looks: together they look as often as that many. Each looks at the leases that are over as soon as a renewal
of its own has found that there are some.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from .._core import clock
from .._core.guarded_log import GuardedLogger
from .._core.limits import RELEASED, SCAN_S
from .._core.pauses import LONGEST_PAUSE_S
from .._redis.broker import Broker
from .._redis.replies import ByteBounds, ClaimedEntry
from ..errors import RedisTrouble
from .group_recovery import GroupRecovery
from .intake import Intake
from .orphans import Orphans
from .prefetch import Prefetch
from .service import Service
from .shared import Shared

log = GuardedLogger("chasqui.worker")

PAGE = 500
CONSUMERS_WITHOUT_LEASE = b""  # stands for all consumers without a lease
LEASE_OF_LEFT_WORKER = 0  # the lease of a worker that has left
SWEEP_S = 10.0
MAX_FULL_SCANNERS = 8  # up to this many workers each look at everything in every scan
LONGEST_REST_S = 2.0  # among more workers, between two looks whether there is something to do


class Reclaimer(Service):
    title = "reclaimer"

    def __init__(
        self,
        broker: Broker,
        shared: Shared,
        *,
        intake: Intake,
        prefetch: Prefetch,
        orphans: Orphans,
        recovery: GroupRecovery,
        claim_min_idle_ms: int,
        lease_s: float,
    ) -> None:
        super().__init__(shared.on_death)
        self._broker = broker
        self._group, self._consumer = shared.group, shared.consumer
        self._lease, self._living_workers = shared.lease, shared.living_workers
        self._may_have_orphans = shared.may_have_orphans
        self._intake = intake
        self._prefetch = prefetch
        self._orphans = orphans
        self._recovery = recovery
        self._claim_min_idle_ms = claim_min_idle_ms
        self._lease_s = lease_s
        self._suspects: dict[bytes, tuple[float, float]] = {}  # consumer -> lease, when it was first seen over
        self._claimable_consumers: dict[bytes, float | None] = {}  # each with its lease, which is over
        self._known_empty: dict[bytes, float] = {}  # consumer that holds nothing that can be taken -> its lease
        self._next_suspect_s = float("inf")  # how long after a scan the next suspect can be judged
        self._next_suspect_at = float("inf")
        self._trusted_since = clock.monotonic()  # since when leases show which workers live; inf: they do not
        self._full_scan_at = clock.monotonic()  # when this worker looks at everything, among many
        self._sweep_at = clock.monotonic() + SWEEP_S
        self._has_ended_leases = False  # by a renewal, since the last look at them
        shared.ended_leases.add_listener(self._request_scan_of_ended_leases_if_many)

    def _request_scan_of_ended_leases_if_many(self) -> None:
        if self._has_more_workers_than_full_scanners:
            self._has_ended_leases = True
            self.wake_if_asleep()

    async def _run_until_stopped(self) -> None:
        while not self._is_stopping:
            try:
                if self._orphans.may_exist:
                    await self._orphans.adopt_orphans_until_full_unless_paused()
                await self._scan_consumers_if_due_and_claim_entries()
            except RedisTrouble as error:
                log.debug("the scan for abandoned entries has failed and is repeated: %s", error)
                self._may_have_orphans.set()  # entries that a lost reply has claimed are pending for this worker
            await self._sleep_until_woken(self._choose_pause_until_next_scan_s())

    @property
    def _has_more_workers_than_full_scanners(self) -> bool:
        return self._living_workers.count > MAX_FULL_SCANNERS

    def _choose_pause_until_next_scan_s(self) -> float:
        if self._has_ended_leases:
            return 0.0  # found while it looked
        scan_s = SCAN_S * random.uniform(0.8, 1.0)
        if self._has_more_workers_than_full_scanners and not (self._claimable_consumers or self._orphans.may_exist):
            scan_s = min(max(self._full_scan_at - clock.monotonic(), scan_s), LONGEST_REST_S)
        return min(scan_s, self._next_suspect_s)

    async def _scan_consumers_if_due_and_claim_entries(self) -> None:
        """Finds consumers whose entries can be taken over, and takes those over while there is room."""
        now, has_ended_leases = clock.monotonic(), self._has_ended_leases
        self._has_ended_leases = False
        if not self._has_more_workers_than_full_scanners or now >= self._full_scan_at:
            pause_s = self._living_workers.scale_pause_by_workers(SCAN_S, MAX_FULL_SCANNERS)
            self._full_scan_at = now + pause_s * random.uniform(0.5, 1.5)
            await self._scan_all_consumers_and_sweep_if_due()
        elif has_ended_leases or now >= self._next_suspect_at:
            now_ms = await self._broker.read_server_time_ms()
            leases = await self._broker.read_ended_leases(self._group, now_ms)
            self._update_suspects_and_claimable_consumers(set(leases), leases, now_ms)
        while (
            self._claimable_consumers and not self._is_stopping and (room := self._prefetch.count_room_for_claims()) > 0
        ):
            with self._intake.guarding_against_stale_entries():
                self._intake.take_in_claimed_unless_stale_and_wake(
                    await self.claim_entries_of_next_source(room, self._prefetch.choose_byte_bounds())
                )

    async def _scan_all_consumers_and_sweep_if_due(self) -> None:
        self._next_suspect_s = float("inf")
        self._known_empty.clear()
        holders = await self._broker.count_held_entries_by_consumer(self._group)
        self._orphans.flag_orphans_after_repeated_surplus(holders.pop(self._consumer.encode(), 0))
        sweeps = clock.monotonic() >= self._sweep_at  # also for names that hold nothing, so that they do not pile up
        if not (holders or sweeps):
            return
        leases = await self._broker.read_lease_ends(self._group)
        if sweeps:
            self._sweep_at = clock.monotonic() + self._living_workers.scale_pause_by_workers(SWEEP_S, MAX_FULL_SCANNERS)
            await self._recovery.shorten_impossible_leases(self._broker)
        now_ms = await self._broker.read_server_time_ms()
        self._update_suspects_and_claimable_consumers(
            leases.keys() | holders.keys() if sweeps or self._suspects else set(holders), leases, now_ms
        )
        if holders.keys() - leases.keys():
            self._claimable_consumers[CONSUMERS_WITHOUT_LEASE] = None

    def _update_suspects_and_claimable_consumers(
        self, watched: set[bytes], leases: Mapping[bytes, float], now_ms: int
    ) -> None:
        self._update_trust_in_leases(leases, now_ms)
        watched = self._find_consumers_that_may_be_dead(watched, leases)
        self._suspects = find_suspects_by_expired_lease(watched, leases, now_ms, self._suspects, clock.monotonic())
        self._mark_dead_suspects_as_claimable(now_ms)

    def _update_trust_in_leases(self, leases: Mapping[bytes, float], now_ms: int) -> None:
        """Notes since when leases show which workers live."""
        can_be_trusted = self._can_trust_leases(leases.get(self._consumer.encode(), now_ms), now_ms)
        self._trusted_since = min(self._trusted_since, clock.monotonic()) if can_be_trusted else float("inf")

    def _find_consumers_that_may_be_dead(self, watched: set[bytes], leases: Mapping[bytes, float]) -> set[bytes]:
        """Returns all but this worker; only those that have left, while leases do not show which workers live."""
        others = watched - {self._consumer.encode()}
        if self._trusted_since < float("inf"):
            return others
        return {name for name in others if leases.get(name) == LEASE_OF_LEFT_WORKER}

    def _can_trust_leases(self, own_lease: float, now_ms: int) -> bool:
        """After an outage every lease is over, and living workers renew theirs first. No worker is judged before all
        could do so: up to the longest pause between two attempts to connect, and a lease more for slow ones."""
        is_calm = clock.lease_clock() >= self._lease.troubled_at + self._lease_s + LONGEST_PAUSE_S
        return is_calm and own_lease >= now_ms  # if not even our own could be renewed, Redis takes no writes

    def _mark_dead_suspects_as_claimable(self, now_ms: int) -> None:
        """Notes whose entries can be taken.

        A worker that lives renews within half a lease, also if the server's clock has jumped. One that has lost its
        connection has a new one within the longest pause after the end of its lease, or of an outage of Redis.
        """
        now, self._next_suspect_s = clock.monotonic(), float("inf")
        for consumer, (lease, since) in self._suspects.items():
            over_s = min((now_ms - lease) / 1000, now - self._trusted_since)
            wait_s = max(self._lease_s / 2 - (now - since), LONGEST_PAUSE_S - over_s)
            if lease != LEASE_OF_LEFT_WORKER and wait_s > 0:
                self._next_suspect_s = min(self._next_suspect_s, wait_s)
            elif self._known_empty.get(consumer) != lease:
                self._claimable_consumers[consumer] = lease
        self._next_suspect_at = now + self._next_suspect_s

    @property
    def may_have_claimable_entries(self) -> bool:
        """Whether a dead consumer may have left entries behind that are not all taken yet."""
        return bool(self._claimable_consumers)

    async def claim_entries_of_next_source(self, count: int, bounds: ByteBounds) -> list[ClaimedEntry]:
        """Claims up to `count` entries of the first dead consumer. The reader calls it, too, before it reads."""
        consumer, lease = next(iter(self._claimable_consumers.items()))
        count = min(count, PAGE)
        if lease is None:
            taken = await self._broker.claim_idle_without_lease(
                self._group, self._consumer, self._claim_min_idle_ms, count, bounds
            )
        else:
            judged = (consumer, lease, self._claim_min_idle_ms)
            answer = await self._broker.take_over_if_lease_is_same(self._group, self._consumer, *judged, count, bounds)
            taken = answer or []
            if answer == []:
                self._known_empty[consumer] = lease
        if not taken:
            self._claimable_consumers.pop(consumer, None)
        if taken and consumer == RELEASED.encode():
            log.debug("worker %s takes %d entries that were handed back", self._consumer, len(taken))
        elif taken:
            source = (
                "consumers without a lease"
                if lease is None
                else f"worker {consumer[:200].decode('utf-8', 'replace')!r}"
            )
            log.warning("worker %s has taken over %d entries of %s", self._consumer, len(taken), source)
        return taken


def find_suspects_by_expired_lease(
    consumers: Iterable[bytes],
    leases: Mapping[bytes, float],
    now_ms: int,
    known_suspects: Mapping[bytes, tuple[float, float]],
    now: float,
) -> dict[bytes, tuple[float, float]]:
    """Returns those of `consumers` whose lease is over, each with that lease and since when it has been seen so."""
    suspects: dict[bytes, tuple[float, float]] = {}
    for consumer in consumers:
        lease = leases.get(consumer)
        if lease is not None and lease < now_ms:
            seen_lease, since = known_suspects.get(consumer, (lease, now))
            suspects[consumer] = (lease, since if seen_lease == lease else now)
    return suspects
