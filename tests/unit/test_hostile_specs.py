"""Any bytes stored as a repeatable are planned, or refused by a DecodeError, and neither takes long."""

from __future__ import annotations

import random
from time import process_time
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pychasqui._core.fire_plan import GRACE_MS
from pychasqui._core.fire_times import LAST_MS
from pychasqui._redis.repeatables import DueSpec, _read_fire_count_or_minus_one
from pychasqui._wire.lenient import read_time_ms_or_zero
from pychasqui._worker.scheduler import _plan_fires_of_spec
from pychasqui.errors import DecodeError
from tests.support.cases import in_one_test

NOW = 1_800_000_000_000
MAX_S = 0.5  # 0.05 where nothing else runs

numbers = st.sampled_from(
    [None, 0, 1, 2, 1000, 2**31, 2**32 - 1, 2**32, 2**53, 2**63, 2**64 - 1, NOW, LAST_MS - 1, LAST_MS, LAST_MS + 1, -1]
) | st.integers(0, 2**64 - 1)
expressions = st.sampled_from(
    [
        *("* * * * *", "* * * * * *", "0 0 0 1 1 * 5000", "0 0 1 1 *", "0 0 30 2 *", "0 0 29 2 *", "0 0 31 2,4,6 *"),
        *("30,45 2 * 3 SUN#2", "0 0 0 29 2 +SUN#5 4000/4", "@daily", "", "* * * * * * 1", "*/65535 * * * *", "9" * 900),
        *("0 0 15W * *", "0 0 L * +FRI", "0 0 LW * *", "0 * * * * * 2027-5000/401", "\ud83d\ude00 * * * *"),
    ]
)
zones = st.sampled_from(
    [
        *(None, "", "UTC", "+14:00", "-23:59", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Africa/Casablanca"),
        *("Pacific/Kiritimati", "Pacific/Apia", "../../etc/passwd", "\x00", "zone.tab", "a/" * 60, "Europe", "\u00fc"),
    ]
)
patterns: st.SearchStrategy[Any] = st.one_of(
    numbers.map(lambda interval: {"Every": [interval]}),
    st.tuples(expressions, zones).map(lambda pair: {"Cron": list(pair)}),
    st.sampled_from([None, 5, "Every", {}, {"Cron": []}, {"Never": [1]}]),
)
policies: st.SearchStrategy[Any] = st.one_of(
    st.just("Skip"), st.just("FireOnce"), numbers.map(lambda most: {"FireAll": [most]}), st.sampled_from([None, 7, {}])
)
scores = st.floats() | st.sampled_from([0.0, 1.0, float(NOW), NOW - 1e9, 1e308, -1e308, float("inf"), float("-inf")])
counts = st.sampled_from([b"0", b"007", b"-1", b"abc", b"9" * 15, b"9" * 5000, b"1e3", b" 7", b""]) | st.binary(
    max_size=25
)


def decide(due: DueSpec) -> int:
    """How many jobs would be fired; -1 if it is refused."""
    try:
        return sum(len(fires.envelopes) for fires in _plan_fires_of_spec(due, NOW, GRACE_MS, lambda: None))
    except DecodeError:
        return -1


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(patterns, policies, st.tuples(numbers, numbers, numbers), scores, counts, st.binary(max_size=30) | st.just(b""))
def test_any_values_are_planned_or_refused_and_soon(
    pattern: Any, policy: Any, bounds: tuple[Any, ...], score: float, fired: bytes, retry: bytes
) -> None:
    try:
        spec = msgspec.msgpack.encode(["key", "tick", pattern, b"\xc4\x01\x01", *bounds, 0, policy])
    except UnicodeEncodeError:
        return
    due = DueSpec("key", read_time_ms_or_zero(score), spec, _read_fire_count_or_minus_one(fired), retry, len(spec))
    begun = process_time()
    assert -1 <= decide(due) <= 10_000
    assert process_time() - begun < MAX_S + decide(due) / 5000


GOOD = msgspec.msgpack.encode(
    ["key", "tick", {"Cron": ["0 9 * * *", "Asia/Tokyo"]}, b"\xc4\x01\x01", 5, 7, NOW, 0, "FireOnce"]
)


@in_one_test("seed", range(20))
def test_damaged_bytes_are_planned_or_refused_and_soon(seed: int) -> None:
    damage = random.Random(seed)
    for _ in range(200):
        raw = bytearray(GOOD)
        for _ in range(damage.randint(1, 4)):
            raw[damage.randrange(len(raw))] = damage.randrange(256)
        raw = raw[: damage.randint(0, len(raw))] if damage.random() < 0.2 else raw
        begun = process_time()
        assert decide(DueSpec("key", NOW - 10**7, bytes(raw), 0, b"", len(raw))) >= -1
        assert process_time() - begun < MAX_S
