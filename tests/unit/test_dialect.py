"""The features of a server are read from its answer to HELLO."""

from __future__ import annotations

from typing import Any

import pytest

from pychasqui._redis.dialect import parse_version, raise_if_server_too_old, read_dialect
from pychasqui.errors import NotRedis, ServerTooOld
from tests.support.cases import in_one_test


def hello(server: str, version: str, **more: Any) -> dict[bytes, Any]:
    fields: dict[bytes, Any] = {b"server": server.encode(), b"version": version.encode(), b"proto": 2, b"id": 7}
    return fields | {name.encode(): value for name, value in more.items()}


@in_one_test(
    ("server", "version", "abilities"),
    (
        ("redis", "6.2.14", set()),
        ("redis", "7.0.15", set()),
        ("redis", "7.4.1", set()),
        ("redis", "8.0.2", set()),
        ("redis", "8.2.0", {"xackdel"}),
        ("redis", "8.4.0", {"xackdel"}),
        ("redis", "8.6.3", {"xackdel", "idmp"}),
        ("redis", "10.0.0", {"xackdel", "idmp"}),
        ("valkey", "7.2.5", set()),
        ("valkey", "8.1.0", set()),
        ("valkey", "9.1.2", set()),
        ("keydb", "6.3.4", set()),
    ),
)
def test_abilities_follow_from_product_and_version(server: str, version: str, abilities: set[str]) -> None:
    dialect = read_dialect(hello(server, version))
    assert {name for name in ("xackdel", "idmp") if getattr(dialect, name)} == abilities
    assert str(dialect) == f"{server} {version}"


def test_a_map_and_a_flat_list_say_the_same() -> None:
    answer = hello("redis", "8.6.3", mode=b"standalone", modules=[])
    assert read_dialect([part for pair in answer.items() for part in pair]) == read_dialect(answer)


def test_the_id_of_the_connection_is_kept() -> None:
    assert read_dialect(hello("redis", "8.6.3")).client_id == 7


@pytest.mark.parametrize("version", ("5.0.14", "6.0.20", "6.1.999", "2.8"))
def test_an_old_server_is_refused_with_the_version_found_and_the_one_needed(version: str) -> None:
    with pytest.raises(ServerTooOld, match=rf"{version}.* 6\.2"):
        read_dialect(hello("redis", version))


@in_one_test(
    "answer",
    (
        b"OK",
        b"PONG",
        None,
        7,
        [],
        [b"server"],
        {},
        {b"server": b"redis"},
        {b"version": b"8.6.3"},
        [b"what", b"ever"],
    ),
)
def test_an_answer_that_is_not_of_redis_is_recognized(answer: Any) -> None:
    with pytest.raises(NotRedis, match="HELLO"):
        read_dialect(answer)


@pytest.mark.parametrize(
    ("text", "version"),
    (("8.6.3", (8, 6, 3)), ("7.0", (7, 0)), ("6.2.14-rc1", (6, 2, 14)), ("255.255.255", (255, 255, 255)), ("", ())),
)
def test_versions_are_compared_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_the_oldest_version_that_is_taken_is_6_2() -> None:
    raise_if_server_too_old("redis", (6, 2))
    with pytest.raises(ServerTooOld):
        raise_if_server_too_old("redis", (6, 1, 9))
