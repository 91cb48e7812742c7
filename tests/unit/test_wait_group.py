"""WaitGroup: threads that wait for the same event and are woken together."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from pychasqui._tasks.wait_group import IS_SUPPORTED, WaitGroup

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="there is no eventfd on this system")


def join_times(group: WaitGroup, count: int) -> None:
    for _ in range(count):
        group.join()


def test_one_call_wakes_all_threads_and_the_group_can_be_used_again() -> None:
    group = WaitGroup()
    for _ in range(2):
        join_times(group, 5)
        threads = [threading.Thread(target=group.wait, daemon=True) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert not group.is_awake
        group.wake_all()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert [group.leave_and_see_if_reusable(has_waited=True) for _ in threads] == [False] * 4 + [True]


def test_a_thread_that_comes_after_the_wake_up_does_not_wait() -> None:
    group = WaitGroup()
    join_times(group, 1)
    group.wake_all()
    late = threading.Thread(target=group.wait, daemon=True)
    late.start()
    late.join(10)
    assert not late.is_alive()


def test_a_signal_to_a_thread_that_waits_does_not_end_its_wait() -> None:
    group, ended, begun = WaitGroup(), list[bool](), threading.Event()
    join_times(group, 1)

    def wait() -> None:
        begun.set()
        group.wait()
        ended.append(group.is_awake)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        begun.wait(10)
        for _ in range(5):
            time.sleep(0.01)
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
        group.wake_all()
        thread.join(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended == [True]


def test_a_group_is_not_used_again_after_a_thread_left_without_its_wake_up() -> None:
    group = WaitGroup()
    join_times(group, 2)
    group.wake_all()
    group.wait()
    assert not group.leave_and_see_if_reusable(has_waited=False)
    assert not group.leave_and_see_if_reusable(has_waited=True)


def test_a_group_closes_its_file_when_it_is_dropped() -> None:
    before = os.eventfd(0)
    os.close(before)
    group = WaitGroup()
    os.fstat(before)
    del group
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(before)
