"""Written envelopes are read back; other bytes are refused, without crash, flood or wrong value."""

from __future__ import annotations

import sys
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pychasqui._core.defaults import MAX_PAYLOAD_BYTES
from pychasqui._core.limits import MAX_U32, MAX_U64
from pychasqui._core.retry_options import BackoffSpec, RetryOverride
from pychasqui._wire.envelope import Envelope, _decode_unusual, decode_envelope, encode_envelope
from pychasqui._wire.member import make_delayed_member, split_delayed_member
from pychasqui._wire.msgpack import decode_data, encode_data
from pychasqui._wire.msgpack_scan import MAX_DEPTH, is_map, scan_to_end_of_value
from pychasqui.errors import DecodeError, PayloadTooLarge
from tests.support.cases import in_one_test
from tests.unit.fuzz_envelope import BOMBS, MAX_PEAK, MIB, READABLE, check, filled, inputs, peak_of

TEXT = st.text(st.characters(codec="utf-8"))
INT = st.integers(-(2**63), 2**64 - 1)
SCALAR = st.one_of(st.none(), st.booleans(), INT, st.floats(), TEXT, st.binary())
KEY = st.one_of(TEXT, INT, st.binary(), st.none(), st.tuples(INT, TEXT))
DATA = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(TEXT, inner), st.dictionaries(KEY, inner)
    ),
    max_leaves=30,
)
U32 = st.integers(0, MAX_U32)
U64 = st.integers(0, MAX_U64)
BACKOFF = st.builds(BackoffSpec, TEXT, U64, st.none() | U64, st.none() | st.floats(allow_nan=False), st.none() | U64)
RETRY = st.builds(RetryOverride, st.none() | U32, st.none() | BACKOFF)
ENVELOPE = st.builds(Envelope, TEXT, st.binary(max_size=300), U64, U32, st.none() | RETRY)


def written(envelope: Envelope) -> bytes:
    return encode_envelope(envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt, envelope.retry)


@given(DATA)
@settings(max_examples=60)
def test_any_data_is_written_as_msgpack_python_writes_it(data: Any) -> None:
    assert encode_data(data) == msgpack.packb(data, use_bin_type=True)


@given(DATA)
@settings(max_examples=60)
def test_any_data_that_was_written_is_read_back(data: Any) -> None:
    encoded = encode_data(data)
    assert encode_data(decode_data(encoded)) == encoded


@given(ENVELOPE, st.binary(max_size=9))
@settings(max_examples=60)
def test_any_envelope_that_was_written_is_read_back_before_any_trailing_bytes(envelope: Envelope, rest: bytes) -> None:
    assert decode_envelope(written(envelope)) == envelope
    followed = decode_envelope(written(envelope) + rest)
    assert msgspec.structs.replace(followed, extras=b"") == envelope
    assert followed.extras == (rest if rest and is_map(rest[0]) else b"")


@given(ENVELOPE, st.binary(max_size=9))
@settings(max_examples=60)
def test_trailing_bytes_are_read_the_same_by_both_decoders(envelope: Envelope, rest: bytes) -> None:
    raw = written(envelope) + rest
    assert decode_envelope(raw) == _decode_unusual(raw)


@given(ENVELOPE)
@settings(max_examples=60)
def test_any_envelope_is_the_array_that_msgpack_python_writes(envelope: Envelope) -> None:
    fields: list[Any] = [envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt]
    if envelope.retry is not None:
        backoff = envelope.retry.backoff
        steps = None if backoff is None else [getattr(backoff, field) for field in BackoffSpec.__struct_fields__]
        fields.append([envelope.retry.max_attempts, steps])
    assert written(envelope) == msgpack.packb(fields, use_bin_type=True)


@given(TEXT, st.binary(max_size=100))
@settings(max_examples=60)
def test_any_member_that_was_joined_is_split_again(name: str, envelope: bytes) -> None:
    assert split_delayed_member(make_delayed_member(name, envelope)) == (name, envelope)


@given(st.binary(max_size=60))
@settings(max_examples=100)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    check(raw)


def test_thousands_of_damaged_inputs_are_read_or_refused() -> None:
    for raw in inputs(seed=1, count=8000):
        check(raw)


def test_an_envelope_cut_anywhere_is_refused() -> None:
    whole = encode_envelope("job", b"payload", 1_795_000_000_000, 3, RetryOverride(2, BackoffSpec.exponential(5)))
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_envelope(whole[:end])


# Memory


class Tag(str): ...


# Tracing slows reading down tenfold, so only these are traced here; the script traces all of them. That the others are
# refused, and that the estimate which refuses them is never too low, is tested without it below.
TRACED = ("empty maps", "a list that claims to be longer")


@pytest.mark.parametrize("bomb", TRACED)
def test_a_megabyte_never_takes_more_than_16_megabytes_to_read_or_refuse(bomb: str) -> None:
    assert peak_of(decode_data, BOMBS[bomb]()) <= MAX_PEAK


