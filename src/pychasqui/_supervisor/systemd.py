"""Notifies systemd of how the supervisor is, by datagrams to the socket that NOTIFY_SOCKET names: sd_notify(3)."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress


class Systemd:
    """notify_if_started_by_systemd() does nothing in a process that systemd has not started."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        is_for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = os.environ.get("WATCHDOG_USEC", "") if self._address and is_for_us else ""
        self.watchdog_interval_s = (
            int(watchdog_us) / 2_000_000 if watchdog_us.isdecimal() else None
        )  # half of what it allows

    def notify_if_started_by_systemd(self, *states: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            sender.sendto("\n".join(states).encode(), address)

    async def keep_notifying_watchdog_if_any(self) -> None:
        """Notifies the watchdog repeatedly that the event loop runs; returns at once if there is none."""
        while self.watchdog_interval_s is not None:
            self.notify_if_started_by_systemd("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_interval_s)

    def notify_reloading(self) -> None:
        """READY=1 has to follow."""
        self.notify_if_started_by_systemd("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
