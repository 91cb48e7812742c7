"""A dead letter has the official fields first, keeps what went wrong within bounds, and can be read back."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.delivery import Delivery
from pychasqui._core.failure import read_failure
from pychasqui._core.limits import MAX_ERROR_CHARS, MAX_TRACEBACK_CHARS
from pychasqui._core.retry_options import RetryOverride
from pychasqui._wire.dead_letter import LastError, encode_dead_letter, encode_letter_of_rejected_entry, read_dead_letter
from pychasqui._wire.envelope import decode_envelope
from pychasqui._worker.lanes import Lanes
from tests.support.jobs import failed_job
from tests.support.worker_parts import make_shared


def letter_of(job: Delivery, reason: str, error: BaseException | None, runs: int, worker: str) -> list[bytes]:
    if error is None:
        return encode_dead_letter(job, reason, None, runs, worker)
    failure = read_failure(error)
    last_error = LastError(failure.error_type, failure.text, failure.format_traceback())
    return encode_dead_letter(job, reason, last_error, runs, worker)


def fields_of(letter: list[bytes]) -> dict[bytes, bytes]:
    assert len(letter) % 2 == 0
    assert all(type(word) is bytes for word in letter)
    names = letter[::2]
    assert len(names) == len(set(names)), "a field stands twice"
    return dict(zip(names, letter[1::2], strict=True))


async def failure_of(handler: Any) -> BaseException:
    """The error as a lane sees it, with the engine's own frames above the handler's."""
    failures: list[BaseException] = []
    lanes = Lanes(
        handler,
        make_shared(),
        on_start=None,
        on_done=lambda *_: None,
        on_failed=lambda _, error: failures.append(error),
        decode_or_settle=AsyncMock(),
        is_abandoned=bool,
    )
    lanes.start()
    lanes.put_and_wake([failed_job()])
    await lanes.wait_until_all_ran()
    await lanes.stop()
    return failures[0]


async def failing(_: Delivery) -> None:
    await asyncio.sleep(0)
    raise LookupError("no such customer: ünknown")


class TestDeadLetter:
    async def test_the_official_fields_come_first_and_in_their_order(self) -> None:
        letter = letter_of(failed_job(attempt=2), "retries_exhausted", await failure_of(failing), 3, "w-1")
        assert letter[::2] == [
            b"d", b"n", b"source_id", b"reason", b"attempts", b"error_type", b"error", b"traceback", b"worker",
        ]  # fmt: skip
        fields = fields_of(letter)
        assert fields[b"n"] == b"mail"
        assert fields[b"source_id"] == b"5-1"
        assert fields[b"reason"] == b"retries_exhausted"
        assert fields[b"attempts"] == b"3"
        assert fields[b"worker"] == b"w-1"

    def test_the_envelope_holds_the_attempt_of_the_run_that_failed(self) -> None:
        letter = fields_of(letter_of(failed_job(attempt=2, retry=RetryOverride(3)), "unrecoverable", None, 3, "w"))
        envelope = decode_envelope(letter[b"d"])
        assert (envelope.id, envelope.attempt, envelope.retry) == ("job-1", 2, RetryOverride(3))

    def test_a_job_without_a_name_has_no_field_for_it(self) -> None:
        assert b"n" not in fields_of(letter_of(failed_job(name=""), "unrecoverable", None, 1, "w"))

    def test_a_letter_without_an_error_has_no_fields_for_it(self) -> None:
        fields = fields_of(letter_of(failed_job(), "retries_exhausted", None, 3, "w"))
        assert not fields.keys() & {b"error", b"error_type", b"traceback"}

    async def test_type_and_text_of_the_error_are_kept(self) -> None:
        fields = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(failing), 1, "w"))
        assert fields[b"error_type"] == b"LookupError"
        assert fields[b"error"] == "no such customer: ünknown".encode()

    async def test_the_traceback_names_the_line_that_failed_and_none_of_ours(self) -> None:
        trace = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(failing), 1, "w"))[
            b"traceback"
        ].decode()
        assert trace.startswith("Traceback (most recent call last):\n")
        assert 'raise LookupError("no such customer: ünknown")' in trace
        assert trace.endswith("LookupError: no such customer: ünknown\n")
        assert "_worker" not in trace

    async def test_the_traceback_shows_the_cause(self) -> None:
        async def chained(_: None) -> None:
            try:
                raise KeyError("the first")
            except KeyError as error:
                raise LookupError("the second") from error

        trace = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(chained), 1, "w"))[b"traceback"]
        assert b"the first" in trace
        assert b"direct cause" in trace
        assert trace.endswith(b"LookupError: the second\n")

    async def test_the_traceback_shows_notes(self) -> None:
        error = LookupError("x")
        error.add_note("and this is why")
        trace = fields_of(letter_of(failed_job(), "unrecoverable", error, 1, "w"))[b"traceback"]
        assert b"and this is why" in trace

    async def test_the_traceback_shows_an_error_inside_a_task_group(self) -> None:
        async def grouped(_: None) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(failing(failed_job()))

        trace = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(grouped), 1, "w"))[
            b"traceback"
        ].decode()
        assert "no such customer" in trace

    async def test_the_traceback_shows_the_errors_inside_any_other_group(self) -> None:
        errors = [KeyError("inside"), ValueError("beside")]

        async def grouped(_: None) -> None:
            raise ExceptionGroup("two", errors)

        trace = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(grouped), 1, "w"))[
            b"traceback"
        ].decode()
        assert "inside" in trace
        assert "beside" in trace

    def test_an_error_that_was_never_raised_has_a_text_too(self) -> None:
        fields = fields_of(letter_of(failed_job(), "unrecoverable", LookupError("made by hand"), 1, "w"))
        assert fields[b"error"] == b"made by hand"
        assert b"made by hand" in fields[b"traceback"]

    def test_long_texts_are_cut(self) -> None:
        fields = fields_of(letter_of(failed_job(), "unrecoverable", LookupError("x" * 1_000_000), 1, "w"))
        assert len(fields[b"error"]) == MAX_ERROR_CHARS
        assert len(fields[b"traceback"]) <= MAX_TRACEBACK_CHARS

    async def test_the_end_of_a_long_traceback_is_kept(self) -> None:
        async def deep(_: None) -> None:
            def dive(depth: int) -> None:
                if depth:
                    dive(depth - 1)
                raise LookupError("at the bottom")

            dive(500)

        trace = fields_of(letter_of(failed_job(), "unrecoverable", await failure_of(deep), 1, "w"))[b"traceback"]
        assert len(trace) <= MAX_TRACEBACK_CHARS
        assert trace.endswith(b"LookupError: at the bottom\n")

    def test_text_that_utf_8_cannot_hold_is_escaped(self) -> None:
        fields = fields_of(letter_of(failed_job(), "unrecoverable", LookupError("\ud800 half"), 1, "w"))
        assert fields[b"error"] == rb"\ud800 half"
        fields[b"traceback"].decode()

    def test_an_error_that_cannot_say_what_it_is_does_no_harm(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        fields = fields_of(letter_of(failed_job(), "unrecoverable", Mute(), 1, "w"))
        assert fields[b"error"] == b"(a %b whose text cannot be made)" % fields[b"error_type"]
        assert fields[b"error_type"].endswith(b"Mute")

    def test_a_type_with_a_long_name_is_cut(self) -> None:
        kind = type("E" * 1000, (Exception,), {})
        assert len(fields_of(letter_of(failed_job(), "unrecoverable", kind(), 1, "w"))[b"error_type"]) == 200

    @given(st.text(st.characters()), st.text(max_size=50))
    def test_any_text_can_be_kept(self, text: str, name: str) -> None:
        """Half a surrogate pair is text in Python, and escaped because UTF-8 has no bytes for it."""
        fields = fields_of(letter_of(failed_job(name=name), "unrecoverable", ValueError(text), 1, "w"))
        assert fields[b"error"] == text[:MAX_ERROR_CHARS].encode("utf-8", "backslashreplace")
        assert fields.get(b"n", b"").decode() == name
        assert decode_envelope(fields[b"d"]).id == "job-1"


class TestRejectedLetter:
    def test_bytes_and_name_are_kept_as_they_were(self) -> None:
        letter = encode_letter_of_rejected_entry(b"5-1", [b"d", b"\xc1", b"n", b"\xff"], "decode_failed", "why", "w-1")
        assert letter == [
            b"d", b"\xc1", b"n", b"\xff", b"source_id", b"5-1", b"reason", b"decode_failed", b"detail", b"why",
            b"attempts", b"0", b"worker", b"w-1",
        ]  # fmt: skip

    def test_an_entry_without_a_name_has_no_field_for_it(self) -> None:
        for fields in ([b"d", b"x"], [b"d", b"x", b"n", b""]):
            assert b"n" not in fields_of(encode_letter_of_rejected_entry(b"5-1", fields, "decode_failed", "why", "w"))

    def test_fields_without_an_envelope_are_kept_as_hex(self) -> None:
        fields = fields_of(
            encode_letter_of_rejected_entry(b"5-1", [b"a", b"\0b", b"n", b"mail"], "malformed", "why", "w")
        )
        assert fields[b"d"] == b""
        assert fields[b"n"] == b"mail"
        assert [bytes.fromhex(word.decode()) for word in fields[b"raw"].split()] == [b"a", b"\0b", b"n", b"mail"]

    def test_a_large_number_of_fields_is_cut(self) -> None:
        fields = fields_of(encode_letter_of_rejected_entry(b"5-1", [b"x" * 10_000] * 4, "malformed", "why", "w"))
        assert len(fields[b"raw"]) == MAX_TRACEBACK_CHARS

    def test_an_entry_that_was_not_sent_here_leaves_its_bytes_to_the_script(self) -> None:
        assert encode_letter_of_rejected_entry(b"5-1", None, "malformed", "why", "w")[:3] == [b"", b"", b"source_id"]

    def test_an_entry_without_fields_becomes_a_letter(self) -> None:
        letter = fields_of(encode_letter_of_rejected_entry(b"5-1", [], "malformed", "why", "w"))
        assert letter[b"d"] == b""
        assert b"raw" not in letter

    def test_a_long_detail_is_cut_and_an_odd_one_escaped(self) -> None:
        fields = fields_of(encode_letter_of_rejected_entry(b"5-1", None, "malformed", "\udcff" + "x" * 10_000, "w"))
        assert fields[b"detail"].startswith(rb"\udcffx")
        assert len(fields[b"detail"]) < MAX_ERROR_CHARS + 10

    @given(st.lists(st.binary(max_size=20), max_size=8), st.text(max_size=50))
    def test_fields_of_any_shape_become_a_letter(self, fields: list[bytes], detail: str) -> None:
        letter = fields_of(encode_letter_of_rejected_entry(b"5-1", fields, "malformed", detail, "w"))
        whole = dict(zip(fields[::2], fields[1::2], strict=False))
        assert letter[b"d"] == whole.get(b"d", b"")
        assert letter.get(b"n", b"") == whole.get(b"n", b"")
        assert (b"raw" in letter) == (b"d" not in whole and len(fields) >= 2)
        assert (letter[b"source_id"], letter[b"reason"], letter[b"worker"]) == (b"5-1", b"malformed", b"w")
        assert letter[b"detail"].decode() == detail


class TestReading:
    def test_a_letter_of_a_job_can_be_read_back(self) -> None:
        letter = read_dead_letter([b"9-1", letter_of(failed_job(2), "unrecoverable", LookupError("no"), 3, "w-1")])
        assert (letter.dlq_id, letter.source_id, letter.reason, letter.name) == ("9-1", "5-1", "unrecoverable", "mail")
        assert (letter.job_id, letter.attempts, letter.worker, letter.data) == ("job-1", 3, "w-1", 7)
        assert (letter.error_type, letter.error, letter.detail) == ("LookupError", "no", None)
        assert letter.traceback is not None
        assert letter.traceback.endswith("LookupError: no\n")

    def test_a_letter_of_an_entry_that_could_not_become_a_job_can_be_read_back(self) -> None:
        words = encode_letter_of_rejected_entry(b"5-1", [b"d", b"\xc1", b"n", b"mail"], "decode_failed", "why", "w-1")
        letter = read_dead_letter([b"9-1", words])
        assert (letter.reason, letter.detail, letter.name, letter.payload) == ("decode_failed", "why", "mail", b"\xc1")
        assert (letter.job_id, letter.attempts, letter.error, letter.worker) == (None, 0, None, "w-1")

    def test_a_letter_of_an_official_worker_has_neither_attempts_nor_worker(self) -> None:
        words = [b"d", b"\xc1", b"source_id", b"5-1", b"reason", b"retries_exhausted"]
        letter = read_dead_letter([b"9-1", words])
        assert (letter.attempts, letter.worker, letter.detail) == (None, None, None)
