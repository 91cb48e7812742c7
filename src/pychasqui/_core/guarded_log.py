"""GuardedLogger: a filter or handler of the program that raises ends nothing but its own line."""

from __future__ import annotations

import logging
import traceback
from typing import Any


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as its logger does. What that raises is printed, as logging prints errors of its own handlers."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.logger.isEnabledFor(level):
            return
        try:
            self.logger.log(level, msg, *args, **kwargs, stacklevel=2)  # the caller of this method
        except Exception:  # noqa: BLE001  a foreign filter or handler may raise anything
            if logging.raiseExceptions:
                traceback.print_exc()
