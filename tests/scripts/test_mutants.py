"""The tests of the scripts have teeth: each hand-made mutant of a script fails at least one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import redis

from pychasqui._redis import scripts
from tests.scripts.group import Group
from tests.scripts.mutants.catalogue import MUTANTS, Mutant
from tests.scripts.scenarios import SCENARIOS, Scenario
from tests.scripts.test_ack import GROUP, STREAM, Acking
from tests.scripts.test_add import Adding
from tests.scripts.test_refusals import wrongs_of
from tests.support.server import RedisServer

Check = Callable[[Any], None]  # one test function, with the client for what it needs


@pytest.fixture(scope="module")
def client(server: RedisServer) -> Iterator[Any]:
    server.start()
    with server.client() as client:
        yield client


def checks_of(script: str) -> dict[str, Check]:
    """The tests of this script, as functions of a client. Left out: those with cases, and those that take long."""
    module = import_module(f"tests.scripts.test_{script}")
    functions = dict(inspect.getmembers(module, inspect.isfunction))
    for _, group in inspect.getmembers(module, inspect.isclass):
        if group.__module__ == module.__name__ and group.__name__.startswith("Test"):
            functions |= {name: getattr(group(), name) for name in dir(group)}
    checks = {}
    for name, function in functions.items():
        if name.startswith("test_") and not hasattr(function, "pytestmark") and "10_000" not in name:
            wanted = list(inspect.signature(function).parameters)
            if len(wanted) == 1 and wanted[0] in STAGES:
                checks[name] = _on_stage(function, STAGES[wanted[0]])
            if script == "ack_with_result" and wanted == ["group"]:
                checks[f"{name}, at once"] = _on_stage(function, _group_of_new_server)
    checks |= {f"refusals of {one}": _refusals(one) for one in SCENARIOS if one.script == script}
    return checks


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


def _on_stage(function: Callable[[Any], None], stage: Callable[[Any], Any]) -> Check:
    def check(client: Any) -> None:
        client.flushall()
        function(stage(client))

    return check


def is_caught(check: Check, client: Any) -> bool:
    try:
        check(client)
    except (AssertionError, LookupError, TypeError, ValueError, pytest.fail.Exception, redis.RedisError):
        return True
    return False


SCRIPTS = sorted({mutant.script for mutant in MUTANTS})


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_as_it_is_passes_the_checks(client: Any, script: str) -> None:
    checks = checks_of(script)
    assert len(checks) >= 5
    assert [name for name, check in checks.items() if is_caught(check, client)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_caught(client: Any, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    if mutant.needs_msetex and not Group(client).has_msetex:
        pytest.skip("this server has no MSETEX, which the mutant is about")
    script: scripts.Script = getattr(scripts, mutant.script.upper())
    monkeypatch.setattr(script, "text", mutant.apply(script.text.decode()).encode())
    assert any(is_caught(check, client) for check in checks_of(mutant.script).values()), "nothing notices"
    client.ping()  # fails while a mutant that never ends holds the server up, which every check would notice


def test_every_script_has_mutants() -> None:
    lua = files(scripts.__package__).joinpath("lua")
    assert {Path(file.name).stem for file in lua.iterdir() if file.name.endswith(".lua")} == set(SCRIPTS)


def test_every_text_carries_what_it_includes() -> None:
    lib = files(scripts.__package__).joinpath("lua", "lib")
    shared = {file.name: file.read_bytes() for file in lib.iterdir()}
    for script in (scripts.PROMOTE, scripts.PURGE_DELAYED, scripts.PURGE_WAITING):
        assert script.text.count(shared["id_of.lua"]) == 1
    for script in (scripts.ACK_UNIQUE, scripts.BURY):
        assert script.text.count(shared["release_id.lua"]) == 1
    for script in (scripts.PROMOTE, scripts.DUE_REPEATABLES):
        assert script.text.count(shared["other_leader.lua"]) == 1
    assert not [name for name in SCRIPTS if b"include" in getattr(scripts, name.upper()).text]


def test_no_mutant_is_in_the_catalogue_twice() -> None:
    texts = [(mutant.script, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(texts) == len(set(texts))
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)
