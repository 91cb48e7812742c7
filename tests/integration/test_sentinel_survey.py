"""What is made of the answers of Sentinels, with Sentinels that say what the test wants."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Self

import pytest

from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.topology import node_connections
from pychasqui._redis.topology.node_map import Address, NodeMap
from pychasqui._redis.topology.sentinel import AGREED_S, LONG_AGREED_S, SentinelSurvey
from pychasqui.errors import ChasquiError
from tests.support.clock import FakeClock
from tests.support.fake_server import FakeServer, refusal, silence

MASTER, OTHER, THIRD = (Address(f"10.0.0.{number}", 6379) for number in (1, 2, 3))


def words(*texts: str) -> bytes:
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


class FakeSentinel(FakeServer):
    """It names the others by the addresses in `others`, with the ids in it."""

    def __init__(self, own_id: str) -> None:
        super().__init__(self._answer_as_sentinel)
        self.own_id = own_id
        self.master, self.epoch = MASTER, 1
        self.others: dict[str, Address] = {}
        self.is_down = False
        self.switch_after_address_to: Address | None = None

    def lose_state(self) -> None:
        """It is started again from the configuration that it was set up with."""
        self.master, self.epoch, self.others = OTHER, 0, {}

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", int(self.url.rpartition(":")[2]))

    def _answer_as_sentinel(self, command: list[bytes]) -> bytes:
        if self.is_down:
            return refusal(command)
        match [word.upper() for word in command[:2]]:
            case [b"HELLO", *_]:
                facts = ("server", "redis", "version", "7.4.0", "proto", "2", "id", "1", "mode", "sentinel")
                return words(*facts, "role", "sentinel")
            case [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]:
                told = self.master
                if self.switch_after_address_to is not None:
                    self.master, self.epoch, self.switch_after_address_to = self.switch_after_address_to, 8, None
                return words(told.host, str(told.port))
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

    clock: FakeClock

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.sentinels = [FakeSentinel(own_id) for own_id in ("a", "b", "c")]

    async def __aenter__(self) -> Self:
        for each in self.sentinels:
            await self._stack.enter_async_context(each)
            away = await self._stack.enter_async_context(FakeServer(silence))
            for other in self.sentinels:
                other.others[each.own_id] = Address("127.0.0.1", int(away.url.rpartition(":")[2]))
        self.name_in_url(*(each.address for each in self.sentinels))
        return self

    def name_in_url(self, *addresses: Address) -> None:
        url = f"redis+sentinel://{','.join(map(str, addresses))}/mymaster"
        self.survey = SentinelSurvey(parse_location(url), lambda: None)

    def set_epoch(self, epoch: int) -> None:
        for each in self.sentinels:
            each.epoch = epoch

    async def __aexit__(self, *_: object) -> None:
        await self.survey.close()
        await self._stack.aclose()

    async def look(self, known: NodeMap | None) -> NodeMap:
        return await self.survey.find_changed_map_or_return_known(known, {0}, is_suspicious=False)

    async def look_for(self, span_s: float, known: NodeMap) -> NodeMap:
        """Looks three times, the last time after this time."""
        known = await self.look(known)
        for _ in range(2):
            self.clock.now += span_s / 2
            known = await self.look(known)
        return known


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    Stage.clock = FakeClock().install(monkeypatch)
    return Stage.clock


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
        stage.set_epoch(7)
        node_map = await stage.look(None)
        for each in stage.sentinels:
            each.epoch, each.master = 0, OTHER
        assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == OTHER


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


class TestSentinelsThatHaveLostTheirState:
    """A failover was at epoch 7. One in a container starts again from its first configuration, with another master."""

    async def test_one_that_alone_answers_does_not_outvote_the_known_master(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await stage.look(None)
            stage.sentinels[0].is_down = stage.sentinels[1].is_down = True
            stage.sentinels[2].lose_state()
            assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_one_that_the_url_names_twice_has_one_vote(self) -> None:
        async with Stage() as stage:
            one, *others = stage.sentinels
            stage.name_in_url(one.address, Address("localhost", one.address.port), others[0].address)
            stage.set_epoch(7)
            node_map = await stage.look(None)
            others[0].is_down = others[1].is_down = True
            one.master, one.epoch = OTHER, 0
            assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_one_is_not_believed_by_the_votes_of_others_for_another_master(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await stage.look(None)
            stage.set_epoch(0)
            stage.sentinels[0].master, stage.sentinels[0].epoch = OTHER, 1
            assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_votes_for_one_master_are_not_counted_for_the_next(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await stage.look(None)
            stage.set_epoch(0)
            for each in stage.sentinels:
                each.master = OTHER
            node_map = await stage.look_for(AGREED_S - 1, node_map)
            for each in stage.sentinels:
                each.master = THIRD
            assert (await stage.look_for(AGREED_S - 1, node_map)).find_owner(0) == MASTER

    async def test_one_that_alone_answers_names_another_master_of_the_known_epoch_in_vain(self) -> None:
        """Without a failover every configuration is of epoch 0."""
        async with Stage() as stage:
            stage.set_epoch(0)
            node_map = await stage.look(None)
            stage.sentinels[0].is_down = stage.sentinels[1].is_down = True
            stage.sentinels[2].lose_state()
            assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_most_of_them_name_another_master_of_the_known_epoch_and_are_believed(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(0)
            node_map = await stage.look(None)
            for each in stage.sentinels[:2]:
                each.lose_state()
                each.others = stage.sentinels[2].others
            assert (await stage.look_for(AGREED_S, node_map)).find_owner(0) == OTHER

    async def test_one_does_not_make_the_others_forgotten(self) -> None:
        async with Stage() as stage:
            one, *others = stage.sentinels
            for each in stage.sentinels:
                each.others = {other.own_id: other.address for other in stage.sentinels}
            stage.name_in_url(one.address)
            stage.set_epoch(7)
            node_map = await stage.look(None)
            await stage.look(node_map)  # it opens the connections to the others
            for each in others:
                each.is_down = True
            one.lose_state()
            node_map = await stage.look(node_map)
            for each in others:
                each.is_down, each.master, each.epoch = False, THIRD, 8
            assert (await stage.look(node_map)).find_owner(0) == THIRD


class TestSentinelsThatAreGoneForGood:
    """Sentinels never forget others: after their pods were replaced, half of those that they know are gone."""

    @staticmethod
    async def look_with_three_others_gone(stage: Stage) -> NodeMap:
        for each in stage.sentinels:
            others = {other.own_id: other.address for other in stage.sentinels}
            each.others = others | {own_id: Address("127.0.0.1", port) for port, own_id in enumerate("def", 1)}
        known = await stage.look(None)
        for each in stage.sentinels:  # SENTINEL REMOVE and MONITOR
            each.master, each.epoch = OTHER, 0
            each.others = {own_id: address for own_id, address in each.others.items() if own_id in "abc"}
        return known

    @pytest.mark.parametrize("epoch", (0, 7))
    async def test_sentinels_that_are_left_are_believed_in_the_end(self, epoch: int) -> None:
        async with Stage() as stage:
            stage.set_epoch(epoch)
            node_map = await self.look_with_three_others_gone(stage)
            node_map = await stage.look_for(LONG_AGREED_S - 1, node_map)
            assert node_map.find_owner(0) == MASTER
            assert (await stage.look_for(1, node_map)).find_owner(0) == OTHER

    async def test_the_log_says_once_why_the_known_master_is_kept(self, caplog: pytest.LogCaptureFixture) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await self.look_with_three_others_gone(stage)
            await stage.look_for(AGREED_S, node_map)
        (record,) = caplog.records
        assert record.message == (
            f"3 Sentinels of mymaster name {OTHER} as the master, which no failover from {MASTER} explains: it is "
            "believed once 4 of them agree for 5 s, or all that answer for 30 s"
        )

    async def test_a_single_fresh_one_at_the_only_address_of_the_url_is_believed_in_the_end(self) -> None:
        async with Stage() as stage:
            one, *others = stage.sentinels
            stage.name_in_url(one.address)
            stage.set_epoch(7)
            node_map = await stage.look(None)
            for each in others:
                each.is_down = True
            one.lose_state()
            one.own_id = "new"
            node_map = await stage.look_for(LONG_AGREED_S - 1, node_map)
            assert node_map.find_owner(0) == MASTER
            assert (await stage.look_for(1, node_map)).find_owner(0) == OTHER

    async def test_one_of_three_in_the_url_is_never_believed_alone(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await stage.look(None)
            stage.sentinels[0].is_down = stage.sentinels[1].is_down = True
            stage.sentinels[2].lose_state()
            assert (await stage.look_for(3 * LONG_AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_one_that_the_url_names_twice_is_never_believed_alone(self) -> None:
        async with Stage() as stage:
            one, *others = stage.sentinels
            stage.name_in_url(one.address, Address("localhost", one.address.port), others[0].address)
            stage.set_epoch(7)
            node_map = await stage.look(None)
            others[0].is_down = others[1].is_down = True
            one.master, one.epoch = OTHER, 0
            assert (await stage.look_for(3 * LONG_AGREED_S, node_map)).find_owner(0) == MASTER

    async def test_one_that_still_names_the_known_master_keeps_it(self) -> None:
        async with Stage() as stage:
            stage.set_epoch(7)
            node_map = await self.look_with_three_others_gone(stage)
            stage.sentinels[1].master = MASTER
            assert (await stage.look_for(3 * LONG_AGREED_S, node_map)).find_owner(0) == MASTER


async def test_a_failover_is_not_taken_back_while_the_one_that_has_led_it_is_silent(clock: FakeClock) -> None:
    """The others hear of it within 2 s. Lost connections make looks as frequent as they can be."""
    async with Stage() as stage:
        stage.set_epoch(5)
        node_map = await stage.look(None)
        stage.sentinels[2].master, stage.sentinels[2].epoch = OTHER, 6
        node_map = await stage.look(node_map)
        assert node_map.find_owner(0) == OTHER
        stage.sentinels[2].is_down = True
        for _ in range(10):
            node_map = await stage.look(node_map)
            clock.now += AGREED_S / 10 - 0.01
        assert node_map.find_owner(0) == OTHER


async def test_agreement_does_not_outlast_a_look_without_answers(clock: FakeClock) -> None:
    async with Stage() as stage:
        stage.set_epoch(7)
        node_map = await stage.look(None)
        for each in stage.sentinels:
            each.epoch, each.master = 0, OTHER
        await stage.look(node_map)
        for each in stage.sentinels:
            each.is_down = True
        with pytest.raises(ChasquiError):
            await stage.look(node_map)
        clock.now += AGREED_S
        for each in stage.sentinels:
            each.is_down = False
        assert (await stage.look(node_map)).find_owner(0) == MASTER


async def test_a_failover_between_two_questions_to_a_sentinel_is_noticed_at_the_next_look() -> None:
    """The epoch is never newer than the master beside it: another master of a known epoch is not believed at once."""
    async with Stage() as stage:
        node_map = await stage.look(None)
        for each in stage.sentinels:
            each.switch_after_address_to = THIRD
        node_map = await stage.look(node_map)
        assert (await stage.look(node_map)).find_owner(0) == THIRD
