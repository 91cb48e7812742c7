"""What a server puts at risk: its settings, read from its INFO, and its version."""

from __future__ import annotations

from typing import NamedTuple

from .._core.printable import printable

LUA_HOLES = "CVE-2025-49844"  # and 46817 to 46819, fixed together: a client that may send scripts may run code there
UNBLOCK_HOLE = "CVE-2026-23479"  # a blocked reader that is evicted may run code on the server
STREAM_HOLE = "CVE-2026-63639"  # a snapshot with a stream made for it may run code on the server

# The first patch of each series in which its gravest hole is mended; None if it is mended in none.
MENDED_IN: dict[tuple[str, int, int], tuple[int | None, str]] = {
    ("redis", 6, 2): (20, LUA_HOLES),
    ("redis", 7, 0): (None, LUA_HOLES),
    ("redis", 7, 2): (11, LUA_HOLES),
    ("redis", 7, 4): (6, LUA_HOLES),
    ("redis", 8, 0): (4, LUA_HOLES),
    ("redis", 8, 2): (2, LUA_HOLES),
    ("redis", 8, 6): (3, UNBLOCK_HOLE),
    ("valkey", 7, 2): (11, LUA_HOLES),
    ("valkey", 8, 0): (6, LUA_HOLES),
    ("valkey", 8, 1): (4, LUA_HOLES),
    ("valkey", 9, 1): (1, STREAM_HOLE),
}


SILENCED_BY = "CHASQUI_IGNORE_HOLES"  # any value: the distribution has mended them, and keeps its old numbers


def read_holes(server: str, version: tuple[int, ...]) -> str:
    """A sentence about a hole that is known in this version, or empty."""
    major, minor, patch = (*version, 0, 0, 0)[:3]
    mended, hole = MENDED_IN.get((server, major, minor), (0, ""))
    if mended is not None and patch >= mended:
        return ""
    advice = "no release of that series mends it" if mended is None else f"{major}.{minor}.{mended} mends it"
    return (
        f"{server} {major}.{minor}.{patch} has the hole {hole}: upgrade, {advice}. "
        f"If your distribution has mended it, set {SILENCED_BY}"
    )


class Risks(NamedTuple):
    """Each a sentence that says what to change, or empty."""

    eviction: str = ""  # jobs may be lost or run twice while the server lives
    persistence: str = ""  # jobs may be lost when it dies

    def __str__(self) -> str:
        return "; ".join(filter(None, self))


def read_risks(info: str) -> Risks:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    policy, eviction, persistence = printable(fields.get("maxmemory_policy", "noeviction").strip(), 40), "", ""
    if policy.startswith("allkeys"):
        eviction = f"maxmemory-policy is {policy}: a full server throws jobs away; set it to noeviction"
    elif policy != "noeviction":
        eviction = (
            f"maxmemory-policy is {policy}: a full server forgets which adds it has seen and which ids are taken; "
            "set it to noeviction"
        )
    if fields.get("aof_enabled", "1").strip() == "0":
        persistence = "appendonly is no: a server that dies loses what was added since its last snapshot"
    return Risks(eviction, persistence)
