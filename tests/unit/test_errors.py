"""The exception tree: one root, and the built-in classes that code written for the official package catches."""

from __future__ import annotations

import copy
import inspect
import pickle

import pychasqui
from pychasqui import errors
from tests.support.cases import in_one_test

OURS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.ChasquiError)]


@in_one_test("kind", OURS)
def test_every_error_has_one_root_and_is_public(kind: type[errors.ChasquiError]) -> None:
    assert issubclass(kind, RuntimeError)
    assert getattr(pychasqui, kind.__name__) is kind


@in_one_test("kind", OURS)
def test_every_error_is_drawn_in_the_tree(kind: type[errors.ChasquiError]) -> None:
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


@in_one_test(
    ("kind", "builtin"),
    (
        (errors.InvalidArgument, ValueError),
        (errors.PayloadTooLarge, ValueError),
        (errors.DecodeError, ValueError),
        (errors.InvalidType, TypeError),
        (errors.UnsupportedData, TypeError),
        (errors.ConnectionLost, ConnectionError),
        (errors.CommandTimeout, TimeoutError),
        (errors.AddUnknown, TimeoutError),
    ),
)
def test_errors_are_caught_as_their_builtin_kin(kind: type[errors.ChasquiError], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


def test_a_reply_error_knows_its_code() -> None:
    assert errors.ReplyError("NOPERM this user has no permissions").code == "NOPERM"
    assert errors.ReplyError("ALONE").code == "ALONE"


def test_an_unknown_add_knows_its_jobs_over_a_copy() -> None:
    error = errors.AddUnknown("no answer", ["a", "b"])
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert isinstance(again, errors.AddUnknown)
        assert again.job_ids == ["a", "b"]
        assert str(again) == "no answer"


class RetryInAnHour(errors.RetryLater):
    def __init__(self) -> None:
        super().__init__(3600)


@in_one_test(
    "error",
    (
        errors.JobFailed("j1", reason="retries_exhausted", error_type="ValueError", error="bad", attempts=3),
        errors.JobExpired("j2", reason="expired", error_type="", error="", attempts=0),
        errors.RetryLater(60),
        errors.RetryLater(60, "the limit is reached"),
        RetryInAnHour(),
        errors.Snooze(5, limit=7),
        errors.UnknownTask(1, "no task here"),
        errors.UnrecoverableError("no use"),
        errors.ReplyError("NOPERM this user has no permissions"),
        errors.ConnectionLost("gone"),
    ),
)
def test_an_error_is_the_same_over_a_copy_and_a_pickle(error: Exception) -> None:
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
