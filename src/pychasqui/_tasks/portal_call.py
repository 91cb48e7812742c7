"""PortalCall: one call of a Portal, made by a caller in its thread, run on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from .portal_loop import CoroutineResult, PortalLoop, RestOfCoroutine
from .wait_group import WaitGroup


class PortalCall:
    """One call: made by a caller, run on the loop."""

    __slots__ = (
        "_context",
        "_error",
        "_make_coroutine",
        "_on_end",
        "_rest",
        "_result",
        "_task",
        "_wake",
        "can_run_loop",
        "group",
        "has_waited_in_group",
        "holder",
        "is_ended",
        "needs_task",
    )

    def __init__(
        self,
        make_coroutine: Callable[[], Coroutine[Any, Any, Any]],
        on_end: Callable[[PortalCall], None],
        needs_task: bool,
        holder: object,
    ) -> None:
        self.holder = holder  # what its coroutine opens connections in
        self.needs_task = needs_task
        self._make_coroutine = make_coroutine
        self._on_end = on_end  # is called on the loop
        self._context = copy_context()  # of the caller, and not of the thread that runs the loop
        self._wake = threading.Lock()
        self._wake.acquire()
        self._rest: RestOfCoroutine[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self.is_ended = False
        self.can_run_loop = True
        self.group: WaitGroup | None = None  # that its caller waits in before it waits alone
        self.has_waited_in_group = False

    # In the caller's thread

    def join_group(self, group: WaitGroup) -> None:
        group.join()
        self.group = group

    def wait_in_group_if_joined(self) -> None:
        if self.group is not None:
            self.group.wait()
            self.has_waited_in_group = True

    def leave_group_and_return_it_if_reusable(self) -> WaitGroup | None:
        """Leaves the group; returns it if it can be used again, else None."""
        group, self.group = self.group, None
        return group if group is not None and group.leave_and_see_if_reusable(self.has_waited_in_group) else None

    def wait_for_wake_up(self) -> None:
        self._wake.acquire()

    def set_can_run_loop(self, can_run_loop: bool) -> None:
        """Says whether its caller can run the loop: not while it runs a handler of a signal."""
        self.can_run_loop = can_run_loop

    def mark_as_needing_task(self) -> None:
        """Has the call run as a Task: its caller does not run it by itself."""
        self.needs_task = True

    def wake_up(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._wake.release()

    def get_result_or_raise(self) -> Any:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # otherwise it would be part of a reference cycle
        return self._result

    def run_here_and_continue_as_task_if_stopped(self, loop: PortalLoop) -> None:
        """Runs the call in this thread, which runs the loop. If a signal stops the loop, the rest becomes a Task."""
        self.mark_as_needing_task()  # if it does not end here
        try:
            found: CoroutineResult[Any] | RestOfCoroutine[Any] = loop.run_without_task_until_ended_or_stopped(
                self._make_coroutine, self._context
            )
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self._error = error
            self.is_ended = True
            return
        if isinstance(found, CoroutineResult):
            self._result = found.result
            self.is_ended = True
        else:
            self._rest = found
            self.start_as_task(loop)

    # On the loop

    def start_as_task(self, loop: PortalLoop) -> None:
        self._task = asyncio.Task(self._run_and_report_end(), loop=loop, context=self._context)

    async def _run_and_report_end(self) -> None:
        try:
            self._result = await (self._make_coroutine() if self._rest is None else self._rest)
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self._error = error
        self._on_end(self)

    def mark_as_ended(self) -> None:
        self.is_ended = True

    def cancel_if_started(self) -> None:
        if self._task is not None:
            self._task.cancel()
