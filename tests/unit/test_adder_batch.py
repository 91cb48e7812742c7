"""The answer to a batch becomes an answer to each waiter; a malformed answer is recognized."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pychasqui._core.options import AddOptions
from pychasqui._producer.add_batch import AddBatch
from pychasqui._redis.replies import DUPLICATE, FULL, NEW, REPLACED
from pychasqui.errors import ConnectionLost, QueueFull
from pychasqui.metrics import JobsAdded


def batch(jobs: int, *, with_options: bool = False, is_bulk: bool = False) -> AddBatch:
    made = AddBatch(60.0, 1, 100)
    made.envelopes = [b"x"] * jobs
    made.options = [AddOptions("+5")] * jobs if with_options else None
    made.is_bulk = is_bulk
    loop = asyncio.get_running_loop()
    made.waiters = [loop.create_future() for _ in range(1 if is_bulk else jobs)]
    return made


def outcomes(made: AddBatch) -> list[Any]:
    return [type(waiter.exception()) if waiter.exception() else waiter.result() for waiter in made.waiters]


async def test_the_first_plain_jobs_are_new_and_the_others_find_no_room() -> None:
    made = batch(4)
    made.answer_or_fail_waiters(2)
    assert outcomes(made) == [NEW, NEW, QueueFull, QueueFull]


async def test_each_job_with_options_has_its_own_status() -> None:
    made = batch(4, with_options=True)
    made.answer_or_fail_waiters(b"ndrf")
    assert outcomes(made) == [NEW, DUPLICATE, REPLACED, QueueFull]


async def test_a_bulk_is_answered_as_one() -> None:
    plain, with_options = batch(3, is_bulk=True), batch(3, with_options=True, is_bulk=True)
    plain.answer_or_fail_waiters(3)
    with_options.answer_or_fail_waiters(b"ndr")
    assert (outcomes(plain), outcomes(with_options)) == (["nnn"], ["ndr"])


async def test_a_bulk_without_room_was_not_added() -> None:
    for made, reply in ((batch(3, is_bulk=True), 0), (batch(3, with_options=True, is_bulk=True), b"fff")):
        made.answer_or_fail_waiters(reply)
        assert outcomes(made) == [QueueFull]


class FutureCancelledBySignal(asyncio.Future[str]):
    """It is cancelled right after it was asked: asyncio cancels the main task inside the handler of SIGINT."""

    def done(self) -> bool:
        is_done = super().done()
        self.cancel()
        return is_done


@pytest.mark.parametrize("status", (NEW, FULL))
async def test_a_waiter_that_a_signal_cancels_meanwhile_keeps_the_others_answered(status: str) -> None:
    made = batch(2, with_options=True)
    made.waiters[0] = FutureCancelledBySignal()
    made.answer_or_fail_waiters(f"{status}{NEW}".encode())
    assert made.waiters[0].cancelled()
    assert made.waiters[1].result() == NEW


async def test_a_waiter_that_has_given_up_gets_nothing_and_the_others_get_theirs() -> None:
    made = batch(3, with_options=True)
    made.waiters[1].cancel()
    made.answer_or_fail_waiters(b"n" + FULL.encode() + b"d")
    assert (made.waiters[0].result(), made.waiters[2].result()) == (NEW, DUPLICATE)


async def test_an_error_reaches_each_as_one_of_its_own() -> None:
    made = batch(2)
    made.fail_waiters(ConnectionLost("gone"))
    first, second = (waiter.exception() for waiter in made.waiters)
    assert (type(first), str(first)) == (ConnectionLost, "gone")
    assert first is not second


@pytest.mark.parametrize("reply", (0, 1, 3))
async def test_a_count_fits_plain_jobs(reply: int) -> None:
    assert batch(3).read_reply_or_none(reply) == reply
    assert batch(3, with_options=True).read_reply_or_none(reply) is None


@pytest.mark.parametrize("reply", (-1, 4, True, None, "3", b"nnn", [3], 3.0))
async def test_any_other_reply_does_not_fit(reply: Any) -> None:
    assert batch(3).read_reply_or_none(reply) is None


async def test_a_status_for_each_fits_jobs_with_options() -> None:
    made = batch(3, with_options=True)
    assert made.read_reply_or_none(b"ndr") == b"ndr"
    assert all(
        made.read_reply_or_none(reply) is None
        for reply in (b"", b"nd", b"ndrf", b"ndx", b"nd\xff", "ndr", 3, None, [b"n"])
    )


class TestCounting:
    async def test_plain_jobs_count_by_name_as_far_as_there_was_room(self) -> None:
        made = batch(4)
        made.names = [b"mail", b"video", b"mail", b"mail"]
        assert made.make_added_records(3) == [JobsAdded(2, "now", "mail"), JobsAdded(1, "now", "video")]
        assert made.make_added_records(0) == []

    async def test_new_jobs_with_options_count_each_in_its_mode(self) -> None:
        made = batch(5, with_options=True)
        made.names = [b"mail"] * 5
        made.options = [AddOptions("+5"), AddOptions(), AddOptions("+5"), AddOptions("+5"), AddOptions("+5")]
        assert made.make_added_records(b"nndrf") == [
            JobsAdded(1, "delayed", "mail"),
            JobsAdded(1, "now", "mail"),
        ]
