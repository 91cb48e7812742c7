"""Programs of tasks and programs that use Queue alone are tested without a server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pychasqui import (
    App,
    InvalidArgument,
    InvalidType,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobTimeout,
    NotSupportedError,
    Queue,
    RetryLater,
    RetryPolicy,
    Snooze,
    UnsupportedData,
    WrongLoop,
    current_job,
)
from pychasqui.testing import RecordedQueue, inline

POLICY = RetryPolicy(initial_ms=1000, multiplier=2.0, jitter_ms=5000)
app = App("redis://no-server.invalid", queues={"default": {"max_attempts": 3, "retry": POLICY}})
ran: list[Any] = []


@dataclass
class Receipt:
    number: int
    at: datetime


@app.task
async def send_mail(to: str, subject: str = "hello") -> int:
    ran.append((to, subject))
    return len(subject)


@app.task(queue="slow")
def shrink(number: int) -> Receipt:
    send_mail.sync.enqueue(f"shrunk {number}")
    return Receipt(number, datetime(2026, 1, 1, tzinfo=UTC))


@app.task
async def fails(text: str) -> None:
    ran.append(current_job().attempt)
    raise LookupError(text)


@app.task
async def waits(until: int) -> int:
    if current_job().snoozes < until:
        raise Snooze(timedelta(hours=1))
    if not current_job().attempt:
        raise RetryLater(60)
    return current_job().snoozes


@app.task(unique_by=("order",), if_exists="replace")
async def charge(order: int, amount: int) -> None:
    ran.append((order, amount))


@app.task
async def again() -> None:
    await again.enqueue()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


class TestInline:
    async def test_calls_are_values_and_run_when_they_are_due(self) -> None:
        with inline(app) as jobs:
            handle = await send_mail.enqueue("ada")
            later = send_mail.with_options(delay=timedelta(days=1))
            await later.enqueue("bo", subject="hi")
            assert jobs.of(send_mail) == [send_mail.bind("ada"), later.bind("bo", subject="hi")]
            with pytest.raises(TimeoutError, match="has not run"):
                await handle.result()
            await jobs.run()
            assert ran == [("ada", "hello")]
            assert await handle.result() == 5
            await jobs.advance(timedelta(hours=23))
            assert len(ran) == 1
            await jobs.advance(timedelta(hours=1))
            assert ran == [("ada", "hello"), ("bo", "hi")]
            assert jobs.dead == []
            assert [job.state for job in jobs.all] == ["done", "done"]

    async def test_jobs_that_a_task_enqueues_run_too_and_results_are_typed(self) -> None:
        with inline(app) as jobs:
            (handle,) = await app.enqueue_all([shrink.bind(3)])
            await jobs.run()
            assert await handle.result() == Receipt(3, datetime(2026, 1, 1, tzinfo=UTC))
            assert ran == [("shrunk 3", "hello")]

    def test_synchronous_code_enqueues_without_a_loop(self) -> None:
        with inline(app) as jobs:
            handle = send_mail.sync.enqueue("ada")
            app.sync.queue("other").add("by name", 5)
            app.sync.close()
            assert jobs.of(send_mail) == [send_mail.bind("ada")]
            assert [(job.queue, job.name, job.data) for job in jobs.all][1] == ("other", "by name", 5)
            assert handle.is_new

    async def test_an_error_is_raised_and_the_job_runs_again_at_its_time(self) -> None:
        with inline(app) as jobs:
            handle = await fails.enqueue("first")
            with pytest.raises(LookupError, match="first"):
                await jobs.run()
            await jobs.advance(timedelta(milliseconds=999))
            assert ran == [0]
            await jobs.advance(timedelta(milliseconds=1))
            assert ran == [0, 1]
            await jobs.advance(timedelta(seconds=2))
            assert ran == [0, 1, 2]
            (dead,) = jobs.dead
            assert (dead.name, dead.data, dead.reason) == ("fails", {"text": "first"}, "retries_exhausted")
            assert isinstance(dead.error, LookupError)
            with pytest.raises(JobFailed, match="LookupError: first"):
                await handle.result()

    async def test_a_task_that_asks_for_a_later_run_raises_nothing(self) -> None:
        with inline(app) as jobs:
            handle = await waits.enqueue(2)
            await jobs.run()
            await jobs.advance(timedelta(hours=2))
            await jobs.advance(timedelta(minutes=1))
            assert await handle.result() == 2

    async def test_an_error_on_which_to_give_up_is_raised_as_it_is(self) -> None:
        own = App()

        @own.task(give_up_on=(LookupError,), attempts=3)
        async def find() -> None:
            raise KeyError("x")

        with inline(own) as jobs:
            handle = await find.enqueue()
            with pytest.raises(KeyError, match="x"):
                await jobs.run()
            assert [(one.reason, type(one.error)) for one in jobs.dead] == [("unrecoverable", KeyError)]
            with pytest.raises(JobFailed, match="KeyError"):
                await handle.result()

    async def test_one_job_of_an_id_waits(self) -> None:
        with inline(app) as jobs:
            assert (await charge.enqueue(17, 1)).is_new
            second = await charge.enqueue(17, 2)
            assert (second.is_new, second.has_replaced) == (False, True)
            await jobs.run()
            assert ran == [(17, 2)]
            assert (await charge.enqueue(17, 3)).is_new
            window = send_mail.with_options(job_id="x", unique_for=timedelta(hours=1))
            await window.enqueue("ada")
            await jobs.run()
            assert not (await window.enqueue("ada")).is_new
            await jobs.advance(timedelta(hours=1))
            assert (await window.enqueue("ada")).is_new

    async def test_a_job_that_replaces_one_that_waits_for_its_next_run_begins_from_the_start(self) -> None:
        app, runs = App("redis://no-server.invalid"), list[Any]()

        @app.task(unique_by=("order",), if_exists="replace")
        async def charge(order: int, cents: int) -> None:
            runs.append((current_job().attempt, cents))
            raise RetryLater(3600)

        with inline(app) as jobs:
            await charge.with_options(attempts=2).enqueue(17, cents=1)
            await jobs.run()
            second = await charge.with_options(attempts=3, expires_in=timedelta(hours=2)).enqueue(17, cents=2)
            assert second.has_replaced
            await jobs.advance(timedelta(hours=5))
            assert runs == [(0, 1), (0, 2)]
            assert [dead.reason for dead in jobs.dead] == ["expired"]

    async def test_a_job_that_runs_is_not_replaced(self) -> None:
        app, answers = App("redis://no-server.invalid"), list[Any]()

        @app.task
        async def again(number: int) -> int:
            if number < 3:
                handle = await again.with_options(job_id="one", if_exists="replace").enqueue(number + 1)
                answers.append((handle.is_new, handle.has_replaced))
            return number

        with inline(app) as jobs:
            handle = await again.with_options(job_id="one").enqueue(1)
            await jobs.run()
            assert (answers, await handle.result(), len(jobs.all)) == ([(False, False)], 1, 1)

    async def test_a_job_knows_the_time_for_which_its_schedule_fired_it(self) -> None:
        app, times = App("redis://no-server.invalid", queues={"default": {"max_attempts": 2}}), list[Any]()

        @app.every(timedelta(hours=1))
        @app.task
        async def tidy() -> None:
            times.append(current_job().scheduled_at_ms)
            raise RetryLater(60)

        with inline(app) as jobs:
            await tidy.enqueue()
            await jobs.advance(timedelta(hours=2, minutes=30))
            assert times[:2] == [None, None]
            first, retry, *second = times[2:]
            assert (first == retry, second) == (True, [first + 3_600_000] * 2)

    async def test_settings_of_workers_hold_in_a_test(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CHASQUI_MAX_ATTEMPTS", "1")
        monkeypatch.setenv("CHASQUI_TIMEOUT", "0.05")
        app = App("redis://no-server.invalid")

        @app.task
        async def slow() -> None:
            await asyncio.sleep(60)

        with inline(app) as jobs:
            await slow.enqueue()
            with pytest.raises(JobTimeout):
                await jobs.run()
            assert [dead.reason for dead in jobs.dead] == ["retries_exhausted"]

    async def test_a_blocking_call_in_a_coroutine_task_is_refused_as_in_production(self) -> None:
        own = App()

        @own.task
        async def block() -> None:
            send_mail.sync.enqueue("ada")

        with inline(app), inline(own) as jobs:
            await block.enqueue()
            with pytest.raises(WrongLoop, match=r"send_mail\.sync\.enqueue would block .*: await send_mail\.enqueue"):
                await jobs.run()

    def test_a_blocking_call_in_the_loop_of_a_server_is_refused_as_in_production(self) -> None:
        async def serve() -> None:
            with pytest.raises(WrongLoop, match=r"await send_mail\.enqueue"):
                send_mail.sync.enqueue("ada")
            await asyncio.to_thread(send_mail.sync.enqueue, "bo")

        with inline(app) as jobs, ThreadPoolExecutor() as threads:
            threads.submit(asyncio.run, serve()).result()
            assert jobs.of(send_mail) == [send_mail.bind("bo")]

    async def test_an_async_test_calls_synchronous_code(self) -> None:
        with inline(app) as jobs:
            send_mail.sync.enqueue("ada")
            assert jobs.of(send_mail) == [send_mail.bind("ada")]

    async def test_wrong_arguments_and_wrong_data_are_refused_as_in_production(self) -> None:
        with inline(app) as jobs:
            with pytest.raises(InvalidArgument, match="send_mail: to"):
                await send_mail.enqueue(5)  # type: ignore[arg-type]
            await app.queue("default").add("send_mail", {"to": 5})
            await app.queue("default").add("unknown")
            with pytest.raises(Exception, match="task 'send_mail'"):
                await jobs.run()
            assert [dead.reason for dead in jobs.dead] == ["unrecoverable"]
            with pytest.raises(UnsupportedData):
                await app.queue("default").add("send_mail", {"to": object()})

    async def test_a_task_that_enqueues_itself_does_not_run_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pychasqui.testing.inline_jobs.MAX_RUNS", 20)
        with inline(app) as jobs:
            await again.enqueue()
            with pytest.raises(RuntimeError, match="does a task enqueue itself"):
                await jobs.run()

    async def test_a_week_with_a_schedule_of_every_minute_passes(self) -> None:
        own = App()

        @own.every(timedelta(minutes=1))
        @own.task
        async def beat() -> None: ...

        with inline(own) as jobs:
            await jobs.advance(timedelta(days=8))
            assert len(jobs.of(beat)) in (8 * 24 * 60, 8 * 24 * 60 + 1)

    async def test_the_app_is_as_before_afterwards(self) -> None:
        with inline(app):
            assert isinstance(app.queue("x"), RecordedQueue)
        assert not isinstance(app.queue("x"), RecordedQueue)
        await app.close()

    async def test_other_things_than_apps_tasks_and_spans_are_refused(self) -> None:
        with pytest.raises(InvalidType, match="takes an App"), inline(5):  # type: ignore[arg-type]
            pass
        with inline(app) as jobs:
            with pytest.raises(InvalidType, match="takes a task"):
                jobs.of("send_mail")  # type: ignore[arg-type]
            for span in (5, timedelta(seconds=-1)):
                with pytest.raises(InvalidType, match="takes a timedelta"):
                    await jobs.advance(span)  # type: ignore[arg-type]


class TestRecordedQueue:
    async def test_jobs_are_kept_as_a_worker_would_get_them(self) -> None:
        queue: Queue = RecordedQueue("mail")
        job = await queue.add("send", {"to": ("ada", "bo")}, delay=timedelta(hours=1))
        await queue.add_bulk([{"name": "send", "data": 1, "attempts": 2}, {"name": "send", "job_id": "x"}])
        again = await queue.add_unique("send", job_id="x")
        assert isinstance(queue, RecordedQueue)
        assert [(kept.name, kept.data) for kept in queue.recorded] == [
            ("send", {"to": ["ada", "bo"]}),
            ("send", 1),
            ("send", None),
        ]
        assert queue.recorded[1].options == {"attempts": 2}
        assert (job.is_new, again.is_new) == (True, False)

    async def test_wrong_arguments_are_refused_and_none_of_a_bulk_is_kept(self) -> None:
        queue = RecordedQueue("mail")
        with pytest.raises(UnsupportedData, match="job 1 of the bulk"):
            await queue.add_bulk([{"name": "a"}, {"name": "b", "data": object()}])
        with pytest.raises(InvalidType, match="unexpected keyword"):
            await queue.add("a", dely=3)  # type: ignore[call-arg]
        assert queue.recorded == []

    async def test_progress_and_lines_are_answered_as_by_a_queue(self) -> None:
        queue = RecordedQueue("mail")
        job = await queue.add("send")
        queue.recorded[0].log.extend(["a", "b", "c"])
        assert await queue.get_job_logs(job.id, limit=2) == ["b", "c"]
        assert (await queue.get_job_progress("nobody"), await queue.get_job_logs("nobody")) == (None, [])
        with pytest.raises(InvalidArgument, match="limit"):
            await queue.get_job_logs(job.id, limit=0)

    async def test_a_method_that_needs_a_server_is_refused(self) -> None:
        queue = RecordedQueue("mail")
        for call in (queue.counts, queue.pause, queue.dlq.page):
            with pytest.raises(NotSupportedError, match="chasqui_server"):
                await call()
        with pytest.raises(NotSupportedError, match="no repeatables"):
            await queue.add("a", repeat={"kind": "every", "interval_ms": 5})


CONFTEST = """
import pytest
from pychasqui import App

