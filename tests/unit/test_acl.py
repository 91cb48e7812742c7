"""The rights of each role are those of the code: no command is missing in the tables, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pychasqui
from pychasqui import InvalidArgument
from pychasqui._redis import scripts
from pychasqui._redis.acl import (
    INSPECTOR,
    PRODUCER,
    ROLES,
    WITH_SUBCOMMANDS,
    WORKER,
    Role,
    find_script_commands,
    make_acl_rules,
)
from pychasqui._redis.scripts import Script

SOURCE = Path(pychasqui.__file__).parent / "_redis"
ALL = {"XACKDEL": True, "MSETEX": True}
# Words of Python that begin a command: the first argument of a call, or of a tuple that is passed on.
SENT = re.compile(r'(?:call|pack|send|ask|render)\(\(?b?"([A-Z]+)"(?:, "([A-Z]+)")?')
BEGUN = re.compile(r'(?:words|hello|commands) = [\[(]"([A-Z]+)"|\["(AUTH|SELECT)"')
# What no role has: obliterate() and the search for queues need names of all keys, and are an administrator's, as the
# question is which slots are half-migrated.
OF_ADMINISTRATORS = {"SCAN", "UNLINK", "CLUSTER|NODES"}
# Sentinels have users of their own; the other is asked of services without HELLO, which no user can be refused.
OUTSIDE_OF_ROLES = {"SENTINEL", "CLIENT|ID"}


def commands_in_python() -> set[str]:
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for command, subcommand in SENT.findall(text):
            found.add(f"{command}|{subcommand}" if command in WITH_SUBCOMMANDS else command)
        for one, other in BEGUN.findall(text):
            found.add(one or other)
    return found - OUTSIDE_OF_ROLES


def every_script() -> list[Script]:
    return [value for value in vars(scripts).values() if isinstance(value, Script)]


def test_every_command_that_python_sends_is_a_right_of_some_role() -> None:
    rights = {right for role in ROLES for right in role.find_needed_commands(has_registry=True, in_cluster=True)}
    assert commands_in_python() - rights - OF_ADMINISTRATORS == set()


def test_no_role_has_a_right_that_no_code_needs() -> None:
    used = commands_in_python() | {"EVAL", "EVALSHA"}
    for script in every_script():
        used |= find_script_commands(script)
    rights = {right for role in ROLES for right in role.find_needed_commands(has_registry=True, in_cluster=True)}
    assert rights - used == set()


def test_only_users_in_a_cluster_may_ask_which_node_has_a_queue() -> None:
    assert "+cluster|slots" in make_acl_rules(WORKER, ["orders"], ALL, in_cluster=True)
    assert not any("cluster" in rule for rule in make_acl_rules(WORKER, ["orders"], ALL))


def test_messages_of_a_cluster_need_the_rights_to_shard_channels_alone() -> None:
    plain, shards = {"+publish", "+subscribe"}, {"+spublish", "+ssubscribe"}
    assert (plain | shards) & set(make_acl_rules(WORKER, ["orders"], ALL)) == plain
    in_cluster = make_acl_rules(WORKER, ["orders"], ALL, in_cluster=True, has_shard_channels=True)
    assert (plain | shards) & set(in_cluster) == shards


def test_every_script_is_of_some_role() -> None:
    of_roles = {script.name for role in ROLES for script in role.scripts}
    assert {script.name for script in every_script()} - of_roles == {"register_queue", "empty_stream"}


def test_every_command_of_a_script_is_found() -> None:
    """Also one that is called by another name of redis.call, or tried first."""
    for script in every_script():
        code = re.sub(
            rb"--[^\n]*|(?<![\w.])pcall\(\w+\)", b"", script.text
        )  # Lua's own pcall runs a function of the script
        calls = re.findall(rb"(?<!\w)(?:call|pcall|refusal)\((?!\.\.\.)([^)]{0,30})", code)
        assert all(re.match(rb"'[A-Z]+'", words) for words in calls), script.name
        assert all(words.count(b"'") >= 4 for words in calls if words[1:7] in (b"XGROUP", b"XINFO'")), script.name


@pytest.mark.parametrize(
    ("queue", "pattern"),
    (
        ("orders", "{chasqui:orders}:*"),
        ("orders-*", "{chasqui:orders-*}:*"),
        ("*", "{chasqui:*}:*"),
        ("a?b[c]", r"{chasqui:a\?b\[c\]}:*"),
        ("a*b", r"{chasqui:a\*b}:*"),
    ),
)
def test_the_pattern_of_a_queue_is_that_of_its_keys(queue: str, pattern: str) -> None:
    rules = make_acl_rules(PRODUCER, [queue], ALL)
    assert f"~{pattern}" in rules
    assert f"&{pattern}" in rules


def test_a_name_with_a_space_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no pattern of an ACL can hold"):
        make_acl_rules(PRODUCER, ["my orders"], ALL)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_only_the_users_of_all_queues_have_the_registry(role: Role) -> None:
    assert "~chasqui:queues" in make_acl_rules(role, ["*"], ALL)
    assert "~chasqui:queues" not in make_acl_rules(role, ["orders*"], ALL)


def test_a_right_to_a_command_that_the_server_does_not_have_is_left_out() -> None:
    assert {"+xackdel", "+msetex"} <= set(make_acl_rules(WORKER, ["orders"], ALL))
    assert not {"+xackdel", "+msetex"} & set(make_acl_rules(WORKER, ["orders"], {"XACKDEL": False}))


def test_an_inspector_writes_nothing() -> None:
    assert INSPECTOR.scripts == ()
    assert not any(rule.startswith("&") for rule in make_acl_rules(INSPECTOR, ["orders"], ALL))
