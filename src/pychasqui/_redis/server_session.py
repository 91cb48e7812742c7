"""A connection to a server that is not about one queue: Queues and Doctor build on it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ..settings import find_setting
from .broker import Broker
from .connector import Connector
from .credentials import CredentialProvider
from .keys import Keys


class ServerSession:
    """`async with` closes the connection at the end; it is opened by the first call."""

    def __init__(
        self,
        redis_url: str | None,
        *,
        client_name: str,
        timeout_s: float,
        tls: bool = False,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        url = find_setting("redis_url", redis_url).value
        self._connector = Connector(url, tls=tls, client_name=client_name, credential_provider=credential_provider)
        self._server: Broker = self._connector.make_broker(Keys(""), timeout_s=timeout_s)

    @property
    def redis_address(self) -> str:
        """The URL of Redis without its password; behind Sentinel or in a cluster it names the seeds."""
        return str(self._connector)

    async def close(self) -> None:
        """Closes the connection. Safe to call twice."""
        await self._server.close()
        self._connector.leave_embedded_server_and_stop_logging()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
