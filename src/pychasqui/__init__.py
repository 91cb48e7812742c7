"""pychasqui: jobs over Redis Streams, wire-compatible with ChasquiMQ."""

from ._http.prometheus_sink import PrometheusSink
from ._version import __version__
from ._worker.handlers import Handler
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
from .inspector import JobView, Page, WorkerInfo
from .job import Job
from .metrics import InMemorySink, MetricsSink
from .official import Consumer, Producer, version
from .queue import Queue
from .repeatables import Repeatable, RepeatableMeta, Repeatables
from .retry import BackoffSpec, RetryPolicy
from .schedule import MissedFiresPolicy, RepeatPattern, next_fire, next_fires
from .standalone import Promoter, Scheduler
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
