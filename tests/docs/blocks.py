"""The code blocks of the handbook: found, prepared and run.

- A `python` block runs as it stands. All blocks of a page share their names, and `await` may stand anywhere. One that
  calls `asyncio.run` is a program of its own. A `text` block behind it is what it prints.
- A block with a `title` is a file: it is written into a folder, and later blocks may run it.
- A `console` block is a session: each line behind `$` runs, and the lines below are what it prints on a terminal.
  Numbers, ids and spans of time may differ.
- An `sh` block is read: each `chasqui` in it is a command with options that exist.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from pychasqui import App
from pychasqui.cli.exits import ExitCode
from pychasqui.cli.main import chasqui

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
COLUMNS = "100"
LOOKS = re.compile(r"chasqui (?:ps|jobs?|workers|dlq (?:list|groups|show)|repeatable (?:list|next)|doctor|check) ")


@dataclass(frozen=True)
class Block:
    """One block of a page, and the line at which it begins."""

    language: str
    title: str
    code: str
    line: int


def blocks_of(text: str) -> list[Block]:
    return [
        Block(match["language"], match["title"] or "", match["code"], text.count("\n", 0, match.start()) + 1)
        for match in BLOCK.finditer(text)
    ]


def pages() -> dict[str, str]:
    return {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))}


def mask(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run: numbers, ids, spans of time, white space."""
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b\d{13}-\d+\b|\bc-[0-9a-f-]{36}\b", "ID", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(?:\b\d+(?:\.\d+)? (?:ms|s|m|h|d)\b ?)+", "SPAN ", text)
    text = re.sub(r'File "[^"]*/', 'File "', text)
    text = re.sub(r"\b[\d,.]*\d\b", "N", text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def read_command(line: str) -> None:
    """Fails if the line names a command or an option of chasqui that does not exist."""
    words = shlex.split(line, comments=True)
    if "|" in words or ">" in words or "<" in words:
        words = words[: min(words.index(word) for word in ("|", ">", "<") if word in words)]
    while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] in ("sudo", "env", "exec")):
        words = words[1:]
    if not words or words[0] != "chasqui":
        return
    command: click.Command = chasqui
    context = chasqui.make_context("chasqui", [], resilient_parsing=True)
    words = words[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command in: {line}"
        context = click.Context(found, parent=context, info_name=words[0], **found.context_settings)
        command, words = found, words[1:]
    if not isinstance(command, click.Group):
        with contextlib.suppress(click.BadParameter) if "@" in line or ".ndjson" in line else contextlib.nullcontext():
            command.make_context(context.info_name, words, parent=context.parent)  # a file need not exist


class PageRun:
    """The blocks of one page, run in order in a folder of their own against one server."""

    def __init__(self, folder: Path, redis_url: str, names: dict[str, Any]) -> None:
        self.folder = folder
        self.environment = {"CHASQUI_REDIS_URL": redis_url, "COLUMNS": COLUMNS, "FORCE_COLOR": "1"}
        self.names = names
        self.workers: list[subprocess.Popen[str]] = []

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        """The folder, the variables and the import path of the page, for what runs in this process."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        sys.path.insert(0, str(self.folder))
        with contextlib.chdir(self.folder):
            try:
                yield
            finally:
                sys.path.remove(str(self.folder))
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})

    def run(self, blocks: list[Block]) -> None:
        printed = ""
        with self.at_home(), asyncio.Runner() as runner:
            for block in blocks:
                where = f"line {block.line}"
                if block.title:
                    path = self.folder / block.title
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.code)
                elif block.language == "python":
                    printed = self.run_python(block, runner)
                elif block.language == "text" and printed:
                    assert mask(printed) == mask(block.code), f"{where} differs from what is printed"
                    printed = ""
                elif block.language == "console":
                    self.run_session(block)
            if "queue" in self.names:
                runner.run(self.names["queue"].close())

    def run_python(self, block: Block, runner: asyncio.Runner) -> str:
        out = io.StringIO()
        flags = 0 if "asyncio.run(" in block.code else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile("\n" * block.line + block.code, "page", "exec", flags=flags, dont_inherit=True)
        with contextlib.redirect_stdout(out):
            if not flags:
                self._run_program(code)
            elif code.co_flags & inspect.CO_COROUTINE:
                runner.run(asyncio.wait_for(eval(code, self.names), 20))
            else:
                runner.run(_call(lambda: exec(code, self.names)))
        return out.getvalue()

    def _run_program(self, code: Any) -> None:
        """Runs a program in a thread, which has no event loop yet."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                exec(code, {"__name__": "__main__"})
            except BaseException as error:  # noqa: BLE001  raised below
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the program does not end"
        if errors:
            raise errors[0]

    def run_session(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            printed = self.run_command(command)
            deadline = time.monotonic() + 20
            while expected.strip() and mask(printed) != mask(expected) and LOOKS.match(command):
                assert time.monotonic() < deadline, f"`{command}` prints\n{printed}"
                time.sleep(0.05)  # what the page has begun is not done yet
                printed = self.run_command(command)
            if expected.strip():
                assert mask(printed) == mask(expected), f"`{command}` prints\n{printed}"

    @contextlib.contextmanager
    def own_modules(self) -> Iterator[None]:
        """The folder is on the import path while inside, and its modules are forgotten: another page has others."""
        before = list(sys.path)
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            sys.path[:] = before
            for name, module in list(sys.modules.items()):
                if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                    del sys.modules[name]

    def run_command(self, command: str) -> str:
        with self.own_modules():
            return self._run_command(command)

    def _run_command(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        if words[:2] == ["chasqui", "worker"]:
            self.start_worker(["-m", "pychasqui.cli", *words[1:]])
            return ""
        if words[:3] == ["python", "manage.py", "chasqui_worker"]:
            self.start_worker(words[1:])
            return ""
        # Django has one set of settings in a process.
        if words[:2] == ["python", "-m"] or (words[0] == "python" and (self.folder / "manage.py").exists()):
            program = [sys.executable, *words[1:]]
            done = subprocess.run(program, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stdout
            return done.stdout
        if words[0] == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                made = runpy.run_path(str(self.folder / words[1]), run_name="__main__")
            for app in {id(value): value for value in made.values() if isinstance(value, App)}.values():
                app.sync.close()  # its exit would
            return out.getvalue()
        assert words[0] == "chasqui", f"cannot run {command!r}"
        result = CliRunner().invoke(chasqui, words[1:], catch_exceptions=False)
        is_not_there_yet = result.exit_code == ExitCode.NOT_FOUND and LOOKS.match(command)
        assert result.exit_code == 0 or is_not_there_yet, result.output
        return result.stdout

    def start_worker(self, words: list[str]) -> None:
        """Starts a program that runs workers."""
        worker = subprocess.Popen(
            [sys.executable, *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.workers.append(worker)
        assert worker.stderr is not None
        assert any("runs queue" in line for line in worker.stderr), "the worker does not start"

    def close(self) -> list[int]:
        """Ends the workers as Ctrl-C does; returns their exit codes."""
        for worker in self.workers:
            worker.send_signal(signal.SIGINT)
        for worker in self.workers:
            worker.communicate(timeout=20)
        return [worker.returncode for worker in self.workers]


async def _call(function: Any) -> None:
    function()
