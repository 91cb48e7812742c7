"""Makes the connections of a Queue or a Worker to its URL. Joins an embedded server when it is first needed.

A URL of Sentinels or of a cluster has a Route; so has one of a server that turns out to be a node of a cluster.
"""

from __future__ import annotations

import asyncio
import logging
import string
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any
from urllib.parse import quote

from ..errors import InvalidArgument
from ..metrics import GuardedSinks
from .broker import Broker
from .connection import Connection
from .credentials import CredentialProvider
from .endpoint import Location, parse_location
from .handshake import RoleCheck
from .keys import Keys
from .measured_broker import make_plain_or_measured_broker
from .shared_sockets import SharedSockets, get_or_make_shared_sockets
from .tls import describe_disabled_checks
from .topology.destination import RoutedDestination
from .topology.locator import Locator
from .topology.node_map import compute_slot_of_key
from .url import SENTINEL

PRINTABLE = string.punctuation  # CLIENT SETNAME takes these, letters and digits: no space, only ASCII
EMBEDDED = "embedded:"
log = logging.getLogger("chasqui.connection")


class Connector:
    """Checks the URL at once; starts or joins an embedded server only when a connection is opened."""

    def __init__(
        self, url: str, *, tls: bool, client_name: str, credential_provider: CredentialProvider | None = None
    ) -> None:
        self._url = url
        self._client_name = client_name
        name_at_server = quote(client_name, safe=PRINTABLE)
        self._is_down = False
        self._is_left = False
        self._role_check = RoleCheck()
        self._location: Location | None = None
        # What connections with the same route have in common.
        self._key: tuple[Hashable, ...] = (url, tls, _make_hashable_key(credential_provider))
        if not isinstance(url, str) or not url.startswith(EMBEDDED):
            location = self._location = parse_location(
                url, tls=tls, client_name=name_at_server, credential_provider=credential_provider
            )
            if location.node.tls is not None and (gap := describe_disabled_checks(location.node.tls)):
                log.warning(
                    "%s: %s, so an attacker on the network can read and change jobs; instead, name the authority that "
                    "signs the certificate in ssl_ca_certs",
                    self,
                    gap,
                )
        elif tls or credential_provider is not None:
            raise InvalidArgument("tls and credential_provider contradict redis_url: an embedded server has neither")
        else:
            from ..embedded import absolute_url  # here: most programs have a server

            self._url = absolute_url(url)  # now: the process may change its working folder before it connects
            self._key = (self._url,)
        self._locator = Locator(self._url, self._location, route_key=self._key, client_name=name_at_server)

    def __str__(self) -> str:
        return str(self._location or self._url)

    @property
    def first_host_and_port(self) -> tuple[str, int | None] | None:
        """Host and port, the first if there are several, or a socket's path; None for an embedded server."""
        if self._location is None:
            return None
        node = self._location.node
        return (node.path, None) if node.path else (node.host, node.port)

    @property
    def sentinel_location_or_none(self) -> Location | None:
        """What the URL names, if that is Sentinels."""
        return self._location if self._location is not None and self._location.kind == SENTINEL else None

    def make_broker(
        self, keys: Keys, *, timeout_s: float, gets_messages: bool = True, sinks: GuardedSinks | None = None
    ) -> Broker:
        """Returns a broker with its own connection. Its calls are timed if one of `sinks` has `redis_answered`."""
        slot = compute_slot_of_key(keys.prefix)
        return make_plain_or_measured_broker(
            self.make_connection(timeout_s=timeout_s, gets_messages=gets_messages, slot=slot), keys, sinks
        )

    def make_broker_on_shared_socket(self, keys: Keys, *, timeout_s: float) -> Broker:
        """Returns a broker that shares its socket: with all brokers of this process, event loop, URL and timeout.

        None of its calls may block the server's side of it, or change its state.
        """
        get_or_make_sockets = partial(get_or_make_shared_sockets, (*self._key, timeout_s))
        return Broker(
            self.make_connection(
                timeout_s=timeout_s, slot=compute_slot_of_key(keys.prefix), get_or_make_sockets=get_or_make_sockets
            ),
            keys,
        )

    def make_connection(
        self,
        *,
        timeout_s: float,
        gets_messages: bool = True,
        slot: int = 0,
        get_or_make_sockets: Callable[[asyncio.AbstractEventLoop], SharedSockets] = SharedSockets,
    ) -> Connection:
        """Makes a connection to the server, or to the node of a cluster that has the slot.

        With `gets_messages=False` it cannot subscribe and uses RESP2, whatever the URL says.
        """
        return Connection(
            RoutedDestination(self._locator, slot, protocol=None if gets_messages else 2),
            printable_url=str(self),
            timeout_s=timeout_s,
            on_down=self._log_unreachable_once,
            on_up=self._log_reachable_again_if_down,
            role_check=self._role_check,
            get_or_make_sockets=get_or_make_sockets,
        )

    def _log_unreachable_once(self, error: Exception) -> None:
        """Logs one line for all connections of this connector, when the first of them fails."""
        if not self._is_down and not self._is_left:
            self._is_down = True
            log.warning("%s cannot reach %s and keeps trying: %s", self._client_name, self, error)

    def _log_reachable_again_if_down(self) -> None:
        if self._is_down:
            self._is_down = False
            log.info("%s has reached %s again", self._client_name, self)

    def leave_embedded_server_and_stop_logging(self) -> None:
        """Leaves an embedded server, and logs no more losses."""
        self._is_left = True
        self._locator.leave_embedded_server()


def _make_hashable_key(provider: Any) -> Hashable:
    """Returns the provider, or its number if its fields cannot be hashed."""
    try:
        hash(provider)
    except TypeError:
        return id(provider)
    else:
        found: Hashable = provider
        return found
