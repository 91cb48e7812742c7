"""The broker's calls about delayed jobs: promote them, move them, and learn when the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .._core.defaults import EVENTS_MAX_LEN
from .._core.limits import MAX_LEADER_LEASE_MS, MOVED_BYTES, PROMOTE_BATCH_WITH_EVENTS, PROMOTE_BYTES
from ..errors import ReplyError
from . import scripts
from .command_replies import read_members_with_scores
from .leases import LeaseCalls
from .replies import Promotion, read_count, read_found_flags, read_promotion

INDEX_KEPT_MS = 7 * 24 * 3600 * 1000  # a job can be found by its id for this long past its due time


class DelayedCalls(LeaseCalls):
    async def try_to_lead_and_promote_batch(
        self, holder: str, lease_ms: int, max_jobs: int, *, events_max_len: int
    ) -> Promotion:
        """Moves due jobs to the stream: up to `max_jobs` of them, fewer with events, and up to PROMOTE_BYTES.

        Sent twice it moves what is due then, each job once.
        """
        max_jobs = min(max_jobs, PROMOTE_BATCH_WITH_EVENTS) if events_max_len else max_jobs
        keys = (self._keys.delayed, self._keys.stream, self._keys.promoter_lease, self._keys.dead, self._keys.events)
        arguments = (holder, lease_ms, max_jobs, MAX_LEADER_LEASE_MS, events_max_len, self._keys.prefix, PROMOTE_BYTES)
        return read_promotion(await self.run_script(scripts.PROMOTE, keys, arguments))

    async def release_promoter_lease_if_held(self, holder: str) -> None:
        """Ends the promoter's lease, if this holder has it."""
        await self.run_script(scripts.RELEASE_LEADER_LEASE, (self._keys.promoter_lease,), (holder,))

    async def count_delayed_and_read_overdue_ms(self) -> tuple[int, int]:
        """Returns how many jobs are delayed, and for how many ms the first of them has been due; 0 if it is not."""
        depth, first, now_ms = await asyncio.gather(
            self.call("ZCARD", self._keys.delayed),
            self.call("ZRANGE", self._keys.delayed, 0, 0, "WITHSCORES"),
            self.read_server_time_ms(),
        )
        for _, due_ms in read_members_with_scores(first):
            return read_count(depth), int(min(max(0, now_ms - due_ms), now_ms))  # a score may be infinite
        return read_count(depth), 0

    async def try_to_subscribe_to_due_hints(self, on_due_in_s: Callable[[float], None]) -> bool:
        """Has `on_due_in_s` called with the seconds until the next job is due: see try_to_subscribe()."""
        return await self.try_to_subscribe_to_due_channel(self._keys.due_channel, on_due_in_s)

    def publish_due_hint(self, delay_ms: int) -> None:
        """Publishes to the leader that a job is due in `delay_ms`. The message may be lost: the leader also polls."""
        self.publish(self._keys.due_channel, delay_ms)

    async def cancel_or_move_delayed(self, action: str, ids: list[str], delay_ms: int = 0) -> list[bool]:
        """Cancels, postpones or runs delayed jobs; returns whether each was there.

        Sent again, it postpones from that time on, and cancels and runs nothing.
        """
        channel = await self.find_channel_name_at_server(self._keys.due_channel)
        head = (action, delay_ms, self._keys.prefix, INDEX_KEPT_MS, channel, MOVED_BYTES, EVENTS_MAX_LEN)
        keys = (self._keys.delayed, self._keys.stream, self._keys.events)
        each: list[bool] = []
        while len(each) < len(ids):  # one call moves a bounded number of bytes
            found = read_found_flags(await self.run_script(scripts.MOVE_DELAYED, keys, (*head, *ids[len(each) :])))
            if found.refusal:
                raise ReplyError(found.refusal)
            if not found.each:
                raise ReplyError("UNREADABLE the server's reply to move_delayed is of no job")
            each += found.each
        return each
