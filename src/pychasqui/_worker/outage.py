"""Outage: trouble with Redis as one loop sees it. It logs the beginning and the end, and paces the attempts between."""

from __future__ import annotations

from .._core.guarded_log import GuardedLogger
from .._core.pauses import GrowingPause
from .._core.printable import printable
from ..errors import CommandTimeout, ConnectionLost, RedisTrouble

log = GuardedLogger("chasqui.worker")


class Outage:
    """record_error_and_choose_pause_s() each error -> longer and longer pauses -> end() with the first success.

    A lost connection is not logged here: the connection itself notices it first, and logs it.
    """

    def __init__(self, cannot: str, again: str) -> None:
        self.trouble: str | None = None  # what was logged
        self._cannot = cannot
        self._again = again
        self._backoff = GrowingPause()
        self._is_logged = False

    @property
    def is_on(self) -> bool:
        return self._backoff.pause_s > 0

    def record_error_and_choose_pause_s(self, error: Exception) -> float:
        """Returns how long to wait before the next try. An error that is not from Redis is logged as a defect."""
        if not self._is_logged and not isinstance(error, (ConnectionLost, CommandTimeout)):
            if isinstance(error, RedisTrouble):
                log.warning("%s: %s", self._cannot, error)
            else:
                log.error("%s: %r", self._cannot, error, exc_info=error)
            self._is_logged = True
            self.trouble = printable(f"{type(error).__name__}: {error}")
        return self._backoff.lengthen_pause_s()

    def end(self) -> None:
        if self._is_logged:
            log.info("%s", self._again)
        self._backoff.reset()
        self._is_logged, self.trouble = False, None
