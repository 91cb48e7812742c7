"""Finding: one fact that the doctor has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, how grave it is, and what to do about it; `remedy` is empty if there is nothing to do."""

    subject: str  # "server", or the name of a queue with "queue " before it
    check: str
    level: Level
    text: str
    remedy: str = ""
