"""Large jobs are added in a transaction that WATCH guards: once, over any failure of the line, and without a script."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from typing import Any

import pytest
import redis.asyncio

from pychasqui import AddUnknown, Job, Queue, ReplyError
from pychasqui._core.heap import keep_freed_memory
from pychasqui._core.limits import ADD_BATCH_BYTES, LARGE_JOB_BYTES
from tests.support.proxy import Proxy
from tests.support.streams import Stream

MOMENTS = ("cut_before_request", "cut_after_request", "cut_mid_reply")


async def add_batch_by_transaction(queue: Queue, count: int = 20, size: int = LARGE_JOB_BYTES) -> list[Job]:
    return await queue.add_bulk({"name": "send" if n % 2 else "", "data": "x" * size} for n in range(count))


def requests_with(proxy: Proxy, word: bytes) -> list[bytes]:
    return [request for request in proxy.requests if b"\r\n%b\r\n" % word in request]


async def test_only_the_first_bulk_needs_the_script(proxy: Proxy, queue_name: str, stream: Stream) -> None:
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        added = [job.id for _ in range(4) for job in await add_batch_by_transaction(queue)]
        scripts = [request for request in requests_with(proxy, b"EVAL") if b"x" * LARGE_JOB_BYTES in request]
        assert (len(scripts), len(requests_with(proxy, b"EXEC"))) == (1, 3)
    assert await stream.ids() == added


async def test_a_bulk_of_many_megabytes_is_added_in_transactions(proxy: Proxy, queue_name: str, stream: Stream) -> None:
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        added = [job.id for job in await add_batch_by_transaction(queue, 30, ADD_BATCH_BYTES // 10)]
        assert len(requests_with(proxy, b"EXEC")) >= 2
    assert await stream.ids() == added


async def test_small_jobs_and_bounded_queues_go_by_the_script(proxy: Proxy, queue_name: str, stream: Stream) -> None:
    async with (
        Queue(queue_name, redis_url=proxy.url) as queue,
        Queue(queue_name, redis_url=proxy.url, max_stream_len=1000) as bounded,
    ):
        for _ in range(2):
            await add_batch_by_transaction(queue, size=100)
            await add_batch_by_transaction(bounded)
    assert not requests_with(proxy, b"EXEC")
    assert await stream.length() == 80


async def test_other_adds_in_between_do_no_harm(proxy: Proxy, queue_name: str, stream: Stream) -> None:
    async with Queue(queue_name, redis_url=proxy.url) as queue:

        async def add_others() -> list[Job]:
            small = [await queue.add("send", n) for n in range(5)]
            return small + await queue.add_bulk({"name": "send", "data": n, "delay_ms": 0} for n in range(5))

        found = await asyncio.gather(
            *(each for _ in range(5) for each in (add_batch_by_transaction(queue), add_others()))
        )
    assert sorted(await stream.ids()) == sorted(job.id for jobs in found for job in jobs)


@pytest.mark.parametrize("word", (b"MULTI", b"XADD", b"HSET", b"EXEC", b"WATCH"))
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_connection_cut_anywhere_adds_each_job_once(
    proxy: Proxy, queue_name: str, stream: Stream, moment: str, word: bytes
) -> None:
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        added = await add_batch_by_transaction(queue)
        added += await add_batch_by_transaction(queue)
        getattr(proxy, moment)(b"\r\n%b\r\n" % word)
        for _ in range(3):
            added += await add_batch_by_transaction(queue)
    assert await stream.ids() == [job.id for job in added]


async def test_a_transaction_that_arrives_late_adds_nothing(
    proxy: Proxy, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
) -> None:
    """The batch was sent again meanwhile, or another one was: the ledger is not what it was."""
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        added = await add_batch_by_transaction(queue)
        ledger = requests_with(proxy, b"WATCH")[0].split(b"\r\n")[4]
        async with witness.client() as late:
            await late.execute_command("WATCH", ledger)
            added += await add_batch_by_transaction(queue)
            await late.execute_command("MULTI")
            await late.execute_command("XADD", stream.key, "*", "d", "late")
            assert await late.execute_command("EXEC") is None
    assert await stream.ids() == [job.id for job in added]


async def test_a_ledger_that_refuses_the_record_does_not_make_added_jobs_fail(
    proxy: Proxy, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
) -> None:
    """Somebody has written over it. The transaction adds the jobs all the same, and must not say otherwise."""
    async with Queue(queue_name, redis_url=proxy.url) as queue:
        await add_batch_by_transaction(queue)
        await witness.set(requests_with(proxy, b"WATCH")[0].split(b"\r\n")[4], "foreign")
        with pytest.raises(ReplyError, match="WRONGTYPE"):  # changed since WATCH, so that the script refuses the batch
            await add_batch_by_transaction(queue)
        assert await stream.length() == 20
        assert len(await add_batch_by_transaction(queue)) == 20
        assert await stream.length() == 40


async def test_a_stream_whose_ids_end_in_the_middle_leaves_a_bulk_unknown(
    queue: Queue, stream: Stream, witness: redis.asyncio.Redis
) -> None:
    await witness.xadd(stream.key, {"d": "x"}, id="18446744073709551615-18446744073709551611")
    await add_batch_by_transaction(queue, 1)
    with pytest.raises(AddUnknown, match="took 3 of 20") as unknown:
        await add_batch_by_transaction(queue)
    assert len(unknown.value.job_ids) == 20
    assert await stream.length() == 5
    with pytest.raises(ReplyError, match="exhausted"):
        await add_batch_by_transaction(queue)


@pytest.mark.needs_all_rights("it reads a key that is no queue's")
async def test_a_bulk_behind_a_slow_reply_keeps_its_own_timeout(
    proxy: Proxy, queue_name: str, stream: Stream, witness: redis.asyncio.Redis
) -> None:
    """The line is not dead, so it is kept, and the answer to WATCH is as late as that reply."""
    async with Queue(queue_name, redis_url=proxy.url, timeout_s=0.3) as queue:
        await add_batch_by_transaction(queue, 1)
        broker = queue._get_or_open_loop_session().broker
        await witness.set("large", "x" * 400_000, ex=10)
        proxy.limit(200_000)
        reading = asyncio.create_task(broker.call("GET", "large"))
        await asyncio.sleep(0)
        first = asyncio.create_task(add_batch_by_transaction(queue, 1))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1.2):
            with pytest.raises(AddUnknown):
                await add_batch_by_transaction(queue, 1)
        with pytest.raises(AddUnknown):
            await first
        assert not reading.done()
        reading.cancel()
        proxy.limit(0)


async def test_a_user_without_the_right_to_transactions_adds_by_the_script(
    queue_name: str, redis_url: str, stream: Stream, witness: Any
) -> None:
    await witness.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-multi")
    try:
        async with Queue(queue_name, redis_url=redis_url.replace("://", "://plain:secret@")) as queue:
            added = [job.id for _ in range(3) for job in await add_batch_by_transaction(queue)]
    finally:
        await witness.execute_command("ACL", "DELUSER", "plain")
    assert await stream.ids() == added


PAGES_OF_A_BATCH = """
import resource
from pychasqui._core.heap import keep_freed_memory

def pages_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [b"x" * (10_240 + number) for number in range(100)]
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20

before = pages_of_a_batch()
keep_freed_memory()
pages_of_a_batch()
print(before, pages_of_a_batch())
"""


class TestMemory:
    @pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives freed memory back so eagerly")
    def test_a_batch_takes_the_memory_of_the_last(self) -> None:
        """Without that, each batch takes its pages from the system."""
        arguments = [sys.executable, "-c", PAGES_OF_A_BATCH]
        printed = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
        before, after = map(int, printed.split())
        assert before > 40  # 250 with Python 3.11, 54 with 3.12
        assert after < 20

    async def test_a_producer_of_large_jobs_keeps_its_memory(self, queue: Queue, stream: Stream) -> None:
        keep_freed_memory.cache_clear()
        await add_batch_by_transaction(queue, size=100)
        assert keep_freed_memory.cache_info().currsize == 0
        await add_batch_by_transaction(queue)
        assert keep_freed_memory.cache_info().currsize == 1
        assert await stream.length() == 40
