"""Points in time on the command line: a calendar's, or a span before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from .options import SPAN


class MomentType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """A time: 2026-01-31T12:00:00Z (UTC unless it says otherwise), 2026-01-31, or a span before now, such as 2h."""

    name = "time"

    def __init__(self, *, takes_span: bool) -> None:
        self._takes_span = takes_span

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            if not self._takes_span:
                self.fail(f"{value[:50]!r} is not a time such as 2026-01-31T12:00:00Z", param, ctx)
        else:
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        try:
            return datetime.now(UTC) - timedelta(milliseconds=SPAN.convert(value, param, ctx))
        except (click.BadParameter, OverflowError):
            self.fail(
                f"{value[:50]!r} is neither a time such as 2026-01-31T12:00:00Z nor a span such as 30s, 5m, 2h or 7d",
                param,
                ctx,
            )


PAST_MOMENT = MomentType(takes_span=True)
MOMENT = MomentType(takes_span=False)
