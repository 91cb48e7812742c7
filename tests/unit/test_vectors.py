"""pychasqui writes and reads the bytes of docs/reference/vectors.json, and docs/reference/keys.md lists every key."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest

from pychasqui import MissedFiresPolicy, RepeatPattern
from pychasqui._core.outcome import FailedRun
from pychasqui._core.repeat_pattern import RepeatSpec
from pychasqui._core.retry_options import BackoffSpec, RetryOverride
from pychasqui._redis.keys import Keys
from pychasqui._wire.dead_letter import read_dead_letter
from pychasqui._wire.entry import (
    may_hold_uniqueness_key_without_field,
    read_envelope_and_name_or_empty,
    read_job_fields,
)
from pychasqui._wire.envelope import decode_envelope, encode_envelope
from pychasqui._wire.event import (
    Event,
    make_active_event,
    make_completed_without_result_event,
    make_dead_event,
    make_drained_event,
    make_failed_event,
    make_progress_event,
    make_retry_event,
    read_event,
)
from pychasqui._wire.member import make_delayed_member, split_delayed_member
from pychasqui._wire.msgpack import decode_data, encode_data
from pychasqui._wire.repeatable import decode_spec, encode_spec
from pychasqui._wire.worker_record import WorkerInfo, encode_worker, read_worker_record_or_error
from pychasqui.errors import DecodeError
from tests.support.server import PROJECT

REFERENCE = PROJECT / "docs" / "reference"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((REFERENCE / "vectors.json").read_text())


def each(section: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", VECTORS[section], ids=lambda vector: str(vector.get("about", ""))[:60])


def value_of(written: Any) -> Any:
    """JSON has no bytes: {"$bin": hex} stands for them."""
    return bytes.fromhex(written["$bin"]) if isinstance(written, dict) and "$bin" in written else written


def retry_options_of(written: dict[str, Any] | None) -> RetryOverride | None:
    if written is None:
        return None
    backoff = written["backoff"]
    return RetryOverride(written["max_attempts"], None if backoff is None else BackoffSpec(**backoff))


@each("data")
def test_data_has_these_bytes(vector: dict[str, Any]) -> None:
    value, raw = value_of(vector["value"]), bytes.fromhex(vector["hex"])
    assert encode_data(value) == raw
    assert decode_data(raw) == value


@each("envelope")
def test_an_envelope_has_these_bytes(vector: dict[str, Any]) -> None:
    job_id, attempt, created_at_ms = vector["id"], vector["attempt"], vector["created_at_ms"]
    payload, retry, extras = (
        encode_data(vector["data"]),
        retry_options_of(vector["retry"]),
        bytes.fromhex(vector["extras"]),
    )
    raw = bytes.fromhex(vector["hex"])
    assert encode_envelope(job_id, payload, created_at_ms, attempt, retry, extras) == raw
    read = decode_envelope(raw)
    assert (read.id, read.payload, read.created_at_ms) == (job_id, payload, created_at_ms)
    assert (read.attempt, read.retry, read.extras) == (attempt, retry, extras)


@each("envelope_shapes")
def test_an_envelope_of_this_shape_is_read_or_refused(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    if vector["reads"]:
        read = decode_envelope(raw)
        assert (read.id, read.payload, read.created_at_ms, read.attempt, read.retry) == ("j", b"\x07", 5, 0, None)
    else:
        with pytest.raises(DecodeError):
            decode_envelope(raw)


@each("member")
def test_a_delayed_member_has_these_bytes(vector: dict[str, Any]) -> None:
    name, envelope, raw = vector["name"], bytes.fromhex(vector["envelope"]), bytes.fromhex(vector["hex"])
    assert make_delayed_member(name, envelope) == raw
    assert split_delayed_member(raw) == (name, envelope)


@each("entry")
def test_an_entry_with_these_fields_is_this_job(vector: dict[str, Any]) -> None:
    words = [word for name, value in vector["fields"].items() for word in (name.encode(), bytes.fromhex(value))]
    envelope, name = read_envelope_and_name_or_empty([b"1-1", words])
    assert (decode_envelope(envelope).id, name) == (vector["job_id"], vector["name"])
    _, _, has_mark = read_job_fields(words)
    assert (has_mark or may_hold_uniqueness_key_without_field(vector["job_id"])) == vector["may_be_unique"]


@each("dead_letter")
def test_a_dead_letter_with_these_fields_is_read_as_this(vector: dict[str, Any]) -> None:
    fields = {name: value.encode() for name, value in vector["fields"].items()}
    fields["d"] = bytes.fromhex(vector["fields"]["d"])
    letter = read_dead_letter([b"9-1", [word for name, value in fields.items() for word in (name.encode(), value)]])
    assert {name: getattr(letter, name) for name in vector["reads"]} == vector["reads"]
    assert letter.payload == fields["d"]


RUN = FailedRun(1, 100, "err", "LookupError", "no such customer")
EVENTS = [
    make_active_event("j", "mail", 1, 5),
    Event("completed", "j", "mail", ("attempt", 1, "duration_us", 100, "stored", 1), 5),
    make_completed_without_result_event("j", "", 1, 100, "a set cannot be stored", 5),
    make_failed_event("j", "mail", RUN, 5),
    make_retry_event("j", "mail", 2, 100, 5),
    make_dead_event("j", "mail", 1, "unrecoverable", RUN, 5),
    make_dead_event("", "", 0, "malformed", None, 5),
    make_progress_event("j", "mail", 50, ())._replace(at_ms=5),
    make_drained_event()._replace(at_ms=5),
]


def test_events_have_these_words() -> None:
    assert [list(map(str, event.to_words())) for event in EVENTS] == [vector["words"] for vector in VECTORS["event"]]


@each("event")
def test_an_event_of_these_words_is_read(vector: dict[str, Any]) -> None:
    words = vector["words"]
    event = read_event([b"9-1", [word.encode() for word in words]])
    fields = dict(zip(words[::2], words[1::2], strict=True))
    assert (event.name, event.job_id, event.job_name) == (vector["kind"], fields["id"] or None, fields.get("n", ""))
    assert {name: str(value) for name, value in event.fields.items()} == {
        name: value for name, value in fields.items() if name not in ("e", "id", "n")
    }


@each("repeatable")
def test_a_repeatable_has_these_bytes(vector: dict[str, Any]) -> None:
    pattern, missed = vector["pattern"], vector["missed_fires"]
    policies = {"skip": MissedFiresPolicy.skip(), "fire-once": MissedFiresPolicy.fire_once()}
    spec = RepeatSpec(
        key=vector["key"],
        job_name=vector["job_name"],
        pattern=RepeatPattern.every(pattern["every"])
        if "every" in pattern
        else RepeatPattern.cron(pattern["cron"], pattern["tz"]),
        payload=encode_data(vector["data"]),
        limit=vector["limit"],
        start_after_ms=vector["start_after_ms"],
        end_before_ms=vector["end_before_ms"],
        missed_fires=policies.get(missed) or MissedFiresPolicy.fire_all(missed),
    )
    raw = bytes.fromhex(vector["hex"])
    assert encode_spec(spec) == raw
    assert decode_spec(raw) == spec


@each("worker_record")
def test_a_worker_record_has_these_bytes(vector: dict[str, Any]) -> None:
    record, raw = WorkerInfo(**vector["record"]), bytes.fromhex(vector["hex"])
    assert encode_worker(record) == raw
    assert read_worker_record_or_error("w-1", raw) == record


def test_the_page_of_keys_lists_every_key() -> None:
    keys = Keys("q")
    found = [value for value in vars(keys).values() if isinstance(value, str) and value != keys.prefix]
    for name, method in inspect.getmembers(keys, inspect.ismethod):
        if not name.startswith("_"):
            found.append(method(*("<>" for _ in inspect.signature(method).parameters)))
    page = (REFERENCE / "keys.md").read_text()
    listed = set(re.findall(r"`(P:[^`]*)`", re.sub(r"<[^>]*>", "<>", page)))
    by_scripts_alone = {"P:dlid:<>"}
    assert {key.replace(keys.prefix, "P") for key in found} | by_scripts_alone == listed
