"""`chasqui dev`: a private server, a worker that starts again when a file changes, and a line that shows the queues."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from .. import __version__
from ..errors import ChasquiError, printable
from .addresses import redis_url_option
from .interrupts import ctrl_c_kills_process
from .options import TIMEOUT_S
from .source_watch import SourceWatch
from .standard_streams import print_to_stderr
from .status_line import StatusLine

if TYPE_CHECKING:
    from ..queues import QueueOverview, Queues

LOOK_EVERY_S = 0.5
ENDS_WITHIN_S = 10.0  # a worker that finishes its jobs; then it is killed


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".chasqui"),
    show_default=True,
    help="Where the private server keeps its data.",
)
@redis_url_option(
    variables=["CHASQUI_DEV_REDIS_URL"],  # not that of the other commands: nobody means to develop in production
    default=None,
    about="A server to use, instead of a private one.",
)
def dev(target: str, folder: Path, redis_url: str | None) -> None:
    """Run a worker while you write it.

    Starts a private server that keeps its data in a folder, and `chasqui worker MODULE:ATTRIBUTE`. When a Python file
    below the current directory changes, the worker finishes its jobs, is killed if that takes more than 10 s, and
    starts again. A line shows the queues.

    The worker gets the server's address in CHASQUI_REDIS_URL, so it must not name another one itself. Other programs
    use the same server with that variable; its value for a private server is shown at the start. Ctrl-C ends it all,
    and the data stays.
    """
    from .. import embedded  # here and below, so that --help does not wait for the import

    url = redis_url or f"{embedded.SCHEME}{quote(str(folder.resolve()))}"
    try:
        asyncio.run(_DevSession(target, url).run())
    except asyncio.CancelledError:
        return


class _DevSession:
    """run() goes on until SIGINT or SIGTERM."""

    def __init__(self, target: str, url: str) -> None:
        with ctrl_c_kills_process():
            from ..embedded import SCHEME
            from ..queues import Queues

        self._target = target
        self._is_private = url.startswith(SCHEME)
        self._queues = Queues(url, timeout_s=TIMEOUT_S)
        self._environment = {**os.environ, "CHASQUI_REDIS_URL": url}
        self._watch = SourceWatch(Path.cwd())
        self._worker: asyncio.subprocess.Process | None = None
        self._is_stopping = asyncio.Event()
        self._status_line = StatusLine()

    async def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._is_stopping.set)
        async with self._queues as queues:
            # Of any other URL the address lacks the password and options, so that it is no value for the variable.
            name = "CHASQUI_REDIS_URL=" if self._is_private else "redis "
            print_to_stderr(f"pychasqui {__version__} dev\n  {name}{queues.redis_address}")
            self._status_line.open_output_terminal_if_shown()
            try:
                await self._start_worker()
                while not await self._wait_and_see_if_stopping():
                    if changed := await asyncio.to_thread(self._watch.find_files_changed_since_last_call):
                        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                        self._status_line.print_line(f"{printable(changed[0])}{more} changed: the worker starts again")
                        await self._end_worker_by_killing_if_late()
                        await self._start_worker()
                    await self._report_and_forget_worker_if_ended()
                    await self._read_and_show_queues(queues)
            finally:
                await self._end_worker_by_killing_if_late()
                self._status_line.close()

    async def _wait_and_see_if_stopping(self) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_stopping.wait(), LOOK_EVERY_S)
        return self._is_stopping.is_set()

    async def _start_worker(self) -> None:
        words = (sys.executable, "-m", "pychasqui.cli", "worker", self._target)
        output = self._status_line.output_fd
        self._worker = await asyncio.create_subprocess_exec(*words, env=self._environment, stdout=output, stderr=output)

    async def _end_worker_by_killing_if_late(self) -> None:
        """Lets the worker finish what it runs, for a while."""
        worker, self._worker = self._worker, None
        if worker is None or worker.returncode is not None:
            return
        with suppress(ProcessLookupError):
            worker.terminate()
        try:
            await asyncio.wait_for(worker.wait(), ENDS_WITHIN_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

    async def _report_and_forget_worker_if_ended(self) -> None:
        if self._worker is not None and self._worker.returncode is not None:
            self._status_line.print_line(
                f"the worker has ended with exit code {self._worker.returncode}; it starts again with a change"
            )
            self._worker = None

    async def _read_and_show_queues(self, queues: Queues) -> None:
        if not self._status_line.is_shown:
            return
        try:
            overviews = await queues.overview((await queues.find_names()).names)
        except ChasquiError as error:
            line = printable(str(error))
        else:
            line = " | ".join(map(_describe_queue, overviews)) or "no queue has had a job yet"
        self._status_line.show_if_at_line_start(line)


def _describe_queue(queue: QueueOverview) -> str:
    if queue.error is not None:
        return f"{queue.name}: cannot be read"
    counts = {"waiting": queue.waiting, "running": queue.running, "delayed": queue.delayed, "dead": queue.dead}
    shown = [f"{count:,} {state}" for state, count in counts.items() if count]
    return f"{queue.name}: {', '.join(shown) or 'empty'}, {queue.rate or 0:.1f} done/s"
