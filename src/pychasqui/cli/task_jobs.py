"""Makes jobs of data: as the task of their name would, which checks the data, if the App is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, printable
from .app_targets import find_app_setting, import_app_and_its_modules
from .exits import CommandFailure
from .output import Output

if TYPE_CHECKING:
    from ..app import App
    from ..tasks import Task

MakeJob = Callable[[Any], dict[str, Any]]


def choose_job_maker_loading_app(app_target: str | None, queue_name: str, job_name: str, output: Output) -> MakeJob:
    """Returns what makes arguments of Queue.add() of data: those that the task of this name would be enqueued with.

    It raises InvalidArgument if a run of the task would refuse the data. An App that is named has to have the task.
    That of the setting may be about other queues, and may be broken: adding goes on without it.
    """
    found = find_app_setting(app_target)
    if not found.value:
        return _make_job_maker_without_task(job_name)
    is_named = found.source == "argument"
    try:
        app = import_app_and_its_modules(found.value)
    except CommandFailure as error:
        if is_named:
            raise
        output.print_message_to_stderr(f"the data is not checked: {error}")
        return _make_job_maker_without_task(job_name)
    task = _find_task(app, job_name)
    if task is not None:
        if task.queue_name != queue_name:
            output.print_message_to_stderr(
                f"task {task.name!r} belongs to queue {printable(task.queue_name)!r}: in {printable(queue_name)!r} "
                "its job waits until a worker of that queue knows the task"
            )
        return lambda data: {**task.bind_data(data).as_bulk_entry(), "name": job_name}
    if is_named or any(one.queue_name == queue_name for one in app.tasks.values()):
        from difflib import get_close_matches

        guesses = get_close_matches(job_name[:200], list(app.tasks), n=1)
        hint = f"; did you mean {guesses[0]!r}?" if guesses else ""
        raise InvalidArgument(f"{found.value} has no task {printable(job_name)!r}{hint}")
    return _make_job_maker_without_task(job_name)


def _make_job_maker_without_task(job_name: str) -> MakeJob:
    return lambda data: {"name": job_name, "data": data}


def _find_task(app: App, name: str) -> Task[..., Any] | None:
    return next((task for task in app.tasks.values() if name == task.name or name in task.aliases), None)
