"""`chasqui check`: compares queues with thresholds, for monitoring."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import ChasquiError, printable
from .exits import CommandFailure, ExitCode
from .known_queues import find_and_describe_unknown_queues
from .options import SPAN, CommandContext, add_common_options, queues_argument
from .ps import use_given_or_find_all_queue_names
from .tables import Column
from .values import Kind, format_count, format_span, format_value_for_pipe

if TYPE_CHECKING:
    from ..queues import QueueOverview, Queues

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN = range(4)
NAGIOS_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_COUNT = re.compile(r"([0-9]{1,15})([kM]?)")
_LABEL_END = re.compile(r"['|=]")
_FACTORS = {"": 1, "k": 1000, "M": 1_000_000}
COLUMNS = (
    Column("queue", "queue", shrinks=True),
    Column("check", "check"),
    Column("shown", "value"),
    Column("shown_limit", "threshold"),
    Column("state", "state", styles={"ok": "green", "breached": "red", "unknown": "yellow"}),
)


class CountType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """A number, also as 10k or 2M."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _COUNT.fullmatch(value)
        if found is None:
            self.fail(f"{value[:50]!r} is not a number such as 500, 10k or 2M", param, ctx)
        return int(found[1]) * _FACTORS[found[2]]


COUNT = CountType()


