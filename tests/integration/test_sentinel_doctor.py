"""What the doctor finds behind Sentinel: replicas and Sentinels that are away, and masters of which there are two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pychasqui import Queue
from pychasqui.doctor import Doctor, Finding
from pychasqui.errors import NotReplicated
from tests.support.sentinels import MASTER_NAME, SentinelServer, SentinelServers
from tests.support.server import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def sentinels() -> Iterator[SentinelServers]:
    with SentinelServers(replicas=2) as sentinels:
        yield sentinels


async def findings(url: str) -> dict[str, Finding]:
    async with Doctor(url) as doctor:
        return {each.check: each for each in await doctor.examine_server()}


def disconnect(sentinel: SentinelServer, master: RedisServer) -> None:
    """Ends the connection by which a Sentinel asks the master. It is called by the start of the Sentinel's id."""
    name = b"name=sentinel-" + sentinel.ask("SENTINEL", "MYID")[:8] + b"-cmd"
    for line in master.ask("CLIENT", "LIST").splitlines():
        if name in line.split():
            master.ask("CLIENT", "KILL", "ID", line.split()[0].removeprefix(b"id="))


async def test_a_healthy_set_has_no_warning_about_sentinels(sentinels: SentinelServers) -> None:
    found = await findings(sentinels.url)
    assert found["replicas"].text.startswith("2 of 2 replicas are online")
    assert found["sentinels"].text == "3 of 3 Sentinels are up, and 2 of them must agree on a failover"
    levels = {found[check].level for check in ("master", "sentinels", "replicas")}
    assert levels == {"ok"}
    others = {"replicas away", "two masters", "master's reach", "known replicas"}
    assert not {*others, "sentinels' reach", "sentinels' addresses"} & set(found)


async def test_a_replica_that_is_down_is_named_with_what_follows(sentinels: SentinelServers, queue_name: str) -> None:
    replica = sentinels.servers[1]
    replica.kill()
    await eventually(lambda: b"connected_slaves:1" in sentinels.master.ask("INFO", "replication"))

    async def is_named() -> bool:
        found = (await findings(sentinels.url)).get("replicas away")
        return found is not None and "is down" in found.text

    await eventually(is_named)
    away = (await findings(sentinels.url))["replicas away"]
    assert away.level == "warning"
    assert f"1 of 2 replicas follow their master (127.0.0.1:{replica.port} is down, as the Sentinels say)" in away.text
    assert "an add with wait_replicas=2 raises NotReplicated" in away.text
    assert "SENTINEL RESET" in away.remedy
    async with Queue(queue_name, redis_url=sentinels.url, timeout_s=1) as queue:
        await queue.add("run", wait_replicas=1)
        with pytest.raises(NotReplicated):
            await queue.add("run", wait_replicas=2)


async def test_a_replica_that_follows_no_master_is_named(sentinels: SentinelServers) -> None:
    """It lives and answers the Sentinels: only its link to the master is gone."""
    replica = sentinels.servers[2]
    replica.execute("CONFIG", "SET", "masterauth", "wrong")
    replica.execute("CONFIG", "SET", "masteruser", "nobody")
    sentinels.master.execute("CLIENT", "KILL", "TYPE", "REPLICA")
    await eventually(lambda: b"connected_slaves:1" in sentinels.master.ask("INFO", "replication"))
    away = (await findings(sentinels.url))["replicas away"]
    assert f"127.0.0.1:{replica.port}" in away.text
    assert f"127.0.0.1:{sentinels.servers[1].port}" not in away.text


async def test_a_master_that_takes_no_adds_without_its_replicas_is_a_problem(sentinels: SentinelServers) -> None:
    sentinels.master.execute("CONFIG", "SET", "min-replicas-to-write", "1")
    for replica in sentinels.servers[1:]:
        replica.kill()
    await eventually(lambda: b"connected_slaves:0" in sentinels.master.ask("INFO", "replication"))
    away = (await findings(sentinels.url))["replicas away"]
    assert away.level == "problem"
    assert "the master takes no adds at all, because of min-replicas-to-write" in away.text


async def test_a_second_master_is_found(sentinels: SentinelServers) -> None:
    """As a former master that was cut off from the Sentinels, and not from the programs."""
    other = sentinels.servers[1]
    other.execute("REPLICAOF", "NO", "ONE")  # the Sentinels let it be for 8 s
    found = (await findings(sentinels.url))["two masters"]
    assert found.level == "problem"
    assert f"127.0.0.1:{other.port} says that it is a master, too" in found.text


