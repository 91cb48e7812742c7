"""RoutedDestination: where one connection leads.

It asks its connector before each attempt, because the connector may find out that its server is a node of a cluster.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ...errors import ConnectionLost, RedisTrouble, ReplyError
from ..dialect import Dialect
from ..endpoint import Endpoint
from ..socket import Redirected
from .node_map import SLOTS, Address

if TYPE_CHECKING:
    from .route import Route

_MOVED = re.compile(r"MOVED (\d{1,5}) (.*):(\d{1,5})$")


def make_server_is_sentinel_error(address: object) -> RedisTrouble:
    return RedisTrouble(
        f"{address} is a Sentinel: use redis+sentinel://{address}/NAME, where NAME is the master that SENTINEL MASTERS "
        "shows"
    )


class RouteOwner(Protocol):
    """A connector, as its destinations see it."""

    @property
    def route(self) -> Route | None: ...

    def switch_to_cluster(self, endpoint: Endpoint) -> Route: ...

    async def find_endpoint_or_join_embedded_server(self) -> Endpoint: ...


class RoutedDestination:
    """Leads to the one server of the URL, or to the node that has the slot."""

    def __init__(self, connector: RouteOwner, slot: int, *, protocol: int | None) -> None:
        self._connector = connector
        self.slot = slot
        self._protocol = protocol
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_change: Callable[[], None] | None = None

    @property
    def absence_remedy(self) -> str:
        route = self._connector.route
        if route is None:
            return "start a server, or use embedded:// for development"
        if route.is_cluster:
            return "this node has the slot of the queue, and no replica has taken over: start it again"
        return "the Sentinels say that this is the master: start it again, or wait until they have elected another"

    async def find_and_follow_endpoint(self, on_change: Callable[[], None]) -> Endpoint:
        route = self._connector.route
        if route is None:
            endpoint = await self._connector.find_endpoint_or_join_embedded_server()
        else:
            self._loop, self._on_change = asyncio.get_running_loop(), on_change
            owner = await route.follow_master(self)
            endpoint = replace(
                await self._connector.find_endpoint_or_join_embedded_server(), host=owner.host, port=owner.port
            )
        return endpoint if self._protocol is None else replace(endpoint, protocol=self._protocol)

    def check_server_role(self, endpoint: Endpoint, dialect: Dialect) -> None:
        if dialect.mode == "sentinel":
            raise make_server_is_sentinel_error(endpoint.address)
        route = self._connector.route
        if route is None and dialect.mode == "cluster" and not endpoint.path:
            self._connector.switch_to_cluster(endpoint)
            raise Redirected(f"{endpoint.address} is a node of a cluster")
        if route is not None and not dialect.is_master:
            raise ConnectionLost(f"{endpoint.address} is a replica, which accepts no writes (READONLY)")

    def report_trouble(self, endpoint: Endpoint, error: Exception) -> None:
        route = self._connector.route
        if route is None:
            return
        if isinstance(error, ReplyError) and (moved := _read_moved_or_none(error, endpoint)) is not None:
            route.set_slot_owner_and_notify(*moved)
        else:
            route.request_refresh()

    def record_moved_slot_and_check_may_stay(self, endpoint: Endpoint, error: ReplyError) -> bool:
        route, moved = self._connector.route, _read_moved_or_none(error, endpoint)
        if route is None or moved is None:
            return False
        route.set_slot_owner_and_notify(*moved)
        return not route.may_have_slot(endpoint, moved[0])

    def may_be_right_server(self, endpoint: Endpoint) -> bool:
        route = self._connector.route
        return route is None or route.may_have_slot(endpoint, self.slot)

    def is_master(self, endpoint: Endpoint) -> bool:
        route = self._connector.route
        return route is None or route.is_master(endpoint)

    def stop_following(self) -> None:
        if (route := self._connector.route) is not None:
            route.remove_follower(self)

    def to_node_of_slot_unless_here(self, slot: int) -> RoutedDestination | None:
        route = self._connector.route
        if route is None or slot == self.slot or not route.is_cluster:
            return None
        return RoutedDestination(self._connector, slot, protocol=self._protocol)

    def slot_of_each_master(self) -> list[int]:
        route = self._connector.route
        return [] if route is None or not route.is_cluster else route.slot_of_each_master()

    def call_on_change_threadsafe(self) -> None:
        """Calls on_change in its loop. May be called in any thread."""
        if self._loop is not None and self._on_change is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_change)


def _read_moved_or_none(error: ReplyError, endpoint: Endpoint) -> tuple[int, Address] | None:
    """Returns the slot that MOVED is about and the node that has it; None if this is another error."""
    moved = _MOVED.search(str(error))
    if moved is None or int(moved[1]) >= SLOTS:
        return None
    host = moved[2].strip("[]")
    return int(moved[1]), Address(host if host not in ("", "?") else endpoint.host, int(moved[3]))
