"""Jobs added from the shell, queues paused, resumed and purged, and thresholds checked."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis.asyncio

from pychasqui import Job, Queue, Worker
from pychasqui.cli.exits import ExitCode
from tests.cli.conftest import Chasqui, Finished
from tests.cli.terminals import TerminalRun, on_terminal, plain
from tests.support.server import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@contextmanager
def script_calls_paused(server: RedisServer) -> Iterator[Callable[[], bool]]:
    """Redis answers no script. Yields whether one more of its clients waits for one."""

    def count_waiting() -> int:
        return server.execute("CLIENT", "LIST").count(b"cmd=ev")

    before = count_waiting()
    server.execute("CLIENT", "PAUSE", "20000", "WRITE")
    try:
        yield lambda: count_waiting() > before
    finally:
        server.execute("CLIENT", "UNPAUSE")


class TestAdding:
    async def test_a_job_is_added_and_its_id_written(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("add", queue.name, "hello", '{"a": [1, null]}', CHASQUI_REDIS_URL=redis_url)
        found = await queue.get_job(ended.stdout.strip())
        assert found is not None
        assert (found.name, found.data) == ("hello", {"a": [1, None]})

    async def test_the_data_comes_from_a_file(
        self, queue: Queue, chasqui: Finished, redis_url: str, tmp_path: Path
    ) -> None:
        (tmp_path / "d.json").write_text('{"b": "é"}')
        ended = chasqui("add", queue.name, "hello", "@d.json", "--json", CHASQUI_REDIS_URL=redis_url)
        found = await queue.get_job(json.loads(ended.stdout)["id"])
        assert found is not None
        assert found.data == {"b": "é"}
        missing = chasqui("add", queue.name, "hello", "@none.json", CHASQUI_REDIS_URL=redis_url)
        assert (missing.returncode, "none.json" in missing.stderr) == (ExitCode.USAGE, True)

    async def test_a_job_is_delayed_and_one_of_its_id(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        due = datetime.now(timezone(timedelta(hours=1))).replace(microsecond=0) + timedelta(days=30)
        at = ("add", queue.name, "later", "--at", due.isoformat(), "--id", "a1", "--json")
        answers = [json.loads(chasqui(*at, CHASQUI_REDIS_URL=redis_url).stdout) for _ in range(2)]
        assert [answer["is_new"] for answer in answers] == [True, False]
        chasqui("add", queue.name, "later", "--delay", "2h", CHASQUI_REDIS_URL=redis_url)
        assert (await queue.counts()).delayed == 2
        assert (await queue.status("a1")).due_ms == due.timestamp() * 1000

    @pytest.mark.parametrize(
        ("arguments", "why"),
        (
            (["{x"], "the data is not JSON"),
            (["NaN"], "JSON has no NaN: write null"),
            (["[-Infinity]"], "JSON has no -Infinity: write null"),
            (['{"a": -1e999}'], "-1e999 is larger than a number can be: write it as a text"),
            (["[" * 100_000], "nested too deeply"),
            (["--delay", "5m", "--at", "2030-01-01"], "contradict each other"),
            (["--at", "tomorrow"], "is not a time"),
            (["-", "--id", "x"], "for one job"),
            (["--id", ""], "job_id"),
        ),
    )
    def test_wrong_arguments_are_wrong_usage(
        self, chasqui: Finished, redis_url: str, arguments: list[str], why: str
    ) -> None:
        ended = chasqui("add", "q", "name", *arguments, CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert why in ended.stderr

    def test_lines_without_a_name_for_their_jobs_are_wrong_usage(self, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("add", "q", "-", stdin="1\n", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "chasqui add q NAME -" in ended.stderr

    async def test_each_line_of_standard_input_becomes_a_job(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        lines = "".join(f'{{"i": {number}}}\n\n' for number in range(2500))
        dry = chasqui("add", queue.name, "n", "-", "--dry-run", stdin=lines, CHASQUI_REDIS_URL=redis_url)
        assert (dry.stdout, (await queue.counts()).waiting) == ("would add 2500 jobs\n", 0)
        ended = chasqui("add", queue.name, "n", "-", stdin=lines, CHASQUI_REDIS_URL=redis_url)
        assert (ended.stdout, ended.stderr) == ("added 2500 jobs\n", "")
        page = await queue.jobs("waiting", limit=1000)
        assert [job.data["i"] for job in page.jobs] == list(range(1000))

    async def test_a_wrong_line_is_named_with_what_was_added_before(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        ended = chasqui("add", queue.name, "n", "-", stdin="1\n" * 1000 + "{\n", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.FAILED
        assert "line 1001 of standard input is not JSON" in ended.stderr
        assert "the first 1,000 jobs are in the queue" in ended.stderr
        assert (await queue.counts()).waiting == 1000

    async def test_a_bar_moves_on_a_terminal(self, queue: Queue, redis_url: str, tmp_path: Path) -> None:
        lines = tmp_path / "lines"
        lines.write_text("1\n" * 100_000)
        arguments = ("add", queue.name, "n", "-")
        with (
            lines.open() as source,
            TerminalRun(*arguments, folder=tmp_path, stdin=source.fileno(), CHASQUI_REDIS_URL=redis_url) as run,
        ):
            code, text = run.finish()
        bars = [line for line in plain(text).replace("\r", "\n").splitlines() if line.startswith("adding")]
        assert code == 0
        assert len(set(bars)) >= 3
        assert all(" of 100,000" in bar and len(bar) < 80 for bar in bars)
        assert "added 100000 jobs" in text

    async def test_an_add_that_is_interrupted_says_how_many_jobs_it_has_added(
        self, queue: Queue, start: Chasqui, redis_url: str
    ) -> None:
        process = start("add", queue.name, "send", "-", has_stdin=True, CHASQUI_REDIS_URL=redis_url)
        assert process.stdin is not None
        process.stdin.write("1\n" * 1005)  # of which the last five wait for others
        process.stdin.flush()

        async def are_added() -> bool:
            return (await queue.counts()).waiting == 1000

        await eventually(are_added, timeout=20)
        await asyncio.sleep(0.2)  # until it has the answer, and waits for the next line
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.to_thread(process.communicate, timeout=20)
        assert (await queue.counts()).waiting == 1000
        assert process.returncode == ExitCode.INTERRUPTED
        assert err.strip() == "interrupted: the first 1,000 jobs are in the queue"

    async def test_an_add_that_is_interrupted_while_redis_is_silent_names_both_bounds(
        self, queue: Queue, start: Chasqui, redis_url: str, server: RedisServer
    ) -> None:
        with script_calls_paused(server) as one_waits:
            process = start("add", queue.name, "send", "-", has_stdin=True, CHASQUI_REDIS_URL=redis_url)
            assert process.stdin is not None
            process.stdin.write("1\n" * 1000)
            process.stdin.flush()
            await eventually(one_waits, timeout=20)
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == ExitCode.INTERRUPTED
        assert err.strip() == "interrupted: 0 to 1,000 jobs are in the queue"

    async def test_ctrl_c_ends_an_add_that_waits_for_lines(self, redis_url: str, tmp_path: Path) -> None:
        with TerminalRun("add", "q", "n", "-", folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
            run.read_until("adding 0")
            run.interrupt()
            code, text = run.finish()
        assert code == ExitCode.INTERRUPTED
        assert "Traceback" not in text

    async def test_a_result_is_awaited_and_written(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        async def handle(job: Job) -> int:
            if job.data is None:
                raise ValueError("no data")
            return int(job.data) * 2

        async with Worker(queue.name, handle, redis_url=redis_url, store_results=True, max_attempts=1) as worker:
            running = asyncio.create_task(worker.run())
            arguments = ("add", queue.name, "double", "21", "--wait")
            ended = await asyncio.to_thread(chasqui, *arguments, CHASQUI_REDIS_URL=redis_url)
            failed = await asyncio.to_thread(chasqui, "add", queue.name, "n", "--wait", CHASQUI_REDIS_URL=redis_url)
            await worker.close()
            await running
        assert (ended.stdout, ended.returncode) == ("42\n", 0)
        assert failed.returncode == ExitCode.FAILED
        assert f"chasqui dlq show {queue.name}" in failed.stderr

    def test_a_wait_ends_with_its_timeout(self, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("add", "q", "n", "--wait", "--timeout", "200ms", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.FAILED
        assert "no worker lives" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    (
        ["add", "a}b", "n"],
        ["pause", "a}b"],
        ["purge", "a}b", "--state", "dead"],
        ["check", "a}b", "--max-dlq", "0"],
        ["dlq", "list", "a}b"],
        ["repeatable", "list", "a}b"],
    ),
)
def test_a_wrong_name_of_a_queue_is_wrong_usage(chasqui: Finished, redis_url: str, arguments: list[str]) -> None:
    ended = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == ExitCode.USAGE
    assert "must not hold a }" in ended.stderr


class TestQueueState:
    async def test_a_queue_is_paused_and_resumed(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        def act(action: str) -> str:
            return chasqui(action, queue.name, CHASQUI_REDIS_URL=redis_url).stdout

        assert [act("pause"), act("pause")] == [
            f"queue {queue.name} is paused\n",
            f"queue {queue.name} is paused already\n",
        ]
        assert await queue.is_paused()
        assert [act("resume"), act("resume")] == [
            f"queue {queue.name} is resumed\n",
            f"queue {queue.name} is not paused\n",
        ]
        assert not await queue.is_paused()

    async def test_an_unknown_queue_is_paused_and_named_with_the_one_that_may_be_meant(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        await queue.add("n")
        async with Queue(f"{queue.name}x", redis_url=redis_url) as wrong:
            for action, said in (("pause", "is paused"), ("pause", "is paused already"), ("resume", "is resumed")):
                ended = chasqui(action, wrong.name, CHASQUI_REDIS_URL=redis_url)
                assert (ended.returncode, ended.stdout) == (0, f"queue {wrong.name} {said}\n")
                assert ended.stderr == (
                    f"no queue {wrong.name} is known at this Redis; did you mean {queue.name}? "
                    "chasqui ps lists those that are\n"
                )
                assert await wrong.is_paused() == (action == "pause")

    async def test_one_job_is_no_plural(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        added = chasqui("add", queue.name, "n", "-", stdin="1\n", CHASQUI_REDIS_URL=redis_url)
        paused = chasqui("pause", queue.name, CHASQUI_REDIS_URL=redis_url)
        chasqui("resume", queue.name, CHASQUI_REDIS_URL=redis_url)
        passed = chasqui("check", queue.name, "--max-dlq", "0", "--nagios", CHASQUI_REDIS_URL=redis_url)
        purged = chasqui("purge", queue.name, "--state", "waiting", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert (added.stdout, paused.stderr) == ("added 1 job\n", "1 job waiting, 0 running\n")
        assert passed.stdout.startswith("CHASQUI OK - 1 check passed | ")
        assert (purged.stdout, purged.stderr) == (
            "removed 1 waiting job\n",
            f"queue {queue.name} will lose 1 waiting job for good; 0 running jobs will stay\n",
        )

    async def test_a_purge_asks_for_the_name_of_the_queue(self, queue: Queue, tmp_path: Path, redis_url: str) -> None:
        await queue.add_bulk([{"name": "n"}] * 3)
        await queue.add("n", delay_ms=60_000)
        for answer, code, left in (("yes", ExitCode.ABORTED, 3), (queue.name, ExitCode.OK, 0)):
            arguments = ("purge", queue.name, "--state", "waiting")
            with TerminalRun(*arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
                shown = run.read_until(f"Type {queue.name} to go on:")
                assert "will lose 3 waiting jobs for good" in shown
                run.answer(answer)
                assert run.finish()[0] == code
            assert (await queue.counts())[:3] == (left, 0, 1)

    async def test_a_purge_in_a_pipe_needs_yes(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        await queue.add("n", delay_ms=60_000)
        arguments = ("purge", queue.name, "--state", "delayed", "--state", "dead")
        refused = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url)
        assert (refused.returncode, "--yes" in refused.stderr) == (ExitCode.USAGE, True)
        dry = chasqui(*arguments, "--dry-run", CHASQUI_REDIS_URL=redis_url)
        assert dry.stdout == "would remove 1 delayed job and 0 dead jobs\n"
        assert (await queue.counts()).delayed == 1
        ended = chasqui(*arguments, "--yes", "--json", CHASQUI_REDIS_URL=redis_url)
        assert json.loads(ended.stdout)["removed"] == {"delayed": 1, "dead": 0}
        assert (await queue.counts()).delayed == 0

    async def test_a_purge_that_is_interrupted_says_how_far_it_came(
        self, queue: Queue, start: Chasqui, redis_url: str, server: RedisServer
    ) -> None:
        await queue.add("x")
        with script_calls_paused(server) as one_waits:
            process = start("purge", queue.name, "--state", "waiting", "--yes", CHASQUI_REDIS_URL=redis_url)
            await eventually(one_waits, timeout=20)
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.to_thread(process.communicate, timeout=20)
        assert process.returncode == ExitCode.INTERRUPTED
        assert "interrupted: removed 0 of 1, and perhaps some more" in err
        assert "Traceback" not in err

    def test_a_purge_needs_a_state(self, chasqui: Finished, redis_url: str) -> None:
        ended = chasqui("purge", "q", "--yes", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.USAGE
        assert "waiting" in ended.stderr


class TestCheck:
    async def test_thresholds_that_hold_are_ok(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        await queue.add("n")
        thresholds = ("--max-waiting", "1", "--max-lag", "1h", "--max-dlq", "0", "--min-workers", "0")
        ended = chasqui("check", queue.name, *thresholds, CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == 0
        assert [line.split("\t")[4] for line in ended.stdout.splitlines()[1:]] == ["ok"] * 4
        nagios = chasqui("check", queue.name, *thresholds, "--nagios", CHASQUI_REDIS_URL=redis_url)
        assert nagios.returncode == 0
        assert nagios.stdout.startswith("CHASQUI OK - 4 checks passed | ")
        assert f"'{queue.name} waiting'=1;;1" in nagios.stdout

    @pytest.mark.parametrize(
        ("threshold", "check"),
        (
            (["--max-waiting", "2"], "waiting"),
            (["--max-depth", "2"], "waiting"),
            (["--max-lag", "0"], "lag"),
            (["--min-workers", "1"], "workers"),
        ),
    )
    async def test_a_breached_threshold_has_its_exit_code(
        self, queue: Queue, chasqui: Finished, redis_url: str, threshold: list[str], check: str
    ) -> None:
        await queue.add_bulk([{"name": "n"}] * 3)
        ended = chasqui("check", queue.name, *threshold, "--json", CHASQUI_REDIS_URL=redis_url)
        answer = json.loads(ended.stdout)
        assert (ended.returncode, answer["is_breached"]) == (ExitCode.BREACHED, True)
        assert [one["check"] for one in answer["checks"]] == [check]
        nagios = chasqui("check", queue.name, *threshold, "--nagios", CHASQUI_REDIS_URL=redis_url)
        assert nagios.returncode == 2
        assert nagios.stdout.startswith(f"CHASQUI CRITICAL - {queue.name}: {check} ")

    def test_a_name_cannot_change_the_line_for_nagios(self, chasqui: Finished, redis_url: str) -> None:
        arguments = ("check", "a'b|c=1", "--min-workers", "1", "--nagios")
        line = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).stdout
        assert line == (
            "CHASQUI CRITICAL - a'b/c=1: workers 0 (at least 1), no queue a'b/c=1 is known at this Redis; "
            "chasqui ps lists queues | 'a_b_c_1 workers'=0;;1:\n"
        )

    async def test_a_queue_that_is_not_known_does_not_pass(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        await queue.add("n")
        wrong = f"{queue.name}x"
        arguments = ("check", queue.name, wrong, "--max-waiting", "5")
        said = f"no queue {wrong} is known at this Redis; did you mean {queue.name}? chasqui ps lists those that are"
        ended = chasqui(*arguments, "--json", CHASQUI_REDIS_URL=redis_url)
        assert (ended.returncode, ended.stderr) == (ExitCode.NOT_FOUND, f"Error: {said}\n")
        assert [one["state"] for one in json.loads(ended.stdout)["checks"]] == ["ok", "unknown"]
        nagios = chasqui(*arguments, "--nagios", CHASQUI_REDIS_URL=redis_url)
        assert (nagios.returncode, nagios.stdout.partition(" | ")[0]) == (3, f"CHASQUI UNKNOWN - {said}")
        breached = chasqui(*arguments, "--min-workers", "1", CHASQUI_REDIS_URL=redis_url)
        assert (breached.returncode, breached.stderr) == (ExitCode.BREACHED, f"{said}\n")

    async def test_a_paused_queue_is_a_warning_for_nagios(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        await queue.pause()
        ended = chasqui("check", queue.name, "--max-dlq", "1k", "--nagios", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == 1
        assert ended.stdout.startswith(f"CHASQUI WARNING - {queue.name}: paused | ")

    @pytest.mark.parametrize(
        ("arguments", "why"),
        (
            (["--max-waitin", "5"], "No such option"),
            (["--max-waiting", "many"], "is not a number"),
            ([], "give a threshold"),
            (["--max-dlq", "1", "--redis-url", "ftp://h"], "unknown scheme"),
        ),
    )
    def test_wrong_usage_is_unknown_to_nagios(self, chasqui: Finished, arguments: list[str], why: str) -> None:
        ended = chasqui("check", "q", "--nagios", *arguments)
        assert ended.returncode == 3
        assert ended.stdout.startswith("CHASQUI UNKNOWN - wrong usage: ")
        assert why in ended.stdout
        assert chasqui("check", "q", *arguments).returncode == ExitCode.USAGE

    async def test_official_workers_are_counted(
        self, queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str
    ) -> None:
        stream = f"{{chasqui:{queue.name}}}:stream"
        await witness.xgroup_create(stream, "default", "0", mkstream=True)
        await witness.xgroup_createconsumer(stream, "default", "official")
        assert chasqui("check", queue.name, "--min-workers", "1", CHASQUI_REDIS_URL=redis_url).returncode == 0

    async def test_a_queue_that_cannot_be_read_is_unknown_to_nagios(
        self, queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str
    ) -> None:
        await witness.set(f"{{chasqui:{queue.name}}}:stream", "x")
        arguments = ("check", queue.name, "--max-dlq", "1")
        assert chasqui(*arguments, "--nagios", CHASQUI_REDIS_URL=redis_url).returncode == 3
        assert chasqui(*arguments, CHASQUI_REDIS_URL=redis_url).returncode == ExitCode.FAILED

    def test_a_server_that_is_away_is_unknown_to_nagios(self, chasqui: Finished) -> None:
        arguments = ("check", "q", "--max-dlq", "0", "--redis-url", "redis://name:secret@127.0.0.1:1")
        ended = chasqui(*arguments, "--nagios")
        assert ended.returncode == 3
        assert ended.stdout.startswith("CHASQUI UNKNOWN - cannot reach ")
        assert "secret" not in ended.stdout
        assert chasqui(*arguments).returncode == ExitCode.REDIS

    async def test_all_queues_are_checked_without_a_name(self, queue: Queue, chasqui: Finished, redis_url: str) -> None:
        arguments = ("check", "--max-waiting", "1", "--max-lag", "1h", "--json")
        ended = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url)
        assert (ended.returncode, json.loads(ended.stdout)["checks"]) == (ExitCode.OK, [])
        await queue.add_bulk([{"name": "mail"}] * 2)
        async with Queue("other", redis_url=redis_url) as other:
            await other.add("mail")
        ended = chasqui(*arguments, CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == ExitCode.BREACHED
        checks = {(one["queue"], one["check"]): one["state"] for one in json.loads(ended.stdout)["checks"]}
        assert checks == {
            (queue.name, "waiting"): "breached",
            (queue.name, "lag"): "ok",
            ("other", "waiting"): "ok",
            ("other", "lag"): "ok",
        }

    async def test_a_table_on_a_terminal_fits_80_columns(self, queue: Queue, tmp_path: Path, redis_url: str) -> None:
        arguments = ("check", queue.name, "x" * 70, "--max-waiting", "2M", "--max-lag", "90s")
        code, text = on_terminal(*arguments, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
        assert code == ExitCode.NOT_FOUND
        table, _, _ = plain(text).partition("Error: ")  # of queues that are not known
        assert "at most 2,000,000" in table
        assert max(map(len, table.splitlines())) <= 80

    @pytest.mark.parametrize("arguments", ([], ["--max-dlq", "1e3"], ["--max-dlq", "-1"]))
    def test_a_check_needs_thresholds(self, chasqui: Finished, redis_url: str, arguments: list[str]) -> None:
        assert chasqui("check", "q", *arguments, CHASQUI_REDIS_URL=redis_url).returncode == ExitCode.USAGE
