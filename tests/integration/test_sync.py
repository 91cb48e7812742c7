"""Synchronous code adds jobs from any thread, before and after a fork, and until the interpreter has ended."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from pychasqui import (
    App,
    DeadLetters,
    InvalidArgument,
    JobFailed,
    NotReplicated,
    Queue,
    Repeatables,
    SyncQueue,
    WrongLoop,
)
from pychasqui._tasks.portal import Portal, portal
from pychasqui._tasks.portal_loop import LAST_KNOWN_PYTHON, PortalLoop
from pychasqui.sync import SyncDeadLetters, SyncRepeatables
from tests.support.server import RedisServer
from tests.support.waiting import eventually

T = TypeVar("T")


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    app = App(redis_url)
    yield app
    app.sync.close()


@pytest.fixture
def sync_queue(redis_url: str, queue_name: str) -> Iterator[SyncQueue]:
    with SyncQueue(queue_name, redis_url=redis_url) as queue:
        yield queue
        queue.obliterate()


def public_coroutines(kind: type) -> set[str]:
    return {
        name
        for name, value in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "close"
    }


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_connections_of_loops_that_ended_without_close_are_not_kept(
    app: App, redis_url: str, queue_name: str
) -> None:
    @app.task(queue=queue_name)
    async def work(number: int) -> None: ...

    with redis.Redis.from_url(redis_url) as client:
        before = len(client.client_list())
        for number in range(20):  # as the async views of Flask do, and plain tasks that call asyncio.run()
            asyncio.run(work.enqueue(number))
        gc.collect()
        asyncio.run(eventually(lambda: len(client.client_list()) <= before + 2))
    app.sync.queue(queue_name).obliterate()
    gc.collect()  # here, where the warning of the last one is passed over


def test_a_closed_queue_is_forgotten_unless_another_thread_uses_it(redis_url: str, queue_name: str) -> None:
    """A program may make and close one for each request."""
    queue = SyncQueue(queue_name, redis_url=redis_url)
    before = len(portal._holders)
    queue.counts()
    assert len(portal._holders) == before + 1
    wait = partial(portal.run_and_wait, partial(asyncio.sleep, 0.1), queue._queues)
    waiting = threading.Thread(target=wait)
    waiting.start()
    while not portal._calls:
        time.sleep(0.001)
    queue.close()
    assert len(portal._holders) == before + 1
    waiting.join()
    queue.close()
    assert len(portal._holders) == before


class TestNames:
    @pytest.mark.parametrize(
        ("own", "other"), ((SyncQueue, Queue), (SyncDeadLetters, DeadLetters), (SyncRepeatables, Repeatables))
    )
    def test_each_coroutine_has_a_blocking_twin(self, own: type, other: type) -> None:
        twins = public_coroutines(other)
        assert len(twins) >= 7
        assert twins <= set(dir(own))
        for name in twins:
            assert inspect.signature(getattr(own, name)) == inspect.signature(getattr(other, name))

    def test_a_wrong_option_is_refused_where_it_is_made(self) -> None:
        with pytest.raises(InvalidArgument, match="redis_url"):
            SyncQueue("mail", redis_url="nowhere://")
        with pytest.raises(TypeError, match="unexpected keyword"):
            SyncQueue("mail", tmeout_s=3)  # type: ignore[call-arg]


class TestCalls:
    def test_a_queue_adds_and_looks(self, sync_queue: SyncQueue) -> None:
        job = sync_queue.add("mail", {"to": "ada"}, delay=timedelta(hours=1))
        sync_queue.add_bulk([{"name": "mail", "data": number} for number in range(3)])
        assert sync_queue.counts().waiting == 3
        assert sync_queue.status(job.id).state == "delayed"
        assert sync_queue.cancel_delayed(job.id)
        assert sync_queue.dlq.count() == 0
        assert sync_queue.repeatables.page() == []
        assert repr(sync_queue) == f"SyncQueue({sync_queue.name!r})"

    def test_every_kind_of_add_works(self, sync_queue: SyncQueue, redis_url: str) -> None:
        assert sync_queue.add("later", delay=timedelta(hours=1), attempts=2, job_id="x").is_new
        assert not sync_queue.add("later", job_id="x").is_new
        assert len(sync_queue.add_bulk([{"name": "many"}] * 3)) == 3
        sync_queue.add("often", repeat={"kind": "every", "interval_ms": 60_000})
        assert len(sync_queue.repeatables.page()) == 1
        with SyncQueue(sync_queue.name, redis_url=redis_url, timeout_s=1) as hasty, pytest.raises(NotReplicated):
            hasty.add("x", wait_replicas=1)

    def test_an_error_comes_back_to_the_caller(self, sync_queue: SyncQueue) -> None:
        with pytest.raises(InvalidArgument, match="name 'xx"):
            sync_queue.add("x" * 1000)

    def test_a_task_is_enqueued_and_its_result_comes_back(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        def double(number: int) -> int:
            return 2 * number

        stop = threading.Event()
        worker = threading.Thread(target=run_worker, args=(app, stop))
        worker.start()
        try:
            assert double.sync.enqueue(4).result() == 8
            handles = app.sync.enqueue_all([double.bind(1), double.bind(2)])
            assert [handle.result() for handle in handles] == [2, 4]
            later = double.with_options(delay=timedelta(milliseconds=5)).sync.enqueue(3)
            assert double.sync.handle(later.id).result() == 6
            assert (later.is_new, later.has_replaced, later.queue_name) == (True, False, queue_name)
            assert (later.progress(), later.logs()) == (None, [])
            broken = app.sync.queue(queue_name).add("double", {"number": "x"})
            with pytest.raises(JobFailed):
                app.sync.queue(queue_name).wait_for_result(broken.id)
            assert app.sync.queue(queue_name).dlq.purge() == 1
        finally:
            stop.set()
            worker.join()

    def test_many_threads_share_one_loop(self, sync_queue: SyncQueue) -> None:
        threads = len(threading.enumerate())
        with ThreadPoolExecutor(16) as pool:
            jobs = list(pool.map(lambda number: sync_queue.add("mail", number), range(200)))
        assert len({job.id for job in jobs}) == 200
        assert sync_queue.counts().waiting == 200
        assert len(threading.enumerate()) <= threads, "no thread was started"

    @pytest.mark.parametrize("has_wait_groups", (True, False))
    def test_a_call_that_waits_for_long_does_not_hold_up_those_that_started_with_it(
        self, sync_queue: SyncQueue, monkeypatch: pytest.MonkeyPatch, has_wait_groups: bool
    ) -> None:
        monkeypatch.setattr("pychasqui._tasks.portal.HAS_WAIT_GROUPS", has_wait_groups and hasattr(os, "eventfd"))
        start = threading.Barrier(12)

        def wait_or_add(number: int) -> int:
            start.wait(10)
            if number % 3 == 0:
                with pytest.raises(TimeoutError):
                    sync_queue.wait_for_result("no job", timeout=1)
                return 0
            return len({sync_queue.add("mail", number).id for _ in range(50)})

        began = time.monotonic()
        with ThreadPoolExecutor(12) as pool:
            added = list(pool.map(wait_or_add, range(12)))
        assert sum(added) == sync_queue.counts().waiting == 400
        assert time.monotonic() - began < 20

    def test_a_generator_is_read_in_the_thread_of_its_caller_where_no_loop_runs(
        self, app: App, sync_queue: SyncQueue
    ) -> None:
        """Django refuses queries where a loop runs, and a slow one would hold up the calls of other threads."""
        mine = threading.get_ident()

        def read(items: Iterable[T]) -> Iterator[T]:
            for item in items:
                assert threading.get_ident() == mine
                with pytest.raises(RuntimeError, match="no running event loop"):
                    asyncio.get_running_loop()
                yield item

        @app.task(queue=sync_queue.name)
        def shrink(width: int) -> int:
            return width

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(sync_queue.wait_for_result, "no job", timeout=1)  # runs the loop meanwhile
            while not portal._calls:
                time.sleep(0.001)
            handles = app.sync.enqueue_all(read([shrink.bind(1), shrink.bind(2)]))
            jobs = sync_queue.add_bulk(read([{"name": "mail"}])) + sync_queue.add_bulk(jobs=read([{"name": "mail"}]))
            ids = [*(handle.id for handle in handles), *(job.id for job in jobs)]
            assert len(ids) == 4 == sync_queue.counts().waiting
            assert sync_queue.get_job_result_bulk(read(ids)) == [None] * 4
            assert sync_queue.cancel_delayed_bulk(read(ids)) == [False] * 4
            assert sync_queue.dlq.restore(read([])) == 0
            with pytest.raises(TimeoutError):
                sync_queue.wait_for_results(read(ids), timeout=0.1)
            assert isinstance(other.exception(), TimeoutError)
        with pytest.raises(TypeError, match="job_ids must be several ids, not str"):
            sync_queue.get_job_result_bulk("id")
        with pytest.raises(TypeError, match="jobs must be a list"):
            sync_queue.add_bulk(3)  # type: ignore[arg-type]

    async def test_a_call_where_a_loop_runs_says_what_to_await(self, app: App) -> None:
        @app.task
        def shrink(width: int) -> int:
            return width

        with pytest.raises(WrongLoop, match=r"await shrink.enqueue\(...\)"):
            shrink.sync.enqueue(3)
        with pytest.raises(WrongLoop, match=r"await app.enqueue_all\(...\)"):
            app.sync.enqueue_all([])
        with pytest.raises(WrongLoop, match=r"SyncQueue.add would block the event loop"):
            app.sync.queue("x").add("y")

    async def test_a_notebook_awaits_or_goes_through_a_thread(self, app: App, queue_name: str) -> None:
        """A loop runs in the main thread there, and each cell is a coroutine."""

        @app.task(queue=queue_name)
        def shrink(width: int) -> int:
            return width

        awaited = await shrink.enqueue(3)
        blocking = await asyncio.to_thread(shrink.sync.enqueue, 4)
        assert {awaited.id, blocking.id} == {job.id for job in (await app.queue(queue_name).jobs("waiting")).jobs}
        await asyncio.to_thread(app.sync.close)
        await app.queue(queue_name).obliterate()
        await app.close()

    def test_wrong_arguments_are_refused_before_anything_is_sent(self, app: App) -> None:
        @app.task
        def shrink(width: int) -> int:
            return width

        with pytest.raises(InvalidArgument, match="shrink: width: Expected `int`, got `str`"):
            shrink.sync.enqueue("x")  # type: ignore[arg-type]


def run_worker(app: App, stop: threading.Event) -> None:
    async def run() -> None:
        async with app, app.worker():
            await asyncio.to_thread(stop.wait, 50)

    asyncio.run(run())


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


FORKS = """
import os, sys, threading
from pychasqui import SyncQueue
queue = SyncQueue(sys.argv[1], redis_url=sys.argv[2])
stop, added = threading.Event(), [0] * 4

