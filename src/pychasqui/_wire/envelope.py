"""The bytes of a job: its data, the envelope around it, and the member of the delayed set around that.

    data      MessagePack of what the user put in
    envelope  MessagePack array: id, data as bin, created_at_ms, attempt and, only if the job has one, retry override;
              behind it, only if the job has some, a map of extras. Official consumers ignore what follows the array.
    member    u32 little-endian length of the name, the name, the envelope

Nothing else knows these bytes. Whatever arrives, decoding returns a value or raises DecodeError. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Annotated, Any, TypeVar

import msgspec

from ..errors import DecodeError, InvalidArgument
from ..retry import KINDS, BackoffSpec, RetryOverride, Unsigned32, Unsigned64
from .entry import decode_name
from .msgpack import (
    DECODER_REFUSALS,
    MAX_DEPTH,
    decode_data,
    decode_scanned,
    decode_unchecked,
    encode,
    encode_data,
    encode_plain,
    is_array,
    is_map,
    position_behind,
    read_head,
    scan_of,
    skip_value,
)

__all__ = [
    "MAX_DEPTH",
    "Envelope",
    "decode_data",
    "decode_envelope",
    "decode_job",
    "decode_retry",
    "decode_scanned",
    "encode_data",
    "encode_envelope",
    "encode_extras",
    "encode_new_jobs",
    "encode_retry",
    "join_member",
    "read_extra",
    "scan_of",
    "split_member",
]


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A job as it travels, without its name. `payload` is the data, still encoded."""

    id: str
    payload: bytes
    created_at_ms: Unsigned64
    attempt: Unsigned32 = 0
    retry: RetryOverride | None = None
    extras: bytes = b""  # a map, still encoded


_FIELDS = Envelope.__struct_fields__[:5]  # what the array holds


def encode_envelope(
    job_id: str, payload: bytes, created_at_ms: int, attempt: int, retry: RetryOverride | None, extras: bytes = b""
) -> bytes:
    """The envelope as every ChasquiMQ producer writes it, and the extras behind it."""
    try:
        if retry is None:
            return encode((job_id, payload, created_at_ms, attempt)) + extras
        override = (retry.max_attempts, _pack_backoff(retry.backoff))
        return encode((job_id, payload, created_at_ms, attempt, override)) + extras
    except UnicodeEncodeError:
        raise InvalidArgument(f"the job id {job_id!a} has a lone surrogate, which UTF-8 cannot hold") from None


def encode_extras(**extras: Any) -> bytes:
    """What travels behind the envelope."""
    return encode(extras)


def read_extra(extras: bytes, name: str) -> Any:
    """One of the extras; None if there is none, or if whatever follows the envelope holds none."""
    try:
        return decode_data(extras).get(name)
    except (DecodeError, AttributeError):
        return None


def encode_new_jobs(job_ids: list[str], items: list[Any], created_at_ms: int) -> list[bytes] | None:
    """The envelopes of jobs with nothing but an id of ours and data; None if the data of one needs a closer look."""
    payloads = encode_plain(items)
    if payloads is None:
        return None
    # hot: 0.07 us a job, a fifth of what calls of encode_envelope take
    return list(map(encode, zip(job_ids, payloads, repeat(created_at_ms), repeat(0))))


def encode_retry(retry: RetryOverride) -> bytes:
    """A retry override by itself, as it stands in an envelope."""
    return encode((retry.max_attempts, _pack_backoff(retry.backoff)))


def decode_retry(data: bytes) -> RetryOverride:
    return _read_retry(data)


def _pack_backoff(backoff: BackoffSpec | None) -> tuple[object, ...] | None:
    if backoff is None:
        return None
    multiplier = None if backoff.multiplier is None else float(backoff.multiplier)
    return (backoff.kind, backoff.delay_ms, backoff.max_delay_ms, multiplier, backoff.jitter_ms)


# hot: a Struct decoded as an array is one allocation; only envelopes with a retry override go through tuples.
_Backoff = tuple[str, Unsigned64, Unsigned64 | None, float | None, Unsigned64 | None]
_Retry = tuple[Unsigned32 | None, _Backoff | None]
_decode_four = msgspec.msgpack.Decoder(Envelope).decode
_decode_five = msgspec.msgpack.Decoder(tuple[str, bytes, Unsigned64, Unsigned32, _Retry | None]).decode


def decode_envelope(data: bytes) -> Envelope:
    """The envelope that `data` starts with, in any of the shapes that the official consumer accepts."""
    try:
        if data[0] == 0x94:
            return _decode_four(data)
        if data[0] == 0x95:
            return _from_five(data, b"")
    except (IndexError, *DECODER_REFUSALS) as refusal:
        envelope = _decode_with_extras(data, refusal)
        if envelope is not None:
            return envelope
    return _decode_unusual(data)


