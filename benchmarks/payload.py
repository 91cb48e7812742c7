"""The one job that everybody is measured with."""

from __future__ import annotations

from typing import Any

# 65 bytes as JSON, 50 as MessagePack.
DATA: dict[str, Any] = {"to": "ada@example.org", "template": "welcome", "locale": "en", "n": 7}

# The same job as it lies in Redis after pychasqui or chasquimq added it, for the two limits that know no codec:
# field d holds an envelope of this many bytes, field n the name.
STREAM = b"{chasqui:bench}:stream"
DELAYED, DEAD, REPEAT = b"{chasqui:bench}:delayed", b"{chasqui:bench}:dlq", b"{chasqui:bench}:repeat"
ENVELOPE_BYTES = 90
NAME = b"bench"
ENTRY_FIELDS = (b"d", b"x" * ENVELOPE_BYTES, b"n", NAME)
