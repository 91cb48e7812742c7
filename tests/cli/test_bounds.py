"""What commands do at their bounds: more lines or jobs than one page has, and counts that are no longer true."""

from __future__ import annotations

import asyncio
import json

import pytest
import redis.asyncio

from pychasqui import Queue
from pychasqui.cli import bench, jobs
from pychasqui.cli.job import LINES_A_LOOK
from pychasqui.cli.options import CommandContext
from pychasqui.cli.output import Output
from pychasqui.cli.queue_state import _confirm_and_purge_states
from pychasqui.inspector import Counts
from pychasqui.settings import FoundSetting
from tests.cli.conftest import Finished


@pytest.fixture
def chasqui(forked: Finished) -> Finished:
    return forked


@pytest.fixture
def context(redis_url: str) -> CommandContext:
    output = Output(is_json=True, is_terminal=False, has_color=False)
    return CommandContext(output, FoundSetting("redis_url", redis_url, "argument"))


class TestLog:
    @pytest.mark.parametrize("options", ([], ["--no-follow"]))
    async def test_a_log_of_more_than_one_page_is_written_to_its_end(
        self, queue: Queue, witness: redis.asyncio.Redis, chasqui: Finished, redis_url: str, options: list[str]
    ) -> None:
        for number in range(LINES_A_LOOK + 5):
            await witness.xadd(f"{{chasqui:{queue.name}}}:log:j1", {"line": str(number)})
        ended = chasqui("job", "tail", "j1", "-q", queue.name, *options, CHASQUI_REDIS_URL=redis_url)
        assert ended.stdout.split() == [str(number) for number in range(LINES_A_LOOK + 5)]
        assert ended.returncode == 0

    @pytest.mark.parametrize("options", ([], ["--no-follow"]))
    async def test_a_log_of_an_unknown_job_is_not_found(
        self, queue: Queue, chasqui: Finished, redis_url: str, options: list[str]
    ) -> None:
        ended = chasqui("job", "tail", "nobody", "-q", queue.name, *options, CHASQUI_REDIS_URL=redis_url)
        assert ended.returncode == 3
        assert f"job 'nobody' is not known in queue {queue.name}" in ended.stderr

    async def test_a_known_job_without_a_log_is_said_to_have_none(
        self, queue: Queue, chasqui: Finished, redis_url: str
    ) -> None:
        job = await queue.add("n")
        ended = chasqui("job", "tail", job.id, "-q", queue.name, "--no-follow", CHASQUI_REDIS_URL=redis_url)
        assert (ended.returncode, ended.stderr) == (0, f"job {job.id} has no log\n")


class TestJobs:
    @pytest.mark.parametrize(("name", "shown"), ((None, 9), ("n", 4)))
    async def test_a_bound_holds_only_for_a_search_by_name(
        self,
        queue: Queue,
        context: CommandContext,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        name: str | None,
        shown: int,
    ) -> None:
        monkeypatch.setattr(jobs, "PAGE", 2)
        monkeypatch.setattr(jobs, "MAX_SEARCHED", 4)
        await queue.add_bulk([{"name": "n"}] * 10)
        await jobs._print_jobs(context, queue.name, "waiting", name, 9, "")
        out, err = capsys.readouterr()
        assert len(json.loads(out)["jobs"]) == shown
        assert ("only the first 4 jobs were looked at" in err) == (name is not None)


class QueueThatFillsBehindACount(Queue):
    async def counts(self) -> Counts:
        counted = await super().counts()
        await self.add("late")
        return counted


class TestPurge:
    async def test_jobs_that_come_behind_a_count_of_none_stay(
        self, context: CommandContext, redis_url: str, queue_name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        filling = QueueThatFillsBehindACount(queue_name, redis_url=redis_url)
        await _confirm_and_purge_states(context, filling, ["waiting"], assume_yes=False, dry_run=False)
        assert json.loads(capsys.readouterr().out)["removed"] == {"waiting": 0}
        async with Queue(queue_name, redis_url=redis_url) as queue:
            assert (await queue.counts()).waiting == 1


async def test_a_bench_that_has_filled_its_queue_still_takes_the_time_of_many_starts(
    queue: Queue, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MAX_JOBS", 10)
    measures = bench.Measures(queue, redis_url, seconds=0.2, data="", concurrency=2)
    async with asyncio.timeout(30):
        assert (await measures.measure_adding_one_by_one())["jobs"] == 10
        await measures.measure_running_added_jobs_then_purge()
        assert (await measures.measure_start_latency())["jobs"] > 3
