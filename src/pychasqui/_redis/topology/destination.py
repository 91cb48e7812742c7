"""RoutedDestination: where one connection leads.

It asks its locator before each attempt, because the server may turn out to be a node of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ...errors import ConnectionLost, RedisTrouble, ReplyError
from ..dialect import Dialect
from ..endpoint import Endpoint, explain_failure, format_address
from ..socket import Redirected
from .locator import Locator
from .node_map import SLOTS, UNKNOWN_HOST, Address
from .route_listener import RouteListener

_MOVED = re.compile(r"MOVED (\d{1,5}) (.*):(\d{1,5})$")


def make_server_is_sentinel_error(address: object) -> RedisTrouble:
    return RedisTrouble(
        f"{address} is a Sentinel: use redis+sentinel://{address}/NAME, where NAME is the master that SENTINEL MASTERS "
        "shows"
    )


class RoutedDestination:
    """Leads to the one server of the URL, or to the node that has the slot."""

    def __init__(self, locator: Locator, slot: int, *, protocol: int | None) -> None:
        self._locator = locator
        self.slot = slot
        self._protocol = protocol
        self._listener: RouteListener | None = None  # from the first attempt on, if there is a route

    def explain_failure(self, endpoint: Endpoint | None, error: Exception) -> str:
        route = self._locator.route
        if route is None:
            return explain_failure(error, "start a server, or use embedded:// for development")
        if route.is_cluster:
            remedy = "this node has the slot of the queue, and no replica has taken over: start it again"
        else:
            remedy = (
                "the Sentinels say that this is the master: start it again, or wait until they have elected another"
            )
        if endpoint is None or route.is_in_url(endpoint):
            return explain_failure(error, remedy)
        reason = explain_failure(error, remedy, host_remedy="make the name known here")
        who = "the nodes announce" if route.is_cluster else "the Sentinels announce"
        return f"{format_address(endpoint.host, endpoint.port)}, which {who}: {reason}"

    async def find_endpoint_or_start_server(self, on_change: Callable[[], None]) -> Endpoint:
        route = self._locator.route
        if route is None:
            endpoint = await self._locator.find_endpoint_or_start_or_join_server()
        else:
            if self._listener is None or not self._listener.is_in_running_loop:
                self._listener = RouteListener(self.slot, on_change)
            owner = await route.find_master_and_listen(self._listener)
            endpoint = replace(
                await self._locator.find_endpoint_or_start_or_join_server(), host=owner.host, port=owner.port
            )
        return endpoint if self._protocol is None else replace(endpoint, protocol=self._protocol)

    def check_server_and_switch_if_cluster(self, endpoint: Endpoint, dialect: Dialect) -> None:
        if dialect.mode == "sentinel":
            raise make_server_is_sentinel_error(endpoint.address)
        route = self._locator.route
        if route is None and dialect.mode == "cluster" and not endpoint.path:
            self._locator.switch_to_cluster(endpoint)
            raise Redirected(f"{endpoint.address} is a node of a cluster")
        if route is not None and not dialect.is_master:
            raise ConnectionLost(f"{endpoint.address} is a replica, which accepts no writes (READONLY)")

    def report_trouble(self, endpoint: Endpoint, error: Exception) -> None:
        route = self._locator.route
        if route is None:
            return
        if isinstance(error, ReplyError) and (moved := _read_moved_or_none(error, endpoint)) is not None:
            route.set_slot_owner_and_notify(*moved)
        else:
            route.request_refresh_if_running()

    def note_moved_slot_and_see_if_may_stay(self, endpoint: Endpoint, error: ReplyError) -> bool:
        route, moved = self._locator.route, _read_moved_or_none(error, endpoint)
        if route is None or moved is None:
            return False
        route.set_slot_owner_and_notify(*moved)
        return not route.may_be_master_of_slot(endpoint, moved[0])

    def may_be_right_server(self, endpoint: Endpoint) -> bool:
        route = self._locator.route
        return route is None or route.may_be_master_of_slot(endpoint, self.slot)

    def may_wait_for_replies_of(self, endpoint: Endpoint) -> bool:
        route = self._locator.route
        return route is None or route.may_have_slots(endpoint)

    def stop_listening(self) -> None:
        if (route := self._locator.route) is not None and self._listener is not None:
            route.remove_listener(self._listener)

    def make_destination_if_slot_is_elsewhere(self, slot: int) -> RoutedDestination | None:
        route = self._locator.route
        if route is None or slot == self.slot or not route.is_cluster:
            return None
        return RoutedDestination(self._locator, slot, protocol=self._protocol)

    def list_one_slot_of_each_master(self) -> list[int]:
        route = self._locator.route
        return [] if route is None or not route.is_cluster else route.list_one_slot_of_each_master()


def _read_moved_or_none(error: ReplyError, endpoint: Endpoint) -> tuple[int, Address] | None:
    """Returns the slot that MOVED is about and the node that has it; None if this is another error, or has no host."""
    moved = _MOVED.search(str(error))
    if moved is None or int(moved[1]) >= SLOTS or moved[2] == UNKNOWN_HOST:
        return None
    return int(moved[1]), Address(moved[2].strip("[]") or endpoint.host, int(moved[3]))
