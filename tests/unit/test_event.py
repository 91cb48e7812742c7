"""An event has its fields in the official order, and its texts are bounded."""

from __future__ import annotations

import time

from pychasqui._wire.event import MAX_REASON_CHARS, Event, cut_event_text, read_event


def test_fields_come_in_the_official_order() -> None:
    event = Event("failed", "job-1", "mail", ("attempt", 2, "reason", "boom"), 1234)
    assert event.to_words() == ["e", "failed", "id", "job-1", "ts", 1234, "n", "mail", "attempt", 2, "reason", "boom"]


def test_an_event_without_a_job_name_has_no_field_for_it() -> None:
    assert Event("dlq", "job-1", at_ms=1).to_words() == ["e", "dlq", "id", "job-1", "ts", 1]


def test_an_event_of_no_single_job_has_an_empty_id() -> None:
    assert Event("drained", at_ms=1).to_words() == ["e", "drained", "id", "", "ts", 1]


def test_an_event_without_a_time_happens_when_it_is_written() -> None:
    before = time.time_ns() // 1_000_000
    *_, at_ms = Event("drained").to_words()
    assert before <= int(at_ms) <= time.time_ns() // 1_000_000


def test_a_text_is_cut() -> None:
    assert cut_event_text("x" * 10_000) == "x" * MAX_REASON_CHARS
    assert cut_event_text("short") == "short"


def test_a_text_that_is_no_unicode_can_be_sent() -> None:
    assert cut_event_text("a\ud800b").encode() == b"a\\ud800b"


def test_a_written_event_can_be_read() -> None:
    words = Event("failed", "job-1", "mail", ("attempt", 2, "reason", "7"), 1234).to_words()
    event = read_event([b"5-1", [str(word).encode() for word in words]])
    assert (event.name, event.job_id, event.job_name, event.event_id) == ("failed", "job-1", "mail", "5-1")
    assert event.fields == {"ts": 1234, "attempt": 2, "reason": "7"}


def test_an_event_of_no_job_has_no_job_id() -> None:
    event = read_event([b"5-1", [b"e", b"drained", b"id", b"", b"ts", b"1"]])
    assert (event.name, event.job_id, event.job_name) == ("drained", None, "")


def test_an_entry_of_any_shape_can_be_read() -> None:
    for fields in ([], None, [b"e"], [b"\xff", b"\xfe"], [b"ts", b"soon"], [b"ts", "²".encode()], [b"attempt", b"-1"]):
        event = read_event([b"5-1", fields])
        assert all(isinstance(value, str) for value in event.fields.values())
