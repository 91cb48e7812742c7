"""Escapes text of others for a log line, an error or a terminal. This module imports no other of the package."""

from __future__ import annotations

MAX_CHARS = 200


def printable(text: str, max_chars: int = MAX_CHARS, *, keep: str = "") -> str:
    """Returns `text` cut to a length, with every character escaped that could fake a line or move the cursor.

    These are the characters that str.isprintable() refuses: line ends, escape sequences, marks that change the
    direction of writing, lone surrogates. The characters in `keep` are not escaped.
    """
    cut = text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in cut)
