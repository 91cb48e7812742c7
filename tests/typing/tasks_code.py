"""A user's program of tasks for the type checkers. A line with `type: ignore` is wrong, and a checker must say so."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedCoroutine=false, reportUnusedExpression=false
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, assert_type

from pychasqui import App, BoundTask, Depends, Job, JobHandle, SyncQueue, Task, current_job

app = App("embedded://", queues={"mail": {"concurrency": 20, "result_ttl_ms": 5000}})


@app.task(queue="mail", attempts=5, timeout=timedelta(minutes=5))
async def send_mail(to: str, subject: str = "hello") -> int:
    assert current_job().name
    return len(subject)


@app.task
def shrink(number: int, /, *, factor: float = 2.0) -> str:
    return str(number * factor)


@app.task(name="nothing")
async def nothing() -> None: ...


@app.task
async def returns_any(number: int) -> Any: ...


@app.task
def returns_object(number: int) -> object: ...


@send_mail.upgrade
def upgraded(data: dict[str, object]) -> dict[str, object]:
    return data


@app.lifespan
async def state() -> AsyncIterator[float]:
    yield 1.5


async def session(state: float = Depends(state)) -> AsyncIterator[str]:
    yield str(state)


@app.middleware
async def around(job: Job, call: Callable[[], Awaitable[object]]) -> object:
    return await call()


@app.every(timedelta(hours=1), data={"order": 5})
@app.cron("0 3 * * *", tz="Europe/Berlin")
@app.task
async def charge(order: int, session: str = Depends(session), job: Job = Depends(current_job)) -> int:
    return order


def takes_any(task: Task[..., object]) -> None:
    assert task.name


def takes_one(task: Task[[int], int]) -> None:
    assert task.name


async def right() -> None:
    assert_type(await send_mail.enqueue("a"), JobHandle[int])
    assert_type(await send_mail.enqueue(to="a", subject="b"), JobHandle[int])
    handle = await send_mail.enqueue("a")
    assert_type(await handle.result(), int)
    assert_type(await handle.cancel(), Literal["removed", "stopping", "unknown"])
    await send_mail.with_options(timeout=timedelta(seconds=5), expires_in=timedelta(hours=1)).enqueue("a")
    assert_type(await send_mail("a"), int)
    assert_type(shrink(3), str)
    assert_type(shrink(3, factor=1.5), str)
    assert_type(await (await shrink.enqueue(3)).result(timeout=5), str)
    later = send_mail.with_options(delay=timedelta(hours=1), job_id="w-1")
    assert_type(await later.enqueue("a"), JobHandle[int])
    assert_type(await app.enqueue_all([send_mail.bind("a"), send_mail.bind("b")]), list[JobHandle[int]])
    assert_type(send_mail.bind("a"), BoundTask[int])
    assert len(await app.enqueue_all([send_mail.bind("bo"), shrink.bind(3)])) == 2
    shrunk = await shrink.enqueue(3)
    assert_type(await asyncio.gather(handle.result(), shrunk.result()), tuple[int, str])
    assert_type(send_mail.handle("id"), JobHandle[int])
    tasks: Mapping[str, Task[..., object]] = app.tasks
    assert tasks
    takes_any(send_mail)
    takes_any(shrink)
    wide: JobHandle[object] = handle
    assert_type(await charge.enqueue(5), JobHandle[int])
    assert_type(await charge(5, session="fake"), int)
    await charge.enqueue(5, session="refused when it runs")  # a dependency is a parameter like others to a checker
    await returns_any.enqueue(3)
    assert_type(await (await returns_object.enqueue(3)).result(), object)
    assert_type(returns_object(3), object)
    assert wide.id
    async with app, app.worker(["mail"]) as crew:
        assert crew.queue_names


def synchronous() -> None:
    assert_type(send_mail.sync.enqueue("a").result(), int)
    assert_type(shrink.with_options(attempts=3).sync.enqueue(3, factor=1.0).result(), str)
    assert_type([handle.result() for handle in app.sync.enqueue_all([send_mail.bind("a")])], list[int])
    with SyncQueue("mail", timeout_s=3) as queue:
        assert_type(queue.add("x", {"a": 1}, attempts=3), Job)
        assert_type(queue.cancel_delayed("id"), bool)
        assert_type(queue.cancel("id"), Literal["removed", "stopping", "unknown"])
        assert_type(send_mail.sync.enqueue("a").cancel(), Literal["removed", "stopping", "unknown"])
        assert_type(queue.dlq.count(reason="unrecoverable"), int)
        assert_type(app.sync.queue("mail").is_paused(), bool)


def wrong_synchronous(queue: SyncQueue) -> None:
    send_mail.sync.enqueue(1)  # type: ignore
    send_mail.sync.enqueue()  # type: ignore
    queue.add()  # type: ignore
    queue.add("x", attemps=3)  # type: ignore
    app.sync.queue("mail").add()  # type: ignore
    app.sync.queue("mail").add("x", attemps=3)  # type: ignore
    send_mail.with_options(attempts=3).sync.enqueue(1)  # type: ignore
    send_mail.sync.enqueue("a").result() + "b"  # type: ignore
    SyncQueue("mail", tmeout_s=3)  # type: ignore


def gives_float() -> float:
    return 1.5


def wrong_dependency(value: str = Depends(gives_float)) -> None: ...  # type: ignore


def plain() -> None: ...


async def wrong() -> None:
    app.every(timedelta(1))(plain)  # type: ignore
    app.every(5)  # type: ignore
    app.cron("0 3 * * *")(plain)  # type: ignore
    app.middleware(plain)  # type: ignore
    app.lifespan(plain)  # type: ignore
    await send_mail.enqueue()  # type: ignore
    await send_mail.enqueue(1)  # type: ignore
    await send_mail.enqueue("a", sbject="b")  # type: ignore
    await send_mail.enqueue("a", "b", "c")  # type: ignore
    await send_mail.enqueue("a", subject=None)  # type: ignore
    await shrink.enqueue(3, 2.0)  # type: ignore
    await shrink.enqueue(number=3)  # type: ignore
    await shrink(3)  # type: ignore
    send_mail("a") + 1  # type: ignore
    send_mail.with_options(dely=timedelta(1))  # type: ignore
    send_mail.with_options(delay=5)  # type: ignore
    await send_mail.with_options(attempts=3).enqueue(1)  # type: ignore
    await send_mail.with_options(delay=timedelta(hours=1)).enqueue("a", sbject="b")  # type: ignore
    send_mail.bind(1)  # type: ignore
    app.task(queu="x")  # type: ignore
    app.task(attempts="5")  # type: ignore
    takes_one(send_mail)  # type: ignore
    narrow: JobHandle[int] = await shrink.enqueue(3)  # type: ignore
    assert narrow
    await returns_any.enqueue("3")  # type: ignore
    await returns_object.enqueue("3")  # type: ignore
    returns_object(3) + 1  # type: ignore
    App(queues={"mail": {"concurency": 5}})  # type: ignore
    App(queues={"mail": {"concurrency": "5"}})  # type: ignore
    await app.enqueue_all([send_mail])  # type: ignore
    send_mail.upgrade(5)  # type: ignore
