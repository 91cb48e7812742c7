"""NodeMap: which node has which slot, as the nodes or the Sentinels said at one moment. It never changes.

Behind Sentinel there is one range with every slot, which the master has.
"""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..endpoint import format_address

SLOTS = 16384
UNKNOWN_HOST = "?"  # of a node that should be called by a name, and has announced none yet


class Address(NamedTuple):
    """Host and port of a node."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)

    @classmethod
    def parse_with_port_or_zero(cls, text: str) -> Address:
        """Reads host:port; the port is 0 if there is none, or none that is a number.

        An IPv6 address may stand in brackets, as in a URL, or without, as servers write it.
        """
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port) if port.isdecimal() and len(port) < 6 else 0)


class SlotRange(NamedTuple):
    first: int
    last: int
    master: Address


@dataclass(frozen=True)
class NodeMap:
    ranges: tuple[SlotRange, ...]
    nodes: frozenset[Address]  # masters and replicas
    epoch: int  # of the configuration: a higher one is newer
    moved: dict[int, Address] = field(default_factory=dict)  # slots of which a node has said where they are since

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Returns what makes a map count more than another: that it has slots, its epoch, and how many slots it has.

        A node that was removed from the cluster has none, and the same epoch; one that has just joined has a few.
        """
        slots = sum(each.last - each.first + 1 for each in self.ranges)
        return slots > 0, self.epoch, slots

    def find_owner(self, slot: int) -> Address | None:
        """Returns the master that has a slot; None if no node has it."""
        if (moved := self.moved.get(slot)) is not None:
            return moved
        return next((each.master for each in self.ranges if each.first <= slot <= each.last), None)

    def may_have_slots(self, address: Address) -> bool:
        """Returns whether a node had slots when the map was made, or has got one since."""
        return address in self.moved.values() or any(each.master == address for each in self.ranges)

    def with_moved_slot(self, slot: int, address: Address) -> NodeMap:
        """Returns the map as it is after a node has answered MOVED."""
        return replace(self, moved={**self.moved, slot: address}, nodes=self.nodes | {address})


def compute_slot_of_key(key: str) -> int:
    """Returns the slot of a key: that of what stands in its first braces, if anything does."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if opened and closed and tag else key).encode(), 0) % SLOTS
