"""DeferredSignals: handlers run after it, each of them, and it leaves the user's handlers in place."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pychasqui._tasks import deferred_signals
from pychasqui._tasks.deferred_signals import DeferredSignals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

NUMBERS = (signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM, signal.SIGWINCH)


class Boom(Exception):
    """What a handler of these tests raises."""


@pytest.fixture(autouse=True)
def ran() -> Iterator[list[int]]:
    """Sets a handler for each of NUMBERS, which notes the signal; that of SIGALRM raises, too."""
    ran: list[int] = []

    def note(number: int, frame: object) -> None:
        ran.append(number)
        if number == signal.SIGALRM:
            raise Boom

    before = {number: signal.signal(number, note) for number in NUMBERS}
    yield ran
    for number, handler in before.items():
        signal.signal(number, handler)


def get_handlers() -> list[Any]:
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.mark.parametrize("is_before", (True, False))
@pytest.mark.parametrize("turn", range(2 * len(NUMBERS)))
def test_a_handler_that_raises_while_handlers_are_replaced_or_restored_leaves_them_all_as_they_were(
    monkeypatch: pytest.MonkeyPatch, ran: list[int], turn: int, is_before: bool
) -> None:
    handlers, turns, set_handler = get_handlers(), iter(range(100)), signal.signal

    def set_and_raise_signal(number: int, handler: Any) -> None:
        is_turn = next(turns) == turn
        if is_turn and is_before:
            signal.raise_signal(signal.SIGALRM)
        set_handler(number, handler)
        if is_turn and not is_before:
            signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(deferred_signals, "set_handler", set_and_raise_signal)
    deferred: list[int] = []

    def defer() -> None:
        with DeferredSignals(lambda: None):
            signal.raise_signal(signal.SIGTERM)
            deferred.append(signal.SIGTERM)

    with pytest.raises(Boom):
        defer()
    assert get_handlers() == handlers
    assert sorted(ran) == [signal.SIGALRM, *deferred]


def test_each_deferred_handler_runs_once_also_after_one_that_raises(ran: list[int]) -> None:
    def defer() -> None:
        with DeferredSignals(lambda: None):
            for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
                signal.raise_signal(number)
            assert ran == []

    with pytest.raises(Boom):
        defer()
    assert ran == [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1]


def test_signals_are_deferred_again_after_the_handlers_of_earlier_ones_have_run(ran: list[int]) -> None:
    with DeferredSignals(lambda: None) as signals:
        signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGTERM)
        with suppress(Boom):
            signals.run_arrived_handlers()
        assert ran == [signal.SIGALRM, signal.SIGTERM]
        signal.raise_signal(signal.SIGWINCH)
        assert (signals.arrived, len(ran)) == ([signal.SIGWINCH], 2)
    assert ran[2:] == [signal.SIGWINCH]


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    def other(*_: object) -> None: ...

    with DeferredSignals(lambda: None):
        signal.signal(signal.SIGTERM, other)
    assert signal.getsignal(signal.SIGTERM) is other
