"""Passes damaged and random bytes to the decoders. They may raise only DecodeError, and decoded values must be right.

    python tests/unit/fuzz_envelope.py --count 1000000 [--seed 7]
    python tests/unit/fuzz_envelope.py --memory

The second traces the memory of megabytes made to grow. The unit tests run a few thousand of the inputs of the first
and the quick ones of the second.
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import msgpack  # type: ignore[import-untyped]
import pytest

from pychasqui._core.defaults import MAX_PAYLOAD_BYTES
from pychasqui._core.delivery import Delivery
from pychasqui._core.retry_options import BackoffSpec, RetryOverride
from pychasqui._core.run_timeouts import RunTimeouts
from pychasqui._wire.envelope import Envelope, decode_delivery, decode_envelope, encode_envelope
from pychasqui._wire.member import make_delayed_member, split_delayed_member
from pychasqui._wire.msgpack import decode_data, encode_data
from pychasqui._wire.retry_override import pack_retry
from pychasqui._worker.decoder import Decoder
from pychasqui._worker.job_stops import JobStops
from pychasqui._worker.server_clock import ServerClock
from pychasqui.errors import DecodeError

PAYLOADS = [
    encode_data(data)
    for data in (
        {"to": "ada@example.org", "subject": "wëlcome", "n": [1, -7, 300, 2**40, 1.5, None, True]},
        [{"a": b"\x00\xff", "b": {"c": {"d": [[], {}, ""]}}}] * 3,
        {1: 2, None: [1] * 20, "k" * 40: "v" * 300, 2.5: b"x" * 20},
        list(range(-40, 300, 7)),
        "text",
    )
]
RETRIES = (
    None,
    RetryOverride(3),
    RetryOverride(None, BackoffSpec("fixed", 500)),
    RetryOverride(2**32 - 1, BackoffSpec("exponential", 100, 10_000, 2.0, 25)),
)
ENVELOPES = [
    encode_envelope("01M7EQDHFPQPVAK88DXK0JN040", payload, 1_795_000_000_000, attempt, retry)
    for payload in PAYLOADS
    for attempt, retry in enumerate(RETRIES)
]
ENVELOPES += [
    msgpack.packb(shape)
    for shape in (
        {"id": "j", "payload": b"x", "created_at_ms": 5, "attempt": 1, "retry": {"max_attempts": 3}},
        {0: b"j", b"payload": [1, 2], 2: 5, "zz": [{}], "retry": [3, {"kind": 1, "delay_ms": 5}]},
        ["j", [1, 2, 3], 5, 0, [None, [{"fixed": None}, 5, 6, 2, 7]]],
        ["j", b"x", 5],
    )
]
MEMBERS = [make_delayed_member(name, envelope) for name in ("", "wörk", "x" * 256) for envelope in ENVELOPES[:8]]
HEADS = bytes(range(0x80, 0xE0))


def inputs(seed: int, count: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    valid = PAYLOADS + ENVELOPES + MEMBERS
    for _ in range(count):
        if rng.random() < 0.2:
            yield rng.randbytes(rng.randrange(40))
        elif rng.random() < 0.2:
            yield bytes(rng.choices(HEADS + b"\x00\x01\x02a\xff", k=rng.randrange(1, 30)))
        else:
            yield damage(rng, rng.choice(valid), rng.choice(valid))


def damage(rng: random.Random, victim: bytes, other: bytes) -> bytes:
    raw = bytearray(victim)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        where = rng.randrange(len(raw) + 1)
        match rng.randrange(7):
            case 0 if raw:
                raw[where - 1] ^= 1 << rng.randrange(8)
            case 1 if raw:
                raw[where - 1] = rng.choice(HEADS)
            case 2:
                raw[where:where] = rng.randbytes(rng.randrange(1, 6))
            case 3:
                del raw[where : where + rng.randrange(1, 6)]
            case 4:
                del raw[where:]
            case 5:
                raw[where:] = other[rng.randrange(len(other)) :]
            case _:
                raw[where:where] = rng.choice((b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")) + rng.randbytes(4)
    return bytes(raw)


def check(raw: bytes) -> list[str]:
    """Decodes `raw` in every way, and returns the kind of result by name."""
    return [check_data(raw), check_envelope(raw), check_member(raw)]


def check_data(raw: bytes) -> str:
    try:
        value = decode_data(raw)
    except DecodeError:
        assert may_refuse(raw), raw.hex()
        return "data refused"
    try:
        witness = msgpack.unpackb(raw, strict_map_key=False, timestamp=3)
    except TypeError:  # msgpack-python reads an array as a list even where it is a key, and cannot
        assert "(" in repr(value), (raw.hex(), value)
    else:
        # Of the nanoseconds of a timestamp, one rounds and the other cuts off.
        assert repr(value) == repr(witness) or "datetime" in repr(value), (raw.hex(), value, witness)
    return "data read"


def may_refuse(raw: bytes) -> bool:
    """Does msgpack-python refuse it too, or is there an extension in it?"""
    extensions: list[Any] = []
    try:
        msgpack.unpackb(raw, strict_map_key=False, ext_hook=lambda *extension: extensions.append(extension))
    except (ValueError, TypeError, OverflowError, OSError, msgpack.UnpackException):
        return True
    return bool(extensions) or any(first in raw for first in b"\xc7\xd6\xd7")


def check_envelope(raw: bytes) -> str:
    try:
        envelope = decode_envelope(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_delivery(raw)
        return "envelope refused"
    check_delivery(raw, envelope)
    fields = (envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt, envelope.retry, envelope.extras)
    written = encode_envelope(*fields)
    again = decode_envelope(written)
    assert repr(again) == repr(envelope), (raw.hex(), envelope, again)
    return "envelope read"


def check_delivery(raw: bytes, envelope: Envelope) -> None:
    """What a worker decodes in one step is what decode_envelope() and decode_data() return."""
    try:
        data = decode_data(envelope.payload)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode_delivery(raw)
        return
    delivery = decode_delivery(raw)
    assert shared_fields(delivery) == shared_fields(envelope), raw.hex()
    assert repr(delivery.data) == repr(data), raw.hex()
    assert (delivery.name, delivery.entry_id, delivery.may_be_unique, delivery.is_decoded) == ("", b"", False, True)
    check_decoded_entry(raw, envelope, delivery)


def shared_fields(decoded: Delivery | Envelope) -> list[Any]:
    """The fields of an envelope, a retry override as plain values: a NaN in it is no reason to differ."""
    own = (decoded.id, decoded.payload, decoded.created_at_ms, decoded.attempt, decoded.extras)
    return [*own, repr(decoded.retry and pack_retry(decoded.retry))]


def check_decoded_entry(raw: bytes, envelope: Envelope, expected: Delivery) -> None:
    """The worker's decoder, which has the steps of decode_delivery() written out, returns the same Delivery."""
    decoded = DECODER.decode_put_off_or_settle_entries([[b"1-0", [b"d", raw, b"n", b"mail"]]], 0)
    (job,) = decoded or [EXHAUSTED.pop()]
    assert (job.entry_id, job.name if job.is_decoded else "mail") == (b"1-0", "mail")
    if job.is_decoded:  # one that may expire, or is large, is decoded when it is to start
        assert (shared_fields(job), repr(job.data)) == (shared_fields(expected), repr(expected.data)), raw


