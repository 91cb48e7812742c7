"""Whole processes: how they end, how they handle signals, and how a queue works after a fork."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui.worker import SECOND_SIGNAL_S
from tests.support.fake_server import FakeServer
from tests.support.programs import Program, started_program
from tests.support.server import PROJECT, RedisServer
from tests.support.streams import Stream
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks")

PREAMBLE = """
import asyncio, os, sys, time
from pychasqui import Queue, Worker, WrongLoop, RedisTrouble
url, name = sys.argv[1:3]
"""


def started(program: str, url: str, queue_name: str) -> AbstractAsyncContextManager[Program]:
    return started_program(PREAMBLE + textwrap.dedent(program), url, queue_name)


async def run_program(program: str, url: str, queue_name: str, *, within_s: float = 20) -> tuple[int | None, str, str]:
    """Its exit code and all that it said."""
    async with started(program, url, queue_name) as process:
        return await ended(process, within_s=within_s)


async def run_interpreter(program: str, url: str, queue_name: str) -> tuple[int | None, str, str]:
    """The same in an interpreter that is started for it, for tests of how that ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PREAMBLE + textwrap.dedent(program), url, queue_name),
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        return await ended(process, within_s=20)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process | Program, *, within_s: float) -> tuple[int | None, str, str]:
    """The same for one that was started before."""
    async with asyncio.timeout(within_s):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def said(process: Program, words: str) -> None:
    """Wait until it has printed a line with these words."""
    async with asyncio.timeout(30):
        while words not in (got := await process.stdout.readline()).decode():
            assert got, f"it ended without saying {words!r}"


PRODUCERS = {
    "closed": """
        async def main():
            queue = Queue(name, redis_url=url)
            await queue.add("send", 1)
            await queue.close()
        asyncio.run(main())
    """,
    "in a block": """
        async def main():
            async with Queue(name, redis_url=url) as queue:
                await queue.add("send", 1)
        asyncio.run(main())
    """,
    "not closed": """
        async def main():
            await Queue(name, redis_url=url).add("send", 1)
        asyncio.run(main())
    """,
    "not closed, global": """
        queue = Queue(name, redis_url=url)
        asyncio.run(queue.add("send", 1))
    """,
    "not closed, after a bulk": """
        queue = Queue(name, redis_url=url)
        async def main():
            await queue.add_bulk({"name": "send", "data": n} for n in range(5000))
        asyncio.run(main())
    """,
    "not closed, two loops": """
        queue = Queue(name, redis_url=url)
        asyncio.run(queue.add("send", 1))
        asyncio.run(queue.add("send", 2))
    """,
    "left in the middle of adds": """
        queue = Queue(name, redis_url=url)
        async def main():
            await queue.add("send", 1)
            tasks = [asyncio.create_task(queue.add("send", n)) for n in range(100)]
            await asyncio.sleep(0)
        asyncio.run(main())
    """,
    "left by sys.exit": """
        queue = Queue(name, redis_url=url)
        async def main():
            await queue.add("send", 1)
            sys.exit(0)
        asyncio.run(main())
    """,
    "never used": """
        queue = Queue(name, redis_url=url)
    """,
    "server away": """
        queue = Queue(name, redis_url="unix:///nowhere/at/all.sock", timeout_s=0.1)
        async def main():
            try:
                await queue.add("send", 1)
            except RedisTrouble:
                pass
        asyncio.run(main())
    """,
}


