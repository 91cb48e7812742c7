"""Each test of the tests that uses the run's server is checked for keys that it leaves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_keys_left(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("no_keys_left")
