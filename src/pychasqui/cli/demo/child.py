"""A process of the demo, as seen by the one that started it."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

import click

from ..exits import CommandFailure, ExitCode
from .messages import Act, Plan, Progress, Scene, Verdict, read_report, write

PATIENCE_S = 10.0


class Child:
    """Started on entering, ended on leaving: in order if all went well, at once if not.

    It has a session of its own, so that Ctrl-C reaches it only through its parent. Should the parent be killed, the end
    of the pipes between them ends it too.
    """

    def __init__(self, role: str, plan: Plan, news: asyncio.Event) -> None:
        self.progress: Progress | None = None  # None until it is ready
        self.scenes: list[Scene] = []
        self.verdict: Verdict | None = None
        self._role = role
        self._plan = plan
        self._news = news  # set whenever something here has changed
        self._complaints = b""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", f"{__package__}.{self._role}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._listening = asyncio.create_task(self._listen())
        self._send(write(self._plan))
        return self

    def tell(self, act: Act) -> None:
        self.progress = Progress()
        self._send(write(act))

    def dismiss(self) -> None:
        """Let it finish what it is at, and end. Safe twice."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def check_health(self) -> None:
        """Raise if it has ended in trouble, with its own words and its own exit code."""
        if not self._listening.done() or self._process.returncode == 0:
            return
        words = self._complaints.decode(errors="replace").strip().removeprefix("Error: ")
        code = self._process.returncode or ExitCode.FAILED
        raise CommandFailure(words or f"the {self._role} process ended with status {code}", max(code, ExitCode.FAILED))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
        if error is not None and self._process.returncode is None:
            self._process.kill()
        await asyncio.wait({self._listening}, timeout=PATIENCE_S)
        if self._process.returncode is None:
            self._process.kill()
        await self._listening
        if error is None and self._complaints:
            click.echo(self._complaints, err=True, nl=False)

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    async def _listen(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        complaining = asyncio.create_task(self._process.stderr.read())
        async for line in self._process.stdout:
            message = read_report(line)
            if isinstance(message, Progress):
                self.progress = message
            elif isinstance(message, Scene):
                self.scenes.append(message)
            else:
                self.verdict = message
            self._news.set()
        self._complaints = await complaining
        await self._process.wait()
        self._news.set()
