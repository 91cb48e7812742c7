"""The record that a worker writes about itself with each renewal of its lease: a MessagePack map."""

from __future__ import annotations

import msgspec

from .._core.printable import printable
from ..errors import DecodeError


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A living worker, by its own record."""

    consumer_id: str
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    busy: int  # handlers that run
    job_ids: list[str]  # the first of those jobs
    error: str | None = None  # why its record cannot be read; then only its name is known, from its lease


MAX_RECORD_BYTES = 65_536
MAX_WORKER_TEXT = 256
encode_worker = msgspec.msgpack.Encoder().encode
_decode_worker = msgspec.msgpack.Decoder(WorkerInfo).decode


def read_worker_record_or_error(name: str, raw: bytes) -> WorkerInfo:
    """Reads a living worker's record, whatever bytes it has. Texts are cut."""
    try:
        if len(raw) > MAX_RECORD_BYTES:
            raise DecodeError(f"its record has {len(raw)} bytes, {MAX_RECORD_BYTES} are allowed")
        record = _decode_worker(raw)
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
        record,
        consumer_id=record.consumer_id[:MAX_WORKER_TEXT],
        host=record.host[:MAX_WORKER_TEXT],
        job_ids=[job_id[:MAX_WORKER_TEXT] for job_id in record.job_ids],
        error=None,
    )
