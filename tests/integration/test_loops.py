"""Programs do to their event loops what they like: close them, use several, cancel all that runs in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pychasqui import App, Crew, Job, Queue, Worker, WrongLoop
from tests.support.programs import started_program
from tests.support.proxy import Proxy
from tests.support.streams import Stream
from tests.support.waiting import eventually


async def handle(job: Job) -> int:
    return 7


def make_crew(worker: Worker) -> Crew:
    @asynccontextmanager
    async def open_worker() -> AsyncIterator[list[Worker]]:
        yield [worker]

    return Crew(open_worker)


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def run_in(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))


class TestOtherLoops:
    @pytest.mark.parametrize("make", (lambda worker: worker, make_crew))
    async def test_a_worker_of_another_loop_is_refused_and_runs_on(
        self, make_worker: Callable[..., Worker], make: Callable[[Worker], Any]
    ) -> None:
        worker = make_worker(handle)
        runner = make(worker)
        with loop_in_thread() as other:
            await run_in(other, runner.__aenter__)
            for call in (runner.close, runner.run, runner.__aenter__):
                with pytest.raises(WrongLoop, match="another event loop"):
                    await asyncio.wait_for(call(), 10)
            assert runner.is_running
            assert worker.is_running
            await run_in(other, runner.close)
            assert not runner.is_running
            await runner.close()

    async def test_a_shutdown_from_another_thread_is_heard_at_once(self, make_worker: Callable[..., Worker]) -> None:
        asyncio.get_running_loop().set_debug(True)  # which refuses calls from other threads
        worker = make_worker(handle, read_block_ms=60_000)
        await worker.wait_until_started()
        await asyncio.to_thread(worker.shutdown)
        await asyncio.wait_for(worker.run(), 2)
        assert not worker.is_running


CLOSED_LOOP = """
import asyncio, sys
from pychasqui import App, Closed, QueueEvents, Worker

kind, url, name = sys.argv[1:]
app = App(url)

async def handle(job): ...

@app.task(queue=name)
async def task(): ...

async def run_and_print():
    try:
        await runner.run()
    except Closed as error:
        print("has ended" in str(error))

async def begin_to_read():
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

async def read_one():
    async with Worker(name, handle, redis_url=url):
        await task.enqueue()
        print((await anext(events)).name)
    await app.close()

loop = asyncio.new_event_loop()
if kind == "events":
    events = QueueEvents(name, redis_url=url)
    loop.run_until_complete(events.start())
    loop.run_until_complete(begin_to_read())
    loop.close()
    asyncio.run(asyncio.wait_for(read_one(), 20))
    asyncio.run(asyncio.wait_for(events.close(), 20))
else:
    runner = app.worker() if kind == "crew" else Worker(name, handle, redis_url=url)
    loop.run_until_complete(runner.__aenter__())
    loop.close()
    print(runner.is_running)
    asyncio.run(asyncio.wait_for(runner.close(), 20))
    asyncio.run(run_and_print())
print("end")
"""


@pytest.mark.parametrize(
    ("kind", "prints"),
    (("worker", ["False", "True", "end"]), ("crew", ["False", "True", "end"]), ("events", ["active", "end"])),
)
async def test_an_object_whose_loop_was_closed_can_be_closed_in_the_next_one(
    redis_url: str, queue_name: str, kind: str, prints: list[str], stream: Stream
) -> None:
    async with started_program(CLOSED_LOOP, kind, redis_url, queue_name) as program:
        out, err = await asyncio.wait_for(program.communicate(), 60)
    assert out.decode().split() == prints, err.decode()


LOOP_FOR_EACH_JOB = """
import asyncio, gc, os, sys
from pychasqui import App

url, name = sys.argv[1:]
app = App(url)

@app.task(queue=name)
async def send(): ...

async def add_and_close():
    async with app:
        await send.enqueue()

def count_open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

asyncio.run(send.enqueue())
before = count_open_files()
for _ in range(20):
    asyncio.run(send.enqueue())
print(count_open_files() - before)
asyncio.run(add_and_close())
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="lists open files as Linux does")
async def test_an_app_whose_program_runs_a_loop_for_each_job_keeps_no_connection_of_an_ended_loop(
    redis_url: str, queue_name: str, stream: Stream
) -> None:
    async with started_program(LOOP_FOR_EACH_JOB, redis_url, queue_name) as program:
        out, err = await asyncio.wait_for(program.communicate(), 60)
    assert out.decode().split() == ["0"], err.decode()


class TestAppClose:
    async def test_a_cancelled_close_goes_on_and_the_next_one_waits_for_its_end(
        self, proxy: Proxy, queue_name: str
    ) -> None:
        app = App(proxy.url)
        queues = [app.queue(f"{queue_name}-{number}") for number in range(3)]
        for queue in queues:
            await queue.counts()
        proxy.freeze()
        calls = [asyncio.ensure_future(queue.add("send")) for queue in queues]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(app.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        await eventually(lambda: all(queue.is_closed for queue in queues))
        again = asyncio.ensure_future(app.close())
        await asyncio.sleep(0)
        assert not again.done()
        proxy.thaw()
        await asyncio.gather(*calls, again)
        for queue in queues:
            await app.queue(queue.name).obliterate()
        await app.close()


async def test_waits_begin_again_after_all_tasks_of_the_loop_were_cancelled(
    queue: Queue, make_worker: Callable[..., Worker]
) -> None:
    others = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        await queue.wait_for_result("nothing", timeout=0.1)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    may_end = asyncio.Event()

    async def handle_later(job: Job) -> int:
        await may_end.wait()
        return 7

    async with make_worker(handle_later, store_results=True):
        job = await queue.add("send")
        waiting = asyncio.ensure_future(job.wait_for_result(timeout=3))  # less than SECOND_LOOK_S
        for _ in range(5):  # on the connection on which the wait asks for the result that is not there yet
            await queue.counts()
        may_end.set()
        assert await waiting == 7
