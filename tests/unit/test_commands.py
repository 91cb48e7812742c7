"""Hot commands are rendered as the server expects them: jobs as runs of one name, in order."""

from __future__ import annotations

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._core.options import PLAIN, AddOptions
from pychasqui._redis.commands import NumberedAdd, job_arguments, options_arguments

NAMES = st.sampled_from([b"", b"mail", b"report", b"3"])


def read_back(arguments: list[bytes | int]) -> list[tuple[bytes, bytes]]:
    """As add.lua reads them."""
    jobs: list[tuple[bytes, bytes]] = []
    head = 0
    while head < len(arguments):
        name, run = arguments[head], arguments[head + 1]
        assert isinstance(name, bytes)
        assert isinstance(run, int)
        assert run > 0
        envelopes = arguments[head + 2 : head + 2 + run]
        assert len(envelopes) == run
        jobs += [(name, envelope) for envelope in envelopes if isinstance(envelope, bytes)]
        head += 2 + run
    return jobs


@given(st.text(min_size=1), st.integers(1, 2**60), st.binary(), NAMES)
def test_a_numbered_add_is_packed_as_hiredis_packs_it(stream: str, number: int, envelope: bytes, name: bytes) -> None:
    stream = stream.encode(errors="replace").decode()
    fields = (b"d", envelope, b"n", name) if name else (b"d", envelope)
    words: tuple[bytes, ...] = (b"XADD", stream.encode(), b"IDMP", b"me", b"%d" % number, b"*", *fields)
    assert NumberedAdd(stream, "me").pack(number, envelope, name) == hiredis.pack_command(words)  # type: ignore[arg-type]


def test_jobs_with_one_name_send_it_once() -> None:
    assert job_arguments([b"a", b"b", b"c"], [b"n", b"n", b"n"]) == [b"n", 3, b"a", b"b", b"c"]


def test_a_name_that_comes_back_starts_a_run_of_its_own() -> None:
    assert job_arguments([b"a", b"b", b"c"], [b"n", b"m", b"n"]) == [b"n", 1, b"a", b"m", 1, b"b", b"n", 1, b"c"]


@given(st.lists(st.tuples(NAMES, st.binary()), min_size=1))
def test_whatever_the_mix_of_names_jobs_arrive_complete_and_in_order(jobs: list[tuple[bytes, bytes]]) -> None:
    names, envelopes = [name for name, _ in jobs], [envelope for _, envelope in jobs]
    assert read_back(job_arguments(envelopes, names)) == jobs


def test_jobs_on_terms_are_six_words_each() -> None:
    options = [PLAIN, AddOptions("+5", "replace", 7)]
    assert options_arguments([b"a", b"b"], [b"n", b""], ["1", "2"], options) == [
        b"n", b"a", "1", "", "", 0, b"", b"b", "2", "+5", "replace", 7,
    ]  # fmt: skip