def decode_job(data: bytes) -> tuple[Envelope, Any]:
    """The envelope that `data` starts with, and the value in its payload."""
    try:
        # hot: 0.1 us; what is of the usual shape and cannot be too deep or too large needs no other look
        if data[0] == 0x94:
            envelope = _decode_four(data)
            if len(payload := envelope.payload) <= MAX_DEPTH:
                return envelope, decode_unchecked(payload)
    except (IndexError, *DECODER_REFUSALS):
        pass
    envelope = decode_envelope(data)
    return envelope, decode_data(envelope.payload)


def _from_five(data: bytes, extras: bytes) -> Envelope:
    job_id, payload, created_at_ms, attempt, retry = _decode_five(data)
    override = None if retry is None else _unpack_retry(retry)
    return Envelope(job_id, payload, created_at_ms, attempt, override, extras)


def _decode_with_extras(data: bytes, refusal: Exception) -> Envelope | None:
    """The usual array with something behind it; None if it is not that."""
    # hot: 2.1 us, with a retry override 2.8; to go through the array by hand takes 22 and 47
    end = position_behind(refusal)
    if end is None:
        return None
    array, extras = data[:end], data[end:]
    if not extras or not is_map(extras[0]):
        extras = b""
    try:
        if data[0] == 0x95:
            return _from_five(array, extras)
        plain = _decode_four(array)
    except DECODER_REFUSALS:
        return None
    return Envelope(plain.id, plain.payload, plain.created_at_ms, plain.attempt, None, extras)


def _unpack_retry(retry: _Retry) -> RetryOverride:
    max_attempts, backoff = retry
    return RetryOverride(max_attempts, None if backoff is None else BackoffSpec(*backoff))


# The shapes that no producer is known to write but that the official consumer reads: structs as maps, keyed by name
# (str or bin) or by position; the id as bin; the payload as an array of small ints, or as a str if it is not UTF-8; the
# kind of backoff as a number, or as a map of itself to nil; heads not in their shortest form; anything after the end.

_T = TypeVar("_T")
_read_str = msgspec.msgpack.Decoder(str).decode
_read_bytes = msgspec.msgpack.Decoder(bytes).decode
_read_bytes_or_ints = msgspec.msgpack.Decoder(bytes | list[Annotated[int, msgspec.Meta(ge=0, le=255)]]).decode
_read_u32 = msgspec.msgpack.Decoder(Unsigned32).decode
_read_u64 = msgspec.msgpack.Decoder(Unsigned64).decode
_read_u32_or_nil = msgspec.msgpack.Decoder(Unsigned32 | None).decode
_read_u64_or_nil = msgspec.msgpack.Decoder(Unsigned64 | None).decode
_read_float_or_nil = msgspec.msgpack.Decoder(float | None).decode
_NIL = b"\xc0"
# A struct has five fields; looking at each key of a map that fills a megabyte would take a second.
_MAX_KEYS = 1000
# What is skipped may be nested as deep as the official consumer follows it.
_MAX_ODD_DEPTH = 1024


def _decode_unusual(data: bytes) -> Envelope:
    fields = _fields(data, "the envelope", _FIELDS, fewest=3)
    for name in ("id", "payload", "created_at_ms"):
        if name not in fields:
            raise DecodeError(f"the envelope has no {name}")
    retry = fields.get("retry", _NIL)
    return Envelope(
        id=_read_id(fields["id"]),
        payload=_read_payload(fields["payload"]),
        created_at_ms=_read(_read_u64, fields["created_at_ms"], "created_at_ms"),
        attempt=_read(_read_u32, fields.get("attempt", b"\0"), "attempt"),
        retry=None if retry == _NIL else _read_retry(retry),
        extras=_read_extras(data),
    )


def _read_extras(data: bytes) -> bytes:
    """What follows the envelope, if it is a map; anything else there is passed over."""
    extras = data[_end(data, 0) :]
    return extras if extras and is_map(extras[0]) else b""


def _read_id(raw: bytes) -> str:
    if not _is_bin(raw[0]):
        return _read(_read_str, raw, "id")
    try:
        return _read(_read_bytes, raw, "id").decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"id: {error}") from error


def _read_payload(raw: bytes) -> bytes:
    if _is_str(raw[0]):
        content = raw[read_head(raw, 0)[0] :]
        try:
            content.decode()
        except UnicodeDecodeError:  # written by something that has only one type for text and bytes
            return content
    return bytes(_read(_read_bytes_or_ints, raw, "payload"))


