"""pause.lua alone: the key of a paused queue is there, also on a server that is full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripts.group import KEYS, Group


@pytest.fixture
def full(group: Group) -> Iterator[Group]:
    group.client.config_set("maxmemory", 1)
    yield group
    group.client.config_set("maxmemory", 0)


def test_the_key_of_a_paused_queue_is_there_and_stays(group: Group) -> None:
    assert [group.pause(), group.pause()] == [1, 1]
    assert group.client.get(KEYS.paused) == b"1"
    assert group.client.ttl(KEYS.paused) == -1


def test_a_queue_of_a_full_server_can_be_paused(full: Group) -> None:
    assert full.pause() == 1
    assert full.client.exists(KEYS.paused)
