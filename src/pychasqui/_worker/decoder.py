"""Decodes entries into deliveries. An entry that cannot be read, or has no attempts left, goes to the dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from .._core.delivery import Delivery
from .._core.outcome import find_max_attempts
from .._redis.replies import Entry
from .._wire.entry import (
    ENVELOPE,
    NAME,
    ULID_CHARS,
    decode_name_or_empty,
    may_hold_uniqueness_key_without_field,
    read_job_fields,
)
from .._wire.envelope import (
    USUAL_FIRST_BYTES,
    decode_delivery,
    decode_envelope,
    decode_refused_delivery,
    decode_usual_delivery,
    read_expiry_ms_or_none,
    read_timeout_s_or_zero,
)
from .._wire.msgpack import DECODER_REFUSALS, decode_scanned, decode_unchecked, make_scan_if_needed
from .._wire.msgpack_scan import MAX_DEPTH
from ..errors import DecodeError
from .job_stops import JobStops
from .server_clock import ServerClock

MAX_NAMES = 1000

SLICE_S = 0.01  # how long the decoding of one batch may keep the loop
ENTRIES_A_CHECK = 100  # small entries between two looks at the clock: hostile ones take 0.1 ms each
SMALL_BYTES = 256  # beyond that, each entry is worth a look at the clock
LARGE_BYTES = 16 * 1024  # such an entry waits undecoded: as objects it may take many times its bytes
STEPS_A_TURN = 20_000  # of a scan: some 5 ms
NO_PAYLOAD = "missing or non-bytes payload field"


class Decoder:
    def __init__(
        self,
        *,
        max_payload_bytes: int,
        max_attempts: int,
        stops: JobStops,
        server_clock: ServerClock,
        on_rejected: Callable[[bytes, int, list[bytes] | None, str, str], None],
        on_exhausted: Callable[[Delivery], None],
        on_expired: Callable[[Delivery], None],
        on_cancelled: Callable[[Delivery], None],
    ) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._small_bytes = min(SMALL_BYTES, max_payload_bytes)
        self._max_attempts = max_attempts
        self._on_rejected = on_rejected
        self._on_exhausted = on_exhausted
        self._on_expired = on_expired
        self._on_cancelled = on_cancelled
        self._stops = stops
        self._server_clock = server_clock
        self._names: dict[bytes | None, str] = {}
        self._large_job_lock = asyncio.Lock()

    def decode_put_off_or_settle_entries(
        self, entries: list[Entry], earlier_deliveries: int, put_off_after: float = 0.0
    ) -> list[Delivery]:
        """Returns the jobs that are to run; buries or acks the other entries.

        Large ones, and those left at the time `put_off_after`, are decoded by decode_or_settle_put_off_job() when they
        start.
        """
        if len(entries) > ENTRIES_A_CHECK:
            return self._decode_put_off_or_settle_in_slices(
                entries, earlier_deliveries, put_off_after or monotonic() + SLICE_S
            )
        jobs: list[Delivery] = []
        names, small_bytes, max_attempts = self._names, self._small_bytes, self._max_attempts
        for entry_id, fields in entries:
            try:
                # hot: the two shapes that every known producer writes, else a search by field name
                if len(fields) == 4 and fields[0] == ENVELOPE and fields[2] == NAME:
                    _, raw, _, raw_name = fields
                    is_unique = False
                else:
                    raw, raw_name, is_unique = read_job_fields(fields)
                if len(raw) > small_bytes:
                    put_off_after = put_off_after or monotonic() + SLICE_S
                    if len(raw) > self._max_payload_bytes:
                        self.reject_oversize_entry(entry_id, earlier_deliveries, len(raw), fields)
                        continue
                    if self._should_put_off_decoding(raw, put_off_after):
                        jobs.append(_make_undecoded_delivery(entry_id, fields, earlier_deliveries))
                        continue
                # hot: decode_delivery() written out for the usual envelope of a small job, 0.05 us
                try:
                    job = decode_usual_delivery(raw)
                    if raw[0] not in USUAL_FIRST_BYTES or len(job.payload) > MAX_DEPTH:
                        job = decode_delivery(raw)
                    else:
                        job.data = decode_unchecked(job.payload)
                except DECODER_REFUSALS as refusal:
                    job = decode_refused_delivery(raw, refusal)
            except DecodeError as error:
                self._on_rejected(entry_id, earlier_deliveries + 1, fields, "decode_failed", str(error))
                continue
            except (LookupError, TypeError):
                self._on_rejected(entry_id, earlier_deliveries + 1, fields, "malformed", NO_PAYLOAD)
                continue
            job.name = names.get(raw_name) or self._decode_and_cache_name(raw_name)
            job.entry_id = entry_id
            if earlier_deliveries:
                job.earlier_deliveries = earlier_deliveries
                job.attempt += earlier_deliveries
            # hot: may_hold_uniqueness_key_without_field() written out, 0.06 us
            raw_id = job.id.encode()
            if is_unique or len(raw_id) != ULID_CHARS or not (raw_id.isupper() and raw_id.isalnum()):
                job.may_be_unique = True
            if job.attempt >= (max_attempts if job.retry is None else find_max_attempts(job, max_attempts)):
                self._on_exhausted(job)
            else:
                jobs.append(self._apply_own_options(job, fields) if job.extras else job)
        has_cancelled = self._stops.cancellations is not None
        return [job for job in jobs if not self._queue_end_if_cancelled(job)] if has_cancelled else jobs

    def _decode_put_off_or_settle_in_slices(
        self, entries: list[Entry], earlier_deliveries: int, put_off_after: float
    ) -> list[Delivery]:
        jobs: list[Delivery] = []
        for start in range(0, len(entries), ENTRIES_A_CHECK):
            if start and monotonic() >= put_off_after:
                jobs += (
                    _make_undecoded_delivery(entry_id, fields, earlier_deliveries)
                    for entry_id, fields in entries[start:]
                )
                break
            jobs += self.decode_put_off_or_settle_entries(
                entries[start : start + ENTRIES_A_CHECK], earlier_deliveries, put_off_after
            )
        return jobs

    def _should_put_off_decoding(self, raw: bytes, put_off_after: float) -> bool:
        return len(raw) > LARGE_BYTES or monotonic() >= put_off_after

    async def decode_or_settle_put_off_job(self, job: Delivery) -> bool:
        """Decodes a job that was put off, and lets the loop turn between parts. Returns whether the job is to run."""
        if len(job.payload) <= LARGE_BYTES:
            return await self._decode_or_settle_job_in_steps(job)
        async with self._large_job_lock:  # one at a time: many lanes would each take their part of every turn
            return await self._decode_or_settle_job_in_steps(job)

    async def _decode_or_settle_job_in_steps(self, job: Delivery) -> bool:
        fields = job.data
        try:
            raw, raw_name, is_unique = read_job_fields(fields)
            if len(raw) > self._max_payload_bytes:
                self.reject_oversize_entry(job.entry_id, job.earlier_deliveries, len(raw), fields)
                return False
            envelope = decode_envelope(raw)
            scan = make_scan_if_needed(envelope.payload)
            while scan is not None and not scan.advance_and_see_if_ended(STEPS_A_TURN):  # noqa: ASYNC110  it waits for nothing
                await asyncio.sleep(0)
            data = decode_scanned(envelope.payload)
        except DecodeError as error:
            self._on_rejected(job.entry_id, job.delivery_number, fields, "decode_failed", str(error))
            return False
        except (LookupError, TypeError, ValueError):
            self._on_rejected(job.entry_id, job.delivery_number, fields, "malformed", NO_PAYLOAD)
            return False
        # The last await: a lane that is cancelled up to here begins again, and a job that is lost is not decoded yet.
        is_expired = await self._wait_for_clock_and_see_if_expired(envelope.extras)
        job.id, job.name, job.data = (
            envelope.id,
            self._names.get(raw_name) or self._decode_and_cache_name(raw_name),
            data,
        )
        job.attempt, job.created_at_ms = envelope.attempt + job.earlier_deliveries, envelope.created_at_ms
        job.retry, job.payload, job.extras = envelope.retry, envelope.payload, envelope.extras
        job.may_be_unique, job.is_decoded = is_unique or may_hold_uniqueness_key_without_field(envelope.id), True
        if self._queue_bury_if_exhausted(job):
            return False
        self._apply_own_timeout_if_set(job)
        if is_expired:
            self._on_expired(job)
        return not is_expired and not self._queue_end_if_cancelled(job)

    def _queue_end_if_cancelled(self, job: Delivery) -> bool:
        cancellations = self._stops.cancellations
        if cancellations is None or not job.is_decoded or not cancellations.includes_job(job.entry_id, job.id):
            return False
        self._on_cancelled(job)
        return True

    async def _wait_for_clock_and_see_if_expired(self, extras: bytes) -> bool:
        expires_ms = read_expiry_ms_or_none(extras) if extras else None
        return expires_ms is not None and await self._server_clock.ask_if_due_and_estimate_now_ms() >= expires_ms

    def _queue_bury_if_exhausted(self, job: Delivery) -> bool:
        if job.attempt < find_max_attempts(job, self._max_attempts):
            return False
        self._on_exhausted(job)
        return True

    def _apply_own_options(self, job: Delivery, fields: list[Any]) -> Delivery:
        """Returns the job as it waits here. One that may expire is decoded again when it is to start."""
        self._apply_own_timeout_if_set(job)
        may_expire = read_expiry_ms_or_none(job.extras) is not None
        return _make_undecoded_delivery(job.entry_id, fields, job.earlier_deliveries) if may_expire else job

    def _apply_own_timeout_if_set(self, job: Delivery) -> None:
        if job.extras and (timeout_s := read_timeout_s_or_zero(job.extras)):
            job.timeout_s = timeout_s
            self._stops.note_timeout_and_signal_if_shortest(timeout_s)

    def reject_oversize_entry(
        self, entry_id: bytes, earlier_deliveries: int, size: int, fields: list[Any] | None = None
    ) -> None:
        """Rejects an entry that is larger than any job may be. Without `fields`, only its size has come."""
        self._on_rejected(entry_id, earlier_deliveries + 1, fields, "oversize_payload", f"{size} bytes")

    def _decode_and_cache_name(self, raw: bytes | None) -> str:
        if len(self._names) >= MAX_NAMES:  # names are few; a producer that makes up new ones must not fill our memory
            self._names.clear()
        name = self._names[raw] = decode_name_or_empty(raw)
        return name


def _make_undecoded_delivery(entry_id: bytes, fields: list[Any], earlier_deliveries: int) -> Delivery:
    """Returns a delivery that decode_or_settle_put_off_job() decodes when it is to start."""
    envelope = max((word for word in fields or () if isinstance(word, bytes)), key=len, default=b"")
    return Delivery(
        "", envelope, data=fields, entry_id=entry_id, earlier_deliveries=earlier_deliveries, is_decoded=False
    )
