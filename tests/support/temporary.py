"""One folder for all temporary files of a test run. It is removed at the end.

Its name is short, because a path of a unix socket has at most a hundred bytes. Where a working folder is longer, an
embedded server puts its socket into a folder under /tmp that stays there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from pychasqui.embedded.supervisor import try_lock

FOLDER = pytest.StashKey[Path]()
PATIENCE_S = 10.0  # embedded servers end 3 s after their last use


def use_one_folder(config: pytest.Config) -> None:
    """For this process and those that it starts."""
    folder = Path(tempfile.mkdtemp(prefix="cq-")).resolve()
    config.stash[FOLDER] = folder
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    config.option.basetemp = config.option.basetemp or str(folder / "t")


def short_folder() -> Path:
    """A new folder for a test whose own, tmp_path, is too long for what it does."""
    return Path(tempfile.mkdtemp(prefix="d"))


def remove_folder(config: pytest.Config) -> None:
    """A server whose folder is removed while it runs would never end."""
    folder, deadline = config.stash[FOLDER], time.monotonic() + PATIENCE_S
    for lock in folder.rglob("caretaker.lock"):
        while (held := try_lock(lock)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if held is not None:
            os.close(held)
    shutil.rmtree(folder, ignore_errors=True)