def test_a_megabyte_would_take_more_than_64_megabytes_without_the_estimate() -> None:
    """A sixteenth of it is traced, and has to take a sixteenth: tracing is slow."""
    bomb = filled(b"\x81\xe0" * 400 + b"\x80", MIB // 16)
    assert len(bomb) <= MIB // 16
    assert peak_of(msgspec.msgpack.decode, bomb) > 4 * MIB
    assert peak_of(refusal_of, BOMBS["chains of maps"]()) < MIB


def refusal_of(bomb: bytes) -> None:
    with pytest.raises(DecodeError, match="more than 15 times that as objects"):
        decode_data(bomb)


def test_an_envelope_of_a_megabyte_never_takes_more_than_16_megabytes() -> None:
    claims_more = BOMBS["lists that claim to be longer"]()
    for envelope in (claims_more, b"\x94\xa1j" + claims_more, b"\x84\xa1z" + claims_more):
        assert peak_of(decode_envelope, envelope) <= MAX_PEAK


@in_one_test("bomb", sorted(BOMBS.keys() - READABLE))
def test_bytes_that_would_grow_too_much_are_refused(bomb: str) -> None:
    with pytest.raises(DecodeError, match=r"more than 15 times that as objects|cut short|nested deeper"):
        decode_data(BOMBS[bomb]())


@pytest.mark.parametrize(
    "data",
    (
        "x" * 1_048_000,
        "ü" * 524_000,
        "x" * 1_048_000 + "😀",
        b"\x80" * 1_048_000,
        [number * 0.1 for number in range(116_000)],
        [{"id": number, "name": f"user {number}", "is_active": True} for number in range(25_000)],
    ),
    ids=("ascii", "latin", "wide", "bytes", "floats", "records"),
)
def test_ordinary_data_of_almost_a_megabyte_is_written_and_read(data: Any) -> None:
    encoded = encode_data(data)
    assert 0.7 * MAX_PAYLOAD_BYTES < len(encoded) <= MAX_PAYLOAD_BYTES
    assert decode_data(encoded) == data


def test_data_that_no_worker_would_read_is_not_written() -> None:
    too_much: tuple[Any, ...] = ([{}] * 1_000_000, {"a": [[]] * 1_000_000}, [-30] * 1_000_000, [Tag("ab")] * 400_000)
    for data in too_much:
        with pytest.raises(PayloadTooLarge, match=r"no worker would decode the data: \d+ bytes .* more than 15 times"):
            encode_data(data)


UNITS = [bytes((first,)) for first in (*range(0x20), *range(0xE0, 0x100), 0x80, 0x90, 0xA0, 0xC0, 0xC3)]
UNITS += [bytes((0x90 | count,)) + bytes(count) for count in range(1, 16)]
UNITS += [bytes((0x80 | count,)) + bytes(range(2 * count)) for count in range(1, 16)]
UNITS += [b"\xdc" + count.to_bytes(2, "big") + bytes(count) for count in (0, 16, 17, 40, 300)]
UNITS += [b"\xde" + count.to_bytes(2, "big") + bytes(range(2 * count)) for count in (0, 1, 16, 21, 22, 42, 43, 63)]
UNITS += [msgpack.packb("a" * length) for length in (1, 2, 3, 8, 31, 32, 300)]
UNITS += [msgpack.packb(text) for text in ("ü", "€", "😀", "ab€", "a€" * 5, "😀a", "a" * 28 + "ü", "a" * 60 + "😀")]
UNITS += [msgpack.packb(b"a" * length) for length in (0, 1, 2, 30, 300)]
UNITS += [msgpack.packb(number) for number in (255, 256, 257, 2**16, 2**32, 2**63, -33, -129, -(2**16), -(2**40), 0.5)]
UNITS += [b"\xd6\xff\0\0\0\1", b"\xd7\xff" + bytes(8), b"\xc7\x0c\xff" + bytes(12), b"\x81\xe0" * 90 + b"\x80"]


def test_the_estimate_of_memory_is_never_below_what_decoding_takes() -> None:
    for unit in UNITS:
        raw = filled(unit, 6_000)
        peak = peak_of(msgspec.msgpack.decode, raw)
        with pytest.raises(DecodeError, match="as objects"):
            scan_to_end_of_value(raw, 0, max_depth=MAX_DEPTH, max_memory_bytes=int(peak * 0.98) - 500)


@given(DATA)
@settings(max_examples=60)
def test_the_end_of_a_value_is_found_without_decoding_it(data: Any) -> None:
    raw = encode_data(data)
    for rest in (b"", b"\xc1"):
        assert scan_to_end_of_value(
            b"\x00" + raw + rest, 1, max_depth=MAX_DEPTH, max_memory_bytes=sys.maxsize
        ) == 1 + len(raw)


# Depth


@pytest.mark.parametrize("unit", (b"\x91", b"\x81\x00", b"\xdc\x00\x01", b"\x92\x00"))
@pytest.mark.parametrize("tail", (b"\x00", b"\xda\xff\xff" + b"x" * 65_535, b"\xdb\x00\x02\x00\x00" + b"x" * 131_072))
def test_nesting_is_bounded_in_payloads_of_every_size(unit: bytes, tail: bytes) -> None:
    decode_data(unit * MAX_DEPTH + tail)
    for depth in (MAX_DEPTH + 1, 600, 5_000, 100_000):
        with pytest.raises(DecodeError, match=r"nested deeper|recursion"):
            decode_data(unit * depth + tail)


def test_a_caller_deep_in_its_own_recursion_gets_the_data_or_a_decode_error() -> None:
    """Up to 3.11 the caller's frames count towards what is left for msgspec; from 3.12 on C code has its own limit."""
    payload = b"\x91" * MAX_DEPTH + b"\x00"

    def descend(levels: int) -> Any:
        return descend(levels - 1) if levels else decode_data(payload)

    levels = sys.getrecursionlimit() - 300
    if sys.version_info >= (3, 12):
        assert encode_data(descend(levels)) == payload
    else:
        with pytest.raises(DecodeError, match="recursion"):
            descend(levels)
