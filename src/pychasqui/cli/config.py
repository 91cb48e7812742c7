"""`chasqui config`: shows every setting and where it came from."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InvalidArgument
from ..settings import SETTINGS, FoundSetting, find_settings
from .options import CommandContext, add_common_options
from .tables import Column

COLUMNS = (
    Column("setting", "setting"),
    Column("value", "value", shrinks=True),
    Column("source", "from", shrinks=True, styles={"default": "dim"}),
)


@click.command()
@add_common_options
def config(context: CommandContext) -> None:
    """Show each setting and where it came from.

    A value comes from the argument, else from its variable, else from chasqui.toml or [tool.chasqui] in pyproject.toml,
    else it is the default. The password of a URL is not shown.
    """
    given = context.redis_url if context.redis_url_source == "argument" else None
    try:
        found = find_settings(redis_url=given)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
    context.output.print_table_or_json("settings", COLUMNS, [_setting_to_fields(setting) for setting in found])


def _setting_to_fields(found: FoundSetting) -> dict[str, Any]:
    setting = SETTINGS[found.name]
    value = format_address_or_error(found.value) if found.name == "redis_url" else found.value
    return {
        "setting": found.name,
        "value": value,
        "source": found.source,
        "variables": list(setting.all_variables),
        "about": setting.about,
    }


def format_address_or_error(url: Any) -> str:
    """The URL without name and password."""
    from ..queue import Queue

    try:
        return Queue("config", redis_url=url).redis_address
    except (InvalidArgument, TypeError) as error:
        return f"({error})"
