"""The pages that the supervisor serves for all processes: /metrics, /healthz and /readyz.

Each worker serves its own pages at a Unix socket in a folder of the supervisor's. /metrics adds them up. /readyz says
whether each slot has a process whose workers can run jobs. All workers are asked at the same time. A process that does
not answer, because C code keeps the GIL there, is shown with the numbers of its last answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus

from .._http.merged_metrics import MergedMetrics
from .._http.server import Answer, Page, SharedPage
from .._http.text_format import CONTENT_TYPE, Metric, render
from .child import ChildProcess

ANSWER_WITHIN_S = 2.0
LOOK_EVERY_S = 2.0
SERVED_FOR_S = 0.5
HEAD = re.compile(rb"HTTP/1\.1 (?P<status>[0-9]{3}) .*\r\nContent-Length: (?P<length>[0-9]+)(\r\n|$)", re.DOTALL)


async def fetch_page(socket_path: str, page: str) -> tuple[int, str]:
    """Gets a page at a Unix socket: status and body. Raises OSError, also for half an answer, or TimeoutError."""
    async with asyncio.timeout(ANSWER_WITHIN_S):
        reader, writer = await asyncio.open_unix_connection(socket_path)
        try:
            writer.write(f"GET {page} HTTP/1.1\r\n\r\n".encode())
            response = await reader.read()
        finally:
            writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    found = HEAD.match(head)
    if found is None or len(body) < int(found["length"]):
        raise ConnectionResetError("the answer is cut off")
    return int(found["status"]), body.decode("utf-8", "replace")


class SupervisorPages:
    """count_ended_process_and_keep_its_counts() keeps what a process has counted, so that it outlives the process."""

    def __init__(
        self,
        get_children: Callable[[], Iterable[ChildProcess]],
        get_children_of_slots: Callable[[], Iterable[ChildProcess | None]],
    ) -> None:
        self._get_children = get_children
        self._get_children_of_slots = get_children_of_slots
        self._merged = MergedMetrics()
        self._last: dict[ChildProcess, dict[str, str]] = {}  # the last page of each worker, by its socket
        self._deaths = Metric("chasquimq_worker_process_deaths_total", "counter", "Processes that ended unasked.")

    def make_pages_by_path(self) -> dict[str, Page]:
        return {
            "/metrics": SharedPage(self._answer_metrics, SERVED_FOR_S),
            "/healthz": self._answer_healthz,
            "/readyz": SharedPage(self._answer_readyz, SERVED_FOR_S),
        }

    async def keep_fetching_metrics(self) -> None:
        while True:
            await self._fetch_metrics_of_all()
            await asyncio.sleep(LOOK_EVERY_S)

    def count_ended_process_and_keep_its_counts(self, child: ChildProcess) -> None:
        """Keeps what the process has counted, up to the last look."""
        for text in self._last.pop(child, {}).values():
            self._merged.add_counts_of_ended_process(text)
        if not child.was_asked_to_end:
            self._deaths.increase()

    async def _fetch_metrics_of_all(self) -> None:
        started = [(child, child.started) for child in self._get_children() if child.started is not None]
        await asyncio.gather(
            *(self._try_to_fetch_metrics_at(path, child) for child, its in started for path in its.pages)
        )

    async def _try_to_fetch_metrics_at(self, path: str, child: ChildProcess) -> None:
        with suppress(OSError, TimeoutError):
            status, text = await fetch_page(path, "/metrics")
            if status == HTTPStatus.OK and child.is_running:
                self._last.setdefault(child, {})[path] = text

    async def _answer_metrics(self) -> Answer:
        await self._fetch_metrics_of_all()
        working = Metric("chasquimq_worker_processes", "gauge", "Processes whose workers have started.")
        working.set(sum(child.started is not None for child in self._get_children()))
        own = render([working, self._deaths], {})
        page = self._merged.render(
            [own, *self._list_last_metrics(of_draining=False)], self._list_last_metrics(of_draining=True)
        )
        return Answer(page, content_type=CONTENT_TYPE)

    def _list_last_metrics(self, *, of_draining: bool) -> list[str]:
        """Returns the last pages of the processes that drain, or of those that do not."""
        return [
            text
            for child, pages in self._last.items()
            if child.was_asked_to_end is of_draining
            for text in pages.values()
        ]

    async def _answer_healthz(self) -> Answer:
        return Answer("ok\n")

    async def _answer_readyz(self) -> Answer:
        found = await asyncio.gather(*(self._ask_for_problems(child) for child in self._get_children_of_slots()))
        problems = [problem for problems in found for problem in problems]
        if problems:
            return Answer("".join(f"{problem}\n" for problem in problems), HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer("ok\n")

    async def _ask_for_problems(self, child: ChildProcess | None) -> list[str]:
        if child is None or not child.is_running:
            return ["a process has ended, and another one is about to start"]
        if child.started is None:
            return [f"process {child.pid} starts"]
        found = await asyncio.gather(*(self._ask_for_problem_at(path, child) for path in child.started.pages))
        return [problem for problem in found if problem is not None]

    async def _ask_for_problem_at(self, path: str, child: ChildProcess) -> str | None:
        try:
            status, text = await fetch_page(path, "/readyz")
        except (OSError, TimeoutError):
            return f"process {child.pid} does not answer"
        return None if status == HTTPStatus.OK else f"process {child.pid}: {text.strip()}"
