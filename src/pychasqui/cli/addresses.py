"""The option --redis-url, the same for every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import click
from click.core import ParameterSource

from .standard_streams import print_to_stderr

F = TypeVar("F", bound=Callable[..., Any])


def redis_url_option(*, variables: list[str], default: str | None, about: str) -> Callable[[F], F]:
    """Makes the option. `variables` are the environment variables that it falls back to."""

    def warn_if_password_was_typed(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
        is_typed = context.get_parameter_source("redis_url") is ParameterSource.COMMANDLINE
        if url is not None and is_typed and _may_hold_password(url):
            print_to_stderr(
                "Warning: the password in --redis-url is shown to all users of this machine in its list of processes; "
                f"put the URL into the variable {variables[0]} instead"
            )
        return url

    return click.option(
        "--redis-url",
        metavar="URL",
        envvar=variables,
        default=default,
        show_default=default is not None,
        show_envvar=True,
        callback=warn_if_password_was_typed,
        help=about,
    )


def _may_hold_password(url: str) -> bool:
    """Whether the URL may hold a password, also if the command refuses it: it was typed all the same."""
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        return "@" in url
    has_at_outside_login = "@" in url and not parts.username and parts.scheme not in ("unix", "embedded")
    return bool(parts.password) or has_at_outside_login or any("pass" in name.lower() for name in options)
