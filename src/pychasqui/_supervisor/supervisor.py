"""ProcessSupervisor: keeps worker processes running.

It runs no code of the user: that is imported by the processes alone. So it cannot be blocked, and a process that starts
later has the newest code. It holds the leases of the workers (leases.py). A process that dies is started again, after a
pause if it has not worked for long. A signal that ends the supervisor lets the processes drain first.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._core import clock
from .._http.server import HttpServer
from ..errors import CannotServe
from .child import ChildProcess, describe_exit, make_child_environment
from .leases import LeaseHolder
from .memory import MemoryLimit, read_memory_bytes
from .messages import Credentials, LeaseTaken, Loaded, Message, Started, SuccessorRequest
from .pages import SupervisorPages
from .reload import keep_watching_python_files
from .signals import SupervisorSignals
from .slot import ProcessSlot
from .socket_folder import make_folder_for_sockets
from .systemd import Systemd
from .waiting import wait_for_first_and_cancel_others

log = logging.getLogger("chasqui.supervisor")

CLEANUP_S = 15.0  # what a draining process may take beyond its deadline: to cancel handlers, to settle and to leave
HURRIED_S = 3.0  # what it may take after a second signal
LOOK_EVERY_S = 1.0
RECYCLE_AGAIN_S = 10.0
START_AGAIN_S = 1.0


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    processes: int
    shutdown_timeout_s: float  # for its jobs, if its workers allow no more; a process gets CLEANUP_S more to end
    hang_timeout_s: float | None  # a process whose interpreter has not run for this long is killed; None: never
    max_memory_bytes: int | None = None  # a process that occupies more is replaced
    metrics_address: tuple[str, int] | None = (
        None  # None: where the program of the workers wants their pages, if it does
    )
    reload_folders: Sequence[Path] = ()  # a change of a Python file below them replaces the processes
    is_burst: bool = False  # a process that ends with exit code 0 is not started again


class ProcessSupervisor:
    """run() returns the exit code once all processes have ended."""

    def __init__(self, command: Sequence[str], options: SupervisorOptions) -> None:
        self._command = command
        self._options = options
        self._signals = SupervisorSignals()
        self._slots = [
            ProcessSlot(
                self._start_child_with_retries_until_stopped,
                decide_is_over=self._decide_to_leave_empty_and_stop_if_broken,
                restart_all=self._signals.restart_all,
            )
            for _ in range(options.processes)
        ]
        self._children: set[ChildProcess] = set()  # all that run
        self._recycled: set[ChildProcess] = set()  # those that a successor is about to replace
        self._leases = LeaseHolder()
        self._memory_limit = MemoryLimit(options.max_memory_bytes) if options.max_memory_bytes is not None else None
        self._pages = SupervisorPages(lambda: self._children, lambda: [slot.current for slot in self._slots])
        self._http: HttpServer | None = None
        self._systemd = Systemd()
        self._folder = Path()
        self._has_worked = False  # whether any process has started its workers
        self._is_ready = False  # whether all slots had a process that works, at the same time
        self._exit_code = 0
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        self._folder = make_folder_for_sockets()
        self._signals.install_handlers()
        try:
            if self._options.metrics_address is not None:
                await self._start_serving_pages(self._options.metrics_address)
            await self._run_until_stopped()
            await self._end_children_and_set_exit_code()
        finally:
            for child in self._children:
                child.kill()
            for task in self._tasks:
                task.cancel()
            await self._leases.close()
            if self._http is not None:
                await self._http.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._exit_code

    async def _run_until_stopped(self) -> None:
        # The first process shows whether the program can be loaded; if not, one of them says so and not all.
        self._start_task_that_must_not_fail(self._keep_killing_and_replacing_unfit_children())
        first = await self._slots[0].start_child()
        is_known = first.wait_until(lambda: first.is_loaded or not first.is_running)
        await wait_for_first_and_cancel_others(is_known, self._signals.stop.wait())
        if self._signals.stop.is_set() or (
            not first.is_running and self._decide_to_leave_empty_and_stop_if_broken(first)
        ):
            return
        self._start_task_that_must_not_fail(self._keep_replacing_all_when_asked())
        self._start_task_that_must_not_fail(self._systemd.keep_notifying_watchdog_if_any())
        if self._options.reload_folders:
            self._start_task_that_must_not_fail(
                keep_watching_python_files(self._options.reload_folders, self._request_restart_for_changed_files)
            )
        self._start_task_that_must_not_fail(self._run_slots_then_stop())
        await self._signals.stop.wait()

    async def _run_slots_then_stop(self) -> None:
        """In a burst all of them end by themselves."""
        await asyncio.gather(*(slot.keep_running_until_over() for slot in self._slots))
        self._signals.stop.set()

    # Processes ------------------------------------------------------------------------------------------------------

    async def _start_child_with_retries_until_stopped(self) -> ChildProcess:
        child = ChildProcess(self._act_on_message, self._forget_child_and_end_its_leases)
        while not await self._try_to_start_child(child):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signals.stop.wait(), START_AGAIN_S)
                child.ask_to_end()
                return child
        log.info("process %d starts", child.pid)
        if self._signals.stop.is_set():
            child.ask_to_end()
        return child

    async def _try_to_start_child(self, child: ChildProcess) -> bool:
        """Whether the system lets another process start; if not, it may later."""
        async with self._starting:
            try:
                await child.start(
                    self._command, make_child_environment(), folder=self._folder, serves_pages=self._http is not None
                )
            except OSError as error:
                log.error("no process can be started now, another try follows: %s", error)
                return False
            self._children.add(child)
            return True

    def _act_on_message(self, child: ChildProcess, message: Message) -> None:
        if isinstance(message, Loaded) and message.metrics_address is not None and self._http is None:
            self._start_task_that_must_not_fail(self._try_to_start_serving_pages(message.metrics_address))
        elif isinstance(message, LeaseTaken):
            self._leases.start_renewing_lease_if_worker_does_not(message.lease)
        elif isinstance(message, Started):
            self._has_worked = True
            if self._memory_limit is not None:
                self._memory_limit.compare_limit_with_start_size(read_memory_bytes(child.pid))
            log.info("process %d works", child.pid)
            self._start_task_that_must_not_fail(self._notify_systemd_once_all_work())
        elif isinstance(message, Credentials):
            self._leases.store_credentials(message)
        elif isinstance(message, SuccessorRequest):
            for slot in self._slots:
                self._request_replacement_if_wanted(slot)

    def _forget_child_and_end_its_leases(self, child: ChildProcess) -> None:
        self._children.discard(child)
        self._recycled.discard(child)
        self._leases.start_ending_leases(child.leases, has_exited_with_error=child.exit_code != 0)
        if child.was_asked_to_end and not child.was_killed:
            log.info("process %d %s", child.pid, describe_exit(child.exit_code or 0))
        self._pages.count_ended_process_and_keep_its_counts(child)

    def _decide_to_leave_empty_and_stop_if_broken(self, ended: ChildProcess) -> bool:
        code = ended.exit_code or 0
        if self._signals.stop.is_set() or (self._options.is_burst and code == 0):
            return True
        if not self._has_worked and code > 0:  # it has said why: a wrong name, a module that raises, a wrong password
            self._exit_code = code
            self._signals.stop.set()
            return True
        return False

    async def _notify_systemd_once_all_work(self) -> None:
        """All slots work for the first time: systemd may start what waits for this service."""
        works = [slot.current is not None and slot.current.started is not None for slot in self._slots]
        if all(works) and not self._is_ready:
            self._is_ready = True
            self._systemd.notify_if_started_by_systemd("READY=1", f"STATUS={len(works)} processes work")

    def _request_replacement_if_wanted(self, slot: ProcessSlot) -> None:
        """A process that asks before it is in its slot is replaced once it is there."""
        child = slot.current
        if child is not None and child.successor_request is not None and child.is_running:
            self._request_replacement_once(child, child.successor_request.why)

    def _request_replacement_once(self, child: ChildProcess, why: str) -> None:
        if child not in self._recycled:
            self._recycled.add(child)
            log.info("process %d is replaced: %s", child.pid, why)
            self._start_task_that_must_not_fail(self._replace_child_with_retries(child))

    async def _replace_child_with_retries(self, child: ChildProcess) -> None:
        for slot in self._slots:
            while slot.current is child and child.is_running and not self._signals.stop.is_set():
                if not await slot.try_to_replace_or_hurry_restart():
                    await asyncio.sleep(RECYCLE_AGAIN_S)

    async def _keep_killing_and_replacing_unfit_children(self) -> None:
        looked_at = clock.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            looked_at, late_s = clock.monotonic(), clock.monotonic() - looked_at - LOOK_EVERY_S
            for child in list(self._children):
                if late_s > LOOK_EVERY_S:  # the container was paused, or the machine too busy: the processes as well
                    child.exclude_lost_time(late_s)
                self._kill_if_hanging(child)
                self._kill_if_not_drained_in_time(child)
            for slot in self._slots:
                self._request_replacement_if_wanted(slot)
                self._request_replacement_if_over_memory_limit(slot)

    def _kill_if_hanging(self, child: ChildProcess) -> None:
        """Kills a process that hangs: what holds its interpreter up may never let it go."""
        limit_s, silent_s = self._options.hang_timeout_s, clock.monotonic() - child.last_message_at
        if limit_s is not None and silent_s > limit_s and not child.was_killed:
            log.error("process %d has given no sign of life for %.0f s and is killed", child.pid, silent_s)
            child.kill()

    def _kill_if_not_drained_in_time(self, child: ChildProcess) -> None:
        """Kills a process that was replaced and does not end: its event loop may be blocked for good."""
        if child.asked_to_end_at is None or child.was_killed or self._signals.stop.is_set():
            return  # the end of the supervisor has a deadline of its own
        deadline_s = max(self._options.shutdown_timeout_s, child.shutdown_deadline_s) + CLEANUP_S
        if clock.monotonic() - child.asked_to_end_at > deadline_s:
            self._kill_late_child(child)

    def _kill_late_child(self, child: ChildProcess) -> None:
        log.error("process %d has not ended in time and is killed; its jobs run again", child.pid)
        child.kill()

    def _request_replacement_if_over_memory_limit(self, slot: ProcessSlot) -> None:
        limit, child = self._memory_limit, slot.current
        if limit is None or child is None or child.started is None or child in self._recycled:
            return
        why = limit.find_why_to_replace_and_set_next_wait(
            slot, read_memory_bytes(child.pid), clock.monotonic() - child.started_at
        )
        if why is not None:
            self._request_replacement_once(child, why)

    # Pages ----------------------------------------------------------------------------------------------------------

    async def _start_serving_pages(self, address: tuple[str, int]) -> None:
        self._http = HttpServer(*address, self._pages.make_pages_by_path())
        await self._http.start()
        self._start_task_that_must_not_fail(self._pages.keep_fetching_metrics())

    async def _try_to_start_serving_pages(self, address: tuple[str, int]) -> None:
        """The program of the workers says where their pages are; jobs run also if that cannot be."""
        try:
            await self._start_serving_pages(address)
        except CannotServe as error:
            log.error("the pages of the workers cannot be served: %s", error)

    # Rolling --------------------------------------------------------------------------------------------------------

    async def _keep_replacing_all_when_asked(self) -> None:
        while True:
            await self._signals.restart_all.wait()
            self._signals.restart_all.clear()
            self._systemd.notify_reloading()
            await self._replace_all_until_one_fails()
            self._systemd.notify_if_started_by_systemd("READY=1")

    def _request_restart_for_changed_files(self, files: list[Path]) -> None:
        log.info("%d files have changed, among them %s", len(files), files[0])
        self._signals.restart_all.set()

    async def _replace_all_until_one_fails(self) -> None:
        """Replaces the processes one after the other. The old ones stay if a new one does not start. Returns early
        if all are to be replaced again."""
        log.info("%d processes are replaced, one after the other", len(self._slots))
        for slot in self._slots:
            if self._signals.stop.is_set():
                return
            if not await slot.try_to_replace_or_hurry_restart():
                if self._signals.stop.is_set() or self._signals.restart_all.is_set():
                    return
                log.error("the processes that have not been replaced go on with the program that they have loaded")
                return
        log.info("all processes are replaced")

    # Ending ---------------------------------------------------------------------------------------------------------

    async def _end_children_and_set_exit_code(self) -> None:
        self._systemd.notify_if_started_by_systemd("STOPPING=1")
        for slot in self._slots:
            slot.end_restart_pause_if_any()
        async with self._starting:
            pass  # a process that is being started is among the others then
        own_s = (child.shutdown_deadline_s for child in self._children)
        deadline_s = max([self._options.shutdown_timeout_s, *own_s])
        if self._children:
            log.info("%d processes drain for up to %g s", len(self._children), deadline_s)
        if await self._ask_children_to_end_and_wait(deadline_s + CLEANUP_S, self._signals.hurry):
            return
        if self._signals.hurry.is_set() and await self._ask_children_to_end_and_wait(HURRIED_S):
            return
        for child in list(self._children):
            self._exit_code = self._exit_code or 1
            self._kill_late_child(child)
        await self._wait_until_all_children_ended()

    async def _ask_children_to_end_and_wait(self, within_s: float, hurried: asyncio.Event | None = None) -> bool:
        """Asks all processes to end. Whether they do, in time. Without `hurried` it asks those once more that drain
        already: asked twice, they end at once."""
        for child in list(self._children):
            if hurried is None or child.asked_to_end_at is None:
                child.ask_to_end()
        hurry = [hurried.wait()] if hurried is not None else []
        await wait_for_first_and_cancel_others(self._wait_until_all_children_ended(), *hurry, timeout_s=within_s)
        return not self._children

    async def _wait_until_all_children_ended(self) -> None:
        while self._children:
            await next(iter(self._children)).wait_for_exit()

    # Tasks ----------------------------------------------------------------------------------------------------------

    def _start_task_that_must_not_fail(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_supervisor_if_task_failed)

    def _end_supervisor_if_task_failed(self, task: asyncio.Task[None]) -> None:
        """A part that has failed, which only a defect can bring about, ends the supervisor."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the supervisor has failed, and ends", exc_info=error)
            self._exit_code = self._exit_code or 1
            self._signals.stop.set()
