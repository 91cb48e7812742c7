"""The jobs that everybody is measured with."""

from __future__ import annotations

import random
from typing import Any

# 65 bytes as JSON, 50 as MessagePack.
DATA: dict[str, Any] = {"to": "ada@example.org", "template": "welcome", "locale": "en", "n": 7}
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"

# The same job as it lies in Redis after pychasqui or chasquimq added it, for the two limits that know no codec:
# field d holds an envelope of this many bytes, field n the name.
STREAM = b"{chasqui:bench}:stream"
DELAYED, DEAD, REPEAT = b"{chasqui:bench}:delayed", b"{chasqui:bench}:dlq", b"{chasqui:bench}:repeat"
ENVELOPE_BYTES = 90
NAME = b"bench"


def with_body(data: dict[str, Any], body_bytes: int) -> dict[str, Any]:
    """The data of a job and a text of this length, where the scenario asks for one. Its letters are random, so that a
    library that compresses (RQ) has little to gain."""
    return data | {"body": "".join(random.Random(1).choices(LETTERS, k=body_bytes))} if body_bytes else data


def entry_fields(body_bytes: int = 0) -> tuple[bytes, ...]:
    return (b"d", b"x" * (ENVELOPE_BYTES + body_bytes), b"n", NAME)
