"""`chasqui tasks`: shows the tasks of an App."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from .app_targets import find_app_setting, import_app_and_its_modules
from .options import CommandContext, add_common_options
from .tables import Column

if TYPE_CHECKING:
    from ..app import App
    from ..schedule import RepeatPattern
    from ..tasks import Task

COLUMNS = (
    Column("task", "task"),
    Column("queue", "queue"),
    Column("signature", "signature", shrinks=True),
    Column("times", "schedules", shrinks=True),
)


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@add_common_options
def tasks(context: CommandContext, target: str | None) -> None:
    """Show the tasks of an App.

    Each with its queue, the parameters that are sent, and the times at which schedules send it. The App is that of the
    setting `app` if none is named. Redis is not asked.
    """
    found = find_app_setting(target).value
    if found is None:
        raise click.UsageError('name an App: chasqui tasks shop.app:app, or app = "shop.app:app" in chasqui.toml')
    app = import_app_and_its_modules(found)
    records = [task_to_fields(task, app) for _, task in sorted(app.tasks.items())]
    context.output.print_table_or_json("tasks", COLUMNS, records, empty=f"{found} has no tasks", app=found)


def task_to_fields(task: Task[..., Any], app: App) -> dict[str, Any]:
    schedules = [one for one in app.load_parts().schedules if one.definition is task.definition]
    return {
        "task": task.name,
        "queue": task.queue_name,
        "signature": format_signature(task),
        "times": ", ".join(describe_pattern_with_time_zone(one.pattern) for one in schedules),
        "aliases": list(task.aliases),
        "is_async": task.definition.is_async,
        "attempts": task.definition.options.get("attempts"),
        "unique_by": list(task.definition.unique_by),
        "position": task.definition.source_position,
        "schedules": [{"key": one.key, "pattern": one.pattern.to_dict(), "data": dict(one.given)} for one in schedules],
    }


def format_signature(task: Task[..., Any]) -> str:
    """Returns the parameters that are sent, and the result, as in the source."""
    from ..depends import Injected  # here, so that --help does not wait for the import

    signature = inspect.signature(task.function)
    parameters = [
        one.replace(annotation=_UnquotedAnnotation(one.annotation)) if one.annotation is not one.empty else one
        for one in signature.parameters.values()
        if not isinstance(one.default, Injected)
    ]
    returns = signature.return_annotation
    shown = returns if returns is signature.empty else _UnquotedAnnotation(returns)
    return str(signature.replace(parameters=parameters, return_annotation=shown))


class _UnquotedAnnotation:
    """An annotation that is written without quotes, also where annotations are kept as text."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def describe_pattern_with_time_zone(pattern: RepeatPattern) -> str:
    if pattern.interval_ms is not None:
        return f"every {pattern.interval_ms / 1000:g} s"
    return f"{pattern.expression} {pattern.tz}" if pattern.tz else str(pattern.expression)
