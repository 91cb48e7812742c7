"""Tasks are functions with names and options; what is wrong with them is said where they are written."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field, fields, make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from pychasqui import App, BackoffSpec, Closed, InvalidArgument, InvalidType, UnknownTask, current_job
from pychasqui._producer.config import QueueConfig
from pychasqui._tasks.app_options import BOTH, QUEUE_ONLY, QueueOptions
from pychasqui._tasks.dispatch import make_unknown_task_error
from pychasqui._worker.config import WorkerConfig


@pytest.fixture
def app() -> App:
    return App("redis://127.0.0.1:1")


class TestCalls:
    async def test_a_task_is_called_as_its_function(self, app: App) -> None:
        @app.task
        async def double(number: int) -> int:
            """Doubles it."""
            return 2 * number

        @app.task(queue="maths")
        def half(number: int) -> float:
            return number / 2

        assert await double(4) == 8
        assert half(4) == 2
        assert (double.name, double.queue_name, double.__doc__) == ("double", "default", "Doubles it.")
        assert (half.name, half.queue_name) == ("half", "maths")
        assert list(app.tasks) == ["double", "half"]
        assert repr(half) == "<task 'half' of queue 'maths'>"

    def test_a_bound_task_is_a_value(self, app: App) -> None:
        @app.task
        def greet(name: str, times: int = 1) -> None: ...

        assert greet.bind("ada") == greet.bind(name="ada")
        assert greet.bind("ada") != greet.bind("bo")
        assert greet.bind("ada") != greet.with_options(delay=timedelta(hours=1)).bind("ada")
        assert greet.bind("ada") != "ada"
        assert len({greet.bind("ada"), greet.bind("ada")}) == 1
        assert greet.bind_data({"name": "ada"}) == greet.bind("ada")
        assert repr(greet.bind("ada", times=2)) == "<greet(name='ada', times=2) on 'default'>"

    def test_a_bound_task_whose_options_are_changed_changes_no_other_call(self, app: App) -> None:
        @app.task
        def greet(name: str) -> None: ...

        later = greet.with_options(delay=timedelta(hours=1))
        for sender, options in ((greet, {}), (later, {"delay": timedelta(hours=1)})):
            sender.bind("ada").options["attempts"] = 5
            greet.bind_data({"name": "ada"}).options["attempts"] = 5
            assert sender.bind("ada").options == options

    def test_a_name_of_another_queue_leads_to_enqueue(self, app: App) -> None:
        @app.task
        async def greet(name: str) -> None: ...

        for name in ("delay", "apply_async", "send", "kiq"):
            with pytest.raises(AttributeError, match=rf"no {name}\(\): greet\.sync\.enqueue\(\.\.\.\) sends it"):
                getattr(greet.with_options(attempts=1), name)
        with pytest.raises(AttributeError, match=r"a task has no si; instead: bind\(...\) is a call as a value"):
            greet.si("ada")  # type: ignore[attr-defined]
        assert not hasattr(greet, "elsewhere")

    async def test_a_name_of_another_queue_at_a_handle_or_an_app_leads_to_its_own(self, app: App) -> None:
        @app.task
        async def greet(name: str) -> None: ...

        for handle in (greet.handle("x"), greet.sync.handle("x")):
            for name, own in (("get", "result"), ("ready", "status"), ("revoke", "cancel"), ("task_id", "id")):
                with pytest.raises(AttributeError, match=rf"JobHandle has no {name}; instead: .*{own}"):
                    getattr(handle, name)
            assert not hasattr(handle, "elsewhere")
        for name, own in (("send_task", "add"), ("autodiscover_tasks", "modules"), ("add_periodic_task", "cron")):
            with pytest.raises(AttributeError, match=rf"App has no {name}; instead: .*{own}"):
                getattr(app, name)
        assert not hasattr(app, "elsewhere")

    def test_data_is_bound_as_it_travels_or_refused(self, app: App) -> None:
        @app.task(attempts=3, unique_by=("day",))
        async def report(day: date, /, *, pages: int = 1) -> None: ...

        bound = report.bind_data({"day": "2026-01-31"})
        assert bound.options == {"attempts": 3, "job_id": 'report(day="2026-01-31")'}
        assert bound == report.bind(date(2026, 1, 31))
        for data, problem in (
            ({"day": 5}, r"task 'report': \$\.day"),
            (None, "missing"),
            ([1], "task 'report'"),
            (
                {"day": "2026-01-31", "page": 2},
                r"has no parameter 'page'; did you mean 'pages'\? Its parameters are",
            ),
        ):
            with pytest.raises(InvalidArgument, match=problem):
                report.bind_data(data)  # type: ignore[arg-type]

    def test_a_partial_and_an_object_that_can_be_called_are_tasks_with_a_name(self, app: App) -> None:
        def send(subject: str, to: date) -> None: ...

        class Sender:
            def __call__(self, to: date) -> None: ...

        functions: list[Any] = [partial(send, "secret"), partial(partial(send, "secret")), Sender()]
        for number, function in enumerate(functions):
            task = app.task(name=f"send-{number}")(function)
            assert task.bind(date(2026, 1, 31)).data == {"to": "2026-01-31"}
            with pytest.raises(InvalidArgument, match=f"send-{number}: to: Expected `date`, got `int`"):
                task.bind(5)

    def test_an_upgrade_that_is_an_async_def_is_refused(self, app: App) -> None:
        @app.task
        def send(to: str) -> None: ...

        with pytest.raises(InvalidType, match="an upgrade is a function from dict to dict, not an async def"):

            @send.upgrade  # type: ignore[type-var]
            async def upgrade(data: dict[str, Any]) -> dict[str, Any]:
                return data

    def test_a_job_runs_nowhere_here(self) -> None:
        with pytest.raises(LookupError, match="no job runs here"):
            current_job()


class TestOptions:
    def test_options_become_those_of_add(self, app: App) -> None:
        @app.task(queue="mail", attempts=5, backoff=timedelta(seconds=2))
        def send(to: str) -> None: ...

        at = datetime(2030, 1, 1, tzinfo=UTC)
        assert send.bind("a").options == {"attempts": 5, "backoff": 2000}
        long = send.with_options(backoff=timedelta(minutes=10)).bind("a").options["backoff"]
        assert long == BackoffSpec("fixed", 600_000, 600_000)  # a worker would cut it to 30 s
        own = send.with_options(queue="slow", at=at, attempts=2, backoff=BackoffSpec.fixed(7), job_id="x").bind("a")
        assert own.queue == "slow"
        assert own.options == {"attempts": 2, "backoff": BackoffSpec.fixed(7), "delay_ms": at, "job_id": "x"}
        both = send.with_options(delay=timedelta(1)).with_options(unique_for=timedelta(2), job_id="y").bind("a")
        assert both.options == {
            "attempts": 5,
            "backoff": 2000,
            "delay": timedelta(1),
            "unique_for": timedelta(2),
            "job_id": "y",
        }

    def test_a_later_time_of_a_call_replaces_an_earlier_one(self, app: App) -> None:
        @app.task
        def send(to: str) -> None: ...

        at = datetime(2030, 1, 1, tzinfo=UTC)
        by_delay, by_time = send.with_options(delay=timedelta(1)), send.with_options(at=at)
        assert by_delay.with_options(at=at).bind("a") == by_time.bind("a")
        assert by_time.with_options(delay=timedelta(1)).bind("a") == by_delay.bind("a")

    @pytest.mark.parametrize(
        ("options", "text"),
        (
            ({"dely": 1}, "there is no option 'dely'"),
            ({"countdown": 5}, r"instead: with_options\(delay=timedelta\(minutes=1\)\)"),
            ({"unique_by": ("to",)}, r"unique_by is an option of the task itself: @app.task\(unique_by=...\)"),
            ({"delay": 5}, "delay must be a timedelta, not int"),
            ({"unique_for": 5}, "unique_for must be a timedelta"),
            ({"backoff": 5}, "backoff must be a timedelta or a BackoffSpec"),
            ({"at": "2030"}, "at must be a datetime with a time zone"),
            ({"at": datetime(2030, 1, 1)}, "at is a datetime without a time zone"),  # noqa: DTZ001
            ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": timedelta(1)}, "at and delay contradict"),
            ({"attempts": 0}, "attempts is 0"),
            ({"queue": ""}, "queue"),
            ({"if_exists": "keep"}, "give a job_id"),
        ),
    )
    def test_a_wrong_option_of_a_call_is_refused(self, app: App, options: Any, text: str) -> None:
        @app.task
        def send(to: str) -> None: ...

        with pytest.raises((InvalidArgument, InvalidType), match=text):
            send.with_options(**options)

    @pytest.mark.parametrize(
        ("options", "text"),
        (
            (
                {"queu": "x"},
                "there is no option 'queu'; did you mean 'queue'[?] The options are name, aliases, queue, ",
            ),
            ({"elsewhere": 1}, "there is no option 'elsewhere'; the options are name, aliases, queue, attempts"),
            ({"bind": True}, r"there is no option 'bind' here; instead: current_job\(\)"),
            ({"max_retries": 3}, "instead: attempts=4 allows four runs in all"),
            ({"autoretry_for": (OSError,)}, "instead: every exception is retried; give_up_on="),
            ({"acks_late": True}, "instead: nothing needs to be set: a job is acked when it is done"),
            ({"ignore_result": True}, "instead: annotate the task: -> None"),
            ({"actor_name": "x"}, "instead: name='send_mail'"),
            ({"queue_name": "x"}, "instead: queue='mail'"),
            ({"time_limit": 30}, r"instead: timeout=timedelta\(seconds=30\)"),
            ({"timeout": 30}, r"timeout must be a timedelta, not int: write timedelta\(seconds=...\)"),
            ({"delay": timedelta(1)}, r"delay is an option of one call: with_options\(delay=...\)"),
            ({"job_id": "x"}, r"job_id is an option of one call"),
            ({"attempts": "5"}, "attempts"),
            ({"unique_by": ("nobody",)}, "unique_by names 'nobody'"),
            ({"unique_by": "to"}, "unique_by must be a tuple"),
            ({"aliases": ["x"]}, "aliases must be a tuple"),
            ({"aliases": ("",)}, "must not be blank"),
            ({"unique_for": timedelta(1)}, "give unique_by"),
            ({"give_up_on": ValueError}, "give_up_on must be a tuple"),
            ({"name": 5}, "the name of a task is a str, not int"),
        ),
    )
    def test_a_wrong_option_of_a_task_is_refused(self, app: App, options: Any, text: str) -> None:
        def send(to: str) -> None: ...

        with pytest.raises((InvalidArgument, InvalidType), match=text):
            app.task(**options)(send)

    def test_a_function_that_cannot_be_a_task_is_refused(self, app: App) -> None:
        def generates() -> Any:
            yield 1

        with pytest.raises(InvalidType, match=r"a name is given as @app.task\(name=...\)"):
            app.task("send")  # type: ignore[call-overload]
        for function in (generates, 5, App, lambda: 1):
            with pytest.raises((InvalidArgument, InvalidType)):
                app.task(function)  # type: ignore[arg-type]

    def test_two_tasks_of_one_name_are_refused_with_both_places(self, app: App) -> None:
        @app.task(aliases=("old",))
        def send() -> None: ...

        for name in ("send", "old"):
            with pytest.raises(
                InvalidArgument, match=rf"two tasks have the name '{name}': one at .*test_tasks.py, line"
            ):
                app.task(name=name)(lambda: None)


class TestSchedules:
    def test_data_that_names_no_parameter_is_refused_where_it_is_written(self, app: App) -> None:
        @app.task
        def clean_up(kind: str, days: int = 1) -> None: ...

        for data, problem in (
            ({"kind": "x", "day": 1}, "clean_up: day: there is no such parameter; there are days, kind"),
            (None, "clean_up: kind: is missing"),
        ):
            with pytest.raises(InvalidArgument, match=f"the schedule 'app/clean_up/every 60000': {problem}"):
                app.every(timedelta(minutes=1), data=data)(clean_up)
        with pytest.raises(InvalidType, match="data must be a dict of arguments by name, not list"):
            app.every(timedelta(minutes=1), data=["x"])(clean_up)  # type: ignore[arg-type]

    def test_data_names_positional_only_parameters_as_jobs_do(self, app: App) -> None:
        @app.every(timedelta(minutes=1), data={"kind": date(2026, 1, 31), "days": 2})
        @app.task
        def clean_up(kind: date, /, days: int = 1) -> None: ...

        (schedule,) = app.load_parts().schedules
        assert schedule.make_data() == {"kind": "2026-01-31", "days": 2}

    def test_values_of_the_wrong_type_are_refused_when_a_worker_starts(self, app: App) -> None:
        @app.every(timedelta(minutes=1), data={"days": "two"}, key="a")
        @app.every(timedelta(minutes=1), data={"days": 2**70}, key="b")
        @app.task
        def clean_up(days: int) -> None: ...

        large, wrong = app.load_parts().schedules
        with pytest.raises(InvalidArgument, match="the schedule 'app/clean_up/a': clean_up: days: Expected `int`"):
            wrong.make_data()
        with pytest.raises(InvalidArgument, match="the schedule 'app/clean_up/b': clean_up: days: is an int beyond"):
            large.make_data()


class TestUniqueIds:
    def test_the_id_is_made_of_the_values_of_parameters(self, app: App) -> None:
        @app.task(unique_by=("order_id", "kind"), if_exists="replace")
        def charge(order_id: int, amount: int, kind: str = "card") -> None: ...

        assert charge.bind(17, 5).options == {"if_exists": "replace", "job_id": 'charge(order_id=17, kind="card")'}
        assert charge.bind(17, 5).options == charge.bind(17, 6).options
        assert charge.with_options(job_id="own").bind(17, 5).options["job_id"] == "own"

    @pytest.mark.parametrize(
        ("annotation", "value", "same"),
        (
            (UUID, UUID("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"), "AAAAAAAA-AAAA-AAAA-AAAA-AAAAAAAAAAAA"),
            (datetime, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000Z"),
            (Decimal, Decimal("1.5"), 1.5),
            (Decimal, Decimal(2), 2),
            (list[float], [1.0, 2.0], [1, 2]),
            (float, 1.0, 1),
            (set[int], {1, 2}, [2, 1]),
        ),
    )
    def test_two_notations_of_one_value_make_one_id(self, app: App, annotation: Any, value: Any, same: Any) -> None:
        def charge(key: Any) -> None: ...

        charge.__annotations__["key"] = annotation
        task = app.task(unique_by=("key",))(charge)
        assert task.bind(value).options == task.bind(same).options == task.bind_data({"key": same}).options

    def test_a_record_with_a_default_that_changes_makes_one_id_of_equal_data(self, app: App) -> None:
        def charge(order: Any) -> None: ...

        order = make_dataclass("Order", [("number", int), ("key", UUID, field(default_factory=uuid4))])
        charge.__annotations__["order"] = order
        task = app.task(unique_by=("order",))(charge)
        assert task.bind({"number": 1}).options == task.bind({"number": 1}).options

    def test_a_long_id_is_hashed(self, app: App) -> None:
        @app.task(unique_by=("url",))
        def fetch(url: str) -> None: ...

        long, other = (fetch.bind(end * 500).options["job_id"] for end in "ab")
        assert len(long) == len("fetch()") + 64
        assert long != other


class TestApp:
    def test_the_options_of_queues_are_those_of_queue_and_worker(self) -> None:
        ours = set(QueueOptions.__annotations__)
        queue = {one.name for one in fields(QueueConfig)} - {"name", "redis_url"}
        worker = {one.name for one in fields(WorkerConfig)} - {"queue_name", "handler", "redis_url"}
        assert ours == queue | worker
        assert queue & worker == BOTH
        assert queue - worker == QUEUE_ONLY

    def test_an_unknown_option_of_a_queue_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match=r"queues\['mail'\] has no option 'concurency'; did you mean 'concu"):
            App(queues={"mail": {"concurency": 5}})  # type: ignore[typeddict-unknown-key]
        with pytest.raises(InvalidArgument, match="no option 'attempts'; did you mean 'max_attempts'"):
            App(defaults={"attempts": 5})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="defaults has no option 'x'; the options are"):
            App(defaults={"x": 5})  # type: ignore[arg-type]
        with pytest.raises(InvalidType, match="must be a dict"):
            App(queues={"mail": 5})  # type: ignore[dict-item]

    async def test_the_address_is_read_at_the_first_use_and_not_when_the_app_is_made(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REDIS_URL", "nowhere://")
        app = App()
        app.task(name="send")(lambda: None)
        monkeypatch.setenv("REDIS_URL", "redis://there:1")
        assert app.queue("a").redis_address == "redis://there:1/0"
        monkeypatch.setenv("CHASQUI_REDIS_URL", "redis://here:2")
        assert app.queue("b").redis_address == "redis://here:2/0"
        await app.close()

    def test_a_name_in_the_place_of_the_url_is_refused(self) -> None:
        for first in ("shop", "redis.internal", "user:secret@host"):
            with pytest.raises(InvalidArgument, match=r"is the URL of Redis.*App\(name=...\)") as caught:
                App(first)
            assert first not in str(caught.value)
        with pytest.raises(InvalidType, match="a str, not int"):
            App(6379)  # type: ignore[arg-type]

    def test_a_name_with_a_slash_is_refused(self) -> None:
        """The schedules of an app "shop/eu" would begin as those of an app "shop", which would remove them."""
        with pytest.raises(InvalidArgument, match="'shop/eu', must not contain a slash"):
            App(name="shop/eu")

    def test_a_name_in_the_place_of_a_list_of_names_is_refused(self, app: App) -> None:
        with pytest.raises(InvalidType, match=r"queues must be a list of names, not a str: write \['mail'\]"):
            app.worker("mail")
        with pytest.raises(InvalidType, match=r"modules must be a list of names, not a str: write \['shop.tasks'\]"):
            App(modules="shop.tasks")
        with pytest.raises(InvalidArgument, match="queues is empty"):
            app.worker([])

    async def test_an_app_without_tasks_runs_nothing(self, app: App) -> None:
        with pytest.raises(InvalidArgument, match="the app has no tasks"):
            await app.worker().run()
        with pytest.raises(InvalidArgument, match="and json declared none on it: a program that is run is __main__"):
            await App(modules=["json"]).worker().run()

    def test_a_lifespan_or_a_middleware_that_workers_cannot_call_is_refused(self, app: App) -> None:
        @asynccontextmanager
        async def managed() -> AsyncIterator[int]:
            yield 1

        async def of_fastapi(app: object) -> AsyncIterator[int]:
            yield 1

        async def alone(job: object) -> None: ...

        wrong: Any
        for wrong, problem in ((managed, "leave out @asynccontextmanager"), (of_fastapi, "takes no arguments")):
            with pytest.raises(InvalidType, match=f"a lifespan .*{problem}"):
                app.lifespan(wrong)
        wrong = alone
        with pytest.raises(InvalidType, match="a middleware is an async def that takes a Job and a function to await"):
            app.middleware(wrong)

    def test_a_wrong_type_of_an_option_is_refused_with_what_to_write(self, app: App) -> None:
        def work(day: int) -> None: ...

        wrong: Any = app
        with pytest.raises(InvalidType, match=r"unique_by must be a tuple of names: write \('day',\)"):
            wrong.task(unique_by="day")(work)
        with pytest.raises(InvalidArgument, match="if_exists is 'replce', must be one of keep, replace, postpone"):
            wrong.task(unique_by=("day",), if_exists="replce")(work)
        with pytest.raises(InvalidArgument, match="expires_in is -1000 ms, must be at least 1"):
            wrong.task(expires_in=timedelta(seconds=-1))(work)
        with pytest.raises(InvalidType, match="the name of a task is a str, not int"):
            wrong.task(name=5)(work)
        with pytest.raises(InvalidType, match=r"every\(\) takes a timedelta, not float: write timedelta\(seconds"):
            wrong.every(60.0)

    async def test_a_crew_that_is_closed_does_not_start(self, app: App) -> None:
        crew = app.worker()
        await crew.close()
        with pytest.raises(Closed):
            await crew.run()

    async def test_only_bound_tasks_are_enqueued_together(self, app: App) -> None:
        with pytest.raises(InvalidType, match=r"takes what task.bind\(...\) returns, not dict"):
            await app.enqueue_all([{"name": "x"}])  # type: ignore[arg-type]

    async def test_a_queue_with_a_wrong_option_leaves_no_coroutine_of_a_bulk_behind(self) -> None:
        app = App("redis://localhost", queues={"b": {"max_stream_len": -1}})

        @app.task(queue="a")
        async def first() -> None: ...

        @app.task(queue="b")
        async def second() -> None: ...

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with pytest.raises(InvalidArgument, match="max_stream_len"):
                await app.enqueue_all([first.bind(), second.bind()])
            gc.collect()
        assert not seen
        await app.close()


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("name", "text"),
        (
            ("mail.send", "no task 'mail.send' here; did you mean 'send_mail'?"),
            ("send_mial", "no task 'send_mial' here; did you mean 'send_mail'?"),
            ("zzz", "no task 'zzz' here"),
        ),
    )
    def test_the_error_names_what_may_be_meant(self, name: str, text: str) -> None:
        assert str(make_unknown_task_error(name, ["send_mail", "charge"], 0)) == text

    def test_the_job_waits_longer_each_time_up_to_a_bound(self) -> None:
        delays = [make_unknown_task_error("x", [], snoozes).delay_ms for snoozes in (0, 1, 2, 3, 4, 5, 119)]
        assert delays == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        assert UnknownTask(1, "x").limit == 120
