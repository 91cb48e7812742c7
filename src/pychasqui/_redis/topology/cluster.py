"""ClusterSurvey: asks nodes of a cluster which of them has which slots.

The masters in use are pinged. While one of them is silent, or a connection was lost or redirected, others are asked
twice a second, else some node every half minute. A node that is cut off knows an old map, and one that was removed
knows none: of the answers that have slots the one of the highest epoch counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..._wire.lenient import read_cut_text, read_first_pairs, read_int
from ...errors import AuthenticationFailed, ChasquiError, RedisTrouble, ReplyError
from ..command_replies import decode_info_text
from ..connection import Connection
from ..endpoint import Location
from .destination import make_server_is_sentinel_error
from .node_connections import ASK_S, Answers, NodeConnections
from .node_map import UNKNOWN_HOST, Address, NodeMap, SlotRange

PING_EVERY_S = 0.5
ASK_EVERY_S = 30.0
SUSPICIOUS_S = 5.0  # for how long others are asked often
OLDER_S = 5.0  # after this long an older map counts, or one with fewer slots: the cluster was made again
MAX_NODES_ASKED = 3


class ClusterSurvey:
    def __init__(self, location: Location, wake: Callable[[], None]) -> None:
        self.pause_s = PING_EVERY_S
        self._nodes = NodeConnections(location.node)
        self._seeds = {Address(seed.host, seed.port) for seed in location.seeds}
        self._wake = wake
        self._pings: dict[Address, asyncio.Task[None]] = {}
        self._silent: set[Address] = set()
        self._suspicious_until = 0.0
        self._ask_at = 0.0
        self._worse_since: float | None = None  # since when no answer was as good as what is known
        self._moved: dict[int, Address] = {}  # slots of which nodes have answered MOVED, and since when
        self._moved_at = 0.0

    async def find_changed_map_or_return_known(
        self, known: NodeMap | None, slots: set[int], *, is_suspicious: bool
    ) -> NodeMap:
        """Returns the present map; `known` itself if nothing has changed or nothing is suspicious."""
        now = asyncio.get_running_loop().time()
        if known is None:
            return await self._ask_nodes_for_newer_map_or_return_known(known)
        self._start_missing_pings_of_masters({owner for slot in slots if (owner := known.find_owner(slot)) is not None})
        if is_suspicious or self._silent or any(known.find_owner(slot) is None for slot in slots):
            self._suspicious_until = now + SUSPICIOUS_S
        if now >= self._suspicious_until and now < self._ask_at:
            return known
        self._ask_at = now + ASK_EVERY_S
        found = await self._ask_nodes_for_newer_map_or_return_known(known)
        await self._nodes.close_connections_to_others(self._seeds | found.nodes)
        return found

    async def close(self) -> None:
        for ping in self._pings.values():
            ping.cancel()
        if self._pings:
            await asyncio.wait(self._pings.values())
        await self._nodes.close()

    def _start_missing_pings_of_masters(self, owners: set[Address]) -> None:
        self._silent &= owners
        self._pings = {address: ping for address, ping in self._pings.items() if address in owners or not ping.done()}
        for address in owners:
            if (ping := self._pings.get(address)) is None or ping.done():
                self._pings[address] = asyncio.ensure_future(self._ping_and_wake_if_newly_silent(address))

    async def _ping_and_wake_if_newly_silent(self, address: Address) -> None:
        try:
            await self._nodes.get_or_make_connection(address).call("PING", timeout_s=ASK_S)
        except ReplyError:  # a user that may not ask; the node answers
            self._silent.discard(address)
        except ChasquiError:
            if address not in self._silent:
                self._silent.add(address)
                self._wake()
        else:
            self._silent.discard(address)

    async def _ask_nodes_for_newer_map_or_return_known(self, known: NodeMap | None) -> NodeMap:
        nodes = self._seeds if known is None else self._seeds | known.nodes
        chosen = sorted(nodes - self._silent) or sorted(nodes)
        if known is not None:
            chosen = random.sample(chosen, min(len(chosen), MAX_NODES_ASKED))
        answers = await self._nodes.ask_nodes_until_enough_answer(
            chosen, self._ask_node_for_map, enough_answers=min(2, len(chosen))
        )
        if not answers.found:
            self._worse_since = None
            raise self._make_no_answer_error(answers)
        newest = max(answers.found.values(), key=lambda each: each.rank)
        now = asyncio.get_running_loop().time()
        if known is None or newest.rank >= known.rank:
            self._worse_since = None
        elif not self._note_worse_and_see_if_for_long(now):
            return known
        if known is not None and not newest.ranges:  # by removed nodes, perhaps: the others are asked, too
            newest = replace(newest, nodes=newest.nodes | known.nodes)
        if known is not None and self._note_moves_and_see_if_unchanged(known, newest, now):
            return known
        return newest

    def _note_worse_and_see_if_for_long(self, now: float) -> bool:
        """Returns whether all that was answered for OLDER_S is worse than what is known.

        Meanwhile the nodes are asked often: two answers with half a minute between them tell nothing of that time.
        """
        self._suspicious_until = now + SUSPICIOUS_S
        if self._worse_since is None:
            self._worse_since = now
        return now >= self._worse_since + OLDER_S

    def _note_moves_and_see_if_unchanged(self, known: NodeMap, newest: NodeMap, now: float) -> bool:
        """Returns whether there is nothing new: not even about slots whose new node others hear of a moment later.

        After OLDER_S what the nodes say counts again: the node that MOVED names may be gone.
        """
        if self._moved != known.moved:
            self._moved, self._moved_at = known.moved, now
        if (newest.ranges, newest.nodes) == (known.ranges, known.nodes) and not known.moved:
            return newest.epoch == known.epoch
        is_recent = bool(known.moved) and now < self._moved_at + OLDER_S
        return is_recent and newest.epoch == known.epoch and newest.ranges == known.ranges

    async def _ask_node_for_map(self, address: Address, connection: Connection) -> NodeMap:
        socket = await connection.get_or_open_socket(connection.make_deadline())
        if socket.dialect is not None and socket.dialect.mode == "sentinel":
            raise make_server_is_sentinel_error(address)
        slots, epoch = await asyncio.gather(connection.call("CLUSTER", "SLOTS"), _ask_epoch_or_zero(connection))
        return parse_node_map(slots, address.host, epoch)

    def _make_no_answer_error(self, answers: Answers[NodeMap]) -> ChasquiError:
        for address, error in answers.errors.items():
            if isinstance(error, ReplyError) and "cluster support disabled" in str(error):
                return RedisTrouble(f"{address} is no node of a cluster: use redis://{address} for a server")
            if isinstance(error, AuthenticationFailed):
                return AuthenticationFailed(*error.args)
            if type(error) is RedisTrouble:
                return RedisTrouble(*error.args)
        return answers.make_no_answer_error("node of the cluster")


def parse_node_map(reply: Any, asked_host: str, epoch: int) -> NodeMap:
    """Reads the reply to CLUSTER SLOTS. A node without a host is where the node is that was asked."""
    ranges: list[SlotRange] = []
    nodes: set[Address] = set()
    for entry in reply if isinstance(reply, list) else []:
        if not isinstance(entry, list) or len(entry) < 3:
            continue
        first, last = read_int(entry[0]), read_int(entry[1])
        found = [
            _read_node_address_or_none(each, asked_host)
            for each in entry[2:]
            if isinstance(each, list) and len(each) >= 2
        ]
        nodes.update(each for each in found if each is not None)
        if first is not None and last is not None and found and found[0] is not None:
            ranges.append(SlotRange(first, last, found[0]))
    return NodeMap(tuple(sorted(ranges)), frozenset(nodes), epoch)


def _read_node_address_or_none(node: list[Any], asked_host: str) -> Address | None:
    """Reads a node. One that should be called by a name and has announced none yet is "?", and its IP stands behind."""
    host, port = read_cut_text(node[0]) if node[0] is not None else "", read_int(node[1])
    if host == UNKNOWN_HOST:
        host = read_cut_text(read_first_pairs(node[3]).get(b"ip")) if len(node) > 3 else ""
    return Address(host or asked_host, port) if port else None


async def _ask_epoch_or_zero(connection: Connection) -> int:
    """Returns the epoch of what a node knows; 0 if this user may not ask."""
    try:
        lines = decode_info_text(await connection.call("CLUSTER", "INFO")).splitlines()
    except ReplyError:
        return 0
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("cluster_current_epoch:"))
    return read_int(next(found, "0")) or 0
