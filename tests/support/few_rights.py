"""Runs the suite with the users of `chasqui doctor --acl`, if CHASQUI_TEST_ACL is set: `make acl`.

Each connection of pychasqui whose URL has no credentials logs in as the user of its role; clients of the tests keep all
rights. What a user was refused is found in the log of each server, after the test or when the server ends.

Servers without such users are used as always: Sentinels, fake servers, the embedded server, servers with a password or
with renamed commands. Programs that a test starts have all rights. Tests marked `needs_all_rights` are left out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis

from pychasqui import embedded
from pychasqui._redis import scripts
from pychasqui._redis.acl import INSPECTOR, OPERATOR, WORKER, find_script_commands, make_acl_rules
from pychasqui._redis.credentials import Login
from pychasqui._redis.endpoint import Endpoint
from pychasqui.doctor import Doctor
from pychasqui.embedded import EmbeddedServer
from tests.support.fake_server import FakeServer
from tests.support.sentinels import SentinelServer
from tests.support.server import RedisServer

IS_ON = bool(os.environ.get("CHASQUI_TEST_ACL"))
MARK = "needs_all_rights"
PASSWORD = "few-rights"
# By how the name of a connection begins. An operator of the suite also obliterates queues. Connections with other names
# are an administrator's.
ROLE_OF = {
    "chasqui-queue-": OPERATOR,
    "chasqui-worker-": WORKER,
    "chasqui-promoter-": WORKER,
    "chasqui-scheduler-": WORKER,
    "chasqui-supervisor": WORKER,
    "chasqui-events-": INSPECTOR,
    "chasqui-watch": INSPECTOR,
}
OBLITERATING = [f"+{command.lower()}" for command in ("SCAN", "UNLINK", *find_script_commands(scripts.EMPTY_STREAM))]
OWN_USERS = frozenset({"--requirepass", "--aclfile", "--user", "--rename-command"})  # the test is about them
LOG_TIMEOUT_S = 2.0

without_users: set[str] = set()  # addresses of servers
refused_by_ended: list[dict[str, Any]] = []  # what servers that have ended had in their logs


class AskedServer(RedisServer):
    """A server that is asked for its capabilities, and needs no users."""


@cache
def capabilities(binary: Path) -> dict[str, bool]:
    async def ask(url: str) -> dict[str, bool]:
        async with Doctor(url) as doctor:
            await doctor.examine_server()
            return doctor._broker.list_capabilities()

    # In a thread, because the first to ask may be a fixture on a loop.
    with AskedServer(binary=binary) as server, ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(ask(server.url))).result()


def install() -> None:
    """Makes every server of the tests have the users, and every connection without credentials use them."""
    _give_servers_users()
    _note_servers_without_users()
    credentials = Endpoint.ask_for_credentials

    async def credentials_of_role(self: Endpoint) -> Login:
        login = await credentials(self)
        role = next((role for name, role in ROLE_OF.items() if (self.client_name or "").startswith(name)), None)
        if role is None or self.address in without_users or login.username or login.password:
            return login
        return login if self.credential_provider else Login(f"suite-{role.name}", PASSWORD)

    Endpoint.ask_for_credentials = credentials_of_role  # type: ignore[method-assign]


def _give_servers_users() -> None:
    """The users stand in a file that the server reads at each start: a client never finds it without them."""
    command_line, start = RedisServer._command_line, RedisServer.start
    stop, close = RedisServer.stop, RedisServer.close

    def command_line_with_users(self: RedisServer) -> list[str]:
        if not _has_users(self):
            return command_line(self)
        file = self.folder / "users.acl"
        file.write_text("".join(f"{line}\n" for line in _make_users(self)))
        return [*command_line(self), "--aclfile", str(file)]

    def start_and_note(self: RedisServer) -> None:
        start(self)
        addresses = {str(self.socket_path), f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        (without_users.difference_update if _has_users(self) else without_users.update)(addresses)

    def read_log_and_stop(self: RedisServer) -> None:
        _keep_refusals(self)
        stop(self)

    def read_log_and_close(self: RedisServer) -> None:
        self.resume()
        _keep_refusals(self)
        close(self)

    RedisServer._command_line = command_line_with_users  # type: ignore[method-assign]
    RedisServer.start = start_and_note  # type: ignore[method-assign]
    RedisServer.stop = read_log_and_stop  # type: ignore[method-assign]
    RedisServer.close = read_log_and_close  # type: ignore[method-assign]


def _keep_refusals(server: RedisServer) -> None:
    if server.is_running and _has_users(server):
        refused_by_ended.extend(read_refusals(server))


def _has_users(server: RedisServer) -> bool:
    return not isinstance(server, AskedServer | SentinelServer) and OWN_USERS.isdisjoint(server.config)


def _make_users(server: RedisServer) -> Iterable[str]:
    able, in_cluster = capabilities(server.binary), "--cluster-enabled" in server.config
    has_shards = in_cluster and server.version >= (7, 0, 0)
    yield "user default on nopass ~* &* +@all"
    for role in {role.name: role for role in ROLE_OF.values()}.values():
        rules = make_acl_rules(role, ["*"], able, in_cluster=in_cluster, has_shard_channels=has_shards)
        more = OBLITERATING if role.name == OPERATOR.name else []
        yield f"user suite-{role.name} on >{PASSWORD} {' '.join([*rules, *more])}"


def _note_servers_without_users() -> None:
    enter, leave, join = FakeServer.__aenter__, FakeServer.__aexit__, embedded.start_or_join_server

    async def enter_and_note(self: FakeServer) -> FakeServer:
        await enter(self)
        without_users.add(self.url.removeprefix("redis://"))
        return self

    async def leave_and_forget(self: FakeServer, *error: Any) -> None:
        without_users.discard(self.url.removeprefix("redis://"))
        await leave(self, *error)

    def join_and_note(url: str) -> EmbeddedServer:
        joined = join(url)
        without_users.add(unquote(joined.url).removeprefix("unix://"))
        return joined

    FakeServer.__aenter__ = enter_and_note  # type: ignore[method-assign, assignment]
    FakeServer.__aexit__ = leave_and_forget  # type: ignore[method-assign, assignment]
    embedded.start_or_join_server = join_and_note


def leave_out_marked(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if mark := item.get_closest_marker(MARK):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


def find_refusals(server: RedisServer | None) -> list[dict[str, Any]]:
    """What users of the suite were refused since the last call, by this server or by one that has ended."""
    found = [*refused_by_ended, *(read_refusals(server) if server else [])]
    refused_by_ended.clear()
    return found


def read_refusals(server: RedisServer) -> list[dict[str, Any]]:
    """Reads and empties the log of a server. None are found on a server that hangs or was killed."""
    try:
        with redis.Redis(unix_socket_path=str(server.socket_path), socket_timeout=LOG_TIMEOUT_S) as client:
            entries: list[dict[str, Any]] = client.acl_log()
            client.execute_command("ACL", "LOG", "RESET")
    except redis.RedisError:
        return []
    return [entry for entry in entries if str(entry["username"]).startswith("suite-")]
