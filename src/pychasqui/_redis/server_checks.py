"""Checks a server for settings that may lose jobs, and for versions with known vulnerabilities."""

from __future__ import annotations

from typing import NamedTuple

from .._core.printable import printable

LUA_CVES = "CVE-2025-49844"  # and 46817 to 46819, fixed together: a client that may send scripts may run code there
UNBLOCK_CVE = "CVE-2026-23479"  # a blocked reader that is evicted may run code on the server
STREAM_CVE = "CVE-2026-63639"  # a crafted stream in a snapshot may run code on the server

# The first patch of each series that fixes its gravest vulnerability; None if no patch does.
FIXED_IN: dict[tuple[str, int, int], tuple[int | None, str]] = {
    ("redis", 6, 2): (20, LUA_CVES),
    ("redis", 7, 0): (None, LUA_CVES),
    ("redis", 7, 2): (11, LUA_CVES),
    ("redis", 7, 4): (6, LUA_CVES),
    ("redis", 8, 0): (4, LUA_CVES),
    ("redis", 8, 2): (2, LUA_CVES),
    ("redis", 8, 6): (3, UNBLOCK_CVE),
    ("valkey", 7, 2): (11, LUA_CVES),
    ("valkey", 8, 0): (6, LUA_CVES),
    ("valkey", 8, 1): (4, LUA_CVES),
    ("valkey", 9, 1): (1, STREAM_CVE),
}


SILENCED_BY = "CHASQUI_IGNORE_HOLES"  # set to any value if the distribution has fixed them under an old version number


def describe_vulnerability_if_known(server: str, version: tuple[int, ...]) -> str:
    """Returns a sentence about the known vulnerability of this version, or an empty one."""
    major, minor, patch = (*version, 0, 0, 0)[:3]
    fixed, cve = FIXED_IN.get((server, major, minor), (0, ""))
    if fixed is not None and patch >= fixed:
        return ""
    advice = "no release of that series fixes it" if fixed is None else f"{major}.{minor}.{fixed} fixes it"
    return (
        f"{server} {major}.{minor}.{patch} has the vulnerability {cve}: upgrade, {advice}. "
        f"If your distribution has fixed it, set {SILENCED_BY}"
    )


class Risks(NamedTuple):
    """Each is a sentence that says what to change, or empty."""

    eviction: str = ""  # jobs may be lost or run twice while the server runs
    persistence: str = ""  # jobs may be lost when it dies
    unknown: str = ""  # the settings cannot be read

    def __str__(self) -> str:
        return "; ".join(filter(None, self))


def read_risks(info: str) -> Risks:
    """Reads the settings in the text of INFO."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    policy, eviction, persistence = printable(fields.get("maxmemory_policy", "noeviction").strip(), 40), "", ""
    if policy.startswith("allkeys"):
        eviction = f"maxmemory-policy is {policy}: a full server deletes jobs; set it to noeviction"
    elif policy != "noeviction":
        eviction = (
            f"maxmemory-policy is {policy}: a full server forgets which adds it has seen and which ids are taken; "
            "set it to noeviction"
        )
    if fields.get("aof_enabled", "1").strip() == "0":
        persistence = "appendonly is no: a server that dies loses what was added since its last snapshot"
    return Risks(eviction, persistence)
