"""Raw replies become entries. RESP2 and RESP3 differ in shape only; nothing above this file sees which it was."""

from __future__ import annotations

from typing import Any, TypeAlias

# hot: the two-element lists are used as hiredis made them: [id, [field, value, ...]], the fields None if deleted
Entry: TypeAlias = list[Any]


def read_entries(reply: Any) -> list[Entry]:
    """The entries of an XREADGROUP on one stream: None or nothing if there were none."""
    if not reply:
        return []
    if isinstance(reply, dict):
        (entries,) = reply.values()
    else:
        ((_, entries),) = reply
    return entries if isinstance(entries, list) else []