def fail_because_not_run(*what: object) -> None:
    raise AssertionError(f"a job that is to run was settled: {what}")


EXHAUSTED: list[Delivery] = []
DECODER = Decoder(
    max_payload_bytes=MAX_PAYLOAD_BYTES,
    max_attempts=2**33,
    stops=JobStops(RunTimeouts()),
    server_clock=ServerClock(cast(Any, None)),
    on_rejected=fail_because_not_run,
    on_exhausted=EXHAUSTED.append,  # by the number of attempts in the envelope
    on_expired=fail_because_not_run,
    on_cancelled=fail_because_not_run,
)


def check_member(raw: bytes) -> str:
    try:
        name, envelope = split_delayed_member(raw)
    except DecodeError:
        return "member refused"
    if name:
        assert make_delayed_member(name, envelope) == raw
    return check_envelope(envelope) + " in member"


MIB = MAX_PAYLOAD_BYTES
MAX_PEAK = 16_000_000


def filled(unit: bytes, size: int = MIB) -> bytes:
    """An array of as many `unit` as fit."""
    count = (size - 5) // len(unit)
    return b"\xdd" + count.to_bytes(4, "big") + unit * count


def peak_of(decode: Callable[[bytes], Any], raw: bytes) -> int:
    """The most memory that was in use while `raw` was read or refused."""
    tracemalloc.start()
    with suppress(DecodeError):
        decode(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def large_map(key: Callable[[int], bytes], value: bytes) -> bytes:
    count = (MIB - 5) // len(key(0) + value)
    return b"\xdf" + count.to_bytes(4, "big") + b"".join(key(number) + value for number in range(count))


BOMBS: dict[str, Callable[[], bytes]] = {
    "empty maps": lambda: filled(b"\x80"),
    "maps of one entry": lambda: filled(b"\x81\x00\x00"),
    "maps of maps of empty maps": lambda: filled(b"\x81\x00\x81\x00\x80"),
    "chains of maps": lambda: filled(b"\x81\xe0" * 400 + b"\x80"),
    "maps of eleven entries": lambda: filled(b"\x8b" + bytes(range(22))),
    "empty lists": lambda: filled(b"\x90"),
    "lists of one": lambda: filled(b"\x91\x00"),
    "tuples as keys": lambda: filled(b"\x81\x91\x00\x00"),
    "strs of two characters": lambda: filled(b"\xa2ab"),
    "strs of a wide character": lambda: filled(b"\xa4\xf0\x9f\x98\x80"),
    "ints of 16 bits": lambda: filled(b"\xcd\xff\xff"),
    "ints of 8 bits": lambda: filled(b"\xd0\x80"),
    "negative ints of 5 bits": lambda: filled(b"\xe0"),
    "timestamps": lambda: filled(b"\xd6\xff\x00\x00\x00\x01"),
    "a map of ints": lambda: large_map(lambda number: b"\xce" + number.to_bytes(4, "big"), b"\x00"),
    "a map of tuples": lambda: large_map(
        lambda number: b"\x93" + bytes((number >> 14, number >> 7 & 127, number & 127)), b"\x80"
    ),
    "a list that claims to be longer": lambda: b"\xdd\xff\xff\xff\xff" + bytes(MIB - 5),
    "a map that claims to be longer": lambda: b"\xdf\xff\xff\xff\xff" + bytes(MIB - 5),
    "lists that claim to be longer": lambda: b"\xdd\xff\xff\xff\xff" * (MIB // 5),
    "a str that claims to be longer": lambda: b"\xdb\xff\xff\xff\xff" + bytes(MIB - 5),
    "lists in lists": lambda: b"\x91" * MIB,
    "maps in maps": lambda: b"\x81\x00" * (MIB // 2),
    "ints": lambda: filled(b"\x00"),
    "words": lambda: filled(b"\xa4abcd"),
    "short of the scan": lambda: filled(b"\x81\xe0\x81\xe0\x80", 98_000),
}
READABLE = {"ints of 16 bits", "timestamps", "ints", "words", "a map of ints", "short of the scan"}


def trace_bombs() -> None:
    for name, build in BOMBS.items():
        raw = build()
        peaks = [peak_of(decode_data, raw), peak_of(decode_envelope, b"\x94\xa1j" + raw + b"\x00\x00")]
        print(f"  {name:34} {peaks[0]:>10} {peaks[1]:>10}")
        assert max(peaks) <= MAX_PEAK, name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="trace the memory that bombs take, instead")
    arguments = parser.parse_args()
    if arguments.memory:
        trace_bombs()
        return
    outcomes: Counter[str] = Counter()
    started = time.perf_counter()
    for raw in inputs(arguments.seed, arguments.count):
        try:
            outcomes.update(check(raw))
        except BaseException:
            print("failed on", raw.hex())
            raise
    print(f"{arguments.count} inputs in {time.perf_counter() - started:.0f} s")
    for outcome, times in sorted(outcomes.items()):
        print(f"  {outcome:28} {times:>9}")


if __name__ == "__main__":
    main()
