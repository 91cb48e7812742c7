"""What is made of the answers of Sentinels, with Sentinels that say what the test wants."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Self

import pytest

from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.topology import node_connections
from pychasqui._redis.topology.node_map import Address, NodeMap
from pychasqui._redis.topology.sentinel import OLDER_LOOKS, SentinelSurvey
from tests.support.fake_server import FakeServer, silence

MASTER, OTHER = Address("10.0.0.1", 6379), Address("10.0.0.2", 6379)


def words(*texts: str) -> bytes:
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


class FakeSentinel(FakeServer):
    """It names the others by the addresses in `others`, with the ids in it."""

    def __init__(self, own_id: str) -> None:
        super().__init__(self._answer_as_sentinel)
        self.own_id = own_id
        self.master, self.epoch = MASTER, 1
        self.others: dict[str, Address] = {}

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", int(self.url.rpartition(":")[2]))

    def _answer_as_sentinel(self, command: list[bytes]) -> bytes:
        match [word.upper() for word in command[:2]]:
            case [b"HELLO", *_]:
                facts = ("server", "redis", "version", "7.4.0", "proto", "2", "id", "1", "mode", "sentinel")
                return words(*facts, "role", "sentinel")
            case [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]:
                return words(self.master.host, str(self.master.port))
            case [b"SENTINEL", b"MASTER"]:
                return words("config-epoch", str(self.epoch))
            case [b"SENTINEL", b"SENTINELS"]:
                named = [
                    words("ip", each.host, "port", str(each.port), "runid", own_id)
                    for own_id, each in self.others.items()
                    if own_id != self.own_id
                ]
                return b"*%d\r\n" % len(named) + b"".join(named)
        return words(self.own_id).partition(b"\r\n")[2]


class Stage:
    """Three Sentinels, each behind NAT: the addresses by which they know each other lead nowhere."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.sentinels = [FakeSentinel(own_id) for own_id in ("a", "b", "c")]

    async def __aenter__(self) -> Self:
        for each in self.sentinels:
            await self._stack.enter_async_context(each)
            away = await self._stack.enter_async_context(FakeServer(silence))
            for other in self.sentinels:
                other.others[each.own_id] = Address("127.0.0.1", int(away.url.rpartition(":")[2]))
        addresses = ",".join(str(each.address) for each in self.sentinels)
        self.survey = SentinelSurvey(parse_location(f"redis+sentinel://{addresses}/mymaster"), lambda: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.survey.close()
        await self._stack.aclose()

    async def look(self, known: NodeMap | None) -> NodeMap:
        return await self.survey.find_changed_map_or_return_known(known, {0}, is_suspicious=False)


async def test_sentinels_behind_nat_are_not_waited_for_at_the_addresses_that_they_know() -> None:
    async with Stage() as stage:
        node_map = await stage.look(None)
        assert stage.survey._sentinels == [each.address for each in stage.sentinels]
        async with asyncio.timeout(node_connections.ASK_S / 2):
            assert await stage.look(node_map) is node_map


async def test_a_silent_sentinel_behind_nat_does_not_make_the_majority_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        node_map = await stage.look(None)
        monkeypatch.setattr(stage.sentinels[0], "_answer", silence)
        node_map = await stage.look(node_map)  # from now on its other address is asked, too
        async with asyncio.timeout(node_connections.ASK_S / 2):
            assert await stage.look(node_map) is node_map


async def test_sentinels_behind_nat_that_were_set_up_again_are_believed() -> None:
    async with Stage() as stage:
        for each in stage.sentinels:
            each.epoch = 7
        node_map = await stage.look(None)
        for each in stage.sentinels:
            each.epoch, each.master = 0, OTHER
        for _ in range(OLDER_LOOKS):
            node_map = await stage.look(node_map)
        assert node_map.find_owner(0) == OTHER


async def test_a_sentinel_that_was_set_up_with_another_master_is_outvoted() -> None:
    async with Stage() as stage:
        stage.sentinels[0].master = OTHER
        assert (await stage.look(None)).find_owner(0) == MASTER


async def test_sentinels_that_announce_one_address_know_each_other() -> None:
    """As in containers: a Sentinel then keeps the others without a port."""
    async with Stage() as stage:
        for each in stage.sentinels:
            each.others = {own_id: Address("172.17.0.2", 0) for own_id in each.others}
        stage.sentinels[0].master, stage.sentinels[0].epoch = OTHER, 2  # it has heard of a failover first
        assert (await stage.look(None)).find_owner(0) == OTHER
