"""The envelope: a job as it travels, without its name.

    MessagePack array: id, data as bin, created_at_ms, attempt and, only if the job has one, retry override;
    behind it, only if the job has some, a map of extras. Official consumers ignore what follows the array.

Decoding returns a value or raises DecodeError, whatever arrives. No I/O.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import msgspec

from .._core.delivery import Delivery
from .._core.retry_options import RetryFields, RetryOverride, Unsigned32, Unsigned64
from ..errors import DecodeError, InvalidArgument
from .msgpack import DECODER_REFUSALS, decode_data, encode, encode_all_if_plain
from .msgpack_scan import is_map, read_value_end_from_error
from .retry_override import PackedRetry, decode_retry, pack_retry, unpack_retry
from .struct_reader import (
    NIL,
    find_end_of_value,
    read_bytes,
    read_text,
    read_u32,
    read_u64,
    split_struct_into_raw_fields,
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A job as it travels, without its name. `payload` is the data, still encoded."""

    id: str
    payload: bytes
    created_at_ms: Unsigned64
    attempt: Unsigned32 = 0
    retry: RetryOverride | None = None
    extras: bytes = b""  # a map, still encoded


_FIELDS = Envelope.__struct_fields__[:5]  # what the array holds
SNOOZES = "z"  # the extra with the number of times a job was put back by Snooze
PUT_BACKS = "u"  # the extra with the number of times a job was put back because no task of a worker had its name
EXPIRES = "x"  # the extra with the server's time in ms from which on a job is not started; the last one of its map
TIMEOUT = "to"  # the extra with the time that a run may take, in ms
USUAL_FIRST_BYTES = b"\x94\x95"  # of an array of four fields, or of five: with a retry override


def encode_envelope(
    job_id: str, payload: bytes, created_at_ms: int, attempt: int, retry: RetryFields | None, extras: bytes = b""
) -> bytes:
    """Encodes an envelope as every ChasquiMQ producer writes it, and appends the extras."""
    try:
        if retry is None:
            return encode((job_id, payload, created_at_ms, attempt)) + extras
        return encode((job_id, payload, created_at_ms, attempt, pack_retry(retry))) + extras
    except UnicodeEncodeError:
        raise InvalidArgument(f"the job id {job_id!a} has a lone surrogate, which UTF-8 cannot hold") from None


def encode_new_jobs_if_plain(job_ids: list[str], data_items: list[Any], created_at_ms: int) -> list[bytes] | None:
    """Encodes jobs that have only an id of ours and data; None if the data of one must be encoded by encode_data()."""
    payloads = encode_all_if_plain(data_items)
    if payloads is None:
        return None
    # hot: 0.07 us a job, a fifth of what calls of encode_envelope take
    return list(map(encode, zip(job_ids, payloads, repeat(created_at_ms), repeat(0))))


def encode_extras(**extras: Any) -> bytes:
    """Encodes what travels behind the envelope."""
    return encode(extras)


def read_extra_or_none(extras: bytes, name: str) -> Any:
    """Returns one of the extras; None if it is missing, or if what follows the envelope is no map."""
    try:
        return decode_data(extras).get(name)
    except (DecodeError, AttributeError):
        return None


def read_put_back_count(extras: bytes, counter: str = SNOOZES) -> int:
    """Returns how often a job was put back by Snooze or, with PUT_BACKS, because its name was unknown."""
    snoozes = read_extra_or_none(extras, counter) if extras else 0
    return snoozes if type(snoozes) is int and snoozes > 0 else 0


def read_timeout_s_or_zero(extras: bytes) -> float:
    """Returns how long a run of the job may take; 0 if its producer has set no time."""
    if b"to" not in extras:  # hot: a traced job has extras, too, and most jobs have no timeout
        return 0.0
    timeout_ms = read_extra_or_none(extras, TIMEOUT)
    return timeout_ms / 1000 if type(timeout_ms) is int and 0 < timeout_ms < 2**53 else 0.0


def read_expiry_ms_or_none(extras: bytes) -> int | None:
    """Returns the server's time from which on the job is not started; None if it may start at any time."""
    expires_ms = read_extra_or_none(extras, EXPIRES) if b"x" in extras else None
    return expires_ms if type(expires_ms) is int and expires_ms >= 0 else None


def make_extras_of_first_run(extras: bytes) -> bytes:
    """Returns the extras without those that count runs, or end them: a job that is replayed begins from the start."""
    for name in (EXPIRES, SNOOZES, PUT_BACKS):
        if extras and read_extra_or_none(extras, name) is not None:
            extras = set_or_remove_extra(extras, name, None)
    return extras


