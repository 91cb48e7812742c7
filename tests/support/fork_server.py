"""Runs programs in forks of a process that has imported what they need: processes of their own, without the start.

A start of Python with the imports takes ten times as long as most programs of the tests. Imports nothing of the suite,
so that any interpreter can run it. Its arguments are the number of a socket, and the modules to import. An order over
the socket has the program, its arguments, its folder, its environment and whether it leads a session as JSON, and four
descriptors: standard input, output and error, and one that gets the number of the process and, when it has ended, its
exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Any

NUMBER = struct.Struct("i")


def import_all(names: list[str]) -> None:
    """A package whose names are imported when they are used imports all of them now."""
    for name in names:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            getattr(module, each)


def serve(line: socket.socket) -> dict[str, Any] | None:
    """Returns the order in the fork that is to run it, and None in the server once the test run has ended."""
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report_ended(running)
        if line.fileno() not in ready:
            continue
        order, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not order:
            return None
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.close()
            for descriptor in (woken, wakes, descriptors.pop(), *running.values()):
                os.close(descriptor)
            fork: dict[str, Any] = json.loads(order)
            become(fork, descriptors)
            return fork
        running[child] = descriptors.pop()
        os.write(running[child], NUMBER.pack(child))
        for descriptor in descriptors:
            os.close(descriptor)


def report_ended(running: dict[int, int]) -> None:
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        report = running.pop(child)
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(report, NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(report)


def become(order: dict[str, Any], streams: list[int]) -> None:
    """Turns a fork into the process that the order asks for."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    for stream in streams:
        if stream > 2:
            os.close(stream)
    if order["leads_session"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["program"], *order["arguments"]]
    if order["program"] == "-c":
        order["code"] = sys.argv.pop(1)
    sys.stdin, sys.stdout, sys.stderr = (standard_stream(number) for number in range(3))


def standard_stream(number: int) -> io.TextIOWrapper:
    """A standard stream as Python makes it at its start."""
    raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(buffer, errors=errors, line_buffering=number == 2 or raw.isatty())


def run(order: dict[str, Any]) -> None:
    program = order["program"]
    if program == "-c":  # in this module, whose names live until the interpreter ends
        exec(order["code"], globals())
    elif program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        run_module(program)


def run_module(name: str) -> None:
    """Runs it to its sys.exit(), and ends without the last part of what an interpreter does at its end.

    That part frees every object, which copies all of the memory that is shared with the server of forks: 24 of the 40
    ms of a short command. Threads, exit functions and streams end as always, and cycles of what the program made are
    freed. Any other end, a text as the exit code or a stream that cannot be written are left to the interpreter.
    """
    code: int | None = None
    try:
        runpy.run_module(name, run_name="__main__")
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code
    threading._shutdown()  # type: ignore[attr-defined]  # the interpreter calls it, and typeshed does not have it
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code or 0)


if __name__ == "__main__":
    import_all(sys.argv[2:])
    # A collection in a fork would write to every object and so copy all of the memory: 80 of 110 ms of a short command.
    gc.freeze()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        run(wanted)
