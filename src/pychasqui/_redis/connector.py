"""Makes the connections of a Queue or a Worker: to a URL, or to an embedded server that is joined when first needed."""

from __future__ import annotations

import asyncio
import logging
import string
from dataclasses import replace
from urllib.parse import quote

from .. import embedded
from ..errors import InvalidArgument
from ..metrics import GuardedSinks
from .broker import Broker
from .connection import Connection, MasterSearch
from .endpoint import CredentialProvider, Endpoint, parse_endpoint
from .keys import Keys
from .timed_broker import make_broker
from .tls import unchecked

PRINTABLE = string.punctuation  # what CLIENT SETNAME takes beside letters and digits: no space, nothing beyond ASCII
log = logging.getLogger("chasqui.connection")


class Connector:
    """Checks the URL at once, starts or joins an embedded server only when a connection is wanted."""

    def __init__(
        self, url: str, *, tls: bool, client_name: str, credential_provider: CredentialProvider | None = None
    ) -> None:
        self._url = url
        self._client_name = client_name
        self._name_at_server = quote(client_name, safe=PRINTABLE)
        self._stay: embedded.EmbeddedServer | None = None
        self._is_down = False
        self._is_left = False
        self._master_search = MasterSearch()
        self._endpoint: Endpoint | None = None
        if not isinstance(url, str) or not embedded.is_embedded(url):
            self._endpoint = parse_endpoint(
                url, tls=tls, client_name=self._name_at_server, credential_provider=credential_provider
            )
            if self._endpoint.tls is not None and (gap := unchecked(self._endpoint.tls)):
                log.warning(
                    "%s: %s, so that others on the line can read and change jobs; name the authority that signs it by "
                    "ssl_ca_certs instead",
                    self,
                    gap,
                )
        elif tls or credential_provider is not None:
            raise InvalidArgument("tls and credential_provider contradict redis_url: an embedded server has neither")
        else:
            self._url = embedded.absolute_url(url)  # now: the process may go elsewhere before it connects

    def __str__(self) -> str:
        return str(self._endpoint or self._url)

    @property
    def server(self) -> tuple[str, int | None] | None:
        """Host and port, or a socket's path; None for an embedded server."""
        if self._endpoint is None:
            return None
        return (self._endpoint.path, None) if self._endpoint.path else (self._endpoint.host, self._endpoint.port)

    def broker(
        self, keys: Keys, *, timeout_s: float, gets_messages: bool = True, sinks: GuardedSinks | None = None
    ) -> Broker:
        """A broker with a connection of its own. `sinks` get the times of its calls, if one of them wants them."""
        return make_broker(self.connection(timeout_s=timeout_s, gets_messages=gets_messages), keys, sinks)

    def connection(self, *, timeout_s: float, gets_messages: bool = True) -> Connection:
        """With `gets_messages=False` the connection cannot subscribe, and uses RESP2 whatever the URL says."""
        find = self.find if gets_messages else self._find_resp2
        return Connection(
            find,
            printable=str(self),
            timeout_s=timeout_s,
            on_down=self._log_down,
            on_up=self._log_up,
            master_search=self._master_search,
        )

    async def _find_resp2(self) -> Endpoint:
        return replace(await self.find(), protocol=2)

    async def find(self) -> Endpoint:
        """Asked before each attempt to connect: an embedded server that has ended is started again."""
        if self._endpoint is not None:
            return self._endpoint
        if self._stay is not None:
            self._stay.leave()
        joining = asyncio.create_task(asyncio.to_thread(embedded.join, self._url))
        try:
            self._stay = await asyncio.shield(joining)
        except asyncio.CancelledError:
            # The thread cannot be stopped; once it is there, it leaves again.
            joining.add_done_callback(_leave_again)
            raise
        return parse_endpoint(self._stay.url, client_name=self._name_at_server)

    def _log_down(self, error: Exception) -> None:
        """Logs one line for all connections of this connector, when the first of them fails."""
        if not self._is_down and not self._is_left:
            self._is_down = True
            log.warning("%s cannot reach %s and keeps trying: %s", self._client_name, self, error)

    def _log_up(self) -> None:
        if self._is_down:
            self._is_down = False
            log.info("%s has reached %s again", self._client_name, self)

    def leave(self) -> None:
        self._is_left = True
        if self._stay is not None:
            self._stay.leave()
            self._stay = None


def _leave_again(joining: asyncio.Task[embedded.EmbeddedServer]) -> None:
    if not joining.cancelled() and joining.exception() is None:
        joining.result().leave()
