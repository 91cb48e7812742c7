"""pychasqui: jobs over Redis Streams, wire-compatible with ChasquiMQ."""

from ._handlers import Handler
from ._version import __version__
from .dlq import DeadJob, DeadLetters
from .errors import (
    AddUnknown,
    AuthenticationFailed,
    CannotServe,
    ChasquiError,
    Closed,
    CommandTimeout,
    ConnectionLost,
    ConsumerInUse,
    DecodeError,
    InvalidArgument,
    InvalidType,
    JobFailed,
    NotRedis,
    NotReplicated,
    NotSupportedError,
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
from .exporter import QueueExporter
from .job import Job
from .leaders import Promoter
from .look import JobView, Page, WorkerInfo
from .official import Consumer, Producer, Scheduler, version
from .prometheus import PrometheusSink
from .queue import Queue
from .repeat import MissedFiresPolicy, RepeatPattern, next_fire, next_fires
from .repeatables import Repeatable, RepeatableMeta, Repeatables
from .retry import BackoffSpec, RetryPolicy
from .sinks import InMemorySink, MetricsSink
from .worker import Worker

__all__ = [
    "AddUnknown",
    "AuthenticationFailed",
    "BackoffSpec",
    "CannotServe",
    "ChasquiError",
    "Closed",
    "CommandTimeout",
    "ConnectionLost",
    "Consumer",
    "DeadJob",
    "DeadLetters",
    "DecodeError",
    "Handler",
    "InMemorySink",
    "InvalidArgument",
    "InvalidType",
    "Job",
    "ConsumerInUse",
    "JobFailed",
    "JobView",
    "MetricsSink",
    "MissedFiresPolicy",
    "NotRedis",
    "NotReplicated",
    "NotSupportedError",
    "PayloadTooLarge",
    "Page",
    "Producer",
    "PrometheusSink",
    "Promoter",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "QueueExporter",
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
    "version",
]
