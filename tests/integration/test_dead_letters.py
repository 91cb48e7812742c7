"""Dead letters of any shape, as queue.dlq shows, counts, replays and removes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import InvalidArgument, Job, Queue, UnrecoverableError, Worker
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.msgpack import encode_data
from tests.support.streams import Stream
from tests.support.waiting import eventually

pytestmark = pytest.mark.leaves_keys("dead letters")


def letter(job_id: str = "j", **more: bytes) -> dict[bytes, bytes]:
    """The fields of a letter as a worker writes them."""
    envelope = encode_envelope(job_id, encode_data({"id": job_id}), 1_795_000_000_000, 3, None)
    usual = {b"d": envelope, b"source_id": b"1-1", b"reason": b"unrecoverable", b"n": b"mail"}
    return usual | {name.encode(): value for name, value in more.items()}


@pytest.fixture
def dead(queue_name: str) -> str:
    return f"{{chasqui:{queue_name}}}:dlq"


@pytest.fixture
async def five(witness: redis.asyncio.Redis, dead: str) -> list[str]:
    """Three letters of mails and two of reports, of which one cannot be decoded."""
    fields = [letter(f"mail-{number}") for number in range(3)]
    fields += [letter("report-1", n=b"report", reason=b"retries_exhausted")]
    fields += [{b"d": b"\xc1", b"reason": b"decode_failed", b"n": b"report"}]
    return [(await witness.xadd(dead, one)).decode() for one in fields]


class TestCounting:
    async def test_letters_are_counted_by_reason(self, queue: Queue, five: list[str]) -> None:
        assert await queue.dlq.count_by_reason() == {"unrecoverable": 3, "retries_exhausted": 1, "decode_failed": 1}
        assert await queue.dlq.count_by_reason(name="report") == {"retries_exhausted": 1, "decode_failed": 1}
        assert await queue.dlq.count_by_reason(name="nobody") == {}

    async def test_letters_are_counted_by_choice(self, queue: Queue, five: list[str]) -> None:
        assert await queue.dlq.count() == 5
        assert await queue.dlq.count(name="mail") == 3
        assert await queue.dlq.count(ids=five[:2], name="mail") == 2

    async def test_letters_are_taken_up_to_one_of_them(self, queue: Queue, five: list[str]) -> None:
        assert [one.dlq_id for one in await queue.dlq.page(up_to=five[2])] == five[:3]
        assert [one.dlq_id for one in await queue.dlq.page(up_to=five[2], after=five[0])] == five[1:3]
        assert [one.dlq_id for one in await queue.dlq.page(up_to=five[2], ids=five[2:])] == five[2:3]


class TestDryRun:
    async def test_a_dry_replay_says_how_many_and_moves_none(
        self, queue: Queue, five: list[str], stream: Stream
    ) -> None:
        assert await queue.dlq.replay(dry_run=True) == 4  # the fifth cannot be decoded
        assert await queue.dlq.replay(dry_run=True, name="mail", limit=2) == 2
        assert await queue.dlq.count() == 5
        assert (await queue.counts()).waiting == 0

    async def test_a_dry_removal_says_how_many_and_removes_none(self, queue: Queue, five: list[str]) -> None:
        assert await queue.dlq.remove(dry_run=True, name="mail") == 3
        assert await queue.dlq.purge(dry_run=True) == 5
        assert await queue.dlq.count() == 5


class TestRemoving:
    async def test_removed_letters_are_gone_and_the_others_stay(self, queue: Queue, five: list[str]) -> None:
        assert await queue.dlq.remove(name="mail") == 3
        assert [job.dlq_id for job in await queue.dlq.page()] == five[3:]
        assert await queue.dlq.remove(ids=[five[4]]) == 1
        assert await queue.dlq.remove(ids=[five[4]]) == 0

    async def test_letters_chosen_by_id_are_bounded_by_since_and_until_as_well(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str
    ) -> None:
        ids = [(await witness.xadd(dead, letter(str(ms)), id=f"{ms}-0")).decode() for ms in (1000, 2000, 3000)]
        second, third = datetime.fromtimestamp(2, UTC), datetime.fromtimestamp(3, UTC)
        assert [job.dlq_id for job in await queue.dlq.page(ids=ids, since=second, until=third)] == [ids[1]]
        assert await queue.dlq.remove(ids=ids[:2], since=second) == 1
        assert await queue.dlq.remove(ids=ids, until=third) == 1
        assert [job.dlq_id for job in await queue.dlq.page()] == ids[2:]

    async def test_on_progress_hears_of_the_last_letters_as_well(
        self, queue: Queue, five: list[str], stream: Stream
    ) -> None:
        heard = list[int]()
        assert await queue.dlq.replay(name="mail", limit=2, on_progress=heard.append) == 2
        assert await queue.dlq.replay(name="mail", on_progress=heard.append) == 1
        assert await queue.dlq.remove(name="report", on_progress=heard.append) == 2
        assert heard == [2, 1, 2]
        assert await queue.dlq.replay(on_progress=heard.append) == 0
        assert heard == [2, 1, 2]

    async def test_a_removal_without_a_choice_is_refused(self, queue: Queue, five: list[str]) -> None:
        with pytest.raises(InvalidArgument, match="needs a condition"):
            await queue.dlq.remove()
        assert await queue.dlq.count() == 5

    async def test_a_condition_that_is_none_is_refused(self, queue: Queue, five: list[str]) -> None:
        """The job_id of a letter that cannot be decoded is None."""
        for use in (queue.dlq.remove, queue.dlq.replay, queue.dlq.count, queue.dlq.page):
            for condition in ("job_id", "ids", "since"):
                with pytest.raises(InvalidArgument, match=f"{condition} is None"):
                    await use(**{condition: None})  # type: ignore[arg-type]
        assert await queue.dlq.count() == 5

    async def test_a_purge_removes_what_cannot_be_decoded_too(self, queue: Queue, five: list[str]) -> None:
        assert await queue.dlq.purge() == 5
        assert await queue.dlq.count() == 0


class TestRate:
    async def test_a_replay_brings_back_no_more_than_its_rate(
        self, queue: Queue, five: list[str], stream: Stream
    ) -> None:
        began = monotonic()
        assert await queue.dlq.replay(rate=20) == 4
        assert monotonic() - began >= 0.2  # each waits for its 50 ms
        assert (await queue.counts()).waiting == 4

    @pytest.mark.parametrize("rate", (0, -1, float("nan"), float("inf"), True))
    async def test_a_rate_that_is_none_is_refused(self, queue: Queue, rate: Any) -> None:
        with pytest.raises(InvalidArgument, match="rate is"):
            await queue.dlq.replay(rate=rate)


class TestEnd:
    """Work that goes page by page ends with the letter that was the newest when it began."""

    async def test_a_replay_beside_jobs_that_die_again_ends(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        runs = 0

        async def die(job: Job) -> None:
            nonlocal runs
            runs += 1
            raise UnrecoverableError(job.id)

        await queue.add_bulk([{"name": "dies"}] * 300)
        async with make_worker(die):
            await eventually(lambda: _has_letters(queue, 300), timeout=40)
            async with asyncio.timeout(20):
                assert await queue.dlq.replay() == 300
            await eventually(lambda: runs == 600, timeout=40)
            await eventually(lambda: _has_letters(queue, 300), timeout=40)

    @pytest.mark.parametrize("verb", ("purge", "remove", "count_by_reason", "search"))
    async def test_letters_that_come_meanwhile_are_not_waited_for(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str, verb: str
    ) -> None:
        await _bury(witness, dead, 100)
        dlq, pages = queue.dlq, 0
        broker = dlq._get_broker()
        page = broker.read_page

        async def page_and_bury(*arguments: Any) -> Any:
            nonlocal pages
            pages += 1
            await _bury(witness, dead, 100)
            return await page(*arguments)

        broker.read_page = page_and_bury  # type: ignore[method-assign,assignment]
        dlq._get_broker = lambda: broker
        verbs: dict[str, Callable[[], Any]] = {
            "purge": dlq.purge,
            "remove": lambda: dlq.remove(name="mail"),
            "count_by_reason": dlq.count_by_reason,
            "search": lambda: dlq.count(name="mail"),
        }
        async with asyncio.timeout(40):
            assert await verbs[verb]() in (100, {"unrecoverable": 100})
        assert 1 <= pages < 20


class TestHostile:
    """A letter of any shape does not stop another."""

    @pytest.mark.parametrize(
        "more",
        (
            {"attempts": b"9" * 5000},
            {"attempts": b"-" + b"1" * 30},
            {"attempts": "\u00b2".encode()},
            {"n": b"\xff\xfe"},
            {"n": b"x" * 100_000},
            {"reason": b"\xff" * 70_000, "error": b"y" * 200_000, "traceback": b"\x00"},
            {"d": b""},
            {"d": b"\xc1" * 100},
        ),
        ids=lambda more: next(iter(more)) + str(len(next(iter(more.values())))),
    )
    async def test_any_letter_can_be_shown_skipped_by_a_replay_and_purged(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str, stream: Stream, more: dict[str, bytes]
    ) -> None:
        await witness.xadd(dead, letter("bad", **more))
        await witness.xadd(dead, letter("good"))
        bad, good = await queue.dlq.page()
        assert good.job_id == "good"
        assert bad.payload == more.get("d", letter("bad")[b"d"])
        assert len(repr(bad)) < 100_000 + 20_000
        assert await queue.dlq.count_by_reason()
        assert await queue.dlq.replay() == (1 if "d" in more else 2)
        await queue.dlq.purge()
        assert await queue.dlq.count() == 0

    async def test_attempts_that_are_no_number_are_none(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str
    ) -> None:
        for attempts in (b"9" * 5000, b"-1", b"x", b"7"):
            await witness.xadd(dead, letter(attempts=attempts))
        assert [job.attempts for job in await queue.dlq.page()] == [None, None, None, 7]

    @pytest.mark.parametrize("last", (f"{2**64 - 1}-{2**64 - 1}", "253402300800000-0"))
    async def test_a_letter_of_the_last_possible_id_is_read_like_any_other(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str, last: str
    ) -> None:
        await witness.xadd(dead, letter(), id=last)
        (only,) = await queue.dlq.page()
        assert only.died_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert (await queue.jobs("dead", limit=1)).next == last
        assert (await queue.jobs("dead", after=last)).jobs == []
        assert await queue.dlq.purge() == 1

    @pytest.mark.parametrize("stored", (b"x", b"9" * 5000, b"-3", b"1.5"))
    async def test_a_count_of_the_dropped_that_is_no_number_is_none(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str, stored: bytes
    ) -> None:
        await witness.set(f"{dead}:dropped", stored)
        assert await queue.dlq.dropped() == 0

    async def test_large_letters_are_read_and_replayed_in_small_parts(
        self, queue: Queue, witness: redis.asyncio.Redis, dead: str, stream: Stream
    ) -> None:
        envelope = encode_envelope("j", encode_data("x" * 500_000), 1_795_000_000_000, 0, None)
        for _ in range(40):
            await witness.xadd(dead, letter() | {b"d": envelope})
        dlq, counts = queue.dlq, list[int]()
        broker = dlq._get_broker()
        page = broker.read_page

        async def counted(start: str, end: str, count: int) -> Any:
            counts.append(count)
            return await page(start, end, count)

        broker.read_page = counted  # type: ignore[method-assign]
        dlq._get_broker = lambda: broker
        assert await dlq.replay() == 40
        assert max(counts[1:]) <= 3


async def _bury(witness: redis.asyncio.Redis, dead: str, count: int) -> None:
    pipeline = witness.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(dead, letter(str(number)))
    await pipeline.execute()


async def _has_letters(queue: Queue, count: int) -> bool:
    return await queue.dlq.count() == count
