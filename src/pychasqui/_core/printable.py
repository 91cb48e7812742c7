"""How text that others have written is shown in a log line, an error or on a terminal. Nothing is below this module."""

from __future__ import annotations

MAX_CHARS = 200


def printable(text: str, most: int = MAX_CHARS, *, keep: str = "") -> str:
    """`text` cut to `most` characters, with everything escaped that could pass for another line or move the cursor.

    That is what str.isprintable() refuses: line ends, escape sequences, marks that turn the direction of writing,
    lone surrogates. The letters of `keep` stay as they are.
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in cut)
