"""Every key that can be known is in KEYS, and each script touches the others before its first write.

MONITOR shows what a script does. While a slot of a cluster moves, the server refuses a key that has moved: a script
that has touched all its keys before it writes is then refused as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import redis

from pychasqui._redis import scripts
from pychasqui._redis.keys import REGISTRY
from tests.scripts.group import KEYS, Group
from tests.scripts.refusals import commands_of
from tests.scripts.scenarios import SCENARIOS, Scenario

BY_JOB_ID = "named by the ids of up to a thousand jobs, which are sent: each key would be sent beside its id"
OF_RESULTS = "a user without the right to write a result must be able to ack, and to write the events"
OF_NO_QUEUE = "it is on another node than most queues, and the call must not be redirected there"
FOUND_INSIDE = "named by what the script finds"
JOB_KEYS = (KEYS.unique(""), KEYS.official_delayed_id(""), KEYS.delayed_member(""))
# Keys that are not in KEYS: how they begin, and why.
NOT_IN_KEYS: dict[str, dict[str, str]] = {
    "ack_unique": dict.fromkeys(JOB_KEYS, BY_JOB_ID),
    "ack_with_result": dict.fromkeys(JOB_KEYS, BY_JOB_ID) | {KEYS.result(""): OF_RESULTS},
    "add_with_options": dict.fromkeys(JOB_KEYS, BY_JOB_ID),
    "bury": dict.fromkeys(JOB_KEYS, BY_JOB_ID),
    "move_delayed": dict.fromkeys(JOB_KEYS, BY_JOB_ID),
    "reschedule": dict.fromkeys(JOB_KEYS, BY_JOB_ID),
    "promote": dict.fromkeys((KEYS.unique(""), KEYS.delayed_member("")), FOUND_INSIDE),
    "purge_delayed": dict.fromkeys(JOB_KEYS, FOUND_INSIDE),
    "purge_waiting": dict.fromkeys(JOB_KEYS, FOUND_INSIDE),
    "due_repeatables": {KEYS.repeat_spec(""): FOUND_INSIDE},
    "write_completed": {KEYS.result(""): OF_RESULTS},
    "register_queue": {REGISTRY: OF_NO_QUEUE},
}


# Commands that no scenario of a script sends: why.
NOT_SENT = {
    ("add", "HDEL"): "only once the stream has refused the first job of a batch",
    ("add_with_options", "HDEL"): "only once the stream has refused all jobs of a batch",
    ("promote", "ZADD"): "only if members that the dead letters refuse fill a call",
    ("cancel", "HEXISTS"): "only beside as many notes as there may be",
    ("add_with_options", "SPUBLISH"): "only to a shard channel, in a cluster",
    ("move_delayed", "SPUBLISH"): "only to a shard channel, in a cluster",
    ("cancel", "SPUBLISH"): "only to a shard channel, in a cluster",
    ("upsert_repeatable", "SPUBLISH"): "only to a shard channel, in a cluster",
    ("remove_pause_or_resume_repeatable", "SPUBLISH"): "only to a shard channel, in a cluster",
}


class Command(NamedTuple):
    words: list[bytes]
    keys: set[str]
    writes: bool


class Call(NamedTuple):
    """One call of a script: what is in KEYS, and the commands that it sends."""

    keys: set[str]
    commands: list[Command]

    @property
    def undeclared(self) -> set[str]:
        return {key for command in self.commands for key in command.keys} - self.keys

    @property
    def touched_late(self) -> set[str]:
        """The keys outside of KEYS whose first command comes after a write, or is one."""
        seen: set[str] = set()
        late: set[str] = set()
        has_written = False
        for command in self.commands:
            has_written = has_written or command.writes
            late |= (command.keys - self.keys - seen) if has_written else set()
            seen |= command.keys
        return late


def calls_of(scenario: Scenario, client: Any) -> list[Call]:
    client.flushall()
    group = Group(client)
    group.create()
    send = scenario.prepare(group)
    with monitored(client) as lines:
        send(group)
    calls: list[Call] = []
    writing = _writing(client)
    for line in lines:
        source, words = _read(line)
        if source == "lua":
            calls[-1].commands.append(Command(words, _keys_of(client, words), words[0].upper() in writing))
        elif words[0].upper() == b"EVAL":
            calls.append(Call({key.decode() for key in words[3 : 3 + int(words[2])]}, []))
    return calls


@contextmanager
def monitored(client: Any) -> Iterator[list[bytes]]:
    """What the server says it does meanwhile; filled when it ends."""
    lines: list[bytes] = []
    connection = redis.UnixDomainSocketConnection(path=client.connection_pool.connection_kwargs["path"])
    connection.connect()
    connection.send_command("MONITOR")
    assert connection.read_response() == b"OK"
    yield lines
    client.echo("the end")
    while b'"the end"' not in (line := connection.read_response()):
        lines.append(line)
    connection.disconnect()


_LINE = re.compile(rb"^\S+ \[\d+ (\S+)\] (.*)$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def _read(line: bytes) -> tuple[str, list[bytes]]:
    found = _LINE.match(line)
    assert found, line
    words = [word.decode("unicode_escape").encode("latin-1") for word in _WORD.findall(found[2])]
    return found[1].decode(), words


def _keys_of(client: Any, words: list[bytes]) -> set[str]:
    if words[0].upper() in (b"XGROUP", b"XINFO"):
        return {words[2].decode()}  # Redis 6.2 does not know their keys
    try:
        return set(client.command_getkeys(*words))
    except redis.ResponseError:  # it has none
        return set()


_WRITING: dict[str, frozenset[bytes]] = {}  # the commands of a server that write, by its socket


def _writing(client: Any) -> frozenset[bytes]:
    path = client.connection_pool.connection_kwargs["path"]
    if path not in _WRITING:
        found = (name for name, about in client.command().items() if "write" in about["flags"])
        _WRITING[path] = frozenset(name.upper().encode() for name in found)
    return _WRITING[path]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_key_is_in_keys_or_listed_with_its_reason_and_touched_before_the_first_write(
    group: Group, scenario: Scenario
) -> None:
    check_keys(scenario, group.client)


def check_keys(scenario: Scenario, client: Any) -> None:
    calls = calls_of(scenario, client)
    assert calls
    assert [call for call in calls if not call.commands] == []
    listed = tuple(NOT_IN_KEYS.get(scenario.script, ()))
    for call in calls:
        assert {key for key in call.undeclared if not key.startswith(listed or "nothing")} == set()
        assert call.touched_late == set()


@pytest.mark.parametrize("script", NOT_IN_KEYS)
def test_every_listed_key_is_touched_by_its_script(group: Group, script: str) -> None:
    calls = [call for one in SCENARIOS if one.script == script for call in calls_of(one, group.client)]
    touched = {key for call in calls for key in call.undeclared}
    assert [start for start in NOT_IN_KEYS[script] if not any(key.startswith(start) for key in touched)] == []


@pytest.mark.parametrize("script", sorted({scenario.script for scenario in SCENARIOS}))
def test_every_command_of_a_script_is_sent_in_one_of_its_scenarios(group: Group, script: str) -> None:
    """Else test_refusals.py would never have it refused."""
    calls = [call for one in SCENARIOS if one.script == script for call in calls_of(one, group.client)]
    sent = {command.words[0].upper().decode() for call in calls for command in call.commands}
    listed = {command for name, command in NOT_SENT if name == script}
    unknown = set() if group.has_msetex else {"XACKDEL", "MSETEX"}
    assert set(commands_of(getattr(scripts, script.upper()))) - sent - unknown == listed


def test_keys_of_subcommands_are_found(group: Group) -> None:
    assert _keys_of(group.client, [b"XGROUP", b"CREATE", b"a", b"b"]) == {"a"}
    assert _keys_of(group.client, [b"EXISTS", b"a", b"b"]) == {"a", "b"}
    assert _keys_of(group.client, [b"PUBLISH", b"a", b"b"]) == set()
