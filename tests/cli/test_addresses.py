"""A password on a command line is shown to everybody on the machine, and that is said."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Finished


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


SECRET = "hunter2"
NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("login", (f":{SECRET}@", f"ann:{SECRET}@"))
def test_a_password_on_the_command_line_is_warned_about(chasqui: Finished, login: str) -> None:
    ended = chasqui("demo", "--redis-url", f"redis://{login}{NOBODY}")
    assert "Warning: the password in --redis-url is shown to all users of this machine" in ended.stderr
    assert "CHASQUI_DEMO_REDIS_URL" in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout


@pytest.mark.parametrize(
    "url",
    (
        f"redis://{NOBODY}?password={SECRET}",
        f"redis://{NOBODY}?pass%77ord={SECRET}",
        f"redis+sentinel://{NOBODY}/main?sentinel_password={SECRET}",
        f"rediss://{NOBODY}?ssl_certfile=/nowhere&ssl_password={SECRET}",
        f"redis://{NOBODY}?Passwd={SECRET}",
        f"redis://ann:{SECRET}/more@{NOBODY}",
        f"redis://ann:{SECRET}[more@{NOBODY}",
        f"ann:{SECRET}@{NOBODY}",
    ),
)
def test_a_password_in_any_place_of_the_url_is_warned_about(chasqui: Finished, url: str) -> None:
    ended = chasqui("demo", "--redis-url", url)
    assert "Warning: the password in --redis-url is shown to all users of this machine" in ended.stderr
    assert SECRET not in ended.stderr + ended.stdout


@pytest.mark.parametrize("url", (f"redis://{NOBODY}", "unix:///nowhere/a@b/redis.sock", f"redis://{NOBODY}?db=1"))
def test_an_address_without_a_password_is_not(chasqui: Finished, url: str) -> None:
    assert "Warning" not in chasqui("demo", "--redis-url", url).stderr


def test_a_password_in_the_environment_is_the_way(chasqui: Finished) -> None:
    ended = chasqui("demo", CHASQUI_DEMO_REDIS_URL=f"redis://:{SECRET}@{NOBODY}")
    assert "Warning" not in ended.stderr
    assert f"cannot reach redis://{NOBODY}/0" in ended.stderr


def test_the_exporter_names_the_variable_that_all_commands_share(chasqui: Finished) -> None:
    ended = chasqui("exporter", "no}name", "--redis-url", f"redis://:{SECRET}@{NOBODY}")
    assert "put the URL into the variable CHASQUI_REDIS_URL instead" in ended.stderr
    assert "CHASQUI_REDIS_URL" in chasqui("exporter", "--help").stdout
