"""Reads the URL of a server, of Sentinels or of a cluster, and refuses an ambiguous one.

No error of this module shows any part of the URL: what looks like a port, a database or an option may be part of a
password that was not percent-encoded. For the same reason no error has a cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidArgument

SERVER, SENTINEL, CLUSTER = "server", "sentinel", "cluster"
SCHEMES = {
    "redis": ("redis", SERVER),
    "rediss": ("rediss", SERVER),
    "unix": ("unix", SERVER),
    **{
        f"{base}{sign}{kind}": (base, kind)
        for base in ("redis", "rediss")
        for sign in "+-"
        for kind in (SENTINEL, CLUSTER)
    },
}
SERVER_HOSTNAME = "ssl_server_hostname"
TLS_OPTIONS = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_data",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_exclude_verify_flags",
        "ssl_include_verify_flags",
        "ssl_keyfile",
        "ssl_min_version",
        "ssl_password",
        SERVER_HOSTNAME,
    }
)
SERVICE_OPTION = "sentinelServiceName"
SENTINEL_OPTIONS = frozenset({SERVICE_OPTION, "sentinel_password", "sentinel_username"})
OPTIONS = frozenset({"client_name", "db", "password", "protocol", "username"}) | TLS_OPTIONS | SENTINEL_OPTIONS
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
MAX_DB = 2**31 - 1

# A name, an IPv4 address, or an IPv6 address in brackets; then an optional port.
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Za-z:.%_-]+\]|[\w.-]*)(:(?P<port>[0-9]{0,5}))?")


class Secret(str):
    """A str whose repr hides it, for tracebacks that show local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True)
class RedisUrl:
    scheme: str  # redis, rediss or unix
    host: str
    port: int
    path: str | None  # of a unix socket
    db: int
    protocol: int
    client_name: str | None = field(repr=False)
    username: str | None = field(repr=False)
    password: Secret | None = field(repr=False)
    tls: dict[str, str] = field(repr=False)  # the options whose names begin with ssl_
    kind: str = SERVER
    addresses: tuple[tuple[str, int], ...] = ()  # of all Sentinels or nodes that the URL names
    service: str = ""  # the name of the master that Sentinels watch
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: Secret | None = field(default=None, repr=False)


def read_url(url: str) -> RedisUrl:
    """Reads a URL. A URL without a scheme counts as redis://."""
    if not url.isprintable():
        _refuse_url("it contains a control character, which must be percent-encoded")
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "redis", url
    scheme, kind = SCHEMES.get(scheme.lower(), ("", ""))
    if not scheme:
        raise InvalidArgument(
            "redis_url has an unknown scheme: use redis://, rediss://, unix://, embedded://, redis+sentinel:// or "
            "redis+cluster://"
        )
    location, _, query = rest.partition("?")
    authority, slash, path = location.partition("/")
    is_socket = scheme == "unix"
    if "#" in rest or ("@" in path + query and not is_socket):
        _refuse_url("a name or password with / ? # @ or : in it must be percent-encoded")
    login, _, address = authority.rpartition("@")
    if kind != SERVER and "@" in login:
        _refuse_url("name and password stand once, before the first address")
    options = _read_options(query)
    if kind != SENTINEL and (wrong := SENTINEL_OPTIONS & set(options)):
        _refuse_url(f"the option {min(wrong)} is for redis+sentinel:// alone")
    name, _, password = login.partition(":")
    password = _percent_decode(password) or options.get("password", "")
    sentinel_password = options.get("sentinel_password", "")
    addresses = _read_addresses("" if is_socket else address, kind)
    if is_socket and address:
        _refuse_url("a unix:// URL names a socket by its full path: unix:///run/redis.sock")
    service, db = (
        _read_master_name_and_db(path, options) if kind == SENTINEL else ("", "" if is_socket else path.strip("/"))
    )
    return RedisUrl(
        scheme=scheme,
        host=addresses[0][0],
        port=addresses[0][1],
        path=_read_socket_path(slash + path) if is_socket else None,
        db=_read_db(options.get("db") or db, kind),
        protocol=_read_protocol(options.get("protocol", "3")),
        client_name=options.get("client_name"),
        username=_percent_decode(name) or options.get("username"),
        password=Secret(password) if password else None,
        tls={name: value for name, value in options.items() if name in TLS_OPTIONS},
        kind=kind,
        addresses=addresses,
        service=service,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=Secret(sentinel_password) if sentinel_password else None,
    )


