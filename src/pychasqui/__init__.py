"""pychasqui: jobs over Redis Streams, wire-compatible with ChasquiMQ."""

from ._parts import Handler
from ._version import __version__
from .dlq import DeadJob, DeadLetters
from .errors import (
    AddUnknown,
    AuthenticationFailed,
    ChasquiError,
    Closed,
    CommandTimeout,
    ConnectionLost,
    DecodeError,
    InvalidArgument,
    InvalidType,
    JobFailed,
    NotRedis,
    NotReplicated,
    PayloadTooLarge,
    QueueFull,
    RedisTrouble,
    ReplyError,
    ResultExpired,
    ResultNotStored,
    RetryLater,
    ServerNotFound,
    ServerTooOld,
    UnrecoverableError,
    UnsafeServer,
    UnsupportedData,
    WrongLoop,
)
from .events import QueueEvent, QueueEvents
from .job import Job
from .leaders import Promoter, Scheduler
from .look import JobView, Page, WorkerInfo
from .queue import Queue
from .repeat import MissedFiresPolicy, RepeatPattern, next_fire, next_fires
from .repeatables import Repeatable, RepeatableMeta, Repeatables
from .retry import BackoffSpec, RetryPolicy
from .worker import Worker

__all__ = [
    "AddUnknown",
    "AuthenticationFailed",
    "BackoffSpec",
    "ChasquiError",
    "Closed",
    "CommandTimeout",
    "ConnectionLost",
    "DeadJob",
    "DeadLetters",
    "DecodeError",
    "Handler",
    "InvalidArgument",
    "InvalidType",
    "Job",
    "JobFailed",
    "JobView",
    "MissedFiresPolicy",
    "NotRedis",
    "NotReplicated",
    "PayloadTooLarge",
    "Page",
    "Promoter",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "QueueFull",
    "RedisTrouble",
    "RepeatPattern",
    "Repeatable",
    "RepeatableMeta",
    "Repeatables",
    "ReplyError",
    "ResultExpired",
    "ResultNotStored",
    "RetryLater",
    "RetryPolicy",
    "Scheduler",
    "ServerNotFound",
    "ServerTooOld",
    "UnrecoverableError",
    "UnsafeServer",
    "UnsupportedData",
    "Worker",
    "WorkerInfo",
    "WrongLoop",
    "__version__",
    "next_fire",
    "next_fires",
]
