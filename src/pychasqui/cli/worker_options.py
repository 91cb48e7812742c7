"""What the options of `chasqui worker` mean: which queues, how much memory, and how log lines look."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidArgument
from .exits import CommandFailure, ExitCode

if TYPE_CHECKING:
    from .. import Worker

LOG_FORMATS = ("auto", "rich", "plain", "json")
PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(i?)B?", re.IGNORECASE)


class SizeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """A number of bytes: 512MB, 1.5GiB, 300000000. Becomes a whole number."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value))
        if found is None or len(found[1]) > 15:
            self.fail(f"{str(value)[:50]!r} is not a size such as 512MB or 1.5GiB", param, ctx)
        power = " KMGT".index(found[2].upper() or " ")
        return round(float(found[1]) * float(1024 if found[3] else 1000) ** power)


class QueuesType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Names of queues, each with its concurrency behind a colon if it is to have another: emails:50,default."""

    name = "queues"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int | None]:
        if isinstance(value, dict):
            return value
        wanted: dict[str, int | None] = {}
        for word in filter(None, (word.strip() for word in str(value).split(","))):
            found = re.fullmatch(r"(.+):([0-9]{1,9})", word)
            wanted[found[1] if found else word] = int(found[2]) if found else None
        if not wanted or 0 in wanted.values():
            self.fail(f"{str(value)[:100]!r} is not a list of queues such as emails:50,default", param, ctx)
        return wanted


SIZE = SizeType()
QUEUES = QueuesType()


def choose_workers_and_override_options(
    workers: Sequence[Worker],
    *,
    queues: dict[str, int | None] | None,
    concurrency: int | None,
    shutdown_timeout_s: float | None,
    metrics_port: int | None,
    job_timeout_s: float | None = None,
) -> list[Worker]:
    """Returns the workers of the wanted queues, with the options of the command in place of their own.

    Each worker serves its own pages: the first at `metrics_port`, the others at the ports that follow.
    """
    known = [worker.queue_name for worker in workers]
    for name in queues or ():
        if name not in known:
            raise CommandFailure(f"no worker is for queue {name!r}; there are: {', '.join(known)}", ExitCode.NOT_FOUND)
    chosen = [worker for worker in workers if queues is None or worker.queue_name in queues]
    changed = []
    for position, worker in enumerate(chosen):
        own = (queues or {}).get(worker.queue_name)
        options = {
            "concurrency": own or concurrency,
            "shutdown_deadline_s": shutdown_timeout_s,
            "metrics_port": metrics_port + position if metrics_port else metrics_port,  # 0 is any free port
            "timeout": job_timeout_s,
        }
        given = {name: value for name, value in options.items() if value is not None}
        try:
            changed.append(worker.with_options(**given) if given else worker)
        except InvalidArgument as error:
            raise click.UsageError(str(error)) from None
    return changed


def set_up_logging_unless_done(choice: str) -> None:
    """basicConfig does nothing if the module has set up logging itself: that comes first."""
    is_rich = choice == "rich" or (choice == "auto" and sys.stderr.isatty() and find_spec("rich") is not None)
    if choice == "json":
        from ..logs import JobFilter, JsonFormatter

        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        handler.addFilter(JobFilter())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    elif is_rich:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", handlers=[_make_rich_handler()])
    else:
        logging.basicConfig(level=logging.INFO, format=PLAIN)


def _make_rich_handler() -> logging.Handler:
    try:
        from rich.console import Console
        from rich.logging import RichHandler
    except ImportError:
        raise click.BadParameter(
            "rich is not installed here: pip install 'pychasqui[cli]'", param_hint="'--log-format'"
        ) from None
    return RichHandler(console=Console(stderr=True), show_path=False, markup=False)
