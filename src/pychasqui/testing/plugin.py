"""Fixtures for pytest, found by the entry point pytest11.

chasqui_app      your App: override it in your conftest.py
chasqui_jobs     its jobs, without a server: see inline()
chasqui_server   the URL of a private real server, emptied before each test
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from ..app import App
    from .inline_jobs import InlineJobs


@pytest.fixture
def chasqui_app() -> App:
    """The App under test."""
    pytest.fail("override the fixture chasqui_app in your conftest.py, to return your App", pytrace=False)


@pytest.fixture
def chasqui_jobs(chasqui_app: App) -> Iterator[InlineJobs]:
    """The jobs of chasqui_app, kept and run without a server."""
    from .inline_jobs import inline

    with inline(chasqui_app) as jobs:
        yield jobs


@pytest.fixture(scope="session")
def chasqui_session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the private server of this run. Use chasqui_server, which is emptied before each test."""
    from ..embedded import start_or_join_server

    server = start_or_join_server(f"embedded://{tmp_path_factory.mktemp('chasqui')}")
    yield server.url
    server.leave()


@pytest.fixture
def chasqui_server(chasqui_session_server: str) -> str:
    """The URL of a private real server, emptied."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(unquote(urlsplit(chasqui_session_server).path))
        connection.sendall(b"FLUSHALL\r\n")
        if not connection.recv(64).startswith(b"+OK"):
            raise RuntimeError("the private server of this run has not been emptied")
    return chasqui_session_server
