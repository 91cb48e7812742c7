"""Starts the parts of a worker, after the checks that a start makes: name, group, risks, earlier deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

from .._core.guarded_log import GuardedLogger
from .._core.heap import keep_freed_memory
from .._core.limits import REGROUP_S
from .._redis.connector import Connector
from .._redis.error_actions import ErrorAction, action_for
from .._redis.replies import OtherClaim
from ..errors import ConsumerInUse, RedisTrouble, ReplyError, UnsafeServer
from .config import WorkerConfig
from .outage import Outage
from .wiring import Components

log = GuardedLogger("chasqui.worker")
T = TypeVar("T")

COUNT_A_CALL = 500
NAME_LOOK_S = 0.1
GIVE_UP_NAME_S = 1.0


class Startup:
    """run() retries while Redis is unreachable, and raises permanent errors."""

    def __init__(self, components: Components, config: WorkerConfig, connector: Connector) -> None:
        self._components = components
        self._broker = components.broker
        self._config = config
        self._connector = connector
        self._group, self._consumer = config.group, config.consumer_id
        self._token = uuid4().hex  # by which this worker's claim of its name is known
        self._may_have_name = False

    async def run(self) -> None:
        try:
            await self._claim_name_and_start_parts()
        except BaseException:  # also if it is cancelled, because the worker is closed meanwhile
            await self._stop_heartbeat_and_leave_group_if_ours()
            raise

    async def _claim_name_and_start_parts(self) -> None:
        components = self._components
        await self._claim_name_when_free()  # before anything is written under it
        await self._make_group_and_wait_for_reports()
        await self._log_or_refuse_server_risks()
        await (
            self._count_delivery_of_inherited_entries()
        )  # before anything is read: what is pending now is of an earlier run
        await components.heartbeat.start()  # before anything is read: a worker that holds entries is known to live
        await self._confirm_name_or_raise()
        keep_freed_memory()
        components.reporter.remember_running_loop()
        components.lanes.start()
        components.run_watch.start()
        for service in (components.acker, components.reader, components.reclaimer):
            service.start()
        if components.event_writer is not None:
            components.event_writer.start()
        if self._config.delayed_enabled:
            components.promoter.start()
        if self._config.run_scheduler:
            components.scheduler.start()

    async def _claim_name_when_free(self) -> None:
        """Waits while a lease is held under this worker's name. One that is renewed is another living process's."""
        is_logged = False
        await self._retry_until_answered(self._components.recovery.shorten_impossible_leases, self._broker)
        self._may_have_name = True
        first, left_ms = await self._claim_name_unless_taken()
        while left_ms > 0:
            if not is_logged:
                is_logged = True
                log.info(
                    "worker %s waits for up to %.1f s: the lease of another process of that name goes on",
                    self._consumer,
                    left_ms / 1000,
                )
            await asyncio.sleep(min(left_ms / 1000 + 0.001, NAME_LOOK_S))
            lease, left_ms = await self._claim_name_unless_taken()
            if lease > first:
                raise self._make_name_in_use_error()

    async def _confirm_name_or_raise(self) -> None:
        """If the start took longer than a lease, another may have claimed the name before this one's lease began."""
        if (await self._claim_name_unless_taken(is_confirmation=True)).left_ms > 0:
            raise self._make_name_in_use_error()

    async def _stop_heartbeat_and_leave_group_if_ours(self) -> None:
        """Leaves the group after a start that did not come to its end, if the claim of the name is this worker's.

        The claim is sent once more to find out, since its first answer may be lost. That renews it: nobody else gets
        the name before it is given up.
        """
        if not self._may_have_name:
            return
        await self._components.heartbeat.stop()  # it would renew the lease
        me = (self._group, self._consumer)
        with suppress(RedisTrouble, TimeoutError):  # else the name is free when its claim and its lease end
            async with asyncio.timeout(GIVE_UP_NAME_S):
                claim = await self._broker.try_to_claim_name(*me, self._token, self._config.lease_ms)
                if claim.left_ms == 0:
                    await self._broker.leave_group_if_lease_is_same(*me, await self._broker.read_lease_end_or_zero(*me))

    async def _claim_name_unless_taken(self, *, is_confirmation: bool = False) -> OtherClaim:
        """Claims the name, unless it is another's."""
        claim = partial(self._broker.try_to_claim_name, is_confirmation=is_confirmation)
        return await self._retry_until_answered(claim, self._group, self._consumer, self._token, self._config.lease_ms)

    def _make_name_in_use_error(self) -> ConsumerInUse:
        return ConsumerInUse(
            f"consumer_id {self._consumer!r} is in use by another living worker of queue "
            f"{self._config.queue_name!r} and group {self._group!r}: give each process one of its own"
        )

    async def _make_group_and_wait_for_reports(self) -> None:
        """Makes the group if there is none. Waits until every living worker has reported what it holds."""
        recovery = self._components.recovery
        while not await self._retry_until_answered(recovery.report_held_unless_group_exists, self._broker):
            await recovery.find_and_log_awaited_worker_if_due(self._broker)
            await asyncio.sleep(REGROUP_S)

    async def _log_or_refuse_server_risks(self) -> None:
        """Logs what the server's settings put at risk, or refuses to work there."""
        risks = await self._retry_until_answered(self._broker.read_server_risks)
        if self._config.strict and any(risks):
            raise UnsafeServer(f"{self._connector} is not safe for jobs: {risks}")
        if risks.eviction:
            log.warning("%s: %s", self._connector, risks.eviction)
        if risks.persistence:  # many are content with snapshots, and documentation says what they can lose
            log.info("%s: %s", self._connector, risks.persistence)
        if holes := self._broker.describe_known_vulnerability():
            log.warning("%s: %s", self._connector, holes)

    async def _count_delivery_of_inherited_entries(self) -> None:
        """Counts one more delivery of what an earlier worker of this name held, because it may have run it.

        The reader then finds it as orphans, like all that is pending for this worker without its knowledge.
        """
        me, after = (self._group, self._consumer), b""
        try:
            last = await self._retry_until_answered(self._broker.read_last_pending_id, self._group)
            while last and (
                seen := await self._retry_until_answered(
                    self._broker.list_pending_id_page, *me, after, last, COUNT_A_CALL
                )
            ):
                # Sent again with the deliveries that were seen at first: nothing counts twice.
                await self._retry_until_answered(self._broker.increment_delivery_counts_if_same, *me, seen)
                self._components.shared.may_have_orphans.set()
                after = seen[-1][0]
        except ReplyError as error:
            if action_for(error) is not ErrorAction.NO_GROUP:  # without a group nothing is pending; it is made again
                raise

    async def _retry_until_answered(self, call: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Retries while Redis is unreachable; raises permanent errors."""
        outage = Outage(f"worker {self._consumer} waits for Redis", f"worker {self._consumer} has found Redis")
        while True:
            try:
                reply = await call(*arguments)
            except RedisTrouble as error:
                if action_for(error) in (ErrorAction.FATAL, ErrorAction.REAUTHENTICATE, ErrorAction.NO_GROUP):
                    raise
                await asyncio.sleep(outage.record_error_and_choose_pause_s(error))
            else:
                outage.end()
                return reply
