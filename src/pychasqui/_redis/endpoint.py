"""Where to connect and how: a URL, its TLS settings and its credentials.

redis-py parses the URL and builds the TLS context; nothing else of it is used. A password lives in here and is shown
nowhere: `str()` and `repr()` of an endpoint mask it.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from ..errors import AuthenticationFailed, InvalidArgument, InvalidType

CredentialProvider = Callable[[str | None], Awaitable[tuple[str | None, str | None]]]
SCHEMES = ("redis", "rediss", "unix")
P = TypeVar("P", bound=asyncio.BaseProtocol)
_OWN_OPTIONS = {"db", "protocol", "client_name", "username", "password"}


@dataclass(frozen=True)
class Endpoint:
    host: str = "127.0.0.1"
    port: int = 6379
    path: str | None = None
    db: int = 0
    protocol: int = 3
    client_name: str | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    credential_provider: CredentialProvider | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    def __str__(self) -> str:
        user = quote(self.username or "", safe="")
        login = f"{user}:***@" if self.password else f"{user}@" if user else ""
        if self.path:
            return f"unix://{login}{self.path}"
        return f"{'rediss' if self.tls else 'redis'}://{login}{self.host}:{self.port}/{self.db}"

    async def credentials(self) -> tuple[str | None, str | None]:
        """Asked anew for every connection, so that a rotated password is picked up."""
        if self.credential_provider is None:
            return self.username, self.password
        try:
            username, password = await self.credential_provider(None if self.path else self.address)
        except Exception as error:
            raise AuthenticationFailed(f"the credential provider for {self} failed: {type(error).__name__}") from error
        return username, password

    async def open(self, protocol: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        if self.path:
            return await loop.create_unix_connection(protocol, self.path)
        transport, made = await loop.create_connection(
            protocol, self.host, self.port, ssl=self.tls, server_hostname=self.host if self.tls else None
        )
        _keep_alive(transport.get_extra_info("socket"))
        return transport, made


def _keep_alive(sock: socket.socket) -> None:
    """A peer that vanished without a word is noticed in about 11 s even while nothing is sent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def parse_endpoint(
    url: str,
    *,
    tls: bool = False,
    client_name: str | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Endpoint:
    """Read a redis://, rediss:// or unix:// URL, or a bare host:port."""
    if not isinstance(url, str):
        raise InvalidType(f"redis_url must be a str, not {type(url).__name__}")
    full = _with_scheme(url, tls)
    options = _parse(full)
    context = _tls_context(options) if full.startswith("rediss://") else None
    unknown = {name for name in options if name not in _OWN_OPTIONS and not name.startswith("ssl_")} - {
        "host",
        "port",
        "path",
    }
    if unknown:
        raise InvalidArgument(f"redis_url has an unknown option {min(unknown)!r}: {mask(url)}")
    if context is None and (setting := next((name for name in options if name.startswith("ssl_")), None)):
        raise InvalidArgument(f"redis_url sets {setting} but has no TLS: use rediss:// or tls=True: {mask(url)}")
    if credential_provider is not None and (options.get("username") or options.get("password")):
        raise InvalidArgument(f"credential_provider contradicts redis_url, which holds credentials too: {mask(url)}")
    protocol = int(options.get("protocol", 3))
    if protocol not in (2, 3):
        raise InvalidArgument(f"redis_url option protocol={protocol} must be 2 or 3: {mask(url)}")
    return Endpoint(
        host=options.get("host", "127.0.0.1"),
        port=options.get("port", 6379),
        path=options.get("path"),
        db=int(options.get("db", 0)),
        protocol=protocol,
        client_name=options.get("client_name", client_name),
        tls=context,
        username=options.get("username"),
        password=options.get("password"),
        credential_provider=credential_provider,
    )


def mask(url: str) -> str:
    """The URL with its password, wherever it stands, replaced by ***."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url, flags=re.DOTALL)
    return re.sub(r"(://[^/?#@:]*):.*@", r"\1:***@", url, flags=re.DOTALL)


def _with_scheme(url: str, tls: bool) -> str:
    if "://" not in url:
        url = f"redis://{url}"
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InvalidArgument(f"redis_url has the unknown scheme {scheme!r}: use {known} or embedded://")
    if tls and scheme == "unix":
        raise InvalidArgument("tls=True contradicts redis_url: a unix socket has no TLS")
    return f"rediss://{rest}" if tls else url


def _parse(url: str) -> dict[str, Any]:
    from redis.asyncio.connection import parse_url  # imported late: 150 ms that --help need not pay

    # Neither the parser's own words nor any part of the URL but the masked whole is shown: what it takes for a port or
    # a database may be a part of a password.
    rest = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[1:]
    if (rest and "@" in rest[0] and not url.startswith("unix://")) or not url.isprintable():
        raise InvalidArgument(
            f"redis_url cannot be read: a name or password with / ? # @ : or a control character in it must be "
            f"percent-encoded: {mask(url)!r}"
        )
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:
        raise InvalidArgument(f"redis_url cannot be read, its port must be a number: {mask(url)}") from None
    options.pop("connection_class", None)
    database = urlsplit(url).path.strip("/") if not url.startswith("unix://") else ""
    if database and not database.isdigit():
        raise InvalidArgument(f"redis_url names the database {database!r}, which must be a number: {mask(url)}")
    if url.startswith("unix://") and not options.get("path"):
        raise InvalidArgument(f"redis_url names no socket: {mask(url)}")
    return options


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext:
    """redis-py's context: verifies the certificate and the host name unless the URL says otherwise."""
    from redis.asyncio.connection import SSLConnection
    from redis.exceptions import RedisError

    settings = {name: value for name, value in options.items() if name.startswith("ssl_")}
    try:
        context: ssl.SSLContext = SSLConnection(**settings).ssl_context.get()
    except (RedisError, TypeError, OSError) as error:
        raise InvalidArgument(f"redis_url has TLS settings that do not work: {error}") from None
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    return context
