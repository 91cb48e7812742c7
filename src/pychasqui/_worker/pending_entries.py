"""Takes in entries that are pending already. They go before new ones: first orphans, then those of dead workers."""

from __future__ import annotations

import asyncio

from .intake import Intake
from .orphans import Orphans
from .prefetch import Prefetch
from .reclaimer import Reclaimer
from .shared import Shared


class PendingEntries:
    """The reader calls adopt_orphans_or_claim_entries() before it reads, while `may_exist`."""

    def __init__(
        self, shared: Shared, *, intake: Intake, prefetch: Prefetch, orphans: Orphans, reclaimer: Reclaimer
    ) -> None:
        self._is_paused, self._is_closing = shared.is_paused, shared.is_closing
        self._intake = intake
        self._prefetch = prefetch
        self._orphans = orphans
        self._reclaimer = reclaimer

    @property
    def may_exist(self) -> bool:
        return self._orphans.may_exist or self._reclaimer.may_have_claimable_entries

    async def adopt_orphans_or_claim_entries(self, count: int) -> bool:
        """Returns whether to look at the room again before new entries are read."""
        if self._orphans.may_exist:
            room_has_changed = await self._orphans.adopt_orphans_until_full_unless_paused()
            if room_has_changed or self._is_paused.is_set:
                return True
        if self._is_closing.is_set or not self._reclaimer.may_have_claimable_entries:
            return False
        with self._intake.guarding_against_stale_entries():
            self._intake.take_in_claimed_unless_stale_and_wake(
                await self._reclaimer.claim_entries_of_next_source(count, self._prefetch.choose_byte_bounds())
            )
        await asyncio.sleep(0)  # the lanes start some of them first, which leaves room
        return True

    async def try_release_orphans(self) -> None:
        """Releases entries that came too late to be started here, for other workers."""
        if self._orphans.may_exist:
            await self._orphans.try_release_orphans()
