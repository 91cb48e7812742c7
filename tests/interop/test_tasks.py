"""Official producers send jobs to tasks, and tasks send jobs to official workers: a task's data is a plain map."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from pychasqui import App, Job, Snooze, current_job
from pychasqui._wire.envelope import decode_envelope, encode_envelope, encode_extras
from pychasqui._wire.msgpack import decode_data, encode_data
from tests.interop.official import Official
from tests.interop.wire import Wire, split
from tests.support.waiting import eventually

WHEN = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ORDER = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Line:
    price: Decimal
    count: int = 1


def extras_of(envelope: bytes) -> dict[str, int]:
    """What is behind the envelope."""
    extras = decode_envelope(envelope).extras
    found: dict[str, int] = decode_data(extras) if extras else {}
    return found


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


class TestExtras:
    """What a task's job has behind its envelope: its timeout `to`, its expiry `x`, its snoozes `z`, its time `s`."""

    async def test_an_official_worker_runs_a_job_with_all_extras_and_ours_goes_on_without_them(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        app, seen = App(redis_url, queues={queue_name: {"run_scheduler": False}}), list[Job]()

        @app.task(queue=queue_name, attempts=4, backoff=timedelta(minutes=5), expires_in=timedelta(hours=1))
        async def sync_order(order: int) -> int:
            seen.append(current_job())
            if current_job().attempt == 0 and not current_job().snoozes:
                raise Snooze(300)
            return order

        async with app:
            sent = sync_order.with_options(timeout=timedelta(minutes=2), job_id="order-7")
            handle = await sent.enqueue(7)
            assert extras_of((await wire.entries())[0][b"d"]).keys() == {"to", "x"}
            async with app.worker():
                await eventually(wire.members)
            (member,) = await wire.members()
            extras = extras_of(split(member)[1])
            assert (set(extras), extras["to"], extras["z"]) == ({"to", "x", "z"}, 120_000, 1)
            await wire.make_due()
            await official.work(fails=[0])
            await eventually(lambda: official.runs)
            await eventually(wire.members)
            await official.stop_working()
            (member,) = await wire.members()
            assert extras_of(split(member)[1]) == {}  # an official worker writes the envelope again, and nothing else
            await wire.make_due()
            async with app.worker():
                assert await handle.result(timeout=30) == 7
        assert [(run.id, run.name, run.data, run.attempt) for run in official.runs] == [
            ("order-7", "sync_order", "{'order': 7}", 0)
        ]
        assert [(job.id, job.attempt, job.snoozes) for job in seen] == [("order-7", 0, 0), ("order-7", 1, 0)]

    async def test_an_official_worker_runs_a_job_of_a_schedule_that_was_traced_and_put_back(
        self, official: Official, wire: Wire
    ) -> None:
        extras = encode_extras(t="00-1-2-01", ts="a=b", s=1_700_000_000_000, z=3, to=1000, x=2**52)
        envelope = encode_envelope("7", encode_data({"kind": "quick"}), 1_700_000_000_000, 0, None, extras)
        await wire.put(d=envelope, n=b"clean_up")
        await official.work()
        await eventually(lambda: official.ended)
        assert [(run.id, run.name, run.data) for run in official.runs] == [("7", "clean_up", "{'kind': 'quick'}")]

    async def test_a_dead_letter_of_an_official_worker_runs_here_when_it_is_replayed(
        self, official: Official, redis_url: str, queue_name: str, wire: Wire
    ) -> None:
        app = App(redis_url)

        @app.task(queue=queue_name, attempts=1, expires_in=timedelta(hours=1))
        async def charge(order: int) -> int:
            return 2 * order

        async with app:
            handle = await charge.with_options(timeout=timedelta(minutes=2)).enqueue(4)
            await official.work(fails=[0])
            await eventually(wire.letters)
            await official.stop_working()
            (letter,) = await app.queue(queue_name).dlq.page()
            assert (letter.job_id, letter.name, letter.reason) == (handle.id, "charge", "retries_exhausted")
            assert letter.data == {"order": 4}
            assert await app.queue(queue_name).dlq.replay() == 1
            async with app.worker():
                assert await handle.result(timeout=30) == 8
