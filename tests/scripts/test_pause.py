"""pause.lua alone: the key of a paused queue is there, also on a server that is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.scripts.group import KEYS, Group


@contextmanager
def full_memory(group: Group) -> Iterator[None]:
    group.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        group.client.config_set("maxmemory", 0)


def test_the_key_of_a_paused_queue_is_there_and_stays(group: Group) -> None:
    assert [group.pause(), group.pause()] == [1, 1]
    assert group.client.get(KEYS.paused) == b"1"
    assert group.client.ttl(KEYS.paused) == -1


def test_a_queue_of_a_full_server_can_be_paused(group: Group) -> None:
    with full_memory(group):
        assert group.pause() == 1
    assert group.client.get(KEYS.paused) == b"1"


def test_a_paused_queue_of_a_full_server_stays_paused(group: Group) -> None:
    group.pause()
    with full_memory(group):
        assert group.pause() == 1
    assert group.client.get(KEYS.paused) == b"1"


def test_a_pause_with_an_end_has_none_any_more(group: Group) -> None:
    group.client.set(KEYS.paused, "x", px=60_000)
    assert group.pause() == 1
    assert (group.client.get(KEYS.paused), group.client.ttl(KEYS.paused)) == (b"1", -1)


def test_a_key_of_another_type_becomes_the_pause(group: Group) -> None:
    group.client.rpush(KEYS.paused, "x")
    assert group.pause() == 1
    assert group.client.get(KEYS.paused) == b"1"
