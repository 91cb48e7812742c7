"""What the backend for Django promises, checked with the Django of the interpreter that runs this file.

test_django.py runs it with pytest, once for each version, in a process of its own: Django has one set of settings.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest

FOLDER = Path(os.environ["CHECKS_FOLDER"])
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "tests.frameworks.django_project.settings",
    "TEST_DATABASE": str(FOLDER / "database.sqlite3"),
    "SIGNALS": str(FOLDER / "signals"),
}
django.setup()

from django.conf import settings as django_settings  # noqa: E402
from django.core.checks import run_checks  # noqa: E402
from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.management.base import CommandError  # noqa: E402
from django.db import transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from pychasqui import (  # noqa: E402
    InvalidArgument,
    JobCancelled,
    JobTimeout,
    PayloadTooLarge,
    Snooze,
    SyncQueue,
    UnsupportedData,
    WrongLoop,
)
from pychasqui.integrations.django import ChasquiBackend, framework  # noqa: E402
from pychasqui.integrations.django.workers import make_crew  # noqa: E402
from tests.frameworks.django_project import settings, tasks  # noqa: E402

COMMAND = [sys.executable, "-m", "django", "chasqui_worker"]
PATIENCE_S = 60.0
QUEUES = 4


def start_worker(name: str, *options: str) -> subprocess.Popen[bytes]:
    output = FOLDER / f"{name}.log"
    with output.open("wb") as file:
        worker = subprocess.Popen([*COMMAND, *options], stderr=file)
    deadline = time.monotonic() + PATIENCE_S
    while output.read_text().count("runs queue") < QUEUES:
        assert worker.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)
    return worker


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=PATIENCE_S) == 0


@pytest.fixture(scope="module")
def worker() -> Iterator[None]:
    process = start_worker("worker")
    yield
    end_worker(process)


def wait_until_finished(result: Any, status: str = "") -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (result.status == status if status else result.is_finished):
        assert time.monotonic() < deadline, f"{result.task.name} is {result.status}: {result}"
        time.sleep(0.03)
        result.refresh()
    return result


def wait_for_signal(line: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while line not in (sent := Path(os.environ["SIGNALS"]).read_text().splitlines()):
        assert time.monotonic() < deadline, sent
        time.sleep(0.03)


# Enqueuing ------------------------------------------------------------------------------------------------------------


def test_the_framework_is_the_expected_one() -> None:
    package, version = os.environ["EXPECTED"].split()
    assert package == framework.PACKAGE
    assert django.get_version().startswith(version)


def test_the_flags_are_those_of_the_backend() -> None:
    backend = tasks.add.get_backend()
    assert isinstance(backend, ChasquiBackend)
    flags = backend.supports_defer, backend.supports_async_task, backend.supports_get_result, backend.supports_priority
    assert flags == (True, True, True, False)
    with pytest.raises(framework.InvalidTask):
        tasks.add.using(priority=5)
    with pytest.raises(framework.InvalidTask):
        tasks.add.using(queue_name="elsewhere")


def test_a_task_that_waits_is_ready() -> None:
    result = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs, result.attempts) == ("READY", [1], {"b": 2}, 0)
    found = tasks.add.get_result(result.id)
    assert (found.status, found.args, found.kwargs, found.errors) == ("READY", [1], {"b": 2}, [])
    assert abs(found.enqueued_at - result.enqueued_at) < timedelta(seconds=1)
    with SyncQueue("default") as queue:
        assert queue.counts().delayed == 1
        assert queue.cancel_delayed(result.id.partition(":")[2])


def test_an_unknown_result_does_not_exist() -> None:
    for id_ in ("default:01M7HGWM0QVRDN0Z5P89XK0ZKB", "elsewhere:1", "1", ""):
        with pytest.raises(framework.TaskResultDoesNotExist):
            tasks.add.get_result(id_)


def test_arguments_that_are_not_json_are_refused() -> None:
    with pytest.raises(TypeError):
        tasks.add.enqueue(object())


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    for args, named, problem in (
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": 2}, "got an unexpected keyword argument 'c'"),
        ((), {}, "missing a required argument: 'a'"),
    ):
        with pytest.raises(TypeError, match=f"task .*tasks.add': {problem}"):
            tasks.add.enqueue(*args, **named)


def test_each_worker_of_a_process_serves_its_own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_ports() -> list[int | None]:
        async with make_crew().prepared() as workers:
            return [worker.config.metrics_port for worker in workers]

    monkeypatch.setenv("CHASQUI_METRICS_PORT", "9100")
    assert asyncio.run(read_ports()) == [9100, 9101, 9102, 9103]


def test_an_enqueue_in_an_event_loop_names_what_to_await() -> None:
    async def enqueue(task: Any) -> None:
        task.enqueue(1)

    for task in (tasks.add, tasks.add.using(backend="committed", queue_name="committed")):
        with pytest.raises(WrongLoop, match=r"await add.aenqueue\(\.\.\.\)"):
            asyncio.run(enqueue(task))


def test_the_enqueued_signal_is_sent_once_the_job_is_added() -> None:
    seen: list[str] = []

    def note(sender: Any, task_result: Any, **_: Any) -> None:
        with SyncQueue("mail") as queue:
            seen.append(queue.status(task_result.id.partition(":")[2]).state)

    framework.signals.task_enqueued.connect(note)
    try:
        result = tasks.add_soon.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    finally:
        framework.signals.task_enqueued.disconnect(note)
    assert seen == ["delayed"]
    assert result.enqueued_at is not None


def test_the_threads_of_a_process_share_one_connection() -> None:
    import threading

    apps: set[int] = set()
    threads = [threading.Thread(target=lambda: apps.add(id(tasks.add.get_backend().app))) for _ in range(5)]
    for thread in threads:
        thread.start()
        thread.join()
    assert apps == {id(tasks.add.get_backend().app)}


@pytest.mark.skipif(framework.PACKAGE == "django.tasks", reason="slow, and the same with every framework")
def test_a_killed_process_of_a_worker_leaves_a_failed_task() -> None:
    process = start_worker("supervised", "--processes", "1", "--queues", "committed,default,mail,slow")
    try:
        result = tasks.die.using(queue_name="mail").enqueue(str(FOLDER / "die"))
        wait_until_finished(result, "RUNNING")
        (FOLDER / "die").touch()
        wait_until_finished(result)
    finally:
        end_worker(process)
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "JobFailed" in result.errors[-1].exception_class_path


# Running --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_a_plain_task_runs() -> None:
    result = wait_until_finished(tasks.add.enqueue(1, b=4))
    assert (result.status, result.return_value, result.attempts, result.errors) == ("SUCCESSFUL", 5, 1, [])
    assert result.enqueued_at <= result.started_at + timedelta(seconds=1)
    assert result.started_at == result.last_attempted_at <= result.finished_at
    found = tasks.add.get_result(result.id)
    assert (found.args, found.kwargs, found.return_value) == ([1], {"b": 4}, 5)
    assert found.task.module_path == tasks.add.module_path
    with pytest.raises(Exception, match="does not match"):
        tasks.fail.get_result(result.id)


@pytest.mark.usefixtures("worker")
def test_a_coroutine_task_runs_and_is_enqueued_from_a_loop() -> None:
    async def enqueue() -> Any:
        result = await tasks.add_soon.aenqueue(1, 2)
        deadline = time.monotonic() + PATIENCE_S
        while not result.is_finished and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            await result.arefresh()
        return result

    assert asyncio.run(enqueue()).return_value == 3


@pytest.mark.usefixtures("worker")
def test_a_deferred_task_runs_later() -> None:
    begin = timezone.now()
    result = wait_until_finished(tasks.add.using(run_after=begin + timedelta(seconds=0.5)).enqueue(1))
    assert result.started_at - begin >= timedelta(seconds=0.4)


@pytest.mark.usefixtures("worker")
def test_a_context_has_the_attempt_and_the_errors_so_far() -> None:
    result = wait_until_finished(tasks.count_attempts.enqueue(3))
    assert result.return_value == [3, result.id, 2]
    assert result.attempts == len(result.worker_ids) == 3
    assert [error.exception_class for error in result.errors] == [KeyError, KeyError]
    assert "again" in result.errors[0].traceback


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("task", "error", "attempts"),
    (
        (tasks.fail, ValueError, 3),
        (tasks.fail_soon, LookupError, 3),
    ),
)
def test_a_task_that_fails_for_good_has_its_errors(task: Any, error: type, attempts: int) -> None:
    result = wait_until_finished(task.enqueue("no good"))
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", attempts, attempts)
    assert result.errors[-1].exception_class is error
    assert "no good" in result.errors[-1].traceback
    assert result.args == ["no good"]
    assert result.finished_at >= result.last_attempted_at > result.started_at
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


@pytest.mark.usefixtures("worker")
def test_a_replayed_task_is_ready_until_it_runs_again() -> None:
    result = wait_until_finished(tasks.give_up.enqueue())
    runs, deadline = 1, time.monotonic() + PATIENCE_S
    with SyncQueue("default") as queue:
        queue.pause()
        try:
            while result.status == "FAILED":  # the worker may run it again before it has heard of the pause
                assert time.monotonic() < deadline
                assert queue.dlq.replay(job_id=result.id.partition(":")[2]) == 1
                result.refresh()
                if result.status != "READY":
                    runs, result = runs + 1, wait_until_finished(result)
            assert (result.finished_at, len(result.errors)) == (None, runs)
        finally:
            queue.resume()
    assert wait_until_finished(result).status == "FAILED"


@pytest.mark.usefixtures("worker")
def test_the_attempts_of_one_task_are_its_own() -> None:
    assert wait_until_finished(tasks.fail_once.enqueue()).return_value == "second"
    result = wait_until_finished(tasks.give_up.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    result = wait_until_finished(tasks.come_back.enqueue())
    assert (result.return_value, result.attempts, result.errors) == (1, 2, [])


@pytest.mark.usefixtures("worker")
def test_a_task_that_is_put_off_too_often_has_failed() -> None:
    before = Path(os.environ["SIGNALS"]).read_text().count("\n")
    result = wait_until_finished(tasks.put_off.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 2)
    assert [error.exception_class for error in result.errors] == [Snooze]
    lines = Path(os.environ["SIGNALS"]).read_text().splitlines()[before:]
    assert lines == ["started put_off RUNNING 1", "started put_off RUNNING 2", "finished put_off FAILED 2"]


@pytest.mark.usefixtures("worker")
def test_the_error_of_a_task_with_a_long_log_is_read() -> None:
    result = wait_until_finished(tasks.log_much.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert [error.exception_class for error in result.errors] == [tasks.Hopeless]


@pytest.mark.usefixtures("worker")
def test_a_return_value_that_is_not_json_fails_at_once() -> None:
    result = wait_until_finished(tasks.no_json.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "not JSON" in result.errors[0].traceback


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("text", (True, False))
def test_a_return_value_that_cannot_be_stored_fails_at_once(text: bool) -> None:
    result = wait_until_finished(tasks.return_what_cannot_be_stored.enqueue(text))
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "cannot be stored" in result.errors[0].traceback


@pytest.mark.usefixtures("worker")
def test_a_text_of_a_subclass_is_returned_by_one_run() -> None:
    result = wait_until_finished(tasks.return_label.enqueue())
    assert (result.return_value, result.attempts) == ({"label": "ada", "runs": 1}, 1)


@pytest.mark.usefixtures("worker")
def test_a_task_may_change_its_arguments() -> None:
    result = wait_until_finished(tasks.change_arguments.enqueue([1], more={"a": 1}))
    assert (result.return_value, result.attempts, result.args, result.kwargs) == (2, 1, [[1]], {"more": {"a": 1}})


@pytest.mark.usefixtures("worker")
def test_an_error_in_text_that_is_not_unicode_is_that_of_the_task() -> None:
    result = wait_until_finished(tasks.give_up_in_odd_letters.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "not UTF-8: \\udcff" in result.errors[0].traceback
    assert result.errors[0].exception_class_path == "pychasqui.errors.UnrecoverableError"


@pytest.mark.usefixtures("worker")
def test_a_task_that_is_stopped_has_failed_with_the_reason() -> None:
    slow = wait_until_finished(tasks.sleep.enqueue())
    assert (slow.status, slow.attempts, len(slow.errors)) == ("FAILED", 1, 1)
    wait_for_signal("finished sleep FAILED 1")  # its process sends it when the handler has ended
    assert slow.errors[-1].exception_class is JobTimeout
    waiting = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    with SyncQueue("default") as queue:
        queue.cancel(waiting.id.partition(":")[2])
    waiting.refresh()
    assert (waiting.status, waiting.attempts) == ("FAILED", 0)
    assert waiting.errors[-1].exception_class is JobCancelled


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("lines", "attempts"), ((0, 1), (1500, 0)), ids=("usual", "its start is no longer in its log"))
def test_a_running_task_is_running(lines: int, attempts: int) -> None:
    path = FOLDER / f"go {lines}"
    result = tasks.wait_for.enqueue(str(path), lines=lines)
    with SyncQueue("default") as queue:
        while lines and queue.get_job_logs(result.id.partition(":")[2], limit=1) != [str(lines - 1)]:
            time.sleep(0.02)
    wait_until_finished(result, "RUNNING")
    assert (result.attempts, result.finished_at) == (attempts, None)
    path.touch()
    assert wait_until_finished(result).return_value != "MainThread"


@pytest.mark.usefixtures("worker")
def test_a_task_of_a_named_module_is_found() -> None:
    from tests.frameworks.django_project import elsewhere

    assert wait_until_finished(elsewhere.far_away.enqueue()).return_value == "here"


@pytest.mark.usefixtures("worker")
def test_connections_to_the_database_do_not_outlive_a_task() -> None:
    first, second = (wait_until_finished(tasks.ask_database.enqueue()).return_value for _ in range(2))
    assert second > first


@pytest.mark.usefixtures("worker")
def test_a_name_that_no_module_declares_imports_nothing_and_waits() -> None:
    with SyncQueue("default") as queue:
        job = queue.add("os.system", {"args": ["true"], "kwargs": {}}, job_id="strange")
        deadline = time.monotonic() + PATIENCE_S
        while queue.status(job.id).state != "delayed":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        queue.cancel_delayed(job.id)
        bad = queue.add(tasks.add.module_path, {"to": "ada"}, job_id="bad")
        assert wait_until_finished(tasks.add.get_result(f"default:{bad.id}")).status == "FAILED"


@pytest.mark.usefixtures("worker")
def test_data_of_another_program_that_no_task_takes_is_dead_at_once() -> None:
    with SyncQueue("default") as queue:
        worst = queue.add(tasks.add.module_path, {"args": [b"\xff"], "kwargs": {}}, job_id="worst")
        result = wait_until_finished(tasks.add.get_result(f"default:{worst.id}"))
        assert (result.status, result.args) == ("FAILED", [])
        assert queue.status(worst.id).reason == "unrecoverable"


@pytest.mark.usefixtures("worker")
def test_signals_are_sent_in_the_worker() -> None:
    before = Path(os.environ["SIGNALS"]).read_text().count("\n")
    wait_until_finished(tasks.fail_once.enqueue())
    wait_until_finished(tasks.fail_soon.enqueue("x"))
    lines = Path(os.environ["SIGNALS"]).read_text().splitlines()[before:]
    assert lines == [
        "started fail_once RUNNING 1",
        "started fail_once RUNNING 2",
        "finished fail_once SUCCESSFUL 2",
        "started fail_soon RUNNING 1",
        "started fail_soon RUNNING 2",
        "started fail_soon RUNNING 3",
        "finished fail_soon FAILED 3",
    ]


@pytest.mark.usefixtures("worker")
def test_a_task_is_enqueued_when_its_transaction_is_committed() -> None:
    with SyncQueue("committed") as queue, transaction.atomic():
        result = tasks.after_commit.enqueue(7)
        with pytest.raises(framework.TaskResultDoesNotExist):
            result.refresh()
        assert result.enqueued_at is None
        assert queue.counts().waiting == 0
    assert wait_until_finished(result).return_value == 7

    with transaction.atomic():
        lost = tasks.after_commit.enqueue(8)
        transaction.set_rollback(True)
    with pytest.raises(framework.TaskResultDoesNotExist):
        lost.refresh()


@pytest.mark.parametrize("number", (2**64, "x" * 2_000_000))
def test_a_task_that_cannot_be_sent_is_refused_before_its_transaction_is_committed(number: Any) -> None:
    committed: list[str] = []

    @transaction.atomic
    def view() -> None:
        transaction.on_commit(lambda: committed.append("hook"))
        tasks.after_commit.enqueue(number)

    with pytest.raises((UnsupportedData, PayloadTooLarge)):
        view()
    assert committed == []


def test_a_task_that_is_due_too_late_is_refused_before_its_transaction_is_committed() -> None:
    far = tasks.after_commit.using(run_after=timezone.now() + timedelta(days=365))
    with transaction.atomic(), pytest.raises(InvalidArgument):
        far.enqueue(1)


@pytest.mark.usefixtures("worker")
def test_attempts_and_backoff_of_a_decorator_are_heeded() -> None:
    if os.environ["EXPECTED"] == "django.tasks 6.0":
        pytest.skip("the decorator of Django 6.0 takes no more arguments")
    import dataclasses

    made = framework.tasks.task(attempts=4, backoff=timedelta(seconds=1))(tasks.add.func)
    assert (made.attempts, made.backoff) == (4, timedelta(seconds=1))
    twice = dataclasses.replace(tasks.fail, attempts=2)
    assert wait_until_finished(twice.enqueue("x")).attempts == 2
    with pytest.raises(framework.InvalidTask, match="attempts"):
        framework.tasks.task(attempts=-1)(tasks.add.func)


# The command and the checks -------------------------------------------------------------------------------------------


def test_the_command_refuses_to_replace_a_process_that_calls_it() -> None:
    with pytest.raises(CommandError, match="command line"):
        call_command("chasqui_worker")


def test_the_checks_of_a_good_project_find_nothing() -> None:
    assert [found for found in run_checks() if (found.id or "").startswith("chasqui.")] == []


@pytest.mark.parametrize(
    ("params", "database", "expected"),
    (
        ({"OPTIONS": {"redis": "x"}}, {}, "chasqui.E001"),
        ({"OPTIONS": {"redis_url": 5}}, {}, "chasqui.E001"),
        ({"OPTIONS": {"attempts": 0}}, {}, "chasqui.E001"),
        ({"OPTIONS": {"queues": {"mail": {"concurency": 5}}}}, {}, "chasqui.E001"),
        ({"OPTIONS": {"tasks": {"a.b": {"retries": 5}}}}, {}, "chasqui.E001"),
        ({"QUEUES": []}, {}, "chasqui.E002"),
        ({"OPTIONS": {"on_commit": "other"}}, {}, "chasqui.E003"),
        ({}, {"ATOMIC_REQUESTS": True}, "chasqui.W001"),
        ({"OPTIONS": {"on_commit": "default"}}, {"ATOMIC_REQUESTS": True}, ""),
    ),
)
def test_the_checks_name_what_is_wrong(
    params: dict[str, Any], database: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in database.items():
        monkeypatch.setitem(django_settings.DATABASES["default"], name, value)
    backend = ChasquiBackend("default", {"BACKEND": settings.BACKEND, **params})
    found = [message.id for message in backend.check()]
    assert found == ([expected] if expected else [])
    if expected == "chasqui.E001":
        with pytest.raises(ImproperlyConfigured, match=r"TASKS\['default'\]"):
            backend.enqueue(tasks.add, [], {})
