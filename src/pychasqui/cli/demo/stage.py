"""The server that the demo runs on: a private one that is gone afterwards, or the one that the user names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from ... import __version__
from ..._place import Place
from ..._redis.keys import Keys
from ...embedded import LINGER_NAMED_BY
from ...errors import RedisTrouble

CONNECT_TIMEOUT_S = 5.0
END_TIMEOUT_S = 10.0
LINGER_MS = 200  # how long the private server outlives the demo


class Stage:
    """Entered before the first act: connects, or raises. Left after the last: nothing of the demo remains.

    It holds a connection throughout, so that an embedded server stays up however the other processes come and go.
    """

    def __init__(self, url: str | None, queue_name: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chasqui-demo-")) if url is None else None
        self.url = f"embedded://{quote(str(self._folder))}" if url is None else url
        self._keys = Keys(queue_name)
        self._place = Place(self.url, tls=False, client_name="chasqui-demo")
        self._connection = self._place.connection(timeout_s=CONNECT_TIMEOUT_S)
        self.server = ""

    async def __aenter__(self) -> Self:
        if self._folder:
            os.environ[LINGER_NAMED_BY] = str(LINGER_MS)
        try:
            socket = await self._connection.ready(self._connection.deadline())
        except BaseException:
            await self._clear()
            raise
        self.server = str(socket.dialect)
        return self

    def describe(self) -> str:
        kind = "a private server" if self._folder else str(self._place)
        return f"pychasqui {__version__} on {self.server}, {kind}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._folder:
            with contextlib.suppress(RedisTrouble):
                await self._connection.call("UNLINK", self._keys.stream)
        await self._clear()

    async def _clear(self) -> None:
        await self._connection.close()
        self._place.leave()
        if self._folder:
            await _wait_for_the_end(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)


async def _wait_for_the_end(folder: Path) -> None:
    """Until the private server's caretaker is gone, and with it the server."""
    from ..._caretaker import Files, try_lock  # here, because Windows lacks what it imports

    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        lock = try_lock(Files(folder).caretaker_lock)
        if lock is not None:
            os.close(lock)
            return
        await asyncio.sleep(0.02)
