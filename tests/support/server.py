"""A Redis server of the tests' own: private folder, unix socket, nothing shared with any other server.

Owns the process and its folder from start() to close(). Never connects to, signals or flushes a server that it did not
start. If the test process dies without closing it, a guard process takes the server down.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import hiredis
import redis

from pychasqui.embedded import find_server

PROJECT = Path(__file__).parents[2]
BEST_LAID = PROJECT / ".servers" / "redis-8.6" / "server"


PORT_TRIES = 5


class PortTaken(RuntimeError):
    """Another process has taken the port that was free a moment ago."""


class Version(NamedTuple):
    major: int
    minor: int
    patch: int


def server_binary() -> Path:
    """CHASQUI_TEST_SERVER, else the newest server in .servers, else the program of the embedded server."""
    named = os.environ.get("CHASQUI_TEST_SERVER")
    if named:
        return Path(named).absolute()
    return BEST_LAID if BEST_LAID.exists() else find_server()


@cache
def describe(binary: Path) -> tuple[str, Version]:
    """The product and its version, for instance ("Redis", (8, 6, 3))."""
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\w+) server v=(\d+)\.(\d+)\.(\d+)", text)
    assert found, f"{binary} --version says {text!r}"
    return found[1], Version(int(found[2]), int(found[3]), int(found[4]))


class RedisServer:
    """One server. start() and stop() are safe twice; the data folder and the addresses outlive a stop or a kill.

    `config` is passed on as given: RedisServer("--appendonly", "yes", "--maxmemory", "5mb").
    """

    def __init__(self, *config: str, tcp: bool = False, binary: Path | None = None) -> None:
        self.binary = binary or server_binary()
        self.config = config
        self.folder = Path(tempfile.mkdtemp(prefix="chasqui-test-"))
        self.socket_path = self.folder / "redis.sock"
        self.port = unused_port() if tcp else 0
        self._has_answered = False
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<RedisServer {self.label} at {self.socket_path}>"

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str:
        assert self.port, "this server has no TCP port: RedisServer(tcp=True)"
        return f"redis://127.0.0.1:{self.port}"

    @property
    def product(self) -> str:
        return describe(self.binary)[0]

    @property
    def version(self) -> Version:
        return describe(self.binary)[1]

    @property
    def label(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"

    @property
    def pid(self) -> int:
        assert self._process, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @cached_property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self.is_running:
            return
        for _ in range(PORT_TRIES):
            self._reap()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command_line(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._guard = _guard(self._process.pid, self.folder)
            try:
                self._wait_until_it_answers()
            except PortTaken:
                # Another process took it between the look and the start. A used port is kept, because clients
                # that wait for this server to come back know no other.
                if self._has_answered:
                    raise
                self.port = unused_port()
            else:
                self._has_answered = True
                return
        raise RuntimeError(f"{PORT_TRIES} free ports in a row were taken by others")

    def client(self) -> redis.Redis:
        """A blocking client for use in a `with`; bytes come back as bytes."""
        return redis.Redis(unix_socket_path=str(self.socket_path))

    def execute(self, *command: str | bytes | float) -> Any:
        """Send one command over a connection of its own."""
        with self.client() as client:
            return client.execute_command(*command)

    def ask(self, *command: str) -> Any:
        """Sends one command over a plain socket, and returns the reply as it is.

        For what nearly every test does: it costs a sixth of what a client costs.
        """
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.socket_path))
            line.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
            while (reply := reader.gets()) is False:
                received = line.recv(65536)
                assert received, "the server has closed the connection"
                reader.feed(received)
        assert not isinstance(reply, hiredis.HiredisError), reply
        return reply

    def pause(self) -> None:
        """Stop answering without closing anything, as a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it the orderly way, and wait until it is gone."""
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)
            self.resume()
        self._reap(patience=10)

    def kill(self) -> None:
        """Sends SIGKILL: data that was not yet written to disk is lost."""
        self._reap()

    def restart(self) -> None:
        """An orderly stop and a start at the same addresses. Data survives only with --appendonly yes."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it and remove its folder."""
        self._reap()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _command_line(self) -> list[str]:
        return [
            str(self.binary),
            *("--port", str(self.port)),
            *("--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket_path)),
            *("--unixsocketperm", "700"),
            *("--dir", str(self.folder)),
            *("--save", ""),
            *("--repl-diskless-sync-delay", "0"),  # else a new replica waits for 5 s in case another one comes
            *self.config,
        ]

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 50
        while not _answers(self.socket_path):
            if not self.is_running or time.monotonic() > deadline:
                self._reap()
                said = self._log.read_text(errors="replace")[-2000:]
                kind = PortTaken if self.port and "Address already in use" in said else RuntimeError
                raise kind(f"{self.binary} did not start:\n{said}")
            time.sleep(0.005)

    def _reap(self, *, patience: float = 0) -> None:
        """Wait `patience` seconds for the process to end by itself, then kill it."""
        if self._process is None:
            return
        try:
            if patience:
                self._process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # The guard goes first: once the server is reaped, its pid may belong to another process.
            if self._guard:
                self._guard.kill()
                self._guard.communicate()
            self._process.kill()
            self._process.wait()
            self._process = self._guard = None


def _guard(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    """A shell that waits for the end of its standard input, which comes when this process is gone for any reason."""
    script = 'read -r _; kill -9 "$1"; rm -rf "$2"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "guard", str(pid), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def _answers(path: Path) -> bool:
    """Whether the server takes commands: LOADING does not count, a demand for a password does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def unused_port() -> int:
    """A free loopback port below the range that outgoing connections use.

    Inside that range a client that keeps trying to reconnect to a server that is down may end up connected to itself.
    """
    # Not the seeded source, which is the same in every test process.
    for port in random.SystemRandom().sample(range(20000, 32000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free TCP port between 20000 and 32000")


async def has_xackdel(witness: Any) -> bool:
    """Whether the server acks and deletes by one command."""
    try:
        await witness.execute_command("XACKDEL", "nowhere", "default", "IDS", 1, "1-1")
    except redis.ResponseError:
        return False
    return True
