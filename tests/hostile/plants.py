"""Defects that a round must notice; otherwise its silence about the real code proves nothing.

Each is what a careless change would bring: an error that ends a loop, a pause without an end, neighbours of a broken
entry set aside with it, a reader that does not check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from pychasqui import RedisTrouble
from pychasqui._wire import dead_letter
from pychasqui._worker.decoder import Decoder
from pychasqui._worker.outage import Outage
from pychasqui._worker.promoter import PromoterService


@contextmanager
def _death() -> Iterator[None]:
    """The promoter fails when it finds a delayed member that is no job, and a loop that fails ends."""
    plan, record_error_and_choose_pause_s = (
        PromoterService._note_promotion_and_choose_pause_s,
        Outage.record_error_and_choose_pause_s,
    )

    def careless(self: PromoterService, done: Any, *arguments: Any, **options: Any) -> float:
        if done.buried_count:
            raise ValueError("planted")
        return plan(self, done, *arguments, **options)

    def fatal(self: Outage, error: Exception) -> float:
        if not isinstance(error, RedisTrouble):
            raise error
        return record_error_and_choose_pause_s(self, error)

    with (
        patch.object(PromoterService, "_note_promotion_and_choose_pause_s", careless),
        patch.object(Outage, "record_error_and_choose_pause_s", fatal),
    ):
        yield


@contextmanager
def _stuck() -> Iterator[None]:
    """A process that meets a key of a wrong type waits for an hour."""
    with patch.object(Outage, "record_error_and_choose_pause_s", lambda self, error: 3600.0):
        yield


@contextmanager
def _lost() -> Iterator[None]:
    """A worker sets the entries that it reads together with one that it cannot decode, or next after it, aside with it.

    Which entries it reads together is a matter of time: with those alone, a busy machine may lose nothing. It would not
    be enough to forget them: a worker finds what is pending for it and what it does not hold.
    """
    decode = Decoder.decode_or_settle_entries
    spoiled: set[Decoder] = set()

    def careless(self: Decoder, entries: list[Any], *arguments: Any, **options: Any) -> list[Any]:
        jobs = decode(self, entries, *arguments, **options)
        is_spoiled = len(jobs) < len(entries)
        if jobs and not is_spoiled and self in spoiled:
            spoiled.remove(self)
        elif is_spoiled:
            spoiled.add(self)
        else:
            return jobs
        for job in jobs:
            self._on_exhausted(job)
        return []

    with patch.object(Decoder, "decode_or_settle_entries", careless):
        yield


@contextmanager
def _reader() -> Iterator[None]:
    """A dead letter's name is taken for UTF-8."""
    with patch.object(dead_letter, "decode_name_or_empty", lambda raw: (raw or b"").decode()):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "death": _death,
    "stuck": _stuck,
    "lost": _lost,
    "reader": _reader,
}


def planted(name: str | None) -> AbstractContextManager[None]:
    return nullcontext() if name is None else PLANTS[name]()
