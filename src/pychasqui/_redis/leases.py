"""The broker's calls about the workers of a group: their leases, their records, and the group itself.

A lease is an entry of a sorted set: the consumer's name, and the server's time in ms at which the lease ends.
"""

from __future__ import annotations

from .._core.limits import MAX_WORKER_LEASE_MS, RELEASED
from .._wire.entry import make_entry_sort_key
from . import scripts
from .calls import RedisCalls
from .command_replies import (
    read_members_with_scores,
    read_score,
    read_stored_bytes,
    read_stored_bytes_list,
    read_time_ms,
)
from .replies import OtherClaim, RenewalResult, read_bytes_list, read_count, read_other_claim, read_renewal_result

WORKERS_KEPT_MS = 7 * 24 * 3600 * 1000  # the set of leases outlives the last worker, so that its entries are found
FAR_LEASES_A_CALL = 100
LONGEST_LEASES = 100  # that are looked at to find which workers a group waits for
ENDED_A_CALL = 2000
CLAIMED_A_CALL = 500
HELD_PAGES = 200  # of 500 entries; no worker holds more
COMPLETE, MUST_CLAIM = 1, 2  # what REBUILD_GROUP returns of a group; else it must be called again
RELEASED_IDLE_MS = 24 * 3600 * 1000  # idle enough for every official consumer's claim_min_idle_ms


