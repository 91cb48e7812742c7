"""What to do about an error that the server answered with: one table for the whole package.

RETRY           it goes away by itself: send the same again after a pause
WRITES_REFUSED  the server takes no writes for now: loops wait for it, an add raises
RECONNECT       this is not the server to talk to, or not yet: the connection has ended by that, then as RETRY
NO_GROUP        wait until the workers have rebuilt the consumer group, then send again
NO_SCRIPT       send the script's text instead of its hash
REAUTHENTICATE  the credentials are no longer accepted: the connection has ended by that, the next asks for new ones
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


_BY_CODE = {
    "BUSY": ErrorAction.RETRY,
    "TRYAGAIN": ErrorAction.RETRY,
    "CLUSTERDOWN": ErrorAction.RETRY,
    "UNBLOCKED": ErrorAction.RETRY,
    "EXECABORT": ErrorAction.RETRY,
    "OOM": ErrorAction.WRITES_REFUSED,
    "MISCONF": ErrorAction.WRITES_REFUSED,
    "NOREPLICAS": ErrorAction.WRITES_REFUSED,
    "READONLY": ErrorAction.RECONNECT,
    "MASTERDOWN": ErrorAction.RECONNECT,
    "LOADING": ErrorAction.RECONNECT,  # also a former master, while it fetches everything from the new one
    "MOVED": ErrorAction.RECONNECT,
    "ASK": ErrorAction.RECONNECT,
    "NOGROUP": ErrorAction.NO_GROUP,
    "NOSCRIPT": ErrorAction.NO_SCRIPT,
    "NOAUTH": ErrorAction.REAUTHENTICATE,
    "WRONGPASS": ErrorAction.REAUTHENTICATE,
}


def action_for(error: RedisTrouble) -> ErrorAction:
    if isinstance(error, ReplyError):
        return _BY_CODE.get(error.code, ErrorAction.FATAL)
    if isinstance(error, AuthenticationFailed):
        return ErrorAction.REAUTHENTICATE
    # A timeout drops its connection, so what follows it is the same as after a loss.
    return ErrorAction.RETRY if isinstance(error, (ConnectionLost, TimeoutError)) else ErrorAction.FATAL


def is_refused_unheard(error: ReplyError) -> bool:
    """Whether a call was refused for what the server or the connection is. It has done nothing, so it may be sent again
    on the next connection, whatever it asks for."""
    return action_for(error) in (ErrorAction.RECONNECT, ErrorAction.REAUTHENTICATE)


def ends_connection(error: ReplyError) -> bool:
    """Whether another connection to the same address may lead to a server that does what this one refuses.

    After a failover behind one address the former master keeps its connections: it is a replica now, or it still takes
    itself for the master and has no replicas left.
    """
    return is_refused_unheard(error) or error.code == "NOREPLICAS"
