"""Mutants that change nothing that could be noticed: (file, the line, the change) -> the reason."""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {}
