"""Runs commands in forks of a process that has imported the command line: a process of its own, without the start.

A start of Python with the imports takes ten times as long as most commands. The program gets its orders over the socket
whose number is its argument: the arguments, the folder and the environment, with standard input, output and error.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import socket
import struct
import sys

import pychasqui
from pychasqui.cli.main import COMMANDS, main


def become(order: dict[str, object], streams: list[int]) -> None:
    """Turns a fork into the process that the order asks for."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(str(order["folder"]))
    environment = order["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    arguments = order["arguments"]
    assert isinstance(arguments, list)
    sys.argv = ["chasqui", *arguments]
    sys.stdin, sys.stdout, sys.stderr = (standard_stream(number) for number in range(3))


def standard_stream(number: int) -> io.TextIOWrapper:
    """A standard stream as Python makes it at its start."""
    raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(buffer, errors=errors, line_buffering=number == 2)


def serve(line: socket.socket) -> int:
    """Returns the exit code of a command in its fork, and 0 in the server once the test run has ended."""
    while True:
        order, streams, _, _ = socket.recv_fds(line, 1 << 20, 3)
        if not order:
            return 0
        child = os.fork()
        if not child:
            line.close()
            become(json.loads(order), streams)
            return main()
        for stream in streams:
            os.close(stream)
        line.send(struct.pack("i", child))
        line.send(struct.pack("i", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


if __name__ == "__main__":
    for module in {entry.module for entry in COMMANDS.values()}:
        importlib.import_module(module)
    for name in pychasqui.__all__:  # a command imports what it needs of these when it runs
        getattr(pychasqui, name)
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