def _read_retry(raw: bytes) -> RetryOverride:
    fields = _fields(raw, "retry", RetryOverride.__struct_fields__, fewest=2)
    backoff = fields.get("backoff", _NIL)
    return RetryOverride(
        max_attempts=_read(_read_u32_or_nil, fields.get("max_attempts", _NIL), "retry.max_attempts"),
        backoff=None if backoff == _NIL else _read_backoff(backoff),
    )


def _read_backoff(raw: bytes) -> BackoffSpec:
    fields = _fields(raw, "backoff", BackoffSpec.__struct_fields__, fewest=5)
    for name in ("kind", "delay_ms"):
        if name not in fields:
            raise DecodeError(f"backoff has no {name}")
    return BackoffSpec(
        kind=_read_kind(fields["kind"]),
        delay_ms=_read(_read_u64, fields["delay_ms"], "backoff.delay_ms"),
        max_delay_ms=_read(_read_u64_or_nil, fields.get("max_delay_ms", _NIL), "backoff.max_delay_ms"),
        multiplier=_read(_read_float_or_nil, fields.get("multiplier", _NIL), "backoff.multiplier"),
        jitter_ms=_read(_read_u64_or_nil, fields.get("jitter_ms", _NIL), "backoff.jitter_ms"),
    )


def _read_kind(raw: bytes) -> str:
    if is_map(raw[0]):
        key_start, count = read_head(raw, 0)
        key_end = _end(raw, key_start)
        if count != 1 or raw[key_end:] != _NIL:
            raise DecodeError("backoff.kind is a map, but not of one kind to nil")
        raw = raw[key_start:key_end]
    return _read_label(raw, KINDS, "backoff.kind")


def _fields(data: bytes, what: str, names: tuple[str, ...], *, fewest: int) -> dict[str, bytes]:
    """The fields of a struct that was written as an array or a map, each still encoded."""
    keyed = is_map(data[0]) if data else False
    if not keyed and not (data and is_array(data[0])):
        raise DecodeError(f"{what} is neither an array nor a map")
    position, count = read_head(data, 0)
    if keyed and count > _MAX_KEYS:
        raise DecodeError(f"{what} is a map of {count}, more than {_MAX_KEYS}")
    if not keyed and not fewest <= count <= len(names):
        raise DecodeError(f"{what} is an array of {count}, not of {fewest} to {len(names)}")
    fields: dict[str, bytes] = {}
    for index in range(count):
        if keyed:
            start, position = position, _end(data, position)
            name = _read_label(data[start:position], names, f"a key of {what}")
        else:
            name = names[index]
        start, position = position, _end(data, position)
        if name in fields:
            raise DecodeError(f"{what} has {name} twice")
        if name in names:
            fields[name] = data[start:position]
    return fields


def _read_label(raw: bytes, names: tuple[str, ...], what: str) -> str:
    """A name written as str or bin, or as its position among `names`; whatever it is, it need not be one of them."""
    first = raw[0]
    if first < 0x80 or 0xCC <= first <= 0xCF:
        index = _read(_read_u64, raw, what)
        return names[index] if index < len(names) else "unknown"
    if _is_str(first) or _is_bin(first):
        return raw[read_head(raw, 0)[0] :].decode(errors="replace")
    raise DecodeError(f"{what} is neither a str nor a bin nor an unsigned int")


def _is_str(first: int) -> bool:
    return 0xA0 <= first < 0xC0 or 0xD9 <= first < 0xDC


def _is_bin(first: int) -> bool:
    return 0xC4 <= first < 0xC7


def _read(decode: Callable[[bytes], _T], raw: bytes, what: str) -> _T:
    try:
        return decode(raw)
    except DECODER_REFUSALS as error:
        raise DecodeError(f"{what}: {error}") from error


def _end(data: bytes, start: int) -> int:
    return skip_value(data, start, max_depth=_MAX_ODD_DEPTH)


def join_member(name: str, envelope: bytes) -> bytes:
    """The member of the delayed set for a job of that name."""
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the name {name!a} has a lone surrogate, which UTF-8 cannot hold") from None
    return len(raw).to_bytes(4, "little") + raw + envelope


def split_member(member: bytes) -> tuple[str, bytes]:
    """Name and envelope of a member of the delayed set."""
    if len(member) < 4:
        raise DecodeError(f"the delayed member has {len(member)} bytes, fewer than the 4 of its name's length")
    end = 4 + int.from_bytes(member[:4], "little")
    if end > len(member):
        raise DecodeError(f"the delayed member has {len(member)} bytes, but its name should end at {end}")
    return decode_name(member[4:end]), member[end:]
