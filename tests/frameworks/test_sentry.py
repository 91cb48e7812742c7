"""report_to_sentry(), with the real SDK and a transport that keeps what it gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pychasqui import App, Queue, RepeatPattern, RetryLater, Snooze, UnrecoverableError, current_job
from tests.support.waiting import eventually

sentry_sdk = pytest.importorskip("sentry_sdk")


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What is sent: events, transactions and check-ins."""
    from sentry_sdk.transport import Transport

    found: list[Any] = []

    class KeepingTransport(Transport):  # type: ignore[misc, unused-ignore]
        def capture_envelope(self, envelope: Any) -> None:
            found.extend(item.payload.json for item in envelope.items)

    options: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}  # they patch modules
    sentry_sdk.init("https://key@sentry.example/1", transport=KeepingTransport, traces_sample_rate=1.0, **options)
    yield found
    sentry_sdk.get_client().close()
    sentry_sdk.init(**options)


@pytest.fixture
def app(redis_url: str, queue_name: str, events: list[Any]) -> App:
    from pychasqui.integrations.sentry import report_to_sentry

    app = App(redis_url, name="shop", defaults={"max_attempts": 3})

    @app.task(queue=queue_name, attempts=2, backoff=timedelta(milliseconds=10))
    async def pay(kind: str) -> int:
        sentry_sdk.set_tag("kind", kind)
        if kind == "unrecoverable":
            raise UnrecoverableError("no retry would help")
        if kind == "given up":
            raise KeyError(kind)
        if kind == "later" and len(events) == 0:
            raise RetryLater(0.01)
        if kind == "snoozes":
            raise Snooze(0.01, limit=1)
        if kind == "fails":
            raise ValueError(kind)
        if kind == "exits":
            raise SystemExit(kind)
        return 1

    @app.cron("0 3 * * *", tz="Europe/Berlin")
    @app.task(queue=queue_name)
    def clean_up() -> None: ...

    report_to_sentry(app)
    return app


def of_kind(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if (event.get("type") or "error") == kind]


async def run_one(app: App, kind: str) -> None:
    async with app, app.worker():
        handle = await app.tasks["pay"].enqueue(kind)
        await asyncio.gather(handle.result(), return_exceptions=True)


@pytest.mark.parametrize(("kind", "runs"), (("fails", 2), ("unrecoverable", 1), ("exits", 2)))
async def test_the_error_of_a_dead_job_is_reported_once(app: App, events: list[Any], kind: str, runs: int) -> None:
    await run_one(app, kind)
    (event,) = of_kind(events, "error")
    assert event["level"] == "error"
    assert event["tags"]["chasqui.task"] == "pay"
    assert event["tags"]["kind"] == kind
    assert event["contexts"]["chasqui job"]["run"] == runs
    assert event["exception"]["values"][-1]["mechanism"] == {"type": "chasqui", "handled": False}
    transactions = of_kind(events, "transaction")
    assert [one["transaction"] for one in transactions] == ["pay"] * runs
    assert {one["contexts"]["trace"]["op"] for one in transactions} == {"queue.process"}


async def test_every_failure_is_reported_if_that_is_wanted(redis_url: str, events: list[Any]) -> None:
    from pychasqui.integrations.sentry import report_to_sentry

    app = App(redis_url)

    @app.task(attempts=3, backoff=timedelta(milliseconds=10), give_up_on=(KeyError,))
    async def fail(text: str) -> int:
        raise (KeyError if text == "given up" else ValueError)(text)

    report_to_sentry(app, every_failure=True)
    async with app, app.worker():
        for text in ("x", "given up"):
            await asyncio.gather((await fail.enqueue(text)).result(), return_exceptions=True)
    assert [event["level"] for event in of_kind(events, "error")] == ["warning", "warning", "error", "error"]


async def test_a_job_that_dies_because_it_takes_too_long_is_reported(app: App, events: list[Any]) -> None:
    @app.task(attempts=1, timeout=timedelta(milliseconds=50))
    async def sleep() -> None:
        await asyncio.sleep(100)

    async with app, app.worker():
        await asyncio.gather((await sleep.enqueue()).result(), return_exceptions=True)
    (event,) = of_kind(events, "error")
    assert event["exception"]["values"][-1]["type"] == "JobTimeout"


async def test_a_cancelled_run_is_no_error(app: App, events: list[Any]) -> None:
    begun = asyncio.Event()

    @app.task
    async def sleep() -> None:
        begun.set()
        await asyncio.sleep(100)

    async with app, app.worker():
        handle = await sleep.enqueue()
        await begun.wait()
        await handle.cancel()
        await asyncio.gather(handle.result(), return_exceptions=True)
    assert of_kind(events, "error") == []
    assert len(of_kind(events, "transaction")) == 1


