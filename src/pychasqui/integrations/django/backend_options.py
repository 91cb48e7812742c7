"""The OPTIONS of a backend in TASKS: their names, their checks, and the App that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..._core.checks import check_int, check_queue_name
from ..._producer.config import QueueConfig
from ..._producer.encoder import Encoder
from ..._tasks.send_options import check_send_options
from ...app import THREADS, App
from ...errors import InvalidArgument, InvalidType
from ...queue import Queue
from ...retry import BackoffSpec


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The OPTIONS of a backend.

    redis_url   where Redis is; None takes CHASQUI_REDIS_URL, REDIS_URL or the file of settings
    on_commit   the alias of a database: a task is enqueued when its transaction is committed
    attempts    how many runs a task has in all, instead of the worker's max_attempts
    backoff     the delays between its runs: a timedelta or a BackoffSpec
    tasks       by the path of a task: its own attempts and backoff
    modules     modules with tasks that are not called `tasks`
    threads     how many plain functions may run at the same time in a worker
    queues      by queue: the options of its Worker and its Queue, as of App
    defaults    the options of all queues that do not set their own
    """

    redis_url: str | None = None
    on_commit: str | None = None
    attempts: int | None = None
    backoff: timedelta | BackoffSpec | None = None
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    threads: int = THREADS
    queues: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def choose_and_check_retry_options(self, path: str, own_options: Mapping[str, Any]) -> dict[str, Any]:
        """The attempts and backoff of a task: its own, else those of `tasks`, else those of the backend."""
        given = [own_options, self.tasks.get(path, {}), {"attempts": self.attempts, "backoff": self.backoff}]
        found = {
            name: next((one[name] for one in given if one.get(name) is not None), None)
            for name in ("attempts", "backoff")
        }
        return check_send_options(f"task {path!r}", found)

    def make_encoder(self, queue_name: str) -> Encoder:
        """Encodes as the Queue of this name does: it refuses the same data and delays."""
        own = {**self.defaults, **self.queues.get(queue_name, {})}
        bounds = {name: own[name] for name in ("max_payload_bytes", "max_delay_secs") if name in own}
        config = QueueConfig(queue_name, **bounds)
        return Encoder(config.max_payload_bytes, 1000 * config.max_delay_secs)

    def make_app(self) -> App:
        queues, defaults = dict(self.queues), {**self.defaults}
        return App(self.redis_url, name="django", queues=queues, defaults=defaults, threads=self.threads)  # type: ignore[arg-type]


def check_and_read_options(params: Mapping[str, Any]) -> BackendOptions:
    """Reads the OPTIONS of one entry of TASKS; raises InvalidArgument or InvalidType."""
    given = dict(params.get("OPTIONS", {}))
    names = BackendOptions.__dataclass_fields__
    if unknown := given.keys() - names.keys():
        raise InvalidArgument(f"OPTIONS has no {min(unknown)!r}; the options are {', '.join(names)}")
    options = BackendOptions(**{**given, "modules": tuple(given.get("modules", ()))})
    for queue in params.get("QUEUES", ()):
        check_queue_name(queue)
    check_int("threads", options.threads, 1)
    options.choose_and_check_retry_options("", {})
    for path, own in options.tasks.items():
        if not isinstance(own, Mapping) or own.keys() - {"attempts", "backoff"}:
            raise InvalidType(f"OPTIONS['tasks'][{path!r}] must be a dict of attempts and backoff")
        options.choose_and_check_retry_options(path, {})
    options.make_app()
    Queue("default", redis_url=options.redis_url)  # refuses a wrong URL here, and not at the first use
    return options


class ProcessApps:
    """The apps of a process, one for each entry of TASKS. Django makes a backend for each thread: they share an app.

    There is no lock: a fork could leave it held in the child.
    """

    def __init__(self) -> None:
        self._apps: dict[str, tuple[BackendOptions, App]] = {}

    def get_or_make_app(self, alias: str, options: BackendOptions) -> App:
        known = self._apps.get(alias) or self._apps.setdefault(alias, (options, options.make_app()))
        if known[0] != options:  # tests change settings
            known = self._apps[alias] = (options, options.make_app())
        return known[1]


process_apps = ProcessApps()