def _refuse_url(reason: str) -> NoReturn:
    raise InvalidArgument(f"redis_url cannot be read: {reason}")


def _percent_decode(text: str) -> str:
    decoded = unquote(text, errors="replace")
    if "\ufffd" in decoded and "\ufffd" not in text:
        _refuse_url("its percent-encoding is not UTF-8")
    return decoded


def _read_options(query: str) -> dict[str, str]:
    """Returns the options by name. An empty option counts as not given."""
    options: dict[str, str] = {}
    for position, (name, value) in enumerate(parse_qsl(query, keep_blank_values=True), start=1):
        if name not in OPTIONS:
            raise InvalidArgument(
                f"redis_url has an unknown option, number {position} behind the ?: known are "
                f"{', '.join(sorted(OPTIONS))}"
            )
        if name in options:
            raise InvalidArgument(f"redis_url has the option {name} twice")
        if value:
            options[name] = value
    return options


def _read_addresses(text: str, kind: str) -> tuple[tuple[str, int], ...]:
    """Returns host and port of each address. Only Sentinels and nodes of a cluster may be several."""
    texts = text.split(",")
    if kind == SERVER and len(texts) > 1:
        _refuse_url("it has several addresses, which only redis+sentinel:// and redis+cluster:// may have")
    if len(texts) > 1 and not all(texts):
        _refuse_url("one of its addresses is empty: remove the extra comma")
    return tuple(_read_address(each, SENTINEL_PORT if kind == SENTINEL else DEFAULT_PORT) for each in texts)


def _read_master_name_and_db(path: str, options: dict[str, str]) -> tuple[str, str]:
    """Returns the name of the master and the database: /NAME/DB, or /DB with the name as an option."""
    service = options.get(SERVICE_OPTION, "")
    name, _, db = ("", "", path.strip("/")) if service else path.strip("/").partition("/")
    service = service or _percent_decode(name)
    if not service:
        _refuse_url(
            "it names no master: redis+sentinel://HOST:26379/NAME, where NAME is what the Sentinels call the master "
            "(redis-cli -p 26379 SENTINEL MASTERS)"
        )
    return service, db


def _read_address(address: str, default_port: int) -> tuple[str, int]:
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        _refuse_url("behind the name and password, host:port is expected, and the port must be a number")
    port = int(found["port"] or default_port)
    if not 0 < port <= 65535:
        _refuse_url("its port must be a number from 1 to 65535")
    host = found["host"].lower()
    return _percent_decode(host.strip("[]")) or DEFAULT_HOST, port


def _read_socket_path(path: str) -> str:
    decoded = _percent_decode(path)
    if decoded.strip("/") == "":
        _refuse_url("it names no socket: unix:///run/redis.sock")
    if not decoded.isprintable():
        _refuse_url("the path of its socket contains a control character")
    return decoded


def _read_db(text: str, kind: str) -> int:
    if not text:
        return 0
    if kind == CLUSTER and text.strip("0"):
        _refuse_url(
            "it names a database, and a cluster has none but 0: remove what is behind the / after the addresses, or "
            "the option db"
        )
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > MAX_DB:
        _refuse_url(f"its database (the path, or the option db) must be a number from 0 to {MAX_DB}")
    return int(text)


def _read_protocol(text: str) -> int:
    if text not in ("2", "3"):
        raise InvalidArgument("redis_url has the option protocol, which must be 2 or 3")
    return int(text)
