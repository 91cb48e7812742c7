"""Locator: where the server of a URL is: at its address, in an embedded server's folder, or where a Route says."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..endpoint import Endpoint, Location, parse_endpoint
from ..url import CLUSTER, SERVER

if TYPE_CHECKING:
    from ...embedded import EmbeddedServer
    from .route import Route


class Locator:
    """Belongs to a Connector, whose connections ask it before each attempt.

    location      what the URL names; None: it is an embedded server, which is joined when it is first needed
    route_key     what connections with the same route have in common
    client_name   how the connection to an embedded server is called there
    """

    _embedded: EmbeddedServer | None = None

    def __init__(
        self, url: str, location: Location | None, *, route_key: tuple[Hashable, ...], client_name: str
    ) -> None:
        self._url = url
        self._location = location
        self._route_key = route_key
        self._client_name = client_name
        self._route: Route | None = None
        if location is not None and location.kind != SERVER:
            self._route = self._get_or_make_shared_route(location)

    @property
    def route(self) -> Route | None:
        """Where the masters are; None if the URL leads to one server."""
        return self._route

    def switch_to_cluster(self, endpoint: Endpoint) -> Route:
        """Makes a Route, because the server has said that it is a node of a cluster."""
        if self._route is None:
            self._route = self._get_or_make_shared_route(Location(CLUSTER, replace(endpoint, protocol=3), (endpoint,)))
        return self._route

    def _get_or_make_shared_route(self, location: Location) -> Route:
        from .route import get_or_make_shared_route  # here: most programs have one server

        return get_or_make_shared_route(self._route_key, location)

    async def find_endpoint_or_start_or_join_server(self) -> Endpoint:
        """Returns where to connect. Called before each attempt: an embedded server may have to be started again."""
        if self._location is not None:
            return self._location.node
        from ...embedded import AbandonableServerJoin

        joining = AbandonableServerJoin(self._url)
        try:
            joined = await asyncio.to_thread(joining.start_or_join_and_leave_if_given_up)
        except asyncio.CancelledError:
            joining.leave_or_have_thread_leave()
            raise
        if self._embedded is not None:  # an earlier attempt, or another connection that joined meanwhile
            self._embedded.leave()
        self._embedded = joined
        return parse_endpoint(joined.url, client_name=self._client_name)

    def leave_embedded_server(self) -> None:
        """Leaves an embedded server, if one was joined. Safe twice."""
        if self._embedded is not None:
            self._embedded.leave()
            self._embedded = None

    def __del__(self) -> None:
        """A queue that nobody has closed leaves, too."""
        self.leave_embedded_server()
