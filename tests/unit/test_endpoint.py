"""A URL becomes an address, or an error that says what is wrong with it; its password is shown nowhere."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pychasqui._redis.credentials import Login
from pychasqui._redis.endpoint import Endpoint, parse_endpoint
from pychasqui.errors import ChasquiError, InvalidArgument, InvalidType
from tests.support.cases import in_one_test

SECRET = "hunter2-and-more"


@in_one_test(
    ("url", "expected"),
    (
        ("redis://example.org", {"host": "example.org", "port": 6379, "db": 0, "protocol": 3}),
        ("redis://example.org?protocol=2", {"protocol": 2}),
        ("redis://example.org:7000/5", {"host": "example.org", "port": 7000, "db": 5}),
        ("redis://example.org?db=4", {"db": 4}),
        ("redis://[::1]:7000", {"host": "::1", "port": 7000}),
        ("example.org:7000", {"host": "example.org", "port": 7000}),
        ("example.org", {"host": "example.org", "port": 6379}),
        ("redis://", {"host": "127.0.0.1", "port": 6379}),
        ("unix:///run/redis.sock", {"path": "/run/redis.sock", "db": 0}),
        ("unix:///run/redis.sock?db=3&protocol=2", {"path": "/run/redis.sock", "db": 3, "protocol": 2}),
        ("redis://ann:s%40cret@example.org", {"username": "ann", "password": "s@cret"}),
        ("redis://:secret@example.org", {"password": "secret"}),
        ("redis://example.org?username=ann&password=secret", {"username": "ann", "password": "secret"}),
        ("redis://example.org?client_name=mine", {"client_name": "mine"}),
    ),
)
def test_a_url_says_where_to_connect(url: str, expected: dict[str, Any]) -> None:
    endpoint = parse_endpoint(url)
    assert {name: getattr(endpoint, name) for name in expected} == expected
    assert endpoint.tls is None


def test_the_url_names_the_client_before_we_do() -> None:
    assert parse_endpoint("redis://h", client_name="ours").client_name == "ours"
    assert parse_endpoint("redis://h?client_name=theirs", client_name="ours").client_name == "theirs"


@pytest.mark.parametrize(
    ("url", "tls"), (("rediss://h", False), ("rediss://h", True), ("redis://h", True), ("h:6379", True))
)
def test_tls_is_asked_for_by_the_scheme_or_by_the_argument(url: str, tls: bool) -> None:
    context = parse_endpoint(url, tls=tls).tls
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@in_one_test(
    ("url", "complaint"),
    (
        ("http://example.org", "unknown scheme: use redis://"),
        ("REDIS.://example.org", "unknown scheme"),
        ("redis://example.org:99999", "[Pp]ort"),
        ("redis://example.org:port", "[Pp]ort"),
        ("redis://example.org:0", "port must be a number"),
        ("redis://example.org/first", "database.*number"),
        ("redis://example.org/1/2", "number"),
        ("redis://example.org/99999999999", "database.*number"),
        ("redis://example.org?db=first", "db"),
        ("redis://example.org?db=1&db=2", "db twice"),
        ("redis://example.org?protocol=4", "protocol, which must be 2 or 3"),
        ("redis://example.org?protocol=x", "protocol"),
        ("redis://example.org?socket_timeout=3", "unknown option, number 1 behind the .: known are"),
        ("redis://example.org?db=3&what=3", "unknown option, number 2 "),
        ("redis://example.org#3", "percent-encoded"),
        ("redis://ann:%ff@example.org", "UTF-8"),
        ("redis://[::1", "cannot be read"),
        ("unix://", "names no socket"),
        ("unix://run/redis.sock", "socket by its full path"),
        ("rediss://example.org?ssl_ca_certs=/nowhere/at/all.pem", "TLS"),
        ("rediss://example.org?ssl_what=1", "unknown option.*ssl_ca_certs"),
        ("rediss://example.org?ssl_cert_reqs=never", "ssl_cert_reqs, which must be one of required, optional, none"),
        ("rediss://example.org?ssl_check_hostname=maybe", "ssl_check_hostname, which must be one of"),
        ("rediss://example.org?ssl_min_version=1.1", "ssl_min_version, which must be one of 1.2, 1.3"),
        ("rediss://example.org?ssl_ciphers=nonsense", "TLS.*ssl_ciphers"),
        ("rediss://example.org?ssl_exclude_verify_flags=ALL", "ssl_exclude_verify_flags, whose names must be among"),
        ("rediss://example.org?ssl_ca_data=nonsense", "TLS.*ssl_ca_data"),
        ("rediss://example.org?ssl_keyfile=/nowhere/at/all.pem", "TLS.*ssl_certfile"),
    ),
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        parse_endpoint(url)


@pytest.mark.parametrize("url", (None, 6379, b"redis://h", ["redis://h"]))
def test_a_url_that_is_no_str_is_refused(url: Any) -> None:
    with pytest.raises(InvalidType, match="redis_url must be a str"):
        parse_endpoint(url)


def test_tls_over_a_unix_socket_is_a_contradiction() -> None:
    with pytest.raises(InvalidArgument, match="tls=True contradicts"):
        parse_endpoint("unix:///run/redis.sock", tls=True)


@pytest.mark.parametrize(
    "url",
    (
        f"redis://ann:{SECRET}@example.org:7000/2",
        f"redis://:{SECRET}@example.org",
        f"rediss://ann:{SECRET}@example.org",
        f"unix://ann:{SECRET}@/run/redis.sock",
        f"redis://example.org?password={SECRET}&username=ann",
        f"unix:///run/redis.sock?password={SECRET}",
    ),
)
def test_an_endpoint_shows_its_address_and_never_its_name_or_password(url: str) -> None:
    endpoint = parse_endpoint(url)
    assert endpoint.password == SECRET
    for printable in (str(endpoint), repr(endpoint), f"{endpoint}", repr(endpoint.password)):
        assert SECRET not in printable
        assert "ann" not in printable
    assert endpoint.address in str(endpoint)


BROKEN = (
    "redis://ann:{}@example.org:port",
    "redis://ann:{}@example.org/first",
    "redis://ann:{}@example.org?what=1",
    "redis://ann:{}@example.org?protocol=9",
    "redis://ann:{}@[::1",
    "redis://:{}@example.org:99999",
    "redis://example.org?password={}&db=x",
    "redis://example.org?db=x&password={}",
    "unix://?password={}",
    "http://ann:{}@example.org",
    "ann:{}@example.org:port",
)


@in_one_test("url", BROKEN)
def test_a_refused_url_keeps_its_password_to_itself(url: str) -> None:
    with pytest.raises(ChasquiError) as refused:
        parse_endpoint(url.format(SECRET))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", BROKEN)
@given(password=st.text(st.characters(codec="utf-8"), min_size=8))
def test_no_part_of_a_quoted_password_is_shown(url: str, password: str) -> None:
    quoted = quote(f"{SECRET}{password}{SECRET}", safe="")
    with pytest.raises(ChasquiError) as refused:
        parse_endpoint(url.format(quoted))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    (
        "redis://ann:hunter2/secret@example.org",
        "redis://ann:hunter2?secret@example.org",
        "redis://ann:hunter2#secret@example.org",
        "rediss://:hunter2/secret@example.org:7000/1",
        "redis://ann:1234/secret@example.org",
        "redis://ann:hunter2\nsecret@example.org/first",
    ),
)
def test_an_unquoted_password_is_not_shown_either(url: str) -> None:
    """Generated passwords hold slashes; the part that then looks like a port or a database is as secret as the rest."""
    with pytest.raises(InvalidArgument) as refused:
        parse_endpoint(url)
    assert "hunter2" not in str(refused.value)
    assert "secret" not in str(refused.value)


@given(st.text())
def test_any_url_raises_only_our_own_errors(text: str) -> None:
    for url in (text, f"redis://{text}", f"unix://{text}", f"redis://h/{text}", f"redis://h?{text}"):
        with suppress(ChasquiError):
            assert isinstance(parse_endpoint(url), Endpoint)


async def test_credentials_come_from_the_url() -> None:
    assert await parse_endpoint("redis://ann:secret@h").ask_for_credentials() == Login("ann", "secret")
    assert await parse_endpoint("redis://h").ask_for_credentials() == Login(None, None)


async def test_a_credential_provider_is_asked_for_the_address_each_time() -> None:
    asked = []

    async def provide(address: str | None) -> tuple[str | None, str | None]:
        asked.append(address)
        return "ann", f"secret-{len(asked)}"

    endpoint = parse_endpoint("redis://h:7000", credential_provider=provide)
    assert [await endpoint.ask_for_credentials() for _ in range(2)] == [
        Login("ann", "secret-1"),
        Login("ann", "secret-2"),
    ]
    assert await parse_endpoint("unix:///s", credential_provider=provide).ask_for_credentials() == Login(
        "ann", "secret-3"
    )
    assert asked == ["h:7000", "h:7000", None]
