"""No answer reaches another caller, failures do not flood the server, and purged data is gone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
import redis
import redis.asyncio

from pychasqui import Job, Queue, RepeatPattern, RetryPolicy, UnrecoverableError, Worker
from pychasqui._core.retry_delay import compute_retry_delay_ms
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.waiting import eventually

CALLS = 10_000


async def _after_some_turns(task: asyncio.Task[Any], turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()


class TestAnswers:
    """The answer of a caller that gives up reaches no other caller."""

    async def test_cancelled_calls_never_shift_the_answers_of_others(self, queue: Queue) -> None:
        call = queue._get_or_open_loop_session().broker.call
        rng, wrong, right, cancelled = random.Random(1), 0, 0, 0

        async def ask(tag: str) -> bytes:
            answer: bytes = await call("EVAL", "return ARGV[1]", 0, tag)
            return answer

        for start in range(0, CALLS, 50):
            tasks = {f"{start + number}": asyncio.create_task(ask(f"{start + number}")) for number in range(50)}
            victims = rng.sample(list(tasks.values()), 20)
            await asyncio.gather(*(_after_some_turns(task, rng.randrange(6)) for task in victims))
            found = await asyncio.gather(*tasks.values(), return_exceptions=True)
            for tag, answer in zip(tasks, found, strict=True):
                cancelled += isinstance(answer, asyncio.CancelledError)
                right += answer == tag.encode()
                wrong += isinstance(answer, bytes) and answer != tag.encode()
        assert wrong == 0
        assert right + cancelled == CALLS
        assert cancelled > CALLS / 10

    async def test_each_of_many_impatient_waiters_gets_its_own_result(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        """Also over a line that is cut now and then."""
        rng, answers = random.Random(2), 0
        prefix = f"{{chasqui:{queue_name}}}:result:"
        for number in range(100):
            await witness.set(f"{prefix}{number}", b"\xcd" + number.to_bytes(2, "big"), ex=60)  # a u16
        async with Proxy(redis_url) as proxy, Queue(queue_name, redis_url=proxy.url, timeout_s=5.0) as queue:
            for turn in range(60):
                ids = [rng.randrange(100) for _ in range(40)]
                tasks = [asyncio.create_task(queue.get_job_result(str(number))) for number in ids]
                await asyncio.gather(*(_after_some_turns(task, rng.randrange(8)) for task in rng.sample(tasks, 20)))
                if turn % 10 == 0:
                    proxy.cut()
                for number, answer in zip(ids, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                    if not isinstance(answer, BaseException):
                        assert answer == number
                        answers += 1
        assert answers > 500


class TestFailures:
    @pytest.mark.leaves_keys("dead letters")
    async def test_a_failed_run_costs_the_server_a_bounded_number_of_commands(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis, proxy: Proxy
    ) -> None:
        jobs, attempts, runs = 1000, 3, 0

        async def fail(job: Job) -> None:
            nonlocal runs
            runs += 1
            raise ValueError(job.id)

        await queue.add_bulk([{"name": "fails"}] * jobs)
        retry = RetryPolicy(initial_ms=50, jitter_ms=0)
        sent_before = await _sent(witness)
        async with make_worker(fail, redis_url=proxy.url, max_attempts=attempts, retry=retry):
            await eventually(lambda: _letters(queue, jobs), timeout=60, every=0.2)
        assert runs == jobs * attempts
        assert (await _sent(witness) - sent_before) / runs <= 5
        assert proxy.count() / runs <= 1  # what the worker has sent, whatever it is: outcomes travel in batches

    @pytest.mark.leaves_keys("dead letters")
    async def test_jobs_that_all_fail_wait_for_longer_and_longer(
        self, queue: Queue, make_worker: Callable[..., Worker]
    ) -> None:
        """A cause that stays does not make the worker run in circles: by default the fourth run comes after 0.7 s."""
        runs = Counter[int]()

        async def fail(job: Job) -> None:
            runs[job.attempt] += 1
            raise ConnectionError("the other service is down")

        started = monotonic()
        async with make_worker(fail):
            await queue.add_bulk([{"name": "fails"}] * 200)
            await eventually(lambda: runs[2] == 200, timeout=30)
            assert monotonic() - started >= 0.3  # 100 and 200 ms before the second and the third run
        policy = RetryPolicy()
        assert runs.total() <= 200 * (1 + (monotonic() - started) * 1000 / policy.initial_ms)

    def test_retries_are_spread_out_and_end_at_a_longest_delay(self) -> None:
        policy = RetryPolicy()
        delays = [compute_retry_delay_ms(policy, None, attempt, lambda most: most - 1) for attempt in range(1, 200)]
        assert max(delays) <= policy.max_ms + policy.jitter_ms
        assert policy.jitter_ms > 0


async def _sent(witness: redis.asyncio.Redis) -> int:
    """Commands that clients have sent. What scripts call is work within one of them."""
    stats: dict[str, dict[str, int]] = await witness.info("commandstats")
    names = ("eval", "evalsha", "xreadgroup", "xack", "xackdel", "xdel", "exists", "set", "publish", "time", "xpending")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)


async def _letters(queue: Queue, count: int) -> bool:
    return await queue.dlq.count() == count


@contextmanager
def monitored(server: RedisServer) -> Iterator[list[bytes]]:
    """What clients send to the server meanwhile, scripts' own commands included."""
    lines: list[bytes] = []
    connection = redis.UnixDomainSocketConnection(path=str(server.socket_path))
    connection.connect()
    connection.send_command("MONITOR")
    assert connection.read_response() == b"OK"
    yield lines
    server.execute("ECHO", "the end")
    while b'"the end"' not in (line := connection.read_response()):
        lines.append(line)
    connection.disconnect()


