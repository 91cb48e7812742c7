"""The documentation names things that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.support.cases import in_one_test
from tools.handbook.links import links_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pychasqui"
MOVES = (ROOT / "docs" / "explanation" / "how-a-job-moves.md").read_text()
PAIRS = re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", MOVES)
SCRIPTS = re.findall(r"`(_redis/lua/\w+\.lua)`", MOVES)


@in_one_test(("file", "name"), PAIRS)
def test_each_name_in_how_a_job_moves_exists(file: str, name: str) -> None:
    found: object = importlib.import_module("pychasqui." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


def test_the_way_of_a_job_is_described_in_full() -> None:
    assert len(PAIRS) >= 15
    assert {Path(script).name for script in SCRIPTS} == {
        path.name for path in (PACKAGE / "_redis" / "lua").glob("*.lua")
    }


GUARANTEES = ROOT / "docs" / "explanation" / "guarantees.md"
HELD_BY = [
    pair
    for page in (GUARANTEES, ROOT / "SECURITY.md")
    for pair in re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", page.read_text())
]


@in_one_test(("file", "name"), HELD_BY)
def test_each_test_that_holds_a_guarantee_exists(file: str, name: str) -> None:
    assert re.search(rf"def {name.rpartition('::')[2] or name}\b", (ROOT / file).read_text())


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    missing = [
        (page.name, link)
        for page in pages
        for link in links_of(page.read_text())
        if ":" not in link and not (page.parent / link.partition("#")[0]).exists()
    ]
    assert missing == []


def test_contributing_lists_the_folders_of_the_tests() -> None:
    listed = re.findall(r"^\| `tests/(\w+)/`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert set(listed) == there


def test_contributing_lists_the_targets_of_make() -> None:
    listed = re.findall(r"^\| `make ([\w-]+)`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    targets = re.findall(r"^([\w-]+):.*  ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(targets) - {"help"})
