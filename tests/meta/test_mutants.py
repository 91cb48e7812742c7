"""The generator of mutants makes them, and a small sample of them is noticed. `make mutants` runs more."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pychasqui._redis import scripts
from tests.meta.equivalent_mutants import EQUIVALENT, SORTED
from tests.meta.lua_mutants import Mutant, mutants_of
from tests.meta.mutants import Trial, all_mutants, cases_of, change_of, checks_of, sources
from tests.support.server import RedisServer

SCRIPTS = [name for name in sources() if not name.startswith("lib/")]


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """A server of its own: a mutant may hold it for good."""
    with RedisServer() as server:
        yield Trial(server)


def changes(source: str) -> set[str]:
    return {mutant.apply(source) for mutant in mutants_of("file", source)}


class TestGenerator:
    def test_comparisons_are_flipped(self) -> None:
        assert {"local a = b <= c", "local a = b >= c"} <= changes("local a = b < c")
        assert "local a = b ~= c" in changes("local a = b == c")

    def test_conditions_hold_always_or_never(self) -> None:
        assert {"if true then f() end", "if false then f() end"} <= changes("if a == 'x' then f() end")

    def test_a_while_that_never_ends_is_not_made(self) -> None:
        assert "while true do f() end" not in changes("while a do f() end")

    def test_clauses_are_left_out(self) -> None:
        assert {"local a = b  or c(d, e)", "local a = b and f "} <= changes("local a = b and f or c(d, e)")
        assert "local a = b \nf(a)" in changes("local a = b or c[1]\nf(a)")

    def test_statements_are_left_out(self) -> None:
        assert "local a = 5\n\nreturn a" in changes("local a = 5\nf(\n  a\n)\nreturn a")

    def test_declarations_stay(self) -> None:
        assert not [change for change in changes("local a = b\nreturn a") if "local" not in change]

    def test_arguments_are_swapped(self) -> None:
        assert {"f(b, a, 'c')", "f(a, 'c', b)"} <= changes("f(a, b, 'c')")

    def test_parameters_of_a_definition_stay(self) -> None:
        assert changes("local function f(a, b)\nend") == set()

    def test_numbers_are_off_by_one(self) -> None:
        assert "a[3]" in changes("a[2]")
        assert "local a = 148" in changes("local a = 0x93")

    def test_strings_are_empty_unless_they_name_a_command(self) -> None:
        assert "call('GET', '')" in changes("call('GET', 'key')")
        assert not [change for change in changes("local a = call('GET', 'key')") if "GET" not in change]

    def test_errors_are_not_skipped(self) -> None:
        assert "redis.call('DEL', a)" in changes("redis.pcall('DEL', a)")
        assert "redis.call('DEL', a)" in changes("pcall('DEL', a)")

    def test_comments_stay(self) -> None:
        assert changes("-- a == 1 and 'b'\n") == set()

    def test_every_file_has_mutants(self) -> None:
        assert [name for name, source in sources().items() if not mutants_of(name, source)] == []

    def test_no_mutant_is_the_text_itself(self) -> None:
        for name, source in sources().items():
            assert source not in {mutant.apply(source) for mutant in mutants_of(name, source)}


@pytest.mark.parametrize("script", ("replay", "release_entries", "remove_pause_or_resume_repeatable"))
def test_the_script_as_it_is_passes_the_checks(trial: Trial, script: str) -> None:
    assert len(checks_of(script)) >= 5
    assert trial.failing(script) == []


def test_most_mutants_of_the_files_with_known_survivors_are_noticed(trial: Trial) -> None:
    found = survivors(trial, random.Random(7).sample([one for one in all_mutants() if one.file not in SORTED], 8))
    assert len(found) <= 4, found  # whether some are noticed depends on the server, and on how busy the machine is


def test_every_mutant_of_a_file_whose_survivors_are_sorted_is_noticed(trial: Trial) -> None:
    assert survivors(trial, random.Random(7).sample(all_mutants(sorted(SORTED)), 8)) == []


def survivors(trial: Trial, mutants: list[Mutant]) -> list[str]:
    return [f"{mutant.file}: {change_of(mutant)}" for mutant in mutants if not trial.noticed_by(mutant)]


def test_each_case_of_a_test_is_a_part_of_its_check() -> None:
    @pytest.mark.parametrize("a", (1, 2))
    @pytest.mark.parametrize(("b", "c"), ((3, 4), (5, 6)))
    def with_cases() -> None: ...

    @pytest.mark.skip
    def skipped() -> None: ...

    assert len(cases_of(with_cases)) == 4
    assert {"a": 2, "b": 3, "c": 4} in cases_of(with_cases)
    assert (cases_of(changes), cases_of(skipped)) == ([{}], [])


def test_every_script_has_checks() -> None:
    assert [script for script in SCRIPTS if len(checks_of(script)) < 5] == []


def test_every_equivalent_mutant_is_one_that_is_made() -> None:
    made = {
        (mutant.file, mutant.line, change_of(mutant))
        for name, source in sources().items()
        for mutant in mutants_of(name, source)
    }
    assert set(EQUIVALENT) - made == set()


def test_every_text_carries_what_it_includes() -> None:
    assert scripts.PROMOTE.text.decode().count(sources()["lib/id_of"]) == 1
    assert scripts.BURY.text.decode().count(sources()["lib/release_id"]) == 1
    assert not [name for name in SCRIPTS if b"-- include" in getattr(scripts, name.upper()).text]
