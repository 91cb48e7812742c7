"""Checks the arguments of adds and encodes the jobs. It sends nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from .._core import checks, limits
from .._core import ids as _ids
from .._core.options import (
    BULK_KEYS,
    PLAIN,
    UNIQUE,
    AddOptions,
    JobOptions,
    check_and_make_add_options,
    check_timedelta_as_ms_or_zero_if_none,
)
from .._core.retry_options import check_and_make_retry_override
from .._core.user_objects import class_name_of
from .._wire.envelope import (
    EXPIRES,
    TIMEOUT,
    encode_envelope,
    encode_extras,
    encode_new_jobs_if_plain,
    insert_extras_before_own,
)
from .._wire.msgpack import encode_data
from ..errors import ChasquiError, InvalidArgument, InvalidType, PayloadTooLarge
from ..job import AddedJob, Job

log = logging.getLogger("chasqui.queue")

NO_OPTIONS: JobOptions = {}
MAX_NAMES = 1000  # names are few; a producer that makes up a name per job must not fill our memory


class EncodedJob(msgspec.Struct, gc=False):
    """One encoded job."""

    id: str
    envelope: bytes
    name: bytes
    options: AddOptions
    created_at_ms: int
    has_extras: bool = False


@dataclass(slots=True)
class JobBatch:
    """Encoded jobs, in columns."""

    created_at_ms: int
    ids: list[str] = field(default_factory=list)
    envelopes: list[bytes] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    options: list[AddOptions] | None = None  # None: all of them plain
    has_extras: bool = False  # whether any of them has extras behind its envelope

    def append(self, job: EncodedJob) -> None:
        if job.options is not PLAIN or self.options is not None:
            self.options = self.options or [PLAIN] * len(self.ids)
            self.options.append(job.options)
        self.has_extras = self.has_extras or job.has_extras
        self.ids.append(job.id)
        self.envelopes.append(job.envelope)
        self.names.append(job.name)

    def count_due_now(self) -> int:
        """Returns how many of them need room in the stream now."""
        return len(self.ids) if self.options is None else sum(not own.due for own in self.options)

    def cut_into_batches(self) -> list[JobBatch]:
        """Cuts into batches: by count, and by bytes so that no batch swells the server's input buffer."""
        if not self.ids:
            return []
        # hot: most bulks are one batch, and need no list of sizes
        is_short = self.options is None and len(self.ids) <= limits.ADD_BATCH_JOBS
        if is_short and sum(map(len, self.envelopes)) <= limits.ADD_BATCH_BYTES:
            return [self]
        sizes = list(map(len, self.envelopes))
        if self.options is not None:
            columns = zip(sizes, self.ids, strict=True)
            sizes = [size + limits.OPTIONS_COST_BYTES + limits.ID_COST * len(job_id) for size, job_id in columns]
        if len(sizes) <= limits.ADD_BATCH_JOBS and sum(sizes) <= limits.ADD_BATCH_BYTES:
            return [self]
        batches: list[JobBatch] = []
        start = size = 0
        for position, own_size in enumerate(sizes):
            if position - start == limits.ADD_BATCH_JOBS or size >= limits.ADD_BATCH_BYTES:
                batches.append(self._slice_batch(start, position))
                start, size = position, 0
            size += own_size
        batches.append(self._slice_batch(start, len(sizes)))
        return batches

    def _slice_batch(self, start: int, end: int) -> JobBatch:
        columns = (self.ids[start:end], self.envelopes[start:end], self.names[start:end])
        options = None if self.options is None else self.options[start:end]
        return JobBatch(self.created_at_ms, *columns, options, self.has_extras)


