"""Says in the log what fails: the first of its kind with the handler's own frames, those that follow summed up.

Ten thousand failures a second come to a few lines, and a handler that fails for the first time is not overlooked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._core.delivery import Delivery
from .._core.failure import Failure, stack
from .._core.printable import printable

log = logging.getLogger("chasqui.worker")

PERIOD_S = 10.0
MAX_KINDS = 200  # who makes up names or errors on the way must not fill our memory, nor the log
MAX_FRAMES_SHOWN = 5

Kind = tuple[object, ...]
_OTHERS: Kind = ("others",)


@dataclass
class _Repeats:
    """Failures of one kind since it was last told of."""

    what: str
    count: int = 0


class FailureLog:
    """One name, one error and one line that failed make a kind. `call_later` is the event loop's."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._call_later = call_later
        self._repeats: dict[Kind, _Repeats] = {}

    def tell(self, job: Delivery, failure: Failure, what_next: str, *arguments: object) -> bool:
        """Returns whether it was the first of its kind, and is in the log."""
        kind: Kind = (job.name, failure.error_type, failure.lines[-1:])
        repeats = self._repeats.get(kind)
        if repeats is None and len(self._repeats) >= MAX_KINDS:
            kind = _OTHERS
            repeats = self._repeats.get(kind)
        if repeats is not None:
            repeats.count += 1
            if log.isEnabledFor(logging.DEBUG):
                self._write(logging.DEBUG, job, failure, what_next % arguments)
            return False
        self._begin(kind, job, failure)
        frames = "\n" + stack(failure.lines[-MAX_FRAMES_SHOWN:]).rstrip() if failure.lines else ""
        self._write(logging.WARNING, job, failure, what_next % arguments, frames)
        return True

    def _write(self, level: int, job: Delivery, failure: Failure, what_next: str, frames: str = "") -> None:
        runs, why = job.attempt + 1, described(failure)
        log.log(level, "job %.100r (%.100r) failed in run %d, %s: %s%s", job.id, job.name, runs, what_next, why, frames)

    def _begin(self, kind: Kind, job: Delivery, failure: Failure) -> None:
        if not self._repeats:
            self._call_later(PERIOD_S, self._look_back)
        others = "failures of other kinds"
        what = others if kind is _OTHERS else f"{printable(job.name)!r} has failed by {printable(failure.error_type)}"
        self._repeats[kind] = _Repeats(what)

    def sum_up(self) -> None:
        """Tell of what has come since the last time; a kind of which there was nothing more is forgotten."""
        for kind, repeats in list(self._repeats.items()):
            if not repeats.count:
                del self._repeats[kind]
                continue
            log.warning("%s: %d more times within %g s", repeats.what, repeats.count, PERIOD_S)
            repeats.count = 0

    def _look_back(self) -> None:
        self.sum_up()
        if self._repeats:
            self._call_later(PERIOD_S, self._look_back)


def described(failure: Failure) -> str:
    """An error as it stands in a line of the log."""
    return printable(f"{failure.error_type}: {failure.text}" if failure.text else failure.error_type)
