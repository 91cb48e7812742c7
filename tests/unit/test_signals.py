"""Signals are handled where they can be, and only if asked for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from pychasqui import InvalidArgument, InvalidType, Worker
from pychasqui._worker.signals import SIGNALS, catching_signals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


async def test_all_listeners_get_each_signal_and_the_last_restores_the_earlier_handlers() -> None:
    heard: list[str] = []
    before = handlers()
    with catching_signals(heard.append):
        with catching_signals(lambda name: heard.append(name.lower())):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
        assert heard == ["SIGTERM", "sigterm"]
        assert handlers() != before
    assert handlers() == before


async def test_a_handler_that_was_set_meanwhile_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def other(*_: object) -> None: ...

    try:
        with catching_signals(lambda _: None):
            signal.signal(signal.SIGTERM, other)
        assert signal.getsignal(signal.SIGTERM) is other
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_handler_that_knows_nothing_of_python_is_replaced_by_the_default() -> None:
    """signal.signal() cannot name one that was set in C."""
    with catching_signals(lambda _: None):
        from pychasqui._worker import signals

        (catcher,) = signals._catchers.values()
        catcher._before[signal.SIGTERM] = None
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


async def handle(job: object) -> None: ...


def test_handling_signals_outside_of_the_main_thread_is_refused_before_anything_runs() -> None:
    async def run_in_thread() -> None:
        worker = Worker("q", handle)
        with pytest.raises(InvalidArgument, match="outside of the main thread"):
            await worker.run(handle_signals=True)
        assert not worker.is_running

    async def main() -> None:
        await asyncio.to_thread(lambda: asyncio.run(run_in_thread()))

    asyncio.run(main())


async def test_a_value_that_is_no_bool_is_refused() -> None:
    wanted: Any = "yes"
    with pytest.raises(InvalidType, match="handle_signals"):
        await Worker("q", handle).run(handle_signals=wanted)
