"""Lifespans, dependencies, middlewares and schedules of an app, with and without a server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from pychasqui import (
    App,
    DecodeError,
    Depends,
    InvalidArgument,
    InvalidType,
    Job,
    MissedFiresPolicy,
    PayloadTooLarge,
    Queue,
    RepeatPattern,
    current_job,
)
from pychasqui.testing import inline
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)


def make_app(redis_url: str, queue_name: str, said: list[Any]) -> App:
    """An app with one of everything."""
    app = App(redis_url)

    @app.lifespan
    async def state() -> AsyncIterator[str]:
        said.append("begin")
        yield "state"
        said.append("end")

    async def session(state: str = Depends(state)) -> AsyncIterator[str]:
        said.append("open")
        try:
            yield f"session of {state}"
        except LookupError:
            said.append("roll back")
            raise
        else:
            said.append("commit")

    def tag(session: str = Depends(session), job: Job = Depends(current_job)) -> str:
        return f"{job.name} in {session}"

    @app.middleware
    async def outer(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        said.append("outer")
        return f"<{await call()}>"

    @app.middleware
    async def inner(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        said.append("inner")
        return await call()

    @app.task(queue=queue_name, attempts=1)
    async def work(number: int, tag: str = Depends(tag), session: str = Depends(session)) -> str:
        if number < 0:
            raise LookupError
        return f"{number} {tag}"

    @app.task(queue=queue_name)
    def plain(number: int, *, state: str = Depends(state)) -> str:
        return f"{number} {state}"

    return app


class TestSurroundings:
    async def test_a_run_has_its_dependencies_inside_the_middlewares_inside_the_lifespan(
        self, redis_url: str, queue_name: str
    ) -> None:
        said: list[Any] = []
        app = make_app(redis_url, queue_name, said)
        async with app, app.worker():
            handle: Any = await app.tasks["work"].enqueue(3)
            assert await handle.result() == "<3 work in session of state>"
            plain: Any = await app.tasks["plain"].enqueue(4)
            assert await plain.result() == "<4 state>"
        assert said == ["begin", "outer", "inner", "open", "commit", "outer", "inner", "end"]

    async def test_a_failed_run_is_seen_by_its_dependencies(self, queue_name: str) -> None:
        said: list[Any] = []
        app = make_app("redis://no-server.invalid", queue_name, said)
        with inline(app) as jobs:
            await app.tasks["work"].enqueue(-1)
            with pytest.raises(LookupError):
                await jobs.run()
            assert len(jobs.dead) == 1
        assert said == ["begin", "outer", "inner", "open", "roll back", "end"]

    async def test_every_kind_of_provider_gives_its_value_and_is_ended_once(self) -> None:
        app, said = App("redis://no-server.invalid"), list[str]()

        def function() -> str:
            return "function"

        async def coroutine() -> str:
            return "coroutine"

        def generator() -> Iterator[str]:
            yield "generator"
            said.append("generator")

        @asynccontextmanager
        async def async_manager() -> AsyncIterator[str]:
            yield "async manager"
            said.append("async manager")

        @contextmanager
        def manager() -> Iterator[str]:
            yield "manager"
            said.append("manager")

        @app.task
        async def gather(
            a: str = Depends(function),
            b: str = Depends(coroutine),
            c: str = Depends(generator),
            d: str = Depends(async_manager),
            e: str = Depends(manager),
        ) -> list[str]:
            return [a, b, c, d, e]

        with inline(app) as jobs:
            handle = await gather.enqueue()
            await jobs.run()
            assert await handle.result() == ["function", "coroutine", "generator", "async manager", "manager"]
        assert said == ["manager", "async manager", "generator"]

    async def test_a_dependency_is_passed_in_a_direct_call_and_cannot_be_sent(self, queue_name: str) -> None:
        app = App("redis://no-server.invalid")

        def session() -> list[int]:
            return []

        @app.task
        async def charge(order: int, session: list[int] = Depends(session)) -> int:
            session.append(order)
            return len(session)

        assert await charge(17, session=[1]) == 2
        with pytest.raises(AttributeError, match="session is injected by a worker: pass it"):
            await charge(17)
        with pytest.raises(InvalidArgument, match="charge: session: is injected by a worker"):
            charge.bind(17, session=[])
        assert charge.bind(17).data == {"order": 17}

    async def test_wrong_declarations_are_refused_without_a_server(self) -> None:
        app = App("redis://no-server.invalid")

        def needs_more(value: int) -> int:
            return value

        @app.task
        async def broken(value: int = Depends(needs_more)) -> None: ...

        with pytest.raises(InvalidArgument, match="value of needs_more has no default"):
            await app.worker().run()
        with pytest.raises(InvalidType, match=r"Depends\(\) takes a function"):
            Depends(5)  # type: ignore[call-overload]
        with pytest.raises(InvalidType, match="async def that yields once"):
            app.lifespan(lambda: None)  # type: ignore[type-var]
        with pytest.raises(InvalidType, match="middleware is an async def"):
            app.middleware(lambda job, call: None)  # type: ignore[type-var]


class TestSchedules:
    async def test_schedules_fire_by_the_clock_of_a_test(self) -> None:
        app = App("redis://no-server.invalid")

        @app.every(HOUR, data={"kind": "hourly"})
        @app.cron("0 3 * * *", tz="Europe/Berlin")
        @app.task
        def clean_up(kind: str = "nightly") -> str:
            return kind

        with inline(app) as jobs:
            await jobs.run()
            assert jobs.all == []
            await jobs.advance(timedelta(days=1))
            kinds = [job.result for job in jobs.all]
        assert (kinds.count("hourly"), kinds.count("nightly")) == (24, 1)

    async def test_a_start_stores_what_is_declared_and_removes_the_rest(
        self, redis_url: str, queue_name: str, queue: Queue, caplog: pytest.LogCaptureFixture
    ) -> None:
        def declare(*spans: timedelta, attempts: int | None = None) -> App:
            app = App(redis_url, name="shop")

            @app.task(queue=queue_name, attempts=attempts)
            async def beat(number: int) -> None: ...

            for span in spans:
                app.every(span, data={"number": 1}, missed_fires=MissedFiresPolicy.fire_once())(beat)
            return app

        async def keys() -> set[str]:
            return {meta.key for meta in await queue.repeatables.page()}

        caplog.set_level(logging.INFO, "chasqui.app")
        await queue.repeatables.upsert("other", repeat=RepeatPattern.every(HOUR), key="somebody else's")
        async with declare(HOUR, 2 * HOUR).worker():
            assert await keys() == {"somebody else's", "shop/beat/every 3600000", "shop/beat/every 7200000"}
        await queue.repeatables.pause("shop/beat/every 3600000")
        caplog.clear()
        async with declare(HOUR, 3 * HOUR).worker():
            assert await keys() == {"somebody else's", "shop/beat/every 3600000", "shop/beat/every 10800000"}
            kept = await queue.repeatables.get("shop/beat/every 3600000")
            assert kept is not None
            assert kept.meta.is_paused
        assert [record.getMessage() for record in caplog.records if record.name == "chasqui.app"] == [
            f"schedule 'shop/beat/every 7200000' of queue {queue_name} is declared no longer, and removed",
            f"schedule 'shop/beat/every 10800000' of queue {queue_name} is new",
        ]
        async with declare(HOUR, attempts=7).worker():
            changed = await queue.repeatables.get("shop/beat/every 3600000")
            assert changed is not None
            assert changed.retry is not None
            assert changed.retry.max_attempts == 7
        await queue.obliterate()

    async def test_an_unchanged_start_writes_nothing(
        self, redis_url: str, queue_name: str, witness: redis.asyncio.Redis
    ) -> None:
        app = App(redis_url)

        @app.every(HOUR)
        @app.task(queue=queue_name)
        async def beat() -> None: ...

        async with app.worker():
            pass
        before = await witness.hgetall(f"{{chasqui:{queue_name}}}:repeat:spec:app/beat/every 3600000")
        async with app.worker():
            assert await witness.hgetall(f"{{chasqui:{queue_name}}}:repeat:spec:app/beat/every 3600000") == before
        async with app:
            await app.queue(queue_name).obliterate()

    async def test_a_schedule_that_cannot_be_read_is_stored_again(
        self, redis_url: str, queue_name: str, queue: Queue, witness: redis.asyncio.Redis
    ) -> None:
        app = App(redis_url)

        @app.every(HOUR)
        @app.task(queue=queue_name)
        async def beat() -> None: ...

        async with app.worker():
            pass
        spec_key = f"{{chasqui:{queue_name}}}:repeat:spec:app/beat/every 3600000"
        spec = await witness.hget(spec_key, "spec")
        await witness.hset(spec_key, "retry", hashlib.sha1(spec).hexdigest().encode() + b"\xc1")
        with pytest.raises(DecodeError):
            await queue.repeatables.get("app/beat/every 3600000")
        async with app.worker():
            assert await queue.repeatables.get("app/beat/every 3600000") is not None
        await queue.obliterate()

    async def test_a_value_that_equals_another_of_another_type_is_stored(
        self, redis_url: str, queue_name: str, queue: Queue
    ) -> None:
        def declare(value: object) -> App:
            app = App(redis_url)

            @app.every(HOUR, data={"value": value})
            @app.task(queue=queue_name)
            async def beat(value: object) -> None: ...

            return app

        for value in (1, True, 1.0):
            async with declare(value).worker():
                stored = await queue.repeatables.get("app/beat/every 3600000")
                assert stored is not None
                assert type(stored.data["value"]) is type(value)
        await queue.obliterate()

    async def test_a_schedule_is_fired_by_a_worker(self, redis_url: str, queue_name: str) -> None:
        app, ran = App(redis_url), list[int]()

        @app.every(timedelta(milliseconds=50), data={"number": 5})
        @app.task(queue=queue_name)
        async def beat(number: int) -> None:
            ran.append(number)

        async with app, app.worker():
            await eventually(lambda: ran)
        assert ran[0] == 5
        async with app:
            await app.queue(queue_name).obliterate()

    async def test_a_schedule_gives_its_jobs_the_attempts_of_the_task_in_a_test(self) -> None:
        app = App("redis://no-server.invalid")

        @app.every(HOUR)
        @app.task(attempts=2, backoff=timedelta(seconds=1))
        async def beat() -> None:
            raise LookupError

        with inline(app) as jobs:
            await jobs.advance(HOUR + timedelta(minutes=1))
            (dead,) = jobs.dead
            assert (dead.reason, jobs.all[0].attempt) == ("retries_exhausted", 1)

    async def test_a_start_warns_of_options_that_a_schedule_does_not_have(
        self, redis_url: str, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = App(redis_url)

        @app.every(HOUR, data={"number": 1})
        @app.task(queue=queue_name, attempts=3, expires_in=HOUR, unique_by=("number",), if_exists="replace")
        async def beat(number: int) -> None: ...

        @app.every(HOUR)
        @app.task(queue=queue_name, attempts=3, backoff=HOUR, timeout=HOUR)
        async def carry() -> None: ...

        async with app:
            async with app.worker():
                pass
            await app.queue(queue_name).obliterate()
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            "schedule 'app/beat/every 3600000': its jobs do not have unique_by, expires_in, if_exists of task 'beat', "
            "which only enqueued jobs have"
        ]

    async def test_an_error_that_ends_the_storing_of_schedules_behind_the_start_is_logged(
        self, proxy: Proxy, queue_name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui._tasks.crew_plan.RECONCILE_AGAIN_S", 0.05)
        app = App(proxy.url, defaults={"timeout_s": 0.5})

        @app.every(HOUR, data={"text": "x" * 2_000_000})
        @app.task(queue=queue_name)
        async def beat(text: str) -> None: ...

        proxy.refuse()
        running = asyncio.create_task(app.worker().run())
        await eventually(lambda: f"the schedules of {queue_name} cannot be stored, the next attempt" in caplog.text)
        proxy.admit()
        await eventually(lambda: "nothing tries again before the next start" in caplog.text)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert record.exc_info[0] is PayloadTooLarge

    async def test_a_queue_whose_schedules_cannot_be_stored_holds_up_no_other(
        self, redis_url: str, queue_name: str, witness: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pychasqui._tasks.crew_plan.RECONCILE_AGAIN_S", 0.05)
        app, broken = App(redis_url), f"{queue_name}-a"

        @app.every(HOUR)
        @app.task(queue=broken)
        async def first() -> None: ...

        @app.every(HOUR)
        @app.task(queue=f"{queue_name}-b")
        async def second() -> None: ...

        async def list_names(name: str) -> list[str]:
            return [meta.job_name for meta in await app.queue(name).get_repeatable_jobs()]

        await witness.set(f"{{chasqui:{broken}}}:repeat", "no set")
        async with app, app.worker():
            assert await list_names(f"{queue_name}-b") == ["second"]
            await witness.delete(f"{{chasqui:{broken}}}:repeat")
            await eventually(lambda: list_names(broken))
            for name in (broken, f"{queue_name}-b"):
                await app.queue(name).obliterate()

    async def test_wrong_schedules_are_refused(self, queue_name: str) -> None:
        app = App("redis://no-server.invalid")

        @app.every(HOUR, data={"number": "x"})
        @app.task(queue=queue_name)
        async def beat(number: int) -> None: ...

        with pytest.raises(InvalidArgument, match="the schedule 'app/beat/every 3600000': beat: number"):
            await app.worker().run()
        with pytest.raises(InvalidArgument, match="two schedules have the key"):
            app.every(HOUR)(beat)
        with pytest.raises(InvalidType, match="a timedelta"):
            app.every(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidType, match=r"stands above @app.task"):
            app.every(HOUR)(lambda: None)  # type: ignore[type-var]
