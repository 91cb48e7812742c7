"""The rights that a Redis user needs in each role: the commands, by what the role does, and the keys of its queues.

The commands of scripts are read from their text. The commands that Python sends stand here, in the table of each role;
tests/unit/test_acl.py compares them with the source, and tests/deploy/test_acl.py runs each role with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import InvalidArgument
from . import scripts
from .keys import REGISTRY, Keys
from .scripts import Script

ANY = "*"  # at the end of a queue's name: all queues whose names begin so
NEWER = frozenset({"XACKDEL", "MSETEX"})  # older servers know no such right, and refuse to give it
PLAIN_MESSAGES = frozenset({"PUBLISH", "SUBSCRIBE"})
SHARD_MESSAGES = frozenset({"SPUBLISH", "SSUBSCRIBE"})  # in place of the others, in a cluster from Redis 7.0 on
WITH_SUBCOMMANDS = frozenset({"CLIENT", "CLUSTER", "XGROUP", "XINFO"})
# What a command is called by, in Lua: call('XADD', redis.pcall('XGROUP', 'CREATE', refusal('XDEL',
_CALL = re.compile(rb"(?:call|refusal)\('([A-Z]+)'(?:, '([A-Z]+)')?")
_GLOB = re.compile(r"([*?\[\]\\])")

_CONNECTING = ("HELLO", "AUTH", "SELECT")
_IN_CLUSTER = ("CLUSTER|SLOTS", "CLUSTER|INFO", "PING")  # which node has a queue, and whether it is there
_SCRIPTS = ("EVAL", "EVALSHA")
_READING_RESULTS = ("MGET", "GET", "XRANGE", "XREVRANGE", "XREAD", "XINFO|STREAM")
_LISTING_REPEATABLES = ("ZRANGE", "ZSCORE", "HMGET")
_TRANSACTIONS = ("WATCH", "UNWATCH", "MULTI", "EXEC", "DISCARD", "XLEN", "XADD", "HSET", "PEXPIRE")
_INSPECTING = (
    "TIME",
    "XLEN",
    "XPENDING",
    "XINFO|GROUPS",
    "XINFO|CONSUMERS",
    "ZCARD",
    "ZRANGEBYSCORE",
    "EXISTS",
    "TYPE",
)


@dataclass(frozen=True, slots=True)
class Role:
    """What a user does, and by which scripts and commands."""

    name: str
    scripts: tuple[Script, ...]
    commands: tuple[str, ...]
    gets_messages: bool = False
    registers: bool = False  # writes the registry of queues, if it may

    def find_needed_commands(self, *, has_registry: bool, in_cluster: bool = False) -> set[str]:
        """Returns the commands, with a subcommand behind a | where only that one is needed."""
        used = {*self.commands, *_CONNECTING, *(_IN_CLUSTER if in_cluster else ())}
        for script in self.scripts:
            used |= {*_SCRIPTS, *find_script_commands(script)}
        if self.registers:
            used |= find_script_commands(scripts.REGISTER_QUEUE) if has_registry else {*_SCRIPTS}
        return used


PRODUCER = Role(
    "producer",
    (
        *(scripts.ADD, scripts.ADD_WITH_OPTIONS, scripts.MOVE_DELAYED, scripts.CANCEL),
        *(scripts.UPSERT_REPEATABLE, scripts.REMOVE_PAUSE_OR_RESUME_REPEATABLE),
    ),
    (*_TRANSACTIONS, "WAIT", "DEL", "TIME", *_READING_RESULTS, *_LISTING_REPEATABLES),
    gets_messages=True,  # it publishes them
    registers=True,
)
INSPECTOR = Role("inspector", (), (*_INSPECTING, *_READING_RESULTS, *_LISTING_REPEATABLES))
OPERATOR = Role(
    "operator",
    (*PRODUCER.scripts, scripts.REPLAY, scripts.PAUSE, scripts.PURGE_WAITING, scripts.PURGE_DELAYED),
    (*PRODUCER.commands, *INSPECTOR.commands, "XDEL", "PUBLISH", "SPUBLISH"),
    gets_messages=True,
    registers=True,
)
WORKER = Role(
    "worker",
    (
        *(scripts.READ, scripts.ACK, scripts.ACK_UNIQUE, scripts.ACK_WITH_RESULT, scripts.RESCHEDULE, scripts.BURY),
        *(scripts.WRITE_EVENTS, scripts.WRITE_COMPLETED, scripts.PROMOTE, scripts.RELEASE_LEADER_LEASE),
        *(scripts.CLAIM_NAME, scripts.RENEW_WORKER_LEASE, scripts.HOLD_LEASE, scripts.LEAVE_GROUP),
        *(scripts.RELEASE_ENTRIES, scripts.REBUILD_GROUP, scripts.CLAIM_HELD, scripts.TAKE_OVER, scripts.CLAIM_IDLE),
        *(scripts.LIST_PENDING, scripts.COUNT_DELIVERY, scripts.READ_CANCELLATIONS),
        *(scripts.DUE_REPEATABLES, scripts.FIRE, scripts.BURY_REPEATABLE),
    ),
    (
        *("INFO", "TIME", "EXISTS", "SUBSCRIBE", "SSUBSCRIBE", "PUBLISH", "SPUBLISH", "CLIENT|UNBLOCK"),
        *("XREADGROUP", "XACKDEL", "XPENDING"),
        *("XADD", "PEXPIRE", "SET", "DEL", "ZADD", "ZRANGE", "ZCARD", "XINFO|GROUPS"),
    ),
    gets_messages=True,
    registers=True,
)
ROLES = (PRODUCER, WORKER, INSPECTOR, OPERATOR)


def find_script_commands(script: Script) -> set[str]:
    """Returns the commands that a script calls, read from its text."""
    found: set[str] = set()
    for command, subcommand in _CALL.findall(script.text):
        name = command.decode()
        found.add(f"{name}|{subcommand.decode()}" if name in WITH_SUBCOMMANDS else name)
    return found


def make_acl_rules(
    role: Role,
    queues: Iterable[str],
    capabilities: dict[str, bool],
    *,
    in_cluster: bool = False,
    has_shard_channels: bool = False,
) -> list[str]:
    """Returns the rules of ACL SETUSER that let a user act in this role for these queues, and do nothing else.

    A name that ends with * stands for all queues whose names begin so; * alone for all queues and their registry. A
    right to a command that the server does not have would be refused; `capabilities` says which of the newer ones it
    has.
    """
    names = list(queues)
    patterns = [_make_key_pattern(name) for name in names]
    has_registry = ANY in names
    lacking = {name for name in NEWER if not capabilities.get(name)} | (
        PLAIN_MESSAGES if has_shard_channels else SHARD_MESSAGES
    )
    rights = role.find_needed_commands(has_registry=has_registry, in_cluster=in_cluster) - lacking
    keys = [f"~{pattern}" for pattern in patterns] + ([f"~{REGISTRY}"] if has_registry else [])
    channels = [f"&{pattern}" for pattern in patterns] if role.gets_messages else []
    return ["resetkeys", "resetchannels", "-@all", *keys, *channels, *(f"+{right.lower()}" for right in sorted(rights))]


def _make_key_pattern(queue: str) -> str:
    """Returns the pattern of a queue's keys and channels."""
    if " " in queue:
        raise InvalidArgument(f"queue {queue[:200]!r} has a space in its name, which no pattern of an ACL can hold")
    is_prefix = queue.endswith(ANY)
    literal = _GLOB.sub(r"\\\1", queue[:-1] if is_prefix else queue)
    return f"{Keys(literal).prefix[:-1]}{ANY if is_prefix else ''}}}:*"
