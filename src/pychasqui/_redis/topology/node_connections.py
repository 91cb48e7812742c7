"""Asks several Sentinels or nodes the same, each over a connection of its own, and waits for enough answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from ...errors import ChasquiError, ConnectionLost, NotRedis
from ..connection import Connection
from ..endpoint import Endpoint, explain_failure
from ..tls import find_tls_remedy
from .node_map import Address

ASK_S = 1.0  # a node that takes longer counts as silent
GRACE_S = 0.1  # for the others, once enough have answered
CLIENT_NAME = "chasqui-watch"
T = TypeVar("T")


class Answers(NamedTuple, Generic[T]):
    found: dict[Address, T]
    errors: dict[Address, ChasquiError]

    def make_no_answer_error(self, node_kind: str) -> ChasquiError:
        """Says why none has answered: each reason once, with those that it holds for."""
        addresses: dict[str, list[str]] = {}
        for address, error in self.errors.items():
            if isinstance(error, NotRedis):  # another attempt finds the same
                return NotRedis(*error.args)
            addresses.setdefault(str(error), []).append(str(address))
        reasons = "; ".join(f"{', '.join(those)}: {reason}" for reason, those in addresses.items())
        is_reached = all(find_tls_remedy(reason) for reason in addresses)
        return ConnectionLost(
            f"no {node_kind} answers ({reasons}){'' if is_reached else ': check the addresses in redis_url'}"
        )


class FixedDestination:
    """The destination of a connection that always goes to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def explain_failure(self, endpoint: Endpoint | None, error: Exception) -> str:
        return explain_failure(error, "start it, or name another")

    async def find_endpoint_or_start_server(self, on_change: Callable[[], None]) -> Endpoint:
        return self._endpoint

    def check_server_and_switch_if_cluster(self, endpoint: Endpoint, dialect: object) -> None:
        """Any server is the right one."""

    def report_trouble(self, endpoint: Endpoint, error: object) -> None:
        """There is no other."""

    def note_moved_slot_and_see_if_may_stay(self, endpoint: Endpoint, error: object) -> bool:
        """No slot is asked for."""
        return False

    def may_be_right_server(self, endpoint: Endpoint) -> bool:
        return True

    def may_wait_for_replies_of(self, endpoint: Endpoint) -> bool:
        return True

    def stop_listening(self) -> None:
        """Nothing was begun."""

    def make_destination_if_slot_is_elsewhere(self, slot: int) -> None:
        """It leads to one server alone."""

    def list_one_slot_of_each_master(self) -> list[int]:
        return []


class NodeConnections:
    """A connection for each node that was asked."""

    def __init__(self, template: Endpoint) -> None:
        self._template = replace(template, client_name=CLIENT_NAME)
        self._connections: dict[Address, Connection] = {}

    def get_or_make_connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            endpoint = replace(self._template, host=address.host, port=address.port)
            connection = Connection(FixedDestination(endpoint), printable_url=str(address), timeout_s=ASK_S)
            self._connections[address] = connection
        return connection

    async def ask_nodes_until_enough_answer(
        self,
        addresses: Iterable[Address],
        ask_node: Callable[[Address, Connection], Awaitable[T]],
        *,
        enough_answers: int,
    ) -> Answers[T]:
        """Returns the answers, a moment after `enough_answers` of them are there or when the time is up."""
        tasks = {
            asyncio.ensure_future(ask_node(address, self.get_or_make_connection(address))): address
            for address in addresses
        }
        give_up_at = asyncio.get_running_loop().time() + ASK_S
        pending = set(tasks)
        while pending and (left_s := give_up_at - asyncio.get_running_loop().time()) > 0:
            answered = sum(task.done() and task.exception() is None for task in tasks)
            is_enough = answered >= enough_answers
            timeout_s = min(left_s, GRACE_S) if is_enough else left_s
            done, pending = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if is_enough and not done:
                break
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        answers: Answers[T] = Answers({}, {})
        for task, address in tasks.items():
            error = ConnectionLost("no answer in time") if task.cancelled() else task.exception()
            if isinstance(error, ConnectionLost):
                answers.errors[address] = ConnectionLost(str(self.get_or_make_connection(address).trouble or error))
            elif error is None:
                answers.found[address] = task.result()
            elif isinstance(error, ChasquiError):
                answers.errors[address] = error
            else:
                raise error
        return answers

    async def close_connection_to(self, address: Address) -> None:
        """The node is gone."""
        if (connection := self._connections.pop(address, None)) is not None:
            await connection.close()

    async def close_connections_to_others(self, addresses: set[Address]) -> None:
        """The other nodes are gone. Each connection would try for ever to reach its own."""
        for address in self._connections.keys() - addresses:
            await self.close_connection_to(address)

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
