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

    def test_the_bytes_bound_the_entries_that_are_looked_for(self, group: Group) -> None:
        first, second = group.add(2)
        group.client.hset(KEYS.cancelled, mapping={first: b"1", second: b"1"})
        group.client.xdel(KEYS.stream, second)
        assert group.read_cancellations(max_bytes=0) == {first: b"1", second: b"1"}
        assert group.read_cancellations(max_bytes=1) in ({first: b"1"}, {first: b"1", second: b"1"})

    def test_no_notes_are_an_empty_answer(self, group: Group) -> None:
        group.add(1)
        assert group.read_cancellations() == {}
