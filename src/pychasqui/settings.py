"""Settings: values that a program need not pass as arguments.

A value comes from the first of these that has one:

1. the argument
2. an environment variable: CHASQUI_ and the setting's name; REDIS_URL stands in for CHASQUI_REDIS_URL
3. the file: chasqui.toml, or the table [tool.chasqui] of pyproject.toml, in the working folder or the nearest folder
   above that has one of these two files; or the file that CHASQUI_CONFIG names. A pyproject.toml without that table
   counts as well: folders above it are not searched
4. the default

Queue, Worker, QueueEvents, Promoter, Scheduler and every command ask here. The file is read once in a process, when a
setting is first needed that has neither an argument nor a variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ._core import defaults
from .errors import InvalidArgument, printable

__all__ = ["SETTINGS", "FoundSetting", "Setting", "find_setting", "find_settings", "find_settings_not_given"]

FILE_NAMED_BY = "CHASQUI_CONFIG"
MAX_FILE_BYTES = 1024 * 1024


def _parse_text(text: str) -> str:
    return text


def _parse_number(text: str) -> int:
    return int(text)


def _parse_seconds(text: str) -> float:
    return float(text)


def _parse_bool(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}[
        text.strip().lower()
    ]


@dataclass(frozen=True)
class Setting:
    """A value that may be set outside of the program."""

    name: str
    about: str
    default: Any
    read: Callable[[str], Any] = _parse_text  # how the text of a variable is read
    expected: str = "a text"
    variables: tuple[str, ...] = ()

    @property
    def all_variables(self) -> tuple[str, ...]:
        return self.variables or (f"CHASQUI_{self.name.upper()}",)


@dataclass(frozen=True)
class FoundSetting:
    """The value of a setting, and where it came from: "argument", a variable's name, a file, or "default"."""

    name: str
    value: Any
    source: str

    def __repr__(self) -> str:  # a URL may hold a password
        return f"FoundSetting({self.name!r}, ..., {self.source!r})"


def _make_number_setting(name: str, about: str, default: int | None) -> Setting:
    return Setting(name, about, default, _parse_number, "a whole number")


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            Setting(
                "redis_url",
                "where Redis is",
                defaults.REDIS_URL,
                variables=("CHASQUI_REDIS_URL", "REDIS_URL"),
            ),
            Setting("app", "the App that the command line works with", None, expected="a name such as shop.app:app"),
            Setting("group", "the consumer group of workers", defaults.GROUP),
            _make_number_setting(
                "concurrency", "how many handlers of a worker run at the same time", defaults.CONCURRENCY
            ),
            _make_number_setting("max_attempts", "how many runs a job has in all", defaults.MAX_ATTEMPTS),
            Setting("timeout", "how long a run may take", None, _parse_seconds, "a number of seconds"),
            Setting("store_results", "whether workers keep what handlers return", False, _parse_bool, "true or false"),
            _make_number_setting("result_ttl_ms", "for how long results are kept", defaults.RESULT_TTL_MS),
            _make_number_setting("metrics_port", "the port of a worker's pages; none without one", None),
            Setting("metrics_host", "the address of a worker's pages", defaults.METRICS_HOST),
            Setting(
                "shutdown_deadline_s",
                "how long a closing worker waits for its handlers",
                defaults.SHUTDOWN_DEADLINE_S,
                _parse_seconds,
                "a number of seconds",
            ),
        )
    }
)


def find_setting(name: str, argument: Any = None) -> FoundSetting:
    """Finds the value of a setting. An argument that is None counts as not given."""
    setting = SETTINGS[name]
    if argument is not None:
        return FoundSetting(name, argument, "argument")
    for variable in setting.all_variables:
        if text := os.environ.get(variable):  # an empty variable counts as not set
            return FoundSetting(name, _parse_variable_text(setting, variable, text), variable)
    path, values = _find_and_read_settings_file(os.environ.get(FILE_NAMED_BY) or "", os.getcwd())
    if name in values:
        return FoundSetting(name, _resolve_if_embedded_url(path, values[name]), path)
    return FoundSetting(name, setting.default, "default")


def _resolve_if_embedded_url(settings_path: str, value: Any) -> Any:
    """Returns the value of a setting in a file. An embedded server belongs to the folder of the file, not to the one
    that a command is called in: all commands below that folder read the same file and mean the same server."""
    if isinstance(value, str) and value.startswith("embedded://"):
        from .embedded import absolute_url  # here: most programs have a server of their own

        return absolute_url(value, Path(settings_path).resolve().parent)
    return value


def find_settings(**arguments: Any) -> list[FoundSetting]:
    """Finds the values of all settings."""
    return [find_setting(name, arguments.get(name)) for name in SETTINGS]


def find_settings_not_given(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns those of the named settings that are set by a variable or a file, and that `given` does not have."""
    found = (find_setting(name) for name in names if name in SETTINGS and given.get(name) is None)
    return {setting.name: setting.value for setting in found if setting.source != "default"}


def _parse_variable_text(setting: Setting, variable: str, text: str) -> Any:
    try:
        return setting.read(text)
    except (ValueError, KeyError):
        raise InvalidArgument(f"{variable} is {printable(text)!r}, must be {setting.expected}") from None


@lru_cache(maxsize=8)
def _find_and_read_settings_file(named_path: str, folder: str) -> tuple[str, Mapping[str, Any]]:
    """The path of the settings file and what it sets; "" and nothing if there is none."""
    path = Path(named_path) if named_path else _find_nearest_settings_file_if_any(Path(folder))
    if path is None:
        return "", {}
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidArgument(f"{path} has more than {MAX_FILE_BYTES} bytes")
        raw = path.read_bytes()
    except OSError as error:
        if not named_path:  # somebody else's file, or it is gone by now
            return "", {}
        raise InvalidArgument(
            f"the file {printable(named_path)!r} of {FILE_NAMED_BY} cannot be read: {error}"
        ) from None
    is_project = path.name == "pyproject.toml"
    if is_project and b"chasqui" not in raw:
        return str(path), {}
    return str(path), _extract_and_check_settings_table(path, _parse_settings_toml(path, raw), is_project)


def _find_nearest_settings_file_if_any(folder: Path) -> Path | None:
    for above in (folder, *folder.parents):
        for name in ("chasqui.toml", "pyproject.toml"):
            if (above / name).is_file():
                return above / name
    return None


def _parse_settings_toml(path: Path, raw: bytes) -> dict[str, Any]:
    import tomllib  # here: most programs have no settings file

    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read: {printable(str(error))}") from None


def _extract_and_check_settings_table(path: Path, content: dict[str, Any], is_project: bool) -> Mapping[str, Any]:
    tool = content.get("tool", {}) if is_project else {}
    table = (tool.get("chasqui", {}) if isinstance(tool, dict) else {}) if is_project else content
    if not isinstance(table, dict):
        raise InvalidArgument(f"{path}: tool.chasqui must be a table")
    if unknown := sorted(table.keys() - SETTINGS.keys()):
        raise InvalidArgument(
            f"{path} sets {printable(unknown[0])!r}, which is no setting: the settings are {', '.join(SETTINGS)}"
        )
    return table
