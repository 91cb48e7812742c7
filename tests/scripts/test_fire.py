"""fire.lua alone: a repeatable's jobs join the stream and it moves on, together and once."""

from __future__ import annotations

import pytest
import redis

from tests.scripts.group import KEYS, Fire, Group
from tests.support.server import RedisServer

DUE, NEXT = 1000, 61_000


def store(group: Group, key: str = "nightly", score: float = DUE, spec: bytes = b"spec", **fields: str) -> None:
    group.client.zadd(KEYS.repeat, {key: score})
    group.client.hset(KEYS.repeat_spec(key), mapping={"spec": spec, **fields})


def fire_of(
    *envelopes: bytes,
    key: str = "nightly",
    score: int = DUE,
    spec: bytes = b"spec",
    next_score: int | str = NEXT,
    name: str = "mail",
) -> Fire:
    return Fire(key, score, spec, next_score, name, list(envelopes))


class TestFiring:
    def test_the_job_joins_the_stream_and_the_repeatable_moves_on(self, group: Group) -> None:
        store(group)
        assert group.fire(fire_of(b"x")) == [1]
        assert group.entries == [{b"d": b"x", b"n": b"mail"}]
        assert group.repeatables == {b"nightly": NEXT}

    def test_a_job_without_a_name_has_no_field_for_one(self, group: Group) -> None:
        store(group)
        group.fire(fire_of(b"x", name=""))
        assert group.entries == [{b"d": b"x"}]

    def test_fires_are_counted(self, group: Group) -> None:
        store(group)
        group.fire(fire_of(b"x"))
        group.fire(fire_of(b"y", b"z", score=NEXT, next_score=NEXT + 1))
        assert group.spec("nightly") == {b"spec": b"spec", b"fired": b"3"}
        assert group.envelopes == [b"x", b"y", b"z"]

    def test_moving_on_without_a_job_counts_nothing(self, group: Group) -> None:
        """As a repeatable does that skips missed windows."""
        store(group)
        assert group.fire(fire_of()) == [1]
        assert (group.stream, group.repeatables) == ([], {b"nightly": NEXT})
        assert group.spec("nightly") == {b"spec": b"spec"}

    def test_a_repeatable_is_gone_after_its_last_fire(self, group: Group) -> None:
        store(group, fired="4", retry="override")
        assert group.fire(fire_of(b"x", next_score="")) == [1]
        assert group.envelopes == [b"x"]
        assert group.keys == {KEYS.stream}

    def test_the_others_stay(self, group: Group) -> None:
        store(group, "1")
        store(group, "2")
        group.fire(fire_of(b"x", key="1", next_score=""))
        assert (group.repeatables, group.spec("2")) == ({b"2": DUE}, {b"spec": b"spec"})

    def test_several_repeatables_fire_in_one_call(self, group: Group) -> None:
        for key in ("1", "2", "3"):
            store(group, key)
        fires = (fire_of(b"a", b"b", key="1"), fire_of(key="2", next_score=""), fire_of(b"c", key="3", name=""))
        assert group.fire(*fires) == [1, 1, 1]
        assert group.envelopes == [b"a", b"b", b"c"]
        assert group.repeatables == {b"1": NEXT, b"3": NEXT}

    def test_values_that_look_like_counts_are_values(self, group: Group) -> None:
        store(group, "2", spec=b"3")
        assert group.fire(fire_of(b"1", b"6", key="2", spec=b"3", name="7")) == [1]
        assert group.entries == [{b"d": b"1", b"n": b"7"}, {b"d": b"6", b"n": b"7"}]

    def test_any_bytes_pass_unchanged(self, group: Group) -> None:
        spec = bytes(range(256))
        store(group, spec=spec)
        envelopes = [spec, b"", b"\0", b"\r\n", b"x" * 100_000]
        assert group.fire(fire_of(*envelopes, spec=spec)) == [1]
        assert group.envelopes == envelopes

    def test_jobs_that_wait_already_are_not_trimmed(self, group: Group) -> None:
        store(group)
        waiting = group.add(300)
        group.fire(fire_of(b"x"))
        assert group.stream[:300] == waiting
        assert len(group.stream) == 301


