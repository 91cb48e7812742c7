"""A task with one generator has a way of its own, which is faster. It does what the way of all others does."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from pychasqui import App, Depends, InvalidArgument, InvalidType, Job, RetryLater
from pychasqui._tasks.injection import InjectionPlan
from pychasqui.testing import inline

said: list[str] = []


async def session() -> AsyncIterator[str]:
    said.append("open")
    try:
        yield "session"
    except LookupError:
        said.append("roll back")  # and hides the error, or tries to
    else:
        said.append("commit")


def plain_session() -> Iterator[str]:
    said.append("open")
    try:
        yield "session"
    except LookupError:
        said.append("roll back")
    else:
        said.append("commit")


async def fails_behind() -> AsyncIterator[str]:
    yield "session"
    raise OSError("the commit failed")


async def yields_twice() -> AsyncIterator[str]:
    yield "session"
    yield "again"


async def yields_nothing() -> AsyncIterator[str]:
    if said:
        yield "session"


def plainly_yields_nothing() -> Iterator[str]:
    if said:
        yield "session"


async def other() -> int:
    return 1


def missing() -> str:
    raise KeyError("missing")


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()


@pytest.fixture(params=("one generator", "two dependencies"))
def make_app(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], App]:
    def make(provider: Callable[..., Any]) -> App:
        app = App("redis://no-server.invalid")
        if request.param == "one generator":

            async def work(number: int, session: str = Depends(provider)) -> str:
                return f"{10 // number} {session}" if number else missing()

            assert InjectionPlan("work", work, {}).single_generator
            app.task(attempts=1)(work)
        else:

            async def work_with_both(number: int, session: str = Depends(provider), one: int = Depends(other)) -> str:
                return f"{10 // number} {session}" if number else missing()

            assert not InjectionPlan("work", work_with_both, {}).single_generator
            app.task(attempts=1, name="work")(work_with_both)

        @app.tasks["work"].upgrade
        def upgrade(data: dict[str, Any]) -> dict[str, Any]:
            return {"number": len(data["text"])}

        return app

    return make


@pytest.mark.parametrize("provider", (session, plain_session))
async def test_a_dependency_is_ended_behind_the_run(
    make_app: Callable[[Callable[..., Any]], App], provider: Callable[..., Any]
) -> None:
    app = make_app(provider)
    with inline(app) as jobs:
        handle: Any = await app.tasks["work"].enqueue(5)
        await jobs.run()
        assert (await handle.result(), said) == ("2 session", ["open", "commit"])
        older = await app.queue("default").add("work", {"text": "xx", "unknown": 1})
        await jobs.run()
        assert await app.tasks["work"].handle(older.id).result() == "5 session"


@pytest.mark.parametrize("provider", (session, plain_session))
async def test_a_dependency_sees_the_error_and_cannot_hide_it(
    make_app: Callable[[Callable[..., Any]], App], provider: Callable[..., Any]
) -> None:
    app = make_app(provider)
    with inline(app) as jobs:
        await app.tasks["work"].enqueue(0)
        with pytest.raises(KeyError):
            await jobs.run()
        assert (said, len(jobs.dead)) == (["open", "roll back"], 1)


@pytest.mark.parametrize(
    ("provider", "text"), ((fails_behind, "the commit failed"), (yields_twice, "yields_twice yields more than once"))
)
async def test_a_dependency_that_fails_behind_the_run_fails_it(
    make_app: Callable[[Callable[..., Any]], App], provider: Callable[..., Any], text: str
) -> None:
    app = make_app(provider)
    with inline(app) as jobs:
        await app.tasks["work"].enqueue(5)
        with pytest.raises((OSError, RuntimeError), match=text):
            await jobs.run()
        assert len(jobs.dead) == 1


@pytest.mark.parametrize("provider", (yields_nothing, plainly_yields_nothing))
async def test_a_dependency_that_yields_nothing_is_named(
    make_app: Callable[[Callable[..., Any]], App], provider: Callable[..., Any]
) -> None:
    app = make_app(provider)
    with inline(app) as jobs:
        await app.tasks["work"].enqueue(5)
        with pytest.raises(RuntimeError, match=f"the dependency {provider.__name__} has ended without a yield"):
            await jobs.run()


async def test_a_lifespan_that_yields_nothing_is_named() -> None:
    app = App("redis://no-server.invalid")
    app.lifespan(yields_nothing)
    with inline(app) as jobs, pytest.raises(RuntimeError, match="yields_nothing has ended without a yield"):
        await jobs.run()


async def test_a_middleware_that_does_not_await_the_call_fails_the_job() -> None:
    app = App("redis://no-server.invalid")

    @app.middleware
    async def forgets(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        return call()

    @app.task(attempts=2)
    async def work() -> None: ...

    with inline(app) as jobs:
        await work.enqueue()
        with pytest.raises(TypeError, match="the middleware forgets returned what it did not await: `return await"):
            await jobs.run()
        assert [job.state for job in jobs.all] == ["waiting"]


async def test_a_middleware_that_gives_the_call_an_argument_fails_with_what_it_takes() -> None:
    app = App()

    @app.middleware
    async def starlette(job: Job, call_next: Callable[..., Awaitable[object]]) -> object:
        return await call_next(job)

    @app.task
    async def work() -> None: ...

    with inline(app) as jobs:
        await work.enqueue()
        with pytest.raises(TypeError, match=r"call\(\) takes 0 positional arguments"):
            await jobs.run()


async def test_a_coroutine_that_a_task_returns_without_awaiting_it_fails_the_job() -> None:
    app = App()

    @app.task(attempts=1)
    async def charge() -> int:
        said.append("charged")
        return 1

    @app.task(attempts=1)
    async def work() -> Any:
        return charge()

    with inline(app) as jobs:
        await work.enqueue()
        with pytest.raises(TypeError, match=r"returned CoroutineTask.__call__\(\) without awaiting it: `return await"):
            await jobs.run()
        assert [job.state for job in jobs.all] == ["dead"]


async def test_a_retry_that_a_task_returns_instead_of_raising_it_fails_the_job() -> None:
    app = App()

    @app.task(attempts=1)
    async def work() -> object:
        return RetryLater(5)

    with inline(app) as jobs:
        await work.enqueue()
        with pytest.raises(TypeError, match=r"returned RetryLater: `raise RetryLater\(...\)` has an effect"):
            await jobs.run()


async def test_two_parameters_share_a_bound_method_as_their_provider() -> None:
    class Pool:
        async def session(self) -> AsyncIterator[str]:
            said.append("open")
            yield "session"

    app, pool = App("redis://no-server.invalid"), Pool()

    async def orders(session: str = Depends(pool.session)) -> str:
        return f"orders of {session}"

    @app.task
    async def work(orders: str = Depends(orders), session: str = Depends(pool.session)) -> str:
        return f"{orders}, {session}"

    with inline(app) as jobs:
        handle = await work.enqueue()
        await jobs.run()
        assert (await handle.result(), said) == ("orders of session, session", ["open"])


def test_a_provider_that_needs_itself_is_refused() -> None:
    def first(value: int = 0) -> int:
        return value

    def second(value: int = Depends(first)) -> int:
        return value

    first.__defaults__ = (Depends(second),)

    async def work(value: int = Depends(second)) -> None: ...

    with pytest.raises(InvalidArgument, match="task work: second depends on itself"):
        InjectionPlan("task work", work, {})


def test_a_provider_without_a_hash_is_refused_with_the_reason() -> None:
    class Provider:
        def __eq__(self, other: object) -> bool:
            return True

        def __call__(self) -> int:
            return 1

    async def work(value: int = Depends(Provider())) -> None: ...

    with pytest.raises(InvalidArgument, match="task work: the provider of class Provider is not hashable: give"):
        InjectionPlan("task work", work, {})


def test_a_provider_with_a_depends_of_fastapi_is_refused_with_the_remedy() -> None:
    foreign = type("Depends", (), {"__module__": "fastapi.params"})()

    def repository(session: object = foreign) -> object:
        return session

    def charge(order: int, repository: object = Depends(repository)) -> None: ...

    with pytest.raises(InvalidArgument, match=r"session of repository is a Depends of fastapi\.params: import Depends"):
        InjectionPlan("task 'charge'", charge, {})


def test_a_dependency_that_a_caller_has_not_passed_is_named_at_its_first_use() -> None:
    prices: Any = Depends(other)
    uses: tuple[Callable[[], object], ...] = (
        lambda: prices["a"],
        lambda: list(prices),
        lambda: len(prices),
        lambda: bool(prices),
        lambda: prices(),
        lambda: prices.execute,
        lambda: prices.__enter__(),
    )
    for use in uses:
        with pytest.raises((TypeError, AttributeError), match="other is injected by a worker: pass it where you call"):
            use()
    assert repr(copy.deepcopy(prices)) == "Depends(other)"
    with pytest.raises(InvalidType, match="takes a function, not Injected"):
        Depends(prices)