class TestProducers:
    @pytest.mark.parametrize("kind", PRODUCERS)
    async def test_a_short_script_ends_clean(self, kind: str, redis_url: str, queue_name: str, stream: Stream) -> None:
        """P19."""
        code, out, err = await run_interpreter(PRODUCERS[kind], redis_url, queue_name)
        assert (code, out) == (0, "")
        # That it keeps trying is worth a line, which unconfigured logging puts on stderr.
        assert err.count("\n") == (kind == "server away"), err

    async def test_a_script_whose_add_is_unanswered_ends_clean(self, queue_name: str) -> None:
        program = """
            queue = Queue(name, redis_url=url, timeout_s=0.2)
            async def main():
                try:
                    await queue.add("send", 1)
                except RedisTrouble:
                    print("raised")
            asyncio.run(main())
        """
        async with FakeServer() as fake:
            code, out, err = await run_interpreter(program, fake.url, queue_name)
        assert (code, out) == (0, "raised\n")
        assert "Traceback" not in err

    async def test_every_script_that_ended_has_added_its_jobs(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            queue = Queue(name, redis_url=url)
            async def main():
                await asyncio.gather(*(queue.add("send", n) for n in range(50)))
            asyncio.run(main())
        """
        runs = await asyncio.gather(*(run_program(program, redis_url, queue_name) for _ in range(4)))
        assert runs == [(0, "", "")] * 4
        assert await stream.length() == 4 * 50

    async def test_uvloop_ends_clean_too(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        pytest.importorskip("uvloop")
        program = """
            import uvloop
            queue = Queue(name, redis_url=url)
            uvloop.run(queue.add("send", 1))
            uvloop.run(queue.add("send", 2))
        """
        assert await run_interpreter(program, redis_url, queue_name) == (0, "", "")
        assert [entry.data for entry in await stream.entries()] == [1, 2]


class TestForks:
    """T21: works, or raises; never hangs, never loses a job in silence."""

    async def test_a_queue_made_before_a_fork_is_used_by_every_child(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        """As a server that loads the application once and then forks its workers."""
        program = """
            queue = Queue(name, redis_url=url)
            async def main(who):
                for n in range(5):
                    await queue.add("send", f"{who}-{n}")
                await queue.add_bulk({"name": "send", "data": f"{who}-bulk-{n}"} for n in range(5))
            children = []
            for who in "abcd":
                pid = os.fork()
                if not pid:
                    asyncio.run(main(who))
                    os._exit(0)
                children.append(pid)
            asyncio.run(main("parent"))
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
            print(codes)
        """
        assert await run_program(program, redis_url, queue_name) == (0, "[0, 0, 0, 0]\n", "")
        stored = sorted(entry.data for entry in await stream.entries())
        assert stored == sorted(
            f"{who}-{kind}{n}" for who in ("a", "b", "c", "d", "parent") for kind in ("", "bulk-") for n in range(5)
        )

    async def test_a_queue_used_before_a_fork_works_on_both_sides_of_it(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            queue = Queue(name, redis_url=url)
            asyncio.run(queue.add("send", "before"))
            pid = os.fork()
            asyncio.run(queue.add("send", "child" if not pid else "parent"))
            asyncio.run(queue.add("send", "child again" if not pid else "parent again"))
            if not pid:
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
        assert await run_program(program, redis_url, queue_name) == (0, "0\n", "")
        stored = sorted(entry.data for entry in await stream.entries())
        assert stored == sorted(["before", "child", "child again", "parent", "parent again"])

    async def test_a_fork_inside_a_running_loop_raises_or_works_in_the_child(
        self, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            queue = Queue(name, redis_url=url)
            def in_child():
                try:
                    asyncio.run(queue.add("send", "child"))
                except WrongLoop as error:
                    os._exit(3)
                os._exit(0)
            async def main():
                await queue.add("send", "before")
                pid = os.fork()
                if not pid:
                    in_child()
                code = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])
                await queue.add("send", "after")
                print(code)
                await queue.close()
            asyncio.run(main())
        """
        code, out, err = await run_program(program, redis_url, queue_name)
        assert (code, err) == (0, "")
        assert out in ("0\n", "3\n")
        stored = [entry.data for entry in await stream.entries()]
        assert stored == (["before", "after"] if out == "3\n" else ["before", "child", "after"])

    async def test_a_new_queue_in_a_child_works(self, redis_url: str, queue_name: str, stream: Stream) -> None:
        program = """
            async def add(data):
                async with Queue(name, redis_url=url) as queue:
                    await queue.add("send", data)
            asyncio.run(add("before"))
            pid = os.fork()
            if not pid:
                asyncio.run(add("child"))
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
        assert await run_program(program, redis_url, queue_name) == (0, "0\n", "")
        assert [entry.data for entry in await stream.entries()] == ["before", "child"]


WORKER = """
    async def handle(job):
        print("started", flush=True)
        await asyncio.sleep(job.data)
        print("finished", flush=True)
    asyncio.run(Worker(name, handle, redis_url=url).run(handle_signals=True))
    print("left", flush=True)
"""
TALKING_WORKER = f"""
    import logging
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    {WORKER}
"""


async def ended_quietly(process: Program) -> str:
    """Waits for a clean end and returns the last output; the log may hold only the lines about draining."""
    code, out, err = await ended(process, within_s=20)
    assert code == 0
    assert "waits for 1 running job (1 of 'sleep') for up to 30 s" in err
    assert err.count("\n") == 1
    return out


class TestSignals:
    @pytest.fixture
    async def add(self, redis_url: str, queue_name: str) -> AsyncIterator[Any]:
        from pychasqui import Queue

        async with Queue(queue_name, redis_url=redis_url) as queue:
            yield lambda seconds: queue.add("sleep", seconds)

    @pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
    async def test_the_first_lets_the_running_job_finish(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream, number: signal.Signals
    ) -> None:
        await add(0.3)
        async with started(WORKER, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(number)
            assert await ended_quietly(process) == "finished\nleft\n"
        assert await stream.is_settled()
        assert await stream.consumers() == []

    async def test_a_plain_function_in_its_thread_finishes_too(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            def handle(job):
                print("started", flush=True)
                time.sleep(job.data)
                print("finished", flush=True)
            asyncio.run(Worker(name, handle, redis_url=url).run(handle_signals=True))
        """
        await add(0.3)
        async with started(program, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(signal.SIGTERM)
            assert await ended_quietly(process) == "finished\n"
        assert await stream.is_settled()

    async def test_an_idle_worker_ends_at_once(self, add: Any, redis_url: str, queue_name: str, stream: Stream) -> None:
        await add(0)
        async with started(WORKER, redis_url, queue_name) as process:
            await said(process, "finished")
            start = monotonic()
            process.send_signal(signal.SIGTERM)
            assert await ended(process, within_s=20) == (0, "left\n", "")
            assert monotonic() - start < 4  # sooner than by the end of a read

    async def test_the_second_ends_at_once_and_hands_the_job_back(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        await add(60)
        async with started(TALKING_WORKER, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(signal.SIGTERM)
            await said(process, "SIGTERM")
            await asyncio.sleep(2 * SECOND_SIGNAL_S)  # or both would be one
            assert process.returncode is None
            start = monotonic()
            process.send_signal(signal.SIGTERM)
            code, out, _ = await ended(process, within_s=20)
            assert monotonic() - start < 10
            assert code == 0
            assert out.endswith("left\n")
            assert "finished" not in out.splitlines()
        assert await stream.length() == 1
        async with started(WORKER, redis_url, queue_name) as process:
            await said(process, "started")
            process.kill()
        await stream.clear()

    async def test_a_signal_that_is_sent_twice_at_once_counts_once(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        await add(1)
        async with started(WORKER, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            assert await ended_quietly(process) == "finished\nleft\n"
        assert await stream.is_settled()

    async def test_a_program_that_handles_them_itself_is_left_to_it(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            import os, signal
            async def handle(job):
                pass
            async def main():
                worker = Worker(name, handle, redis_url=url)
                def mine(*_):
                    os.write(1, b"mine\\n")  # print() fails if the signal comes before the other one has returned
                    worker.shutdown()
                before = signal.getsignal(signal.SIGINT)
                signal.signal(signal.SIGTERM, mine)
                asyncio.get_running_loop().call_later(0.3, lambda: print("ready", flush=True))
                await worker.run()
                print(signal.getsignal(signal.SIGTERM) is mine, signal.getsignal(signal.SIGINT) is before, flush=True)
            asyncio.run(main())
        """
        async with started(program, redis_url, queue_name) as process:
            await said(process, "ready")
            process.send_signal(signal.SIGTERM)
            assert await ended(process, within_s=40) == (0, "mine\nTrue True\n", "")

    async def test_earlier_signal_handlers_are_restored(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            import signal
            async def handle(job):
                pass
            def mine(*_):
                pass
            async def main():
                worker = Worker(name, handle, redis_url=url)
                signal.signal(signal.SIGTERM, mine)
                before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
                asyncio.get_running_loop().call_later(0.3, worker.shutdown)
                await worker.run(handle_signals=True)
                print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before, flush=True)
            asyncio.run(main())
        """
        async with started(program, redis_url, queue_name) as process:
            assert await ended(process, within_s=40) == (0, "True\n", "")

    async def test_an_unhandled_ctrl_c_lets_the_running_job_finish(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        await add(0.3)
        program = WORKER.replace("handle_signals=True", "")
        async with started(program, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(signal.SIGINT)
            code, out, err = await ended(process, within_s=40)
        assert (code, out) == (-signal.SIGINT, "finished\n")
        assert "run() is cancelled: worker" in err
        assert "KeyboardInterrupt" in err
        assert await stream.is_settled()

    @pytest.mark.parametrize("run", ("asyncio.run(", "import uvloop; uvloop.run("), ids=("asyncio", "uvloop"))
    @pytest.mark.parametrize("kind", ("async def", "def"))
    async def test_signals_of_a_child_process_stay_with_the_child(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream, kind: str, run: str
    ) -> None:
        if "uvloop" in run:
            pytest.importorskip("uvloop")
        program = """
            import multiprocessing, signal, warnings
            KIND handle(job):
                with multiprocessing.get_context("fork").Pool(2) as pool:  # its end is a SIGTERM to each
                    print(pool.map(abs, [-1, -2]), flush=True)
                has_printed, prints = os.pipe()
                child = os.fork()
                if not child:
                    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
                    os.write(prints, b".")
                    signal.pause()
                os.read(has_printed, 1)
                os.kill(child, signal.SIGTERM)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
                print("finished", flush=True)
            RUN(Worker(name, handle, redis_url=url, concurrency=1).run(handle_signals=True))
            print("left", flush=True)
        """.replace("KIND", kind).replace("RUN(", run)
        await add(0)
        async with started(program, redis_url, queue_name) as process:
            for _ in range(2):  # the worker goes on, and stops when it is meant
                lines = [(await asyncio.wait_for(process.stdout.readline(), 30)).decode() for _ in range(4)]
                assert lines == ["[1, 2]\n", "True\n", "-15\n", "finished\n"]
                await add(0)
            process.send_signal(signal.SIGTERM)
            code, out, _ = await ended(process, within_s=30)
            assert (code, out.splitlines()[-1]) == (0, "left")
        await stream.clear()

    async def test_a_signal_to_a_child_that_has_not_run_yet_ends_the_child(
        self, redis_url: str, queue_name: str
    ) -> None:
        """Python drops what a child is sent before os.fork() returns there. A pool of processes hung by that."""
        program = """
            import signal, warnings
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about forks beside threads
            async def handle(job):
                pass
            def end_child():
                child = os.fork()
                if not child:
                    time.sleep(0.5)
                    os._exit(0)
                os.kill(child, signal.SIGTERM)
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            async def main():
                if hasattr(os, "sched_setaffinity"):
                    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])  # the child does not run before the kill
                worker = Worker(name, handle, redis_url=url)
                running = asyncio.create_task(worker.run(handle_signals=True))
                while not worker.is_running:
                    await asyncio.sleep(0.01)
                print({end_child() for _ in range(10)}, signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)
                worker.shutdown()
                await running
            asyncio.run(main())
        """
        assert await run_program(program, redis_url, queue_name, within_s=40) == (0, "{-15} set()\n", "")

    async def test_every_worker_of_the_process_stops(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            async def handle(job):
                await asyncio.sleep(job.data)
            async def main():
                workers = [Worker(name, handle, redis_url=url) for _ in range(3)]
                asyncio.get_running_loop().call_later(0.5, lambda: print("ready", flush=True))
                await asyncio.gather(*(worker.run(handle_signals=True) for worker in workers))
                print("left", flush=True)
            asyncio.run(main())
        """
        async with started(program, redis_url, queue_name) as process:
            await said(process, "ready")
            process.send_signal(signal.SIGTERM)
            assert await ended(process, within_s=40) == (0, "left\n", "")

    async def test_a_worker_in_a_block_leaves_signals_to_the_program(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        program = """
            import signal
            async def handle(job):
                pass
            async def main():
                wanted = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, wanted.set)
                async with Worker(name, handle, redis_url=url):
                    print("ready", flush=True)
                    await wanted.wait()
                    print("mine", flush=True)
            asyncio.run(main())
        """
        async with started(program, redis_url, queue_name) as process:
            await said(process, "ready")
            process.send_signal(signal.SIGTERM)
            assert await ended(process, within_s=40) == (0, "mine\n", "")

    async def test_a_worker_that_waits_for_its_server_ends_at_once(self, queue_name: str) -> None:
        program = """
            async def handle(job):
                pass
            async def main():
                asyncio.get_running_loop().call_later(0.3, lambda: print("ready", flush=True))
                await Worker(name, handle, redis_url="unix:///nowhere/at/all.sock").run(handle_signals=True)
            asyncio.run(main())
        """
        async with started(program, "-", queue_name) as process:
            await said(process, "ready")
            process.send_signal(signal.SIGTERM)
            signalled_at = monotonic()
            code, _, err = await ended(process, within_s=40)
            assert monotonic() - signalled_at < 5
            assert code == 0
            assert "Traceback" not in err

    async def test_a_signal_ends_a_worker_under_uvloop_too(
        self, add: Any, redis_url: str, queue_name: str, stream: Stream
    ) -> None:
        pytest.importorskip("uvloop")
        await add(0.3)
        program = WORKER.replace("asyncio.run(", "import uvloop; uvloop.run(")
        async with started(program, redis_url, queue_name) as process:
            await said(process, "started")
            process.send_signal(signal.SIGTERM)
            assert await ended_quietly(process) == "finished\nleft\n"
        assert await stream.is_settled()


class TestSecrets:
    async def test_a_password_is_in_no_output_of_a_process_that_fails_in_every_way(self, queue_name: str) -> None:
        """S5: errors, tracebacks, logs at their loudest, representations, warnings."""
        program = """
            import logging, traceback, warnings
            logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
            warnings.simplefilter("always")
            base, secret = url.rsplit(" ", 1)
            host = base.removeprefix("redis://")
            async def handle(job): pass
            urls = [f"redis://ann:{secret}@{host}", f"redis://:{secret}@{host}/0", f"redis://{host}?password={secret}",
                    f"redis://ann:{secret}@127.0.0.1:1", f"redis://ann:{secret}@{host}/999", f"rediss://:{secret}@{host}",
                    f"redis://ann:{secret}@{host}?nope=1", f"ftp://ann:{secret}@{host}", f"redis://ann:{secret}@h:port",
                    f"unix:///nowhere.sock?password={secret}"]
            async def main():
                for each in urls:
                    for kind, argument in ((Queue, 0.2), (Worker, handle)):
                        try:
                            key = "timeout_s" if kind is Queue else "handler"
                            thing = kind(name, redis_url=each, **{key: argument})
                            print(repr(thing), str(thing))
                            if isinstance(thing, Queue):
                                await thing.add("send")
                            else:
                                await asyncio.wait_for(thing.run(), 0.2)
                        except Exception:
                            traceback.print_exc(file=sys.stdout)
                        finally:
                            if "thing" in locals():
                                await thing.close()
            asyncio.run(main(), debug=True)
            print("end")
        """
        secret = "hunter2-and-more"
        with RedisServer(tcp=True) as own:
            code, out, err = await run_program(program, f"{own.tcp_url} {secret}", queue_name, within_s=60)
        assert code == 0, err
        assert out.endswith("end\n")
        assert out.count("Traceback") >= 10
        assert "AttributeError" not in out
        assert "TypeError" not in out
        assert secret not in out
        assert secret not in err

    async def test_a_password_is_in_no_process_title_and_no_client_name(
        self, redis_url: str, queue_name: str, witness: Any
    ) -> None:
        from pychasqui import Queue

        with RedisServer("--requirepass", "hunter2", tcp=True) as own:
            async with Queue(queue_name, redis_url=f"redis://:hunter2@127.0.0.1:{own.port}") as queue:
                await queue.add("send")
                client = redis.asyncio.Redis.from_url(own.url, password="hunter2")
                assert "hunter2" not in str(await client.client_list())
                await client.aclose()
        assert "hunter2" not in Path(f"/proc/{os.getpid()}/cmdline").read_text()


async def test_a_queue_that_is_let_go_without_close_does_not_disturb_the_loop(
    redis_url: str, queue_name: str, stream: Stream
) -> None:
    program = """
        import gc
        async def main():
            for n in range(20):
                await Queue(name, redis_url=url).add("send", n)
                gc.collect()
            await asyncio.sleep(0.05)
        asyncio.run(main())
    """
    assert await run_program(program, redis_url, queue_name) == (0, "", "")
    await eventually(lambda: _length_is(stream, 20))


async def _length_is(stream: Stream, length: int) -> bool:
    return await stream.length() == length
