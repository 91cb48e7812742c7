"""bury_repeatable.lua alone: an unreadable repeatable moves to the dead letters with its bytes, if it is unchanged."""

from __future__ import annotations

from tests.scripts.group import KEYS, Group

DUE = 1000


def store(group: Group, key: str = "broken", score: float = DUE, spec: bytes = b"\xc1") -> None:
    group.client.zadd(KEYS.repeat, {key: score})
    group.client.hset(KEYS.repeat_spec(key), mapping={"spec": spec, "fired": 3})


def test_a_buried_repeatable_goes_with_its_spec_and_its_letter_has_the_bytes(group: Group) -> None:
    store(group)
    assert group.bury_repeatable(("broken", DUE, b"\xc1", "no spec at all")) == 1
    assert group.letters == [{b"d": b"\xc1", b"source_id": b"", b"reason": b"malformed", b"detail": b"no spec at all"}]
    assert group.keys == {KEYS.stream, KEYS.dead}


def test_the_others_stay(group: Group) -> None:
    store(group)
    store(group, "good", spec=b"good")
    group.bury_repeatable(("broken", DUE, b"\xc1", ""))
    assert (group.repeatables, group.spec("good")) == ({b"good": DUE}, {b"spec": b"good", b"fired": b"3"})


def test_the_same_call_again_changes_nothing(group: Group) -> None:
    store(group)
    assert [group.bury_repeatable(("broken", DUE, b"\xc1", "")) for _ in range(3)] == [1, 0, 0]
    assert len(group.letters) == 1


def test_a_repeatable_that_was_mended_meanwhile_stays(group: Group) -> None:
    store(group, spec=b"mended")
    assert group.bury_repeatable(("broken", DUE, b"\xc1", ""), ("broken", DUE, b"MENDED", "")) == 0
    assert (group.repeatables, group.letters) == ({b"broken": DUE}, [])
    assert group.spec("broken")[b"spec"] == b"mended"


def test_a_repeatable_with_another_due_time_stays(group: Group) -> None:
    store(group, score=DUE + 1)
    assert group.bury_repeatable(("broken", DUE, b"\xc1", "")) == 0
    assert (group.repeatables, group.letters) == ({b"broken": DUE + 1}, [])


def test_a_removed_repeatable_leaves_no_letter(group: Group) -> None:
    group.client.hset(KEYS.repeat_spec("broken"), "spec", b"\xc1")
    assert group.bury_repeatable(("broken", 0, b"\xc1", "")) == 0
    assert group.letters == []


def test_the_repeatables_of_a_batch_that_are_unchanged_go(group: Group) -> None:
    store(group, "1", spec=b"1")
    store(group, "2", spec=b"mended")
    store(group, "3", spec=b"3")
    batch = [(key, DUE, key.encode(), f"detail {key}") for key in ("1", "2", "3")]
    assert group.bury_repeatable(*batch) == 2
    assert [(letter[b"d"], letter[b"detail"]) for letter in group.letters] == [(b"1", b"detail 1"), (b"3", b"detail 3")]
    assert set(group.repeatables) == {b"2"}


def test_a_key_that_holds_something_else_goes_as_one_with_an_empty_spec(group: Group) -> None:
    group.client.zadd(KEYS.repeat, {"odd": DUE})
    group.client.set(KEYS.repeat_spec("odd"), "a string")
    assert group.bury_repeatable(("odd", DUE, b"", "no hash")) == 1
    assert [(letter[b"d"], letter[b"detail"]) for letter in group.letters] == [(b"", b"no hash")]
    assert group.keys == {KEYS.stream, KEYS.dead}


def test_a_batch_of_none_moves_none(group: Group) -> None:
    assert group.bury_repeatable() == 0
    assert group.keys == {KEYS.stream}


def test_any_bytes_pass_unchanged(group: Group) -> None:
    for number, spec in enumerate([bytes(range(256)), b"", b"\0", b"x" * 100_000]):
        store(group, str(number), spec=spec)
        assert group.bury_repeatable((str(number), DUE, spec, "")) == 1
        assert group.letters[-1][b"d"] == spec


def test_a_repeatable_that_the_dead_letters_refuse_is_due_again_later(group: Group) -> None:
    store(group)
    group.client.set(KEYS.dead, "a string")
    moved, refusal = group.bury_repeatable_by_size(("broken", DUE, 1, b"\xc1", ""), again_ms=9000)
    assert (moved, b"WRONGTYPE" in refusal) == (0, True)
    assert (group.repeatables, group.spec("broken")[b"spec"]) == ({b"broken": 9000}, b"\xc1")
    group.client.delete(KEYS.dead)
    assert group.bury_repeatable(("broken", 9000, b"\xc1", "")) == 1


def test_a_repeatable_stays_if_the_dead_letters_have_no_ids_left(group: Group) -> None:
    store(group)
    last = 2**64 - 1
    group.client.xadd(KEYS.dead, {"x": "x"}, id=f"{last}-{last}")
    moved, refusal = group.bury_repeatable_by_size(("broken", DUE, 1, b"\xc1", ""), again_ms=9000)
    assert (moved, b"exhausted" in refusal) == (0, True)
    assert (group.repeatables, group.spec("broken")[b"spec"]) == ({b"broken": 9000}, b"\xc1")


def test_a_spec_that_was_too_large_to_be_seen_goes_with_its_bytes_if_its_size_is_the_same(group: Group) -> None:
    store(group, spec=b"x" * 1000)
    assert group.bury_repeatable_by_size(("broken", DUE, 999, b"", "")) == (0, b"")
    assert group.bury_repeatable_by_size(("broken", DUE, 1000, b"", "")) == (1, b"")
    assert group.letters[-1][b"d"] == b"x" * 1000


def test_letters_that_are_there_stay(group: Group) -> None:
    letters = group.die(3)
    store(group)
    assert group.bury_repeatable(("broken", DUE, b"\xc1", "")) == 1
    assert group.letter_ids[:3] == letters


def test_10_000_repeatables_are_buried_in_one_call(group: Group) -> None:
    group.client.zadd(KEYS.repeat, {f"key-{number}": DUE for number in range(10_000)})
    with group.client.pipeline(transaction=False) as pipeline:
        for number in range(10_000):
            pipeline.hset(KEYS.repeat_spec(f"key-{number}"), "spec", b"\xc1")
        pipeline.execute()
    assert group.bury_repeatable(*((f"key-{number}", DUE, b"\xc1", "") for number in range(10_000))) == 10_000
    assert group.client.xlen(KEYS.dead) == 10_000
    assert group.keys == {KEYS.stream, KEYS.dead}
