"""The process that runs an embedded server while any process uses it; one for each folder.

It starts and ends the server, and starts it again if it dies. It never touches the data, and its users talk to the
server directly. It is run as a file and imports only the standard library, so that it starts within milliseconds.

Three locks in the folder show which processes run. The kernel releases a lock when its last holder has ended:

    users.lock       shared by every process that uses the server; exclusive once the supervisor has decided to end it
    caretaker.lock   held by the supervisor from its start, with its pid inside: the process that starts it takes
                     the lock and passes it on
    server.lock      held by the server itself, which inherits it: two servers never write to one folder, even if the
                     supervisor was killed. The next supervisor then takes over the server that it finds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

POLL_S = 0.1
SHUTDOWN_S = 10.0
MAX_STARTS_IN_A_ROW = 3


class ServerFiles:
    """The paths of the files in a server's folder."""

    def __init__(self, folder: Path) -> None:
        self.users_lock = folder / "users.lock"
        self.supervisor_lock = folder / "caretaker.lock"  # the supervisor's; earlier versions lock the same file
        self.server_lock = folder / "server.lock"
        self.server_pid = folder / "server.pid"
        self.log = folder / "server.log"


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Returns a descriptor that holds the lock until it is closed; None if another process holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def does_server_answer(socket_path: Path) -> bool:
    """Whether a server accepts commands there. A server that still loads its data does not."""
    return _send_command_ignoring_errors(socket_path, b"PING\r\n").startswith(b"+PONG")


def _send_command_ignoring_errors(socket_path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(socket_path))
            connection.sendall(command)
            return connection.recv(128)
        except OSError:
            return b""


class EmbeddedServerSupervisor:
    """Runs from the first use of the server until it has been unused for `linger_s`."""

    def __init__(self, folder: Path, binary: Path, socket_path: Path, linger_s: float) -> None:
        self._folder = folder
        self._files = ServerFiles(folder)
        self._binary = binary
        self._socket_path = socket_path
        self._linger_s = linger_s
        self._server: subprocess.Popen[bytes] | None = None
        self._starts_in_a_row = 0  # of a server that was killed before it answered

    def run(self) -> None:
        self._wait_until_unused_restarting_server()
        # Held until this process is gone: a user that arrives meanwhile waits for that, then starts a new supervisor.
        while try_lock(self._files.users_lock) is None:
            self._wait_until_unused_restarting_server()
        self.end_server()

    def end_server(self) -> None:
        """Shuts the server down, so that it writes its data; kills it if it does not end."""
        _send_command_ignoring_errors(self._socket_path, b"SHUTDOWN\r\n")
        if not self._wait_until_server_ended(SHUTDOWN_S):
            log_line("the server has not shut down in time and is killed")
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._files.server_pid.read_text()), signal.SIGKILL)
            self._wait_until_server_ended(SHUTDOWN_S)

    def _wait_until_unused_restarting_server(self) -> None:
        last_used = time.monotonic()
        while True:
            self._start_server_unless_running_and_wait()
            if self._is_used():
                last_used = time.monotonic()
            elif time.monotonic() - last_used >= self._linger_s:
                return
            time.sleep(POLL_S)

    def _is_used(self) -> bool:
        unused = try_lock(self._files.users_lock)
        if unused is not None:
            os.close(unused)
        return unused is None

    def _start_server_unless_running_and_wait(self) -> None:
        lock = try_lock(self._files.server_lock)
        if lock is None:
            return
        if self._server:
            log_line(f"the server ended with status {self._server.wait()} and is started again")
        try:
            self._server = subprocess.Popen(self._make_server_command(), stdin=subprocess.DEVNULL, pass_fds=(lock,))
        except OSError as error:
            sys.exit(f"{self._binary} cannot be run: {error}")
        os.close(lock)
        self._starts_in_a_row += 1
        while not does_server_answer(self._socket_path):
            if (status := self._server.poll()) is not None:
                # One that was killed may have answered a user already, who counts on this process to start it again.
                if status < 0 and self._starts_in_a_row < MAX_STARTS_IN_A_ROW:
                    return
                sys.exit(f"{self._binary} ended with status {status} before it answered")
            time.sleep(0.005)
        self._starts_in_a_row = 0

    def _make_server_command(self) -> list[str]:
        return [
            str(self._binary),
            *("--port", "0"),
            *("--unixsocket", str(self._socket_path)),
            *("--unixsocketperm", "700"),
            *("--dir", str(self._folder)),
            *("--pidfile", str(self._files.server_pid)),
            *("--appendonly", "yes"),
            *("--appendfsync", "everysec"),
            *("--save", ""),
        ]

    def _wait_until_server_ended(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._server:
                self._server.poll()
            lock = try_lock(self._files.server_lock)
            if lock is not None:
                os.close(lock)
                return True
            time.sleep(0.01)
        return False


def log_line(line: str) -> None:
    sys.stderr.write(f"supervisor {os.getpid()}: {line}\n")


def main() -> None:
    """The arguments are folder, server program, socket and linger in ms; the supervisor lock is inherited."""
    folder, binary, socket_path, linger_ms = sys.argv[1:]
    # The process that starts this one waits for it, so it must not keep a child that it does not know of.
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    ServerFiles(Path(folder)).supervisor_lock.write_text(f"{os.getpid()}\n")
    supervisor = EmbeddedServerSupervisor(Path(folder), Path(binary), Path(socket_path), float(linger_ms) / 1000)

    def end_server_and_exit(number: int, frame: FrameType | None) -> NoReturn:
        supervisor.end_server()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end_server_and_exit)
    supervisor.run()


if __name__ == "__main__":
    main()