def add_all_the_time(number):
    while not stop.is_set():
        queue.add("load", number)
        added[number] += 1

threads = [threading.Thread(target=add_all_the_time, args=(number,)) for number in range(int(sys.argv[4]))]
queue.add("parent")
[thread.start() for thread in threads]
children = []
for number in range(int(sys.argv[3])):
    child = os.fork()
    if not child:
        queue.add("child", number)
        os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
[thread.join() for thread in threads]
queue.add("parent")
print(codes.count(0), sum(added))
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("threads", (0, 3))
def test_forked_processes_add_beside_their_parent(
    redis_url: str, queue_name: str, sync_queue: SyncQueue, threads: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, queue_name, redis_url, "20", str(threads)],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ended.returncode == 0, ended.stderr
    children, added = map(int, ended.stdout.split())
    assert children == 20
    assert sync_queue.counts().waiting == 20 + 2 + added


HANGS = """
import sys
from pychasqui import App
from pychasqui._tasks import portal
portal.CLOSING_S = 0.3
app = App(sys.argv[1])
for name in ("a", "b"):
    app.sync.queue(name).add("x")
print("added", flush=True)
sys.stdin.readline()
"""


def test_a_process_that_ends_while_redis_hangs_writes_nothing_to_its_log() -> None:
    pipe = subprocess.PIPE
    with RedisServer() as server:
        command = [sys.executable, "-c", HANGS, server.url]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "added\n"
            server.pause()
            try:
                _, said = process.communicate("\n", timeout=50)
            finally:
                server.resume()
    assert (process.returncode, said) == (0, "")


