"""A machine without a zone database."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from pychasqui._core.zones import find_zone


@contextmanager
def without_zone_database() -> Iterator[None]:
    """Has zoneinfo find no zone by name, neither in the files of the machine nor in the package tzdata."""
    try:
        with mock.patch.dict(sys.modules, {"tzdata": None}):
            zoneinfo.reset_tzpath([])
            _forget_zones()
            yield
    finally:
        zoneinfo.reset_tzpath()
        _forget_zones()


def _forget_zones() -> None:
    zoneinfo.ZoneInfo.clear_cache()
    find_zone.cache_clear()
