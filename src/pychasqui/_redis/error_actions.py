"""The action for each error reply of the server: one table for the whole package.

RETRY           the error passes: send the same command again after a pause
WRITES_REFUSED  the server refuses writes for now: loops wait, an add raises
RECONNECT       this is the wrong server, or it is not ready: the connection is closed, then as RETRY
NO_GROUP        wait until the workers have rebuilt the consumer group, then send again
NO_SCRIPT       send the script's text instead of its hash
REAUTHENTICATE  the credentials are no longer accepted: the connection is closed, the next one asks for new ones
FATAL           the same command would fail for ever: raise
"""

from __future__ import annotations

from enum import Enum, auto

from ..errors import AuthenticationFailed, ConnectionLost, RedisTrouble, ReplyError


class ErrorAction(Enum):
    RETRY = auto()
    WRITES_REFUSED = auto()
    RECONNECT = auto()
    NO_GROUP = auto()
    NO_SCRIPT = auto()
    REAUTHENTICATE = auto()
    FATAL = auto()


# Refusals because a slot of a cluster moves, or has no node. ASK is not followed: a script names several keys, and no
# node has all of them before the slot is closed.
SLOT_CODES = ("ASK", "TRYAGAIN", "CLUSTERDOWN")
# The same, about a key that a script names itself: Redis and Valkey, and Redis 8 if some of several keys are there.
KEYS_ELSEWHERE = ("ttempted to access a non local key", "during rehashing of the slot")

_BY_CODE = {
    "BUSY": ErrorAction.RETRY,
    **dict.fromkeys(SLOT_CODES, ErrorAction.RETRY),
    "UNBLOCKED": ErrorAction.RETRY,
    "EXECABORT": ErrorAction.RETRY,
    "OOM": ErrorAction.WRITES_REFUSED,
    "MISCONF": ErrorAction.WRITES_REFUSED,
    "NOREPLICAS": ErrorAction.WRITES_REFUSED,
    "READONLY": ErrorAction.RECONNECT,
    "MASTERDOWN": ErrorAction.RECONNECT,
    "LOADING": ErrorAction.RECONNECT,  # also a former master while it copies the data of the new one
    "MOVED": ErrorAction.RECONNECT,
    "NOGROUP": ErrorAction.NO_GROUP,
    "NOSCRIPT": ErrorAction.NO_SCRIPT,
    "NOAUTH": ErrorAction.REAUTHENTICATE,
    "WRONGPASS": ErrorAction.REAUTHENTICATE,
}


# The last three come from inside a script, the very last from Redis 7.0.
COMMAND_REFUSED = (
    *("unknown command", "unknown subcommand", "unknown redis command", "acl failure in script"),
    "the user executing the script can't run",
)


def action_for(error: RedisTrouble) -> ErrorAction:
    if isinstance(error, ReplyError):
        return _BY_CODE.get(error.code) or (ErrorAction.RETRY if _is_slot_moving_or_down(error) else ErrorAction.FATAL)
    if isinstance(error, AuthenticationFailed):
        return ErrorAction.REAUTHENTICATE
    # A timeout closes its connection, so the action is the same as after a loss.
    return ErrorAction.RETRY if isinstance(error, (ConnectionLost, TimeoutError)) else ErrorAction.FATAL


def is_command_refused(error: ReplyError) -> bool:
    """Returns whether the server does not have the command, or this user may not run it, also from inside a script."""
    text = str(error).lower()
    return error.code == "NOPERM" or any(words in text for words in COMMAND_REFUSED)


def may_send_again_after(error: ReplyError) -> bool:
    """Returns whether the server refused a call without executing it: by its state, a slot's or the connection's.

    Any such call may be sent again, after a pause or on the next connection. No script of ours writes before it has
    touched every key.
    """
    return _needs_new_connection(error) or _is_slot_moving_or_down(error)


def _is_slot_moving_or_down(error: ReplyError) -> bool:
    return error.code in SLOT_CODES or any(text in str(error) for text in KEYS_ELSEWHERE)


def _needs_new_connection(error: ReplyError) -> bool:
    return _BY_CODE.get(error.code) in (ErrorAction.RECONNECT, ErrorAction.REAUTHENTICATE)


def should_reconnect_after(error: ReplyError) -> bool:
    """Returns whether another connection to the same address may reach a server that accepts what this one refuses.

    After a failover behind one address the former master keeps its connections: it is a replica now, or it still acts
    as the master and has no replicas left.
    """
    return _needs_new_connection(error) or error.code == "NOREPLICAS"
