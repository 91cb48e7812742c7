"""The one server everybody is measured on: found, started on a free loopback port, stopped again."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wire import Wire

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning")


@dataclass(frozen=True)
class Server:
    url: str
    port: int
    version: str
    binary: Path

    def has(self, major: int, minor: int) -> bool:
        return tuple(int(part) for part in self.version.split(".")[:2]) >= (major, minor)


def find_server(named: str | None) -> Path:
    """The binary named on the command line, by the environment, by the project's own set, or by PATH."""
    candidates = [
        named or os.environ.get("CHASQUI_TEST_SERVER"),
        ROOT / ".servers" / "redis-8.6" / "server",
        shutil.which("redis-server"),
    ]
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            return Path(candidate).absolute()
    raise SystemExit("benchmarks: no redis-server found; name one with --server, or let tools/get-servers get one")


@contextlib.contextmanager
def running(binary: Path) -> Iterator[Server]:
    """A server with persistence off and its files in a private folder, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        port = _free_port()
        command = [str(binary), "--port", str(port), "--dir", folder, *SETTINGS]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            yield Server(url, port, _version(url, process), binary)
        finally:
            process.terminate()
            process.wait()


def find_redis_benchmark(server: Path) -> Path | None:
    """redis-benchmark of the same version, which lies next to the server, or else whatever PATH has."""
    for name in ("benchmark", "redis-benchmark"):
        if (server.parent / name).exists():
            return server.parent / name
    found = shutil.which("redis-benchmark")
    return Path(found) if found else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _version(url: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), Wire(url) as wire:
            return wire.info("server")["redis_version"]
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("benchmarks: the server did not start")
        time.sleep(0.05)
