"""A value comes from the argument, else from the environment, else from a file, else it is the default."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pychasqui import InvalidArgument, Job, Promoter, Queue, QueueEvents, Scheduler, Worker
from pychasqui._worker.config import WorkerConfig
from pychasqui.embedded import absolute_url
from pychasqui.settings import SETTINGS, _find_and_read_settings_file, find_setting, find_settings


async def handle(job: Job) -> None:
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, and none of the variables."""
    _find_and_read_settings_file.cache_clear()
    monkeypatch.chdir(tmp_path)
    for variable in ("CHASQUI_CONFIG", *(name for one in SETTINGS.values() for name in one.all_variables)):
        monkeypatch.delenv(variable, raising=False)
    yield tmp_path
    _find_and_read_settings_file.cache_clear()


def test_the_first_place_that_has_a_value_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(argument: str | None = None) -> tuple[str, str]:
        setting = find_setting("redis_url", argument)
        return setting.value, setting.source

    assert found() == ("redis://127.0.0.1:6379", "default")
    (folder / "pyproject.toml").write_text('[tool.chasqui]\nredis_url = "redis://project"\n')
    _find_and_read_settings_file.cache_clear()
    assert found() == ("redis://project", str(folder / "pyproject.toml"))
    (folder / "chasqui.toml").write_text('redis_url = "redis://file"\n')
    _find_and_read_settings_file.cache_clear()
    assert found() == ("redis://file", str(folder / "chasqui.toml"))
    monkeypatch.setenv("REDIS_URL", "redis://shared")
    assert found() == ("redis://shared", "REDIS_URL")
    monkeypatch.setenv("CHASQUI_REDIS_URL", "redis://own")
    assert found() == ("redis://own", "CHASQUI_REDIS_URL")
    assert found("redis://argument") == ("redis://argument", "argument")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASQUI_REDIS_URL", "")
    assert find_setting("redis_url").source == "default"


@pytest.mark.parametrize("url", ("embedded://", "embedded://./jobs"))
def test_an_embedded_server_of_a_file_belongs_to_the_folder_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (folder / "chasqui.toml").write_text(f'redis_url = "{url}"\n')
    here = find_setting("redis_url").value
    assert here == absolute_url(url)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert find_setting("redis_url").value == here != absolute_url(url)


def test_the_nearest_folder_with_a_file_is_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "chasqui.toml").write_text("concurrency = 3\n")
    below = folder / "src" / "app"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert find_setting("concurrency").value == 3
    (folder / "src" / "pyproject.toml").write_text("[project]\n")
    _find_and_read_settings_file.cache_clear()
    assert find_setting("concurrency").source == "default"


def test_a_variable_names_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = folder / "other.toml"
    other.write_text('group = "night"\n')
    monkeypatch.setenv("CHASQUI_CONFIG", str(other))
    assert find_setting("group").value == "night"
    monkeypatch.setenv("CHASQUI_CONFIG", "/no/such/file.toml")
    with pytest.raises(InvalidArgument, match=r"'/no/such/file.toml' of CHASQUI_CONFIG cannot be read"):
        find_setting("group")


@pytest.mark.parametrize(
    ("content", "problem"),
    (
        ("conurrency = 3", "sets 'conurrency', which is no setting: the settings are redis_url, "),
        ("concurrency = ", "chasqui.toml cannot be read: Invalid value"),
        ("a = \x1b", "chasqui.toml cannot be read"),
    ),
)
def test_a_file_that_cannot_be_meant_is_refused(folder: Path, content: str, problem: str) -> None:
    (folder / "chasqui.toml").write_text(content)
    with pytest.raises(InvalidArgument) as refused:
        find_setting("concurrency")
    assert problem in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("content", ("[project]\n", "[tool.other]\nchasqui = 1\n", "tool = 3 # chasqui\n"))
def test_a_project_without_our_table_sets_nothing(folder: Path, content: str) -> None:
    (folder / "pyproject.toml").write_text(content)
    assert {setting.source for setting in find_settings()} == {"default"}


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    (
        ("CONCURRENCY", "many", "a whole number"),
        ("STORE_RESULTS", "maybe", "true or false"),
        ("SHUTDOWN_DEADLINE_S", "x", "a number of seconds"),
    ),
)
def test_a_variable_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, expected: str
) -> None:
    monkeypatch.setenv(f"CHASQUI_{variable}", text)
    with pytest.raises(InvalidArgument, match=f"CHASQUI_{variable} is '{text}', must be {expected}"):
        find_settings()


def test_every_constructor_takes_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://there:1")
    for made in (Queue("q"), Queue("q", redis_url=None), Worker("q", handle), Promoter("q"), Scheduler("q")):
        assert made.redis_address == "redis://there:1/0"
    assert str(QueueEvents("q")._connector) == "redis://there:1/0"
    assert Queue("q", redis_url="redis://here").redis_address == "redis://here:6379/0"


def test_a_worker_takes_its_settings_unless_it_has_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASQUI_CONCURRENCY", "7")
    monkeypatch.setenv("CHASQUI_STORE_RESULTS", "true")
    assert Worker("q", handle)._config.concurrency == 7
    assert Worker("q", handle)._config.store_results is True
    assert Worker("q", handle, concurrency=2)._config.concurrency == 2
    monkeypatch.setenv("CHASQUI_CONCURRENCY", "0")
    with pytest.raises(InvalidArgument, match="concurrency is 0, must be at least 1"):
        Worker("q", handle)


def test_the_defaults_are_those_of_the_worker() -> None:
    defaults = {field.name: field.default for field in fields(WorkerConfig)}
    found = {name: one.default for name, one in SETTINGS.items() if name != "app"}  # the command line's
    assert {name: defaults[name] for name in found} == found


def test_the_page_about_configuration_has_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text()
    for setting in SETTINGS.values():
        variables = ", then ".join(f"`{variable}`" for variable in setting.all_variables)
        assert f"| `{setting.name}` | {variables} |" in page


def test_a_found_url_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@there")
    assert "hunter2" not in repr(find_settings())


def test_a_queue_with_its_url_reads_no_file() -> None:
    code = (
        "import builtins, os, pathlib, sys\n"
        "from pychasqui import Queue\n"
        "def refuse(*_): raise AssertionError('it looks for a file')\n"
        "pathlib.Path.is_file = pathlib.Path.read_bytes = refuse\n"
        "Queue('q', redis_url='redis://there')\n"
        "sys.exit('it has loaded tomllib' if 'tomllib' in sys.modules else 0)"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
