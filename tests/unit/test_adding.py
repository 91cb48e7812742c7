"""Commands and scripts get their arguments as the server expects them: each name once, jobs in order."""

from __future__ import annotations

import struct
from typing import cast

import hiredis
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pychasqui._core.options import PLAIN, AddOptions
from pychasqui._redis.adding import IdmpAdd, make_add_arguments, make_add_with_options_arguments
from tests.support.outcomes import buried, rescheduled

NAMES = st.sampled_from([b"", b"mail", b"report", b"3"])


def read_back(arguments: list[bytes | int]) -> list[tuple[bytes, bytes]]:
    """The jobs, as add.lua reads them."""
    count, *rest = arguments
    assert isinstance(count, int)
    names, places, envelopes = rest[:count], rest[count], rest[count + 1 :]
    assert isinstance(places, bytes)
    numbers = struct.unpack(f"<{len(envelopes)}H", places) if count > 1 else [0] * len(envelopes)
    return [(cast(bytes, names[number]), cast(bytes, one)) for number, one in zip(numbers, envelopes, strict=True)]


@given(st.text(min_size=1), st.integers(1, 2**60), st.binary(), NAMES)
def test_a_numbered_add_is_packed_as_hiredis_packs_it(stream: str, number: int, envelope: bytes, name: bytes) -> None:
    stream = stream.encode(errors="replace").decode()
    fields = (b"d", envelope, b"n", name) if name else (b"d", envelope)
    words: tuple[bytes, ...] = (b"XADD", stream.encode(), b"IDMP", b"me", b"%d" % number, b"*", *fields)
    assert IdmpAdd(stream, "me").pack(number, envelope, name) == hiredis.pack_command(words)  # type: ignore[arg-type]


def test_jobs_with_one_name_send_it_once() -> None:
    assert make_add_arguments([b"a", b"b", b"c"], [b"n", b"n", b"n"]) == [1, b"n", b"", b"a", b"b", b"c"]


def test_each_of_several_names_is_sent_once() -> None:
    places = b"\0\0\1\0\0\0"
    assert make_add_arguments([b"a", b"b", b"c"], [b"n", b"m", b"n"]) == [2, b"n", b"m", places, b"a", b"b", b"c"]


@given(st.lists(st.tuples(NAMES, st.binary()), min_size=1))
def test_jobs_of_any_mix_of_names_arrive_complete_and_in_order(jobs: list[tuple[bytes, bytes]]) -> None:
    names, envelopes = [name for name, _ in jobs], [envelope for _, envelope in jobs]
    assert read_back(make_add_arguments(envelopes, names)) == jobs


def test_a_job_with_options_has_seven_arguments() -> None:
    options = [PLAIN, AddOptions("+5", "replace", 7, 9)]
    assert make_add_with_options_arguments([b"a", b"b"], [b"n", b""], ["1", "2"], options) == [
        b"n", b"a", "1", "", "", 0, 0, b"", b"b", "2", "+5", "replace", 7, 9,
    ]  # fmt: skip


class TestOutcomes:
    def test_a_rescheduled_job_has_seven_arguments(self) -> None:
        job = rescheduled(b"5-1", 2, delay_ms=100, member=b"m", job_id="j")
        assert job.make_script_arguments(with_events=False) == (b"5-1", 2, 100, b"m", "j", 0, 0)
        assert replace(job, may_be_unique=True).make_script_arguments(with_events=False)[5] == 1

    def test_its_events_are_failed_and_retry_scheduled(self) -> None:
        words = rescheduled(b"5-1", delay_ms=100, job_id="j").make_script_arguments(with_events=True)
        assert words[6:] == (
            28,
            14, "e", "failed", "id", "j", "ts", 5, "n", "j",
            "attempt", 1, "reason", "no such customer", "duration_us", 100,
            12, "e", "retry-scheduled", "id", "j", "ts", 5, "n", "j", "attempt", 2, "backoff_ms", 100,
        )  # fmt: skip

    def test_a_dead_job_has_five_arguments_and_its_letter(self) -> None:
        job = buried(b"5-1", 2, job_id="j")
        assert job.make_script_arguments(with_events=False) == (b"5-1", 2, "", 2, 0, b"d", b"x")
        assert replace(job, may_be_unique=True).make_script_arguments(with_events=False)[2] == "j"

    def test_the_events_of_a_job_that_died_here_are_failed_and_dlq(self) -> None:
        words = buried(b"5-1", job_id="j").make_script_arguments(with_events=True)
        assert words[4] == 14 + 1 + 16 + 1
        assert words[7:] == (
            14, "e", "failed", "id", "j", "ts", 5, "n", "j",
            "attempt", 1, "reason", "no such customer", "duration_us", 100,
            16, "e", "dlq", "id", "j", "ts", 5, "n", "j",
            "attempt", 1, "reason", "unrecoverable", "error_type", "LookupError", "error", "no such customer",
        )  # fmt: skip

    def test_a_job_that_had_no_run_here_has_only_the_event_dlq(self) -> None:
        words = replace(buried(b"5-1", job_id="j"), run=None).make_script_arguments(with_events=True)
        assert words[7:] == (
            12, "e", "dlq", "id", "j", "ts", 5, "n", "j", "attempt", 1, "reason", "unrecoverable",
        )  # fmt: skip

    def test_the_event_of_an_entry_that_could_not_become_a_job_has_neither_id_nor_name(self) -> None:
        rejected = replace(buried(b"5-1"), job_id=None, job_name="mail", reason="malformed", runs=0, run=None)
        assert rejected.make_script_arguments(with_events=True)[7:] == (
            10, "e", "dlq", "id", "", "ts", 5, "attempt", 0, "reason", "malformed",
        )  # fmt: skip
