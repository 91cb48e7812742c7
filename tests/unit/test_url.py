"""URLs are read as redis-py reads them; parts that it silently gets wrong are refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import redis.asyncio.connection
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._redis.url import RedisUrl, Secret, read_url
from pychasqui.errors import InvalidArgument
from tests.support.cases import in_one_test

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
HOSTS = st.one_of(
    st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.just(""),
)
OPTIONS = {"db": st.integers(0, 99).map(str), "protocol": st.sampled_from("23"), "client_name": NAMES}
LOGINS = {"username": NAMES, "password": NAMES}


@st.composite
def urls(draw: st.DrawFn) -> str:
    """URLs that both take: everything in its place, percent-encoded where it must be."""
    login = ""
    if draw(st.booleans()):
        login = f"{quote(draw(NAMES), safe='')}:{quote(draw(NAMES), safe='')}@"
    elif draw(st.booleans()):
        login = f":{quote(draw(NAMES), safe='')}@"
    scheme = draw(st.sampled_from(("redis://", "rediss://", "unix://")))
    if scheme == "unix://":
        location = "/" + quote(draw(st.text("abc/._ é", min_size=1)).strip("/") + "x")
    else:
        port = draw(st.one_of(st.just(""), st.integers(1, 65535).map(":{}".format)))
        location = draw(HOSTS) + port + draw(st.one_of(st.just(""), st.just("/"), st.integers(0, 99).map("/{}".format)))
    known = OPTIONS | ({} if login else LOGINS)
    chosen = draw(st.lists(st.sampled_from(sorted(known)), unique=True))
    query = "&".join(f"{name}={quote(draw(known[name]), safe='')}" for name in chosen)
    return f"{scheme}{login}{location}{f'?{query}' if query else ''}"


def as_redis_py(read: RedisUrl) -> dict[str, Any]:
    """The values that redis-py reads from the same URL."""
    return {
        "host": None if read.path else read.host,
        "port": None if read.path else read.port,
        **{name: getattr(read, name) for name in ("path", "db", "client_name", "username", "password", "protocol")},
    }


@given(urls())
def test_a_good_url_means_what_it_means_to_redis_py(url: str) -> None:
    theirs: dict[str, Any] = dict(redis.asyncio.connection.parse_url(url))
    is_socket = theirs.pop("connection_class", None) is redis.asyncio.connection.UnixDomainSocketConnection
    location = {} if is_socket else {"host": "127.0.0.1", "port": 6379}
    defaults = dict.fromkeys(as_redis_py(read_url("redis://"))) | location | {"db": 0, "protocol": 3}
    assert as_redis_py(read_url(url)) == defaults | theirs


@in_one_test(
    "url",
    (
        "redis://h#fragment",
        "redis://h?db=1&db=2",
        "redis://h/first",
        "redis://h?socket_timeout=1",
        "redis://h:0",
        "unix://host/run/redis.sock",
        "redis://h?what",
        "redis://h%40x",
    ),
)
def test_a_url_part_that_redis_py_silently_drops_is_refused(url: str) -> None:
    redis.asyncio.connection.parse_url(url)
    with pytest.raises(InvalidArgument):
        read_url(url)


@given(st.text(min_size=3))
def test_a_secret_shows_nothing_where_locals_are_shown(text: str) -> None:
    secret = Secret(text)
    assert secret == text
    assert f"{secret!r} {[secret]}" == "'***' ['***']"
