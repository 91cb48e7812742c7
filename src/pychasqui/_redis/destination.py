"""Destination: what a Connection asks where it leads. Implemented by topology/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..errors import ReplyError
from .dialect import Dialect
from .endpoint import Endpoint


class Destination(Protocol):
    """Where a connection leads: to one server, or to whichever server is the master."""

    def explain_failure(self, endpoint: Endpoint | None, error: Exception) -> str:
        """Says why no connection was made and, where it is known, what to change; None: before it was known where."""

    async def find_endpoint_or_start_server(self, on_change: Callable[[], None]) -> Endpoint:
        """Returns the endpoint to open; starts an embedded server if none runs.

        `on_change` is called in this loop when the endpoint may be another by then.
        """

    def check_server_and_switch_if_cluster(self, endpoint: Endpoint, dialect: Dialect) -> None:
        """Raises if the server that answers there is not the right one; a cluster has a route from then on."""

    def report_trouble(self, endpoint: Endpoint, error: Exception) -> None:
        """Notes that the server there cannot be reached or refuses calls."""

    def note_moved_slot_and_see_if_may_stay(self, endpoint: Endpoint, error: ReplyError) -> bool:
        """Notes where the slot is of which the node there has answered MOVED: who needs it connects there.

        Returns whether that node may keep its connection. False: nobody leaves by that, so it must be closed.
        """

    def may_be_right_server(self, endpoint: Endpoint) -> bool: ...

    def may_wait_for_replies_of(self, endpoint: Endpoint) -> bool:
        """Returns whether the server there is well, as far as is known, although it may not be the right one."""

    def stop_listening(self) -> None:
        """The connection is closed."""

    def make_destination_if_slot_is_elsewhere(self, slot: int) -> Destination | None:
        """Returns where the node of another slot is; None if that is here."""

    def list_one_slot_of_each_master(self) -> list[int]:
        """Returns a slot of each master of a cluster; none where there is one server."""
