"""The action for each error that a server can answer with: the whole table."""

from __future__ import annotations

import pytest

from pychasqui._redis.error_actions import ErrorAction, action_for, may_send_again_after, should_reconnect_after
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
from tests.support.cases import in_one_test

ANSWERS = (
    ("LOADING Redis is loading the dataset in memory", ErrorAction.RECONNECT),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ErrorAction.RETRY),
    ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorAction.RETRY),
    ("CLUSTERDOWN The cluster is down", ErrorAction.RETRY),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ErrorAction.RECONNECT),
    ("UNBLOCKED the stream key no longer exists", ErrorAction.RETRY),
    ("EXECABORT Transaction discarded because of previous errors.", ErrorAction.RETRY),
    ("OOM command not allowed when used memory > 'maxmemory'.", ErrorAction.WRITES_REFUSED),
    (
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
        ErrorAction.WRITES_REFUSED,
    ),
    ("NOREPLICAS Not enough good replicas to write.", ErrorAction.WRITES_REFUSED),
    ("READONLY You can't write against a read only replica.", ErrorAction.RECONNECT),
    ("MOVED 3999 127.0.0.1:6381", ErrorAction.RECONNECT),
    ("ASK 3999 127.0.0.1:6381", ErrorAction.RETRY),
    ("ERR Script attempted to access a non local key in a cluster node", ErrorAction.RETRY),
    (
        "ERR Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing of "
        "the slot",
        ErrorAction.RETRY,
    ),
    ("NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option", ErrorAction.NO_GROUP),
    ("NOSCRIPT No matching script. Please use EVAL.", ErrorAction.NO_SCRIPT),
    ("NOAUTH Authentication required.", ErrorAction.REAUTHENTICATE),
    ("WRONGPASS invalid username-password pair or user is disabled.", ErrorAction.REAUTHENTICATE),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorAction.FATAL),
    ("NOPERM this user has no permissions to run the 'eval' command", ErrorAction.FATAL),
    ("CROSSSLOT Keys in request don't hash to the same slot", ErrorAction.FATAL),
    ("ERR syntax error", ErrorAction.FATAL),
    ("ERR unknown command 'XACKDEL', with args beginning with:", ErrorAction.FATAL),
    ("SOMETHINGNEW from a server of the future", ErrorAction.FATAL),
    ("", ErrorAction.FATAL),
)


@in_one_test(("answer", "action"), ANSWERS)
def test_a_refusal_has_one_remedy(answer: str, action: ErrorAction) -> None:
    assert action_for(ReplyError(answer)) is action


@in_one_test(("answer", "action"), [pair for pair in ANSWERS if not pair[0].startswith("ERR") and pair[0]])
def test_an_error_inside_a_script_of_redis_6_2_is_judged_by_its_own_code(answer: str, action: ErrorAction) -> None:
    caught = f"@user_script: 27: -{answer}"  # by pcall, and returned
    assert action_for(ReplyError(caught)) is action
    assert action_for(ReplyError(f"ERR Error running script (call to f_0123abcd): @user_script:27: {caught}")) is action


def test_an_error_that_is_made_of_another_one_names_the_remedy_once() -> None:
    error = ReplyError("ERR unknown command 'EVAL', with args beginning with:")
    assert str(ReplyError(str(error))) == str(error)
    assert str(error).count("how-to/managed-services") == 1


@in_one_test(("answer", "action"), ANSWERS)
def test_an_error_inside_a_script_of_redis_7_is_judged_by_its_own_code(answer: str, action: ErrorAction) -> None:
    appended = f"{answer} script: 0123abcd, on @user_script:27."
    assert action_for(ReplyError(appended)) is action


@in_one_test(
    ("error", "action"),
    (
        (ConnectionLost("the connection was lost"), ErrorAction.RETRY),
        (CommandTimeout("no answer"), ErrorAction.RETRY),
        (AddUnknown("no answer"), ErrorAction.RETRY),
        (AuthenticationFailed("refused"), ErrorAction.REAUTHENTICATE),
        (ServerTooOld("5.0"), ErrorAction.FATAL),
        (NotRedis("HTTP"), ErrorAction.FATAL),
        (RedisTrouble("what"), ErrorAction.FATAL),
    ),
)
def test_an_error_of_the_connection_has_one_action(error: RedisTrouble, action: ErrorAction) -> None:
    assert action_for(error) is action


def test_every_remedy_is_the_answer_to_something() -> None:
    assert {action for _, action in ANSWERS} == set(ErrorAction)


@in_one_test("code", ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN"))
def test_a_refusal_of_a_node_proves_that_nothing_was_executed(code: str) -> None:
    assert may_send_again_after(ReplyError(f"{code} 3999 127.0.0.1:6381"))


@pytest.mark.parametrize("code", ("ASK", "TRYAGAIN", "CLUSTERDOWN"))
def test_a_slot_that_moves_ends_no_connection(code: str) -> None:
    assert not should_reconnect_after(ReplyError(f"{code} 3999 127.0.0.1:6381"))
