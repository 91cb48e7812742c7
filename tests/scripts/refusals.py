"""Refusals that a server may give in the middle of a script: each command, each key, each type, an id, memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pychasqui._redis.scripts import Script
from tests.scripts.group import KEYS, Group

LAST = 18446744073709551615
NAMED_KINDS = (
    KEYS.unique(""),
    KEYS.official_delayed_id(""),
    KEYS.delayed_member(""),
    KEYS.result(""),
    KEYS.repeat_spec(""),
)
_KNOWN: dict[str, frozenset[str]] = {}  # the commands of a server, by its socket
_CALL = re.compile(r"\(\s*'([A-Z]{2,})'")


@dataclass(frozen=True)
class Refusal:
    title: str
    begin: Callable[[Group], AbstractContextManager[Group]]  # the script is run by what it yields
    poisoned: str = ""  # the key that holds something else meanwhile
    can_end: bool = True  # so that a refused call can be sent again

    def __str__(self) -> str:
        return self.title


def kind_of(key: str) -> str:
    """The key, or what all keys begin with that are named by a job or a repeatable: rights do not tell them apart."""
    return next((kind for kind in NAMED_KINDS if key.startswith(kind)), key)


def commands_of(script: Script) -> list[str]:
    return sorted(set(_CALL.findall(script.text.decode())))


def refusals(script: Script, keys: dict[str, str], group: Group) -> Iterator[Refusal]:
    """All that there are for a script which touches these keys, each with its type."""
    has_read_rights = group.has_read_rights
    known = _commands_known(group.client, group.client.connection_pool.connection_kwargs["path"])
    for command in filter(known.__contains__, commands_of(script)):  # old servers know fewer
        yield Refusal(f"no right to {command}", _as_user("+@all", f"-{command.lower()}", "~*", "&*"))
    for kind in sorted({kind_of(key) for key in keys}):
        others = [f"~{key}" for key in keys if kind_of(key) != kind]
        yield Refusal(f"no right to {kind}", _as_user("+@all", *others, "&*"))
        if has_read_rights:
            yield Refusal(f"no right to write {kind}", _as_user("+@all", *others, f"%R~{kind}*", "&*"))
    for key in keys:
        if key in NAMED_KINDS:  # of the empty id, which no job has: scripts only try commands with it
            continue
        yield Refusal(f"{key} is of another type", _poison(key), poisoned=key)
        if keys[key] == "stream":
            yield Refusal(f"{key} has no ids left", _exhaust(key, LAST), can_end=False)
            yield Refusal(f"{key} has one id left", _exhaust(key, LAST - 1), can_end=False)
    yield Refusal("no memory", _without_memory)


def _commands_known(client: Any, path: str) -> frozenset[str]:
    if path not in _KNOWN:
        _KNOWN[path] = frozenset(_ask_for_commands(client.execute_command))
    return _KNOWN[path]


def _ask_for_commands(ask: Callable[..., Any]) -> set[str]:
    names = (name for category in ask("ACL", "CAT") for name in ask("ACL", "CAT", category))
    return {name.decode().partition("|")[0].upper() for name in names}


def _as_user(*rules: str) -> Callable[[Group], AbstractContextManager[Group]]:
    return lambda group: group.as_user(*rules)


def _poison(key: str) -> Callable[[Group], AbstractContextManager[Group]]:
    @contextmanager
    def begin(group: Group) -> Iterator[Group]:
        client, content = group.client, group.client.dump(key)
        ttl_ms = max(0, client.pttl(key))
        is_list = client.type(key) != b"list"
        client.delete(key)
        _ = client.rpush(key, "poison") if is_list else client.set(key, "poison")
        yield group
        if client.type(key) in (b"list", b"string") and _is_poison(client, key):
            client.delete(key)
            if content is not None:
                client.restore(key, ttl_ms, content)

    return begin


def _is_poison(client: Any, key: str) -> bool:
    found = client.lrange(key, 0, -1) if client.type(key) == b"list" else [client.get(key)]
    return bool(found == [b"poison"])


def _exhaust(key: str, sequence: int) -> Callable[[Group], AbstractContextManager[Group]]:
    @contextmanager
    def begin(group: Group) -> Iterator[Group]:
        group.client.xdel(key, group.client.xadd(key, {"x": "x"}, id=f"{LAST}-{sequence}"))
        yield group

    return begin


@contextmanager
def _without_memory(group: Group) -> Iterator[Group]:
    with group.full_memory():
        yield group
