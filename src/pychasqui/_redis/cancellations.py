"""The broker's calls about cancelled jobs, and what stands in the notes about them."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from .._core.limits import MOVED_BYTES
from .._wire.entry import make_entry_sort_key
from . import scripts
from .calls import RedisCalls
from .keys import make_keys_of_job
from .replies import QueueFlags, as_text, make_reader_raise_reply_error, read_count, require_bytes

NOTES_KEPT_MS = 7 * 24 * 3600 * 1000  # of jobs that no worker takes
MAX_NOTES = 5000  # of 40 bytes; of longer ones fewer
BY_ID = b"id "  # begins a note about the id of a job


class Cancellations(NamedTuple):
    """The notes about cancelled jobs of the stream: about entries, and about ids with the last entry that is meant."""

    entries: frozenset[bytes] = frozenset()
    ids: dict[str, tuple[int, int]] = {}  # noqa: RUF012  never changed

    def __bool__(self) -> bool:
        return bool(self.entries or self.ids)

    def includes_job(self, entry_id: bytes, job_id: str) -> bool:
        """Returns whether the job of this entry is cancelled."""
        if entry_id in self.entries:
            return True
        last = self.ids.get(job_id)
        return last is not None and make_entry_sort_key(entry_id) <= last


class CancelAnswer(NamedTuple):
    """What cancel.lua has done: removed, stopping or unknown; and the name of a job that it has removed."""

    word: str
    job_name: str


class CancelCalls(RedisCalls):
    async def cancel(
        self, job_id: str, entry_id: str, *, may_be_in_unread_entry: bool, events_max_len: int
    ) -> CancelAnswer:
        """Removes a job, or notes that it is to stop.

        `entry_id` is where it was found, "" if it was not; `may_be_in_unread_entry` says that it may be in an entry
        that was not looked at. Sent again, it does not find a job that it has removed.
        """
        keys, own = self._keys, make_keys_of_job(self._keys, job_id)
        head = (job_id, entry_id, int(may_be_in_unread_entry), NOTES_KEPT_MS, MAX_NOTES)
        arguments = (*head, events_max_len, await self.find_channel_name_at_server(self._keys.pause_channel))
        return _read_cancel_answer(
            await self.run_script(
                scripts.CANCEL, (keys.stream, keys.delayed, keys.events, keys.cancelled, *own), arguments
            )
        )

    async def read_queue_flags(self) -> QueueFlags:
        """Returns whether the queue is paused, and whether it has notes about cancelled jobs: nearly always neither."""
        if not read_count(await self.call("EXISTS", self._keys.paused, self._keys.cancelled)):
            return QueueFlags(is_paused=False, has_cancellations=False)
        is_paused, notes = await asyncio.gather(self.is_paused(), self.call("EXISTS", self._keys.cancelled))
        return QueueFlags(is_paused, has_cancellations=bool(read_count(notes)))

    async def is_paused(self) -> bool:
        return bool(read_count(await self.call("EXISTS", self._keys.paused)))

    async def read_cancellations_and_remove_outdated(self) -> Cancellations:
        """Returns the notes whose jobs may still be in the stream; the others are removed. Harmless to send again."""
        keys = (self._keys.stream, self._keys.cancelled)
        return _read_cancellations_reply(
            await self.run_script(scripts.READ_CANCELLATIONS, keys, (MOVED_BYTES, MAX_NOTES))
        )


@make_reader_raise_reply_error
def _read_cancel_answer(reply: Any) -> CancelAnswer:
    word, name = reply
    if word not in (b"removed", b"stopping", b"unknown"):
        raise ValueError
    return CancelAnswer(as_text(word), as_text(name))


@make_reader_raise_reply_error
def _read_cancellations_reply(reply: Any) -> Cancellations:
    pairs = list(zip(reply[::2], reply[1::2], strict=True))
    by_id = {
        require_bytes(field).removeprefix(BY_ID).decode("utf-8", "replace"): make_entry_sort_key(require_bytes(last))
        for field, last in pairs
        if field.startswith(BY_ID)
    }
    return Cancellations(frozenset(field for field, _ in pairs if not field.startswith(BY_ID)), by_id)
