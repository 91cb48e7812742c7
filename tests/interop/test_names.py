"""Names and ids that the official package takes are taken here, too."""

from __future__ import annotations

import pytest

from pychasqui import Queue, Worker
from tests.interop.official import Official
from tests.interop.runs import Handler
from tests.support.waiting import eventually

QUEUES = ("emails/eu", "order mails", "Bestellungen für Ö 🦙", "a{b", "50%*?[x]\\", "emails:eu.v2-x_y")
IDS = (
    "order 17",
    "a\nb",
    "nul\0inside",
    "x" * 300,
    "https://example.org/" + "y" * 3000,
    "}{:",
    "\u202eid",
    "日本語",
    "\t",
)


class TestQueues:
    @pytest.fixture(params=QUEUES)
    def queue_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    async def test_a_queue_of_an_odd_name_is_shared(self, official: Official, queue: Queue, redis_url: str) -> None:
        ours, theirs = await queue.add("send", 1), await official.add("send", 2)
        handler = Handler()
        async with Worker(queue.name, handler, redis_url=redis_url):
            await eventually(lambda: {run.id for run in handler.runs} == {ours.id, theirs})
        await official.work()
        last = await queue.add("send", 3)
        await eventually(lambda: last.id in official.ended)


@pytest.mark.parametrize("job_id", [id_ for id_ in IDS if id_.strip()])
async def test_a_job_of_an_odd_id_is_found_and_cancelled(official: Official, queue: Queue, job_id: str) -> None:
    await official.add("send", 1, f"job_id={job_id!r}, delay_ms=60_000")
    view = await queue.get_job(job_id)
    assert view is not None
    assert (view.id, view.state) == (job_id, "delayed")
    assert await queue.get_job_result(job_id) is None
    assert await queue.get_job_progress(job_id) is None
    assert await queue.get_job_logs(job_id) == []
    assert await queue.reschedule(job_id, 120_000)
    assert await queue.cancel_delayed(job_id)


@pytest.mark.parametrize("job_id", IDS)
async def test_a_job_of_any_id_can_be_asked_for(queue: Queue, job_id: str) -> None:
    assert await queue.get_job(job_id) is None
    assert not await queue.cancel_delayed(job_id)
    assert await queue.get_job_result_bulk([job_id, job_id]) == [None, None]
