"""Checks the arguments of adds and turns them into what travels. Nothing is sent from here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _ids, config
from .codec import encode_data, encode_envelope, encode_new_jobs
from .errors import ChasquiError, InvalidArgument, InvalidType, PayloadTooLarge
from .job import Job
from .retry import BackoffSpec, retry_override

Backoff = int | BackoffSpec | Mapping[str, Any]
_BULK_KEYS = frozenset({"name", "data", "attempts", "backoff", "job_id"})
MAX_NAMES = 1000  # names are few; whoever makes them up as they go must not fill our memory


@dataclass(slots=True)
class Encoded:
    """Jobs ready to be sent, in columns."""

    created_at_ms: int
    ids: list[str] = field(default_factory=list)
    envelopes: list[bytes] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)

    def cut(self) -> list[Encoded]:
        """Into batches: by count, and by bytes so that no batch swells the server's input buffer."""
        if not self.ids:
            return []
        if len(self.ids) <= config.ADD_BATCH_JOBS and sum(map(len, self.envelopes)) <= config.ADD_BATCH_BYTES:
            return [self]
        batches = [Encoded(self.created_at_ms)]
        size = 0
        for job_id, envelope, name in zip(self.ids, self.envelopes, self.names, strict=True):
            if len(batches[-1].ids) == config.ADD_BATCH_JOBS or size >= config.ADD_BATCH_BYTES:
                batches.append(Encoded(self.created_at_ms))
                size = 0
            batch = batches[-1]
            batch.ids.append(job_id)
            batch.envelopes.append(envelope)
            batch.names.append(name)
            size += len(envelope)
        return batches


class Encoder:
    def __init__(self, max_payload_bytes: int) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._names: dict[str, bytes] = {}  # those that passed their check

    def encode(
        self, name: str, data: Any, attempts: int | None, backoff: Backoff | None, job_id: str | None
    ) -> Encoded:
        """One job."""
        encoded = Encoded(_now_ms())
        self._append(encoded, name, data, attempts, backoff, job_id)
        return encoded

    def encode_all(self, jobs: Sequence[Mapping[str, Any]]) -> Encoded:
        """Each a mapping of add()'s arguments; the error of one that cannot be encoded names its position."""
        encoded = self._encode_columns(jobs)
        if encoded is not None:
            return encoded
        encoded = Encoded(_now_ms())
        position = -1
        try:
            for position, job in enumerate(jobs):  # noqa: B007  used when one fails
                self._append_mapping(encoded, job)
        except ChasquiError as error:
            raise type(error)(f"job {position} of the bulk: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            shown = f"{jobs[position]!r}"[:200] if position >= 0 else repr(jobs)[:200]
            raise InvalidType(f"job {position} of the bulk must be a mapping with a name, not {shown}") from error
        return encoded

    def _encode_columns(self, jobs: Sequence[Mapping[str, Any]]) -> Encoded | None:
        """Jobs that are a known name and data and nothing else; None if one of them is more, or is wrong."""
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
        envelopes = encode_new_jobs(ids, data, now_ms)
        if envelopes is None or max(map(len, envelopes)) > self._max_payload_bytes:
            return None
        return Encoded(now_ms, ids, envelopes, names)

    def _append_mapping(self, encoded: Encoded, job: Mapping[str, Any]) -> None:
        if unknown := job.keys() - _BULK_KEYS:
            raise InvalidArgument(
                f"unknown option {min(unknown, key=str)!r}; known are {', '.join(sorted(_BULK_KEYS))}"
            )
        get = job.get
        self._append(encoded, job["name"], get("data"), get("attempts"), get("backoff"), get("job_id"))

    def _append(
        self,
        encoded: Encoded,
        name: str,
        data: Any,
        attempts: int | None,
        backoff: Backoff | None,
        job_id: str | None,
    ) -> None:
        raw_name = self._names.get(name) if type(name) is str else None
        if raw_name is None:
            raw_name = self._check_name(name)
        job_id = _ids.new_id() if job_id is None else config.check_job_id(job_id)
        retry = None if attempts is None and backoff is None else retry_override(attempts, backoff)
        envelope = encode_envelope(job_id, encode_data(data), encoded.created_at_ms, 0, retry)
        if len(envelope) > self._max_payload_bytes:  # of the whole envelope, because that is what workers measure
            raise PayloadTooLarge(
                f"data makes a job of {len(envelope)} bytes, max_payload_bytes allows {self._max_payload_bytes}"
            )
        encoded.envelopes.append(envelope)
        encoded.names.append(raw_name)
        encoded.ids.append(job_id)

    def _check_name(self, name: Any) -> bytes:
        raw = config.check_job_name(name)
        if len(self._names) >= MAX_NAMES:
            self._names.clear()
        self._names[name] = raw
        return raw


def as_jobs(encoded: Encoded, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
    now_ms = encoded.created_at_ms
    return [Job(job_id, job["name"], job.get("data"), 0, now_ms) for job_id, job in zip(encoded.ids, jobs, strict=True)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