def insert_extras_before_own(envelope: bytes, more: bytes) -> bytes:
    """Returns an envelope with more extras; those that it has already stay at the end."""
    old = decode_envelope(envelope)
    extras = encode({**decode_data(more), **decode_data(old.extras)}) if old.extras else more
    return encode_envelope(old.id, old.payload, old.created_at_ms, old.attempt, old.retry, extras)


def set_or_remove_extra(extras: bytes, name: str, value: Any) -> bytes:
    """Returns the extras with this one set, or removed if the value is None."""
    try:
        others = dict(decode_data(extras)) if extras else {}
    except (DecodeError, TypeError, ValueError):
        others = {}
    others.pop(name, None)
    if value is not None:
        others[name] = value
    return encode(others) if others else b""


# hot: a Struct decoded as an array is one allocation
decode_usual_delivery = msgspec.msgpack.Decoder(Delivery).decode  # for an envelope that begins with USUAL_FIRST_BYTES
_decode_four = msgspec.msgpack.Decoder(Envelope).decode
_decode_five = msgspec.msgpack.Decoder(tuple[str, bytes, Unsigned64, Unsigned32, PackedRetry | None]).decode


def decode_delivery(raw_envelope: bytes) -> Delivery:
    """Returns a Delivery with the envelope that `raw_envelope` starts with, and the value in its payload."""
    try:
        if raw_envelope[0] in USUAL_FIRST_BYTES:
            delivery = decode_usual_delivery(raw_envelope)
            delivery.data = decode_data(delivery.payload)
            return delivery
    except (IndexError, *DECODER_REFUSALS) as refusal:
        return decode_refused_delivery(raw_envelope, refusal)
    return _make_delivery(decode_envelope(raw_envelope))


def decode_refused_delivery(raw_envelope: bytes, refusal: Exception) -> Delivery:
    """Does what decode_delivery() does with an envelope that decode_usual_delivery() has refused."""
    end = read_value_end_from_error(refusal)
    if end is not None and raw_envelope[0] in USUAL_FIRST_BYTES:
        array, extras = raw_envelope[:end], raw_envelope[end:]
        try:
            delivery = decode_usual_delivery(array)
        except DECODER_REFUSALS:
            pass
        else:
            delivery.data = decode_data(delivery.payload)
            delivery.extras = extras if is_map(extras[0]) else b""
            return delivery
    return _make_delivery(decode_envelope(raw_envelope))


def _make_delivery(envelope: Envelope) -> Delivery:
    own = (envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt, envelope.retry)
    return Delivery(*own, data=decode_data(envelope.payload), extras=envelope.extras)


def decode_envelope(data: bytes) -> Envelope:
    """Returns the envelope that `data` starts with, in any shape that the official consumer accepts."""
    try:
        if data[0] == 0x94:
            return _decode_four(data)
        if data[0] == 0x95:
            return _decode_five_fields(data, b"")
    except (IndexError, *DECODER_REFUSALS) as refusal:
        envelope = _decode_with_extras_or_none(data, refusal)
        if envelope is not None:
            return envelope
    return _decode_unusual(data)


def _decode_five_fields(data: bytes, extras: bytes) -> Envelope:
    job_id, payload, created_at_ms, attempt, retry = _decode_five(data)
    override = None if retry is None else unpack_retry(retry)
    return Envelope(job_id, payload, created_at_ms, attempt, override, extras)


def _decode_with_extras_or_none(data: bytes, refusal: Exception) -> Envelope | None:
    """Decodes the usual array with something behind it; None if it is not that."""
    # hot: 2.1 us, with a retry override 2.8; reading the array field by field takes 22 and 47
    end = read_value_end_from_error(refusal)
    if end is None:
        return None
    array, extras = data[:end], data[end:]
    if not extras or not is_map(extras[0]):
        extras = b""
    try:
        if data[0] == 0x95:
            return _decode_five_fields(array, extras)
        plain = _decode_four(array)
    except DECODER_REFUSALS:
        return None
    return Envelope(plain.id, plain.payload, plain.created_at_ms, plain.attempt, None, extras)


def _decode_unusual(data: bytes) -> Envelope:
    """Decodes the shapes that no known producer writes."""
    fields = split_struct_into_raw_fields(data, "the envelope", _FIELDS, min_array_fields=3)
    for name in ("id", "payload", "created_at_ms"):
        if name not in fields:
            raise DecodeError(f"the envelope has no {name}")
    retry, extras = fields.get("retry", NIL), data[find_end_of_value(data, 0) :]
    return Envelope(
        id=read_text(fields["id"], "id"),
        payload=read_bytes(fields["payload"], "payload"),
        created_at_ms=read_u64(fields["created_at_ms"], "created_at_ms"),
        attempt=read_u32(fields.get("attempt", b"\0"), "attempt"),
        retry=None if retry == NIL else decode_retry(retry),
        extras=extras if extras and is_map(extras[0]) else b"",
    )
