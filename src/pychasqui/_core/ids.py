"""New job ids: ULIDs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from ulid_transform import bytes_to_ulid, ulid_now, ulid_to_timestamp

# hot: 0.1 us. Its randomness comes from a state in memory, which a fork copies: see below.
new_id: Callable[[], str] = ulid_now


_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def read_ulid_time_ms(job_id: str) -> int | None:
    """Returns the time in ms since 1970 that an id carries, by the clock of its maker; None if it is no ULID."""
    return int(ulid_to_timestamp(job_id)) if _ULID.fullmatch(job_id) else None


def _make_id_by_kernel_randomness() -> str:
    ms = time.time_ns() // 1_000_000
    return str(bytes_to_ulid(ms.to_bytes(6, "big") + os.urandom(10)))


def _switch_to_kernel_ids() -> None:
    """Parent and children would all make the same ids from here on, so the children ask the kernel."""
    global new_id
    new_id = _make_id_by_kernel_randomness


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_switch_to_kernel_ids)
