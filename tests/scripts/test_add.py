"""add.lua alone: a batch is added at most once, however often and however late it arrives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from pychasqui._redis.adding import make_add_arguments
from pychasqui._redis.scripts import ADD
from tests.support.server import RedisServer

STREAM, LEDGER = "{chasqui:q}:stream", "{chasqui:q}:ledger:producer"
TTL_MS = 60_000


@dataclass
class Adding:
    """Calls the script as a producer would."""

    client: Any  # redis-py types replies as everything they could be under any setting

    def __call__(
        self,
        *runs: tuple[str, list[bytes]],
        number: int = 1,
        slot: int = 0,
        room: int = 0,
        needed: int = 1,
        ledger: str = LEDGER,
    ) -> int:
        jobs = [(name.encode(), envelope) for name, envelopes in runs for envelope in envelopes]
        names, envelopes = [name for name, _ in jobs], [envelope for _, envelope in jobs]
        words = make_add_arguments(envelopes, names) if jobs else [1, b"", b""]
        arguments = [slot, number, TTL_MS, room, needed, len(jobs), *words]
        taken = self.client.eval(ADD.text, 2, STREAM, ledger, *arguments)
        assert isinstance(taken, int)
        return taken

    @property
    def stream(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.client.xrange(STREAM)]

    @property
    def envelopes(self) -> list[bytes]:
        return [fields[b"d"] for fields in self.stream]


@pytest.fixture
def adding(server: RedisServer, redis_url: str) -> Iterator[Adding]:
    with server.client() as client:
        yield Adding(client)


def many(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class TestEntries:
    def test_a_batch_joins_the_stream_in_order(self, adding: Adding) -> None:
        assert adding(("mail", many(3))) == 3
        assert adding.stream == [{b"d": envelope, b"n": b"mail"} for envelope in many(3)]

    def test_a_job_without_a_name_has_no_field_for_one(self, adding: Adding) -> None:
        assert adding(("", [b"x"])) == 1
        assert adding.stream == [{b"d": b"x"}]

    def test_runs_of_several_names_keep_their_names_and_their_order(self, adding: Adding) -> None:
        assert adding(("a", [b"1", b"2"]), ("", [b"3"]), ("b", [b"4"]), ("a", [b"5", b"6"])) == 6
        assert adding.envelopes == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert [fields.get(b"n") for fields in adding.stream] == [b"a", b"a", None, b"b", b"a", b"a"]

    def test_many_names_in_any_order_keep_their_jobs(self, adding: Adding) -> None:
        """More names than one byte can count."""
        names = [f"name {number * 7 % 701}" for number in range(1000)]
        assert adding(*((name, [name.encode()]) for name in names)) == 1000
        assert [(fields[b"n"], fields[b"d"]) for fields in adding.stream] == [(name.encode(),) * 2 for name in names]

    def test_the_envelope_stands_before_the_name(self, adding: Adding) -> None:
        """The official consumers look them up by name, and ours takes a short way if they stand in this order."""
        adding(("mail", [b"x"]))
        reply = adding.client.execute_command("XRANGE", STREAM, "-", "+", NEVER_DECODE=True)
        assert list(dict(reply[0][1])) == [b"d", b"n"]

    def test_any_bytes_pass_unchanged(self, adding: Adding) -> None:
        envelopes = [bytes(range(256)), b"", b"\0", b"\r\n", b"0", b"-1", "ü".encode(), b"x" * 100_000]
        assert adding(("näme 7", envelopes)) == len(envelopes)
        assert adding.envelopes == envelopes
        assert {fields[b"n"] for fields in adding.stream} == {"näme 7".encode()}

    def test_a_name_that_looks_like_a_number_is_a_name(self, adding: Adding) -> None:
        assert adding(("2", [b"3", b"4"]), ("1", [b"5"])) == 3
        assert adding.envelopes == [b"3", b"4", b"5"]

    def test_10_000_jobs_are_added_in_one_batch(self, adding: Adding) -> None:
        assert adding(("mail", many(10_000))) == 10_000
        assert adding.envelopes == many(10_000)

    def test_10_000_names_are_added_in_one_batch(self, adding: Adding) -> None:
        assert adding(*((f"name-{number}", [b"%d" % number]) for number in range(10_000))) == 10_000
        assert adding.envelopes == many(10_000)

    def test_a_batch_of_none_adds_none(self, adding: Adding) -> None:
        assert adding() == 0
        assert adding.stream == []


class TestLedger:
    def test_the_same_batch_sent_again_is_answered_again_and_not_added(self, adding: Adding) -> None:
        assert [adding(("mail", many(5)), number=7) for _ in range(3)] == [5, 5, 5]
        assert adding.envelopes == many(5)

    def test_the_next_number_is_added(self, adding: Adding) -> None:
        for number in (1, 2, 3):
            assert adding(("mail", [b"%d" % number]), number=number) == 1
        assert adding.envelopes == [b"1", b"2", b"3"]

    def test_a_number_older_than_the_slots_last_is_not_added(self, adding: Adding) -> None:
        adding(("mail", [b"new"]), number=9)
        adding(("mail", [b"stuck on an old connection"]), number=4)
        assert adding.envelopes == [b"new"]

    def test_slots_do_not_know_of_each_other(self, adding: Adding) -> None:
        adding(("mail", [b"late"]), slot=0, number=9)
        assert adding(("mail", [b"early"]), slot=1, number=4) == 1
        assert adding.envelopes == [b"late", b"early"]

    def test_producers_do_not_know_of_each_other(self, adding: Adding) -> None:
        adding(("mail", [b"mine"]), number=9)
        assert adding(("mail", [b"theirs"]), number=4, ledger="{chasqui:q}:ledger:other") == 1
        assert adding.envelopes == [b"mine", b"theirs"]

    def test_a_slot_that_the_other_kind_of_batch_has_had_takes_newer_numbers_only(self, adding: Adding) -> None:
        adding.client.hset(LEDGER, "0", "9 ndrf")
        assert adding(("mail", [b"stuck on an old connection"]), number=8) == 0
        assert adding(("mail", [b"new"]), number=10) == 1
        assert adding.envelopes == [b"new"]

    def test_numbers_are_compared_as_numbers(self, adding: Adding) -> None:
        adding(("mail", [b"nine"]), number=9)
        assert adding(("mail", [b"ten"]), number=10) == 1
        assert adding.envelopes == [b"nine", b"ten"]

    def test_large_numbers_are_kept_apart(self, adding: Adding) -> None:
        adding(("mail", [b"a"]), number=2**52)
        adding(("mail", [b"b"]), number=2**52 + 1)
        adding(("mail", [b"b"]), number=2**52 + 1)
        assert adding.envelopes == [b"a", b"b"]

    def test_the_ledger_expires(self, adding: Adding) -> None:
        adding(("mail", [b"x"]))
        assert 0 < adding.client.pttl(LEDGER) <= TTL_MS

    def test_each_batch_extends_the_expiry_of_the_ledger(self, adding: Adding) -> None:
        adding(("mail", [b"x"]), number=1)
        adding.client.pexpire(LEDGER, 1000)
        adding(("mail", [b"x"]), number=2)
        assert adding.client.pttl(LEDGER) > 1000

    def test_the_ledger_holds_one_field_for_each_slot(self, adding: Adding) -> None:
        for number in range(1, 101):
            adding(("mail", [b"x"]), slot=number % 4, number=number)
        assert adding.client.hlen(LEDGER) == 4


class TestRoom:
    def test_no_job_is_refused_without_a_bound(self, adding: Adding) -> None:
        assert adding(("mail", many(100)), room=0, needed=100) == 100

    def test_a_batch_that_fits_exactly_is_taken(self, adding: Adding) -> None:
        assert adding(("mail", many(5)), room=5, needed=5) == 5

    def test_a_batch_that_is_taken_whole_or_not_at_all(self, adding: Adding) -> None:
        assert adding(("mail", many(6)), room=5, needed=6) == 0
        assert adding.stream == []

    def test_the_first_of_several_single_adds_are_taken(self, adding: Adding) -> None:
        assert adding(("a", many(2)), ("b", many(3)), room=4, needed=1) == 4
        assert [(fields[b"n"], fields[b"d"]) for fields in adding.stream] == [
            (b"a", b"0"), (b"a", b"1"), (b"b", b"0"), (b"b", b"1"),
        ]  # fmt: skip

    def test_jobs_that_wait_already_take_room(self, adding: Adding) -> None:
        adding(("mail", many(3)), number=1, room=5)
        assert adding(("mail", many(3)), number=2, room=5, needed=1) == 2
        assert adding(("mail", many(3)), number=3, room=5, needed=1) == 0
        assert len(adding.stream) == 5

    def test_the_smallest_bound_is_one(self, adding: Adding) -> None:
        assert adding(("", many(1)), number=1, room=1) == 1
        assert adding(("", many(1)), number=2, room=1) == 0
        assert len(adding.stream) == 1

    def test_a_stream_that_is_over_the_bound_already_is_not_trimmed(self, adding: Adding) -> None:
        adding(("mail", many(10)), number=1)
        assert adding(("mail", many(1)), number=2, room=5) == 0
        assert len(adding.stream) == 10

    def test_room_for_more_than_this_batch_can_be_asked_for(self, adding: Adding) -> None:
        assert adding(("mail", many(3)), number=1, room=5, needed=6) == 0
        assert adding(("mail", many(3)), number=2, room=6, needed=6) == 3

    def test_a_refusal_is_remembered_even_if_there_is_room_by_now(self, adding: Adding) -> None:
        adding(("mail", many(5)), number=1)
        assert adding(("mail", [b"x"]), number=2, room=5) == 0
        adding.client.xtrim(STREAM, maxlen=0, approximate=False)
        assert adding(("mail", [b"x"]), number=2, room=5) == 0
        assert adding.stream == []

    def test_a_part_that_was_taken_is_remembered(self, adding: Adding) -> None:
        assert adding(("mail", many(5)), number=1, room=3) == 3
        adding.client.xtrim(STREAM, maxlen=0, approximate=False)
        assert adding(("mail", many(5)), number=1, room=3) == 3
        assert adding.stream == []

    def test_10_000_jobs_fill_the_room_and_the_rest_is_refused(self, adding: Adding) -> None:
        assert adding(*((f"{number % 7}", [b"%d" % number]) for number in range(10_000)), room=9_999) == 9_999
        assert adding.envelopes == many(9_999)


class TestTrouble:
    def test_a_stream_of_another_type_is_an_error_and_leaves_no_trace(self, adding: Adding) -> None:
        adding.client.set(STREAM, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            adding(("mail", [b"x"]))
        assert not adding.client.exists(LEDGER)

    def test_the_same_number_is_added_after_the_trouble(self, adding: Adding) -> None:
        adding.client.set(STREAM, "a string")
        with pytest.raises(redis.ResponseError):
            adding(("mail", [b"x"]), number=3)
        adding.client.delete(STREAM)
        assert adding(("mail", [b"x"]), number=3) == 1
        assert adding.envelopes == [b"x"]

    @pytest.mark.parametrize("names", (("mail",) * 5, ("",) * 5, ("mail", "sms", "mail", "", "sms")))
    def test_a_stream_that_runs_out_of_ids_takes_what_it_can_and_remembers_how_many(
        self, adding: Adding, names: tuple[str, ...]
    ) -> None:
        jobs = [(name, [envelope]) for name, envelope in zip(names, many(5), strict=True)]
        adding.client.xadd(STREAM, {"d": "x"}, id="18446744073709551615-18446744073709551613")
        assert adding(*jobs) == 2
        assert adding(*jobs) == 2, "the same again has the same answer"
        with pytest.raises(redis.ResponseError, match="exhausted"):
            adding(*jobs, number=2)
        assert adding.envelopes == [b"x", b"0", b"1"]

    def test_no_job_is_added_and_no_number_is_stored_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            adding = Adding(client)
            client.config_set("maxmemory", 1)
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                adding(("mail", many(3)))
            client.config_set("maxmemory", 0)
            assert not client.exists(STREAM, LEDGER)
            assert adding(("mail", many(3))) == 3

    def test_memory_that_ends_in_the_middle_does_not_tear_a_batch(self) -> None:
        with RedisServer() as server, server.client() as client:
            adding = Adding(client)
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)
            big = [b"x" * 10_000] * 100
            taken: list[int] = []

            def add_until_full() -> None:
                while True:
                    taken.append(adding(("mail", big), number=len(taken) + 1))

            with pytest.raises(redis.ResponseError, match="maxmemory"):
                add_until_full()
            assert set(taken) == {len(big)}
            assert client.xlen(STREAM) == sum(taken)

    def test_the_script_touches_only_its_own_two_keys(self, adding: Adding) -> None:
        adding(("mail", many(3)))
        assert sorted(adding.client.keys()) == sorted([STREAM.encode(), LEDGER.encode()])


def test_a_slot_that_holds_anything_else_is_an_error_that_names_the_ledger(adding: Adding) -> None:
    adding.client.hset(LEDGER, "0", "junk")
    with pytest.raises(redis.ResponseError, match=f"{re.escape(LEDGER)} holds no batches of a producer"):
        adding(("mail", many(2)))
    assert adding.stream == []
