"""Each reader returns a value or raises one of pychasqui's own errors for any content of Redis."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections import Counter
from importlib import import_module
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pychasqui import _wire
from pychasqui._wire.worker_record import WorkerInfo, encode_worker, read_worker_record_or_error
from tests.unit.fuzz_readers import check, entries

FIELDS = st.none() | st.lists(st.binary(max_size=40), max_size=12)


def test_thousands_of_damaged_entries_are_read_or_refused() -> None:
    outcomes = Counter(outcome for case in entries(seed=1, count=1000) for outcome in check(*case))
    # Each reader has met both kinds, so that neither is a matter of luck.
    for name in ("delayed", "result", "spec", "retry", "hello", "delivery"):
        assert outcomes[f"{name} read"] > 0, name
    for name in ("result", "spec", "retry", "hello", "delivery"):
        assert outcomes[f"{name} refused"] > 0, name
    for name in ("letter", "event", "view", "search", "worker", "line", "rejected", "override", "extras", "unique"):
        assert outcomes[f"{name} refused"] == 0, name


def wire_readers() -> set[str]:
    """Everything in _wire that is named as a reader of bytes, but what the decoder of jobs calls behind a check."""
    found = set[str]()
    for module in pkgutil.iter_modules(_wire.__path__, f"{_wire.__name__}."):
        for name, value in vars(import_module(module.name)).items():
            is_own = inspect.isfunction(value) and value.__module__ == module.name
            if is_own and name.startswith(("read_", "decode_", "split_")):
                found.add(name)
    return found - {"read_job_fields"}  # the decoder catches whatever it raises: tests/unit/fuzz_envelope.py


def test_every_reader_of_the_wire_is_fuzzed() -> None:
    called = set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code.co_name)

    cases = list(entries(seed=1, count=300))
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for case in cases:
            check(*case)
    finally:
        sys.setprofile(before)
    assert wire_readers() - called == set()


@given(FIELDS, st.binary(max_size=100), st.floats(allow_nan=False))
@settings(max_examples=200)
def test_any_fields_and_bytes_are_read_or_refused(fields: list[bytes] | None, raw: bytes, score: float) -> None:
    check([b"1-1", fields], raw, score)


def test_a_workers_own_record_is_read_as_it_was_written() -> None:
    worker = WorkerInfo(consumer_id="w", host="h", pid=7, started_at_ms=5, concurrency=3, busy=1, job_ids=["a", "b"])
    assert read_worker_record_or_error("w", encode_worker(worker)) == worker
    assert b"error" not in encode_worker(worker)


@pytest.mark.parametrize("raw", (b"", b"\xc1", b"\x91" * 60_000, b"x" * 100_000, b"\x81\xabconsumer_id\xa2\xff\xfe"))
def test_a_record_that_cannot_be_read_has_the_name_of_its_lease_and_an_error(raw: bytes) -> None:
    worker = read_worker_record_or_error("w", raw)
    assert worker.consumer_id == "w"
    assert worker.error
