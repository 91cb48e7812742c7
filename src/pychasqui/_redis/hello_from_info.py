"""What HELLO says of a server, found out by INFO where a service refuses HELLO."""

from __future__ import annotations

from typing import Any

from ..errors import ReplyError
from .command_replies import decode_info_text
from .socket import Socket, pack


async def ask_info_for_hello_or_none(socket: Socket, deadline: float) -> dict[bytes, Any] | None:
    """Returns the fields of HELLO, with RESP2; None if the server refuses INFO, too, or says no version there."""
    try:
        replies = [await socket.ask(pack("INFO", section), deadline) for section in ("server", "replication")]
    except ReplyError:
        return None
    lines = "\n".join(map(decode_info_text, replies)).splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    server = "valkey" if "valkey_version" in fields else "redis"
    version = fields.get(f"{server}_version", "")
    if not version:
        return None
    return {
        b"server": server.encode(),
        b"version": version.encode("ascii", "replace"),
        b"proto": 2,
        b"id": await _ask_client_id_or_zero(socket, deadline),
        b"mode": (fields.get("server_mode") or fields.get("redis_mode", "standalone")).encode("ascii", "replace"),
        b"role": b"master" if fields.get("role", "master") == "master" else b"replica",
    }


async def _ask_client_id_or_zero(socket: Socket, deadline: float) -> int:
    """Returns the server's number for the connection; 0 if this user may not ask."""
    try:
        reply = await socket.ask(pack("CLIENT", "ID"), deadline)
    except ReplyError:
        return 0
    return reply if type(reply) is int else 0