app = App()

@app.task
def double(number: int) -> int:
    return 2 * number

@pytest.fixture
def chasqui_app():
    return app
"""
TESTS = """
import asyncio
from pychasqui import Queue
from conftest import double

def test_inline(chasqui_jobs):
    handle = double.sync.enqueue(4)
    asyncio.run(chasqui_jobs.run())
    assert handle.result() == 8

def test_server(chasqui_server):
    async def count():
        async with Queue("mail", redis_url=chasqui_server) as queue:
            await queue.add("x")
            return (await queue.counts()).waiting
    assert asyncio.run(count()) == 1

test_server_again = test_server
"""


def test_the_fixtures_of_the_plugin_give_jobs_and_a_server(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "test_missing.py").write_text("def test_other(chasqui_jobs): ...\n")
    (tmp_path / "folder").mkdir()
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CHASQUI_EMBEDDED_LINGER_MS": "100"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pychasqui.testing.plugin", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


def test_the_plugin_is_an_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"chasqui": "pychasqui.testing.plugin"}


class TestStopping:
    """Time limits, expiry and cancelling without a server."""

    async def test_a_task_over_its_time_has_failed_by_a_timeout(self) -> None:
        app = App("redis://no-server.invalid", queues={"default": {"max_attempts": 1}})

        @app.task(timeout=timedelta(milliseconds=20))
        async def slow() -> None:
            await asyncio.sleep(60)

        with inline(app) as jobs:
            handle = await slow.enqueue()
            with pytest.raises(JobTimeout, match=r"longer than its timeout of 0\.02 s"):
                await jobs.run()
            assert jobs.dead[0].reason == "retries_exhausted"
            with pytest.raises(JobFailed, match="JobTimeout"):
                await handle.result()

    @pytest.mark.parametrize(("give_up_on", "runs"), (((JobTimeout,), 1), ((TimeoutError,), 1), ((ValueError,), 2)))
    async def test_a_task_that_gives_up_on_a_timeout_has_one_run(
        self, give_up_on: tuple[type[Exception], ...], runs: int
    ) -> None:
        app, began = App("redis://no-server.invalid"), []

        @app.task(timeout=timedelta(milliseconds=10), attempts=2, give_up_on=give_up_on)
        async def slow() -> None:
            began.append(1)
            await asyncio.sleep(60)

        with inline(app) as jobs:
            await slow.enqueue()
            await jobs.advance(timedelta(hours=1))
            assert [type(one.error) for one in jobs.dead] == [JobTimeout]
        assert len(began) == runs

    async def test_a_call_has_its_own_time_and_a_task_may_extend_it(self) -> None:
        app = App("redis://no-server.invalid", queues={"default": {"timeout": timedelta(milliseconds=20)}})

        @app.task
        async def extended() -> str:
            current_job().extend(60)
            await asyncio.sleep(0.05)
            return "done"

        @app.task
        async def patient() -> str:
            await asyncio.sleep(0.05)
            assert not current_job().is_cancelled
            return "done"

        with inline(app) as jobs:
            handles = [await extended.enqueue(), await patient.with_options(timeout=timedelta(hours=1)).enqueue()]
            await jobs.run()
            assert [await handle.result() for handle in handles] == ["done", "done"]

    async def test_a_plain_task_sees_by_its_job_that_the_queues_time_is_over(self) -> None:
        app = App(
            "redis://no-server.invalid", queues={"default": {"timeout": timedelta(seconds=0.05), "max_attempts": 1}}
        )

        @app.task
        def patient(raises: bool) -> str:
            while not current_job().is_cancelled:
                time.sleep(0.002)
            if raises:
                raise RuntimeError("asked to stop")
            return "done all the same"

        with inline(app) as jobs:
            handles = [await patient.enqueue(raises) for raises in (False, True)]
            with pytest.raises(JobTimeout):
                await jobs.run()
            assert await handles[0].result() == "done all the same"
            with pytest.raises(JobFailed, match="JobTimeout"):
                await handles[1].result()

    async def test_a_job_that_is_due_after_its_time_has_expired(self) -> None:
        app = App("redis://no-server.invalid")

        @app.task
        async def quote() -> None:
            raise RetryLater(timedelta(hours=2))

        with inline(app) as jobs:
            handle = await quote.with_options(expires_in=timedelta(hours=1)).enqueue()
            await jobs.advance(timedelta(hours=3))
            assert [(one.reason, type(one.error)) for one in jobs.dead] == [("expired", JobExpired)]
            with pytest.raises(JobExpired) as caught:
                await handle.result()
            error = caught.value
            assert (error.reason, error.attempts, error.error_type, error.error) == ("expired", 1, "", "")

    async def test_a_job_that_has_not_run_is_cancelled(self) -> None:
        app = App("redis://no-server.invalid")

        @app.task
        async def report() -> None:
            raise AssertionError("a cancelled job has run")

        with inline(app) as jobs:
            handle = await report.with_options(delay=timedelta(hours=1), job_id="one").enqueue()
            assert await handle.cancel() == "removed"
            assert await handle.cancel() == "unknown"
            await jobs.advance(timedelta(hours=2))
            with pytest.raises(JobCancelled):
                await handle.result()
            assert (jobs.all[0].state, jobs.dead) == ("cancelled", [])
            assert (await report.with_options(job_id="one").enqueue()).is_new
            assert await report.handle("another").cancel() == "unknown"

    async def test_a_task_that_is_cancelled_while_it_runs_ends_without_an_error(self) -> None:
        app = App("redis://no-server.invalid")

        @app.task
        async def report() -> None:
            assert await app.queue("default").cancel(current_job().id) == "stopping"
            assert current_job().is_cancelled
            await asyncio.sleep(60)

        with inline(app) as jobs:
            await report.enqueue()
            await jobs.run()
            assert jobs.all[0].state == "cancelled"

    async def test_a_task_that_goes_on_when_it_is_cancelled_is_done(self) -> None:
        app = App("redis://no-server.invalid")

        @app.task
        def report() -> str:
            return "done"

        @app.task
        async def stubborn() -> str:
            await app.queue("default").cancel(current_job().id)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "done all the same"
            return ""

        with inline(app) as jobs:
            await report.enqueue()
            handle = await stubborn.enqueue()
            await jobs.run()
            assert await handle.result() == "done all the same"
