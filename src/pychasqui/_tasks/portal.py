"""Portal: one event loop for the synchronous callers of a process. It has no thread: a caller runs it while it waits.

The first of several callers runs the loop for all of them; the others hand their calls to it, with one wake-up for
all calls of a turn, and wait. Those whose calls start together are woken together, except the first of them: it waits
alone, and can be woken to run the loop without the others. A caller whose call has ended leaves, and hands the loop
over to another. So a program with one thread switches between none, and nothing is left behind that could hang at the
end of a process.
Between two calls nobody runs the loop: replies and lost connections are noticed at the start of the next call.

Before a fork an idle portal closes what it holds. In the child everything is forgotten, and nothing is closed: it is
the parent's. At exit the portal closes what it holds; a call that comes later has a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import encodings.idna  # noqa: F401  the loop needs it for host names; an import in a call could be cut by a fork
import hashlib  # noqa: F401  the same holds for the scripts
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Protocol, TypeVar

from ..embedded import supervisor  # noqa: F401  the same holds for embedded://
from ..errors import WrongLoop
from .deferred_signals import DeferredSignals
from .portal_call import PortalCall
from .portal_loop import PortalLoop, get_running_loop_or_none
from .wait_group import IS_SUPPORTED as HAS_WAIT_GROUPS
from .wait_group import WaitGroup

T = TypeVar("T")

CLOSING_S = 5.0  # how long the end of a process waits for connections to be closed
MAX_FREE_GROUPS = 4  # each has a file open
IDLE_S = 0.1  # after such a pause the loop first reads what has arrived meanwhile


class ClosableQueues(Protocol):
    """What a portal closes on its loop before it ends."""

    @property
    def has_open_queues(self) -> bool: ...

    async def close_queues_of_running_loop(self) -> None: ...


class Portal:
    """run_and_wait(make_coroutine, holder) runs the coroutine that `make_coroutine()` returns, and blocks until it has
    ended.

    `holder` is what the coroutine opens connections in. It is closed on the portal's loop before that ends.
    """

    def __init__(self) -> None:
        self._reset_state()
        self._left_behind: list[object] = []  # of the parent process: freed, they would be closed
        self._is_exiting = False

    def _reset_state(self) -> None:
        self._lock = threading.RLock()  # a signal handler that runs where it is held may fork
        self._loop: PortalLoop | None = None
        self._callers: set[int] = set()  # the threads inside run_and_wait()
        self._calls: dict[int, PortalCall] = {}  # that have not returned, by their threads
        self._runner: PortalCall | None = None  # the call whose thread runs the loop
        self._inbox: list[PortalCall] = []
        self._group: WaitGroup | None = None  # of the callers in the inbox, but for the first
        self._free_groups: list[WaitGroup] = []
        self._ended: list[PortalCall] = []  # whose callers are to be woken
        self._start_is_due = False  # the loop is about to look into the inbox
        self._holders: set[ClosableQueues] = set()
        self._paused_at = 0.0

    def run_and_wait(
        self, make_coroutine: Callable[[], Coroutine[Any, Any, T]], holder: ClosableQueues, *, needs_task: bool = True
    ) -> T:
        """`needs_task` is False if the coroutine does not ask for its Task, as asyncio.timeout() does."""
        thread_id = get_ident()
        # A thread that is inside another call is in a signal handler of the user's, or in a __del__.
        if self._is_exiting or thread_id in self._callers:
            return _run_in_own_loop_and_close_holder(make_coroutine, holder)
        try:
            self._callers.add(thread_id)  # in here: a handler may raise right after it
            call = PortalCall(make_coroutine, self._stop_loop_or_schedule_wake_up, needs_task, holder)
            if thread_id == threading.main_thread().ident:
                with DeferredSignals(partial(self._wake_caller_to_run_signal_handlers, call)) as signals:
                    self._run_loop_or_wait_until_ended(thread_id, call, holder, signals)
            else:  # no handler runs here
                self._run_loop_or_wait_until_ended(thread_id, call, holder, None)
        finally:
            self._callers.discard(thread_id)
        result: T = call.get_result_or_raise()
        return result

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def forget_holder_if_closed_and_unused(self, holder: ClosableQueues) -> None:
        """Lets go of a holder, unless another thread uses it by now."""
        with self._lock:
            if not holder.has_open_queues and all(call.holder is not holder for call in self._calls.values()):
                self._holders.discard(holder)

    # A call's way ---------------------------------------------------------------------------------------------------

    def _run_loop_or_wait_until_ended(
        self, thread_id: int, call: PortalCall, holder: ClosableQueues, signals: DeferredSignals | None
    ) -> None:
        try:
            self._put_call_in_inbox_or_make_it_runner(thread_id, call, holder, can_join_group=signals is None)
            if signals is not None and self._loop is not None and threading.active_count() > 1:
                signals.have_signals_written_to(self._loop.wakeup_fd)
            call.wait_in_group_if_joined()
            while not call.is_ended:
                if self._runner is call:
                    self._run_loop_and_wake_ended_callers(call)
                else:
                    call.wait_for_wake_up()
                if signals is not None and signals.arrived:
                    self._hand_over_loop_and_run_signal_handlers(signals, call)
        finally:
            self._remove_or_cancel_call_and_hand_over_loop(thread_id, call)

    def _put_call_in_inbox_or_make_it_runner(
        self, thread_id: int, call: PortalCall, holder: ClosableQueues, *, can_join_group: bool
    ) -> None:
        with self._lock:
            loop = self._loop = self._loop or PortalLoop(self._wake_main_thread_if_it_waits)
            self._calls[thread_id] = call
            self._holders.add(holder)
            if self._runner is None:
                self._runner = call
                if not loop.can_run_without_task:
                    call.mark_as_needing_task()
                if call.needs_task:
                    self._inbox.append(call)
                return
            call.mark_as_needing_task()  # another thread runs it
            if self._inbox and can_join_group and HAS_WAIT_GROUPS:
                self._try_to_join_wait_group_of_inbox(call)
            self._inbox.append(call)
            is_first, self._start_is_due = not self._start_is_due, True
        if is_first:  # outside the lock: it is a system call
            loop.call_soon_threadsafe(self._start_inbox_calls)

    def _try_to_join_wait_group_of_inbox(self, call: PortalCall) -> None:
        if self._group is None:
            try:
                self._group = self._free_groups.pop() if self._free_groups else WaitGroup()
            except OSError:  # too many files are open: it waits alone
                return
        call.join_group(self._group)

    def _wake_caller_to_run_signal_handlers(self, call: PortalCall) -> None:
        """Makes the caller in the main thread look for signals; called by a signal handler there."""
        call.wake_up()
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # closed before a fork: the call has not joined yet
                loop.call_soon_threadsafe(loop.stop)

    def _hand_over_loop_and_run_signal_handlers(self, signals: DeferredSignals, call: PortalCall) -> None:
        """Runs the user's handlers, while another caller may run the loop."""
        with self._lock:
            call.set_can_run_loop(False)
            runner = self._choose_next_runner_if_runner_is(call)
        if runner is not None:
            self._wake_next_runner_and_its_group(runner)
        signals.run_arrived_handlers()
        with self._lock:
            call.set_can_run_loop(True)
            self._runner = self._runner or call

    def _run_loop_and_wake_ended_callers(self, call: PortalCall) -> None:
        loop = self._loop
        assert loop is not None
        if loop.time() - self._paused_at > IDLE_S:
            loop.run_one_turn()  # and no more: a signal may have ended this turn
        elif not call.needs_task:
            call.run_here_and_continue_as_task_if_stopped(loop)
        else:
            self._start_inbox_calls()
            loop.run_forever()
        self._paused_at = loop.time()
        self._wake_callers_of_ended_calls()

    def _remove_or_cancel_call_and_hand_over_loop(self, thread_id: int, call: PortalCall) -> None:
        with self._lock:
            self._calls.pop(thread_id, None)
            runner = self._choose_next_runner_if_runner_is(call)
            group = call.leave_group_and_return_it_if_reusable()
            if group is not None and len(self._free_groups) < MAX_FREE_GROUPS:
                self._free_groups.append(group)
            if not call.is_ended:
                self._cancel_abandoned_call(call)
        if runner is not None:
            self._wake_next_runner_and_its_group(runner)

    def _cancel_abandoned_call(self, call: PortalCall) -> None:
        """Cancels a call whose caller was interrupted: the next caller ends it, or the close of the portal."""
        with suppress(ValueError):
            self._inbox.remove(call)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call.cancel_if_started)

    def _choose_next_runner_if_runner_is(self, call: PortalCall) -> PortalCall | None:
        """If this call's thread runs the loop, has another run it. The lock is held, and the loop does not run."""
        if self._runner is not call:
            return None
        self._runner = None
        for other in self._calls.values():
            if other.can_run_loop and not other.is_ended:
                self._runner = other
                if other.group is None:  # to wake it wakes no other
                    break
        return self._runner

    def _wake_next_runner_and_its_group(self, call: PortalCall) -> None:
        with self._lock:
            group = call.group
            if group is self._group:
                self._group = None  # none may join it any more
        if group is not None and not group.is_awake:
            group.wake_all()
        call.wake_up()

    # On the loop ----------------------------------------------------------------------------------------------------

    def _start_inbox_calls(self) -> None:
        with self._lock:
            calls, self._inbox, self._group = self._inbox, [], None
            self._start_is_due = False  # a call that comes after it wakes the loop again
        assert self._loop is not None
        for call in calls:
            call.start_as_task(self._loop)

    def _wake_main_thread_if_it_waits(self) -> None:
        """A signal has come: the main thread runs its handler as soon as it runs at all."""
        main = self._calls.get(threading.main_thread().ident or 0)
        if main is not None:
            main.wake_up()

    def _stop_loop_or_schedule_wake_up(self, call: PortalCall) -> None:
        """A call has its result: its caller shall leave, together with the others of this turn."""
        if self._loop is None:  # the portal closes: the caller has left long ago
            return
        if self._runner is call:
            call.mark_as_ended()
            self._loop.stop()
            return
        if not self._ended:
            self._loop.call_soon(self._wake_callers_of_ended_calls)
        self._ended.append(call)

    def _wake_callers_of_ended_calls(self) -> None:
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        groups = {call.group for call in ended}
        asleep = [group for group in groups if group is not None and not group.is_awake]
        alone = [call for call in ended if call.group not in asleep]
        for call in ended:
            call.mark_as_ended()
        for call in alone:
            call.wake_up()
        for group in asleep:  # last: it lets go of the GIL
            group.wake_all()

    # Its end, and forks ---------------------------------------------------------------------------------------------

    def _close_holders_and_loop_if_possible(self) -> None:
        """Closes the holders and the loop. The lock is held, and there are no calls."""
        loop, holders = self._loop, list(self._holders)
        if loop is None or get_running_loop_or_none() is not None:
            return
        self._loop = None
        self._holders.clear()
        loop.run_one_turn()  # also a stop of the loop that a signal has left behind
        with suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(_close_holders_ignoring_errors(holders), CLOSING_S))
        loop.cancel_and_await_remaining_tasks()
        loop.close()
        self._ended.clear()  # of callers that have left
        self._free_groups.clear()

    def mark_exiting_and_close_if_idle(self) -> None:
        self._is_exiting = True
        with self._lock:
            if not self._calls:
                self._close_holders_and_loop_if_possible()

    def lock_and_close_if_idle_before_fork(self) -> None:
        self._lock.acquire()
        if not self._callers:
            self._close_holders_and_loop_if_possible()

    def unlock_after_fork_in_parent(self) -> None:
        self._lock.release()

    def reset_without_closing_in_fork_child(self) -> None:
        DeferredSignals.drop_arrived_and_restore_in_fork_child()
        if self._loop is not None:
            self._loop.abandon_in_child()
        self._left_behind += [self._loop, self._inbox, self._calls, self._holders]
        self._reset_state()


