"""The file that an export goes to: it is there as a whole, or it stays as it was."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ..errors import ChasquiError, printable
from .exits import CommandFailure
from .interrupts import removing_file_at_sigterm

STDOUT = "-"


@contextmanager
def open_export(path: str) -> Iterator[TextIO]:
    """Opens the file to write. An error inside leaves a file that was there as it was; behind the block all is on disk.

    Standard output, a device and a pipe get the lines as they come.
    """
    if path == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        with _open_stream(path) if _is_device_or_pipe(path) else _open_replacement(path) as target:
            yield target
    except ChasquiError:  # of Redis; some are an OSError, too
        raise
    except OSError as error:
        raise CommandFailure(f"{printable(path, 300)} cannot be written: {error.strerror or error}") from None


def _is_device_or_pipe(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _open_stream(path: str) -> Iterator[TextIO]:
    with open(path, "w", encoding="utf-8") as target:
        yield target


@contextmanager
def _open_replacement(path: str) -> Iterator[TextIO]:
    """Writes to a new file in the same folder, and moves that to its place at the end."""
    real = Path(path).resolve()
    descriptor, new = tempfile.mkstemp(prefix=".chasqui-export-", dir=real.parent)
    try:
        with removing_file_at_sigterm(new), open(descriptor, "w", encoding="utf-8") as target:
            os.chmod(new, _choose_file_permissions(real))
            yield target
            target.flush()
            os.fsync(target.fileno())
            os.replace(new, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def _choose_file_permissions(path: Path) -> int:
    """The rights of the file that is replaced, or those of any new file."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