class Encoder:
    """Encodes jobs within the bounds of one queue."""

    def __init__(self, max_payload_bytes: int, max_delay_ms: int) -> None:
        self._max_payload_bytes = max_payload_bytes
        self.max_delay_ms = max_delay_ms
        self._names: dict[str, bytes] = {}  # those that passed their check
        self._has_warned = False

    def check_and_encode(
        self, name: str, data: Any, job_id: str | None = None, options: JobOptions = NO_OPTIONS
    ) -> EncodedJob:
        """Encodes one job."""
        raw_name = self._names.get(name) if type(name) is str else None
        if raw_name is None:
            raw_name = self._check_and_cache_name(name)
        own_id = _ids.new_id() if job_id is None else checks.check_new_job_id(job_id)
        if options:
            self._warn_once_if_datetime_is_naive(options.get("delay_ms"))
            add_options = check_and_make_add_options(job_id, options, self.max_delay_ms)
            retry = check_and_make_retry_override(options.get("attempts"), options.get("backoff"))
            extras = _check_and_encode_timeout_and_expiry(options, add_options)
        else:
            add_options, retry, extras = PLAIN if job_id is None else UNIQUE, None, b""
        now_ms = _now_ms()
        envelope = encode_envelope(own_id, encode_data(data), now_ms, 0, retry, extras)
        if len(envelope) > self._max_payload_bytes:  # of the whole envelope, because that is what workers measure
            raise PayloadTooLarge(
                f"data makes a job of {len(envelope)} bytes, max_payload_bytes allows {self._max_payload_bytes}"
            )
        return EncodedJob(own_id, envelope, raw_name, add_options, now_ms, bool(extras))

    def check_and_encode_all(self, jobs: Sequence[Mapping[str, Any]]) -> JobBatch:
        """Encodes mappings of add()'s arguments; the error for one that cannot be encoded names its position."""
        encoded = self._encode_if_all_plain(jobs)
        if encoded is not None:
            return encoded
        encoded = JobBatch(_now_ms())
        position = -1
        try:
            for position, job in enumerate(jobs):  # noqa: B007  used when one fails
                encoded.append(self._check_and_encode_mapping(job))
        except ChasquiError as error:
            raise type(error)(f"job {position} of the bulk: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise _make_bulk_type_error(position, jobs[position], error) from error
        return encoded

    def add_extras_where_they_fit(
        self, envelopes: list[bytes], extras: bytes, *, have_extras: bool = False
    ) -> list[bytes]:
        """Appends extras to the envelopes, except where the envelope would become too large.

        `have_extras` says that some of them have extras already.
        """
        max_envelope_bytes = self._max_payload_bytes - len(extras)
        if have_extras and extras:
            return [
                insert_extras_before_own(each, extras) if len(each) <= max_envelope_bytes else each
                for each in envelopes
            ]
        return [envelope + extras if len(envelope) <= max_envelope_bytes else envelope for envelope in envelopes]

    def _encode_if_all_plain(self, jobs: Sequence[Mapping[str, Any]]) -> JobBatch | None:
        """Encodes jobs that have a known name, data and no options; None if one of them has more, or is wrong."""
        # hot: 0.45 us a job against 1.0 one by one
        if set(map(type, jobs)) != {dict} or set(map(len, jobs)) != {2}:
            return None
        try:
            names = [self._names[job["name"]] for job in jobs]
            data = [job["data"] for job in jobs]
        except (KeyError, TypeError):
            return None
        now_ms, new_id = _now_ms(), _ids.new_id
        ids = [new_id() for _ in data]
        envelopes = encode_new_jobs_if_plain(ids, data, now_ms)
        if envelopes is None or max(map(len, envelopes)) > self._max_payload_bytes:
            return None
        return JobBatch(now_ms, ids, envelopes, names)

    def _check_and_encode_mapping(self, job: Mapping[str, Any]) -> EncodedJob:
        if unknown := job.keys() - BULK_KEYS:
            raise InvalidArgument(f"unknown option {min(unknown, key=str)!r}; known are {', '.join(sorted(BULK_KEYS))}")
        options: Any = dict(job)
        name, data, job_id = options.pop("name"), options.pop("data", None), options.pop("job_id", None)
        return self.check_and_encode(name, data, job_id, options)

    def _warn_once_if_datetime_is_naive(self, at: object) -> None:
        """Warns once: the official package takes a naive datetime for UTC, and most users mean their local time."""
        if not self._has_warned and isinstance(at, datetime) and at.tzinfo is None:
            self._has_warned = True
            log.warning(
                "delay_ms is %s, a datetime without a time zone, and is taken for UTC; "
                "if it is meant, write datetime.now(UTC) or datetime(..., tzinfo=UTC)",
                at.isoformat(),
            )

    def _check_and_cache_name(self, name: Any) -> bytes:
        raw = checks.check_and_encode_job_name(name)
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        self._names[name] = raw
        return raw


def _check_and_encode_timeout_and_expiry(options: JobOptions, add_options: AddOptions) -> bytes:
    """Encodes what travels behind the envelope of a job with these options.

    add_with_options.lua sets the time at its end.
    """
    timeout_ms = check_timedelta_as_ms_or_zero_if_none("timeout", options.get("timeout"))
    extras = {TIMEOUT: timeout_ms} if timeout_ms else {}
    if add_options.expires_ms:
        extras[EXPIRES] = max(_now_ms() + add_options.expires_ms, 2**32)  # eight bytes, also while a clock is at 1970
    return encode_extras(**extras) if extras else b""


def _make_bulk_type_error(position: int, job: object, error: Exception) -> InvalidType:
    """What is wrong with a job of a bulk. The data of a job is not shown."""
    if not isinstance(job, Mapping):
        return InvalidType(f"job {position} of the bulk must be a mapping with a name, not {f'{job!r}'[:200]}")
    if "name" not in job:
        return InvalidType(f"job {position} of the bulk must be a mapping with a name; this one has none")
    return InvalidType(f"job {position} of the bulk: {class_name_of(error)[:100]} was raised as it was encoded")


def make_added_jobs(encoded: JobBatch, jobs: Sequence[Mapping[str, Any]], queue: object) -> list[Job]:
    """Makes the jobs that add_bulk() returns."""
    now_ms = encoded.created_at_ms
    return [
        AddedJob(job_id, job["name"], job.get("data"), 0, now_ms, _queue=queue)
        for job_id, job in zip(encoded.ids, jobs, strict=True)
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