async def test_sentinels_that_are_down_are_named_and_that_no_failover_is_possible(sentinels: SentinelServers) -> None:
    first, second, third = sentinels.sentinels
    third.kill()
    found = await findings(sentinels.url)
    assert found["sentinels"].level == "warning"
    assert found["sentinels"].text.startswith("2 of 3 Sentinels are up")
    assert f"127.0.0.1:{third.port} is down" in found["sentinels"].text
    assert f"SENTINEL RESET {MASTER_NAME}" in found["sentinels"].remedy
    second.kill()
    found = await findings(f"redis+sentinel://127.0.0.1:{first.port}/{MASTER_NAME}")
    assert found["sentinels"].level == "problem"
    text = found["sentinels"].text
    assert text.startswith("1 of 3 Sentinels are up, and 2 must agree, so no other master can be elected: ")
    assert all(f"127.0.0.1:{each.port}" in text for each in (second, third))


async def test_an_address_of_the_url_at_which_no_sentinel_is_found(sentinels: SentinelServers) -> None:
    found = await findings(sentinels.url.replace(f"/{MASTER_NAME}", f",127.0.0.1:1/{MASTER_NAME}"))
    assert "127.0.0.1:1 in redis_url does not answer" in found["sentinels' addresses"].text
    assert found["sentinels"].text.startswith("3 of 3 Sentinels are up")


async def test_a_sentinel_under_two_addresses_counts_once(sentinels: SentinelServers) -> None:
    found = await findings(sentinels.url.replace("127.0.0.1", "localhost"))
    assert found["sentinels"].text.startswith("3 of 3 Sentinels are up")


async def test_sentinels_that_do_not_agree_on_the_master_are_named(sentinels: SentinelServers) -> None:
    """A Sentinel that was set up with another server: it knows the others, and they know it."""
    odd, (master, other, _) = sentinels.sentinels[2], sentinels.servers
    odd.execute("SENTINEL", "REMOVE", MASTER_NAME)
    odd.execute("SENTINEL", "MONITOR", MASTER_NAME, "127.0.0.1", other.port, 3)
    found = await findings(sentinels.url)
    assert found["master"].level == "problem"
    assert f"127.0.0.1:{odd.port} says 127.0.0.1:{other.port}" in found["master"].text
    assert f"says 127.0.0.1:{master.port}" in found["master"].text


async def test_a_master_that_a_sentinel_cannot_reach_is_a_warning(sentinels: SentinelServers) -> None:
    """A Sentinel whose PING the master refuses does not see it alive."""
    odd = sentinels.sentinels[1]
    sentinels.master.execute("ACL", "SETUSER", "blind", "on", ">word", "-@all", "+auth")
    odd.execute("SENTINEL", "SET", MASTER_NAME, "auth-user", "blind", "auth-pass", "word")
    disconnect(odd, sentinels.master)  # a Sentinel of 6.2 keeps the connection that it has
    await eventually(lambda: b"s_down" in b",".join(odd.ask("SENTINEL", "MASTER", MASTER_NAME)))

    async def texts() -> str:
        found = (await findings(sentinels.url)).get("master's reach")
        return "" if found is None else found.text

    assert f"127.0.0.1:{odd.port} cannot reach 127.0.0.1:{sentinels.servers[0].port}" in await eventually(texts)


async def test_the_doctor_names_the_right_that_a_user_of_the_sentinels_lacks(sentinels: SentinelServers) -> None:
    rights = ["on", ">word", "-@all", "+hello", "+auth", "+subscribe", "&+switch-master"]
    for each in sentinels.sentinels:
        if each.version < (7, 0, 0):
            pytest.skip("older Sentinels have no rights to a subcommand")
        asks = ["get-master-addr-by-name", "master", "sentinels", "myid"]
        each.execute("ACL", "SETUSER", "asker", *rights, *(f"+sentinel|{what}" for what in asks))
    found = await findings(f"{sentinels.url}?sentinel_username=asker&sentinel_password=word")
    assert found["sentinels"].text.startswith("3 of 3 Sentinels are up")
    assert "+sentinel|replicas" in found["known replicas"].remedy
    for each in sentinels.sentinels:
        each.execute("ACL", "SETUSER", "asker", "+sentinel|replicas")
    found = await findings(f"{sentinels.url}?sentinel_username=asker&sentinel_password=word")
    assert "known replicas" not in found
