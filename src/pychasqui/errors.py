"""Every exception that pychasqui raises on purpose.

    ChasquiError (RuntimeError)            the base of all below
    ├── InvalidArgument (ValueError)       a value out of its bounds; nothing was sent
    │   └── PayloadTooLarge                the encoded data is over the limit
    ├── InvalidType (TypeError)            a value of the wrong type; nothing was sent
    │   └── UnsupportedData                data that MessagePack cannot hold; names the path inside it
    ├── DecodeError (ValueError)           bytes that do not have the expected format
    ├── QueueFull                          max_stream_len is reached; nothing of the call was added
    ├── NotReplicated                      `job_ids` are on the master, but not on as many replicas as were asked for
    ├── ConsumerInUse                      a worker starts with the consumer_id of another living worker
    ├── JobCancelled                       wait_for_result: the job was cancelled
    ├── JobTimeout (TimeoutError)          why a run failed: it took longer than its timeout
    ├── JobFailed                          wait_for_result: the job is dead; carries the reason
    │   └── JobExpired                     the same: it was not started in time
    ├── ResultExpired                      wait_for_result: the job is done, and its result has expired
    ├── ResultNotStored                    wait_for_result: the job is done, and its worker stores no results
    ├── NotSupportedError                  a feature of the official package that this one does not have
    ├── Closed                             used after close()
    ├── WrongLoop                          used from another event loop, or after a fork
    ├── ServerNotFound                     embedded:// found no server program to run
    ├── CannotServe (OSError)              metrics_port cannot be listened on
    └── RedisTrouble                       an error of the server or of the connection
        ├── ConnectionLost (ConnectionError)   the connection was lost or could not be made
        ├── CommandTimeout (TimeoutError)      no reply within the timeout
        │   └── AddUnknown                     an add got no reply: `job_ids` may or may not be in the queue
        ├── AuthenticationFailed           wrong, missing or superfluous credentials
        ├── UnsafeServer                   its settings may lose jobs, and the worker is strict
        ├── ServerTooOld                   names the version found and the one needed
        ├── NotRedis                       the server does not speak the Redis protocol
        └── ReplyError                     the server refused a command; `code` is its first word

    UnrecoverableError (RuntimeError)      raised by a handler: bury this job without a retry
    └── InvalidData                        the data of a job does not fit the signature of its task
    RetryLater (Exception)                 raised by a handler: run this job again after the given delay
    Snooze (Exception)                     the same, without using up an attempt, up to a number of times
    └── UnknownTask                        a worker has no task of the job's name: others may

The root is a RuntimeError, and the argument errors are also ValueErrors or TypeErrors, because the official package
raises those: code written for it keeps its except clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ._core.printable import printable as printable  # for programs that show an error

_ErrorParts = tuple[Callable[..., BaseException], tuple[type[BaseException], tuple[Any, ...]], dict[str, Any]]


class _HasOwnArguments:
    """A part of errors whose constructors take more than a text: pickle and copy make them again of their fields."""

    args: tuple[object, ...]

    def __reduce__(self) -> tuple[object, ...]:
        return _make_error_of_fields, (type(self), self.args, self.__dict__)


def _make_error_of_fields(
    kind: type[BaseException], args: tuple[object, ...], fields: dict[str, object]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ChasquiError(RuntimeError):
    """The base of all errors that pychasqui raises on purpose."""


class InvalidArgument(ChasquiError, ValueError):
    """A value out of its bounds. Nothing was sent."""


class PayloadTooLarge(InvalidArgument):
    """The encoded data is larger than the queue allows. Nothing was sent."""


class InvalidType(ChasquiError, TypeError):
    """A value of the wrong type. Nothing was sent."""


class UnsupportedData(InvalidType):
    """Data that MessagePack cannot hold. Nothing was sent."""


class DecodeError(ChasquiError, ValueError):
    """Bytes that do not have the expected format."""


class QueueFull(ChasquiError):
    """The queue already holds `max_stream_len` jobs. Nothing of the call was added."""


class NotReplicated(ChasquiError):
    """The jobs `job_ids` are on the master and will run, but fewer replicas than asked for have confirmed them in time.

    They are all jobs of the call. A bulk of which only a part was sent raises AddUnknown instead.
    """

    def __init__(self, message: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)


class ConsumerInUse(ChasquiError):
    """Another living worker of the same queue and group has this `consumer_id`: both would run the same jobs."""


class JobCancelled(ChasquiError):
    """The awaited job was cancelled: it does not run any more."""


class JobTimeout(ChasquiError, TimeoutError):
    """Why a run failed: it took longer than its timeout, and was stopped."""


class JobFailed(_HasOwnArguments, ChasquiError):
    """The awaited job is dead: it has failed for good."""

    def __init__(self, job_id: str, *, reason: str, error_type: str, error: str, attempts: int) -> None:
        cause = f": {error_type or 'error'}: {error}" if error or error_type else ""
        super().__init__(
            f"job {job_id[:100]!r} is dead after {attempts} runs ({printable(reason)}){printable(cause, 500)}"
        )
        self.job_id = job_id
        self.reason = reason
        self.error_type = error_type  # "" if an official worker ran it
        self.error = error
        self.attempts = attempts

    def __reduce__(self) -> _ErrorParts:
        return _make_pickle_parts(self)


class JobExpired(JobFailed):
    """The awaited job is dead: it was not started within its `expires_in`."""


class ResultExpired(ChasquiError):
    """The awaited job is done, but its result has expired."""


class ResultNotStored(ChasquiError):
    """The awaited job is done, but its worker does not store results, or could not store this one."""


class NotSupportedError(ChasquiError):
    """A feature of the official package that this one does not have; docs/reference/differences.md says why."""


class Closed(ChasquiError):
    """The object was used after its close()."""


class WrongLoop(ChasquiError):
    """The object belongs to another event loop, or to the process that this one was forked from."""


class ServerNotFound(ChasquiError):
    """No redis-server or valkey-server was found for an embedded:// URL."""


