"""Finds the name that a misspelt one was meant to be, for an error that names it."""

from __future__ import annotations

from collections.abc import Iterable


def make_suggestion_if_any_is_close(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error about an unknown name: "; did you mean ...?", or nothing if no name is close."""
    from difflib import get_close_matches

    listed = list(known)
    ends_alike = (one for one in listed if one.endswith(f"_{name}"))
    guess = next(ends_alike, "") or next(iter(get_close_matches(name[:100], listed, n=1)), "")
    return f"; did you mean {guess!r}?" if guess else ""
