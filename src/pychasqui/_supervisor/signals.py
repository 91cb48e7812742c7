"""The signals that the supervisor gets, as events: stop, hurry and restart_all."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from .._core import clock

log = logging.getLogger("chasqui.supervisor")

SECOND_SIGNAL_S = 0.2  # a signal that comes sooner is the first once more: `timeout` and terminals send it twice


class SupervisorSignals:
    """install_handlers() -> SIGTERM and SIGINT set `stop`, and `hurry` the second time; SIGHUP sets `restart_all`."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.restart_all = asyncio.Event()
        self._stopped_at = 0.0  # monotonic
        self._had_terminal = _has_terminal()
        self._outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # what nohup does

    def install_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_or_hurry_on_second_signal, number.name)
        loop.add_signal_handler(signal.SIGHUP, self._restart_stop_or_ignore_on_sighup)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the system would forget how a process has ended
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _stop_or_hurry_on_second_signal(self, name: str) -> None:
        now = clock.monotonic()
        if not self.stop.is_set():
            log.info("%s: the processes end; a second signal ends them at once", name)
            self._stopped_at = now
            self.stop.set()
        elif now - self._stopped_at >= SECOND_SIGNAL_S and not self.hurry.is_set():
            log.warning("%s again: the processes end now", name)
            self.hurry.set()

    def _restart_stop_or_ignore_on_sighup(self) -> None:
        """A terminal that is closed sends the same signal to the programs on it, and expects them to end, unless they
        were started to ignore it."""
        if not self._had_terminal or _has_terminal():
            self.restart_all.set()
        elif self._outlives_terminal:
            log.info("the terminal is gone, and the processes go on: SIGHUP was ignored at the start, as by nohup")
            self._had_terminal = False
        else:
            self._stop_or_hurry_on_second_signal("SIGHUP of a terminal that is gone")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True