class CannotServe(ChasquiError, OSError):
    """The port for metrics is in use or not permitted."""


class RedisTrouble(ChasquiError):
    """The base of all errors of the server or of the connection to it."""


class ConnectionLost(RedisTrouble, ConnectionError):
    """The connection was lost, or could not be made."""


class CommandTimeout(RedisTrouble, TimeoutError):
    """The server did not reply within the timeout."""


class AddUnknown(CommandTimeout):
    """The reply to an add was lost or did not come in time: the jobs `job_ids` may or may not be in the queue."""

    def __init__(self, message: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)


class AuthenticationFailed(RedisTrouble):
    """The server refused the credentials, requires some, or has no password set."""


class UnsafeServer(RedisTrouble):
    """The server's settings may lose jobs, and a strict worker does not start there."""


class ServerTooOld(RedisTrouble):
    """The server lacks commands that pychasqui needs."""


class NotRedis(RedisTrouble):
    """The server at that address does not speak the Redis protocol."""


MAX_REPLY_CHARS = 500


_REFUSED_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't run")  # the second by Redis 7.0
_UNKNOWN_COMMAND = ("ERR unknown command", "ERR Unknown Redis command")  # the second from inside a script


class ReplyError(RedisTrouble):
    """The server refused a command. Its text is escaped and cut, because it may contain names that others chose."""

    def __init__(self, message: str) -> None:
        text, message = printable(message, MAX_REPLY_CHARS), message[:10_000]
        self.code = message.partition(" ")[0]
        if self.code in ("ERR", "@user_script:") and ": -" in message:  # Redis 6.2 wraps errors inside a script
            self.code = message.rpartition(": -")[2].partition(" ")[0]
        self.code = printable(self.code, 50)
        remedy = ""
        if self.code == "NOPERM" or any(words in message[:100] for words in _REFUSED_IN_SCRIPT):
            remedy = "; chasqui doctor --acl prints the rights that a user needs"
        elif message.startswith(_UNKNOWN_COMMAND):
            remedy = "; the service has removed or renamed it, and how-to/managed-services says what needs it"
        elif self.code == "CLUSTERDOWN":
            remedy = "; some slots have no master, and redis-cli --cluster check shows which"
        super().__init__(text if text.endswith(remedy) else text + remedy)  # an error may be made of another's text


class UnrecoverableError(RuntimeError):
    """Raised by a handler, itself or a subclass: bury the job at once, because no retry would help."""


class InvalidData(UnrecoverableError):
    """The data of a job does not fit the signature of its task. The text names the path, and shows no values."""


LONGEST_DELAY_S = 100 * 365 * 24 * 3600
MAX_SNOOZES = 1_000_000


class RetryLater(_HasOwnArguments, Exception):
    """Raised by a handler: run the job again after `delay`, in seconds or as a timedelta. It uses up an attempt."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        seconds = _check_delay_s(delay)
        super().__init__(message or f"to be run again in {seconds:g} s")
        self.delay_ms = round(seconds * 1000)

    def __reduce__(self) -> _ErrorParts:
        return _make_pickle_parts(self)


class Snooze(_HasOwnArguments, Exception):
    """Raised by a handler: run the job again after `delay`, without using up an attempt.

    After `limit` times the next Snooze makes the job dead. Job.snoozes counts them.
    """

    def __init__(self, delay: float | timedelta, limit: int = 100, message: str = "") -> None:
        seconds = _check_delay_s(delay)
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise InvalidType(f"limit must be an int, not {type(limit).__name__} {limit!r}"[:300])
        if not 0 <= limit <= MAX_SNOOZES:
            raise InvalidArgument(f"limit is {limit}, must be from 0 to {MAX_SNOOZES}"[:300])
        super().__init__(message or f"to be run again in {seconds:g} s, without using up an attempt")
        self.delay_ms = round(seconds * 1000)
        self.limit = limit

    def __reduce__(self) -> _ErrorParts:
        return _make_pickle_parts(self)


UNKNOWN_TASK_LIMIT = 120  # with up to 30 s in between: about an hour for a deploy


class UnknownTask(Snooze):
    """No task of this worker has the name of the job. It is put back, in case another worker knows it."""

    def __init__(self, delay: float | timedelta, message: str) -> None:
        super().__init__(delay, UNKNOWN_TASK_LIMIT, message)


def _check_delay_s(delay: float | timedelta) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidType(f"delay must be seconds or a timedelta, not {type(delay).__name__} {delay!r}"[:300])
    if not 0 <= seconds <= LONGEST_DELAY_S:  # also false for nan
        raise InvalidArgument(f"delay is {seconds} s, must be from 0 to {LONGEST_DELAY_S} (100 years)"[:300])
    return seconds


def _make_pickle_parts(error: BaseException) -> _ErrorParts:
    """For copies and pickles of an error whose constructor does not take its `args`.

    A process pool breaks, with all its calls, by an error that cannot be unpickled.
    """
    return _make_error_of_parts, (type(error), error.args), error.__dict__


def _make_error_of_parts(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    return error
