"""The bytes of a repeatable: those of the official producers, in any shape that the official engine takes."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pychasqui import DecodeError, InvalidArgument, MissedFiresPolicy, RepeatPattern
from pychasqui._core.repeat_pattern import RepeatSpec
from pychasqui._wire.repeatable import decode_spec, encode_spec
from tests.support.cases import in_one_test

DATA = bytes.fromhex("81a17001")  # {"p": 1}
every, cron = RepeatPattern.every, RepeatPattern.cron
fire_once, fire_all = MissedFiresPolicy.fire_once, MissedFiresPolicy.fire_all


def spec(pattern: RepeatPattern, **options: Any) -> RepeatSpec:
    return RepeatSpec(**{"job_name": "tick", "payload": DATA, "pattern": pattern, **options})


def text(value: str) -> str:
    return value.encode().hex()


# Written by the official package, version 1.3.0.
WRITTEN = (
    (
        spec(every(60_000)),
        f"98 b1 {text('tick::every:60000')} a4 {text('tick')} 81 a5 {text('Every')} 91 cdea60"
        " c4 06 c4 04 81 a170 01 c0 c0 c0 00",
    ),
    (
        spec(every(70_000), limit=5),
        f"98 b1 {text('tick::every:70000')} a4 {text('tick')} 81 a5 {text('Every')} 91 ce00011170"
        " c4 06 c4 04 81 a170 01 05 c0 c0 00",
    ),
    (
        spec(cron("0 9 * * *", "America/New_York"), missed_fires=fire_once()),
        f"99 d925 {text('tick::cron:0 9 * * *:America/New_York')} a4 {text('tick')}"
        f" 81 a4 {text('Cron')} 92 a9 {text('0 9 * * *')} b0 {text('America/New_York')}"
        f" c4 06 c4 04 81 a170 01 c0 c0 c0 00 a8 {text('FireOnce')}",
    ),
    (
        spec(
            cron("*/5 * * * *"),
            limit=5,
            start_after_ms=0x1A1E26A9C00,
            end_before_ms=0x1D1A94A1FFF,
            missed_fires=fire_all(7),
        ),
        f"99 ba {text('tick::cron:*/5 * * * *:UTC')} a4 {text('tick')}"
        f" 81 a4 {text('Cron')} 92 ab {text('*/5 * * * *')} c0"
        f" c4 06 c4 04 81 a170 01 05 cf 000001a1e26a9c00 cf 000001d1a94a1fff 00 81 a7 {text('FireAll')} 91 07",
    ),
)


@pytest.mark.parametrize(("repeatable", "written"), WRITTEN)
def test_the_bytes_are_the_official_ones(repeatable: RepeatSpec, written: str) -> None:
    assert encode_spec(repeatable).hex() == written.replace(" ", "")
    assert decode_spec(bytes.fromhex(written.replace(" ", ""))) == repeatable


def test_a_name_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="surrogate"):
        encode_spec(spec(every(5), job_name="\ud800"))


# Shapes that no producer is known to write, but that the official engine lists and fires.

PAYLOAD = msgpack.packb(DATA)
USUAL = ["k", "tick", {"Every": [60_000]}, PAYLOAD, None, None, None, 0]
NAMES = ("key", "job_name", "pattern", "payload", "limit", "start_after_ms", "end_before_ms", "fired", "missed_fires")
NAMED = dict(zip(NAMES, USUAL, strict=False))
LEAST = {name: NAMED[name] for name in NAMES[:4]}


def usual(**changes: Any) -> list[Any]:
    return list({**NAMED, **changes}.values())


@in_one_test(
    ("value", "changes"),
    (
        (USUAL, {}),
        (USUAL[:7], {}),
        ([*USUAL, "Skip"], {}),
        ([*USUAL, {"Skip": None}], {}),
        ([*USUAL, "FireOnce"], {"missed_fires": fire_once()}),
        ([*USUAL, {"FireOnce": None}], {"missed_fires": fire_once()}),
        ([*USUAL, 1], {"missed_fires": fire_once()}),
        ([*USUAL, {"FireAll": [3]}], {"missed_fires": fire_all(3)}),
        ([*USUAL, {"FireAll": {"max_catchup": 3}}], {"missed_fires": fire_all(3)}),
        ([*USUAL, {2: [3]}], {"missed_fires": fire_all(3)}),
        ([*USUAL, {"FireAll": [0]}], {}),
        (usual(fired=7), {}),
        (usual(limit=0), {}),
        (usual(limit=2**64 - 1), {"limit": 2**64 - 1}),
        (usual(start_after_ms=5, end_before_ms=2**64 - 1), {"start_after_ms": 5, "end_before_ms": 2**64 - 1}),
        (usual(key=b"k", job_name=b"tick"), {}),
        (usual(key=""), {"key": "tick::every:60000"}),
        (usual(job_name=""), {"job_name": ""}),
        (usual(payload=list(PAYLOAD)), {}),
        (usual(payload=msgpack.packb(list(DATA))), {}),
        (usual(payload=PAYLOAD + b"more"), {}),
        (usual(pattern={"Every": {"interval_ms": 60_000}}), {}),
        (usual(pattern={1: [60_000]}), {}),
        (usual(pattern={"Every": [2**64 - 1]}), {"pattern": every(2**64 - 1)}),
        (usual(pattern={0: ["@daily", None]}), {"pattern": cron("@daily")}),
        (usual(pattern={b"Cron": [b"@daily", b"UTC"]}), {"pattern": cron("@daily", "UTC")}),
        (usual(pattern={"Cron": {"expression": "@daily"}}), {"pattern": cron("@daily")}),
        (usual(pattern={"Cron": {"expression": "@daily", "tz": "Z", "x": 1}}), {"pattern": cron("@daily", "Z")}),
        (NAMED, {}),
        (LEAST, {}),
        ({**LEAST, "other": [1, {"x": 2}]}, {}),
        ({**LEAST, "missed_fires": "FireOnce"}, {"missed_fires": fire_once()}),
        (dict(enumerate(USUAL)), {}),
    ),
)
def test_unusual_shapes_are_read(value: Any, changes: dict[str, Any]) -> None:
    assert decode_spec(msgpack.packb(value)) == spec(**{"pattern": every(60_000), "key": "k", **changes})


def test_trailing_bytes_are_ignored_and_ints_may_be_wide() -> None:
    expected = spec(every(60_000), key="k")
    assert decode_spec(msgpack.packb(USUAL) + b"more") == expected
    assert decode_spec(msgpack.packb(USUAL)[:-1] + b"\xcf" + bytes(8)) == expected


def test_bytes_in_an_old_str_are_read_if_they_are_not_text() -> None:
    raw = msgpack.packb(USUAL).replace(b"\xc4\x06" + PAYLOAD, b"\xa6" + PAYLOAD)
    assert decode_spec(raw) == spec(every(60_000), key="k")


@in_one_test(
    "value",
    (
        *(None, 5, "abc", [], {}, USUAL[:6], [*USUAL, "Skip", 0]),
        *([*USUAL, None], [*USUAL, "Foo"], [*USUAL, "FireAll"], [*USUAL, {"FireAll": [-1]}], [*USUAL, {"FireAll": 3}]),
        *([*USUAL, {"Skip": None, "FireOnce": None}], [*USUAL, {"Skip": 5}], [*USUAL, 3], [*USUAL, {2: [2**32]}]),
        *(usual(key=5), usual(key=b"\xff"), usual(key=None), usual(job_name=["x"])),
        *(usual(limit=-1), usual(limit=1.0), usual(limit="1"), usual(limit=True), usual(end_before_ms=2**63 * -1)),
        *(usual(pattern="Every"), usual(pattern=["Every", [5]]), usual(pattern={"Every": 5}), usual(pattern={})),
        *(usual(pattern={"Every": [5, 6]}), usual(pattern={"Every": [-1]}), usual(pattern={"Every": [5.0]})),
        *(usual(pattern={"Every": [0]}), usual(pattern={"Every": {}}), usual(pattern={"Weekly": [5]})),
        *(
            usual(pattern={"Cron": ["@daily"]}),
            usual(pattern={"Cron": [5, None]}),
            usual(pattern={"Cron": ["x", None]}),
        ),
        *(usual(pattern={"Cron": ["@daily", "Mars"]}), usual(pattern={"Cron": ["@daily", 5]})),
        *(usual(payload=None), usual(payload="abc"), usual(payload=b""), usual(payload=b"\xc0"), usual(payload=[256])),
        usual(payload=msgpack.packb({"p": 1})),  # as a typed Rust producer writes it: no worker of ours could read it
        {name: NAMED[name] for name in NAMES[:3]},
        dict.fromkeys(range(5000)),
    ),
)
def test_a_spec_that_could_not_be_fired_is_refused(value: Any) -> None:
    with pytest.raises(DecodeError):
        decode_spec(msgpack.packb(value))


def test_a_field_given_twice_is_refused() -> None:
    twice = msgpack.packb(NAMED).replace(msgpack.packb("job_name"), msgpack.packb("key"))
    with pytest.raises(DecodeError, match="key twice"):
        decode_spec(twice)


# Properties

expressions = st.sampled_from(["@daily", "*/5 * * * *", "0 0 L * FRI#2"])
zones = st.sampled_from([None, "", "Z", "+02:00", "Europe/Berlin"])
patterns = st.one_of(st.integers(1, 2**64 - 1).map(every), st.builds(cron, expressions, zones))
unsigned = st.none() | st.integers(0, 2**64 - 1)
policies = st.one_of(
    st.just(MissedFiresPolicy.skip()), st.just(fire_once()), st.integers(1, 2**32 - 1).map(MissedFiresPolicy.fire_all)
)
specs = st.builds(
    RepeatSpec,
    job_name=st.text(st.characters(codec="utf-8"), max_size=40),
    pattern=patterns,
    payload=st.binary(max_size=400),
    key=st.text(st.characters(codec="utf-8"), max_size=40),
    limit=st.none() | st.integers(1, 2**64 - 1),
    start_after_ms=unsigned,
    end_before_ms=unsigned,
    missed_fires=policies,
)


@given(specs)
def test_a_repeatable_comes_back_as_it_was_and_msgpack_agrees(repeatable: RepeatSpec) -> None:
    encoded = encode_spec(repeatable)
    assert decode_spec(encoded) == repeatable
    value = msgpack.unpackb(encoded)
    assert value[:2] == [repeatable.key, repeatable.job_name]
    assert msgpack.unpackb(value[3]) == repeatable.payload
    assert len(value) == (8 if repeatable.missed_fires.kind == "skip" else 9)
    assert msgpack.packb(value) == encoded


def is_read_or_refused(data: bytes) -> bool:
    """A spec that is read can be written and read again; errors other than DecodeError pass through."""
    try:
        repeatable = decode_spec(data)
    except DecodeError:
        return True
    return decode_spec(encode_spec(repeatable)) == repeatable


@settings(max_examples=150)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_repeatable_or_a_decode_error(data: bytes) -> None:
    assert is_read_or_refused(data)


@settings(max_examples=150)
@given(specs, st.data())
def test_damaged_bytes_are_a_repeatable_or_a_decode_error(repeatable: RepeatSpec, data: st.DataObject) -> None:
    encoded = bytearray(encode_spec(repeatable))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    assert is_read_or_refused(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
texts = st.text(max_size=8)
values = st.recursive(
    scalars | texts | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(0, 9), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.lists(values | st.sampled_from(USUAL), min_size=7, max_size=9), st.booleans())
def test_any_values_are_a_repeatable_or_a_decode_error(fields: list[Any], keyed: bool) -> None:
    value = dict(zip(NAMES, fields, strict=False)) if keyed else fields
    assert is_read_or_refused(msgpack.packb(value))
