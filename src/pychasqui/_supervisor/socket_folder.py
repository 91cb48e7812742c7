"""The folder in which worker processes serve their pages to the supervisor, at Unix sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..errors import CannotServe

LONGEST_FOLDER_BYTES = 80  # the path of a socket may have 103 on macOS, and 107 on Linux
SHORT_FOLDER = "/tmp"  # noqa: S108  mkdtemp makes a folder there that no other user can enter


def make_folder_for_sockets() -> Path:
    """Makes a private folder, in TMPDIR unless paths there are too long for sockets."""
    try:
        parent = tempfile.gettempdir()
        is_short = len(os.fsencode(parent)) <= LONGEST_FOLDER_BYTES - len("/chasqui-12345678")
        return Path(tempfile.mkdtemp(prefix="chasqui-", dir=parent if is_short else SHORT_FOLDER))
    except OSError as error:
        raise CannotServe(
            f"no folder can be made for the sockets of worker processes: {error}. Set TMPDIR to a folder that can be "
            "written; a container with a read-only file system needs a volume at /tmp"
        ) from error
