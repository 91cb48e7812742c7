"""SourceWatch: notices that a Python file below a folder was changed, added or removed."""

from __future__ import annotations

import os
from pathlib import Path

SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
MAX_FILES = 20_000  # below a folder with more, those that come first are watched


class SourceWatch:
    """find_files_changed_since_last_call() returns the names of files that are not as they were then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._collect_python_file_write_times()

    def find_files_changed_since_last_call(self) -> list[str]:
        seen, self._seen = self._seen, self._collect_python_file_write_times()
        names = seen.keys() | self._seen.keys()
        return sorted(name for name in names if seen.get(name) != self._seen.get(name))

    def _collect_python_file_write_times(self) -> dict[str, int]:
        """When each file was last written. Hidden folders, and those of installed packages, are left out."""
        found: dict[str, int] = {}
        for root, folders, files in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(root, name)
                    try:
                        found[os.path.relpath(path, self._folder)] = os.stat(path).st_mtime_ns
                    except OSError:  # it is gone
                        continue
            if len(found) > MAX_FILES:
                break
        return found