async def test_a_report_that_fails_changes_no_job(app: App, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(UnrecoverableError):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    @app.task
    async def fail() -> None:
        raise Odd

    async with app, app.worker():
        (error,) = await asyncio.gather((await fail.enqueue()).result(), return_exceptions=True)
    assert (error.reason, error.error_type.endswith("Odd"), error.attempts) == ("unrecoverable", True, 1)  # type: ignore[union-attr]
    assert "a run could not be reported to Sentry; its job goes on" in caplog.messages


async def test_a_run_that_asks_for_a_later_one_is_no_error(app: App, events: list[Any]) -> None:
    await run_one(app, "later")
    assert of_kind(events, "error") == []
    assert len(of_kind(events, "transaction")) == 2


async def test_a_snooze_beyond_its_limit_is_an_error(app: App, events: list[Any]) -> None:
    await run_one(app, "snoozes")
    (event,) = of_kind(events, "error")
    assert event["exception"]["values"][-1]["type"] == "Snooze"
    assert len(of_kind(events, "transaction")) == 2


async def test_a_scheduled_job_checks_in_by_its_own_schedule(app: App, events: list[Any], queue_name: str) -> None:
    async with app, app.worker():
        queue: Queue = app.queue(queue_name)
        await queue.repeatables.upsert("clean_up", repeat=RepeatPattern.every(50), limit=1)
        await eventually(lambda: len(of_kind(events, "check_in")) == 2)
    begin, end = of_kind(events, "check_in")
    assert (begin["status"], end["status"]) == ("in_progress", "ok")
    assert begin["check_in_id"] == end["check_in_id"]
    assert begin["monitor_slug"] == "shop-clean_up"
    expected = {"schedule": {"type": "crontab", "value": "0 3 * * *"}, "timezone": "Europe/Berlin"}
    assert begin["monitor_config"] == expected


async def test_a_scheduled_job_that_is_cancelled_and_raises_checks_in_as_ok(
    app: App, events: list[Any], queue_name: str
) -> None:
    @app.cron("0 4 * * *")
    @app.task(queue=queue_name, attempts=1)
    def obey() -> None:
        job = current_job()
        assert job is not None
        while not job.is_cancelled:
            time.sleep(0.002)
        raise RuntimeError("asked to stop")

    async with app, app.worker():
        queue: Queue = app.queue(queue_name)
        await queue.repeatables.upsert("obey", repeat=RepeatPattern.every(50), limit=1)
        await eventually(lambda: len(of_kind(events, "check_in")) == 1)
        (job,) = (await queue.jobs("active")).jobs
        assert await queue.cancel(job.id or "") == "stopping"
        await eventually(lambda: len(of_kind(events, "check_in")) == 2)
    assert [one["status"] for one in of_kind(events, "check_in")] == ["in_progress", "ok"]
    assert of_kind(events, "error") == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    (
        (RepeatPattern.every(timedelta(minutes=5)), {"type": "interval", "value": 5, "unit": "minute"}),
        (RepeatPattern.every(timedelta(hours=36)), {"type": "interval", "value": 36, "unit": "hour"}),
        (RepeatPattern.every(timedelta(days=2)), {"type": "interval", "value": 2, "unit": "day"}),
        (RepeatPattern.every(timedelta(seconds=90)), None),
        (RepeatPattern.cron("@daily"), {"type": "crontab", "value": "@daily"}),
        (RepeatPattern.cron("*/5 * * * * *"), None),
    ),
)
def test_a_pattern_becomes_a_schedule_of_sentry_if_there_is_one(pattern: RepeatPattern, expected: object) -> None:
    from pychasqui.integrations.sentry import _to_monitor_schedule_if_possible

    assert _to_monitor_schedule_if_possible(pattern) == expected


def test_each_schedule_has_a_monitor_of_its_own(app: App) -> None:
    from pychasqui.integrations.sentry import MAX_SLUG_CHARS, make_monitor_slugs

    @app.cron("*/5 * * * *")
    @app.cron("5 * * * *")
    @app.cron("0 9 * * 1-5")
    @app.cron("0 9 1-5 * *")
    @app.task
    def sync() -> None: ...

    for region in ("eu", "us"):
        app.cron("@daily")(app.task(name=f"send_the_monthly_statements_of_all_customers_of_{region}")(lambda: None))
    slugs = make_monitor_slugs("shop", app.load_parts().schedules)
    assert len(set(slugs.values())) == len(slugs) == 7
    assert all(len(slug) <= MAX_SLUG_CHARS for slug in slugs.values())
    assert slugs["shop/clean_up/0 3 * * * Europe/Berlin"] == "shop-clean_up"


def test_a_fire_that_fits_no_cron_expression_is_that_of_an_interval(app: App) -> None:
    from pychasqui.integrations.sentry import guess_schedule_that_fired

    @app.every(timedelta(minutes=5))
    @app.cron("0 3 * * *")
    @app.task
    def sync() -> None: ...

    own = [one for one in app.load_parts().schedules if one.definition.name == "sync"]
    three_o_clock_ms = 3 * 3_600_000
    found = [guess_schedule_that_fired(own, at_ms) for at_ms in (three_o_clock_ms, three_o_clock_ms + 77_777)]
    assert [one.pattern.kind for one in found if one is not None] == ["cron", "every"]
