"""Opens a connection to the first address of a host that answers: one that does not must hold up no other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

NEXT_ADDRESS_S = 0.3  # an address that has not answered by then has the next one beside it

P = TypeVar("P", bound=asyncio.BaseProtocol)
Opened = tuple[asyncio.Transport, P]


async def look_up_addresses(host: str, port: int) -> list[str]:
    """Returns the addresses of a host, at least one. An address is its own, and needs no look-up."""
    if ":" in host or _is_ipv4_address(host):
        return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found)) or [host]


async def open_first_that_answers(
    addresses: list[str], open_address: Callable[[str], Coroutine[Any, Any, Opened[P]]]
) -> Opened[P]:
    """Tries one after the other, and does not wait long for any while others are left; raises the last error."""
    *others, last = addresses
    if not others:
        return await open_address(last)
    left, opening = addresses.copy(), set[asyncio.Task[Opened[P]]]()
    try:
        while True:
            if left:
                opening.add(asyncio.create_task(open_address(left.pop(0)), name="chasqui connect to one address"))
            timeout_s = NEXT_ADDRESS_S if left else None
            done, _ = await asyncio.wait(opening, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                opening.remove(task)
                if (error := task.exception()) is None:
                    return task.result()
                if not left and not opening:
                    raise error
    finally:
        for task in opening:
            task.cancel()
            task.add_done_callback(_abort_if_open)


def _abort_if_open(task: asyncio.Task[Opened[Any]]) -> None:
    """It may have succeeded in the same turn as another, or before it could be cancelled."""
    if not task.cancelled() and task.exception() is None:
        task.result()[0].abort()


def _is_ipv4_address(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True
