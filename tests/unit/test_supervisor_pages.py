"""What the supervisor makes of the pages of its processes: cut off ones, and those that do not come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pychasqui._supervisor.pages import fetch_page

METRICS = '# HELP a_total b\n# TYPE a_total counter\na_total{queue="x"} 5\n'


def answer(body: str, length: int | None = None) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length or len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


def answering(response: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        writer.close()

    return serve


class TestFetching:
    async def test_an_answer_is_fetched(self, tmp_path: Path) -> None:
        async with await asyncio.start_unix_server(answering(answer(METRICS)), tmp_path / "s"):
            assert await fetch_page(str(tmp_path / "s"), "/metrics") == (200, METRICS)

    @pytest.mark.parametrize("kept", (0, 5, 20, 60, 90, 130))
    async def test_an_answer_that_is_cut_off_is_an_error(self, tmp_path: Path, kept: int) -> None:
        async with await asyncio.start_unix_server(answering(answer(METRICS)[:kept]), tmp_path / "s"):
            with pytest.raises(ConnectionResetError, match="cut off"):
                await fetch_page(str(tmp_path / "s"), "/metrics")
