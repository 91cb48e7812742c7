"""Entries become deliveries. What cannot be read, or has used up its attempts, is dead here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._redis.replies import Entry
from ..codec import decode_job, decode_name
from ..errors import DecodeError
from .delivery import Delivery
from .outcomes import runs_allowed

# An id that is not 26 capital letters and digits was given by a user. One that looks like a ULID is said to be so by
# the field u, which official promoters drop.
ULID_CHARS = 26
MAX_NAMES = 1000


class Decoder:
    def __init__(
        self,
        *,
        max_payload_bytes: int,
        max_attempts: int,
        on_rejected: Callable[[bytes, int, list[bytes] | None, str, str], None],
        on_exhausted: Callable[[Delivery], None],
    ) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._max_attempts = max_attempts
        self._on_rejected = on_rejected
        self._on_exhausted = on_exhausted
        self._names: dict[bytes | None, str] = {}

    def decode(self, entries: list[Entry], deliveries: int) -> list[Delivery]:
        """Those of them that are to run; `deliveries` is how often they were delivered before."""
        jobs: list[Delivery] = []
        names, max_bytes, max_attempts = self._names, self._max_payload_bytes, self._max_attempts
        for entry_id, fields in entries:
            try:
                # hot: the two shapes that every known producer writes, else a search by field name
                if len(fields) == 4 and fields[0] == b"d" and fields[2] == b"n":
                    raw, raw_name, is_marked = fields[1], fields[3], False
                else:
                    raw, raw_name, is_marked = _find_fields(fields)
                if len(raw) > max_bytes:
                    self._on_rejected(entry_id, deliveries + 1, fields, "oversize_payload", f"{len(raw)} bytes")
                    continue
                envelope, data = decode_job(raw)
            except DecodeError as error:
                self._on_rejected(entry_id, deliveries + 1, fields, "decode_failed", str(error))
                continue
            except (LookupError, TypeError):
                self._on_rejected(entry_id, deliveries + 1, fields, "malformed", "missing or non-bytes payload field")
                continue
            name = names.get(raw_name)
            if name is None:
                name = self._remember_name(raw_name)
            attempt, job_id = envelope.attempt + deliveries, envelope.id
            is_marked = is_marked or len(job_id) != ULID_CHARS or not (job_id.isupper() and job_id.isalnum())
            job = Delivery(
                job_id,
                name,
                data,
                attempt,
                envelope.created_at_ms,
                envelope.retry,
                envelope.payload,
                entry_id,
                deliveries,
                envelope.extras,
                is_marked,
            )
            if (attempt >= max_attempts or job.retry is not None) and attempt >= runs_allowed(job, max_attempts):
                self._on_exhausted(job)
            else:
                jobs.append(job)
        return jobs

    def _remember_name(self, raw: bytes | None) -> str:
        if len(self._names) >= MAX_NAMES:  # names are few; whoever makes them up as they go must not fill our memory
            self._names.clear()
        name = self._names[raw] = decode_name(raw)
        return name


def _find_fields(fields: list[Any]) -> tuple[bytes, bytes | None, bool]:
    """The envelope, the name and whether the id is marked, in whatever order; raises if there is no envelope."""
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return pairs[b"d"], pairs.get(b"n"), b"u" in pairs
