"""Runs the suite with the users of `chasqui doctor --acl`, if CHASQUI_TEST_ACL is set: `make acl`.

Each connection of pychasqui whose URL has no credentials logs in as the user of its role; clients of the tests keep all
rights. What a user was refused is found in the log of the server after each test.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Any

from pychasqui._redis import scripts
from pychasqui._redis.acl import INSPECTOR, OPERATOR, WORKER, find_script_commands, make_acl_rules
from pychasqui._redis.credentials import Login
from pychasqui._redis.endpoint import Endpoint
from pychasqui.doctor import Doctor
from tests.support.server import RedisServer

IS_ON = bool(os.environ.get("CHASQUI_TEST_ACL"))
PASSWORD = "few-rights"
# By how the name of a connection begins. An operator of the suite also obliterates queues.
ROLE_OF = {"chasqui-queue-": OPERATOR, "chasqui-worker-": WORKER, "chasqui-events-": INSPECTOR}
OBLITERATING = [f"+{command.lower()}" for command in ("SCAN", "UNLINK", *find_script_commands(scripts.EMPTY_STREAM))]


@cache
def capabilities(binary: Path) -> dict[str, bool]:
    async def ask(url: str) -> dict[str, bool]:
        async with Doctor(url) as doctor:
            await doctor.examine_server()
            return doctor._broker.capabilities()

    with RedisServer(binary=binary) as server:
        return asyncio.run(ask(server.url))


def install() -> None:
    """Makes every server of the tests have the users, and every connection without credentials use them."""
    start, credentials = RedisServer.start, Endpoint.credentials

    def start_with_users(self: RedisServer) -> None:
        is_first = not self.is_running
        start(self)
        if "--requirepass" in self.config:
            LOCKED.update((str(self.socket_path), f"127.0.0.1:{self.port}"))
        elif is_first and IS_READY:
            give_users(self)

    async def credentials_of_role(self: Endpoint) -> Login:
        login = await credentials(self)
        role = next((role for name, role in ROLE_OF.items() if (self.client_name or "").startswith(name)), None)
        if role is None or self.address in LOCKED or login.username or login.password or self.credential_provider:
            return login
        return Login(f"suite-{role.name}", PASSWORD)

    RedisServer.start = start_with_users  # type: ignore[method-assign]
    Endpoint.credentials = credentials_of_role  # type: ignore[method-assign]


IS_READY: list[bool] = [True]
LOCKED: set[str] = set()  # addresses of servers with a password, whose tests are about that


def give_users(server: RedisServer) -> None:
    IS_READY.clear()  # the server that is asked for its capabilities needs no users
    try:
        able = capabilities(server.binary)
    finally:
        IS_READY.append(True)
    for role in ROLE_OF.values():
        more = OBLITERATING if role is OPERATOR else []
        server.execute(
            "ACL", "SETUSER", f"suite-{role.name}", *make_acl_rules(role, ["*"], able), *more, "on", f">{PASSWORD}"
        )


def refusals(server: RedisServer) -> list[dict[str, Any]]:
    """What users of the suite were refused since the last call."""
    with server.client() as client:
        entries = [entry for entry in client.acl_log() if str(entry["username"]).startswith("suite-")]
        client.execute_command("ACL", "LOG", "RESET")
    return entries
