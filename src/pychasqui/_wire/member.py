"""The member of the delayed set: u32 little-endian length of the job's name, the name, the envelope."""

from __future__ import annotations

from ..errors import DecodeError, InvalidArgument
from .entry import decode_name_or_empty


def make_delayed_member(name: str, envelope: bytes) -> bytes:
    """Returns the member for a job of that name."""
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the name {name!a} has a lone surrogate, which UTF-8 cannot hold") from None
    return len(raw).to_bytes(4, "little") + raw + envelope


def split_delayed_member(member: bytes) -> tuple[str, bytes]:
    """Returns name and envelope."""
    if len(member) < 4:
        raise DecodeError(f"the delayed member has {len(member)} bytes, fewer than the 4 of its name's length")
    end = 4 + int.from_bytes(member[:4], "little")
    if end > len(member):
        raise DecodeError(f"the delayed member has {len(member)} bytes, but its name should end at {end}")
    return decode_name_or_empty(member[4:end]), member[end:]
