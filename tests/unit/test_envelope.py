"""The bytes of a job, in both directions, held against recordings of the official package and msgpack-python."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import time
import tracemalloc
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from pychasqui._core.retry_options import KINDS, BackoffSpec, RetryOverride, check_and_make_retry_override
from pychasqui._wire import envelope as codec
from pychasqui._wire import msgpack_scan
from pychasqui._wire.entry import decode_name_or_empty
from pychasqui._wire.envelope import (
    Envelope,
    decode_delivery,
    decode_envelope,
    encode_envelope,
    encode_extras,
    encode_new_jobs_if_plain,
    insert_extras_before_own,
    make_extras_of_first_run,
    read_expiry_ms_or_none,
    read_extra_or_none,
    read_timeout_s_or_zero,
)
from pychasqui._wire.member import make_delayed_member, split_delayed_member
from pychasqui._wire.msgpack import decode_data, encode_data
from pychasqui._wire.msgpack_scan import MAX_DEPTH, find_end_of_skipped_value
from pychasqui._wire.retry_override import decode_retry, encode_retry, pack_retry
from pychasqui.errors import DecodeError, InvalidArgument, UnsupportedData
from pychasqui.job import Job
from tests.support.cases import in_one_test

ADA = {"to": "ada"}
LIST = [1, 2.5, None, True]
EVERYTHING = BackoffSpec.exponential(100, multiplier=2.0, max_ms=10000, jitter_ms=25)

# Recorded from the official producer: envelope, then what it was asked for.
WRITTEN = {
    "94a56a6f622d31c40881a2746fa3616461cf000001a1dd76c5f200": ("job-1", ADA, 0x1A1DD76C5F2, None, None),
    "94a56a6f622d32c40881a2746fa3616461cf000001a1dd76c5f300": ("job-2", ADA, 0x1A1DD76C5F3, None, None),
    "95a56a6f622d33c40d9401cb4004000000000000c0c3cf000001a1dd76c5f300"
    "920395ab6578706f6e656e7469616c64cd2710cb400000000000000019": ("job-3", LIST, 0x1A1DD76C5F3, 3, EVERYTHING),
    "95a56a6f622d31c40881a2746fa3616461cf000001a1dd76c5f2009204c0": ("job-1", ADA, 0x1A1DD76C5F2, 4, None),
    "95a56a6f622d31c40881a2746fa3616461cf000001a1dd76c5f20092c095a56669786564cd01f4c0c0c0": (
        *("job-1", ADA, 0x1A1DD76C5F2),
        *(None, 500),
    ),
    "94ba30314d37455144484650515056414b38384458" + "4b304a4e303430c40101cf000001a1dd76c5f200": (
        *("01M7EQDHFPQPVAK88DXK0JN040", 1, 0x1A1DD76C5F2),
        *(None, None),
    ),
    "94a178c50bbbda0bb8" + "78" * 3000 + "cf000001a1dd76c5f200": ("x", "x" * 3000, 0x1A1DD76C5F2, None, None),
}


@pytest.mark.parametrize("recorded", WRITTEN, ids=range(len(WRITTEN)))
def test_an_envelope_is_written_as_the_official_producer_writes_it(recorded: str) -> None:
    job_id, data, created_at_ms, attempts, backoff = WRITTEN[recorded]
    retry = check_and_make_retry_override(attempts, backoff)
    assert encode_envelope(job_id, encode_data(data), created_at_ms, 0, retry).hex() == recorded


@pytest.mark.parametrize("recorded", WRITTEN, ids=range(len(WRITTEN)))
def test_an_envelope_of_the_official_producer_is_read_back(recorded: str) -> None:
    job_id, data, created_at_ms, attempts, backoff = WRITTEN[recorded]
    envelope = decode_envelope(bytes.fromhex(recorded))
    assert envelope == Envelope(
        job_id, encode_data(data), created_at_ms, 0, check_and_make_retry_override(attempts, backoff)
    )
    assert decode_data(envelope.payload) == data


def test_a_multiplier_is_written_as_a_float_even_if_it_is_an_int() -> None:
    retry = RetryOverride(None, BackoffSpec("exponential", 1, multiplier=2))
    assert b"\xcb\x40" + bytes(7) in encode_envelope("j", b"", 0, 0, retry)


def test_a_job_id_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"'\\ud800'"):
        encode_envelope("\ud800", b"", 0, 0, None)


def recorded_verdicts() -> list[Any]:
    lines = Path(__file__).with_name("envelope_verdicts.txt").read_text().splitlines()
    rows = [line.split(" ", 2) for line in lines if not line.startswith("#")]
    return [("" if raw == "empty" else raw, verdict, shape) for raw, verdict, shape in rows]


@in_one_test(("raw", "verdict", "shape"), recorded_verdicts())
def test_every_shape_is_read_as_the_official_consumer_reads_it(raw: str, verdict: str, shape: str) -> None:
    if verdict == "-":
        with pytest.raises(DecodeError, match=r"\w+ .*\w"):
            decode_envelope(bytes.fromhex(raw))
        return
    envelope = decode_envelope(bytes.fromhex(raw))
    retry = envelope.retry
    if retry is not None and retry.backoff is not None and retry.backoff.kind not in KINDS:
        retry = RetryOverride(retry.max_attempts, msgspec.structs.replace(retry.backoff, kind="unknown"))
    written = encode_envelope(envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt, retry)
    assert written.hex() == verdict


@pytest.mark.parametrize("kind", ("weird", "", "Fixed"))
def test_a_kind_of_backoff_that_is_not_known_is_kept_as_it_is(kind: str) -> None:
    written = encode_envelope("j", b"x", 1, 0, RetryOverride(None, BackoffSpec(kind, 5)))
    envelope = decode_envelope(written)
    assert envelope.retry == RetryOverride(None, BackoffSpec(kind, 5))
    assert encode_envelope("j", b"x", 1, 0, envelope.retry) == written


def as_map_with(key: bytes, value: bytes) -> bytes:
    return b"\x84" + key + value + msgpack.packb({"id": "j", "payload": b"x", "created_at_ms": 1})[1:]


@pytest.mark.parametrize(("depth", "is_read"), ((1000, True), (1100, False)))
def test_an_unknown_field_may_be_nested_as_deep_as_the_official_consumer_follows(depth: int, is_read: bool) -> None:
    raw = as_map_with(b"\xa1z", b"\x91" * depth + b"\xc0")
    if is_read:
        assert decode_envelope(raw).id == "j"
    else:
        with pytest.raises(DecodeError, match="nested deeper"):
            decode_envelope(raw)


def test_an_envelope_of_a_thousand_fields_is_not_worth_reading() -> None:
    with pytest.raises(DecodeError, match="a map of 1001, more than 1000"):
        decode_envelope(b"\xde\x03\xe9" + b"\xa1z\xc0" * 1001)


MIB = 2**20


@pytest.mark.parametrize(
    "raw",
    (
        as_map_with(b"\xa1z", b"\xdd" + MIB.to_bytes(4, "big") + b"\x90" * MIB),
        b"\xde\x03\xe8" + (b"\xa1z" + b"\xdc\x04\x00" + b"\x90" * 1024) * 1000,
        b"\x94\xa1a\xdd" + MIB.to_bytes(4, "big") + b"\x7f" * MIB + b"\x01\x00",
        b"\x95\xa1a\xc4\x01\x01\x01\x00\xdd" + MIB.to_bytes(4, "big") + b"\x91\x01" * MIB,
        b"\x84\xa1z\xdd" + MIB.to_bytes(4, "big") + b"\x90" * (MIB - 1),
    ),
    ids=("an unknown field", "a thousand of them", "the payload as ints", "a retry override", "one that is cut short"),
)
def test_an_envelope_of_a_million_values_costs_next_to_nothing(raw: bytes) -> None:
    """0.8 s of them, if each value were looked at here."""
    began = time.process_time()
    with suppress(DecodeError):
        decode_envelope(raw)
    assert time.process_time() - began < 0.15


@pytest.mark.parametrize("rest", (b"", b"\x00", b"\x81\xa1s\x01"))
def test_a_large_value_is_skipped_up_to_its_end(rest: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    value = msgpack.packb([{"k": [n, "x" * 20]} for n in range(10_000)])
    raw = b"\xc0" + value + rest
    assert find_end_of_skipped_value(raw, 1, max_depth=MAX_DEPTH) == 1 + len(value)
    monkeypatch.setattr(msgpack_scan, "_FOLLOWED", "more data at (byte ")  # for any error text of msgspec
    assert find_end_of_skipped_value(raw, 1, max_depth=MAX_DEPTH) == 1 + len(value)


@pytest.mark.parametrize("broken", (b"\xdd\x00\x02\x00\x00" + b"\x90" * 100_000, b"\xdc\xff\xff" + b"\xc1" * 99_999))
def test_a_large_value_that_is_broken_is_refused(broken: bytes) -> None:
    with pytest.raises(DecodeError):
        find_end_of_skipped_value(broken, 0, max_depth=MAX_DEPTH)


def test_a_large_value_that_is_nested_too_deep_is_refused_or_skipped() -> None:
    """How deep msgspec goes by itself is up to the interpreter; it never ends in anything but a DecodeError."""
    raw = b"\x91" * 1_000_000 + b"\x00"
    with suppress(DecodeError):
        assert find_end_of_skipped_value(raw, 0, max_depth=MAX_DEPTH) == len(raw)


@pytest.mark.parametrize("number", (5, 300, 70_000, 2**40, -200, -40_000, -(2**33), 0.5))
@pytest.mark.parametrize("count", (10, 40, 1000))
def test_a_scan_goes_through_runs_of_numbers_as_through_single_ones(number: float, count: int) -> None:
    raw = msgpack.packb([number] * count + ["x", number, [number] * count])
    single = msgpack_scan.Scan(raw, 0, max_depth=9, max_memory_bytes=MIB)
    while not single.advance_and_see_if_ended(1):
        pass
    whole = msgpack_scan.Scan(raw, 0, max_depth=9, max_memory_bytes=MIB)
    assert whole.advance_and_see_if_ended(10**6)
    assert single.end == whole.end == len(raw)
    with pytest.raises(DecodeError, match="cut short"):
        msgpack_scan.scan_to_end_of_value(raw[:-1], 0, max_depth=9, max_memory_bytes=MIB)


def test_a_payload_as_array_of_ints_may_be_long() -> None:
    assert decode_envelope(msgpack.packb(["j", [1, 255] * 500, 1, 0])).payload == b"\x01\xff" * 500


@in_one_test(
    ("raw", "text"),
    (
        (b"", "the envelope is neither an array nor a map"),
        (msgpack.packb(["j", b"x"]), "the envelope is an array of 2, not of 3 to 5"),
        (msgpack.packb(["j", b"x", 1, 0, None, None]), "the envelope is an array of 6, not of 3 to 5"),
        (msgpack.packb([7, b"x", 1, 0]), "id: Expected `str`, got `int`"),
        (msgpack.packb(["j", "x", 1, 0]), "payload: Expected `bytes | array`, got `str`"),
        (msgpack.packb(["j", b"x", 1.5, 0]), "created_at_ms: Expected `int`, got `float`"),
        (msgpack.packb(["j", b"x", 1, 2**32]), "attempt: Expected `int` <= 4294967295"),
        (msgpack.packb(["j", b"x", 1, 0, [-1, None]]), "retry.max_attempts: Expected `int` >= 0"),
        (msgpack.packb(["j", b"x", 1, 0, [1, ["fixed", 5]]]), "backoff is an array of 2, not of 5 to 5"),
        (msgpack.packb({"id": "j", "payload": b"x"}), "the envelope has no created_at_ms"),
        (msgpack.packb(["j", b"x", 1, 0])[:-1], "the MessagePack is cut short"),
        (b"\x94\xa1j\xc1", "the MessagePack has byte 0xc1 where a value should start"),
        (as_map_with(b"\xa2id", b"\xa1k"), "the envelope has id twice"),
        (as_map_with(b"\xc0", b"\xc0"), "a key of the envelope is neither a str nor a bin nor an unsigned int"),
    ),
)
def test_a_refusal_says_what_is_wrong_with_the_envelope(raw: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_envelope(raw)
    assert str(refusal.value) == text


MEMBERS = {
    "0500000077c3b6726b94a5646c792d31c40481a17801cf000001a1dd76c5fa00": ("wörk", "dly-1", 0x1A1DD76C5FA),
    "0000000094a5646c792d32c40481a17801cf000001a1dd76c5fe00": ("", "dly-2", 0x1A1DD76C5FE),
}


@pytest.mark.parametrize("recorded", MEMBERS)
def test_a_delayed_member_is_the_one_of_the_official_producer(recorded: str) -> None:
    name, job_id, created_at_ms = MEMBERS[recorded]
    envelope = encode_envelope(job_id, encode_data({"x": 1}), created_at_ms, 0, None)
    assert make_delayed_member(name, envelope).hex() == recorded
    assert split_delayed_member(bytes.fromhex(recorded)) == (name, envelope)


@pytest.mark.parametrize(
    ("member", "text"),
    (
        (b"", "has 0 bytes, fewer than the 4"),
        (b"\x01\x00\x00", "has 3 bytes, fewer than the 4"),
        (b"\x02\x00\x00\x00a", "has 5 bytes, but its name should end at 6"),
        (b"\xff\xff\xff\xffabc", "has 7 bytes, but its name should end at 4294967299"),
    ),
)
def test_a_member_too_short_for_its_name_is_refused(member: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        split_delayed_member(member)


def test_a_member_may_end_with_its_name_and_leave_an_empty_envelope_to_be_refused() -> None:
    assert split_delayed_member(b"\x01\x00\x00\x00a") == ("a", b"")
    assert split_delayed_member(bytes(4)) == ("", b"")


def test_a_name_that_is_missing_or_not_utf8_is_empty() -> None:
    assert decode_name_or_empty(None) == decode_name_or_empty(b"") == decode_name_or_empty(b"\xff") == ""
    assert decode_name_or_empty("wörk".encode()) == "wörk"
    assert split_delayed_member(b"\x01\x00\x00\x00\xffenvelope") == ("", b"envelope")


def test_a_name_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"'\\ud800'"):
        make_delayed_member("\ud800", b"")


class Colour(enum.IntEnum):
    RED = 1


class Shape(enum.StrEnum):
    ROUND = "round"


class Plain(enum.Enum):
    ONE = 1


class Text(str): ...


class Count(int): ...


class Ratio(float): ...


class Blob(bytes): ...


class Point(NamedTuple):
    x: int
    y: int


class Shouting(dict[str, Any]):
    def items(self) -> Any:
        return {key.upper(): value for key, value in super().items()}.items()


@dataclasses.dataclass
class Order:
    number: int = 1


class Line(msgspec.Struct):
    number: int = 1


@in_one_test(
    "data",
    (
        *(None, True, False, 0, -1, 127, 128, -32, -33, 255, 256, 2**16, 2**32, 2**63, 2**64 - 1, -(2**63)),
        *(0.0, -0.0, 1.5, float("inf"), float("nan"), "", "a" * 31, "a" * 32, "a" * 256, "a" * 70_000, "ü€😀"),
        *(b"", b"x" * 255, b"x" * 256, b"x" * 70_000, bytearray(b"xy"), memoryview(b"xy"), memoryview(b"abcd")[1:3]),
        *([], [1] * 15, [1] * 16, [1] * 70_000, (), (1, (2,)), {}, {str(n): n for n in range(16)}),
        *({1: 2}, {None: 1}, {1.5: 1}, {True: 1}, {b"k": 1}, {(1, ("a",)): 1}, {"a": {"b": [{"c": (1,)}]}}),
        *(Text("x"), Count(7), Ratio(1.5), Ratio("nan"), Blob(b"x"), Point(1, 2), Colour.RED, Shape.ROUND),
        *(collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=[1]), collections.Counter("aab")),
        *(
            [Colour.RED, {Shape.ROUND: Count(3)}],
            {Text("k"): [Blob(b"v")]},
            Shouting(a=1),
            {(Colour.RED,): [Text("v")]},
        ),
    ),
)
def test_data_is_written_byte_for_byte_as_msgpack_python_writes_it(data: Any) -> None:
    assert encode_data(data) == msgpack.packb(data, use_bin_type=True)


NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FOREIGN = (
    *(NOW, NOW.replace(tzinfo=None), NOW.date(), NOW.time(), datetime.timedelta(1), decimal.Decimal("1.5")),
    *(uuid.UUID(int=1), {1, 2}, frozenset({1}), Plain.ONE, Order(), Order, Line(), msgspec.Raw(b"\xc1"), 1j, object()),
    *(msgspec.msgpack.Ext(5, b"x"), msgpack.ExtType(5, b"x"), msgpack.Timestamp(1), collections.deque([1]), range(3)),
    *(..., int, len, iter(()), msgspec.UNSET),
)


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: type(foreign).__name__)
def test_a_value_that_messagepack_cannot_hold_is_refused_at_any_depth(foreign: Any) -> None:
    kind = type(foreign).__qualname__
    for data, path in (
        (foreign, "data"),
        ([0, foreign], r"data\[1\]"),
        ({"a": (foreign,)}, r"data\['a'\]\[0\]"),
        ({"items": [1, 2, 3, {"when": foreign}]}, r"data\['items'\]\[3\]\['when'\]"),
        ([Text("slow way"), {1: [foreign]}], r"data\[1\]\[1\]\[0\]"),
    ):
        with pytest.raises(UnsupportedData, match=rf"^{path} is a {kind}, which MessagePack cannot hold$"):
            encode_data(data)


@pytest.mark.parametrize("foreign", (NOW, uuid.UUID(int=1), frozenset({1}), Plain.ONE, 1j, (1, NOW)))
def test_a_foreign_key_is_refused_with_the_place_of_its_dict(foreign: Any) -> None:
    with pytest.raises(UnsupportedData, match=r"^data\['a'\]\[0\] has the key .* MessagePack cannot hold$"):
        encode_data({"a": [{foreign: 1}]})
    with pytest.raises(UnsupportedData, match=r"^data has the key "):
        encode_data({"a": 1, foreign: 1})


def test_a_refusal_is_the_type_error_that_the_official_package_raises() -> None:
    with pytest.raises(TypeError):
        encode_data({"when": NOW})


@pytest.mark.parametrize("number", (2**64, -(2**63) - 1, 10**400, Count(2**64)))
def test_an_int_beyond_64_bits_is_refused_by_its_path(number: int) -> None:
    with pytest.raises(UnsupportedData, match=r"^data\['a'\]\[0\] is an int beyond the 64 bits of MessagePack$"):
        encode_data({"a": [number]})


def test_a_lone_surrogate_is_refused_by_its_path() -> None:
    with pytest.raises(UnsupportedData, match=r"^data\['a'\] is a str with a lone surrogate"):
        encode_data({"a": "x\ud800"})
    with pytest.raises(UnsupportedData, match=r"^data has the key 'x\\ud800', which is a str with a lone surrogate"):
        encode_data({"x\ud800": 1})


def test_data_that_contains_itself_is_refused_by_the_path_that_leads_back() -> None:
    data: dict[str, Any] = {"a": [1]}
    data["a"] += [data, data]
    with pytest.raises(UnsupportedData, match=r"^data\['a'\]\[1\] contains itself$"):
        encode_data(data)


def test_a_bulk_with_data_that_contains_itself_twice_needs_a_closer_look_within_bounded_memory() -> None:
    data: dict[str, Any] = {"a": []}
    data["a"] += [{"b": data}, {"b": data}]
    tracemalloc.start()
    try:
        assert encode_new_jobs_if_plain(["1", "2"], [{"a": 1}, data], 0) is None
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_a_bulk_with_data_that_shares_many_times_needs_a_closer_look_within_bounded_memory() -> None:
    data: list[Any] = []
    for _ in range(20):
        data = [data, data]
    tracemalloc.start()
    try:
        assert encode_new_jobs_if_plain(["1"], [data], 0) is None
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_the_same_object_twice_is_no_circle() -> None:
    shared = [Text("x")]
    assert encode_data([shared, shared]) == msgpack.packb([shared, shared])


def nested(depth: int, innermost: Any) -> Any:
    for level in range(depth):
        innermost = ([innermost], (innermost,), {"k": innermost})[level % 3]
    return innermost


@pytest.mark.parametrize("innermost", (1, Text("x")))
def test_data_may_be_nested_up_to_the_bound(innermost: Any) -> None:
    data = nested(MAX_DEPTH, innermost)
    encoded = encode_data(data)
    assert encoded == msgpack.packb(data)
    assert encode_data(decode_data(encoded)) == encoded


@pytest.mark.parametrize("innermost", (1, Text("x"), []))
def test_data_nested_deeper_is_refused(innermost: Any) -> None:
    with pytest.raises(UnsupportedData, match=rf"^data\['k'\].*\[...\].* is nested deeper than {MAX_DEPTH} levels$"):
        encode_data(nested(MAX_DEPTH + 1, innermost))


def test_data_nested_beyond_the_stack_is_refused() -> None:
    with pytest.raises(UnsupportedData, match="nested deeper than"):
        encode_data(nested(100_000, 1))


def test_an_object_that_raises_while_it_is_encoded_is_refused_like_any_other() -> None:
    half = Order.__new__(Order)
    del Order.number
    try:
        with pytest.raises(UnsupportedData, match="is a Order"):
            encode_data([half])
    finally:
        Order.number = 1


def test_data_comes_back_as_it_was_except_that_tuples_are_lists() -> None:
    data = {"s": "ü", "b": b"\xff", "n": [None, True, 1, -1, 1.5], "t": (1, (2,)), 5: {None: 0}, (1, 2): 3}
    assert decode_data(encode_data(data)) == data | {"t": [1, [2]]}


def test_the_last_value_of_a_repeated_key_wins() -> None:
    assert decode_data(b"\x82\xa1a\x01\xa1a\x02") == {"a": 2}


def test_a_timestamp_is_decoded_to_a_datetime() -> None:
    assert decode_data(msgpack.packb([NOW], datetime=True)) == [NOW]


@in_one_test(
    ("payload", "text"),
    (
        (b"", "truncated"),
        (b"\x92\x01", "truncated"),
        (b"\x01\x01", "trailing"),
        (b"\xa1\xff", "utf-8"),
        (b"\xc1", "invalid opcode"),
        (b"\x81\x80\x01", "hashable"),
        (b"\x81\x91\x80\x01", "hashable"),
        (b"\xd4\x05\x00", "extension type 5"),
        (b"\x91\xc7\x00\x80", "extension type -128"),
        (b"\xd7\xff" + b"\xff" * 8, "timestamp"),
        (b"\xc7\x0c\xff\0\0\0\0\x7f" + b"\xff" * 7, "out of range"),
        (b"\xdd\xff\xff\xff\xff", "truncated"),
        (b"\xdf\xff\xff\xff\xff", "truncated"),
        (b"\xdb\xff\xff\xff\xff", "truncated"),
        (b"\xc6\xff\xff\xff\xff", "truncated"),
    ),
)
def test_bytes_that_are_not_data_are_refused(payload: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        decode_data(payload)


@pytest.mark.parametrize("attempts", (None, 3))
def test_an_envelope_with_extras_is_read_the_quick_way(attempts: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = encode_extras(t="trace", s=5)
    raw = encode_envelope("j", b"\x01", 5, 1, check_and_make_retry_override(attempts, None), extras)
    monkeypatch.setattr(codec, "_decode_unusual", None)  # ten times as slow, and right for any error text of msgspec
    envelope = decode_envelope(raw)
    assert (envelope.id, envelope.payload, envelope.attempt, envelope.extras) == ("j", b"\x01", 1, extras)
    assert (read_extra_or_none(extras, "t"), read_extra_or_none(extras, "s"), read_extra_or_none(extras, "u")) == (
        "trace",
        5,
        None,
    )


def test_an_envelope_with_extras_is_read_for_any_error_text_of_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgpack_scan, "_FOLLOWED", "more data at (byte ")
    envelope = decode_envelope(encode_envelope("j", b"\x01", 5, 1, None, encode_extras(t="trace")))
    assert read_extra_or_none(envelope.extras, "t") == "trace"


class TestJobsOwnExtras:
    def test_a_time_that_a_run_may_take_is_read_in_seconds(self) -> None:
        assert read_timeout_s_or_zero(encode_extras(to=1500)) == 1.5
        for strange in (0, -1, 2**60, "5", 1.5, None, True):
            assert read_timeout_s_or_zero(encode_extras(to=strange)) == 0
        assert read_timeout_s_or_zero(b"") == read_timeout_s_or_zero(b"\xc1to") == 0

    def test_a_time_at_which_a_job_expires_is_read_and_removed(self) -> None:
        extras = encode_extras(to=5, x=1_700_000_000_000)
        assert read_expiry_ms_or_none(extras) == 1_700_000_000_000
        assert make_extras_of_first_run(extras) == encode_extras(to=5)
        for strange in (-1, "5", 1.5, None, True):
            assert read_expiry_ms_or_none(encode_extras(x=strange)) is None

    def test_a_job_that_begins_from_the_start_has_no_counts_of_its_runs(self) -> None:
        assert make_extras_of_first_run(encode_extras(z=99, t="trace", u=3)) == encode_extras(t="trace")
        assert make_extras_of_first_run(b"") == make_extras_of_first_run(encode_extras(z=99)) == b""

    def test_the_extras_of_a_trace_come_before_those_of_the_job(self) -> None:
        """The script that adds the job writes the time at the end."""
        own = encode_extras(to=5, x=2**40)
        both = insert_extras_before_own(
            encode_envelope("job", b"\xc0", 5, 0, None, own), encode_extras(t="trace", ts="state")
        )
        assert decode_envelope(both).extras == encode_extras(t="trace", ts="state", to=5, x=2**40)
        assert both.endswith((2**40).to_bytes(8, "big"))


class TestExtras:
    """A map behind the envelope, which official consumers pass over."""

    @pytest.mark.parametrize("retry", (None, RetryOverride(3, BackoffSpec("fixed", 5))))
    def test_extras_follow_the_envelope_and_are_read_back(self, retry: RetryOverride | None) -> None:
        plain = encode_envelope("job", b"data", 5, 1, retry)
        extras = encode_extras(s=1_700_000_000_000)
        assert encode_envelope("job", b"data", 5, 1, retry, extras) == plain + msgpack.packb({"s": 1_700_000_000_000})
        envelope = decode_envelope(plain + extras)
        assert msgspec.structs.replace(envelope, extras=b"") == decode_envelope(plain)
        assert read_extra_or_none(envelope.extras, "s") == 1_700_000_000_000

    def test_extras_survive_another_run(self) -> None:
        first = decode_envelope(encode_envelope("job", b"data", 5, 0, None, encode_extras(s=7, other=[1])))
        again = encode_envelope(first.id, first.payload, first.created_at_ms, 1, first.retry, first.extras)
        assert read_extra_or_none(decode_envelope(again).extras, "other") == [1]

    def test_an_envelope_without_extras_has_none(self) -> None:
        envelope = decode_envelope(encode_envelope("job", b"data", 5, 0, None))
        assert (envelope.extras, read_extra_or_none(envelope.extras, "s")) == (b"", None)

    @pytest.mark.parametrize("rest", (b"\x05", b"\x91\x01", b"\xc0", b"\xa1s", b"\xc1", b"rubbish"))
    def test_trailing_bytes_that_are_no_map_are_ignored(self, rest: bytes) -> None:
        plain = encode_envelope("job", b"data", 5, 0, None)
        assert decode_envelope(plain + rest) == decode_envelope(plain)

    @pytest.mark.parametrize("rest", (b"\x81", b"\x81\xa1", b"\xdf\xff\xff\xff\xff", b"\x80\x80", b"\x81\xa1x\xc1"))
    def test_a_map_that_is_broken_or_another_holds_nothing(self, rest: bytes) -> None:
        envelope = decode_envelope(encode_envelope("job", b"data", 5, 0, None) + rest)
        assert (envelope.id, read_extra_or_none(envelope.extras, "s")) == ("job", None)

    def test_a_name_that_is_not_among_them_is_none(self) -> None:
        assert read_extra_or_none(encode_extras(a=1), "s") is None
        assert read_extra_or_none(encode_extras(), "s") is None

    def test_a_job_says_for_when_it_was_fired(self) -> None:
        assert Job("job", "do", None, _extras=encode_extras(s=7)).scheduled_at_ms == 7
        assert Job("job", "do", None).scheduled_at_ms is None

    @pytest.mark.parametrize("strange", ("7", None, [7], 7.5))
    def test_a_strange_scheduled_time_is_none(self, strange: Any) -> None:
        assert Job("job", "do", None, _extras=encode_extras(s=strange)).scheduled_at_ms is None

    @pytest.mark.parametrize("retry", (RetryOverride(None, None), RetryOverride(7, BackoffSpec("fixed", 5, 9, 2.0, 1))))
    def test_an_override_by_itself_is_read_back(self, retry: RetryOverride) -> None:
        assert decode_retry(encode_retry(retry)) == retry

    @pytest.mark.parametrize("wrong", (b"", b"\xc1", b"\x93\x01\xc0\xc0", b"\x92\xa1x\xc0", b"\x05"))
    def test_a_broken_override_is_refused(self, wrong: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_retry(wrong)


@pytest.mark.parametrize("extras", (b"", encode_extras(s=1)))
@pytest.mark.parametrize("retry", (None, RetryOverride(3, None), RetryOverride(None, BackoffSpec("fixed", 5))))
def test_an_envelope_of_a_known_producer_becomes_a_delivery_without_the_slower_decoder(
    retry: RetryOverride | None, extras: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = encode_envelope("job", encode_data({"to": "ada"}), 5, 1, retry, extras)
    monkeypatch.delattr(codec, "decode_envelope")
    delivery = decode_delivery(raw)
    assert (delivery.id, delivery.data, delivery.attempt, delivery.extras) == ("job", {"to": "ada"}, 1, extras)
    assert (delivery.retry and pack_retry(delivery.retry)) == (retry and pack_retry(retry))
