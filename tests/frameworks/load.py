"""Runs the examples for Django, FastAPI and Flask under load while their workers are killed, and counts the jobs.

    python -m tests.frameworks.load [--seconds 30] [--rate 200] [--kills 2] [django fastapi flask]

Each has its web server and its worker as processes. Every request enqueues one job. When all is over, each job whose
request was answered has to have run once; or more often, if a run was cut off because its worker was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from pychasqui import Queue, QueueEvents
from tests.frameworks.environments import ROOT, Environment, environment
from tests.support.server import RedisServer

PACKAGES = ("django~=6.1.0", "fastapi", "flask", "uvicorn", "gunicorn")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Site:
    """How an example is started, and how a customer signs up."""

    name: str
    folder: Path
    web: tuple[str, ...]  # {port} is the port to serve
    worker: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    path: str = "/customers"
    as_json: bool = False

    def body(self, email: str) -> dict[str, dict[str, str]]:
        return {"json" if self.as_json else "data": {"email": email}}


EXAMPLES = ROOT / "examples"
GUNICORN = ("-m", "gunicorn", "--threads", "8", "--bind", "127.0.0.1:{port}", "--log-level", "warning")
SITES = {
    "django": Site(
        "django",
        EXAMPLES / "django_site",
        web=(*GUNICORN, "shop.wsgi"),
        worker=("manage.py", "chasqui_worker", "--queues", "mail"),
        prepare=("manage.py", "migrate", "--run-syncdb", "--verbosity", "0"),
        path="/customers/",
    ),
    "fastapi": Site(
        "fastapi",
        EXAMPLES / "web",
        web=("-m", "uvicorn", "--port", "{port}", "--log-level", "warning", "fastapi_shop:app"),
        worker=("-m", "pychasqui.cli", "worker", "fastapi_shop:jobs"),
        as_json=True,
    ),
    "flask": Site(
        "flask",
        EXAMPLES / "web",
        web=(*GUNICORN, "--workers", "2", "flask_shop:app"),
        worker=("-m", "pychasqui.cli", "worker", "flask_shop:jobs"),
    ),
}


@dataclass
class Count:
    """What was seen of one site."""

    answered: dict[str, str] = field(default_factory=dict)  # the email of each request, and its job
    refused: list[str] = field(default_factory=list)
    last_run: dict[str, int] = field(default_factory=dict)  # of each job: which run has completed it
    dead: set[str] = field(default_factory=set)
    latencies: list[float] = field(default_factory=list)
    killed_at: list[float] = field(default_factory=list)


class Processes:
    """The web server and the worker of a site."""

    def __init__(self, site: Site, chosen: Environment, port: int, log: Path) -> None:
        self._site = site
        self._chosen = chosen
        self._port = port
        self._log = log
        self.worker: subprocess.Popen[bytes] | None = None
        self._all: list[subprocess.Popen[bytes]] = []

    def run(self, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
        command = [self._chosen.python, *(word.format(port=self._port) for word in words)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._site.folder, env=self._chosen.variables, stdout=log, stderr=log
            )
        self._all.append(process)
        return process

    def start_worker(self) -> None:
        self.worker = self.run(self._site.worker)

    def kill_worker(self) -> None:
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()

    def end(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._all:
            process.wait(PATIENCE_S)


async def load(site: Site, chosen: Environment, redis_url: str, options: argparse.Namespace) -> Count:
    folder = Path(tempfile.mkdtemp(prefix="chasqui-load-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        **chosen.variables,
        "CHASQUI_REDIS_URL": redis_url,
        "OUTBOX": str(folder / "outbox.txt"),
        "SHOP_DATABASE": str(folder / "shop.sqlite3"),
    }
    processes = Processes(site, Environment(chosen.python, variables), port, folder / "log")
    count = Count()
    try:
        if site.prepare:
            processes.run(site.prepare).wait()
        processes.run(site.web)
        processes.start_worker()
        async with watched(redis_url, count), Queue("mail", redis_url=redis_url) as queue:
            await send_requests(site, port, count, options, processes)
            await until_empty(queue, count)
    except BaseException:
        print((folder / "log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        processes.end()
    report(site, folder, count)
    shutil.rmtree(folder)
    return count


@asynccontextmanager
async def watched(redis_url: str, count: Count) -> AsyncIterator[None]:
    """Notes how each job ends, while inside."""

    async def watch() -> None:
        async with QueueEvents("mail", redis_url=redis_url, names=["completed", "dlq"]) as events:
            async for event in events:
                if event.name == "dlq":
                    count.dead.add(event.job_id or "")
                else:
                    count.last_run[event.job_id or ""] = int(str(event.fields.get("attempt", 0)))

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.2)
    yield
    watching.cancel()
    await asyncio.wait({watching})


async def send_requests(site: Site, port: int, count: Count, options: argparse.Namespace, processes: Processes) -> None:
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=50)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as client:
        await until_answered(client)
        kills = [options.seconds * (one + 1) / (options.kills + 1) for one in range(options.kills)]
        begin = time.monotonic()
        sent: list[asyncio.Task[None]] = []
        for number in range(options.seconds * options.rate):
            await asyncio.sleep(max(0.0, begin + number / options.rate - time.monotonic()))
            if kills and time.monotonic() - begin >= kills[0]:
                kills.pop(0)
                processes.kill_worker()
                count.killed_at.append(time.monotonic() - begin)
                processes.start_worker()
            sent.append(asyncio.ensure_future(send_one(site, client, f"{number}@example.org", count)))
        await asyncio.gather(*sent)
        print(f"{site.name}: {len(sent)} requests in {time.monotonic() - begin:.1f} s", flush=True)


async def until_answered(client: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            await client.get("/jobs/x")
        except httpx.TransportError:
            await asyncio.sleep(0.1)
        else:
            return
    raise TimeoutError("the web server does not answer")


async def send_one(site: Site, client: httpx.AsyncClient, email: str, count: Count) -> None:
    begin = time.monotonic()
    try:
        answer = await client.post(site.path, **site.body(email))
    except httpx.HTTPError as error:
        count.refused.append(f"{type(error).__name__}: {error}")
        return
    count.latencies.append(time.monotonic() - begin)
    if answer.status_code == 202:
        content = answer.json()
        count.answered[email] = content.get("job") or content["task"].partition(":")[2]
    else:
        count.refused.append(f"{answer.status_code}: {answer.text[:200]}")


async def until_empty(queue: Queue, count: Count) -> None:
    deadline = time.monotonic() + PATIENCE_S
    wanted = set(count.answered.values())
    while wanted - count.last_run.keys() - count.dead:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(wanted - count.last_run.keys())} jobs are not done: {await queue.counts()}")
        await asyncio.sleep(0.1)


def runs_by_email(folder: Path) -> Counter[str]:
    """How often each customer was welcomed."""
    if (folder / "outbox.txt").exists():
        return Counter((folder / "outbox.txt").read_text().split())
    with sqlite3.connect(folder / "shop.sqlite3") as database:
        return Counter(dict(database.execute("SELECT email, welcomed FROM shop_customer")))


def report(site: Site, folder: Path, count: Count) -> None:
    runs = runs_by_email(folder)
    once = [email for email in count.answered if runs[email] == 1]
    often = [email for email in count.answered if runs[email] > 1]
    explained = [email for email in often if count.last_run.get(count.answered[email], 0) > 1]
    never = [email for email in count.answered if runs[email] == 0]
    latencies = sorted(count.latencies)
    facts = {
        "answered": len(count.answered),
        "refused": len(count.refused),
        "done once": len(once),
        "more often": f"{len(often)}, {len(explained)} of them by a killed worker",
        "never": len(never),
        "dead": len(count.dead),
        "second runs": sum(run > 1 for run in count.last_run.values()),
        "workers killed at": ", ".join(f"{at:.1f} s" for at in count.killed_at),
        "answers p50": f"{1000 * latencies[len(latencies) // 2]:.0f} ms",
        "answers p99": f"{1000 * latencies[int(0.99 * len(latencies))]:.0f} ms",
    }
    for what, fact in facts.items():
        print(f"  {what:<18} {fact}", flush=True)
    for text in count.refused[:3]:
        print(f"  refused: {text}", flush=True)
    if count.refused or never or len(explained) != len(often) or count.dead:
        raise SystemExit(f"{site.name}: not every job was done once or explained")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="*", choices=[*SITES, []], default=[])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    chosen = environment(("3.12", "3.13", "3.14"), *PACKAGES)
    chosen.variables.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in options.sites or SITES:
        with RedisServer(tcp=True) as server:
            asyncio.run(load(SITES[name], chosen, server.url, options))


if __name__ == "__main__":
    main()
