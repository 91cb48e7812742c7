"""Tasks against a real server: sent, run, refused, put back, renamed, upgraded."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from pychasqui import (
    App,
    Crew,
    DecodeError,
    InvalidArgument,
    Job,
    JobFailed,
    JobTimeout,
    Queue,
    ResultNotStored,
    RetryLater,
    Snooze,
    UnrecoverableError,
    Worker,
    current_job,
)
from pychasqui._redis.keys import Keys
from pychasqui._tasks import dispatch
from pychasqui._wire.envelope import PUT_BACKS, SNOOZES, decode_envelope, read_put_back_count
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


@dataclass
class Receipt:
    number: int
    at: datetime


@pytest.fixture
async def app(redis_url: str) -> AsyncIterator[App]:
    async with App(redis_url) as app:
        yield app


class TestSending:
    async def test_a_job_is_what_add_would_have_sent(self, app: App, queue: Queue, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def send_mail(to: str, subject: str = "hello") -> int:
            return len(subject)

        handle = await send_mail.enqueue("ada")
        await queue.add("send_mail", {"to": "ada"})
        first, second = (await queue.jobs("waiting")).jobs
        assert (first.name, first.data) == (second.name, second.data) == ("send_mail", {"to": "ada"})
        assert (first.id, handle.is_new) == (handle.id, True)
        await queue.purge("waiting")

    async def test_a_list_of_calls_that_grows_meanwhile_is_sent_as_it_was(
        self, app: App, queue: Queue, queue_name: str
    ) -> None:
        """An error would say that nothing was added, and the caller would send all of them again."""

        @app.task(queue=queue_name)
        def send(number: int) -> None: ...

        calls = [send.bind(1), send.bind(2)]
        sending = asyncio.create_task(app.enqueue_all(calls))
        await asyncio.sleep(0)
        calls.append(send.bind(3))
        handles = await sending
        assert [handle.id for handle in handles] == [job.id for job in (await queue.jobs("waiting")).jobs]
        await queue.purge("waiting")

    def test_a_loop_for_each_call_leaves_no_connections(self, redis_url: str, queue_name: str) -> None:
        app = App(redis_url)

        @app.task(queue=queue_name)
        def send(number: int) -> None: ...

        with redis.Redis.from_url(redis_url) as witness, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # nobody closes the app in these loops
            before = witness.info("clients")["connected_clients"]
            for number in range(10):
                asyncio.run(send.enqueue(number))
            gc.collect()
            assert len(app.loop_queues._by_loop) == 1

            async def clear() -> None:
                async with app:
                    # The server may see the end of a connection after a later question of another.
                    await eventually(lambda: witness.info("clients")["connected_clients"] <= before + 2)
                    await app.queue(queue_name).obliterate()

            asyncio.run(clear())
            gc.collect()

    async def test_a_close_of_an_app_that_is_cancelled_goes_on_for_all_its_queues(
        self, proxy: Proxy, queue: Queue, queue_name: str
    ) -> None:
        app = App(proxy.url, queues={f"{queue_name}-b": {"timeout_s": 9}})  # over another connection
        queues = [app.queue(queue_name), app.queue(f"{queue_name}-b")]
        for each in queues:
            await each.counts()
        proxy.freeze("replies")
        adding = asyncio.create_task(queues[0].add("send"))
        await eventually(lambda: proxy.count(b"send"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await app.close()
        assert all(each.is_closed for each in queues)
        proxy.thaw()
        await app.close()
        assert (adding.done(), app.loop_queues.has_open_queues) == (True, False)
        await eventually(lambda: not proxy.connections)
        await queue.purge("waiting")

    async def test_a_queue_with_wrong_options_leaves_no_bulk_that_was_never_awaited(
        self, redis_url: str, queue_name: str
    ) -> None:
        async with App(redis_url, queues={"narrow": {"max_stream_len": 0}}) as app:

            @app.task(queue=queue_name)
            def first(number: int) -> None: ...

            @app.task(queue="narrow")
            def second(number: int) -> None: ...

            with pytest.raises(InvalidArgument, match="max_stream_len is 0"):
                await app.enqueue_all([first.bind(1), second.bind(2)])
            gc.collect()
            assert (await app.queue(queue_name).counts()).waiting == 0

    async def test_bulks_keep_the_order_of_the_calls(self, app: App, queue: Queue, queue_name: str) -> None:
        @app.task(queue=queue_name)
        def first(number: int) -> None: ...

        @app.task(queue=f"{queue_name}-b")
        def second(number: int) -> None: ...

        handles = await app.enqueue_all([first.bind(1), second.bind(2), first.bind(3)])
        assert [handle.queue_name for handle in handles] == [queue_name, f"{queue_name}-b", queue_name]
        waiting = (await queue.jobs("waiting")).jobs
        assert [(job.id, job.data) for job in waiting] == [
            (handles[0].id, {"number": 1}),
            (handles[2].id, {"number": 3}),
        ]
        assert (await app.queue(f"{queue_name}-b").counts()).waiting == 1
        assert await app.enqueue_all([]) == []
        for name in (queue_name, f"{queue_name}-b"):
            await app.queue(name).purge("waiting")

    async def test_one_job_of_the_same_values_is_kept(self, app: App, queue: Queue, queue_name: str) -> None:
        @app.task(queue=queue_name, unique_by=("order",))
        def charge(order: int, amount: int) -> None: ...

        first, second = await charge.enqueue(17, 1), await charge.enqueue(17, 2)
        later = charge.with_options(if_exists="replace", delay=timedelta(hours=1))
        third, fourth = await later.enqueue(18, 3), await later.enqueue(18, 4)
        assert (first.is_new, second.is_new, second.id) == (True, False, "charge(order=17)")
        assert (third.has_replaced, fourth.has_replaced) == (False, True)
        assert charge.handle(second.id).id == first.id
        await queue.obliterate()


class TestRunning:
    async def test_results_are_of_the_annotated_type(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def buy(number: int, at: datetime) -> Receipt:
            return Receipt(number, at)

        @app.task(queue=queue_name)
        def shrink(path: Path, factor: float = 2) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return f"{path}/{factor}/{current_job().name}"

        now = datetime.now(UTC)
        async with app.worker() as crew:
            bought, shrunk = await app.enqueue_all([buy.bind(3, now), shrink.bind(Path("/a"))])
            results: tuple[object, ...] = tuple(await asyncio.gather(bought.result(), shrunk.result()))
            assert results == (Receipt(3, now), "/a/2/shrink")
            assert crew.queue_names == [queue_name]
            assert crew.is_running

    async def test_a_result_of_another_type_than_the_annotated_one_is_refused(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def count(value: Any) -> int:
            return value

        @app.task(queue=queue_name)
        async def weigh(value: Any) -> float:
            return value

        async with app.worker():
            whole, weight, text = await app.enqueue_all([count.bind(True), weigh.bind(2), count.bind("2")])
            assert await whole.result() is True
            assert isinstance(await weight.result(), float)
            with pytest.raises(DecodeError, match="Expected `int`, got `str`"):
                await text.result()

    async def test_a_job_without_data_is_a_call_without_arguments(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def beat(times: int = 3) -> int:
            return times

        async with app.worker():
            job = await app.queue(queue_name).add("beat")
            assert await beat.handle(job.id).result() == 3

    async def test_progress_and_log_lines_are_read_by_the_handle(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def count() -> int:
            await current_job().progress(1, 2)
            await current_job().log("half")
            return 1

        async with app.worker():
            handle = await count.enqueue()
            await handle.result()
            assert await eventually(handle.progress) == 50
            assert await eventually(handle.logs) == ["half"]

    async def test_the_result_of_a_task_without_annotations_is_kept(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def add_one(x: int):
            return x + 1

        async with app.worker():
            handle = await add_one.enqueue(1)
            assert await handle.result(timeout=40) == 2

    async def test_queues_without_annotated_results_store_none(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def quiet() -> None: ...

        async with app.worker():
            with pytest.raises(ResultNotStored):
                await (await quiet.enqueue()).result()

    async def test_a_result_that_cannot_travel_is_named(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def odd() -> object:
            return object()

        async with app.worker():
            with pytest.raises(ResultNotStored, match="a object, which MessagePack cannot hold"):
                await (await odd.enqueue()).result()

    async def test_an_error_on_which_to_give_up_is_dead_at_once(self, app: App, queue_name: str) -> None:
        runs: list[int] = []

        @app.task(queue=queue_name, attempts=5, give_up_on=(ValueError,))
        async def picky() -> int:
            runs.append(1)
            raise ValueError("never")

        async with app.worker():
            with pytest.raises(JobFailed, match=r"unrecoverable.*ValueError: never"):
                await (await picky.enqueue()).result()
        assert runs == [1]
        (letter,) = await app.queue(queue_name).dlq.page()
        assert (letter.reason, letter.error_type, letter.error) == ("unrecoverable", "ValueError", "never")
        assert letter.traceback is not None
        assert letter.traceback.endswith("ValueError: never\n")
        assert "GivenUp" not in letter.traceback
        await app.queue(queue_name).dlq.purge()

    async def test_a_timeout_on_which_to_give_up_is_dead_at_once(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name, attempts=5, timeout=timedelta(milliseconds=20), give_up_on=(JobTimeout,))
        async def slow() -> int:
            await asyncio.sleep(60)
            return 1

        async with app.worker():
            with pytest.raises(
                JobFailed, match=r"dead after 1 runs \(unrecoverable\): JobTimeout: the run took longer"
            ):
                await (await slow.enqueue()).result()
        await app.queue(queue_name).dlq.purge()

    async def test_a_wish_for_another_run_is_no_error_on_which_to_give_up(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name, give_up_on=(Exception,))
        async def later() -> int:
            if current_job().attempt == 0:
                raise RetryLater(0.001)
            return current_job().attempt

        async with app.worker():
            assert await (await later.enqueue()).result() == 1

    async def test_data_that_cannot_be_encoded_is_named_by_task_parameter_and_path(
        self, app: App, queue_name: str
    ) -> None:
        @app.task(queue=queue_name)
        async def save(rows: object, note: str = "") -> None: ...

        problem = r"^save: rows\[1\]\.size: is an int beyond the 64 bits of MessagePack$"
        with pytest.raises(InvalidArgument, match=problem):
            await save.enqueue([1, {"size": 2**70}])
        with pytest.raises(InvalidArgument, match=problem):
            await app.enqueue_all([save.bind(1), save.bind([1, {"size": 2**70}])])
        with pytest.raises(InvalidArgument, match=r"^save: note: is a str with a lone surrogate"):
            await save.enqueue(1, "\ud800")
        assert (await app.queue(queue_name).counts()).waiting == 0

    async def test_attempts_of_a_task_travel_with_its_jobs(self, app: App, queue_name: str) -> None:
        runs: list[int] = []

        @app.task(queue=queue_name, attempts=2, backoff=timedelta(milliseconds=1))
        def fails() -> int:
            runs.append(current_job().attempt)
            raise LookupError

        async with app.worker():
            with pytest.raises(JobFailed, match="retries_exhausted"):
                await (await fails.enqueue()).result()
        assert runs == [0, 1]
        await app.queue(queue_name).dlq.purge()

    async def test_modules_are_imported_when_a_worker_starts(
        self, redis_url: str, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "chasqui_shop.py").write_text(
            f"from pychasqui import App\napp = App({redis_url!r}, modules=['chasqui_shop_tasks'])\n"
        )
        (tmp_path / "chasqui_shop_tasks.py").write_text(
            f"from chasqui_shop import app\n@app.task(queue={queue_name!r})\nasync def late() -> int:\n    return 7\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        import chasqui_shop  # type: ignore[import-not-found]

        app: App = chasqui_shop.app
        assert not app.tasks
        async with app, app.worker():
            handle: Any = await app.tasks["late"].enqueue()
            assert await handle.result() == 7
        del sys.modules["chasqui_shop"], sys.modules["chasqui_shop_tasks"]

    async def test_a_worker_that_cannot_be_made_ends_its_crew(self, queue_name: str) -> None:
        broken = App("nowhere://", queues={queue_name: {}})
        broken.task(name="a")(lambda: None)
        with pytest.raises(InvalidArgument, match="redis_url"):
            await broken.worker().run()


class TestThreads:
    async def test_a_plain_function_that_outlives_the_deadline_is_not_run_twice_at_once(
        self, redis_url: str, queue_name: str
    ) -> None:
        app = App(redis_url, queues={queue_name: {"shutdown_deadline_s": 0.05, "lease_ms": 600}})
        begun, running, most = threading.Event(), [0], [0]

        @app.task(queue=queue_name)
        def slow() -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            begun.set()
            time.sleep(1.5)
            running[0] -= 1

        async with app:
            await slow.enqueue()
            first = app.worker()
            async with first:
                await asyncio.to_thread(begun.wait, 20)
                second = app.worker()
                async with second:
                    await first.close()
                    await asyncio.sleep(0.2)
            assert (await app.queue(queue_name).counts()).waiting == 0
        assert most == [1]


class TestWhatDoesNotFit:
    async def test_wrong_data_is_dead_with_its_path_and_without_its_values(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def pay(prices: list[int]) -> int:
            return 1

        queue = app.queue(queue_name)
        async with app.worker():
            job = await queue.add("pay", {"prices": [1, "secret"]})
            with pytest.raises(JobFailed):
                await job.wait_for_result()
        (letter,) = await queue.dlq.page()
        assert (letter.reason, letter.error_type) == ("unrecoverable", "InvalidData")
        assert letter.error == "task 'pay': $.prices[1]: Expected `int`, got `str`"
        assert "secret" not in (letter.traceback or "")
        await queue.dlq.purge()

    async def test_a_key_that_no_parameter_has_is_ignored_with_one_warning(
        self, app: App, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(queue=queue_name)
        async def pay(price: int) -> int:
            return price

        caplog.set_level(logging.WARNING, "chasqui.tasks")
        async with app.worker():
            for _ in range(2):
                job = await app.queue(queue_name).add("pay", {"price": 1, "colour": 2})
                assert await job.wait_for_result() == 1
        assert [record.getMessage() for record in caplog.records] == [
            "task 'pay' ignores 'colour': it has no such parameter"
        ]

    async def test_an_upgrade_mends_older_data(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def send(addresses: list[str]) -> int:
            return len(addresses)

        @send.upgrade
        def from_one_address(data: dict[str, Any]) -> dict[str, Any]:
            return {"addresses": [data["to"]]}

        queue = app.queue(queue_name)
        async with app.worker():
            assert await (await queue.add("send", {"to": "ada"})).wait_for_result() == 1
            assert await (await send.enqueue(["a", "b"])).result() == 2
            with pytest.raises(JobFailed, match=r"addresses: is missing; after its upgrade: \$.addresses\[0\]"):
                await (await queue.add("send", {"to": 5})).wait_for_result()
            with pytest.raises(JobFailed, match=r"addresses: is missing; its upgrade raised KeyError"):
                await (await queue.add("send", {})).wait_for_result()
            with pytest.raises(JobFailed) as failed:
                await (await queue.add("send", [["to", "ada"]])).wait_for_result()
            assert "upgrade" not in str(failed.value)
        await queue.dlq.purge()

    async def test_jobs_of_former_names_run(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name, aliases=("mail.send",))
        async def send_mail(to: str) -> str:
            return current_job().name

        async with app.worker():
            job = await app.queue(queue_name).add("mail.send", {"to": "ada"})
            assert await job.wait_for_result() == "mail.send"
            assert await (await send_mail.enqueue("ada")).result() == "send_mail"

    async def test_a_job_of_an_unknown_name_waits_for_a_worker_that_knows_it(
        self, app: App, redis_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch, "LONGEST_PUT_BACK_S", 0.01)

        @app.task(queue=queue_name)
        async def old() -> None: ...

        async with app.worker():
            job = await app.queue(queue_name).add("new", attempts=1)
            await eventually(lambda: is_retrying(app.queue(queue_name), job.id))

        newer = App(redis_url)

        @newer.task(queue=queue_name)
        async def new() -> int:
            return current_job().attempt

        async with newer, newer.worker():
            assert await new.handle(job.id).result() == 0

    async def test_a_job_of_an_unknown_name_says_why_it_is_delayed(self, app: App, queue_name: str) -> None:
        @app.task(queue=queue_name)
        async def old() -> None: ...

        queue = app.queue(queue_name)

        async def is_put_back() -> bool:
            return (await queue.status(job.id)).state == "delayed"

        async with app.worker():
            job = await queue.add("new")
            await eventually(is_put_back)
            status, view = await queue.status(job.id), await queue.get_job(job.id)
        assert status.note == "put back once: the workers that got it have no task of this name"
        assert view is not None
        assert view.error == status.note
        await queue.drain(delayed=True)

    async def test_a_job_of_an_unknown_name_has_all_snoozes_of_its_task_left(
        self, app: App, redis_url: str, queue_name: str, witness: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch, "LONGEST_PUT_BACK_S", 0.05)

        @app.task(queue=queue_name)
        async def old() -> None: ...

        async def is_put_back_often() -> bool:
            return await read_count_of_delayed(witness, queue_name, PUT_BACKS) >= 3

        async with app.worker():
            job = await app.queue(queue_name).add("new")
            await eventually(is_put_back_often)

        newer = App(redis_url)

        @newer.task(queue=queue_name)
        async def new() -> int:
            if current_job().snoozes < 2:
                raise Snooze(0.01, limit=2)
            return current_job().snoozes

        async with newer, newer.worker():
            assert await new.handle(job.id).result() == 2

    async def test_a_job_that_its_task_put_back_often_waits_at_workers_that_do_not_know_it(
        self, app: App, redis_url: str, queue_name: str, witness: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui.errors.UNKNOWN_TASK_LIMIT", 2)
        newer, is_ready = App(redis_url), False

        @newer.task(queue=queue_name)
        async def new() -> int:
            if not is_ready:
                raise Snooze(0.01 if current_job().snoozes < 4 else 1)
            return current_job().snoozes

        @app.task(queue=queue_name)
        async def old() -> None: ...

        async def is_snoozed_often() -> bool:
            return await read_count_of_delayed(witness, queue_name, SNOOZES) >= 5

        async def is_put_back() -> bool:
            return await read_count_of_delayed(witness, queue_name, PUT_BACKS) == 1

        async with newer:
            async with newer.worker():
                handle = await new.enqueue()
                await eventually(is_snoozed_often)
            async with app.worker():
                await eventually(is_put_back)
            is_ready = True
            async with newer.worker():
                assert await handle.result() >= 5

    async def test_a_job_of_a_name_that_stays_unknown_is_dead_in_the_end(
        self, app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch, "LONGEST_PUT_BACK_S", 0)
        monkeypatch.setattr("pychasqui.errors.UNKNOWN_TASK_LIMIT", 3)

        @app.task(queue=queue_name)
        async def send_mail() -> None: ...

        async with app.worker():
            job = await app.queue(queue_name).add("mail.send")
            with pytest.raises(JobFailed):
                await job.wait_for_result()
        (letter,) = await app.queue(queue_name).dlq.page()
        assert (letter.error_type, letter.error) == (
            "UnknownTask",
            "no task 'mail.send' here; did you mean 'send_mail'?",
        )
        await app.queue(queue_name).dlq.purge()


async def is_retrying(queue: Queue, job_id: str) -> bool:
    view = await queue.get_job(job_id)
    return view is not None and view.state == "delayed"


async def read_count_of_delayed(witness: Any, queue_name: str, counter: str) -> int:
    """Reads how often the only delayed job of the queue was put back; 0 while none is delayed."""
    for member in await witness.zrange(f"{{chasqui:{queue_name}}}:delayed", 0, -1):
        return read_put_back_count(decode_envelope(member[4 + int.from_bytes(member[:4], "little") :]).extras, counter)
    return 0


class TestChangesInFlight:
    async def test_jobs_of_two_names_and_two_signatures_are_done_once(self, redis_url: str, queue_name: str) -> None:
        """A deploy: workers of the old and the new code side by side, then producers of both."""
        ran: list[tuple[str, int]] = []
        options: Any = {queue_name: {"concurrency": 100}}
        old, new = App(redis_url, queues=options), App(redis_url, queues=options)

        @old.task(queue=queue_name, name="mail.send")
        async def send(number: int) -> None:
            await asyncio.sleep(0.001)
            ran.append(("old", number))

        @new.task(queue=queue_name, aliases=("mail.send",))
        async def send_mail(order: int, subject: str) -> None:
            await asyncio.sleep(0.001)
            ran.append(("new", order))

        @send_mail.upgrade
        def upgrade(data: dict[str, Any]) -> dict[str, Any]:
            return {"order": data["number"], "subject": "hello"}

        async with old, new, new.worker():
            async with old.worker():
                for start in range(0, 4000, 500):
                    await old.enqueue_all([send.bind(number) for number in range(start, start + 500)])
                await eventually(lambda: len(ran) >= 3000)
            await old.enqueue_all([send.bind(number) for number in range(4000, 4500)])
            await new.enqueue_all([send_mail.bind(number, "hi") for number in range(4500, 5000)])
            await eventually(lambda: len(ran) >= 5000)
            assert await new.queue(queue_name).dlq.count() == 0
        assert sorted(number for _, number in ran) == list(range(5000))
        assert {code for code, number in ran if number < 4000} == {"old", "new"}

    async def test_a_job_that_an_old_worker_has_buried_runs_on_a_new_one_once_it_is_replayed(
        self, redis_url: str, queue_name: str
    ) -> None:
        old, new = App(redis_url), App(redis_url)

        @old.task(queue=queue_name, name="send")
        async def send_to_one(to: str) -> str:
            if to == "nobody":
                raise UnrecoverableError("there is no such address")
            return to

        @new.task(queue=queue_name)
        async def send(addresses: list[str]) -> int:
            return len(addresses)

        async with old, new:
            sent = await send.enqueue(["ada", "bo"])
            failed = await send_to_one.enqueue("nobody")
            async with old.worker():
                for handle in (sent, failed):
                    with pytest.raises(JobFailed):
                        await handle.result()
            letters = new.queue(queue_name).dlq
            async with new.worker():
                assert await letters.replay(error_type="InvalidData") == 1
                assert await sent.result() == 2
            assert [letter.error_type for letter in await letters.page()] == ["UnrecoverableError"]
            await letters.purge()


JOBS = 100


async def count_commands(proxy: Proxy, act: Callable[[], Awaitable[object]]) -> Counter[str]:
    proxy.requests.clear()
    await act()
    return Counter(request.split(b"\r\n", 3)[2].decode().upper() for request in proxy.requests)


def assert_no_command_a_job_more(by_layer: Counter[str], without: Counter[str]) -> None:
    """Those that a clock sends, such as renewals, are a few; one for each job would be a hundred."""
    more = by_layer - without
    assert more.total() < JOBS / 4, more


async def test_a_run_takes_no_command_that_a_run_of_a_handler_does_not_take(
    proxy: Proxy, witness: redis.asyncio.Redis, queue_name: str
) -> None:
    app, stream = App(proxy.url), Keys(queue_name).stream

    @app.task(queue=queue_name)
    async def work(number: int) -> int:
        return number

    async def handle(job: Job) -> int:
        number: int = job.data["number"]
        return number

    async def run_jobs(worker: Worker | Crew) -> Counter[str]:
        queue = app.queue(queue_name)
        async with worker:
            await (await queue.add("work", {"number": -1})).wait_for_result()

            async def run() -> None:
                for number in range(JOBS):  # one by one: jobs that share their commands would hide one more
                    await queue.add("work", {"number": number})
                    while await witness.xlen(stream):  # a wait for the result would look it up now and then
                        await asyncio.sleep(0)

            return await count_commands(proxy, run)

    async with app:
        by_handler = await run_jobs(Worker(queue_name, handle, redis_url=proxy.url, store_results=True))
        by_task = await run_jobs(app.worker())
    assert by_handler.total() >= 3 * JOBS
    assert_no_command_a_job_more(by_task, by_handler)


async def test_an_enqueue_takes_no_command_that_an_add_does_not_take(proxy: Proxy, queue_name: str) -> None:
    app = App(proxy.url)

    @app.task(queue=queue_name)
    async def work(number: int) -> None: ...

    async def add() -> None:
        for number in range(JOBS):
            await app.queue(queue_name).add("work", {"number": number})

    async def enqueue() -> None:
        for number in range(JOBS):
            await work.enqueue(number)

    async with app:
        await work.enqueue(-1)
        by_add = await count_commands(proxy, add)
        by_enqueue = await count_commands(proxy, enqueue)
        in_bulk = await count_commands(proxy, lambda: app.enqueue_all([work.bind(number) for number in range(JOBS)]))
        await app.queue(queue_name).purge("waiting")
    assert by_add.total() >= JOBS
    assert_no_command_a_job_more(by_enqueue, by_add)
    assert in_bulk.total() < JOBS / 4, in_bulk
