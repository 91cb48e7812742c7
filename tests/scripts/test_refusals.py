"""No script fails after its first write: no refusal of a server loses or doubles a job, or leaves it half done.

For every script each of its commands is refused once, and each of its keys, and each key is of another type, and each
stream is out of ids, and the memory is full. Then each job is either where it was, with all that belongs to it, or
where it was to go; and when nothing is refused any more, the same call brings it there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import redis

from pychasqui._redis import scripts
from tests.scripts.facts import HOMES, Fact, facts_of, of_job
from tests.scripts.group import Group
from tests.scripts.refusals import Refusal, commands_of, refusals
from tests.scripts.scenarios import JOBS, SCENARIOS, Scenario
from tests.scripts.test_keys import calls_of

Facts = frozenset[Fact]


def wrongs_of(scenario: Scenario, client: Any) -> list[str]:
    """The problems, each with the refusal that caused it."""
    group, send = _stage(scenario, client)
    types = _types(client)
    before = facts_of(client)
    send(group)
    after, types = facts_of(client), types | _types(client)
    assert before != after or not scenario.writes, "the scenario does nothing"
    # Also those that are not there: a user without the right to one of KEYS is refused at once, and for that alone.
    touched = {key for call in calls_of(scenario, client) for key in call.keys | call.undeclared}
    keys = dict.fromkeys(sorted(touched), "none") | types
    found: list[str] = []
    script: scripts.Script = getattr(scripts, scenario.script.upper())
    for refusal in refusals(script, keys, group):
        if scenario.stands_on and refusal.poisoned.startswith(scenario.stands_on):
            continue
        group, send = _stage(scenario, client)
        with refusal.begin(group) as refused, suppress(redis.ResponseError):
            send(WatchedGroup(refused.client, at_once=refused.at_once, witness=client, failures=found))
        found += [f"{refusal}: {wrong}" for wrong in _compare(scenario, refusal, before, after, client)]
        if refusal.can_end and scenario.can_repeat:
            send(group)
            left = _unlike(scenario, after, facts_of(client))
            found += [f"{refusal}, sent again: {wrong}" for wrong in left]
    return found


@dataclass
class WatchedGroup(Group):
    """Notes calls that fail after they have written."""

    witness: Any = None
    failures: list[str] = field(default_factory=list)

    def run(self, script: scripts.Script, keys: list[str], *arguments: Any) -> Any:
        before = facts_of(self.witness)
        try:
            return super().run(script, keys, *arguments)
        except redis.ResponseError as error:
            if facts_of(self.witness) != before:
                self.failures.append(f"{script.name} fails after it has written: {error}")
            raise


def _stage(scenario: Scenario, client: Any) -> tuple[Group, Any]:
    client.flushall()
    group = Group(client)
    group.create()
    return group, scenario.prepare(group)


def _types(client: Any) -> dict[str, str]:
    return {key.decode(): client.type(key).decode() for key in client.keys("*")}


def _compare(scenario: Scenario, refusal: Refusal, before: Facts, after: Facts, client: Any) -> list[str]:
    """Each job as it was, or as it was to be."""
    wrongs = []
    now = _known(scenario, refusal, facts_of(client))
    for job in JOBS:
        was, will = (of_job(_known(scenario, refusal, facts), job) for facts in (before, after))
        homes = {fact.key for fact in of_job(before | after, job)} & set(HOMES)
        is_home = refusal.poisoned in homes  # it can be neither found nor put there
        if of_job(now, job) not in ((was,) if is_home else (was, will)):
            wrongs.append(f"{job} is half done: {sorted(of_job(now, job))} after {sorted(was)}")
    known = _known(scenario, refusal, before | after)
    wrongs += [f"nobody asked for {fact}" for fact in now - known if not any(job in str(fact) for job in JOBS)]
    return wrongs


def _unlike(scenario: Scenario, wanted: Facts, found: Facts) -> list[str]:
    wanted, found = (frozenset(fact for fact in facts if not scenario.may_lack(fact.key)) for facts in (wanted, found))
    return [f"missing {fact}" for fact in wanted - found] + [f"too much: {fact}" for fact in found - wanted]


def _known(scenario: Scenario, refusal: Refusal, facts: Facts) -> Facts:
    """The facts without the key that the refusal has overwritten, and without the best-effort keys."""
    return frozenset(fact for fact in facts if fact.key != refusal.poisoned and not scenario.may_lack(fact.key))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_refusal_loses_doubles_or_halves_a_job(group: Group, scenario: Scenario) -> None:
    wrongs = wrongs_of(scenario, group.client)
    if not group.has_read_rights:  # Redis 6.2 also claims entries that are deleted; the ack of those may be refused
        wrongs = [wrong for wrong in wrongs if "a pending entry without fields" not in wrong]
    assert wrongs == []


def test_every_script_has_a_scenario() -> None:
    lua = files(scripts.__package__).joinpath("lua")
    names = {Path(file.name).stem for file in lua.iterdir() if file.name.endswith(".lua")}
    assert {scenario.script for scenario in SCENARIOS} == names


def test_the_commands_of_a_script_are_found_in_its_text() -> None:
    assert commands_of(scripts.RELEASE_LEADER_LEASE) == ["DEL", "GET"]
    assert {"XADD", "XACK", "XDEL", "XPENDING", "XTRIM", "INCRBY", "MGET"} <= set(commands_of(scripts.BURY))
