"""S9: a worker says at its start that its server's version has a known hole, once, and works all the same."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pychasqui import Job, Queue, Worker
from pychasqui._redis import server_checks as risks
from tests.support.server import RedisServer


async def warnings_of_a_worker(queue: Queue, redis_url: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Worker(queue.name, done.put, redis_url=redis_url):
        await queue.add("send")
        await done.get()
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


async def test_a_server_with_a_known_vulnerability_is_warned_about(
    server: RedisServer, queue: Queue, redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(risks.SILENCED_BY)
    series = (server.product.lower(), server.version.major, server.version.minor)
    monkeypatch.setitem(risks.FIXED_IN, series, (999, "CVE-2999-1234"))
    (warning,) = await warnings_of_a_worker(queue, redis_url, caplog)
    assert "has the vulnerability CVE-2999-1234" in warning
    assert f"upgrade, {series[1]}.{series[2]}.999 fixes it" in warning


async def test_the_warning_about_a_vulnerability_can_be_switched_off(
    server: RedisServer, queue: Queue, redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = (server.product.lower(), server.version.major, server.version.minor)
    monkeypatch.setitem(risks.FIXED_IN, series, (999, "CVE-2999-1234"))
    monkeypatch.setenv(risks.SILENCED_BY, "1")
    assert await warnings_of_a_worker(queue, redis_url, caplog) == []


async def test_a_server_without_a_known_vulnerability_is_not_warned_about(
    server: RedisServer, queue: Queue, redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(risks.SILENCED_BY)
    series = (server.product.lower(), server.version.major, server.version.minor)
    monkeypatch.setitem(risks.FIXED_IN, series, (0, ""))
    assert await warnings_of_a_worker(queue, redis_url, caplog) == []
