"""The server that the demo runs on: a private one that is gone afterwards, or the one that the user names."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from ... import embedded
from ..._core.defaults import GROUP
from ..._redis.connector import Connector
from ..._redis.inspector import InspectorBroker
from ..._redis.keys import Keys
from ...errors import RedisTrouble

CONNECT_TIMEOUT_S = 2.0
END_TIMEOUT_S = 5.0
LINGER_MS = 200  # how long the private server outlives the demo


class Stage:
    """Entered before the event loop runs and left after it: an embedded server stays up for as long as that.

    Once it is left, a private server has ended and its folder is gone. Another embedded server ends by itself.
    """

    def __init__(self, url: str | None, queue_name: str) -> None:
        self._folder = None if url else Path(tempfile.mkdtemp(prefix="chasqui-demo-"))
        self.url = url or f"{embedded.SCHEME}{quote(str(self._folder))}"
        self._queue_name = queue_name
        self._stay: embedded.EmbeddedServer | None = None
        if embedded.is_embedded(self.url):
            embedded.parse_folder(self.url)  # raises if it is not a URL
        self._connector = Connector(self.url, tls=False, client_name="chasqui-demo")

    def __enter__(self) -> Self:
        if self._folder:
            os.environ[embedded.LINGER_NAMED_BY] = str(LINGER_MS)
        try:
            if embedded.is_embedded(self.url):
                self._stay = embedded.join(self.url)
        except BaseException:
            self._clear()
            raise
        return self

    @asynccontextmanager
    async def look(self) -> AsyncIterator[str]:
        """Connect, or raise; yields a line about the server, and in the end takes the demo's queue away."""
        names = (self._queue_name, f"{self._queue_name}-scenes")
        brokers = {name: self._connector.broker(Keys(name), timeout_s=CONNECT_TIMEOUT_S) for name in names}
        broker = brokers[self._queue_name]
        try:
            await broker.now_ms()
            try:
                yield f"{broker.server}, {'a private server' if self._folder else self._connector}"
            finally:
                with contextlib.suppress(RedisTrouble):
                    for name, own in brokers.items():
                        await InspectorBroker(own, Keys(name), GROUP).remove_all_keys()
        finally:
            for own in brokers.values():
                await own.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        self._connector.leave()
        if self._stay:
            self._stay.leave()
        if self._folder and _has_ended(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)


def _has_ended(folder: Path) -> bool:
    """Wait until the private server's caretaker is gone, and with it the server."""
    from ...embedded.supervisor import Files, try_lock  # here, because Windows lacks what it imports

    deadline = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < deadline:
        lock = try_lock(Files(folder).caretaker_lock)
        if lock is not None:
            os.close(lock)
            return True
        time.sleep(0.02)
    return False
