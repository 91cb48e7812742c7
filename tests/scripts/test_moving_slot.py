"""While a slot of a cluster moves, a script that needs a key which is not there is refused before it writes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis

from tests.scripts.group import KEYS, Group
from tests.support.server import RedisServer

CLUSTER = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
PATIENCE_S = 20
REFUSED = "ttempted to access|rehashing"  # Redis and Valkey, and Redis 8 if some of several keys are here


@pytest.fixture
def moving() -> Iterator[Group]:
    """A queue whose slot is on its way to another node. The keys that every script gets are still here."""
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
        group = Group(client)
        group.create()
        client.zadd(KEYS.delayed, {"later": 9e15})
        client.set(KEYS.unique("half"), "d", ex=60)  # one of the keys of that job is here, the others are not
        slot = client.execute_command("CLUSTER KEYSLOT", KEYS.stream)
        client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", other)
        yield group


def test_a_script_is_refused_before_it_writes(moving: Group) -> None:
    (entry_id,) = moving.deliver_to("a")
    before = moving.holds
    with pytest.raises(redis.ResponseError, match=REFUSED):
        moving.ack_unique((entry_id, "job"))
    with pytest.raises(redis.ResponseError, match=REFUSED):
        moving.ack_unique((entry_id, "half"))
    with pytest.raises(redis.ResponseError, match=REFUSED):
        moving.move_delayed("cancel", "job")
    assert (moving.stream, moving.holds) == ([entry_id], before)
    assert moving.delayed == {b"later": 9e15}
