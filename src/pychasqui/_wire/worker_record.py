"""The record under which a worker shows itself: what it writes with each renewal of its lease, and how it is read."""

from __future__ import annotations

import msgspec

from .._core.printable import printable
from ..errors import DecodeError


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker, as it tells of itself with each renewal of its lease."""

    consumer_id: str
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    busy: int  # handlers that run
    job_ids: list[str]  # the first of those jobs
    error: str | None = None  # its record cannot be read; only its name is known, by its lease


MAX_RECORD_BYTES = 65_536
MAX_WORKER_TEXT = 256
encode_worker = msgspec.msgpack.Encoder().encode
_decode_worker = msgspec.msgpack.Decoder(WorkerInfo).decode


def read_worker(name: str, raw: bytes) -> WorkerInfo:
    """A living worker's record, whatever stands in it. Its texts are cut."""
    try:
        if len(raw) > MAX_RECORD_BYTES:
            raise DecodeError(f"its record has {len(raw)} bytes, {MAX_RECORD_BYTES} are allowed")
        told = _decode_worker(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return WorkerInfo(
            consumer_id=name[:MAX_WORKER_TEXT],
            host="",
            pid=0,
            started_at_ms=0,
            concurrency=0,
            busy=0,
            job_ids=[],
            error=printable(str(error)),
        )
    return msgspec.structs.replace(
        told,
        consumer_id=told.consumer_id[:MAX_WORKER_TEXT],
        host=told.host[:MAX_WORKER_TEXT],
        job_ids=[job_id[:MAX_WORKER_TEXT] for job_id in told.job_ids],
        error=None,
    )
