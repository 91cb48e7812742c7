"""Fixtures for the tests of single scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripts.group import Group
from tests.support.server import RedisServer


@pytest.fixture
def group(server: RedisServer, redis_url: str) -> Iterator[Group]:
    """An empty stream with a group."""
    with server.client() as client:
        group = Group(client)
        group.create()
        yield group
