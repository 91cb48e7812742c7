"""Repeatables from the shell: listed, stored, paused, fired, removed, and made those of a file."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pychasqui import BackoffSpec, Queue, RepeatPattern
from pychasqui.cli.exits import ExitCode
from pychasqui.retry import RetryOverride
from tests.cli.conftest import Finished
from tests.cli.terminals import TerminalRun, on_terminal, plain


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


FILE = """
[nightly]
name = "report"
data = {kind = "full"}
cron = "0 3 * * *"
tz = "Europe/Berlin"
start = 2090-01-31T12:00:00Z
attempts = 3
missed = "fire-once"

[clean-up]
name = "clean"
every = "5m"
limit = 10
backoff = {kind = "exponential", delay = "1s", max_delay = "1h", multiplier = 3, jitter = "50ms"}
"""


@pytest.fixture
async def stored(queue: Queue) -> Queue:
    """A queue with the repeatables `pinger` and `b`, which fires hours after the other."""
    await queue.repeatables.upsert("ping", {"a": 1}, repeat=RepeatPattern.every(300_000), key="pinger")
    hour = (datetime.now(ZoneInfo("Asia/Tokyo")).hour + 6) % 24
    await queue.repeatables.upsert(
        "\x1b[2J" + "long" * 30, repeat=RepeatPattern.cron(f"0 {hour} * * *", "Asia/Tokyo"), key="b"
    )
    return queue


async def test_a_list_in_a_pipe_has_the_official_columns_first(
    stored: Queue, chasqui: Finished, redis_url: str
) -> None:
    ended = chasqui("repeatable", "list", stored.name, CHASQUI_REDIS_URL=redis_url)
    titles, *lines = ended.stdout.splitlines()
    assert titles.split("\t")[:6] == ["key", "job_name", "pattern", "tz", "next fire", "limit"]
    assert lines[0].split("\t")[:4] == ["pinger", "ping", "every 5 m", "-"]
    assert "\\x1b[2J" in lines[1]
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize("action", ("list", "next"))
async def test_a_table_on_a_terminal_fits_80_columns(
    stored: Queue, tmp_path: Path, redis_url: str, action: str
) -> None:
    code, text = on_terminal("repeatable", action, stored.name, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
    assert code == 0
    assert "pinger" in text
    assert max(map(len, plain(text).splitlines())) <= 80


async def test_the_next_times_of_all_are_merged(stored: Queue, chasqui: Finished, redis_url: str) -> None:
    ended = chasqui("repeatable", "next", stored.name, "-n", "3", "--json", CHASQUI_REDIS_URL=redis_url)
    fires = json.loads(ended.stdout)["fires"]
    assert [fire["fires_at_ms"] for fire in fires] == sorted(fire["fires_at_ms"] for fire in fires)
    assert len(fires) == 3
    one = chasqui("repeatable", "next", stored.name, "b", "--json", CHASQUI_REDIS_URL=redis_url)
    assert {fire["key"] for fire in json.loads(one.stdout)["fires"]} == {"b"}


@pytest.mark.parametrize("action", ("next", "pause", "resume", "run", "remove"))
def test_a_key_that_does_not_exist_is_not_found(chasqui: Finished, redis_url: str, action: str) -> None:
    ended = chasqui("repeatable", action, "q", "nope", CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == ExitCode.NOT_FOUND
    assert "chasqui repeatable list q" in ended.stderr


class TestStoring:
    async def test_a_repeatable_is_stored_with_its_options(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        options = ["--key", "k", "--limit", "7", "--attempts", "2", "--missed", "fire-all", "--max-catchup", "5"]
        cron = ["--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--start", "2090-01-01", "--end", "2091-01-01"]
        ended = chasqui(
            "repeatable", "add", queue.name, "report", '{"a": 1}', *options, *cron, CHASQUI_REDIS_URL=redis_url
        )
        assert ended.stdout.startswith("stored k, fires next at 2090-01-01T02:00:00")
        found = await queue.repeatables.get("k")
        assert found is not None
        assert (found.data, found.meta.limit, found.meta.pattern.tz) == ({"a": 1}, 7, "Europe/Berlin")
        assert found.meta.missed_fires is not None
        assert found.meta.missed_fires.max_catchup == 5
        assert found.retry is not None
        assert found.retry.max_attempts == 2

    async def test_a_dry_run_shows_the_times_and_stores_nothing(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        arguments = ("repeatable", "add", queue.name, "n", "--cron", "0 3 * * *", "--start", "2090-01-01", "--dry-run")
        lines = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout.splitlines()
        assert lines[1].startswith("2090-01-01T03:00:00.000Z")
        assert len(lines) == 6
        assert await queue.repeatables.page() == []

    @pytest.mark.parametrize(
        ("bound", "days"), ((["--limit", "3"], 3), (["--end", "2090-01-02T03:00:00Z"], 2), (["--limit", "9"], 5))
    )
    async def test_a_dry_run_shows_no_time_beyond_the_limit_or_the_end(
        self, queue: Queue, chasqui: Finished, redis_url: str, bound: list[str], days: int
    ) -> None:
        arguments = ("repeatable", "add", queue.name, "n", "--cron", "0 3 * * *", "--start", "2090-01-01", *bound)
        lines = chasqui(*arguments, "--dry-run", CHASQUI_REDIS_URL=redis_url).stdout.splitlines()
        assert [line.split("\t")[0] for line in lines[1:]] == [
            f"2090-01-0{day}T03:00:00.000Z" for day in range(1, days + 1)
        ]

    async def test_a_dry_run_of_a_change_shows_the_times_that_stay(
        self, stored: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        (pinger, _) = await stored.repeatables.page()
        options = ("--every", "5m", "--key", "pinger", "--dry-run", "--json")
        arguments = ("repeatable", "add", stored.name, "pong", *options)
        fires = json.loads(chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout)["fires"]
        assert (fires[0]["fires_at_ms"], fires[0]["job_name"]) == (pinger.next_fire_ms, "pong")
        await stored.repeatables.pause("pinger")
        assert json.loads(chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout)["fires"] == []
        found = await stored.repeatables.get("pinger")
        assert found is not None
        assert found.meta.job_name == "ping"

    @pytest.mark.parametrize(
        ("options", "why"),
        (
            ([], "either --every or --cron"),
            (["--every", "5m", "--cron", "@daily"], "either --every or --cron"),
            (["--every", "5m", "--tz", "UTC"], "an interval has none"),
            (["--cron", "0 3 * *"], "must have 5 to 7"),
            (["--cron", "@daily", "--tz", "Mars/Base"], "Mars/Base"),
            (["--every", "1s", "--missed", "fire-all"], "--max-catchup go together"),
            (["--every", "1s", "--end", "2020-01-01"], "would never fire"),
        ),
    )
    def test_wrong_options_are_wrong_usage(
        self, chasqui: Finished, redis_url: str, options: list[str], why: str
    ) -> None:
        for dry_run in ([], ["--dry-run"]):
            ended = chasqui("repeatable", "add", "q", "name", *options, *dry_run, CHASQUI_REDIS_URL=redis_url)
            assert ended.returncode == ExitCode.USAGE
            assert why in ended.stderr


class TestChanging:
    async def test_a_repeatable_is_paused_and_resumed(self, stored: Queue, chasqui: Finished, redis_url: str) -> None:
        def act(action: str) -> str:
            return chasqui("repeatable", action, stored.name, "pinger", CHASQUI_REDIS_URL=redis_url).stdout

        assert [act("pause"), act("pause")] == ["pinger is paused\n", "pinger is paused already\n"]
        assert [one.key for one in await stored.repeatables.page() if one.is_paused] == ["pinger"]
        assert [act("resume"), act("resume")] == ["pinger is active\n", "pinger is active already\n"]

    async def test_a_job_of_a_repeatable_is_added_at_once(
        self, stored: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("repeatable", "run", stored.name, "pinger", CHASQUI_REDIS_URL=redis_url)
        found = await stored.get_job(ended.stdout.strip())
        assert found is not None
        assert (found.name, found.data) == ("ping", {"a": 1})

    async def test_a_removal_asks_on_a_terminal(self, stored: Queue, tmp_path: Path, redis_url: str) -> None:
        for answer, code in (("n", ExitCode.ABORTED), ("y", ExitCode.OK)):
            arguments = ("repeatable", "remove", stored.name, "pinger")
            with TerminalRun(*arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
                run.read_until("Remove repeatable pinger (every 5 m)")
                assert len(await stored.repeatables.page()) == 2
                run.answer(answer)
                assert run.finish()[0] == code
        assert [one.key for one in await stored.repeatables.page()] == ["b"]

    async def test_a_removal_in_a_pipe_answers_as_the_official_binary(
        self, stored: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        arguments = ("repeatable", "remove", stored.name, "pinger")
        assert chasqui(*arguments, "--dry-run", CHASQUI_REDIS_URL=redis_url).stdout == "would be removed\n"
        assert chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout == "removed\n"
        assert chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout == "not found\n"


class TestFile:
    async def test_a_file_is_applied_and_applied_again(
        self, stored: Queue, chasqui: Finished, redis_url: str, tmp_path: Path
    ) -> None:
        (tmp_path / "r.toml").write_text(FILE)

        def apply(*options: str) -> dict[str, str]:
            arguments = ("repeatable", "apply", stored.name, "-f", "r.toml", "--json", *options)
            answer = json.loads(chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout)
            return {one["key"]: one["action"] for one in answer["repeatables"]}

        assert apply("--dry-run") == {"nightly": "new", "clean-up": "new"}
        assert len(await stored.repeatables.page()) == 2
        assert apply() == {"nightly": "new", "clean-up": "new"}
        nightly, clean_up = await stored.repeatables.get("nightly"), await stored.repeatables.get("clean-up")
        assert nightly is not None
        assert clean_up is not None
        assert nightly.retry == RetryOverride(max_attempts=3)
        backoff = BackoffSpec.exponential(1000, multiplier=3, max_ms=3_600_000, jitter_ms=50)
        assert clean_up.retry == RetryOverride(backoff=backoff)
        assert apply() == {"nightly": "same", "clean-up": "same"}
        (tmp_path / "r.toml").write_text(FILE.replace("full", "short"))
        assert apply() == {"nightly": "changed", "clean-up": "same"}
        pruned = apply("--prune", "--yes")
        assert pruned == {"nightly": "same", "clean-up": "same", "pinger": "removed", "b": "removed"}
        assert {one.key for one in await stored.repeatables.page()} == {"nightly", "clean-up"}

    async def test_a_removal_by_a_file_is_refused_in_a_pipe(
        self, stored: Queue, chasqui: Finished, redis_url: str, tmp_path: Path
    ) -> None:
        (tmp_path / "r.toml").write_text(FILE)
        arguments = ("repeatable", "apply", stored.name, "-f", "r.toml", "--prune")
        ended = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "pinger" in ended.stderr
        assert len(await stored.repeatables.page()) == 2

    @pytest.mark.parametrize(
        ("text", "why"),
        (
            ("x =", "cannot be read as TOML"),
            ("x = 1", "is no table"),
            ("[x]\nevery = '5m'", "needs the field name"),
            ("[x]\nname = 'n'", "either every or cron"),
            ("[x]\nname = 'n'\nevery = 5", "a span in quotes"),
            ("[x]\nname = 'n'\nevery = 'soon'", "is not a span of time"),
            ("[x]\nname = 'n'\ncron = '* *'", "must have 5 to 7"),
            ("[x]\nname = 'n'\nevery = '5m'\nlimit = 0", "limit must be a whole number"),
            ("[x]\nname = 'n'\nevery = '5m'\nstart = 'now'", "start must be a time"),
            ("[x]\nname = 'n'\nevery = '5m'\nattempt = 1", "has no field 'attempt'"),
            ("[x]\nname = 'n'\nevery = '5m'\nbackoff = 5", "backoff must be a span in quotes"),
            ("[x]\nname = 'n'\nevery = '5m'\nbackoff = {kind = 'fixed'}", "backoff.delay must be a span in quotes"),
            ("[x]\nname = 'n'\nevery = '5m'\nbackoff = {kind = 'odd', delay = '1s'}", 'must be "exponential", or'),
            ("[x]\nname = 'n'\nevery = '5m'\nbackoff = {wait = '1s'}", "backoff has no field 'wait'"),
            (f"[x]\nname = '{'n' * 10_000}'\nevery = '5m'", "repeatable 'x' of the file: name "),
            ("[x]\nname = 'n'\nevery = '5m'\nend = 2020-01-01T00:00:00Z", "would never fire"),
            ("[x]\nname = 'n'\nevery = '5m'\ndata = 99999999999999999999999", "repeatable 'x' of the file: "),
        ),
    )
    async def test_a_wrong_file_stores_nothing(
        self, queue: Queue, chasqui: Finished, redis_url: str, tmp_path: Path, text: str, why: str
    ) -> None:
        (tmp_path / "r.toml").write_text(FILE.replace("nightly", "first") + text if "[" in text else text)
        for dry_run in (["--dry-run"], []):
            ended = chasqui("repeatable", "apply", queue.name, "-f", "r.toml", *dry_run, CHASQUI_REDIS_URL=redis_url)
            assert ended.returncode == ExitCode.USAGE
            assert why in ended.stderr
        assert await queue.repeatables.page() == []