AT_EXIT = """
import atexit, sys
atexit.register(lambda: queue.add("before the import"))
from pychasqui import SyncQueue
atexit.register(lambda: queue.add("after the import"))
queue = SyncQueue(sys.argv[1], redis_url=sys.argv[2])
queue.add("while it runs")
if sys.argv[3] == "close":
    queue.close()
"""


@pytest.mark.parametrize("closes", ("close", "leave open"))
@pytest.mark.parametrize("is_tcp", (True, False))
def test_a_process_adds_until_its_end_and_ends_with_0(
    server: RedisServer, redis_url: str, queue_name: str, sync_queue: SyncQueue, closes: str, is_tcp: bool
) -> None:
    url = server.tcp_url.replace("127.0.0.1", "localhost") if is_tcp else redis_url
    ended = run_program(AT_EXIT, queue_name, url, closes)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {job.name for job in sync_queue.jobs("waiting").jobs} == {
        "before the import",
        "after the import",
        "while it runs",
    }


INTERRUPTED = """
import signal, sys, threading
from pychasqui import SyncQueue
queue = SyncQueue(sys.argv[1], redis_url=sys.argv[2])
job = queue.add("never run")
threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
try:
    queue.wait_for_result(job.id, timeout=40)
except KeyboardInterrupt:
    print(queue.counts().waiting)
"""


