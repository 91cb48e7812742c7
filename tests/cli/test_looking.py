"""ps, inspect, watch, events, workers, jobs and job, on real queues: their tables, their lines and their JSON."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import Job, JobCancelled, Queue, Queues, Worker
from pychasqui._redis.keys import REGISTRY
from tests.cli.conftest import Chasqui, Finished
from tests.cli.terminals import TerminalRun, on_terminal, plain
from tests.support.gate import Gate
from tests.support.server import RedisServer
from tests.support.waiting import eventually, first_below

EVIL = "x\x1b[2J\ny"
TITLES = ["queue", "waiting", "running", "delayed", "dead", "done/s", "oldest", "workers", "state"]


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@pytest.fixture
def url(redis_url: str) -> str:
    return redis_url


@pytest.fixture
async def emails(url: str) -> AsyncIterator[Queue]:
    async with Queue("emails", redis_url=url) as queue:
        yield queue
        await queue.obliterate()


async def run(chasqui: Finished, url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Beside the workers of the test, which run in this loop."""
    return await asyncio.to_thread(chasqui, *arguments, CHASQUI_REDIS_URL=url, **environment)


async def answer(chasqui: Finished, url: str, *arguments: str) -> dict[str, Any]:
    ended = await run(chasqui, url, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["schema"] == 1
    return found


def child_seconds() -> float:
    """The processor time of all processes that this one has started and that have ended: others do not matter."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


class TestPs:
    async def test_every_queue_has_a_row(self, chasqui: Finished, url: str, emails: Queue) -> None:
        await emails.add_bulk([{"name": "mail"}] * 3)
        await emails.add("mail", delay_ms=3_600_000)
        async with Queue("reports", redis_url=url) as reports, Queue("later", redis_url=url) as later:
            await reports.add("report")
            await reports.pause()
            await later.add("job", delay_ms=3_600_000)
            found = await answer(chasqui, url, "ps")
            table = await run(chasqui, url, "ps")
        one, two, three = found["queues"]
        assert [queue["name"] for queue in (one, two, three)] == ["emails", "later", "reports"]
        assert (one["waiting"], one["running"], one["delayed"], one["dead"], one["workers"]) == (3, 0, 1, 0, 0)
        assert (one["state"], two["state"], three["state"]) == ("no worker", "ok", "paused")
        assert (three["is_paused"], two["oldest_age_ms"], one["rate"]) == (True, None, 0)
        assert one["oldest_age_ms"] < 60_000
        titles, *lines = rows(table.stdout)
        assert titles == TITLES
        assert lines[0][:6] == ["emails", "3", "0", "1", "0", "0.0"]
        assert lines[0][6].endswith("s")
        assert table.stderr == ""

    @pytest.mark.parametrize("alias", ("status", "queues"))
    async def test_an_alias_shows_the_queues_that_are_named(
        self, chasqui: Finished, url: str, emails: Queue, alias: str
    ) -> None:
        await emails.add("mail")
        found = await answer(chasqui, url, alias, "nothing", "emails", "nothing")
        assert [(queue["name"], queue["waiting"]) for queue in found["queues"]] == [("nothing", 0), ("emails", 1)]

    async def test_a_rate_and_workers_are_shown_while_jobs_run(
        self, chasqui: Finished, url: str, emails: Queue
    ) -> None:
        async with Worker("emails", lambda job: None, redis_url=url):
            await emails.add_bulk([{"name": "mail"}] * 100)

            async def has_rate() -> bool:
                (queue,) = (await answer(chasqui, url, "ps", "emails"))["queues"]
                return bool(queue["rate"] > 0 and queue["workers"] == 1 and queue["state"] == "ok")

            await eventually(has_rate, every=0.1)

    async def test_a_queue_that_cannot_be_read_has_its_error(
        self, chasqui: Finished, url: str, emails: Queue, witness: redis.asyncio.Redis
    ) -> None:
        await emails.add("mail")
        await witness.set("{chasqui:broken}:stream", "text")
        found = await answer(chasqui, url, "ps")
        assert found["queues"][0]["error"].startswith("WRONGTYPE")
        assert found["queues"][1]["waiting"] == 1

    async def test_keys_that_no_queue_can_have_are_passed_over(
        self, url: str, witness: redis.asyncio.Redis, queue: Queue
    ) -> None:
        await queue.add("mail")
        for key in ("{chasqui:\x1b[2J}:stream", "{chasqui:}:dlq", "{chasqui:b}:strange", "other"):
            await witness.set(key, "1")
        for number in range(50):
            await witness.set(f"{{chasqui:results}}:result:{number}", "1")
        async with Queues(url) as queues:
            assert await queues.find_names() == ([queue.name], True)
            assert await queues.find_names(within_s=0) == ([queue.name], True)
        await queue.obliterate()

    async def test_a_terminal_of_80_columns_gets_a_table_that_fits(
        self, url: str, emails: Queue, tmp_path: Path
    ) -> None:
        await emails.add("mail")
        async with Queue("a-queue-whose-name-is-longer-than-a-line-of-a-terminal-has-room" * 2, redis_url=url) as long:
            await long.add_bulk([{"name": "x"}] * 20_000)
            code, text = await asyncio.to_thread(on_terminal, "ps", folder=tmp_path, CHASQUI_REDIS_URL=url)
            await long.obliterate()
        lines = plain(text).splitlines()
        assert code == 0
        assert max(map(len, lines)) <= 80
        assert lines[0].split() == [
            "queue",
            "waiting",
            "running",
            "delayed",
            "dead",
            "done/s",
            "oldest",
            "workers",
            "state",
        ]
        assert "20,000" in lines[1]
        assert "…" in lines[1]

    async def test_a_user_without_scan_names_the_queues(
        self, chasqui: Finished, url: str, emails: Queue, server: RedisServer
    ) -> None:
        await emails.add("mail")
        server.execute("ACL", "SETUSER", "reader", "on", ">secret", "~{chasqui:*", "+@all", "-scan")
        address = f"redis://reader:secret@127.0.0.1:{server.port}"
        ended = await run(chasqui, address, "ps")
        assert (ended.returncode, ended.stdout) == (4, "")
        refused = "this user may neither read the registry of queues nor look for queues by SCAN"
        assert ended.stderr == f"Error: {refused}: name the queues\n"
        (queue,) = (await answer(chasqui, address, "ps", "emails"))["queues"]
        assert queue["waiting"] == 1
        server.execute("ACL", "SETUSER", "reader", f"~{REGISTRY}")
        ended = await run(chasqui, address, "ps", "--json")
        assert [queue["name"] for queue in json.loads(ended.stdout)["queues"]] == ["emails"]
        assert "may be missing" in ended.stderr
        server.execute("ACL", "DELUSER", "reader")

    async def test_a_server_without_queues_is_said_to_have_none(self, chasqui: Finished, url: str) -> None:
        ended = await run(chasqui, url, "ps")
        assert (ended.returncode, ended.stderr) == (0, "there are no queues\n")

    async def test_200_queues_take_one_connection_and_little_time(self, url: str, witness: redis.asyncio.Redis) -> None:
        for number in range(200):
            await witness.xadd(f"{{chasqui:q-{number:03}}}:stream", {"d": "x"})
        async with Queues(url) as queues:
            began = monotonic()
            found = await queues.find_names(within_s=30)
            overviews = await queues.overview(found.names)
            took = monotonic() - began
        assert [one.name for one in overviews] == [f"q-{number:03}" for number in range(200)]
        assert {one.waiting for one in overviews} == {1}
        assert took < 2  # 0.15 s, on a machine that has nothing else to do
        await witness.flushall()


class TestInspect:
    async def test_the_rows_are_the_official_ones(
        self, chasqui: Finished, url: str, emails: Queue, witness: redis.asyncio.Redis
    ) -> None:
        await emails.add_bulk([{"name": "mail"}] * 5)
        ended = await run(chasqui, url, "inspect", "emails")
        assert rows(ended.stdout) == [
            ["emails"],
            ["fact", "value"],
            ["stream depth", "5"],
            ["pending", "0 (group not created)"],
            ["DLQ depth", "0"],
            ["delayed depth", "0"],
            ["oldest delayed lag (ms)", "-"],
            ["repeatable count", "0"],
        ]
        key = "{chasqui:emails}:stream"
        await witness.xgroup_create(key, "default", "0")
        await witness.xgroup_create(key, "night", "0")
        await witness.xreadgroup("default", "c", {key: ">"}, count=2)
        await witness.xreadgroup("night", "c", {key: ">"}, count=4)
        await emails.add("mail", delay_ms=3_600_000)
        await emails.repeatables.upsert("mail", repeat={"kind": "every", "interval_ms": 60_000})
        (facts,) = (await answer(chasqui, url, "inspect", "emails"))["queues"]
        assert facts == {
            "queue": "emails",
            "stream_depth": 5,
            "pending": 2,
            "group_exists": True,
            "dlq_depth": 0,
            "delayed_depth": 1,
            "oldest_delayed_lag_ms": 0,
            "repeatable_count": 1,
        }
        (facts,) = (await answer(chasqui, url, "inspect", "emails", "--group", "night"))["queues"]
        assert facts["pending"] == 4

    @pytest.mark.parametrize("due_ms", (1000, float("-inf")))
    async def test_a_job_that_is_overdue_has_a_lag(self, url: str, witness: redis.asyncio.Redis, due_ms: float) -> None:
        await witness.zadd("{chasqui:emails}:delayed", {"a": due_ms, "b": float("inf")})
        async with Queues(url) as queues:
            lag_ms = (await queues.official_facts("emails")).oldest_delayed_lag_ms
            assert lag_ms is not None
            assert lag_ms > 1_000_000_000_000
            await witness.zrem("{chasqui:emails}:delayed", "a")
            assert (await queues.official_facts("emails")).oldest_delayed_lag_ms == 0
        await witness.flushall()

    async def test_all_queues_are_shown_without_a_name(self, chasqui: Finished, url: str, emails: Queue) -> None:
        await emails.add("mail")
        async with Queue("reports", redis_url=url) as reports:
            await reports.add("report")
            ended = await run(chasqui, url, "inspect")
        assert [line for line in ended.stdout.splitlines() if line and "\t" not in line] == ["emails", "reports"]


class TestWatch:
    async def test_a_terminal_is_redrawn_until_ctrl_c(self, url: str, emails: Queue, tmp_path: Path) -> None:
        def watch() -> tuple[int, str]:
            with TerminalRun("watch", "emails", "--interval-ms", "50", folder=tmp_path, CHASQUI_REDIS_URL=url) as run:
                run.read_until("+0")
                asyncio.run_coroutine_threadsafe(add(), loop).result(timeout=20)
                run.read_until("+7")
                began = monotonic()
                run.interrupt()
                code, text = run.finish()
                assert monotonic() - began < 10
                return code, text

        async def add() -> None:
            await emails.add_bulk([{"name": "mail"}] * 7)

        loop = asyncio.get_running_loop()
        code, text = await asyncio.to_thread(watch)
        assert code == 130
        assert text.count("\x1b[2J") == 1
        assert text.count("\x1b[H") >= 2
        assert "Traceback" not in text

    async def test_json_has_one_line_a_look(self, start: Chasqui, url: str, emails: Queue) -> None:
        process = start("watch", "emails", "--json", "--interval-ms", "50", CHASQUI_REDIS_URL=url)
        assert process.stdout is not None
        looks = [json.loads(await asyncio.to_thread(process.stdout.readline)) for _ in range(3)]
        assert [look["stream_depth"] for look in looks] == [0, 0, 0]
        assert looks[0]["at_ms"] < looks[2]["at_ms"]
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 20) == 130


class TestEvents:
    async def test_a_line_has_the_official_parts_in_order(
        self, chasqui: Finished, url: str, witness: redis.asyncio.Redis, emails: Queue
    ) -> None:
        fields = {"e": "failed", "id": "j1", "ts": 5, "n": "mail", "zeta": "z" * 100, "attempt": 2, "bad": EVIL}
        await witness.xadd("{chasqui:emails}:events", fields, id="1000-1")
        await witness.xadd("{chasqui:emails}:events", {"e": "drained", "id": "", "ts": 6}, id="2000-0")
        ended = await run(chasqui, url, "events", "emails", "--from", "0", "--limit", "2")
        assert ended.stdout.splitlines() == [
            "1970-01-01T00:00:01.000Z 1000-1 failed id=j1 name=mail attempt=2 bad=x\\x1b[2J\\ny ts=5 zeta="
            + "z" * 79
            + "…",
            "1970-01-01T00:00:02.000Z 2000-0 drained ts=6",
        ]
        ended = await run(chasqui, url, "events", "emails", "--from", "1000-1", "--limit", "1", "--json")
        assert json.loads(ended.stdout) == {
            "schema": 1,
            "at": "1970-01-01T00:00:02.000Z",
            "at_ms": 2000,
            "event_id": "2000-0",
            "event": "drained",
            "job_id": None,
            "job_name": "",
            "fields": {"ts": 6},
        }
        await witness.xadd("{chasqui:emails}:events", {"e": "active", "id": "j2", "ts": 7}, id="3000-0")
        for more in (["--event", "active"], ["--job", "j2"]):
            ended = await run(chasqui, url, "events", "emails", "--from", "0", "--limit", "1", *more)
            assert "3000-0 active id=j2" in ended.stdout

    async def test_new_events_are_shown_until_ctrl_c(self, start: Chasqui, url: str, emails: Queue) -> None:
        process = start("events", "emails", CHASQUI_REDIS_URL=url, PYTHONUNBUFFERED="1")
        assert process.stdout is not None
        reading = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
        async with Worker("emails", lambda job: None, redis_url=url):
            while not reading.done():  # it may not have begun to listen when the first job runs
                await emails.add("mail")
                await asyncio.sleep(0.2)
        assert " active id=" in await reading
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 20) == 130

    async def test_a_reader_that_goes_away_ends_it_quietly(
        self, start: Chasqui, url: str, witness: redis.asyncio.Redis, emails: Queue
    ) -> None:
        for number in range(1, 3000):
            await witness.xadd("{chasqui:emails}:events", {"e": "drained", "ts": number})
        process = start("events", "emails", "--from", "0", CHASQUI_REDIS_URL=url)
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.to_thread(process.stdout.readline)
        process.stdout.close()
        assert await asyncio.to_thread(process.wait, 20) == 1
        assert process.stderr.read() == ""

    @pytest.mark.parametrize("position", ("yesterday", "1-2-3"))
    async def test_a_position_that_is_none_is_wrong_usage(self, chasqui: Finished, url: str, position: str) -> None:
        ended = await run(chasqui, url, "events", "emails", "--from", position)
        assert ended.returncode == 2
        assert f"Invalid value for '--from': '{position}' must be $ for the next event" in ended.stderr


class TestWorkers:
    async def test_a_worker_is_shown_with_what_it_runs(
        self, chasqui: Finished, url: str, emails: Queue, tmp_path: Path
    ) -> None:
        gate = Gate()
        async with Worker("emails", gate, redis_url=url, concurrency=5, consumer_id="w-1", lease_ms=1500):
            job = await emails.add("mail")

            async def is_shown() -> bool:
                found = (await answer(chasqui, url, "workers"))["workers"]
                return len(found) == 1 and found[0]["job_ids"] == [job.id]

            await eventually(is_shown, every=0.1)
            (worker,) = (await answer(chasqui, url, "workers", "emails"))["workers"]
            _, text = await asyncio.to_thread(on_terminal, "workers", folder=tmp_path, CHASQUI_REDIS_URL=url)
            gate.opened.set()
        assert (worker["queue"], worker["worker"], worker["pid"]) == ("emails", "w-1", os.getpid())
        assert (worker["busy"], worker["concurrency"]) == (1, 5)
        assert max(map(len, plain(text).splitlines())) <= 80
        assert plain(text).split()[:2] == ["queue", "worker"]
        assert "w-1" in text

    async def test_a_queue_without_workers_is_said_to_have_none(self, chasqui: Finished, url: str) -> None:
        ended = await run(chasqui, url, "workers", "emails")
        assert (ended.returncode, ended.stderr) == (0, "no worker lives\n")


class TestJobs:
    async def test_each_state_has_its_jobs(self, chasqui: Finished, url: str, emails: Queue, tmp_path: Path) -> None:
        gate = Gate()

        async def handle(job: Job) -> None:
            if job.name == "bad":
                raise ValueError(EVIL)
            await gate(job)

        async with Worker("emails", handle, redis_url=url, concurrency=1, max_attempts=1, consumer_id="w-1"):
            await emails.add("bad", {"to": EVIL})
            await emails.add("mail", 1)
            await emails.add("later", 2, delay_ms=3_600_000)
            await eventually(lambda: gate.running == 1)
            await emails.pause()
            await emails.add("mail", 3)
            await emails.add("other", 4)
            found = {
                state: (await answer(chasqui, url, "jobs", "emails", "--state", state))["jobs"]
                for state in ("waiting", "active", "delayed", "dead")
            }
            (named,) = (await answer(chasqui, url, "jobs", "emails", "--name", "other"))["jobs"]
            page = await answer(chasqui, url, "jobs", "emails", "--limit", "1")
            (second,) = (await answer(chasqui, url, "jobs", "emails", "--after", page["next"]))["jobs"]
            _, text = await asyncio.to_thread(
                on_terminal, "jobs", "emails", "-s", "dead", folder=tmp_path, CHASQUI_REDIS_URL=url
            )
            gate.opened.set()
        assert [job["data"] for job in found["waiting"]] == [3, 4]
        (active,), (delayed,), (dead,) = found["active"], found["delayed"], found["dead"]
        assert (active["data"], active["worker"], active["attempt"]) == (1, "w-1", 1)
        assert (delayed["data"], delayed["due_at"][:2]) == (2, "20")
        assert (dead["reason"], dead["error"], dead["data"]) == (
            "retries_exhausted",
            f"ValueError: {EVIL}",
            {"to": EVIL},
        )
        assert (named["data"], second["data"]) == (4, 4)
        lines = plain(text).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) == 2
        assert lines[1].startswith(dead["id"])

    async def test_a_state_without_jobs_is_said_to_have_none(self, chasqui: Finished, url: str) -> None:
        await run(chasqui, url, "add", "emails", "other")
        ended = await run(chasqui, url, "jobs", "emails", "--name", EVIL)
        assert ended.stderr == "no job named 'x\\\\x1b[2J\\\\ny' is waiting\n"
        assert ended.stdout.splitlines() == ["id\tname\trun\tadded\tdata"]


class TestJob:
    async def test_the_status_of_a_job_is_found_in_any_queue(
        self, chasqui: Finished, url: str, emails: Queue, tmp_path: Path
    ) -> None:
        async with Queue("reports", redis_url=url) as reports:
            await reports.add("report")
        job = await emails.add("mail", {"to": "ann"})
        found = await answer(chasqui, url, "job", job.id)
        assert (found["queue"], found["state"], found["ahead"], found["data"]) == (
            "emails",
            "waiting",
            0,
            {"to": "ann"},
        )
        for words in (["status", job.id], ["get", job.id], [job.id, "--queue", "emails"]):
            ended = await run(chasqui, url, "job", *words)
            assert ["state", "waiting"] in rows(ended.stdout)
            assert ["ahead", "0 jobs"] in rows(ended.stdout)
        _, text = await asyncio.to_thread(on_terminal, "job", job.id, folder=tmp_path, CHASQUI_REDIS_URL=url)
        assert '  "to": "ann"' in plain(text)

    async def test_a_dead_job_has_its_traceback_line_by_line(self, url: str, emails: Queue, tmp_path: Path) -> None:
        async def handle(job: Job) -> None:
            raise ValueError(EVIL)

        async with Worker("emails", handle, redis_url=url, max_attempts=1):
            job = await emails.add("mail")
            await eventually(lambda: _has_state(emails, job.id, "dead"))
        code, text = await asyncio.to_thread(on_terminal, "job", job.id, folder=tmp_path, CHASQUI_REDIS_URL=url)
        lines = plain(text).splitlines()
        assert code == 0
        assert any(line.startswith("traceback   Traceback (most recent call last):") for line in lines)
        assert "\x1b[2J" not in text
        assert any(line.split() == ["reason", "retries_exhausted"] for line in lines)

    async def test_a_result_is_printed_alone(self, chasqui: Finished, url: str, emails: Queue) -> None:
        async with Worker("emails", lambda job: {"n": job.data}, redis_url=url, store_results=True):
            job = await emails.add("mail", 7)
            await eventually(lambda: _has_state(emails, job.id, "done"))
        ended = await run(chasqui, url, "job", "result", job.id, "-q", "emails")
        assert (ended.returncode, ended.stdout) == (0, '{"n":7}\n')
        assert (await answer(chasqui, url, "job", "result", job.id))["result"] == {"n": 7}

    async def test_a_job_without_a_result_says_why_and_ends_with_3(
        self, chasqui: Finished, url: str, emails: Queue
    ) -> None:
        job = await emails.add("mail")
        ended = await run(chasqui, url, "job", "result", job.id)
        assert ended.returncode == 3
        assert ended.stderr == f"Error: job '{job.id}' has no result: it is waiting\n"

    async def test_a_delayed_job_is_cancelled_after_a_question(
        self, chasqui: Finished, url: str, emails: Queue, tmp_path: Path
    ) -> None:
        job = await emails.add("mail", delay_ms=3_600_000)
        ended = await run(chasqui, url, "job", "cancel", job.id)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"Error: Cancel job {job.id} (mail) of queue emails, which is delayed?")
        ended = await run(chasqui, url, "job", "cancel", job.id, "--dry-run")
        assert (ended.returncode, ended.stderr) == (
            0,
            f"would cancel job {job.id} (mail) of queue emails, which is delayed\n",
        )

        def refuse() -> tuple[int, str]:
            with TerminalRun("job", "cancel", job.id, folder=tmp_path, CHASQUI_REDIS_URL=url) as asked:
                asked.read_until("[y/N]")
                asked.type("n\n")
                return asked.finish()

        code, text = await asyncio.to_thread(refuse)
        assert code == 6
        assert "aborted: nothing was changed" in text
        assert (await emails.status(job.id)).state == "delayed"
        ended = await run(chasqui, url, "job", "cancel", job.id, "--yes")
        assert (ended.returncode, ended.stdout) == (0, f"{job.id} is cancelled\n")
        ended = await run(chasqui, url, "job", "cancel", job.id, "--yes", "-q", "emails")
        assert ended.returncode == 3

    async def test_a_waiting_job_and_a_running_one_are_cancelled(
        self, chasqui: Finished, url: str, emails: Queue
    ) -> None:
        waiting = await emails.add("mail")
        assert (await answer(chasqui, url, "job", "cancel", waiting.id, "--yes"))["state"] == "cancelled"
        gate = Gate()
        async with Worker("emails", gate, redis_url=url):
            running = await emails.add("mail")
            await eventually(lambda: gate.running)
            assert (await answer(chasqui, url, "job", "cancel", running.id, "--yes"))["state"] == "stopping"
            await eventually(lambda: not gate.running)
            with pytest.raises(JobCancelled):
                await running.wait_for_result()
        assert (await answer(chasqui, url, "job", running.id))["state"] == "cancelled"

    @pytest.mark.parametrize("word", ("run", "promote"))
    async def test_a_delayed_job_is_run_now(self, chasqui: Finished, url: str, emails: Queue, word: str) -> None:
        job = await emails.add("mail", delay_ms=3_600_000)
        assert (await answer(chasqui, url, "job", word, job.id))["state"] == "due now"
        assert (await emails.status(job.id)).state == "waiting"

    async def test_the_log_of_a_job_is_followed_to_its_end(self, start: Chasqui, url: str, emails: Queue) -> None:
        gate = Gate()

        async def handle(job: Job) -> None:
            await job.log("first")
            await job.log(EVIL)
            await gate(job)
            await job.log("last")

        async with Worker("emails", handle, redis_url=url):
            job = await emails.add("mail")
            process = start("job", "tail", job.id, "-q", "emails", CHASQUI_REDIS_URL=url, PYTHONUNBUFFERED="1")
            assert process.stdout is not None
            lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(2)]
            gate.opened.set()
            out, err = await asyncio.to_thread(process.communicate, None, 30)
        assert (lines, out) == (["first\n", "x\\x1b[2J\\ny\n"], "last\n")
        assert (process.returncode, err) == (0, "")

    async def test_a_job_that_no_queue_knows_ends_with_3(self, chasqui: Finished, url: str, emails: Queue) -> None:
        await emails.add("mail")
        ended = await run(chasqui, url, "job", EVIL)
        assert ended.returncode == 3
        assert "\x1b" not in ended.stderr
        ended = await run(chasqui, url, "job", "nothing", "-q", "emails", "--json")
        assert ended.returncode == 3
        assert json.loads(ended.stdout)["note"].startswith("there is no trace of it")

    @pytest.mark.parametrize("words", (["status"], ["sing", "x"], ["run", "x", "y"]))
    async def test_words_without_a_meaning_are_wrong_usage(self, chasqui: Finished, url: str, words: list[str]) -> None:
        assert (await run(chasqui, url, "job", *words)).returncode == 2


async def _has_state(queue: Queue, job_id: str, state: str) -> bool:
    return (await queue.status(job_id)).state == state


class TestAll:
    @pytest.mark.parametrize(
        "words",
        (
            ["ps"],
            ["inspect"],
            ["watch", "q"],
            ["events", "q"],
            ["workers"],
            ["jobs", "q"],
            ["job", "x"],
            ["promoter", "no}"],
        ),
    )
    def test_a_server_that_cannot_be_reached_ends_with_4_and_hides_the_password(
        self, chasqui: Finished, words: list[str]
    ) -> None:
        ended = chasqui(*words, CHASQUI_REDIS_URL="redis://:hunter2@127.0.0.1:1")
        assert ended.returncode == (2 if words[0] == "promoter" else 4)
        assert "hunter2" not in ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.stdout == ""

    @pytest.mark.parametrize(
        "words", (["ps"], ["inspect"], ["watch"], ["events"], ["workers"], ["jobs"], ["job", "x", "-q"])
    )
    def test_a_name_that_no_queue_can_have_is_wrong_usage(
        self, chasqui: Finished, redis_url: str, words: list[str]
    ) -> None:
        ended = chasqui(*words, "no}name", CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == 2, ended.stderr
        assert "must not hold a }" in ended.stderr

    async def test_each_command_is_quick_in_a_queue_of_100_000_jobs(
        self, spawned: Finished, url: str, emails: Queue
    ) -> None:
        jobs: list[Job] = []
        for _ in range(10):
            jobs += await emails.add_bulk([{"name": "mail", "data": {"text": "x" * 50}}] * 10_000)
        commands = (
            ["ps"],
            ["inspect", "emails"],
            ["workers"],
            ["jobs", "emails"],
            ["job", jobs[50_000].id, "-q", "emails"],
        )
        for words in commands:

            async def seconds(words: list[str] = words) -> float:
                began = child_seconds()
                ended = await run(spawned, url, *words)
                assert ended.returncode == 0, ended.stderr
                return child_seconds() - began

            await first_below(1.0, seconds)  # 0.25 s, on a machine that has nothing else to do

    async def test_a_look_costs_the_same_number_of_commands_however_many_jobs_wait(
        self, url: str, emails: Queue, witness: redis.asyncio.Redis
    ) -> None:
        async with Queues(url) as queues:

            async def commands() -> int:
                before = (await witness.info("stats"))["total_commands_processed"]
                await queues.overview(["emails"])
                await queues.official_facts("emails")
                await queues.lag_ms("emails")
                await queues.workers("emails")
                await emails.counts()
                await emails.jobs("waiting", limit=20)
                return int((await witness.info("stats"))["total_commands_processed"]) - before

            await emails.add_bulk([{"name": "mail"}] * 30)
            await commands()  # the first one connects
            few = await commands()
            await emails.add_bulk([{"name": "mail"}] * 5000)
            assert await commands() == few

    @pytest.mark.parametrize("words", ([], ["worker"], ["demo"], ["jobs"], ["repeatable", "add"]), ids=" ".join)
    async def test_help_is_quick(self, spawned: Finished, words: list[str]) -> None:
        """What the others import is held in test_main."""

        async def seconds() -> float:
            began = child_seconds()
            assert spawned(*words, "--help").returncode == 0
            return child_seconds() - began

        await first_below(0.4, seconds)  # 0.1 s, on a machine that has nothing else to do


class TestCompletion:
    @pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
    def test_a_shell_gets_a_script(self, chasqui: Finished, shell: str) -> None:
        ended = chasqui("completion", shell)
        assert ended.returncode == 0
        assert f"_CHASQUI_COMPLETE={shell}_complete" in ended.stdout

    def test_the_script_asks_for_commands_and_options(self, chasqui: Finished) -> None:
        def ask(words: str, place: int) -> list[str]:
            environment = {"COMP_WORDS": words, "COMP_CWORD": str(place), "_CHASQUI_COMPLETE": "bash_complete"}
            return chasqui(**environment).stdout.split()

        assert ask("chasqui wor", 1) == ["plain,worker", "plain,workers"]
        assert "plain,--state" in ask("chasqui jobs --s", 2)


class TestLeaders:
    async def test_a_promoter_moves_due_jobs_until_a_signal_ends_it(
        self, start: Chasqui, url: str, emails: Queue
    ) -> None:
        await emails.add("mail", delay_ms=50)
        process = start("promoter", "emails", "other", "--poll-interval-ms", "100", CHASQUI_REDIS_URL=url)

        async def is_promoted() -> bool:
            return (await emails.counts()).waiting == 1

        await eventually(is_promoted, timeout=30)
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(process.communicate, None, 30)
        assert (process.returncode, out) == (0, "")
        assert "queues       emails, other" in err
        assert "Traceback" not in err

    async def test_a_scheduler_fires_repeatables_until_a_signal_ends_it(
        self, start: Chasqui, url: str, emails: Queue
    ) -> None:
        await emails.repeatables.upsert("mail", repeat={"kind": "every", "interval_ms": 200})
        process = start("scheduler", "emails", CHASQUI_REDIS_URL=url)

        async def has_fired() -> bool:
            return (await emails.counts()).waiting >= 2

        await eventually(has_fired, timeout=30)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.to_thread(process.communicate, None, 30)
        assert process.returncode == 0
        assert "Traceback" not in err
