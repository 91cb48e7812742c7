"""A place for one worker process: keeps one running in it, starts it again when it dies, and replaces it when asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .._core import clock
from .child import ChildProcess, describe_exit
from .waiting import wait_for_first_and_cancel_others

log = logging.getLogger("chasqui.supervisor")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0  # after a process that did not come to work
LONGEST_PAUSE_OF_WORKING_S = 1.0
ABANDONED_S = 3.0  # what a successor that is not wanted any more may take to end
STEADY_S = 10.0  # a process that has worked for this long starts again without a pause

StartChild = Callable[[], Awaitable[ChildProcess]]


def choose_next_restart_pause_s(pause_s: float, worked_for_s: float) -> float:
    """How long to wait before a process is started in the place of one that has died, by the pause before that one."""
    if worked_for_s >= STEADY_S:
        return 0.0
    longest_s = LONGEST_PAUSE_OF_WORKING_S if worked_for_s > 0 else LONGEST_PAUSE_S
    return min(max(2 * pause_s, FIRST_PAUSE_S), longest_s)


class ProcessSlot:
    """keep_running_until_over() keeps a process running until `decide_is_over` says that there is nothing more to do
    after one that ended."""

    def __init__(
        self, start_child: StartChild, *, decide_is_over: Callable[[ChildProcess], bool], restart_all: asyncio.Event
    ) -> None:
        self.current: ChildProcess | None = None
        self._start_child = start_child
        self._decide_is_over = decide_is_over
        self._restart_all = restart_all
        self._replacing = asyncio.Lock()
        self._hurried = asyncio.Event()
        self._pause_s = 0.0

    async def start_child(self) -> ChildProcess:
        self.current = await self._start_child()
        return self.current

    async def keep_running_until_over(self) -> None:
        child = self.current or await self.start_child()
        while True:
            await child.wait_for_exit()
            async with self._replacing:  # a successor may be about to take its place
                current = self.current
            if current is not None and current is not child:
                child = current
                continue
            if self._decide_is_over(child):
                return
            await self._log_death_and_wait_before_restart(child)
            if self._decide_is_over(child):  # a signal has ended the pause
                return
            child = await self.start_child()

    def end_restart_pause_if_any(self) -> None:
        """Ends a pause before a restart."""
        self._hurried.set()

    async def try_to_replace_or_hurry_restart(self) -> bool:
        """Starts a successor; once that works, the current process drains. False if the successor does not start, or
        all processes are to be replaced before it has: it may have loaded a program that has changed since."""
        async with self._replacing:
            old = self.current
            if old is None or not old.is_running:
                self.end_restart_pause_if_any()
                return True
            successor = await self._start_child()
            is_known = successor.wait_until(lambda: successor.started is not None or not successor.is_running)
            await wait_for_first_and_cancel_others(is_known, self._restart_all.wait())
            if successor.is_running and successor.started is None:
                await self._end_unstarted_successor(successor)
                return False
            if not successor.is_running:
                if successor.was_asked_to_end:
                    return False
                log.error("process %d %s before it has started", successor.pid, describe_exit(successor.exit_code or 0))
                return False
            self.current = successor
            log.info("process %d works in the place of process %d, which drains", successor.pid, old.pid)
            old.ask_to_end()
            return True

    async def _end_unstarted_successor(self, successor: ChildProcess) -> None:
        log.info("process %d has not started, and ends: another one is to start in its place", successor.pid)
        successor.ask_to_end()
        if not successor.leases:  # else some of its workers run jobs, which they finish
            await wait_for_first_and_cancel_others(successor.wait_for_exit(), timeout_s=ABANDONED_S)
            successor.kill()

    async def _log_death_and_wait_before_restart(self, dead: ChildProcess) -> None:
        worked_for_s = clock.monotonic() - dead.started_at if dead.started is not None else 0.0
        self._pause_s = choose_next_restart_pause_s(self._pause_s, worked_for_s)
        log.error(
            "process %d %s; another one starts in %g s", dead.pid, describe_exit(dead.exit_code or 0), self._pause_s
        )
        self._hurried.clear()
        try:
            async with asyncio.timeout(self._pause_s):
                await self._hurried.wait()
        except TimeoutError:
            pass
