"""The workers of a crew start together and end together, whatever ends the first of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from pychasqui import App, Crew, InvalidArgument, Worker
from tests.support.waiting import eventually

AWAY = "unix:///nowhere/at/all.sock"


async def handle(job: object) -> None: ...


def make_crew(*redis_urls: str, queue_name: str = "crew") -> Crew:
    """A crew with a worker for each of these URLs."""

    @asynccontextmanager
    async def open_workers() -> AsyncIterator[list[Worker]]:
        yield [Worker(f"{queue_name}-{number}", handle, redis_url=url) for number, url in enumerate(redis_urls)]

    return Crew(open_workers)


async def start_running(crew: Crew, *, handle_signals: bool = False) -> asyncio.Task[None]:
    """Runs it until all its workers are under way."""
    running = asyncio.create_task(crew.run(handle_signals=handle_signals))
    await eventually(lambda: crew.workers and all(worker.is_running for worker in crew.workers))
    return running


async def test_a_crew_that_waits_for_redis_can_be_closed() -> None:
    crew = make_crew(AWAY, AWAY)
    running = await start_running(crew)
    await asyncio.wait_for(crew.close(), 10)
    await running
    assert not any(worker.is_running for worker in crew.workers)


async def test_a_crew_that_waits_for_redis_can_be_cancelled() -> None:
    running = await start_running(make_crew(AWAY, AWAY))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 10)


@pytest.mark.parametrize("make", (lambda: make_crew(AWAY), lambda: Worker("crew-0", handle, redis_url=AWAY)))
async def test_an_entry_that_is_cancelled_leaves_nothing_running(make: Callable[[], Crew | Worker]) -> None:
    workers = make()

    async def enter() -> None:
        async with workers:
            pytest.fail("nothing can have started")

    entering = asyncio.create_task(enter())
    await eventually(lambda: workers.is_running)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(entering, 10)
    assert not workers.is_running


class TestHangingLifespan:
    """A crew whose lifespan waits for something that does not come."""

    @pytest.fixture
    def steps(self) -> list[str]:
        return []

    @pytest.fixture
    def crew(self, steps: list[str]) -> Crew:
        @asynccontextmanager
        async def hang() -> AsyncIterator[list[Worker]]:
            steps.append("begun")
            try:
                await asyncio.Event().wait()
                yield []
            finally:
                steps.append("ended")

        return Crew(hang)

    async def test_the_close_of_a_crew_ends_it(self, crew: Crew, steps: list[str]) -> None:
        running = asyncio.create_task(crew.run())
        await eventually(lambda: steps)
        await asyncio.wait_for(asyncio.gather(crew.close(), crew.close()), 10)
        await running
        assert steps == ["begun", "ended"]

    async def test_a_run_that_is_cancelled_ends_it(self, crew: Crew, steps: list[str]) -> None:
        running = asyncio.create_task(crew.run())
        await eventually(lambda: steps)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 10)
        assert steps == ["begun", "ended"]

    async def test_the_close_of_a_crew_before_its_first_step_begins_nothing(self, crew: Crew, steps: list[str]) -> None:
        running = asyncio.create_task(crew.run())
        await asyncio.sleep(0)
        await crew.close()
        await running
        assert steps == []


async def test_the_error_of_a_later_worker_ends_a_crew_that_waits_for_redis() -> None:
    @asynccontextmanager
    async def open_workers() -> AsyncIterator[list[Worker]]:
        yield [Worker("crew-0", handle, redis_url=AWAY), BrokenWorker("crew-1", handle, redis_url=AWAY)]

    with pytest.raises(LookupError, match="broken"):
        await asyncio.wait_for(Crew(open_workers).run(), 10)


async def test_a_task_that_closes_its_own_crew_ends_first(redis_url: str, queue_name: str) -> None:
    app = App(redis_url)
    steps: list[str] = []

    @app.task(queue=queue_name)
    async def close_crew() -> None:
        steps.append("begun")
        await crew.close()
        steps.append("ended")

    async with app:
        await close_crew.enqueue()
        crew = app.worker()
        await asyncio.wait_for(crew.run(), 10)
        counts = await app.queue(queue_name).counts()
    assert (steps, counts.waiting, counts.active) == (["begun", "ended"], 0, 0)


@pytest.mark.parametrize("make_group", (asyncio.TaskGroup, anyio.create_task_group))
async def test_a_lifespan_whose_group_fails_ends_behind_the_jobs_that_run(
    redis_url: str, queue_name: str, make_group: Callable[[], Any]
) -> None:
    app, seen, has_begun = App(redis_url), list[str](), asyncio.Event()

    @app.lifespan
    async def lifespan() -> AsyncIterator[None]:
        async def fail_once_a_job_runs() -> None:
            await has_begun.wait()
            raise ValueError("the pool is gone")

        try:
            async with make_group() as group:
                if isinstance(group, asyncio.TaskGroup):
                    group.create_task(fail_once_a_job_runs())
                else:
                    group.start_soon(fail_once_a_job_runs)
                yield
        finally:
            seen.append("lifespan ends")

    @app.task(queue=queue_name)
    async def send() -> None:
        has_begun.set()
        await asyncio.sleep(0.1)
        seen.append("job ends")

    async with app:
        await send.enqueue()
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await asyncio.wait_for(app.worker().run(), 20)
    assert seen == ["job ends", "lifespan ends"]


class BrokenWorker(Worker):
    """A worker that ends by an error as soon as it begins."""

    async def _run_until_stopped(self) -> None:
        raise LookupError("broken")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
class TestSignals:
    async def test_a_signal_during_the_start_is_a_clean_end(self) -> None:
        crew = make_crew(AWAY, AWAY)
        running = await start_running(crew, handle_signals=True)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
        assert not any(worker.is_running for worker in crew.workers)

    async def test_a_crew_that_runs_already_handles_signals_from_then_on(self, redis_url: str, queue_name: str) -> None:
        before = signal.getsignal(signal.SIGTERM)
        async with make_crew(redis_url, queue_name=queue_name) as crew:
            running = asyncio.create_task(crew.run(handle_signals=True))
            await eventually(lambda: signal.getsignal(signal.SIGTERM) != before)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(running, 10)
            assert not crew.is_running
        assert signal.getsignal(signal.SIGTERM) == before

    async def test_a_crew_that_runs_already_refuses_signals_outside_of_the_main_thread(self) -> None:
        async def run_twice() -> None:
            crew = make_crew(AWAY)
            running = await start_running(crew)
            with pytest.raises(InvalidArgument, match="main thread"):
                await crew.run(handle_signals=True)
            await crew.close()
            await running

        await asyncio.to_thread(asyncio.run, run_twice())
