"""`chasqui tasks`, and what other commands know of an App."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pychasqui import Queue
from pychasqui.cli.exits import ExitCode
from tests.cli.conftest import Finished
from tests.cli.terminals import on_terminal, plain

SHOP = """
from __future__ import annotations
from datetime import timedelta
from pychasqui import App, Depends, Job, current_job

app = App(modules=["more"])

@app.every(timedelta(minutes=5), data={"to": "boss"})
@app.cron("0 3 * * *", tz="Europe/Berlin", data={"to": "ada"})
@app.task(queue="mail", attempts=5, aliases=("mail.send",), unique_by=("to",))
async def send_mail(to: str, subject: str = "hello", job: Job = Depends(current_job)) -> int: ...

def make() -> App:
    return app

number = 5
"""
MORE = "from shop import app\n@app.task\ndef shrink(widths: list[int], *, tall=False): ...\n"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "more.py").write_text(MORE)


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


def test_the_tasks_of_an_app_are_a_table(chasqui: Finished) -> None:
    ended = chasqui("tasks", "shop:app")
    assert [line.split("\t") for line in ended.stdout.splitlines()] == [
        ["task", "queue", "signature", "schedules"],
        [
            "send_mail",
            "mail",
            "(to: str, subject: str = 'hello') -> int",
            "0 3 * * * Europe/Berlin, every 300 s",
        ],
        ["shrink", "default", "(widths: list[int], *, tall=False)", ""],
    ]


def test_the_tasks_of_an_app_are_json(chasqui: Finished, tmp_path: Path) -> None:
    answer = json.loads(chasqui("tasks", "shop:make", "--json").stdout)
    assert (answer["schema"], answer["app"]) == (1, "shop:make")
    mail, shrink = answer["tasks"]
    assert (mail["aliases"], mail["attempts"], mail["unique_by"], mail["is_async"]) == (["mail.send"], 5, ["to"], True)
    assert mail["position"].startswith(str(tmp_path / "shop.py"))
    assert [one["key"] for one in mail["schedules"]] == [
        "app/send_mail/0 3 * * * Europe/Berlin",
        "app/send_mail/every 300000",
    ]
    assert mail["schedules"][1]["pattern"] == {"kind": "every", "interval_ms": 300_000}
    assert mail["schedules"][1]["data"] == {"to": "boss"}
    assert (shrink["is_async"], shrink["schedules"]) == (False, [])


def test_the_tasks_fit_a_terminal(tmp_path: Path, redis_url: str) -> None:
    code, shown = on_terminal("tasks", "shop:app", folder=tmp_path, columns=60, CHASQUI_REDIS_URL=redis_url)
    assert code == 0
    lines = plain(shown).splitlines()
    assert lines[0].split() == ["task", "queue", "signature", "schedules"]
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("target", "code", "why"),
    (
        ((), ExitCode.USAGE, "name an App"),
        (("shop",), ExitCode.USAGE, "not of the form"),
        (("shop:number",), ExitCode.USAGE, "shop:number"),
        (("shop:none",), ExitCode.NOT_FOUND, "no 'none'"),
        (("nowhere:app",), ExitCode.NOT_FOUND, "no module 'nowhere'"),
    ),
)
def test_a_target_that_is_no_app_is_named(chasqui: Finished, target: tuple[str, ...], code: int, why: str) -> None:
    ended = chasqui("tasks", *target)
    assert (ended.returncode, why in ended.stderr) == (code, True), ended.stderr


@pytest.mark.parametrize("place", ("chasqui.toml", "pyproject.toml", "variable"))
def test_the_app_comes_from_the_settings(chasqui: Finished, tmp_path: Path, place: str) -> None:
    table = "[tool.chasqui]\n" if place == "pyproject.toml" else ""
    variables = {"CHASQUI_APP": "shop:app"} if place == "variable" else {}
    if not variables:
        (tmp_path / place).write_text(f'{table}app = "shop:app"\n')
    assert "send_mail" in chasqui("tasks", **variables).stdout
    assert "shop:app" in chasqui("config", **variables).stdout


def test_a_module_of_the_app_that_fails_is_named(chasqui: Finished, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("1 / 0\n")
    ended = chasqui("tasks", "shop:app")
    assert ended.returncode == ExitCode.FAILED
    assert "the modules of shop:app cannot be imported: ZeroDivisionError" in ended.stderr
    assert 'more.py", line 1' in ended.stderr


# Adding with an app -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "why"),
    (
        ("send_mail", '{"to": 5}', "task 'send_mail': $.to: Expected `str`, got `int`"),
        ("mail.send", "{}", "task 'send_mail': $.to: missing"),
        (
            "send_mail",
            '{"to": "ada", "sbject": "x"}',
            "no parameter 'sbject'; did you mean 'subject'? Its parameters are: subject, to",
        ),
        ("send_mail", '{"too": "ada"}', "no parameter 'too'; did you mean 'to'? Its parameters are: subject, to"),
        ("send_mail", '{"x": "ada"}', "no parameter 'x'; its parameters are: subject, to"),
        ("send_mail", "[1]", "task 'send_mail'"),
        ("sendmail", '{"to": "ada"}', "shop:app has no task 'sendmail'; did you mean 'send_mail'?"),
    ),
)
async def test_data_that_a_run_would_refuse_is_not_added(
    queue: Queue, chasqui: Finished, redis_url: str, name: str, data: str, why: str
) -> None:
    ended = chasqui("add", queue.name, name, data, "--app", "shop:app", CHASQUI_REDIS_URL=redis_url)
    assert (ended.returncode, ended.stdout) == (ExitCode.USAGE, "")
    assert why.split(":")[-1] in ended.stderr.replace("\n", " "), ended.stderr
    assert (await queue.counts()).waiting == 0


async def test_data_that_fits_is_added(queue: Queue, chasqui: Finished, redis_url: str) -> None:
    variables = {"CHASQUI_REDIS_URL": redis_url, "CHASQUI_APP": "shop:app"}
    for name, data in (("send_mail", '{"to": "ada"}'), ("shrink", '{"widths": [1, 2]}'), ("other", "5")):
        ended = chasqui("add", queue.name, name, data, **variables)
        assert ended.returncode == 0, ended.stderr
    assert (await queue.counts()).waiting == 3
    job = await queue.get_job('send_mail(to="ada")')  # as the task says: unique_by
    assert job is not None
    added = chasqui("add", queue.name, "send_mail", '{"to": "bo"}', "--id", "b", **variables)
    assert added.stdout.split() == ["b"]
    assert "task 'send_mail' belongs to queue 'mail'" in added.stderr.replace("\n", " ")
    refused = chasqui("add", "mail", "other", "5", **variables)  # a queue of the app
    assert refused.returncode == ExitCode.USAGE


async def test_an_app_of_the_settings_that_is_broken_stops_no_add(
    queue: Queue, chasqui: Finished, redis_url: str
) -> None:
    variables = {"CHASQUI_REDIS_URL": redis_url, "CHASQUI_APP": "nowhere:app"}
    ended = chasqui("add", queue.name, "send_mail", "{}", **variables)
    assert ended.returncode == 0
    assert "the data is not checked: there is no module 'nowhere'" in ended.stderr
    assert chasqui("add", queue.name, "x", "--app", "nowhere:app", **variables).returncode == ExitCode.NOT_FOUND
    assert (await queue.counts()).waiting == 1


async def test_lines_that_do_not_fit_are_named(queue: Queue, chasqui: Finished, redis_url: str) -> None:
    lines = ('{"to": "a"}', '{"to": "b"}', '{"to": 5}')
    ended = chasqui(
        "add", queue.name, "send_mail", "-", "--app", "shop:app", stdin="\n".join(lines), CHASQUI_REDIS_URL=redis_url
    )
    assert ended.returncode == ExitCode.FAILED
    assert "line 3 of standard input: task 'send_mail'" in ended.stderr.replace("\n", " ")
    assert "nothing was added" in ended.stderr


def test_a_worker_without_a_target_is_that_of_the_settings(chasqui: Finished, redis_url: str) -> None:
    assert chasqui("worker").returncode == ExitCode.USAGE
    ended = chasqui("worker", "--burst", CHASQUI_REDIS_URL=redis_url, CHASQUI_APP="shop:app")
    assert ended.returncode == 0, ended.stderr
    assert "queue        mail" in ended.stderr
