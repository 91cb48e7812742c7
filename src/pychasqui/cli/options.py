"""The options that commands share, and what a command gets made of them."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..errors import InvalidArgument
from ..settings import SETTINGS, FoundSetting, find_setting
from .addresses import redis_url_option
from .interrupts import ctrl_c_kills_process
from .output import Output

if TYPE_CHECKING:
    import asyncio

    from ..queue import Queue
    from ..queues import Queues

ABOUT_URL = f"Where Redis is; {SETTINGS['redis_url'].default} unless it is set."
TIMEOUT_S = 3.0  # a command answers or fails within this time
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
MAX_SPAN_MS = 100 * 365 * 86_400_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")


class CommandContext:
    """What every command has: its output, and the address of Redis."""

    def __init__(self, output: Output, redis_url: FoundSetting) -> None:
        self.output = output
        self.redis_url: str = redis_url.value
        self.redis_url_source = redis_url.source

    def make_queue(self, name: str) -> Queue:
        """Makes a Queue whose calls answer or fail within TIMEOUT_S."""
        from ..queue import Queue  # here and below, so that --help and commands without it do not wait for the import

        return Queue(name, redis_url=self.redis_url, timeout_s=TIMEOUT_S)

    def make_queues(self) -> Queues:
        """Makes a Queues whose calls answer or fail within TIMEOUT_S."""
        from ..queues import Queues

        return Queues(self.redis_url, timeout_s=TIMEOUT_S)

    def run(
        self, work: Coroutine[Any, Any, T], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> T:
        """Runs the command's work in an event loop. An argument that is refused there is wrong usage.

        Warnings are not logged: the error that ends the command says what they would say.
        """
        with ctrl_c_kills_process():
            import asyncio

        logging.getLogger("chasqui").setLevel(logging.ERROR)
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                return runner.run(work)
        except InvalidArgument as error:
            raise click.UsageError(str(error)) from None


def add_common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command --redis-url, --json, --ndjson and --no-color, and calls it with a CommandContext as `context`.

    An argument that is refused is wrong usage.
    """

    @redis_url_option(variables=list(SETTINGS["redis_url"].all_variables), default=None, about=ABOUT_URL)
    @click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")
    @click.option("--ndjson", "as_ndjson", is_flag=True, help="Answer in JSON, one record a line.")
    @click.option("--no-color", is_flag=True, help="No colours, as with the variable NO_COLOR.")
    @functools.wraps(command)
    def with_context(redis_url: str | None, as_json: bool, as_ndjson: bool, no_color: bool, **arguments: Any) -> Any:
        output = Output.make_for_stdout(as_json=as_json, no_color=no_color, as_ndjson=as_ndjson)
        try:
            return command(context=CommandContext(output, find_typed_or_configured_redis_url(redis_url)), **arguments)
        except InvalidArgument as error:
            raise click.UsageError(str(error)) from None

    return with_context


def find_typed_or_configured_redis_url(option: str | None) -> FoundSetting:
    """Finds the URL: of the option, else of a variable or the settings file, else the default."""
    is_typed = click.get_current_context().get_parameter_source("redis_url") is ParameterSource.COMMANDLINE
    return read_setting("redis_url", option if is_typed else None)


def read_setting(name: str, option: Any = None) -> FoundSetting:
    """Finds the value of a setting. A variable or a settings file that is wrong is wrong usage."""
    try:
        return find_setting(name, option)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


queue_argument = click.argument("queue_name", metavar="QUEUE")
queues_argument = click.argument("queue_names", metavar="[QUEUE]...", nargs=-1)


group_option = click.option("--group", default=SETTINGS["group"].default, show_default=True, help="The consumer group.")


def make_limit_option(default: int, maximum: int = 1_000_000) -> Callable[[F], F]:
    return click.option(
        "--limit", type=click.IntRange(1, maximum), default=default, show_default=True, help="How many to show at most."
    )


class SpanType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """A span of time: 500ms, 30s, 5m, 2h, 7d; a number without a unit is seconds. Becomes milliseconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SPAN.fullmatch(str(value))
        if found is None or len(found[1]) > 15:
            self.fail(f"{str(value)[:50]!r} is not a span of time such as 500ms, 30s, 5m, 2h or 7d", param, ctx)
        span_ms = round(float(found[1]) * _UNITS_MS[found[2] or "s"])
        if span_ms > MAX_SPAN_MS:
            self.fail(f"{value!r} is more than 100 years", param, ctx)
        return span_ms


SPAN = SpanType()