class LeaseCalls(RedisCalls):
    async def read_server_time_ms(self) -> int:
        """Returns the time of the server's clock, the only one that leases are judged by."""
        return read_time_ms(await self.call("TIME"))

    async def renew_lease_and_held_entries(
        self,
        group: str,
        consumer: str,
        lease_ms: int,
        held: list[tuple[bytes, int]],
        *,
        record: bytes = b"",
        record_kept_ms: int = 0,
    ) -> RenewalResult:
        """Renews this worker's lease and its hold on entries, each with its delivery, and writes its record, if any.

        While the group is missing or not complete this call fails, and report_held_to_rebuild_group() renews the lease.
        """
        keys = (
            self._keys.stream,
            self._keys.workers_of(group),
            self._keys.group_reports(group),
            self._keys.worker(consumer),
            self._keys.paused,
            self._keys.cancelled,
        )
        head = (group, consumer, lease_ms, WORKERS_KEPT_MS, record, record_kept_ms)
        arguments = (word for entry in held for word in entry)
        return read_renewal_result(await self.run_script(scripts.RENEW_WORKER_LEASE, keys, (*head, *arguments)))

    async def renew_lease_of_other_if_ending(
        self, group: str, consumer: str, lease_ms: int, renew_below_ms: int
    ) -> bool:
        """Renews the lease of another living worker, and its hold on entries, if less than `renew_below_ms` is left.

        Returns whether it was renewed: not if that worker does so itself, has left or has no lease yet. Fails as
        renew_lease_and_held_entries().
        """
        keys = (self._keys.stream, self._keys.workers_of(group), self._keys.group_reports(group))
        words = (group, consumer, lease_ms, renew_below_ms, WORKERS_KEPT_MS)
        after: bytes | None = b""
        for page in range(HELD_PAGES):
            after = read_stored_bytes(await self.run_script(scripts.HOLD_LEASE, keys, (*words, after or b"")))
            if not after:
                return page > 0 or after is not None
        return True

    async def report_held_to_rebuild_group(
        self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]
    ) -> bool:
        """Reports what this worker holds; returns whether the group is there, and complete.

        If it is missing, the script makes it as soon as every living worker has reported. Then each of them claims what
        it holds, a bounded number of entries in one call. Sent twice, none of the calls changes anything.
        """
        keys = (self._keys.stream, self._keys.workers_of(group), self._keys.group_reports(group))
        me = (group, consumer, lease_ms, WORKERS_KEPT_MS)
        last = max((entry_id for entry_id, _ in held), key=make_entry_sort_key, default=b"")
        report = (*me, RELEASED, RELEASED_IDLE_MS, last)
        state = read_count(await self.run_script(scripts.REBUILD_GROUP, keys, report))
        if state == MUST_CLAIM:
            for start in range(0, max(len(held), 1), CLAIMED_A_CALL):
                is_last = start + CLAIMED_A_CALL >= len(held)
                words = (word for entry in held[start : start + CLAIMED_A_CALL] for word in entry)
                await self.run_script(scripts.CLAIM_HELD, keys, (*me, int(is_last), *words))
            state = read_count(await self.run_script(scripts.REBUILD_GROUP, keys, report))
        return state == COMPLETE

    async def find_workers_without_report(self, group: str) -> dict[bytes, float]:
        """Returns the living workers that have not reported what they hold, each with the ms until its lease ends.

        Looks at the longest leases: while the group is gone, it is made once these have ended.
        """
        now_ms, workers = await self.read_server_time_ms(), self._keys.workers_of(group)
        longest = await self.call("ZREVRANGE", workers, 0, LONGEST_LEASES - 1, "WITHSCORES")
        left_ms = {name: end - now_ms for name, end in read_members_with_scores(longest) if end > now_ms}
        if not left_ms:
            return {}
        fields = [b"of " + name for name in left_ms]  # as rebuild_group.lua writes them
        reports = read_stored_bytes_list(
            await self.call("HMGET", self._keys.group_reports(group), *fields), len(fields)
        )
        return {name: left for (name, left), report in zip(left_ms.items(), reports, strict=True) if report is None}

    async def read_lease_end_or_zero(self, group: str, consumer: str) -> float:
        """Returns the server's time in ms at which this worker's lease ends, 0 if it has none."""
        return read_score(await self.call("ZSCORE", self._keys.workers_of(group), consumer)) or 0.0

    async def leave_group_if_lease_is_same(self, group: str, consumer: str, lease: float) -> bool:
        """Ends this lease, as read_lease_end_or_zero() has returned it, and does nothing if another one is stored.

        Returns whether the consumer's name is gone; if not, the other workers take over what it holds. The caller
        reads the lease while it still has the name, and not again before it sends the call once more.
        """
        keys = (
            self._keys.stream,
            self._keys.workers_of(group),
            self._keys.worker(consumer),
            self._keys.name_claim(group, consumer),
        )
        words = (group, consumer, WORKERS_KEPT_MS, repr(lease))
        return bool(read_count(await self.run_script(scripts.LEAVE_GROUP, keys, words)))

    async def read_lease_ends(self, group: str) -> dict[bytes, float]:
        """Returns each worker's lease: the server's time in ms at which it ends, 0 if the worker has left."""
        return dict(
            read_members_with_scores(await self.call("ZRANGE", self._keys.workers_of(group), 0, -1, "WITHSCORES"))
        )

    async def read_ended_leases(self, group: str, now_ms: int) -> dict[bytes, float]:
        """Returns the leases that are over at this time, those that have been for longest first."""
        words = ("-inf", f"({now_ms}", "WITHSCORES", "LIMIT", 0, ENDED_A_CALL)
        return dict(read_members_with_scores(await self.call("ZRANGEBYSCORE", self._keys.workers_of(group), *words)))

    async def try_to_claim_name(
        self, group: str, consumer: str, token: str, lease_ms: int, *, is_confirmation: bool = False
    ) -> OtherClaim:
        """Claims the name of a worker that starts, or confirms the claim behind the first renewal of its lease.

        Sent again with the same token, it is claimed once more.
        """
        keys = (self._keys.workers_of(group), self._keys.name_claim(group, consumer))
        words = (consumer, token, lease_ms, MAX_WORKER_LEASE_MS, int(is_confirmation))
        return read_other_claim(await self.run_script(scripts.CLAIM_NAME, keys, words))

    async def shorten_impossible_leases(self, group: str, lease_ms: int) -> list[bytes]:
        """Lets leases that no worker of ours can have taken end in `lease_ms`; returns whose they are.

        Somebody else has written them, and whatever waits for their end would wait for as long as they please.
        """
        workers, now_ms = self._keys.workers_of(group), await self.read_server_time_ms()
        far = await self.call(
            "ZRANGEBYSCORE", workers, f"({now_ms + MAX_WORKER_LEASE_MS}", "+inf", "LIMIT", 0, FAR_LEASES_A_CALL
        )
        names = read_bytes_list(far)
        for name in names:
            await self.call("ZADD", workers, "XX", "LT", now_ms + lease_ms, name)
        return names