async def _close_holders_ignoring_errors(holders: list[ClosableQueues]) -> None:
    await asyncio.gather(*(holder.close_queues_of_running_loop() for holder in holders), return_exceptions=True)


def _run_in_own_loop_and_close_holder(
    make_coroutine: Callable[[], Coroutine[Any, Any, T]], holder: ClosableQueues
) -> T:
    loop = PortalLoop(lambda: None)

    async def run_and_close_holder() -> T:
        try:
            return await make_coroutine()
        finally:
            await holder.close_queues_of_running_loop()

    try:
        return loop.run_until_complete(run_and_close_holder())
    finally:
        loop.close()


def refuse_if_loop_runs_here(blocking_call: str, instead: str) -> None:
    """Raises WrongLoop where an event loop runs: a blocking call would stop it."""
    if get_running_loop_or_none() is not None:
        raise WrongLoop(f"{blocking_call} would block the event loop that runs here: {instead}")


portal = Portal()  # one a process
atexit.register(portal.mark_exiting_and_close_if_idle)  # at import: handlers that are registered later come before it
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
    os.register_at_fork(
        before=portal.lock_and_close_if_idle_before_fork,
        after_in_parent=portal.unlock_after_fork_in_parent,
        after_in_child=portal.reset_without_closing_in_fork_child,
    )
