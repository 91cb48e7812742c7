"""Official producers send jobs to tasks, and tasks send jobs to official workers: a task's data is a plain map."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from pychasqui import App
from tests.interop.official import Official
from tests.support.waiting import eventually

WHEN = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ORDER = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Line:
    price: Decimal
    count: int = 1


async def test_a_task_runs_what_an_official_producer_adds_by_its_name(
    official: Official, redis_url: str, queue_name: str
) -> None:
    app, ran = App(redis_url), list[object]()

    @app.task(queue=queue_name, aliases=("mail.send",))
    async def send_mail(to: str, subject: str = "hello") -> str:
        ran.append((to, subject))
        return f"{subject} {to}"

    @app.task(queue=queue_name)
    async def charge(order: UUID, at: datetime, lines: list[Line], day: date | None = None) -> None:
        ran.append((order, at, lines, day))

    async with app, app.worker():
        first = await official.add("send_mail", {"to": "ada"}, "attempts=3")
        assert await send_mail.handle(first).result() == "hello ada"
        assert await official.results([first]) == ["hello ada"]
        (former,) = await official.add_bulk([{"name": "mail.send", "data": {"to": "bo", "subject": "hi"}}])
        assert await send_mail.handle(former).result() == "hi bo"
        lines = [{"price": "1.50", "count": 2}, {"price": "3"}]
        data = {"order": str(ORDER), "at": "2026-05-04T03:02:01Z", "lines": lines, "day": "2026-05-04"}
        await charge.handle(await official.add("charge", data)).result()
    own = [Line(Decimal("1.50"), 2), Line(Decimal(3))]
    assert ran == [("ada", "hello"), ("bo", "hi"), (ORDER, WHEN, own, date(2026, 5, 4))]


async def test_an_official_worker_runs_what_a_task_enqueues_and_heeds_its_attempts(
    official: Official, redis_url: str, queue_name: str
) -> None:
    app = App(redis_url)

    @app.task(queue=queue_name, attempts=2, backoff=timedelta(milliseconds=1))
    async def charge(order: UUID, at: datetime, lines: list[Line], note: bytes | None = None) -> None: ...

    async with app:
        handle = await charge.enqueue(ORDER, WHEN, [Line(Decimal("1.50"), 2)], note=b"x")
        await official.work(fails=[0])
        await eventually(lambda: len(official.runs) == 2)
        await official.stop_working()
    data = {
        "order": str(ORDER),
        "at": "2026-05-04T03:02:01Z",
        "lines": [{"price": "1.50", "count": 2}],
        "note": b"x",
    }
    assert [(run.id, run.name, run.data, run.attempt) for run in official.runs] == [
        (handle.id, "charge", repr(data), 0),
        (handle.id, "charge", repr(data), 1),
    ]
