"""Checks the data of a job before it is added, by the task of its name, if the App is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, InvalidData, printable
from .app_targets import find_app_setting, load_app
from .exits import CommandFailure
from .output import Output

if TYPE_CHECKING:
    from ..app import App
    from ..tasks import Task

CheckData = Callable[[Any], None]


def find_check(app_target: str | None, queue_name: str, job_name: str, output: Output) -> CheckData:
    """Returns what checks data: it raises InvalidArgument if a run of the task would refuse it.

    An App that is named has to have the task. That of the setting may be about other queues, and may be broken: adding
    goes on without the check.
    """
    found = find_app_setting(app_target)
    if not found.value:
        return lambda data: None
    is_named = found.source == "argument"
    try:
        app = load_app(found.value)
    except CommandFailure as error:
        if is_named:
            raise
        output.message(f"the arguments are not checked: {error}")
        return lambda data: None
    task = _find_task(app, job_name)
    if task is not None:
        return lambda data: check_data(task, data)
    if is_named or any(one.queue_name == queue_name for one in app.tasks.values()):
        from difflib import get_close_matches

        guesses = get_close_matches(job_name[:200], list(app.tasks), n=1)
        hint = f"; did you mean {guesses[0]!r}?" if guesses else ""
        raise InvalidArgument(f"{found.value} has no task {printable(job_name)!r}{hint}")
    return lambda data: None


def _find_task(app: App, name: str) -> Task[..., Any] | None:
    return next((task for task in app.tasks.values() if name == task.name or name in task.aliases), None)


def check_data(task: Task[..., Any], data: Any) -> None:
    """Raises InvalidArgument if the data does not fit the parameters of the task."""
    try:
        task.definition.read(data)
    except InvalidData as error:
        raise InvalidArgument(str(error)) from None
    known = task.definition.signature.names
    if unknown := sorted(str(key) for key in (data or {}) if key not in known):
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidArgument(
            f"task {task.name!r} has no parameter {printable(unknown[0])!r}; its parameters are: {listed}"
        )
