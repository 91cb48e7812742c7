"""The options of `chasqui worker` that choose and change workers."""

from __future__ import annotations

import click
import pytest

from pychasqui import Job, Worker
from pychasqui.cli.exits import CommandFailure
from pychasqui.cli.worker import WorkerOptions
from pychasqui.cli.worker_options import QUEUES, SIZE, choose_workers_and_override_options


async def handle(job: Job) -> None:
    pass


def workers() -> list[Worker]:
    return [Worker("emails", handle, concurrency=3), Worker("reports", handle, concurrency=4)]


def choose(**options: object) -> dict[str, int]:
    unset = {"queues": None, "concurrency": None, "shutdown_timeout_s": None, "metrics_port": None}
    chosen = choose_workers_and_override_options(workers(), **{**unset, **options})  # type: ignore[arg-type]
    return {worker.queue_name: worker.concurrency for worker in chosen}


class TestChoosing:
    def test_all_workers_run_as_they_are(self) -> None:
        assert choose() == {"emails": 3, "reports": 4}

    def test_the_concurrency_of_the_command_wins(self) -> None:
        assert choose(concurrency=9) == {"emails": 9, "reports": 9}

    def test_only_workers_of_named_queues_run(self) -> None:
        assert choose(queues={"reports": None}) == {"reports": 4}

    def test_a_queue_has_a_concurrency_of_its_own(self) -> None:
        assert choose(queues={"reports": 7, "emails": None}, concurrency=9) == {"emails": 9, "reports": 7}

    def test_a_queue_without_a_worker_is_refused(self) -> None:
        with pytest.raises(CommandFailure, match="no worker is for queue 'mails'; there are: emails, reports"):
            choose(queues={"mails": None})

    def test_other_options_are_passed_on(self) -> None:
        (worker, _) = choose_workers_and_override_options(
            workers(), queues=None, concurrency=None, shutdown_timeout_s=2.5, metrics_port=9400
        )
        assert (worker.config.shutdown_deadline_s, worker.config.metrics_port) == (2.5, 9400)

    @pytest.mark.parametrize("options", ({"shutdown_timeout_s": 0.0}, {"job_timeout_s": 0.0}, {"metrics_port": 65_535}))
    def test_an_option_that_a_worker_refuses_is_wrong_usage(self, options: dict[str, float]) -> None:
        with pytest.raises(click.UsageError, match="must be"):
            choose(**options)

    @pytest.mark.parametrize(
        ("options", "ports"),
        (({"metrics_port": 9400}, [9400, 9401]), ({"metrics_port": 0}, [0, 0])),
    )
    def test_each_worker_has_a_port_of_its_own(self, options: dict[str, int], ports: list[int]) -> None:
        chosen = choose_workers_and_override_options(
            workers(), queues=None, concurrency=None, shutdown_timeout_s=None, **options
        )
        assert [worker.config.metrics_port for worker in chosen] == ports

    def test_the_only_worker_that_is_chosen_has_the_port_itself(self) -> None:
        queues: dict[str, int | None] = {"reports": None}
        (worker,) = choose_workers_and_override_options(
            workers(), queues=queues, concurrency=None, shutdown_timeout_s=None, metrics_port=9400
        )
        assert worker.config.metrics_port == 9400


class TestReading:
    @pytest.mark.parametrize(
        ("text", "queues"),
        (
            ("emails", {"emails": None}),
            ("emails:50,default", {"emails": 50, "default": None}),
            (" a , b:2 ", {"a": None, "b": 2}),
            ("shop:emails", {"shop:emails": None}),
            ("shop:emails:5", {"shop:emails": 5}),
        ),
    )
    def test_queues_are_read(self, text: str, queues: dict[str, int | None]) -> None:
        assert QUEUES.convert(text, None, None) == queues

    @pytest.mark.parametrize("text", ("", ",", "emails:0"))
    def test_a_list_without_queues_is_refused(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="is not a list of queues"):
            QUEUES.convert(text, None, None)

    @pytest.mark.parametrize(
        ("text", "size"),
        (("1000", 1000), ("512MB", 512_000_000), ("1.5GiB", 1_610_612_736), ("2k", 2000), ("64 KiB", 65_536)),
    )
    def test_a_size_is_read(self, text: str, size: int) -> None:
        assert SIZE.convert(text, None, None) == size

    @pytest.mark.parametrize("text", ("", "MB", "5XB", "-1MB", "1" * 20))
    def test_a_text_that_is_no_size_is_refused(self, text: str) -> None:
        with pytest.raises(click.BadParameter, match="is not a size"):
            SIZE.convert(text, None, None)


def test_a_process_gets_the_options_that_it_heeds() -> None:
    options = WorkerOptions(
        targets=("app:a", "app:b"),
        concurrency=5,
        queues={"x:y": 3, "z": None},
        burst=True,
        max_jobs=7,
        shutdown_timeout=2500,
        job_timeout=60_000,
        loop_choice="asyncio",
        log_format="json",
    )
    assert " ".join(options.to_command_line_arguments()) == (
        "--concurrency 5 --queues x:y:3,z --max-jobs 7 --shutdown-timeout 2500ms --job-timeout 60000ms --loop asyncio "
        "--log-format json --burst -- app:a app:b"
    )
