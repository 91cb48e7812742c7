"""A queue behind Sentinel: a planned failover, a master that freezes and wakes, one that is killed, and wrong URLs."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator

import pytest

from pychasqui import Queue
from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.topology.node_map import Address
from pychasqui._redis.topology.sentinel import SentinelSurvey
from pychasqui.doctor import Doctor
from pychasqui.errors import RedisTrouble
from tests.support.sentinels import MASTER_NAME, SentinelServers
from tests.support.traffic import Traffic
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelServers]:
    with SentinelServers(replicas=2) as sentinels:
        yield sentinels


async def test_jobs_run_once_through_a_planned_failover(
    sentinels: SentinelServers, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SENTINEL FAILOVER waits for no replica, so what is added before the switch is noticed may be lost."""
    caplog.set_level("INFO", logger="chasqui.connection")
    async with Traffic(queue_name, sentinels.url) as traffic:
        await traffic.rest()
        before = sentinels.master
        await asyncio.to_thread(sentinels.fail_over)
        assert sentinels.master is not before
        await eventually(lambda: f"127.0.0.1:{sentinels.master.port} is the master now" in caplog.text)
        await asyncio.sleep(0.2)  # the connections hear of it a turn of the loop later
        traffic.go_on()
        await traffic.flow()
        await traffic.end()
    assert (traffic.twice, traffic.refused) == (set(), {})


async def test_no_acked_add_is_lost_when_a_master_freezes_and_wakes_as_a_former_one(
    sentinels: SentinelServers, queue_name: str
) -> None:
    await asyncio.to_thread(sentinels.wait_until_well)
    before = sentinels.master
    async with Traffic(queue_name, sentinels.url, wait_replicas=2, timeout_s=0.5) as traffic:
        before.pause()
        try:
            await eventually(lambda: sentinels.master is not before, timeout=30)
        finally:
            before.resume()
        await traffic.flow()
        await traffic.end()
    assert traffic.wrongly_refused == set()


async def test_one_thread_watches_for_all_connections_and_ends_with_the_last(
    sentinels: SentinelServers, queue_name: str
) -> None:
    async with (
        Queue(queue_name, redis_url=sentinels.url) as one,
        Queue(f"{queue_name}-2", redis_url=sentinels.url) as two,
    ):
        await one.add("run")
        await two.add("run")
        assert len(watches()) == 1
    await eventually(lambda: not watches())


async def test_a_sentinel_that_is_gone_is_forgotten_once_no_other_names_it() -> None:
    with SentinelServers() as sentinels:
        first, *others = [Address("127.0.0.1", each.port) for each in sentinels.sentinels]
        survey = SentinelSurvey(parse_location(f"redis+sentinel://{first}/{MASTER_NAME}"), lambda: None)
        try:
            await survey.find_changed_map_or_return_known(None, set(), is_suspicious=False)
            assert set(survey._sentinels) == {first, *others}
            sentinels.sentinels[2].stop()
            await survey.find_changed_map_or_return_known(None, set(), is_suspicious=False)
            assert set(survey._sentinels) == {first, *others}  # the others wait for it
            for sentinel in sentinels.sentinels[:2]:
                sentinel.execute("SENTINEL", "RESET", MASTER_NAME)

            async def is_forgotten() -> bool:
                await survey.find_changed_map_or_return_known(None, set(), is_suspicious=False)
                return set(survey._sentinels) == {first, others[0]}

            await eventually(is_forgotten, timeout=30)
        finally:
            await survey.close()


async def test_the_doctor_shows_the_master_and_its_replicas(sentinels: SentinelServers) -> None:
    await asyncio.to_thread(sentinels.wait_until_well)
    async with Doctor(sentinels.url) as doctor:
        found = {each.check: each for each in await doctor.examine_server()}
    assert found["master"].text == f"the Sentinels say that 127.0.0.1:{sentinels.master.port} is the master"
    assert "replicas are online" in found["replicas"].text
    assert "CONFIG SET min-replicas-to-write 1" in found["min-replicas-to-write"].remedy


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "chasqui watch"]


def test_a_forked_child_has_a_watch_of_its_own(sentinels: SentinelServers, queue_name: str) -> None:
    async def add(name: str) -> None:
        async with Queue(name, redis_url=sentinels.url) as queue:
            await queue.add("run")

    with asyncio.Runner() as runner:
        queue = Queue(queue_name, redis_url=sentinels.url)
        runner.run(queue.add("run"))
        assert watches()
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(add(queue_name))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        runner.run(queue.add("run"))
        runner.run(queue.close())
    assert sentinels.master.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 3


