"""What the supervisor makes of the pages of its processes: cut off ones, and those that do not come."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pychasqui._supervisor.child import ChildProcess
from pychasqui._supervisor.messages import Started
from pychasqui._supervisor.pages import SupervisorPages, fetch_page

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


class TestHangingProcesses:
    @pytest.mark.parametrize(("page", "status"), (("/metrics", 200), ("/readyz", 503)))
    async def test_a_process_with_several_workers_that_do_not_answer_delays_a_page_by_one_timeout(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, status: int
    ) -> None:
        monkeypatch.setattr("pychasqui._supervisor.pages.ANSWER_WITHIN_S", 0.3)
        async with AsyncExitStack() as stack:
            for number in range(10):
                await stack.enter_async_context(await asyncio.start_unix_server(hang, tmp_path / f"{number}"))
            child = ChildProcess(lambda *_: None, lambda _: None)
            await child.start(["sleep", "60"], os.environ, folder=tmp_path, serves_pages=True)
            stack.push_async_callback(child.wait_for_exit)
            stack.callback(child.kill)
            child._store_message_and_notify(Started([str(tmp_path / f"{number}") for number in range(10)]))
            pages = SupervisorPages(lambda: [child], lambda: [child]).make_pages_by_path()
            begun = time.monotonic()
            made = await pages[page]()
            assert time.monotonic() - begun < 1.5
        assert made.status == status
        assert made.body.count("does not answer") == (10 if page == "/readyz" else 0)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client leaves
    writer.close()
