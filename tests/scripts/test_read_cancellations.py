"""read_cancellations.lua alone: notes whose jobs have left the stream are removed, the others returned."""

from __future__ import annotations

from tests.scripts.group import KEYS, Group


class TestNotes:
    def test_notes_of_jobs_in_the_stream_are_returned_and_stay(self, group: Group) -> None:
        first, second = group.add(2)
        notes = {first: b"1", b"id job": second}
        group.client.hset(KEYS.cancelled, mapping=notes)
        assert group.read_cancellations() == notes
        assert group.notes == notes

    def test_a_note_of_an_entry_that_is_gone_is_removed(self, group: Group) -> None:
        first, second, third = group.add(3)
        group.client.hset(KEYS.cancelled, mapping={first: b"1", second: b"1"})
        group.client.xdel(KEYS.stream, second)
        assert group.read_cancellations() == {first: b"1"}
        assert (group.notes, third in group.stream) == ({first: b"1"}, True)

    def test_a_note_about_an_id_is_removed_once_all_its_entries_are_gone(self, group: Group) -> None:
        first, second, third = group.add(3)
        group.client.hset(KEYS.cancelled, mapping={b"id a": first, b"id b": second})
        group.client.xdel(KEYS.stream, first)
        assert group.read_cancellations() == {b"id b": second}
        group.client.xdel(KEYS.stream, second)
        assert (group.read_cancellations(), group.notes, group.stream) == ({}, {}, [third])

    def test_an_empty_stream_leaves_no_note(self, group: Group) -> None:
        group.client.hset(KEYS.cancelled, mapping={f"id {n}": "5-5" for n in range(1500)} | {"7-7": "1"})
        assert (group.read_cancellations(), group.keys) == ({}, {KEYS.stream})

    def test_a_note_that_is_none_is_removed(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        group.client.hset(KEYS.cancelled, mapping={b"what?": b"1", b"id job": b"what?", entry_id: b"1"})
        assert group.read_cancellations() == {entry_id: b"1"}

    def test_a_note_with_numbers_that_no_id_has_is_removed_and_costs_no_other(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        numbers = (b"18446744073709551616", b"9" * 5000)
        for number in numbers:
            group.client.hset(KEYS.cancelled, mapping={number + b"-1": b"1", b"1-" + number: b"1", entry_id: b"1"})
            group.client.hset(KEYS.cancelled, entry_id.split(b"-")[0] + b"-" + number, b"1")
            assert (group.read_cancellations(), group.notes) == ({entry_id: b"1"}, {entry_id: b"1"})

    def test_the_bytes_bound_the_entries_that_are_looked_for(self, group: Group) -> None:
        first, second = group.add(2)
        size = sum(len(word) for word in (b"d", b"job 0", b"n", b"mail"))
        notes = {first: b"1", second: b"1"}
        group.client.hset(KEYS.cancelled, mapping=notes)
        group.client.xdel(KEYS.stream, second)
        assert group.read_cancellations(max_bytes=0) == notes
        assert group.read_cancellations(max_bytes=size) == notes
        assert group.read_cancellations(max_bytes=size + 1) == {first: b"1"}

    def test_no_more_notes_are_read_than_there_may_be(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        group.client.hset(KEYS.cancelled, mapping={f"id {n}": entry_id for n in range(30)})
        assert [len(group.read_cancellations(most_notes=most)) for most in (30, 29, 5)] == [30, 29, 5]

    def test_a_user_who_may_not_remove_notes_reads_them(self, group: Group) -> None:
        (entry_id,) = group.add(1)
        notes = {entry_id: b"1", b"5-5": b"1"}
        group.client.hset(KEYS.cancelled, mapping=notes)
        with group.as_user("+@all", "-hdel", "~*", "&*") as narrow:
            assert narrow.read_cancellations() == {entry_id: b"1"}
        assert group.notes == notes

    def test_no_notes_are_an_empty_answer(self, group: Group) -> None:
        group.add(1)
        assert group.read_cancellations() == {}
