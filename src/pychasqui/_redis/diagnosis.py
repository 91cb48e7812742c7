"""Finds out why nothing comes of a first connection: the port uses TLS and the URL does not, or the other way round."""

from __future__ import annotations

import asyncio
import ssl

from ..errors import NotRedis
from .endpoint import Endpoint

TIMEOUT_S = 2.0


async def probe_for_tls_mismatch(endpoint: Endpoint) -> NotRedis | None:
    """Returns an error that says what to change about the URL, if only one of URL and server uses TLS."""
    if endpoint.path:
        return None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            if endpoint.tls is not None:
                return await _probe_for_plain_port_error(endpoint)
            return await _probe_for_tls_port_error(endpoint)
    except (OSError, EOFError):  # TimeoutError is an OSError: it speaks neither, or is not there
        return None


async def _probe_for_plain_port_error(endpoint: Endpoint) -> NotRedis | None:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(b"PING\r\n")
        answer = await reader.read(1)
    finally:
        writer.transport.abort()
    if answer not in (b"+", b"-"):
        return None
    return NotRedis(
        f"{endpoint} is a plain port, and the URL asks for TLS: use redis:// and no tls=True, or the server's TLS port"
    )


async def _probe_for_tls_port_error(endpoint: Endpoint) -> NotRedis:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is said over it but the greeting
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    writer.transport.abort()
    return NotRedis(f"{endpoint} is a TLS port, and the URL asks for none: use rediss:// or tls=True")