class TestOnce:
    def test_the_same_call_again_fires_nothing(self, group: Group) -> None:
        store(group)
        assert [group.fire(fire_of(b"x")) for _ in range(3)] == [[1], [0], [0]]
        assert group.envelopes == [b"x"]
        assert group.spec("nightly")[b"fired"] == b"1"

    def test_the_last_fire_happens_once(self, group: Group) -> None:
        store(group)
        assert [group.fire(fire_of(b"x", next_score="")) for _ in range(2)] == [[1], [0]]
        assert group.keys == {KEYS.stream}

    def test_a_successor_has_fired_this_window(self, group: Group) -> None:
        store(group, score=NEXT)
        assert group.fire(fire_of(b"late", score=DUE, next_score=NEXT)) == [0]
        assert (group.stream, group.repeatables) == ([], {b"nightly": NEXT})

    def test_a_repeatable_that_was_replaced_does_not_fire_the_old_spec(self, group: Group) -> None:
        store(group, spec=b"another")
        assert group.fire(fire_of(b"x")) == [0]
        assert (group.stream, group.repeatables) == ([], {b"nightly": DUE})

    def test_a_removed_repeatable_does_not_fire(self, group: Group) -> None:
        assert group.fire(fire_of(b"x")) == [0]
        assert group.keys == {KEYS.stream}

    def test_a_removed_repeatable_does_not_fire_with_a_score_of_zero(self, group: Group) -> None:
        group.client.hset(KEYS.repeat_spec("nightly"), "spec", b"spec")
        assert group.fire(fire_of(b"x", score=0)) == [0]
        assert group.stream == []

    def test_a_paused_repeatable_does_not_fire(self, group: Group) -> None:
        store(group)
        group.remove_pause_or_resume_repeatable("pause", "nightly")
        assert group.fire(fire_of(b"x")) == [0]
        assert (group.stream, group.repeatables) == ([], {})

    def test_a_refused_fire_does_not_stop_the_others(self, group: Group) -> None:
        store(group, "1")
        store(group, "3")
        fires = (fire_of(b"a", key="1"), fire_of(b"b", b"c", key="2"), fire_of(b"d", key="3"))
        assert group.fire(*fires) == [1, 0, 1]
        assert group.envelopes == [b"a", b"d"]

    def test_two_decisions_about_the_same_window_fire_it_once(self, group: Group) -> None:
        store(group)
        assert group.fire(fire_of(b"mine"), fire_of(b"theirs")) == [1, 0]
        assert group.envelopes == [b"mine"]

    def test_10_000_repeatables_in_one_call_fire_once_each(self, group: Group) -> None:
        with group.client.pipeline(transaction=False) as pipeline:
            for number in range(10_000):
                pipeline.zadd(KEYS.repeat, {f"key-{number}": DUE})
                pipeline.hset(KEYS.repeat_spec(f"key-{number}"), "spec", "spec")
            pipeline.execute()
        fires = [fire_of(b"%d" % number, key=f"key-{number}") for number in range(10_000)]
        assert group.fire(*fires) == [1] * 10_000
        assert group.fire(*fires) == [0] * 10_000
        assert group.envelopes == [b"%d" % number for number in range(10_000)]

    def test_10_000_jobs_of_one_repeatable_are_added(self, group: Group) -> None:
        store(group)
        assert group.fire(fire_of(*(b"%d" % number for number in range(10_000)))) == [1]
        assert (len(group.stream), group.spec("nightly")[b"fired"]) == (10_000, b"10000")


