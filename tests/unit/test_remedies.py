"""What is done about each error that a server can answer with: the whole table."""

from __future__ import annotations

import pytest

from pychasqui._redis.remedies import Remedy, remedy_for
from pychasqui.errors import (
    AddUnknown,
    AuthenticationFailed,
    CommandTimeout,
    ConnectionLost,
    NotRedis,
    RedisTrouble,
    ReplyError,
    ServerTooOld,
)

ANSWERS = (
    ("LOADING Redis is loading the dataset in memory", Remedy.MOVED),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Remedy.PASSING),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy.PASSING),
    ("CLUSTERDOWN The cluster is down", Remedy.PASSING),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Remedy.MOVED),
    ("UNBLOCKED the stream key no longer exists", Remedy.PASSING),
    ("EXECABORT Transaction discarded because of previous errors.", Remedy.PASSING),
    ("OOM command not allowed when used memory > 'maxmemory'.", Remedy.REFUSING),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist", Remedy.REFUSING),
    ("NOREPLICAS Not enough good replicas to write.", Remedy.REFUSING),
    ("READONLY You can't write against a read only replica.", Remedy.MOVED),
    ("MOVED 3999 127.0.0.1:6381", Remedy.MOVED),
    ("ASK 3999 127.0.0.1:6381", Remedy.MOVED),
    ("NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option", Remedy.NO_GROUP),
    ("NOSCRIPT No matching script. Please use EVAL.", Remedy.NO_SCRIPT),
    ("NOAUTH Authentication required.", Remedy.LOCKED),
    ("WRONGPASS invalid username-password pair or user is disabled.", Remedy.LOCKED),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", Remedy.FATAL),
    ("NOPERM this user has no permissions to run the 'eval' command", Remedy.FATAL),
    ("CROSSSLOT Keys in request don't hash to the same slot", Remedy.FATAL),
    ("ERR syntax error", Remedy.FATAL),
    ("ERR unknown command 'XACKDEL', with args beginning with:", Remedy.FATAL),
    ("SOMETHINGNEW from a server of the future", Remedy.FATAL),
    ("", Remedy.FATAL),
)


@pytest.mark.parametrize(("answer", "remedy"), ANSWERS)
def test_a_refusal_has_one_remedy(answer: str, remedy: Remedy) -> None:
    assert remedy_for(ReplyError(answer)) is remedy


@pytest.mark.parametrize(("answer", "remedy"), [pair for pair in ANSWERS if not pair[0].startswith("ERR") and pair[0]])
def test_an_error_inside_a_script_of_redis_6_2_is_judged_by_its_own_code(answer: str, remedy: Remedy) -> None:
    wrapped = f"ERR Error running script (call to f_0123abcd): @user_script:27: @user_script: 27: -{answer}"
    assert remedy_for(ReplyError(wrapped)) is remedy


@pytest.mark.parametrize(("answer", "remedy"), ANSWERS)
def test_an_error_inside_a_script_of_redis_7_is_judged_by_its_own_code(answer: str, remedy: Remedy) -> None:
    appended = f"{answer} script: 0123abcd, on @user_script:27."
    assert remedy_for(ReplyError(appended)) is remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    (
        (ConnectionLost("the connection was lost"), Remedy.PASSING),
        (CommandTimeout("no answer"), Remedy.PASSING),
        (AddUnknown("no answer"), Remedy.PASSING),
        (AuthenticationFailed("refused"), Remedy.LOCKED),
        (ServerTooOld("5.0"), Remedy.FATAL),
        (NotRedis("HTTP"), Remedy.FATAL),
        (RedisTrouble("what"), Remedy.FATAL),
    ),
)
def test_trouble_on_the_way_has_one_remedy(error: RedisTrouble, remedy: Remedy) -> None:
    assert remedy_for(error) is remedy


def test_every_remedy_is_the_answer_to_something() -> None:
    assert {remedy for _, remedy in ANSWERS} == set(Remedy)
