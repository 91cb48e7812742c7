"""A host with several addresses, of which some do not answer."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from pychasqui._redis import address_race
from pychasqui._redis.address_race import look_up_addresses, open_first_that_answers

Opened = tuple[asyncio.Transport, asyncio.Protocol]


async def open_address(address: str) -> Opened:
    if address == "silent":
        await asyncio.Event().wait()
    if address != "well":
        raise ConnectionRefusedError(address)
    return Mock(asyncio.Transport), Mock(asyncio.Protocol)


@pytest.fixture(autouse=True)
def _short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_race, "NEXT_ADDRESS_S", 0.01)


@pytest.mark.parametrize("address", ("127.0.0.1", "::1", "fe80::1%lo"))
async def test_an_address_is_not_looked_up(address: str) -> None:
    assert await look_up_addresses(address, 6379) == [address]


@pytest.mark.parametrize(
    "addresses", (["well"], ["refuses", "well"], ["silent", "well"], ["silent", "refuses", "silent", "well", "silent"])
)
async def test_an_address_that_answers_is_found_behind_others(addresses: list[str]) -> None:
    async with asyncio.timeout(5):
        await open_first_that_answers(addresses, open_address)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_error_is_that_of_the_last_address() -> None:
    with pytest.raises(ConnectionRefusedError, match="second"):
        await open_first_that_answers(["first", "second"], open_address)


async def test_a_slow_address_is_not_given_up_for_the_next() -> None:
    """Over a slow line each of them takes longer than the pause between them."""

    async def open_slowly(address: str) -> Opened:
        await asyncio.sleep(0.05)
        return await open_address("well" if address == "slow" else address)

    async with asyncio.timeout(5):
        await open_first_that_answers(["slow", "silent"], open_slowly)


async def test_the_connection_of_an_address_that_answers_beside_another_is_closed() -> None:
    transports: list[Mock] = []
    both_wait, may_go = asyncio.Event(), asyncio.Event()

    async def open_together(address: str) -> Opened:
        transports.append(Mock(asyncio.Transport))
        transport = transports[-1]
        if len(transports) == 2:
            both_wait.set()
        await may_go.wait()
        return transport, Mock(asyncio.Protocol)

    opening = asyncio.create_task(open_first_that_answers(["first", "second"], open_together))
    await both_wait.wait()
    may_go.set()
    used, _ = await opening
    await asyncio.sleep(0)
    assert [transport.abort.called for transport in transports if transport is not used] == [True]
