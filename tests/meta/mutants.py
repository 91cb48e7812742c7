"""Runs mutants of the Lua scripts against the tests of those scripts: `make mutants`.

    make mutants ARGS="--only promote lib/id_of --all"
    make mutants ARGS="--sample 300 --seed 2 --minutes 15"

A mutant of a file in lua/lib/ is a mutant of every script that includes the file; the tests of one of them must notice.
A mutant that nothing notices names a behaviour that nothing holds, or belongs to equivalent_mutants.py with its reason.
"""

from __future__ import annotations

import argparse
import inspect
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pychasqui._redis import scripts
from tests.meta.equivalent_mutants import EQUIVALENT
from tests.meta.lua_mutants import Mutant, mutants_of
from tests.scripts.group import Group
from tests.scripts.scenarios import SCENARIOS, Scenario
from tests.scripts.test_ack import GROUP, STREAM, Acking
from tests.scripts.test_add import Adding
from tests.scripts.test_keys import check_keys
from tests.scripts.test_refusals import wrongs_of
from tests.support.server import RedisServer

Check = Callable[[Any], None]  # one test function, with the client for what it needs
ANSWERS_WITHIN_S = 3.0  # a mutant that holds the server for longer never ends
PATIENCE_S = 50.0  # for scripts as they are, on a busy machine
MOST_ANSWERS_TAKE = 10  # times as long as one may: a mutant that is never done keeps a test calling it


@cache
def sources() -> dict[str, str]:
    """Every Lua file by its name without suffix, those of lib/ with that before it."""
    lua = files(scripts.__package__).joinpath("lua")
    found = {file.name: file for file in lua.iterdir() if file.name.endswith(".lua")}
    found |= {f"lib/{file.name}": file for file in lua.joinpath("lib").iterdir()}
    return {name.removesuffix(".lua"): file.read_text() for name, file in sorted(found.items())}


def script_of(name: str) -> scripts.Script:
    script: scripts.Script = getattr(scripts, name.upper())
    return script


def scripts_with(file: str) -> list[str]:
    if not file.startswith("lib/"):
        return [file]
    return [name for name in sources() if not name.startswith("lib/") and sources()[file] in _text(name)]


@cache
def _text(name: str) -> str:
    return script_of(name).text.decode()


def all_mutants(only: list[str] | None = None) -> list[Mutant]:
    found = [mutant for file, source in sources().items() for mutant in mutants_of(file, source)]
    wanted = [mutant for mutant in found if not only or mutant.file in only]
    return [mutant for mutant in wanted if (mutant.file, mutant.line, change_of(mutant)) not in EQUIVALENT]


def change_of(mutant: Mutant) -> str:
    return mutant.change(sources()[mutant.file])


SCRIPTS_ABOUT_IDS = ("add_with_options", "cancel", "move_delayed", "promote", "purge_delayed", "reschedule")

# The tests of a script, as functions of a client --------------------------------------------------------------------


@cache
def checks_of(script: str) -> dict[str, Check]:
    """Left out: tests with marks, unless these are cases, and those that take long."""
    functions = _tests_in(f"test_{script}")
    if script in SCRIPTS_ABOUT_IDS:
        functions |= _tests_in("test_jobs_of_one_id")
    checks = {}
    for name, function in functions.items():
        cases = cases_of(function)
        if name.startswith("test_") and cases and "10_000" not in name:
            wanted = [word for word in inspect.signature(function).parameters if word not in cases[0]]
            if len(wanted) == 1 and wanted[0] in STAGES:
                checks[name] = _on_stage(function, STAGES[wanted[0]], cases)
            if script == "ack_with_result" and wanted == ["group"]:
                checks[f"{name}, at once"] = _on_stage(function, _group_of_new_server, cases)
    own = [one for one in SCENARIOS if one.script == script]
    checks |= {f"keys of {one}": partial(check_keys, one) for one in own}
    return checks | {f"refusals of {one}": _refusals(one) for one in own}


def _tests_in(file: str) -> dict[str, Any]:
    module = import_module(f"tests.scripts.{file}")
    functions: dict[str, Any] = dict(inspect.getmembers(module, inspect.isfunction))
    for _, group in inspect.getmembers(module, inspect.isclass):
        if group.__module__ == module.__name__ and group.__name__.startswith("Test"):
            functions |= {name: getattr(group(), name) for name in dir(group)}
    return functions