SECRET = "ada@example.org-4711"


async def _keys_with_the_secret(witness: redis.asyncio.Redis) -> list[bytes]:
    return [key async for key in witness.scan_iter(count=1000) if SECRET in repr(await _content(witness, key))]


async def _content(witness: redis.asyncio.Redis, key: bytes) -> Any:
    match await witness.type(key):
        case b"stream":
            return await witness.xrange(key)
        case b"zset":
            return await witness.zrange(key, 0, -1)
        case b"hash":
            return await witness.hgetall(key)
        case _:
            return await witness.get(key)


class TestPersonalData:
    async def test_a_purge_leaves_no_key_with_a_jobs_data(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis
    ) -> None:
        async def handle(job: Job) -> Any:
            if job.name == "dies":
                raise UnrecoverableError("without the data")
            return job.data

        async with make_worker(handle, store_results=True, result_ttl_ms=2000):
            done = await queue.add("done", SECRET)
            assert await done.wait_for_result(timeout=40) == SECRET
            await queue.add("dies", SECRET, job_id="dies")
            await eventually(lambda: _letters(queue, 1))
        await queue.add("waits", SECRET, job_id="waits")
        await queue.add("later", SECRET, delay_ms=3_600_000)
        await queue.add("cancelled", SECRET, delay_ms=3_600_000, job_id="cancelled")
        await queue.repeatables.upsert("nightly", SECRET, repeat=RepeatPattern.every(3_600_000), key="nightly")
        assert len(await _keys_with_the_secret(witness)) >= 4
        assert await queue.cancel_delayed("cancelled")
        assert await queue.purge("waiting") == 1
        assert await queue.purge("delayed") == 1
        assert await queue.dlq.purge() == 1
        assert await queue.repeatables.remove("nightly")
        await eventually(lambda: _is_empty(witness))  # the result ends by itself

    async def test_a_letter_and_a_repeatable_can_be_removed_for_good(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis
    ) -> None:
        async def die(job: Job) -> None:
            raise UnrecoverableError("without the data")

        async with make_worker(die):
            await queue.add("dies", SECRET)
            await eventually(lambda: _letters(queue, 1))
        (letter,) = await queue.dlq.page()
        assert await queue.dlq.remove(ids=[letter.dlq_id]) == 1
        await queue.repeatables.upsert("nightly", SECRET, repeat=RepeatPattern.every(3_600_000), key="nightly")
        assert await queue.repeatables.remove("nightly")
        assert not await queue.repeatables.remove("nightly")
        assert await queue.repeatables.get("nightly") is None
        assert await _is_empty(witness)

    async def test_a_job_is_forgotten_with_all_that_is_kept_of_it(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis
    ) -> None:
        async def handle(job: Job) -> Any:
            await job.log(f"for {job.data}")
            await job.progress(50)
            if job.name == "dies":
                raise UnrecoverableError("without the data")
            return job.data

        async with make_worker(handle, store_results=True):
            done = await queue.add("done", SECRET, job_id="done")
            assert await done.wait_for_result(timeout=20) == SECRET
            for job_id in ("dies", "neighbour"):
                await queue.add("dies", SECRET if job_id == "dies" else "other", job_id=job_id)
            await eventually(lambda: _letters(queue, 2))
        await queue.add("later", SECRET, delay_ms=3_600_000, job_id="later")
        assert len(await _keys_with_the_secret(witness)) >= 4
        assert [await queue.forget_job(job_id) for job_id in ("done", "dies", "later", "unknown")] == [True] * 3 + [
            False
        ]
        assert await _is_empty(witness)
        assert [letter.job_id for letter in await queue.dlq.page()] == ["neighbour"]
        assert await queue.forget_job("neighbour")

    async def test_data_that_a_program_encrypts_is_nowhere_in_plain_text(
        self, queue: Queue, make_worker: Callable[..., Worker], server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No codec of ours encrypts; what a program gives as bytes travels as it is, in both directions."""
        caplog.set_level("DEBUG")

        def sealed(data: bytes) -> bytes:
            return bytes(byte ^ 0x5A for byte in data)  # stands for a cipher

        async def handle(job: Job) -> Any:
            if job.name == "dies":
                raise UnrecoverableError("without the data")
            return sealed(sealed(job.data).upper())

        with monitored(server) as lines:
            async with make_worker(handle, store_results=True):
                done = await queue.add("done", sealed(SECRET.encode()))
                dies = await queue.add("dies", sealed(SECRET.encode()))
                assert sealed(await done.wait_for_result(timeout=20)) == SECRET.upper().encode()
                await eventually(lambda: _letters(queue, 1))
            assert await queue.dlq.replay(ids=[(await queue.dlq.page())[0].dlq_id]) == 1
            assert await queue.purge("waiting") == 1
            for job_id in (done.id, dies.id):
                await queue.forget_job(job_id)
        assert len(lines) > 10
        assert SECRET.lower() not in (b"".join(lines).decode("latin-1") + caplog.text).lower()

    async def test_every_result_has_an_end(
        self, queue: Queue, make_worker: Callable[..., Worker], witness: redis.asyncio.Redis, queue_name: str
    ) -> None:
        async def handle(job: Job) -> Any:
            await job.progress(10)
            await job.log("a line")
            return job.data

        async with make_worker(handle, store_results=True):
            jobs = await queue.add_bulk([{"name": "n", "data": number} for number in range(20)])
            await queue.wait_for_results([job.id for job in jobs], timeout=40)
        for kind in ("result", "progress", "log"):
            keys = [key async for key in witness.scan_iter(match=f"{{chasqui:{queue_name}}}:{kind}:*", count=1000)]
            assert len(keys) == 20
            assert all([await witness.pttl(key) > 0 for key in keys])


async def _is_empty(witness: redis.asyncio.Redis) -> bool:
    return await _keys_with_the_secret(witness) == []
