"""A repeatable as `repeatable add` and the tables of `repeatable apply` describe it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, InvalidType
from ..retry import BackoffSpec, RetryOverride
from ..schedule import MissedFiresPolicy, RepeatPattern
from .options import SPAN

if TYPE_CHECKING:
    from ..queue import Queue
    from ..repeatables import Repeatable, RepeatableMeta

BACKOFF_FIELDS = "kind, delay, max_delay, multiplier, jitter"


@dataclass(frozen=True, kw_only=True)
class WantedRepeatable:
    """What Repeatables.upsert() takes."""

    key: str | None
    name: str
    data: Any
    repeat: RepeatPattern
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    attempts: int | None = None
    backoff: BackoffSpec | None = None
    missed_fires: MissedFiresPolicy

    async def store_or_only_check(self, queue: Queue, *, dry_run: bool = False) -> RepeatableMeta:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return await queue.repeatables.upsert(**options, dry_run=dry_run)

    def is_equal_to_stored(self, stored: Repeatable) -> bool:
        meta, retry = stored.meta, stored.retry or RetryOverride()
        there = WantedRepeatable(
            key=meta.key,
            name=meta.job_name,
            data=stored.data,
            repeat=meta.pattern,
            limit=meta.limit,
            start_after_ms=meta.start_after_ms,
            end_before_ms=meta.end_before_ms,
            attempts=retry.max_attempts,
            backoff=retry.backoff,
            missed_fires=meta.missed_fires or MissedFiresPolicy.skip(),
        )
        return there == self


def make_pattern_of_every_or_cron(every_ms: int | None, cron: str | None, tz: str | None) -> RepeatPattern:
    if (every_ms is None) == (cron is None):
        raise InvalidArgument("it needs either every or cron")
    if cron is not None:
        return RepeatPattern.cron(cron, tz)
    if tz is not None:
        raise InvalidArgument("tz is the time zone of cron: an interval has none")
    assert every_ms is not None
    return RepeatPattern.every(every_ms)


def make_backoff_of_span_or_table(given: Any) -> BackoffSpec | None:
    """A span is the wait before every retry; a table has the fields of a BackoffSpec, with spans in quotes."""
    if given is None:
        return None
    if not isinstance(given, dict):
        return BackoffSpec.fixed(parse_span_ms("backoff", given))
    if unknown := given.keys() - set(BACKOFF_FIELDS.split(", ")):
        raise InvalidArgument(f"backoff has no field {min(unknown)!r}: the fields are {BACKOFF_FIELDS}")
    delay_ms = parse_span_ms("backoff.delay", given.get("delay"))
    spans = {name: parse_span_ms(f"backoff.{name}", given[name]) for name in ("max_delay", "jitter") if name in given}
    if given.get("kind") == "fixed" and not given.keys() & {"max_delay", "multiplier"}:
        return BackoffSpec.fixed(delay_ms, spans.get("jitter"))
    if given.get("kind") == "exponential":
        multiplier = given.get("multiplier", 2.0)
        return BackoffSpec.exponential(
            delay_ms, multiplier=multiplier, max_ms=spans.get("max_delay"), jitter_ms=spans.get("jitter")
        )
    raise InvalidArgument('backoff.kind must be "exponential", or "fixed" without max_delay and multiplier')


def parse_span_ms(name: str, given: Any) -> int:
    if not isinstance(given, str):
        raise InvalidType(f'{name} must be a span in quotes, such as "5m"')
    return SPAN.convert(given, None, None)
