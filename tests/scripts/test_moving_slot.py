"""While a slot of a cluster moves, a script that needs a key which has moved is refused before it writes.

For every script each subset of the keys of its scenario has moved. The node that has the slot cannot tell a key that
has moved from one that was never there, so the keys are deleted while the slot is open. Each call is then either
refused with an error after which it is sent again, and the data are as before, or it does the same as with a slot at
rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import pytest
import redis

from pychasqui._redis.error_actions import may_send_again_after
from pychasqui.errors import ReplyError
from tests.scripts.facts import Fact, facts_of
from tests.scripts.group import KEYS, Group
from tests.scripts.scenarios import SCENARIOS, Scenario
from tests.support.server import RedisServer

CLUSTER = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
PATIENCE_S = 20
NEEDS_NO_KEY = ("register_queue",)  # of the queue
MOST_SUBSETS = 16  # of a scenario; all of them unless it has more than four keys


class MovingSlot(NamedTuple):
    """A node that has every slot, and the name of another one that the queue's slot can move to."""

    client: Any
    other: str
    slot: int

    def open(self) -> None:
        self.client.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", self.other)

    def close(self) -> None:
        self.client.execute_command("CLUSTER SETSLOT", self.slot, "STABLE")


@pytest.fixture(scope="module")
def slot() -> Iterator[MovingSlot]:
    with RedisServer(*CLUSTER, tcp=True) as here, RedisServer(*CLUSTER, tcp=True) as there, here.client() as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(16384))
        client.execute_command("CLUSTER MEET", "127.0.0.1", there.port)
        other = there.execute("CLUSTER MYID").decode()
        deadline = time.monotonic() + PATIENCE_S
        while not (
            other in str(client.execute_command("CLUSTER NODES"))
            and client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
        ):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)
        yield MovingSlot(client, other, client.execute_command("CLUSTER KEYSLOT", KEYS.stream))


class RefusableGroup(Group):
    """Sends the scenario's calls, notes which are refused, and what is wrong with a refusal."""

    def __init__(self, client: Any, *, at_once: bool) -> None:
        super().__init__(client, at_once=at_once)
        self.refusals = 0
        self.wrongs: list[str] = []

    def run(self, script: Any, keys: list[str], *arguments: Any) -> Any:
        before = facts_of(self.client)
        try:
            return super().run(script, keys, *arguments)
        except redis.ResponseError as error:
            self.refusals += 1
            if facts_of(self.client) != before:
                self.wrongs.append(f"it is refused after it has written: {error}")
            if not may_send_again_after(ReplyError(_as_sent(error))):
                self.wrongs.append(f"it is not sent again after this refusal: {error}")
            raise


def _as_sent(error: redis.ResponseError) -> str:
    """The text of the server; redis-py takes the code from it for errors of its own classes."""
    codes = {redis.exceptions.TryAgainError: "TRYAGAIN", redis.exceptions.ClusterDownError: "CLUSTERDOWN"}
    if isinstance(error, redis.exceptions.AskError):
        return f"ASK {error.args[0]}"
    text = str(error)
    return next((f"{code} {text}" for kind, code in codes.items() if isinstance(error, kind)), text)


def prepare(scenario: Scenario, slot: MovingSlot) -> tuple[Group, Any]:
    slot.close()
    slot.client.flushall()
    group = Group(slot.client)
    group.create()
    return group, scenario.prepare(group)


def subsets(keys: list[str]) -> Iterator[tuple[str, ...]]:
    """All of them if they are few; else the small ones and the large ones, which are the ones that differ."""
    sizes = sorted(range(1, len(keys) + 1), key=lambda size: min(size, len(keys) - size))
    every = (chosen for size in sizes for chosen in combinations(keys, size))
    yield from (chosen for _, chosen in zip(range(MOST_SUBSETS), every, strict=False))


def without(facts: frozenset[Fact], keys: tuple[str, ...], scenario: Scenario) -> frozenset[Fact]:
    return frozenset(fact for fact in facts if fact.key not in keys and not scenario.may_lack(fact.key))


def wrongs_of(scenario: Scenario, slot: MovingSlot) -> list[str]:
    group, send = prepare(scenario, slot)
    keys = sorted(key.decode() for key in slot.client.keys("*") if key.startswith(KEYS.prefix.encode()))
    send(group)
    after = facts_of(slot.client)
    found: list[str] = []
    refused = 0
    for moved in subsets(keys):
        group, send = prepare(scenario, slot)
        slot.client.delete(*moved)
        slot.open()
        refusable = RefusableGroup(slot.client, at_once=group.at_once)
        try:
            send(refusable)
        except redis.ResponseError:
            refused += 1
        else:
            now = facts_of(slot.client)
            if without(now, moved, scenario) != without(after, moved, scenario):
                refusable.wrongs.append("it has done something else")
        found += [f"{moved} moved: {wrong}" for wrong in refusable.wrongs]
    assert refused or scenario.script in NEEDS_NO_KEY, "no call is refused: the slot is not open"
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_an_open_slot_refuses_each_call_whole_or_changes_nothing_about_it(slot: MovingSlot, scenario: Scenario) -> None:
    assert wrongs_of(scenario, slot) == []
