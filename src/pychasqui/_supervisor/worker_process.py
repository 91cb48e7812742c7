"""What a worker process does: prepares its workers for the supervisor, and runs them until a signal ends them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from .._core.delivery import Delivery
from .._redis.endpoint import parse_endpoint
from ..errors import AuthenticationFailed, Closed
from ..metrics import JobOutcome
from ..worker import Worker
from .link import SupervisorLink
from .messages import Credentials, HeldLease, LeaseTaken, Loaded, Started, SuccessorRequest
from .systemd import Systemd

log = logging.getLogger("chasqui.worker")

CREDENTIALS_EVERY_S = 30.0
GENERATED_ID = re.compile(r"c-[0-9a-f]{8}-[0-9a-f-]{27}")


class RunLimit:
    """A metrics sink that counts runs, and calls `on_max_jobs` once when there were `max_jobs`."""

    def __init__(self, max_jobs: int, on_max_jobs: Callable[[], None]) -> None:
        self._left = max_jobs
        self._on_max_jobs = on_max_jobs

    def jobs_done(self, jobs: list[Delivery]) -> None:
        self._count_runs_and_notify_at_max(len(jobs))

    def job_outcome(self, outcome: JobOutcome) -> None:
        self._count_runs_and_notify_at_max(1)

    def _count_runs_and_notify_at_max(self, ended_jobs: int) -> None:
        was_over = self._left <= 0
        self._left -= ended_jobs
        if self._left <= 0 and not was_over:
            self._on_max_jobs()


def adapt_to_supervisor(workers: Sequence[Worker], link: SupervisorLink, *, max_jobs: int | None) -> list[Worker]:
    """Tells the supervisor that the program is loaded, and returns its workers with names and pages of their own.

    Once they have run `max_jobs`, the supervisor is asked for a successor.
    """
    counter = None
    if max_jobs is not None:
        why = f"it has run {max_jobs} jobs"
        counter = RunLimit(max_jobs, lambda: link.send(SuccessorRequest(why)))
    wanted = [worker.config.metrics_address for worker in workers if worker.config.metrics_address is not None]
    deadline_s = max((worker.config.shutdown_deadline_s for worker in workers), default=0.0)
    link.send(Loaded(wanted[0] if wanted else None, deadline_s))
    return [_copy_worker_with_process_options(worker, number, link, counter) for number, worker in enumerate(workers)]


def _copy_worker_with_process_options(
    worker: Worker, number: int, link: SupervisorLink, counter: RunLimit | None
) -> Worker:
    config = worker.config
    options: dict[str, object] = {}
    if not GENERATED_ID.fullmatch(config.consumer_id):  # all processes load the same program
        options["consumer_id"] = f"{config.consumer_id}-{os.getpid()}"
    if counter is not None:
        options["metrics"] = [*config.metrics_sinks, counter]
    if link.serves_pages or config.metrics_port is not None:  # the supervisor serves all of them at one port
        options["metrics_host"] = str(link.folder / f"{os.getpid()}-{number}")
        options["metrics_port"] = 0
    return worker.with_options(**options) if options else worker


async def run_workers(workers: Sequence[Worker], link: SupervisorLink | None, *, until_idle: bool = False) -> None:
    """Runs workers side by side until a signal ends them, or one fails, or all are idle. Raises the first error.

    Without a supervisor it notifies systemd itself.
    """
    systemd = Systemd() if link is None else None
    if link is not None:
        _set_up_drain_at_supervisor_end(workers, link)
    running = [asyncio.ensure_future(worker.run(handle_signals=True)) for worker in workers]
    beside: list[asyncio.Future[None]] = []
    try:
        with suppress(Closed):  # a signal came first
            if all(await asyncio.gather(*(_wait_until_started_and_send_lease(worker, link) for worker in workers))):
                if link is not None:
                    pages = [worker.config.metrics_host for worker in workers if worker.metrics_port is not None]
                    link.send(Started(pages))
                    beside.append(asyncio.ensure_future(_keep_sending_credentials(workers, link)))
                if systemd is not None:
                    systemd.notify_if_started_by_systemd("READY=1")
                    beside.append(asyncio.ensure_future(systemd.keep_notifying_watchdog_if_any()))
                if until_idle:
                    beside.append(asyncio.ensure_future(_close_workers_when_idle(workers)))
        await asyncio.gather(*running)
    finally:
        for worker in workers:
            worker.shutdown()
        await asyncio.gather(*running, return_exceptions=True)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def _wait_until_started_and_send_lease(worker: Worker, link: SupervisorLink | None) -> bool:
    """Also has the supervisor hold the lease of the worker, which runs jobs while others still start."""
    if not await worker.wait_until_started():
        return False
    if link is not None:
        await _send_credentials_if_provided([worker], link)  # before the lease that needs them
        link.send(LeaseTaken(_make_held_lease(worker)))
    return True


async def _close_workers_when_idle(workers: Sequence[Worker]) -> None:
    await asyncio.gather(*(worker.wait_until_idle() for worker in workers))
    for worker in workers:
        worker.shutdown()


def _set_up_drain_at_supervisor_end(workers: Sequence[Worker], link: SupervisorLink) -> None:
    """Ends the workers when the supervisor has ended: within a lease, which nothing else would renew if they hang."""
    loop, lease_s = asyncio.get_running_loop(), min(worker.config.lease_ms for worker in workers) / 1000
    draining: set[asyncio.Task[None]] = set()

    def start_draining() -> None:
        draining.update(asyncio.ensure_future(worker.drain(lease_s / 2)) for worker in workers)

    link.call_at_supervisor_end(lambda: _call_in_loop_unless_ended(loop, start_draining), within_s=lease_s)


def _call_in_loop_unless_ended(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function)


async def _keep_sending_credentials(workers: Sequence[Worker], link: SupervisorLink) -> None:
    while any(worker.config.credential_provider is not None for worker in workers):
        await asyncio.sleep(CREDENTIALS_EVERY_S)
        await _send_credentials_if_provided(workers, link)


async def _send_credentials_if_provided(workers: Sequence[Worker], link: SupervisorLink) -> None:
    """The supervisor connects as the workers do, and cannot ask a provider of credentials that lives here."""
    for config in (worker.config for worker in workers):
        if config.credential_provider is None:
            continue
        endpoint = parse_endpoint(config.redis_url, tls=config.tls, credential_provider=config.credential_provider)
        try:
            username, password, _ = await endpoint.ask_for_credentials()
        except AuthenticationFailed as error:
            log.info("the supervisor gets no credentials now: %s", error)
        else:
            plain = None if password is None else str.__str__(password)
            link.send(Credentials(config.redis_url, username, plain))


def _make_held_lease(worker: Worker) -> HeldLease:
    config = worker.config
    return HeldLease(
        redis_url=config.redis_url,
        tls=config.tls,
        queue_name=config.queue_name,
        group=config.group,
        consumer_id=config.consumer_id,
        lease_ms=config.lease_ms,
        has_provider=config.credential_provider is not None,
    )
