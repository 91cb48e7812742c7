"""What to do about an error that the server answered with: one table for the whole package.

PASSING   it goes away by itself: send the same again after a pause
REFUSING  the server takes no writes for now: loops wait for it, an add raises
MOVED     this is not the master any more: connect anew, then as PASSING
NO_GROUP  wait until the workers have made the consumer group anew, then send again
NO_SCRIPT send the script's text instead of its hash
LOCKED    the credentials are not taken any more: ask for new ones, connect anew
FATAL     the same command would fail for ever: raise
"""

from __future__ import annotations

from enum import Enum, auto

from ..errors import AuthenticationFailed, ConnectionLost, RedisTrouble, ReplyError


class Remedy(Enum):
    PASSING = auto()
    REFUSING = auto()
    MOVED = auto()
    NO_GROUP = auto()
    NO_SCRIPT = auto()
    LOCKED = auto()
    FATAL = auto()


_BY_CODE = {
    "LOADING": Remedy.PASSING,
    "BUSY": Remedy.PASSING,
    "TRYAGAIN": Remedy.PASSING,
    "CLUSTERDOWN": Remedy.PASSING,
    "MASTERDOWN": Remedy.PASSING,
    "UNBLOCKED": Remedy.PASSING,
    "EXECABORT": Remedy.PASSING,
    "OOM": Remedy.REFUSING,
    "MISCONF": Remedy.REFUSING,
    "NOREPLICAS": Remedy.REFUSING,
    "READONLY": Remedy.MOVED,
    "MOVED": Remedy.MOVED,
    "ASK": Remedy.MOVED,
    "NOGROUP": Remedy.NO_GROUP,
    "NOSCRIPT": Remedy.NO_SCRIPT,
    "NOAUTH": Remedy.LOCKED,
    "WRONGPASS": Remedy.LOCKED,
}


def remedy_for(error: RedisTrouble) -> Remedy:
    if isinstance(error, ReplyError):
        return _BY_CODE.get(error.code, Remedy.FATAL)
    if isinstance(error, AuthenticationFailed):
        return Remedy.LOCKED
    # A timeout drops its connection, so what follows it is the same as after a loss.
    return Remedy.PASSING if isinstance(error, (ConnectionLost, TimeoutError)) else Remedy.FATAL