def cases_of(function: Any) -> list[dict[str, Any]]:
    """The arguments of each case of a test: one without any if it has no cases, none if it has other marks."""
    cases: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "pytestmark", ()):
        if mark.name != "parametrize":
            return []
        names, values = mark.args
        words = [names] if isinstance(names, str) else names
        rows = [[value] if isinstance(names, str) else value for value in values]
        cases = [{**case, **dict(zip(words, row, strict=True))} for case in cases for row in rows]
    return cases


def _refusals(scenario: Scenario) -> Check:
    def check(client: Any) -> None:
        assert wrongs_of(scenario, client) == []

    return check


def _group(client: Any) -> Group:
    group = Group(client)
    group.create()
    return group


def _group_of_new_server(client: Any) -> Group:
    group = _group(client)
    group.at_once = group.has_msetex
    return group


def _acking(client: Any) -> Acking:
    client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    return Acking(client)


STAGES: dict[str, Callable[[Any], Any]] = {"group": _group, "acking": _acking, "adding": Adding}


def _on_stage(function: Callable[..., None], stage: Callable[[Any], Any], cases: list[dict[str, Any]]) -> Check:
    def check(client: Any) -> None:
        for case in cases:
            client.flushall()
            function(stage(client), **case)

    return check


# Running ------------------------------------------------------------------------------------------------------------


class BoundedClient(redis.Redis):  # type: ignore[misc]  # it has no types here
    """Sends nothing any more once its time is over."""

    ends_at = math.inf

    def execute_command(self, *words: Any, **options: Any) -> Any:
        assert time.monotonic() < self.ends_at, "the test does not end"
        return super().execute_command(*words, **options)


class Trial:
    """Runs mutants on a server of its own, and begins with the check that noticed the last one."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._order: dict[str, list[str]] = {}

    def failing(self, script: str) -> list[str]:
        """The checks that the script fails as it is."""
        return [name for name in checks_of(script) if self._is_noticed(checks_of(script)[name], PATIENCE_S)]

    def noticed_by(self, mutant: Mutant) -> str:
        """The check that notices this mutant; "" if none does."""
        names = scripts_with(mutant.file)
        with _mutated(mutant, names):
            for script in names:
                order = self._order.setdefault(script, list(checks_of(script)))
                for check in order:
                    if self._is_noticed(checks_of(script)[check]):
                        order.remove(check)
                        order.insert(0, check)
                        return f"{script}: {check}"
        return ""

    def _is_noticed(self, check: Check, answers_within_s: float = ANSWERS_WITHIN_S) -> bool:
        self._server.start()
        path, retry = str(self._server.socket_path), Retry(NoBackoff(), 0)
        with BoundedClient(unix_socket_path=path, socket_timeout=answers_within_s, retry=retry) as client:
            client.ends_at = time.monotonic() + MOST_ANSWERS_TAKE * answers_within_s
            try:
                check(client)
            except (redis.TimeoutError, redis.ConnectionError):
                self._server.kill()
                return True
            except (Exception, pytest.fail.Exception):  # noqa: BLE001  what a mutant returns breaks tests in any way
                return True
            return False


@contextmanager
def _mutated(mutant: Mutant, names: list[str]) -> Iterator[None]:
    source = sources()[mutant.file]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            text = mutant.apply(source) if mutant.file == name else _text(name).replace(source, mutant.apply(source))
            if mutant.file == name:
                text = scripts.include_library_files(text.encode()).decode()
            patch.setattr(script_of(name), "text", text.encode())
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--only", nargs="*", help="files, as in: promote lib/id_of")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--least", type=float, default=0.9, help="the kill rate below which this fails")
    wanted = parser.parse_args()
    mutants = all_mutants(wanted.only)
    if not wanted.all and len(mutants) > wanted.sample:
        mutants = random.Random(wanted.seed).sample(mutants, wanted.sample)
    print(f"{len(mutants)} mutants, seed {wanted.seed}")
    end, run, survivors = time.monotonic() + 60 * wanted.minutes, 0, 0
    with RedisServer() as server:
        trial = Trial(server)
        for mutant in mutants:
            if time.monotonic() > end:
                print(f"the time is up: {len(mutants) - run} were not run")
                break
            run += 1
            if not trial.noticed_by(mutant):
                survivors += 1
                print(f"survived: {mutant.file}:{mutant.number}  {change_of(mutant)}\n    {mutant.line}", flush=True)
    rate = (run - survivors) / max(1, run)
    print(f"{run - survivors} of {run} mutants were noticed: {rate:.1%}")
    return 0 if rate >= wanted.least else 1


if __name__ == "__main__":
    sys.exit(main())
