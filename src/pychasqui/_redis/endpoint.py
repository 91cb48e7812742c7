"""Endpoint: the address, the TLS context and the credentials of a server. Location: what a URL names.

`str()` and `repr()` of an endpoint show scheme, host, port, path and database, and nothing else: a password may stand
in the place of the user name or client name by mistake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ..errors import InvalidArgument, InvalidType
from .address_race import look_up_addresses, open_first_that_answers
from .credentials import CredentialProvider, Login, ask_provider, check_provider
from .tls import find_tls_remedy, make_tls_context, read_server_hostname
from .url import DEFAULT_HOST, DEFAULT_PORT, SENTINEL, SERVER, RedisUrl, read_url

TLS_TIMEOUT_S = 4.0  # a port without TLS never answers; less than CONNECT_TIMEOUT_S, to leave time to find that out
NOTHING_LISTENS = "nothing listens there"
TOO_MANY_CLIENTS = "max number of clients"
P = TypeVar("P", bound=asyncio.BaseProtocol)


def format_address(host: str, port: int) -> str:
    """Returns host:port as a URL has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class Endpoint:
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str | None = None
    db: int = 0
    protocol: int = 3
    client_name: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_host: str | None = field(default=None, repr=False)  # whose certificate it must be, if not that of the host
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    credential_provider: CredentialProvider | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"{'rediss' if self.tls else 'redis'}://{format_address(self.host, self.port)}/{self.db}"

    async def ask_for_credentials(self) -> Login:
        """Returns name and password for a new connection. Asks the provider each time: passwords are rotated."""
        if self.credential_provider is None:
            return Login(self.username, self.password)
        return await ask_provider(self.credential_provider, None if self.path else self.address, self)

    async def open_connection(self, make_protocol: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        if self.path:
            return await loop.create_unix_connection(make_protocol, self.path)
        addresses = await look_up_addresses(self.host, self.port)
        return await open_first_that_answers(addresses, partial(self._open_address, make_protocol))

    async def _open_address(self, make_protocol: Callable[[], P], address: str) -> tuple[asyncio.Transport, P]:
        transport, made = await asyncio.get_running_loop().create_connection(
            make_protocol,
            address,
            self.port,
            ssl=self.tls,
            server_hostname=(self.tls_host or self.host) if self.tls else None,
            ssl_handshake_timeout=TLS_TIMEOUT_S if self.tls else None,
        )
        _enable_keep_alive(transport.get_extra_info("socket"))
        return transport, made


@dataclass(frozen=True)
class Location:
    """What a URL names: a server, the Sentinels that watch a master, or nodes of a cluster."""

    kind: str
    node: Endpoint  # the server; of others a node without its address
    seeds: tuple[Endpoint, ...]  # the Sentinels or nodes that the URL names
    service: str = ""  # the master's name, if Sentinels watch it

    def __str__(self) -> str:
        if self.kind == SERVER:
            return str(self.node)
        addresses = ",".join(format_address(seed.host, seed.port) for seed in self.seeds)
        path = f"/{self.service}/{self.node.db}" if self.kind == SENTINEL else ""
        return f"{'rediss' if self.node.tls else 'redis'}+{self.kind}://{addresses}{path}"


def explain_failure(error: Exception, absence_remedy: str, *, host_remedy: str = "check the name in redis_url") -> str:
    """Says why no connection was made and, where it is known, what to change.

    `absence_remedy` is for a server that is not there, `host_remedy` for a name that is not known. An error that was
    explained before stays as it is.
    """
    text = str(error) or "no answer to the handshake"
    if NOTHING_LISTENS in text:
        return text
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in text:
        return f"{text}: {NOTHING_LISTENS}; {absence_remedy}"
    if isinstance(error, FileNotFoundError):
        return f"{text}: there is no such socket; {absence_remedy}"
    if isinstance(error, socket.gaierror):
        return f"{text}: no such host is known; {host_remedy}"
    too_many = "raise maxclients at the server, or run fewer processes" if TOO_MANY_CLIENTS in text else ""
    remedy = too_many or find_tls_remedy(text)
    return f"{text}: {remedy}" if remedy and remedy not in text else text


def _enable_keep_alive(sock: socket.socket) -> None:
    """Sets TCP keepalive: a peer that has vanished is noticed in about 11 s even while nothing is sent."""
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
    """Reads the URL of one server: redis://, rediss:// or unix://, or a bare host:port. Of others it returns `node`."""
    return parse_location(url, tls=tls, client_name=client_name, credential_provider=credential_provider).node


def parse_location(
    url: str,
    *,
    tls: bool = False,
    client_name: str | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Location:
    """Reads the URL of a server, of Sentinels or of a cluster."""
    if not isinstance(url, str):
        raise InvalidType(f"redis_url must be a str, not {type(url).__name__}")
    read = read_url(url)
    if tls and read.path is not None:
        raise InvalidArgument("tls=True contradicts redis_url: a unix socket has no TLS")
    has_tls = tls or read.scheme == "rediss"
    if read.tls and not has_tls:
        raise InvalidArgument(f"redis_url sets {min(read.tls)} but has no TLS: use rediss:// or tls=True")
    if credential_provider is not None:
        check_provider(credential_provider)
    if credential_provider is not None and (read.username or read.password):
        raise InvalidArgument("credential_provider contradicts redis_url, which contains credentials: use one of them")
    node = Endpoint(
        host=read.host,
        port=read.port,
        path=read.path,
        db=read.db,
        protocol=read.protocol,
        client_name=read.client_name or client_name,
        tls=make_tls_context(read.tls) if has_tls else None,
        tls_host=read_server_hostname(read.tls),
        username=read.username,
        password=read.password,
        credential_provider=credential_provider,
    )
    return Location(read.kind, node, _make_seed_endpoints(read, node), read.service)


def _make_seed_endpoints(parsed_url: RedisUrl, node: Endpoint) -> tuple[Endpoint, ...]:
    """Returns the Sentinels or nodes that the URL names. Sentinels have their own credentials."""
    if parsed_url.kind == SENTINEL:
        node = replace(node, db=0, protocol=3, credential_provider=None)
        node = replace(node, username=parsed_url.sentinel_username, password=parsed_url.sentinel_password)
    return tuple(replace(node, host=host, port=port) for host, port in parsed_url.addresses)
