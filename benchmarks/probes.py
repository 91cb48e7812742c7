"""What the bench itself does to the server or asks of it while a peer is measured: the same for everybody."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from benchmarks.payload import STREAM
from benchmarks.wire import Wire

REFILL = """
local missing = tonumber(ARGV[1]) - redis.call('XLEN', KEYS[1])
if missing < 2000 then return 0 end
for _ = 1, missing do redis.call('XADD', KEYS[1], '*', 'd', ARGV[2], 'n', ARGV[3]) end
return missing
"""


@contextlib.contextmanager
def refilling(url: str, backlog: int) -> Iterator[None]:
    """Keeps the stream within 2,000 entries of `backlog` by copies of its first job."""
    over = threading.Event()

    def refill(wire: Wire, job: list[bytes]) -> None:
        while not over.wait(0.002):
            wire.call("EVAL", REFILL, 1, STREAM, backlog, *job)

    with Wire(url) as wire:
        ((_, fields),) = wire.call("XRANGE", STREAM, "-", "+", "COUNT", 1)
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        thread = threading.Thread(target=refill, args=(wire, [named[b"d"], named[b"n"]]))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


SET_PAUSE_S = 0.001


@contextlib.contextmanager
def another_client(url: str) -> Iterator[list[tuple[int, int]]]:
    """SETs a small key, one after another with a pause of 1 ms, and lists when each began and how long it took (us)."""
    over, found = threading.Event(), list[tuple[int, int]]()

    def keep_setting(wire: Wire) -> None:
        while not over.is_set():
            begun_ns = time.monotonic_ns()
            wire.call("SET", "bench:neighbour", "1")
            found.append((begun_ns // 1000, (time.monotonic_ns() - begun_ns) // 1000))
            time.sleep(SET_PAUSE_S)

    with Wire(url) as wire:
        thread = threading.Thread(target=keep_setting, args=(wire,))
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def append_only(url: str) -> Iterator[None]:
    """The append-only file on, written to disk every second, as long as the block runs."""
    with Wire(url) as wire:
        wire.call("CONFIG", "SET", "appendfsync", "everysec")
        wire.call("CONFIG", "SET", "appendonly", "yes")
        while (found := wire.info("persistence"))["aof_rewrite_in_progress"] != "0" or found["aof_enabled"] != "1":
            time.sleep(0.01)
        try:
            yield
        finally:
            wire.call("CONFIG", "SET", "appendonly", "no")


def cpu_seconds(url: str) -> float:
    """The CPU time that the server has used since it was started, in its own code and in the kernel."""
    with Wire(url) as wire:
        found = wire.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def memory_of_data(wire: Wire) -> int:
    """What the server uses without its clients, scripts and Lua, once the peer's own connections are gone."""
    deadline = time.monotonic() + 10
    while int(wire.info("clients")["connected_clients"]) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    found = wire.info("memory")
    components = ("mem_clients_normal", "used_memory_scripts_eval", "used_memory_vm_total")
    return int(found["used_memory"]) - sum(int(found.get(part, 0)) for part in components)
