"""Raw replies become entries."""

from __future__ import annotations

from typing import Any

import pytest

from pychasqui._redis.replies import read_entries

ENTRIES = [[b"1-1", [b"d", b"x", b"n", b"y"]], [b"1-2", [b"d", b"z"]]]


@pytest.mark.parametrize("reply", ([[b"stream", ENTRIES]], {b"stream": ENTRIES}))
def test_both_protocols_give_the_same_entries(reply: Any) -> None:
    assert read_entries(reply) == ENTRIES


@pytest.mark.parametrize("reply", (None, [], {}, [[b"stream", []]], {b"stream": []}, [[b"stream", None]]))
def test_nothing_read_is_no_entries(reply: Any) -> None:
    assert read_entries(reply) == []


def test_an_entry_deleted_meanwhile_has_no_fields() -> None:
    assert read_entries([[b"stream", [[b"1-1", None]]]]) == [[b"1-1", None]]