class TestTrouble:
    def test_a_batch_of_none_fires_none(self, group: Group) -> None:
        assert group.fire() == []
        assert group.keys == {KEYS.stream}

    def test_a_stream_of_another_type_costs_no_fire(self, group: Group) -> None:
        store(group)
        group.client.delete(KEYS.stream)
        group.client.set(KEYS.stream, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.fire(fire_of(b"x"))
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.fire(fire_of(next_score=""))
        assert (group.repeatables, group.spec("nightly")) == ({b"nightly": DUE}, {b"spec": b"spec"})
        group.client.delete(KEYS.stream)
        assert group.fire(fire_of(b"x")) == [1]

    def test_a_count_that_is_written_otherwise_costs_no_fire_and_fires_nothing_twice(self, group: Group) -> None:
        for fired, after in (("007", b"8"), ("7", b"8"), ("x", b"1"), ("1e3", b"1001")):
            group.client.delete(KEYS.stream)
            store(group, fired=fired)
            assert [group.fire(fire_of(b"x")) for _ in range(2)] == [[1], [0]]
            assert (group.envelopes, group.repeatables) == ([b"x"], {b"nightly": NEXT})
            assert group.spec("nightly")[b"fired"] == after

    def test_a_spec_of_another_type_stops_nothing_else(self, group: Group) -> None:
        store(group, "1")
        store(group, "3")
        group.client.zadd(KEYS.repeat, {"2": DUE})
        group.client.set(KEYS.repeat_spec("2"), "a string")
        assert group.fire(fire_of(b"a", key="1"), fire_of(b"b", key="2"), fire_of(b"c", key="3")) == [1, 0, 1]
        assert group.envelopes == [b"a", b"c"]

    def test_a_stream_without_enough_ids_takes_all_jobs_of_a_repeatable_or_none(self, group: Group) -> None:
        last = 2**64 - 1
        for ids_left in (0, 1):
            store(group)
            group.client.delete(KEYS.stream)
            group.client.xadd(KEYS.stream, {"d": "last"}, id=f"{last}-{last - ids_left}")
            with pytest.raises(redis.ResponseError, match="exhausted"):
                group.fire(fire_of(b"x", b"y"))
            assert (group.envelopes, group.repeatables) == ([b"last"], {b"nightly": DUE})
            assert group.spec("nightly") == {b"spec": b"spec"}

    def test_repeatables_of_another_type_are_an_error_and_nothing_is_fired(self, group: Group) -> None:
        group.client.set(KEYS.repeat, "a string")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            group.fire(fire_of(b"x"))
        assert group.stream == []

    def test_no_repeatable_fires_or_moves_on_without_memory(self) -> None:
        with RedisServer() as server, server.client() as client:
            group = Group(client)
            group.create()
            store(group)
            with group.full_memory(), pytest.raises(redis.ResponseError, match="maxmemory"):
                group.fire(fire_of(b"x"))
            assert (group.stream, group.repeatables) == ([], {b"nightly": DUE})
            assert group.fire(fire_of(b"x")) == [1]

    def test_the_script_touches_only_its_own_keys(self, group: Group) -> None:
        store(group)
        group.fire(fire_of(b"x"))
        assert group.keys == {KEYS.stream, KEYS.repeat, KEYS.repeat_spec("nightly")}

    def test_the_repeatables_that_were_moved_on_are_named_if_the_stream_refuses_the_others(self, group: Group) -> None:
        last = 2**64 - 1
        for key in ("skips", "fires"):
            group.client.zadd(KEYS.repeat, {key: DUE})
            group.client.hset(KEYS.repeat_spec(key), "spec", "spec")
        group.client.xadd(KEYS.stream, {"d": "last"}, id=f"{last}-{last}")
        skips, fires = Fire("skips", DUE, b"spec", DUE + 1, "", []), Fire("fires", DUE, b"spec", DUE + 1, "", [b"x"])
        assert group.fire(skips, fires) == [1, 0]
        assert group.repeatables == {b"skips": DUE + 1, b"fires": DUE}
