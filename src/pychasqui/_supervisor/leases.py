"""Holds the leases of workers as long as their processes live, and ends them the moment those die.

A worker renews its lease from a thread of its own. C code that keeps the GIL stops that thread, too, though the process
lives: then the supervisor renews the lease in its place. The worker does not rely on it: when it goes on, it has Redis
confirm each entry before it starts another job. When a process has died, nothing can be running there: its workers
leave the group at once, and others take over what they held without waiting for the lease to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from .._core import clock
from .._core.limits import WORK_TIMEOUT_S
from .._core.pauses import GrowingPause
from .._redis.broker import Broker
from .._redis.connector import Connector
from .._redis.credentials import CredentialProvider
from .._redis.keys import Keys
from ..errors import ChasquiError, RedisTrouble
from .messages import Credentials, HeldLease

log = logging.getLogger("chasqui.supervisor")

LOOKS_A_LEASE = 4
MIN_LEASE_LEFT_SHARE = 0.6  # of a lease; a worker that renews its own has at least two thirds left
# What the process sent last may reach Redis only after it has died: a renewal, or a read that takes entries.
END_AGAIN_AFTER_S = (0.0, 0.1, 0.5, 2.0)
CLOSE_WITHIN_S = 0.7
LOGGED_AGAIN = 3  # leases without a renewal in a worker's place, after which the next one is logged again


class LeaseHolder:
    """start_renewing_lease_if_worker_does_not() -> renews what the workers do not renew -> start_ending_leases()."""

    def __init__(self) -> None:
        self._brokers: dict[tuple[str, bool], Broker] = {}
        self._connectors: list[Connector] = []
        self._credentials: dict[str, Credentials] = {}  # the last ones for a URL
        self._holding: dict[HeldLease, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start_renewing_lease_if_worker_does_not(self, lease: HeldLease) -> None:
        if lease not in self._holding:
            self._holding[lease] = asyncio.create_task(self._keep_renewing_if_worker_does_not(lease))

    def store_credentials(self, credentials: Credentials) -> None:
        self._credentials[credentials.redis_url] = credentials

    def start_ending_leases(self, leases: Sequence[HeldLease], *, has_exited_with_error: bool) -> None:
        """Ends the leases of a process that has exited, several times if it exited with an error.

        A process that exits without one has closed its connections before.
        """
        pauses_s = END_AGAIN_AFTER_S if has_exited_with_error else END_AGAIN_AFTER_S[:1]
        for lease in leases:
            if (holding := self._holding.pop(lease, None)) is not None:
                holding.cancel()
            ending = asyncio.create_task(self._end_lease_repeatedly(lease, pauses_s))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Ends all renewals and closes the connections, after a moment for the leases that end."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_WITHIN_S)
        tasks = [*self._holding.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for broker in self._brokers.values():
            await broker.close()
        for connector in self._connectors:
            connector.leave_embedded_server_and_stop_logging()

    async def _keep_renewing_if_worker_does_not(self, lease: HeldLease) -> None:
        lease_s, min_left_ms = lease.lease_ms / 1000, int(MIN_LEASE_LEFT_SHARE * lease.lease_ms)
        held_at = float("-inf")
        while True:
            await asyncio.sleep(lease_s / LOOKS_A_LEASE)
            try:
                is_held = await self._get_or_make_broker(lease).renew_lease_of_other_if_ending(
                    lease.group, lease.consumer_id, lease.lease_ms, min_left_ms
                )
            except RedisTrouble as error:
                log.debug("the lease of worker %s cannot be held now: %s", lease.consumer_id, error)
            except ChasquiError as error:
                log.warning("the lease of worker %s cannot be held: %s", lease.consumer_id, error)
                return
            else:
                if is_held:
                    if clock.monotonic() - held_at > LOGGED_AGAIN * lease_s:
                        log.warning(
                            "worker %s does not renew its lease, though its process lives: C code keeps the GIL there, "
                            "or the process is stopped or gets no CPU. The supervisor renews the lease",
                            lease.consumer_id,
                        )
                    held_at = clock.monotonic()

    async def _end_lease_repeatedly(self, lease: HeldLease, pauses_s: Sequence[float]) -> None:
        for pause_s in pauses_s:
            await asyncio.sleep(pause_s)
            await self._try_to_leave_group_until_lease_ends(lease)

    async def _try_to_leave_group_until_lease_ends(self, lease: HeldLease) -> None:
        """Tries again for as long as the lease can last: after that, others take the entries over by themselves."""
        pause = GrowingPause()
        try:
            async with asyncio.timeout(lease.lease_ms / 1000):
                while True:
                    try:
                        # Read each time: a renewal of the dead process may have come, and no other has its name.
                        broker, me = self._get_or_make_broker(lease), (lease.group, lease.consumer_id)
                        await broker.leave_group_if_lease_is_same(*me, await broker.read_lease_end_or_zero(*me))
                    except RedisTrouble:
                        await asyncio.sleep(pause.lengthen_pause_s())
                    else:
                        return
        except TimeoutError:
            log.warning("the lease of worker %s could not be ended; its jobs run again later", lease.consumer_id)
        except ChasquiError as error:
            log.warning("the lease of worker %s could not be ended: %s", lease.consumer_id, error)

    def _get_or_make_broker(self, lease: HeldLease) -> Broker:
        """All workers of one server share a connection."""
        address, keys = (lease.redis_url, lease.tls), Keys(lease.queue_name)
        if (broker := self._brokers.get(address)) is not None:
            return broker.make_broker_for_queue(keys)
        provider = self._make_provider_of_last_credentials(lease.redis_url) if lease.has_provider else None
        name = "chasqui-supervisor"
        connector = Connector(lease.redis_url, tls=lease.tls, client_name=name, credential_provider=provider)
        self._connectors.append(connector)
        broker = self._brokers[address] = connector.make_broker(keys, timeout_s=WORK_TIMEOUT_S)
        return broker

    def _make_provider_of_last_credentials(self, redis_url: str) -> CredentialProvider:
        """Returns what a worker has sent last: its own provider lives in its process."""

        async def get_last_credentials(_: str | None) -> tuple[str | None, str | None]:
            credentials = self._credentials[redis_url]
            return credentials.username, credentials.password

        return get_last_credentials
