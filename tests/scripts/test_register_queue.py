"""register_queue.lua alone: the registry has the queues that were seen lately, and no refusal fails the call."""

from __future__ import annotations

from pychasqui._core.limits import REGISTERED_MS
from pychasqui._redis.keys import REGISTRY
from tests.scripts.group import HOUR_MS, Group


def names(group: Group) -> list[bytes]:
    return list(group.client.zrange(REGISTRY, 0, -1))


def test_a_name_has_the_time_of_the_server_and_the_key_an_end(group: Group) -> None:
    begun = group.now_ms
    assert group.register_queue("mail") == b""
    ((name, seen_ms),) = group.client.zrange(REGISTRY, 0, -1, withscores=True)
    assert name == b"mail"
    assert begun <= seen_ms <= group.now_ms
    assert REGISTERED_MS - HOUR_MS < group.client.pttl(REGISTRY) <= REGISTERED_MS


def test_the_same_call_again_moves_the_time_and_nothing_else(group: Group) -> None:
    group.client.zadd(REGISTRY, {"mail": group.now_ms - HOUR_MS, "other": group.now_ms - 2 * HOUR_MS})
    assert group.register_queue("mail") == b""
    assert names(group) == [b"other", b"mail"]
    assert group.client.zscore(REGISTRY, "mail") > group.now_ms - HOUR_MS / 2


def test_names_that_were_not_seen_for_long_go(group: Group) -> None:
    now_ms = group.now_ms
    group.client.zadd(REGISTRY, {"old": now_ms - REGISTERED_MS - HOUR_MS, "seen": now_ms - REGISTERED_MS + HOUR_MS})
    group.register_queue("mail")
    assert names(group) == [b"seen", b"mail"]


def test_names_of_an_impossible_time_go(group: Group) -> None:
    far = {"far": group.now_ms + REGISTERED_MS + HOUR_MS, "endless": float("inf"), "early": float("-inf")}
    group.client.zadd(REGISTRY, {**far, "soon": group.now_ms + HOUR_MS})
    group.register_queue("mail")
    assert names(group) == [b"mail", b"soon"]


def test_the_oldest_names_beyond_the_bound_go(group: Group) -> None:
    now_ms = group.now_ms
    group.client.zadd(REGISTRY, {name: now_ms - age for age, name in enumerate("abcde", 1)})
    assert group.register_queue("mail", most_names=3) == b""
    assert names(group) == [b"b", b"a", b"mail"]
    assert group.register_queue("other", most_names=3) == b""
    assert names(group) == [b"a", b"mail", b"other"]


def test_a_key_of_another_type_stays_and_is_said_in_words(group: Group) -> None:
    group.client.set(REGISTRY, "mine")
    assert group.register_queue("mail").startswith(b"WRONGTYPE")
    assert group.client.get(REGISTRY) == b"mine"
    assert group.client.pttl(REGISTRY) == -1


def test_a_user_without_the_right_gets_the_reason_in_words(group: Group) -> None:
    group.client.execute_command("ACL", "LOG", "RESET")
    with group.as_user("+@all", "~other") as narrow:
        answer = narrow.register_queue("mail")
    assert b"permission" in answer or b"can't access" in answer  # as Redis 6.2 says it
    assert not group.client.exists(REGISTRY)
    if group.has_read_rights:  # from Redis 7 on the script can ask before it tries
        assert group.client.execute_command("ACL", "LOG") == []


def test_a_user_who_may_only_add_names_adds_them(group: Group) -> None:
    rules = ("-zremrangebyscore", "-zremrangebyrank", "-pexpire")
    with group.as_user("+@all", *rules, "~*") as narrow:
        assert narrow.register_queue("mail") == b""
    assert names(group) == [b"mail"]


def test_a_server_without_memory_is_said_in_words(group: Group) -> None:
    with group.full_memory():
        assert b"OOM" in group.register_queue("mail")
    assert not group.client.exists(REGISTRY)


def test_a_user_with_the_right_to_the_registry_alone_writes_it(group: Group) -> None:
    with group.as_user("+@all", f"~{REGISTRY}") as narrow:
        assert narrow.register_queue("mail") == b""
    assert names(group) == [b"mail"]
