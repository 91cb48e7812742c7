"""Runs the code of a program in a process of its own, a fork of one that has imported pychasqui: see fork_server.py.

It is for tests of what a running program does. What an interpreter does at its start and its end is tested with one
that is started for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.forks import ForkedProcess, fork_server


class Program:
    """As much of asyncio.subprocess.Process as tests need."""

    def __init__(self, process: ForkedProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._process = process
        self.stdout = stdout
        self.stderr = stderr

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int | None:
        return await asyncio.to_thread(self._process.wait)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Returns what it writes from now on, once it has ended."""
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    async def end(self) -> None:
        """Kills it and all processes that it has forked, and waits until they have closed their streams."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.kill()  # it may not lead a session yet
        await self.communicate()


async def start_program(code: str, *arguments: str, stdin: int | None = None) -> Program:
    """Starts it in a session of its own. Without `stdin`, a descriptor, it has no input."""
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    with open(os.devnull, "rb") as nothing:
        its_in = nothing.fileno() if stdin is None else stdin
        process = fork_server("pychasqui").start(
            *("-c", code, *arguments), stdin=its_in, stdout=its_out, stderr=its_err, leads_session=True
        )
    for end in (its_out, its_err):
        os.close(end)
    return Program(process, await _reader(out), await _reader(err))


@asynccontextmanager
async def started_program(code: str, *arguments: str) -> AsyncIterator[Program]:
    """Starts it in a session of its own. At the end the processes of that session are killed."""
    program = await start_program(code, *arguments)
    try:
        yield program
    finally:
        await program.end()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return reader
