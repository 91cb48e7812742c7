"""Tasks that return, fail, take time, and look at their surroundings."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

from pychasqui import RetryLater, Snooze, UnrecoverableError, current_job
from pychasqui.integrations.django.framework import signals, tasks

task = tasks.task


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="mail")
async def add_soon(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@task(takes_context=True)
def count_attempts(context: Any, runs: int) -> list[Any]:
    if context.attempt < runs:
        raise KeyError("again")
    return [context.attempt, context.task_result.id, len(context.task_result.errors)]


@task
def fail_once() -> str:
    if current_job().attempt == 0:
        raise ValueError("the first run fails")
    return "second"


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
async def fail_soon(text: str) -> None:
    raise LookupError(text)


@task(queue_name="slow")
async def sleep() -> None:
    await asyncio.sleep(1000)


@task
def give_up() -> None:
    raise UnrecoverableError("never")


@task
def come_back() -> int:
    if current_job().attempt == 0:
        raise RetryLater(0.02)
    return current_job().attempt


@task
def put_off() -> None:
    raise Snooze(0.02, limit=1)


class Hopeless(UnrecoverableError):
    """No other run would help."""


@task
def log_much() -> None:
    for number in range(1050):
        current_job().log(str(number))
    raise Hopeless


@task
def no_json() -> object:
    return object()


class Label(str):
    """As the text that Django's templates and mark_safe() return."""


runs: list[str] = []


@task
def return_label() -> dict[str, Any]:
    return {"label": Label("ada"), "runs": runs.append("label") or len(runs)}  # type: ignore[func-returns-value]


@task
def change_arguments(items: list[Any], *, more: dict[str, Any]) -> int:
    items.append(object())
    more["lock"] = threading.Lock()
    return len(items)


@task
def return_what_cannot_be_stored(text: bool) -> object:
    return "\udcff" if text else [2**64]


@task
def give_up_in_odd_letters() -> None:
    raise UnrecoverableError("not UTF-8: \udcff")


@task
def die(path: str) -> None:
    while not Path(path).exists():
        threading.Event().wait(0.01)
    os._exit(3)


@task
def wait_for(path: str, lines: int = 0) -> str:
    for number in range(lines):
        current_job().log(str(number))
    while not Path(path).exists():
        threading.Event().wait(0.01)
    return threading.current_thread().name


opened: list[str] = []
connection_created.connect(lambda **_: opened.append("a connection"), weak=False)


@task
def ask_database() -> int:
    """Returns how many connections this process has opened so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return len(opened)


@task(backend="committed", queue_name="committed")
def after_commit(number: int) -> int:
    return number


def note_signal(kind: str, task_result: Any) -> None:
    """Runs in the worker, where a receiver may ask the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    with open(os.environ["SIGNALS"], "a") as file:
        file.write(f"{kind} {task_result.task.name} {task_result.status} {task_result.attempts}\n")


def queue_active_event(sender: Any, task_result: Any, **_: Any) -> None:
    note_signal("started", task_result)


def note_finished(sender: Any, task_result: Any, **_: Any) -> None:
    note_signal("finished", task_result)


signals.task_started.connect(queue_active_event)
signals.task_finished.connect(note_finished)
