"""`chasqui worker`: runs the workers that the user's modules make, in this process or in several."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from .app_targets import find_app_setting
from .exits import ExitCode
from .interrupts import ctrl_c_kills_process
from .loops import CHOICES, Loop, choose_loop
from .options import SPAN, read_setting
from .standard_streams import print_to_stderr
from .worker_options import LOG_FORMATS, QUEUES, SIZE, choose_workers_and_override_options, set_up_logging_unless_done

if TYPE_CHECKING:
    from .. import Worker
    from ..supervisor import SupervisorLink
    from .worker_targets import FoundTarget

log = logging.getLogger("chasqui.worker")

HANG_TIMEOUT_MS = 600_000
THREADS_END_WITHIN_S = 2.0


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options that a worker process heeds."""

    targets: tuple[str, ...]
    concurrency: int | None
    queues: dict[str, int | None] | None
    burst: bool
    max_jobs: int | None
    shutdown_timeout: int | None  # ms
    job_timeout: int | None  # ms
    loop_choice: str
    log_format: str

    @property
    def shutdown_timeout_s(self) -> float | None:
        return None if self.shutdown_timeout is None else self.shutdown_timeout / 1000

    @property
    def job_timeout_s(self) -> float | None:
        return None if self.job_timeout is None else self.job_timeout / 1000

    def to_command_line_arguments(self) -> list[str]:
        """The command line of a process that heeds the same options."""
        queues = ",".join(f"{name}:{own}" if own else name for name, own in (self.queues or {}).items())
        values = {
            "--concurrency": self.concurrency,
            "--queues": queues or None,
            "--max-jobs": self.max_jobs,
            "--shutdown-timeout": _format_span_for_command_line(self.shutdown_timeout),
            "--job-timeout": _format_span_for_command_line(self.job_timeout),
            "--loop": self.loop_choice,
            "--log-format": self.log_format,
        }
        given = [word for name, value in values.items() if value is not None for word in (name, str(value))]
        return [*given, *(["--burst"] if self.burst else []), "--", *self.targets]


