"""Worker processes for tests that kill, stop and close them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from tests.chaos.crew import Crew
from tests.support.streams import Stream

MakeCrew = Callable[..., Crew]


@pytest.fixture
def make_crew(redis_url: str, queue_name: str, tmp_path: Path) -> Iterator[MakeCrew]:
    """Crews of pychasqui workers on the run's server; keyword arguments are a Crew's, `options` the Worker's."""
    crews: list[Crew] = []

    def make(*, seats: int = 2, urls: list[str] | None = None, **settings: Any) -> Crew:
        crew = Crew(tmp_path, queue_name, urls or [redis_url] * seats, **settings)
        crews.append(crew)
        return crew

    yield make
    for crew in crews:
        crew.end()


@pytest.fixture
def stream(witness: redis.asyncio.Redis, queue_name: str) -> Stream:
    return Stream(witness, queue_name)
