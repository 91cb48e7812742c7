"""The picture of the architecture is drawn from its text, and names things that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
TEXT = PICTURE.with_suffix(".txt")
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def test_the_picture_is_drawn_from_its_text() -> None:
    command = [sys.executable, str(ROOT / "tools" / "diagram"), str(TEXT)]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert PICTURE.read_text() == drawn, "run: tools/diagram docs/explanation/architecture.txt > ...svg"


def test_each_box_is_a_class() -> None:
    names = re.findall(r"^box +\S+(?: +[\d.]+){3} +(\w+)", TEXT.read_text(), re.MULTILINE)
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"^class {name}\b", SOURCE, re.MULTILINE)] == []


def test_each_part_of_the_table_is_a_class() -> None:
    names = re.findall(r"^\| `([A-Z]\w+)` \|", PICTURE.with_suffix(".md").read_text(), re.MULTILINE)
    assert len(names) > 8
    assert [name for name in names if not re.search(rf"^class {name}\b", SOURCE, re.MULTILINE)] == []


CONTRACTS = [
    layers.splitlines()
    for layers in re.findall(r"^layers = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
]


def test_each_layer_of_the_import_contract_is_a_line_of_the_tree() -> None:
    layers = [set(re.findall(r"\w+", line)) for line in CONTRACTS[0] if line]
    tree = PICTURE.with_suffix(".md").read_text().partition("## The tree")[2]
    rows = [row.split(" | ")[0] for row in tree.splitlines() if row.startswith("| `")]
    assert len(layers) == 8
    assert layers == [set(re.findall(r"`(\w+)`", row)) for row in rows]


def test_the_modules_of_the_second_layer_have_layers_of_their_own() -> None:
    second = set(re.findall(r"\w+", [line for line in CONTRACTS[0] if line][1]))
    assert second == {name for line in CONTRACTS[1] for name in re.findall(r"\w+", line)}
