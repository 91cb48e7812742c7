"""The fields of a dead letter, written and read.

    d           the envelope of the run that failed, or the bytes that stood in its place
    n           the job's name, if it has one
    source_id   the job's entry id in the stream
    reason      retries_exhausted, unrecoverable, decode_failed, malformed, oversize_payload, expired
    detail      why the entry could not become a job
    raw         the entry's fields in hex, if it had none called d
    attempts    how many runs the job had
    error_type, error, traceback   what the last run raised
    worker      the consumer that buried it

Official workers write d, n, source_id, reason and detail. bury.lua writes d and n itself if the worker has no bytes of
the entry, and bury_repeatable.lua writes the letter of a repeatable that cannot be fired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .._core.delivery import Delivery
from .._core.limits import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS, MAX_U32
from ..errors import DecodeError
from .entry import ENVELOPE, NAME, Entry, decode_name_or_empty
from .envelope import decode_envelope, encode_envelope, make_extras_of_first_run
from .lenient import LATEST_MS, read_cut_text, read_entry_id, read_first_pairs, read_int
from .msgpack import decode_data

MAX_TYPE_CHARS = 200


class LastError(NamedTuple):
    """What the last run raised."""

    kind: str
    text: str
    traceback: str


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A dead letter: the job as it was, and why it is dead."""

    dlq_id: str
    source_id: str
    reason: str
    name: str
    job_id: str | None  # None if the envelope cannot be decoded
    attempts: int | None  # how often it was run; None if an official worker buried it
    detail: str | None
    error_type: str | None
    error: str | None
    traceback: str | None = field(repr=False)
    worker: str | None
    payload: bytes = field(repr=False)  # the envelope, or the bytes that stood in its place
    words: tuple[bytes, ...] = field(
        default=(), repr=False
    )  # all fields as they were read: name, value, name, value...

    @property
    def died_at(self) -> datetime:
        """The server's time in the letter's id; an id beyond the year 9999 counts as its end."""
        return datetime.fromtimestamp(min(read_entry_id(self.dlq_id)[0], LATEST_MS - 999) / 1000, UTC)

    @property
    def data(self) -> Any:
        """The job's data; raises DecodeError if it cannot be decoded."""
        return decode_data(decode_envelope(self.payload).payload)

    def replayed(self, data: bytes | None = None) -> bytes:
        """Returns the envelope of a first run, with the same data or other; raises DecodeError."""
        old = decode_envelope(self.payload)
        payload, extras = old.payload if data is None else data, make_extras_of_first_run(old.extras)
        return encode_envelope(old.id, payload, old.created_at_ms, 0, old.retry, extras)


def encode_dead_letter(job: Delivery, reason: str, error: LastError | None, runs: int, worker: str) -> list[bytes]:
    """Writes the letter of a job: the official fields first, then what went wrong."""
    attempt = min(job.attempt, MAX_U32)
    envelope = encode_envelope(job.id, job.payload, job.created_at_ms, attempt, job.retry, job.extras)
    # hot: 0.3 us less than a list that grows word by word
    name = (NAME, job.name.encode()) if job.name else ()
    last = () if error is None else _encode_error_fields(error)
    head = (b"source_id", job.entry_id, b"reason", reason.encode(), b"attempts", b"%d" % runs)
    return [ENVELOPE, envelope, *name, *head, *last, b"worker", worker.encode()]


def _encode_error_fields(error: LastError) -> tuple[bytes, ...]:
    return (
        b"error_type",
        _cut_and_encode_text(error.kind, MAX_TYPE_CHARS),
        b"error",
        _cut_and_encode_text(error.text, MAX_ERROR_CHARS),
        b"traceback",
        _cut_and_encode_text(error.traceback, MAX_TRACEBACK_CHARS),
    )


def encode_letter_of_rejected_entry(
    entry_id: bytes, fields: list[bytes] | None, reason: str, detail: str, worker: str
) -> list[bytes]:
    """Writes the letter of an entry that could not become a job, with its bytes and name as they were.

    `fields` is None if the entry was too large to be read; bury.lua then copies d and n from the entry.
    """
    pairs = dict(zip((fields or [])[::2], (fields or [])[1::2], strict=False))
    letter = [b"", b""] if fields is None else [ENVELOPE, pairs.get(ENVELOPE, b"")]
    if pairs.get(NAME):
        letter += (NAME, pairs[NAME])
    letter += (
        b"source_id",
        entry_id,
        b"reason",
        reason.encode(),
        b"detail",
        _cut_and_encode_text(detail, MAX_ERROR_CHARS),
    )
    if ENVELOPE not in pairs and pairs:
        letter += (b"raw", b" ".join(word.hex().encode() for word in (fields or []))[:MAX_TRACEBACK_CHARS])
    return [*letter, b"attempts", b"0", b"worker", worker.encode()]


def read_dead_letter(entry: Entry) -> DeadJob:
    """Reads any entry of the dead letters. Texts are cut; the payload is not, because it is the job itself."""
    fields = read_first_pairs(entry[1])

    def read_text_field(name: bytes) -> str | None:
        return read_cut_text(fields.get(name))

    payload = fields.get(ENVELOPE, b"")
    try:
        job_id = decode_envelope(payload).id
    except DecodeError:
        job_id = None
    return DeadJob(
        dlq_id=entry[0].decode(),
        source_id=read_text_field(b"source_id") or "",
        reason=read_text_field(b"reason") or "",
        name=decode_name_or_empty(fields.get(NAME)),
        job_id=job_id,
        attempts=read_int(fields.get(b"attempts")),
        detail=read_text_field(b"detail"),
        error_type=read_text_field(b"error_type"),
        error=read_text_field(b"error"),
        traceback=read_text_field(b"traceback"),
        worker=read_text_field(b"worker"),
        payload=payload,
        words=tuple(entry[1]) if isinstance(entry[1], list) else (),
    )


def encode_letter_as_read_or_changed(letter: DeadJob) -> list[bytes]:
    """Writes a letter that was read before, as it was; one that was changed since, from its attributes."""
    if letter.words and read_dead_letter([letter.dlq_id.encode(), list(letter.words)]) == letter:
        return list(letter.words)
    fields = [ENVELOPE, letter.payload]
    if letter.name:
        fields += (NAME, letter.name.encode("utf-8", "backslashreplace"))
    fields += (
        b"source_id",
        _cut_and_encode_text(letter.source_id, MAX_TYPE_CHARS),
        b"reason",
        _cut_and_encode_text(letter.reason, MAX_TYPE_CHARS),
    )
    if letter.attempts is not None:
        fields += (b"attempts", b"%d" % letter.attempts)
    texts = {"detail": MAX_ERROR_CHARS, "error_type": MAX_TYPE_CHARS, "error": MAX_ERROR_CHARS}
    for name, chars in {**texts, "traceback": MAX_TRACEBACK_CHARS, "worker": MAX_TYPE_CHARS}.items():
        if (text := getattr(letter, name)) is not None:
            fields += (name.encode(), _cut_and_encode_text(text, chars))
    return fields


def _cut_and_encode_text(text: str, chars: int) -> bytes:
    return text[:chars].encode("utf-8", "backslashreplace")