def _format_span_for_command_line(span_ms: int | None) -> str | None:
    return None if span_ms is None else f"{span_ms}ms"


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The options that only the supervisor heeds."""

    processes: int | None
    reload: bool
    reload_dir: tuple[Path, ...]
    max_memory: int | None
    hang_timeout: int  # ms

    @property
    def has_supervisor_option(self) -> bool:
        return self.processes is not None or self.reload or bool(self.reload_dir) or self.max_memory is not None

    @property
    def reload_folders(self) -> tuple[Path, ...]:
        return self.reload_dir or ((Path.cwd(),) if self.reload else ())


FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
OPTIONS = (
    click.option("-w", "--processes", type=click.IntRange(1, 1000), help="How many processes to run and to supervise."),
    click.option("-c", "--concurrency", type=click.IntRange(1), help="How many handlers of a worker run at a time."),
    click.option("-Q", "--queues", type=QUEUES, help="Only workers of these queues; emails:50 sets concurrency, too."),
    click.option("-b", "--burst", is_flag=True, help="End once no job waits or is due."),
    click.option("-r", "--reload", is_flag=True, help="Replace the processes when a Python file changes."),
    click.option("--reload-dir", type=FOLDER, multiple=True, help="Look for changes here; may be given again."),
    click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after about this many jobs."),
    click.option("--max-memory", type=SIZE, help="Replace a process that occupies more memory: 512MB."),
    click.option("--shutdown-timeout", type=SPAN, help="How long jobs may run on after a signal."),
    click.option("--job-timeout", type=SPAN, help="How long a run may take, unless its job sets its own time."),
    click.option(
        "--hang-timeout",
        type=SPAN,
        default=HANG_TIMEOUT_MS,
        show_default="10m",
        help="Kill a process whose interpreter has not run for this long; 0 for never.",
    ),
    click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz here."),
    click.option(
        "--loop",
        "loop_choice",
        type=click.Choice(CHOICES),
        default="auto",
        show_default=True,
        help="The event loop; auto is uvloop where it is installed.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        default="auto",
        show_default=True,
        help="How log lines look; auto is rich on a terminal where that is installed, else plain.",
    ),
)


def add_worker_options(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("targets", metavar="[MODULE:ATTRIBUTE]...", nargs=-1)
@add_worker_options
def worker(**given: Any) -> int:
    """Run workers.

    MODULE:ATTRIBUTE names an App, a Worker, or a function without arguments that returns one of them, in a module of
    the current directory or of the Python path: shop.app:app. Several run side by side in each process. Without one
    it is that of the setting `app`.

    With --processes, --reload, --max-jobs or --max-memory a supervisor keeps processes running: it starts them again
    when they die, replaces them one after the other on SIGHUP, and holds their leases.

    SIGINT (Ctrl-C) or SIGTERM: workers read no more jobs, finish those that run, and end with exit code 0. A second
    signal makes them stop at once; jobs that they leave unfinished are not lost. Without a supervisor SIGHUP is the
    same.
    """
    with ctrl_c_kills_process():
        import asyncio  # here and below, so that --help does not wait for the import

        from ..supervisor import SupervisorLink
        from .worker_targets import import_targets_with_working_folder_on_path, parse_target

    metrics_port = given.pop("metrics_port")
    process_options = ProcessOptions(**{field.name: given.pop(field.name) for field in fields(ProcessOptions)})
    given["targets"] = given["targets"] or find_default_targets_or_fail()
    options = WorkerOptions(**given)
    for target in options.targets:
        parse_target(target)
    link = SupervisorLink.find()
    is_shared = metrics_port is not None and len(options.targets) > 1  # one port for the pages of several workers
    if link is None and (process_options.has_supervisor_option or options.max_jobs is not None or is_shared):
        return run_supervisor(options, process_options, metrics_port)
    loop = choose_loop(options.loop_choice)
    if link is not None:
        link.start_watching()
    found = import_targets_with_working_folder_on_path(options.targets)
    set_up_logging_unless_done(
        options.log_format
    )  # after the import: a module that has set up logging itself is heeded
    if link is None:
        _heed_sighup_as_sigterm_unless_handled()
    with asyncio.Runner(loop_factory=loop.factory) as runner:
        runner.run(_make_and_run_workers(found, options, loop, link, metrics_port))
    threading.Thread(target=_sleep_and_warn_of_threads_still_alive, daemon=True).start()
    return ExitCode.OK


def _heed_sighup_as_sigterm_unless_handled() -> None:
    """Without a supervisor a worker is not replaced: it drains, and what has started it may start another one.

    A terminal that is closed sends the signal as well. It stays ignored behind nohup.
    """
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda _number, _frame: signal.raise_signal(signal.SIGTERM))


def _sleep_and_warn_of_threads_still_alive() -> None:
    """Python waits for threads of the program that are no daemons, however long they run."""
    time.sleep(THREADS_END_WITHIN_S)
    threads, main = threading.enumerate(), threading.main_thread()
    names = [thread.name for thread in threads if not thread.daemon and thread is not main]
    if names:
        log.warning("the workers have stopped, and the process waits for the program's own threads: %s", names[:10])


def find_default_targets_or_fail() -> tuple[str, ...]:
    """What to run if the command names nothing."""
    found = find_app_setting(None).value
    if found is None:
        raise click.UsageError("name an App or a Worker: chasqui worker shop.app:app")
    return (found,)


async def _make_and_run_workers(
    targets: Sequence[FoundTarget],
    options: WorkerOptions,
    loop: Loop,
    link: SupervisorLink | None,
    metrics_port: int | None,
) -> None:
    """Makes the workers inside the loop, because a factory may need a running one, and runs them."""
    from ..supervisor import adapt_to_supervisor, run_workers
    from .worker_targets import make_workers_and_enter_crew

    async with AsyncExitStack() as stack:
        workers = choose_workers_and_override_options(
            [worker for target in targets for worker in await make_workers_and_enter_crew(target, stack)],
            queues=options.queues,
            concurrency=options.concurrency,
            shutdown_timeout_s=options.shutdown_timeout_s,
            metrics_port=metrics_port,
            job_timeout_s=options.job_timeout_s,
        )
        if link is None:
            for worker in workers:
                print_or_log_worker_banner(worker, options, loop)
        else:
            workers = adapt_to_supervisor(workers, link, max_jobs=options.max_jobs)
        await run_workers(workers, link, until_idle=options.burst)


def run_supervisor(options: WorkerOptions, process_options: ProcessOptions, metrics_port: int | None) -> int:
    """Runs the same command in processes of its own; returns the exit code."""
    with ctrl_c_kills_process():
        import asyncio

        from ..supervisor import HOW_TO_INSTALL, ProcessSupervisor, SupervisorOptions, can_reload

    if sys.platform == "win32":
        raise click.UsageError("worker processes need signals and sockets that Windows does not have")
    if process_options.reload_folders and not can_reload():
        raise click.BadParameter(HOW_TO_INSTALL, param_hint="'--reload'")
    port = read_setting("metrics_port", metrics_port).value
    supervised = SupervisorOptions(
        processes=process_options.processes or 1,
        shutdown_timeout_s=read_setting("shutdown_deadline_s", options.shutdown_timeout_s).value,
        hang_timeout_s=process_options.hang_timeout / 1000 or None,
        max_memory_bytes=process_options.max_memory,
        metrics_address=None if port is None else (read_setting("metrics_host").value, port),
        reload_folders=process_options.reload_folders,
        is_burst=options.burst,
    )
    set_up_logging_unless_done(options.log_format)
    facts: dict[str, object] = {"processes": supervised.processes, "workers": " ".join(options.targets)}
    _print_or_log_banner("supervisor", facts, options)
    command = [sys.executable, "-P", "-m", "pychasqui.cli", "worker", *options.to_command_line_arguments()]
    return asyncio.run(ProcessSupervisor(command, supervised).run())


def print_or_log_worker_banner(worker: Worker, options: WorkerOptions, loop: Loop) -> None:
    facts: dict[str, object] = {
        "redis": worker.redis_address,
        "queue": worker.queue_name,
        "concurrency": worker.concurrency,
        "consumer": worker.consumer_id,
        "loop": loop.name,
    }
    _print_or_log_banner("worker", facts, options)


def _print_or_log_banner(role: str, facts: dict[str, object], options: WorkerOptions) -> None:
    """Says what runs: on lines of its own, or as a record where each line of the log is JSON."""
    title = f"pychasqui {__version__} {role}"
    if options.log_format == "json":
        log.info(title, extra=facts)
    else:
        print_to_stderr("\n".join([title, *(f"  {name:<12} {value}" for name, value in facts.items())]))
