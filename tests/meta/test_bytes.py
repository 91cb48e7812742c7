"""Field names of what is stored in Redis stand in _wire/ and in the scripts, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.server import PROJECT

SOURCE = PROJECT / "src" / "pychasqui"
FIELDS = frozenset({b"d", b"n", b"u", b"w", b"source_id", b"reason", b"attempts", b"error_type", b"error"})
FIELDS |= {b"traceback", b"worker", b"detail", b"raw"}
WORDS = frozenset({"duration_us", "backoff_ms", "stored", "retry-scheduled", "spec", "fired", "line"})
ALLOWED: set[str] = set()


def spelled() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] in ("_wire", "cli"):  # the JSON of commands has names of its own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, str)) and node.value in FIELDS | WORDS:
                yield f"{path.relative_to(SOURCE)} {node.value!r}"


def test_no_field_name_stands_outside_of_the_wire_package() -> None:
    assert set(spelled()) == ALLOWED