class TestWrongUrls:
    async def refused(self, url: str, timeout_s: float = 10) -> str:
        async with Queue("orders", redis_url=url, timeout_s=timeout_s) as queue:
            with pytest.raises(RedisTrouble) as refusal:
                await queue.add("run")
        return str(refusal.value)

    async def test_a_master_that_no_sentinel_knows(self, sentinels: SentinelServers) -> None:
        said = await self.refused(f"redis+sentinel://{sentinels.addresses}/other")
        assert "no Sentinel knows a master 'other'" in said
        assert re.search(r"use a name that redis-cli -h 127\.0\.0\.1 -p \d+ SENTINEL MASTERS shows", said)

    @pytest.mark.needs_all_rights("no user of a server may do what a Sentinel is asked for")
    async def test_a_server_in_the_place_of_a_sentinel(self, sentinels: SentinelServers) -> None:
        port = sentinels.servers[0].port
        said = await self.refused(f"redis+sentinel://127.0.0.1:{port}/{MASTER_NAME}")
        assert f"127.0.0.1:{port} is no Sentinel: name Sentinels, or use redis://127.0.0.1:{port}" in said

    async def test_a_sentinel_in_the_place_of_a_server(self, sentinels: SentinelServers) -> None:
        port = sentinels.sentinels[0].port
        said = await self.refused(f"redis://127.0.0.1:{port}")
        assert f"is a Sentinel: use redis+sentinel://127.0.0.1:{port}/NAME" in said

    async def test_a_sentinel_in_the_place_of_a_node_of_a_cluster(self, sentinels: SentinelServers) -> None:
        port = sentinels.sentinels[0].port
        said = await self.refused(f"redis+cluster://127.0.0.1:{port}")
        assert f"is a Sentinel: use redis+sentinel://127.0.0.1:{port}/NAME" in said

    async def test_a_database_that_the_master_does_not_have(self, sentinels: SentinelServers) -> None:
        said = await self.refused(f"{sentinels.url}/77")
        assert "a database that the server does not have" in said
        assert "use a smaller number in redis_url" in said

    async def test_a_master_that_is_down_and_has_no_replica(self) -> None:
        with SentinelServers(replicas=0, sentinels=1) as lone:
            lone.master.kill()
            said = await self.refused(lone.url, timeout_s=1)
        assert "the Sentinels say that this is the master: start it again, or wait until they have elected" in said

    async def test_a_list_in_which_no_sentinel_answers(self) -> None:
        said = await self.refused("redis+sentinel://127.0.0.1:1,127.0.0.1:2/my", timeout_s=1.5)
        assert "no Sentinel answers (127.0.0.1:1: " in said
        assert said.count("nothing listens there") == 2
        assert said.endswith("check the addresses in redis_url")

    async def test_sentinels_with_a_password_of_their_own(self, queue_name: str) -> None:
        with SentinelServers(replicas=0, sentinels=1) as guarded:
            guarded.sentinels[0].execute("ACL", "SETUSER", "default", "resetpass", ">word")
            said = await self.refused(guarded.url)
            assert "its own are sentinel_username and sentinel_password in redis_url" in said
            async with Queue(queue_name, redis_url=f"{guarded.url}?sentinel_password=word") as queue:
                await queue.add("run")

    async def test_two_masters_of_one_name(self, sentinels: SentinelServers) -> None:
        with SentinelServers(replicas=0, sentinels=1) as others:
            said = await self.refused(f"redis+sentinel://{sentinels.addresses},{others.addresses}/{MASTER_NAME}")
        assert f"two masters have the name {MASTER_NAME}" in said
        assert "name Sentinels of one set" in said


async def test_jobs_run_after_the_master_is_killed(sentinels: SentinelServers, queue_name: str) -> None:
    await asyncio.to_thread(sentinels.wait_until_well)
    before = sentinels.master
    async with Traffic(queue_name, sentinels.url) as traffic:
        await traffic.rest()
        await asyncio.to_thread(before.kill)
        traffic.go_on()
        await traffic.flow()
        await traffic.end()
    await eventually(lambda: sentinels.master is not before)
    before.start()
    assert (traffic.twice, traffic.refused) == (set(), {})