class CheckCommand(click.Command):
    """To Nagios, wrong usage is unknown: its usual exit code, 2, would be critical."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _report_usage_errors_as_unknown(to_nagios="--nagios" in args):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _report_usage_errors_as_unknown(to_nagios=ctx.params["nagios"]):
            return super().invoke(ctx)


@contextmanager
def _report_usage_errors_as_unknown(*, to_nagios: bool) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        if not to_nagios:
            raise
        text = printable(error.format_message(), 500)
        click.echo(_make_nagios_line(NAGIOS_UNKNOWN, f"wrong usage: {text}"))
        raise CommandFailure(text, NAGIOS_UNKNOWN) from None


class Measured(NamedTuple):
    """One fact about a queue, and whether its threshold is breached."""

    queue: str
    check: str
    value: int
    limit: int
    is_breached: bool
    is_queue_known: bool

    @property
    def state(self) -> str:
        return "breached" if self.is_breached else "ok" if self.is_queue_known else "unknown"

    @property
    def is_span(self) -> bool:
        return self.check == "lag"

    @property
    def shown_value(self) -> str:
        return format_span(self.value) if self.is_span else f"{self.value:,}"

    @property
    def shown_limit(self) -> str:
        bound = "at least" if self.check == "workers" else "at most"
        return f"{bound} {format_span(self.limit) if self.is_span else f'{self.limit:,}'}"

    def to_fields(self) -> dict[str, Any]:
        names = ("value_ms", "threshold_ms") if self.is_span else ("value", "threshold")
        return {
            "queue": self.queue,
            "check": self.check,
            **dict(zip(names, (self.value, self.limit), strict=True)),
            "state": self.state,
        }


@click.command("check", cls=CheckCommand)
@queues_argument
@click.option("--max-waiting", "--max-depth", type=COUNT, default=None, help="How many jobs may wait: 500, 10k.")
@click.option("--max-lag", type=SPAN, default=None, help="How long the oldest waiting job may have waited: 60s.")
@click.option("--max-dlq", type=COUNT, default=None, help="How many dead letters there may be.")
@click.option("--min-workers", type=COUNT, default=None, help="How many workers must live.")
@click.option(
    "--nagios", is_flag=True, help="One line and the exit codes of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown."
)
@add_common_options
def check_thresholds(
    context: CommandContext, queue_names: tuple[str, ...], nagios: bool, **thresholds: int | None
) -> int:
    """Compare queues with thresholds, for monitoring.

    Without QUEUE it looks at all queues of the server.

    The exit code is 5 if a threshold is breached, 4 if Redis cannot be asked, 3 if no queue of a name is known. With
    --nagios a breach is critical, a paused queue is a warning, and trouble with Redis, a queue that is not known or
    wrong usage is unknown.
    """
    given = {name: value for name, value in thresholds.items() if value is not None}
    if not given:
        raise click.UsageError("give a threshold: --max-waiting, --max-lag, --max-dlq or --min-workers")
    if nagios:
        return _run_nagios_check(context, queue_names, given)
    measured, _, unknown = context.run(measure_queues(context, queue_names, given))
    records = [one.to_fields() for one in measured]
    is_breached = any(one.is_breached for one in measured)
    if context.output.is_json:
        context.output.print_json_list("checks", records, is_breached=is_breached)
    else:
        for record, one in zip(records, measured, strict=True):
            exact = format_value_for_pipe(one.value, Kind.SPAN if one.is_span else Kind.COUNT)
            record |= {
                "shown": one.shown_value if context.output.is_terminal else exact,
                "shown_limit": one.shown_limit,
            }
        context.output.print_table_or_json("checks", COLUMNS, records, empty="there are no queues")
    for text in unknown.values() if is_breached else ():
        context.output.print_message_to_stderr(text)
    if unknown and not is_breached:
        raise CommandFailure("\n".join(unknown.values()), ExitCode.NOT_FOUND)
    return ExitCode.BREACHED if is_breached else ExitCode.OK


async def measure_queues(
    context: CommandContext, names: Sequence[str], thresholds: dict[str, int]
) -> tuple[list[Measured], list[str], dict[str, str]]:
    """Returns what was measured, the names of the queues that are paused, and those that no queue has with a text."""
    async with context.make_queues() as server:
        overviews = await server.overview(await use_given_or_find_all_queue_names(context, server, names))
        for overview in overviews:
            if overview.error is not None:
                raise CommandFailure(f"queue {overview.name} cannot be read: {printable(overview.error, 500)}")
        empty = [overview.name for overview in overviews if _has_no_jobs_workers_or_pause(overview)]
        unknown = await find_and_describe_unknown_queues(server, empty) if empty else {}
        answers = await asyncio.gather(
            *(_measure_queue(server, one, thresholds, is_known=one.name not in unknown) for one in overviews)
        )
    paused = [overview.name for overview in overviews if overview.is_paused]
    return [one for answer in answers for one in answer], paused, unknown


def _has_no_jobs_workers_or_pause(overview: QueueOverview) -> bool:
    has_jobs = overview.waiting or overview.running or overview.delayed or overview.dead or overview.repeatables
    return not (has_jobs or overview.workers or overview.is_paused)


async def _measure_queue(
    server: Queues, overview: QueueOverview, thresholds: dict[str, int], *, is_known: bool
) -> list[Measured]:
    found, name = [], overview.name
    assert overview.waiting is not None  # it could be read
    assert overview.dead is not None
    assert overview.workers is not None
    if (limit := thresholds.get("max_waiting")) is not None:
        found.append(Measured(name, "waiting", overview.waiting, limit, overview.waiting > limit, is_known))
    if (limit := thresholds.get("max_lag")) is not None:
        lag_ms = await server.lag_ms(name)
        found.append(Measured(name, "lag", lag_ms, limit, lag_ms > limit, is_known))
    if (limit := thresholds.get("max_dlq")) is not None:
        found.append(Measured(name, "dead", overview.dead, limit, overview.dead > limit, is_known))
    if (limit := thresholds.get("min_workers")) is not None:
        found.append(Measured(name, "workers", overview.workers, limit, overview.workers < limit, is_known))
    return found


def _run_nagios_check(context: CommandContext, names: Sequence[str], thresholds: dict[str, int]) -> int:
    try:
        measured, paused, unknown = context.run(measure_queues(context, names, thresholds))
    except (ChasquiError, CommandFailure) as error:
        text = error.message if isinstance(error, CommandFailure) else str(error)
        context.output.print_text(_make_nagios_line(NAGIOS_UNKNOWN, printable(text, 500)))
        return NAGIOS_UNKNOWN
    breaches = [one for one in measured if one.is_breached]
    parts = [f"{one.queue}: {one.check} {one.shown_value} ({one.shown_limit})" for one in breaches]
    parts += [f"{name}: paused" for name in paused] + list(unknown.values())
    state = NAGIOS_CRITICAL if breaches else NAGIOS_UNKNOWN if unknown else NAGIOS_WARNING if paused else NAGIOS_OK
    context.output.print_text(
        _make_nagios_line(state, ", ".join(parts) or f"{format_count(len(measured), 'check')} passed", measured)
    )
    return state


def _make_nagios_line(state: int, text: str, measured: Sequence[Measured] = ()) -> str:
    """The one line of a Nagios plugin, with the measured values as performance data."""
    data = " ".join(
        f"'{_make_perfdata_label(one)}'={one.value / 1000:g}s;;{one.limit / 1000:g}"
        if one.is_span
        else f"'{_make_perfdata_label(one)}'={one.value};;{one.limit}{':' if one.check == 'workers' else ''}"
        for one in measured
    )
    return f"CHASQUI {NAGIOS_WORDS[state]} - {text.replace('|', '/')}{f' | {data}' if data else ''}"


def _make_perfdata_label(measured: Measured) -> str:
    """The name of a value, without the characters that end a label."""
    return f"{_LABEL_END.sub('_', measured.queue)} {measured.check}"
