"""pychasqui: jobs over Redis Streams, wire-compatible with ChasquiMQ.

A name is imported from its module when it is first used: a program that only adds jobs does not wait for the worker's
modules. Type checkers read the imports under TYPE_CHECKING; a test compares the three lists.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._http.prometheus_sink import PrometheusSink
    from ._worker.handlers import Handler
    from .app import App
    from .crew import Crew
    from .depends import Depends
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
        InvalidData,
        InvalidType,
        JobCancelled,
        JobExpired,
        JobFailed,
        JobTimeout,
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
        Snooze,
        UnknownTask,
        UnrecoverableError,
        UnsafeServer,
        UnsupportedData,
        WrongLoop,
    )
    from .events import QueueEvent, QueueEvents
    from .exporter import QueueExporter
    from .handles import JobHandle
    from .inspector import JobView, Page, WorkerInfo
    from .job import Job
    from .job_status import JobStatus
    from .metrics import InMemorySink, MetricsSink
    from .official import Consumer, Producer, version
    from .queue import Queue
    from .queues import QueueOverview, Queues
    from .repeatables import Repeatable, RepeatableMeta, Repeatables
    from .retry import BackoffSpec, RetryPolicy
    from .schedule import MissedFiresPolicy, RepeatPattern, next_fire, next_fires
    from .standalone import Promoter, Scheduler
    from .sync import SyncQueue
    from .tasks import BoundTask, Task, current_job
    from .worker import Worker

_NAMES = {
    "_http.prometheus_sink": "PrometheusSink",
    "_worker.handlers": "Handler",
    "app": "App",
    "crew": "Crew",
    "depends": "Depends",
    "dlq": "DeadJob DeadLetters",
    "errors": (
        "AddUnknown AuthenticationFailed CannotServe ChasquiError Closed CommandTimeout ConnectionLost "
        "ConsumerInUse DecodeError InvalidArgument InvalidData InvalidType JobCancelled JobExpired JobFailed "
        "JobTimeout NotRedis NotReplicated NotSupportedError PayloadTooLarge QueueFull RedisTrouble ReplyError "
        "ResultExpired ResultNotStored RetryLater ServerNotFound ServerTooOld Snooze UnknownTask UnrecoverableError "
        "UnsafeServer UnsupportedData WrongLoop"
    ),
    "events": "QueueEvent QueueEvents",
    "exporter": "QueueExporter",
    "handles": "JobHandle",
    "inspector": "JobView Page WorkerInfo",
    "job": "Job",
    "job_status": "JobStatus",
    "metrics": "InMemorySink MetricsSink",
    "official": "Consumer Producer version",
    "queue": "Queue",
    "queues": "QueueOverview Queues",
    "repeatables": "Repeatable RepeatableMeta Repeatables",
    "retry": "BackoffSpec RetryPolicy",
    "schedule": "MissedFiresPolicy RepeatPattern next_fire next_fires",
    "standalone": "Promoter Scheduler",
    "sync": "SyncQueue",
    "tasks": "BoundTask Task current_job",
    "worker": "Worker",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers would take it for a promise that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


__all__ = [
    "AddUnknown",
    "App",
    "AuthenticationFailed",
    "BackoffSpec",
    "BoundTask",
    "CannotServe",
    "ChasquiError",
    "Closed",
    "CommandTimeout",
    "ConnectionLost",
    "Consumer",
    "Crew",
    "DeadJob",
    "DeadLetters",
    "DecodeError",
    "Depends",
    "Handler",
    "InMemorySink",
    "InvalidArgument",
    "InvalidData",
    "InvalidType",
    "Job",
    "ConsumerInUse",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobTimeout",
    "JobHandle",
    "JobStatus",
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
    "QueueOverview",
    "Queues",
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
    "Snooze",
    "SyncQueue",
    "Task",
    "UnknownTask",
    "UnrecoverableError",
    "UnsafeServer",
    "UnsupportedData",
    "Worker",
    "WorkerInfo",
    "WrongLoop",
    "__version__",
    "current_job",
    "next_fire",
    "next_fires",
    "version",
]
