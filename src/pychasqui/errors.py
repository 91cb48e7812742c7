"""Every exception that pychasqui raises on purpose.

    ChasquiError (RuntimeError)            catch this one to catch them all
    ├── InvalidArgument (ValueError)       a value out of its bounds; nothing was sent
    │   └── PayloadTooLarge                the encoded data is over the limit
    ├── InvalidType (TypeError)            a value of the wrong type; nothing was sent
    │   └── UnsupportedData                data that MessagePack cannot hold; names the path inside it
    ├── DecodeError (ValueError)           bytes that are not what they should be
    ├── QueueFull                          max_stream_len is reached; nothing of the call was added
    ├── NotReplicated                      the jobs are on the master, but not on as many replicas as were asked for
    ├── ConsumerInUse                      a worker starts under the consumer_id of another that lives
    ├── JobFailed                          wait_for_result: the job is dead; says why
    ├── ResultExpired                      wait_for_result: the job is done, and its result was kept no longer
    ├── ResultNotStored                    wait_for_result: the job is done, and its worker stores no results
    ├── NotSupportedError                  asks for what the official package can do and this one cannot
    ├── Closed                             used after close()
    ├── WrongLoop                          used from another event loop, or after a fork
    ├── ServerNotFound                     embedded:// found no redis-server to run
    ├── CannotServe (OSError)              metrics_port cannot be listened on
    └── RedisTrouble                       anything about the server or the way to it
        ├── ConnectionLost (ConnectionError)   the connection broke or could not be made
        ├── CommandTimeout (TimeoutError)      no answer within the timeout
        │   └── AddUnknown                     an add got no answer: `job_ids` may or may not be in the queue
        ├── AuthenticationFailed           wrong, missing or superfluous credentials
        ├── UnsafeServer                   its settings put jobs at risk, and the worker is strict
        ├── ServerTooOld                   names the version found and the one needed
        ├── NotRedis                       whatever answers there does not speak Redis
        └── ReplyError                     the server refused a command; `code` is its first word

    UnrecoverableError (RuntimeError)      a handler raises it: this job is dead, no retry would help
    RetryLater (Exception)                 a handler raises it: run this job again after a delay of its own

The root is a RuntimeError, and the argument errors are also ValueErrors or TypeErrors, because the official package
raises those: code written for it keeps its except clauses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ._core.printable import printable as printable  # for programs that show an error


class ChasquiError(RuntimeError):
    """Root of all errors that pychasqui raises on purpose."""


class InvalidArgument(ChasquiError, ValueError):
    """A value out of its bounds. Nothing was sent."""


class PayloadTooLarge(InvalidArgument):
    """The encoded data is larger than the queue allows. Nothing was sent."""


class InvalidType(ChasquiError, TypeError):
    """A value of the wrong type. Nothing was sent."""


class UnsupportedData(InvalidType):
    """Data that MessagePack cannot hold. Nothing was sent."""


class DecodeError(ChasquiError, ValueError):
    """Bytes that are not what they should be."""


class QueueFull(ChasquiError):
    """The queue already holds `max_stream_len` jobs. Nothing of the call was added."""


class NotReplicated(ChasquiError):
    """The jobs are on the master and will run, but fewer replicas than asked for have confirmed them in time."""


class ConsumerInUse(ChasquiError):
    """Another living worker of the same queue and group has this `consumer_id`: the two would run each other's jobs."""


class JobFailed(ChasquiError):
    """The job whose result was waited for is dead."""

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


class ResultExpired(ChasquiError):
    """The job whose result was waited for is done, but the result was kept no longer."""


class ResultNotStored(ChasquiError):
    """The job whose result was waited for is done, but its worker stores no results, or not what it returned."""


class NotSupportedError(ChasquiError):
    """Asks for what the official package can do and this one cannot; docs/reference/differences.md says why."""


class Closed(ChasquiError):
    """The object was used after its close()."""


class WrongLoop(ChasquiError):
    """The object belongs to another event loop or to the process this one was forked from."""


class ServerNotFound(ChasquiError):
    """No redis-server to run for an embedded:// URL."""


class CannotServe(ChasquiError, OSError):
    """The port for metrics cannot be listened on."""


class RedisTrouble(ChasquiError):
    """Anything about the server or the way to it."""


class ConnectionLost(RedisTrouble, ConnectionError):
    """The connection broke, or could not be made."""


class CommandTimeout(RedisTrouble, TimeoutError):
    """No answer within the timeout."""


class AddUnknown(CommandTimeout):
    """An add got no answer in time: its jobs may or may not be in the queue."""

    def __init__(self, message: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.job_ids = list(job_ids)


class AuthenticationFailed(RedisTrouble):
    """The server refused the credentials, wants some, or has none to check them against."""


class UnsafeServer(RedisTrouble):
    """The server's settings put jobs at risk, and a strict worker was asked to work there."""


class ServerTooOld(RedisTrouble):
    """The server lacks commands that pychasqui needs."""


class NotRedis(RedisTrouble):
    """Whatever answers at that address does not speak the Redis protocol."""


MAX_REPLY_CHARS = 500


class ReplyError(RedisTrouble):
    """The server refused a command. Its words may hold names that others chose, so they are escaped and cut."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, MAX_REPLY_CHARS))
        message = message[:10_000]
        self.code = message.partition(" ")[0]
        if self.code == "ERR" and ": -" in message:  # Redis 6.2 wraps the error of a command inside a script
            self.code = message.rpartition(": -")[2].partition(" ")[0]
        self.code = printable(self.code, 50)


class UnrecoverableError(RuntimeError):
    """Raised by a handler: no retry would help, bury the job at once. Subclasses count too."""


LONGEST_DELAY_S = 100 * 365 * 24 * 3600


class RetryLater(Exception):
    """Raised by a handler: run the job again after `delay`, in seconds or as a timedelta. Uses up an attempt."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise InvalidType(f"delay must be seconds or a timedelta, not {type(delay).__name__} {delay!r}"[:300])
        if not 0 <= seconds <= LONGEST_DELAY_S:  # also false for nan
            raise InvalidArgument(f"delay is {seconds} s, must be from 0 to {LONGEST_DELAY_S} (100 years)"[:300])
        super().__init__(message or f"to be run again in {seconds:g} s")
        self.delay_ms = round(seconds * 1000)
