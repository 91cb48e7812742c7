"""What a server's settings put at risk, read from its INFO."""

from __future__ import annotations

from typing import NamedTuple

from .._shown import shown


class Risks(NamedTuple):
    """Each a sentence that says what to change, or empty."""

    eviction: str = ""  # jobs may be lost or run twice while the server lives
    persistence: str = ""  # jobs may be lost when it dies

    def __str__(self) -> str:
        return "; ".join(filter(None, self))


def read_risks(info: str) -> Risks:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    policy, eviction, persistence = shown(fields.get("maxmemory_policy", "noeviction").strip(), 40), "", ""
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