def test_ctrl_c_ends_a_wait_and_the_next_call_works(redis_url: str, queue_name: str, sync_queue: SyncQueue) -> None:
    ended = run_program(INTERRUPTED, queue_name, redis_url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


def close_idle_portal() -> None:
    portal.lock_and_close_if_idle_before_fork()
    portal.unlock_after_fork_in_parent()


class TestPortal:
    def test_an_idle_portal_ends_before_a_fork_and_starts_again(self, sync_queue: SyncQueue) -> None:
        sync_queue.counts()
        assert portal.is_open
        close_idle_portal()
        assert not portal.is_open
        assert sync_queue.counts().waiting == 0

    @pytest.mark.parametrize(
        ("name", "value"), (("LAST_KNOWN_PYTHON", (3, 10)), ("PRIVATE_PARTS", ("_not_there",)), (None, None))
    )
    def test_calls_are_tasks_where_asyncio_is_a_later_one_or_lacks_the_parts_that_a_short_cut_needs(
        self, sync_queue: SyncQueue, monkeypatch: pytest.MonkeyPatch, name: str | None, value: object
    ) -> None:
        short_cuts: list[object] = []
        run_without_task_until_ended_or_stopped = PortalLoop.run_without_task_until_ended_or_stopped

        def note_and_run(loop: PortalLoop, *arguments: Any) -> Any:
            short_cuts.append(loop)
            return run_without_task_until_ended_or_stopped(loop, *arguments)

        monkeypatch.setattr(PortalLoop, "run_without_task_until_ended_or_stopped", note_and_run)
        if name is not None:
            monkeypatch.setattr(f"pychasqui._tasks.portal_loop.{name}", value)
        close_idle_portal()
        try:
            sync_queue.add("alone")
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda number: sync_queue.add("mail", number), range(100)))
            assert sync_queue.counts().waiting == 101
        finally:
            close_idle_portal()
        is_known = name is None and sys.version_info[:2] <= LAST_KNOWN_PYTHON
        assert bool(short_cuts) == is_known

    def test_the_running_loop_is_found_without_private_parts(self) -> None:
        program = (
            "import asyncio\nimport asyncio.events\ndel asyncio._get_running_loop\n"
            "from pychasqui._tasks.portal_loop import get_running_loop_or_none\n"
            "async def main(): return get_running_loop_or_none() is asyncio.get_running_loop()\n"
            "assert asyncio.run(main())\nassert get_running_loop_or_none() is None"
        )
        ended = run_program(program)
        assert ended.returncode == 0, ended.stderr

    def test_a_holder_of_connections_is_closed_with_the_portal(self) -> None:
        class Holder:
            has_open_queues = True

            closed = 0

            async def close_queues_of_running_loop(self) -> None:
                self.closed += 1

        async def answer() -> int:
            return 7

        own, holder = Portal(), Holder()
        assert own.run_and_wait(answer, holder) == 7
        own.mark_exiting_and_close_if_idle()
        assert (holder.closed, own.is_open) == (1, False)
        assert own.run_and_wait(answer, holder) == 7, "a late call runs in its caller's thread"
        assert (holder.closed, own.is_open) == (2, False)


def test_an_async_app_does_not_load_the_portal(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pychasqui import App\napp = App('embedded://')\n@app.task\ndef f() -> None: ...\nf.bind()\n"
        "assert 'pychasqui._tasks.portal' not in sys.modules and 'pychasqui.sync' not in sys.modules"
    )
    result: Any = run_program(program)
    assert result.returncode == 0, result.stderr
