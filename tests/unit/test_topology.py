"""URLs of Sentinels and clusters, the slots of keys, and the map of nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from unittest.mock import Mock

import pytest

from pychasqui._redis.endpoint import parse_location
from pychasqui._redis.keys import Keys
from pychasqui._redis.topology import route as routes
from pychasqui._redis.topology.cluster import parse_node_map
from pychasqui._redis.topology.node_map import Address, NodeMap, compute_slot_of_key
from pychasqui._redis.url import CLUSTER, SENTINEL, SERVER
from pychasqui.errors import ConnectionLost, InvalidArgument
from tests.support.cases import in_one_test

A, B = Address("10.0.0.1", 7001), Address("10.0.0.2", 7002)


class TestUrls:
    def test_sentinels_have_a_master_a_database_and_credentials_of_their_own(self) -> None:
        url = "rediss+sentinel://ann:word@s1:1,s2/mymaster/3?sentinel_username=bob&sentinel_password=other"
        location = parse_location(url)
        assert (location.kind, location.service, location.node.db) == (SENTINEL, "mymaster", 3)
        assert (location.node.username, location.node.password) == ("ann", "word")
        assert [(seed.host, seed.port, seed.db) for seed in location.seeds] == [("s1", 1, 0), ("s2", 26379, 0)]
        assert {(seed.username, seed.password) for seed in location.seeds} == {("bob", "other")}
        assert location.node.tls is not None
        assert str(location) == "rediss+sentinel://s1:1,s2:26379/mymaster/3"
        assert "word" not in repr(location)
        assert "other" not in repr(location)

    def test_the_credentials_of_servers_are_not_shown_to_sentinels(self) -> None:
        (seed,) = parse_location("redis+sentinel://ann:word@s1/mymaster").seeds
        assert (seed.username, seed.password, seed.credential_provider) == (None, None, None)

    @pytest.mark.parametrize("url", ("redis-sentinel://s1/2?sentinelServiceName=my", "redis-sentinel://s1/my/2"))
    def test_the_name_of_the_master_may_be_an_option(self, url: str) -> None:
        location = parse_location(url)
        assert (location.service, location.node.db) == ("my", 2)

    @pytest.mark.parametrize("scheme", ("redis+cluster", "rediss+cluster", "redis-cluster", "rediss-cluster"))
    def test_nodes_of_a_cluster_share_their_credentials(self, scheme: str) -> None:
        location = parse_location(f"{scheme}://:word@n1:7001,[::1]:7002,n3")
        assert location.kind == CLUSTER
        assert [(seed.host, seed.port) for seed in location.seeds] == [("n1", 7001), ("::1", 7002), ("n3", 6379)]
        assert {seed.password for seed in location.seeds} == {"word"}
        assert str(location).endswith("://n1:7001,[::1]:7002,n3:6379")

    def test_a_server_has_one_address(self) -> None:
        assert parse_location("redis://one").kind == SERVER
        with pytest.raises(
            InvalidArgument, match=r"several addresses, which only redis\+sentinel:// and redis\+cluster://"
        ):
            parse_location("redis://one,two")

    @in_one_test(
        ("url", "remedy"),
        (
            ("redis+sentinel://s1", r"names no master: redis\+sentinel://HOST:26379/NAME"),
            ("redis+sentinel://s1/", "SENTINEL MASTERS"),
            ("redis+sentinel://s1/my/master", "must be a number"),
            ("redis+cluster://n1/1", "a cluster has none but 0: remove what is behind the /"),
            ("redis+cluster://n1?db=2", "or the option db"),
            ("redis+cluster://n1,,n2", "one of its addresses is empty"),
            ("redis+sentinel://s1,/my", "one of its addresses is empty"),
            ("redis+cluster://n1:x", "the port must be a number"),
            ("redis+cluster://n1?sentinel_password=x", r"sentinel_password is for redis\+sentinel:// alone"),
            ("redis+sentinels://s1/my", r"unknown scheme: use .* redis\+sentinel:// or redis\+cluster://"),
        ),
    )
    def test_a_wrong_url_is_answered_with_the_remedy(self, url: str, remedy: str) -> None:
        with pytest.raises(InvalidArgument, match=remedy):
            parse_location(url)


class TestSlots:
    def test_a_key_has_the_slot_that_servers_compute(self) -> None:
        assert compute_slot_of_key("123456789") == 0x31C3
        assert (
            compute_slot_of_key("foo{hash_tag}")
            == compute_slot_of_key("{hash_tag}bar")
            == compute_slot_of_key("hash_tag")
        )
        assert compute_slot_of_key("foo{}bar") != compute_slot_of_key("")

    def test_all_keys_of_a_queue_have_one_slot(self) -> None:
        keys = Keys("orders")
        named = [value for value in vars(keys).values() if value.startswith("{")]
        assert {compute_slot_of_key(key) for key in [*named, keys.ledger("p"), keys.result("id")]} == {
            compute_slot_of_key(keys.prefix)
        }


class TestNodeMap:
    def test_masters_and_replicas_are_read_from_cluster_slots(self) -> None:
        node_map = parse_node_map(
            [[0, 99, [b"10.0.0.1", 7001, b"id"], [b"10.0.0.2", 7002, b"id"]], [100, 199, [b"", 7003, b"id"]]], "here", 5
        )
        assert [node_map.find_owner(slot) for slot in (0, 99, 100, 200)] == [A, A, Address("here", 7003), None]
        assert node_map.nodes == {A, B, Address("here", 7003)}
        assert node_map.epoch == 5

    def test_a_node_whose_name_is_not_known_yet_is_at_its_ip(self) -> None:
        unnamed, unknown = [b"?", 7001, b"id", [b"ip", b"10.0.0.1"]], [b"?", 7003, b"id", []]
        node_map = parse_node_map([[0, 99, unnamed], [100, 199, unknown], [200, 299, [None, 7004, b"id"]]], "here", 5)
        assert [node_map.find_owner(slot) for slot in (0, 100, 200)] == [
            A,
            Address("here", 7003),
            Address("here", 7004),
        ]

    @in_one_test("reply", (None, [], [[]], [[1, 2]], [[0, 1, [b"h"]]], [[b"x", 1, [b"h", 1]]], [[0, 1, b"h"]]))
    def test_an_odd_reply_is_a_map_without_slots(self, reply: object) -> None:
        assert parse_node_map(reply, "here", 0).ranges == ()

    def test_a_slot_that_has_moved_is_where_the_node_said(self) -> None:
        node_map = parse_node_map([[0, 99, [b"10.0.0.1", 7001, b"id"]]], "here", 1).with_moved_slot(5, B)
        assert [node_map.find_owner(slot) for slot in (4, 5, 6)] == [A, B, A]
        assert node_map.may_have_slots(A)
        assert node_map.may_have_slots(B)
        assert not node_map.may_have_slots(Address("10.0.0.3", 7003))


def test_a_child_that_is_forked_while_a_route_is_looked_up_can_look_it_up() -> None:
    location = parse_location("redis+sentinel://s1/mymaster")
    route = routes.get_or_make_shared_route(("fork",), location)
    with routes._routes_lock, route._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # ends a child that waits for a lock
            is_same = routes.get_or_make_shared_route(("fork",), location) is route
            route.remove_listener(Mock())
            os._exit(0 if is_same else 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_a_route_whose_thread_could_not_start_once_starts_it_at_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    route = routes.Route(parse_location("redis+sentinel://127.0.0.1:1/mymaster"))
    listener = Mock(slot=0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError):
            await route.find_master_and_listen(listener)
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionLost, match="no Sentinel answers"):
            await route.find_master_and_listen(listener)
    route.remove_listener(listener)


def make_route_with_map() -> routes.Route:
    route = routes.Route(parse_location("redis+cluster://10.0.0.1:7001"))
    route._map = parse_node_map([[0, 99, [b"10.0.0.1", 7001, b"id"]]], "here", 1)
    return route


def test_followers_of_other_slots_are_not_called_when_one_has_moved() -> None:
    route, concerned, other = make_route_with_map(), Mock(slot=5), Mock(slot=6)
    route._listeners.update((concerned, other))
    route.set_slot_owner_and_notify(5, B)
    route.set_slot_owner_and_notify(5, B)
    assert concerned.schedule_on_change.call_count == 2
    other.schedule_on_change.assert_not_called()


async def test_a_slot_that_moves_while_the_nodes_are_asked_and_know_nothing_new_has_moved() -> None:
    route = make_route_with_map()

    async def find(known: NodeMap, *_: object, **__: object) -> NodeMap:
        route.set_slot_owner_and_notify(5, B)
        return known

    await route._refresh_map_and_notify(Mock(find_changed_map_or_return_known=find), False)
    assert route._map is not None
    assert route._map.find_owner(5) == B
