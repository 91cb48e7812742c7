"""Testing without a server: inline(app) for programs of tasks, RecordedQueue for programs that use Queue alone.

Everything goes through MessagePack and the checks of production. `plugin.py` has the fixtures for pytest.
"""

from __future__ import annotations

from .inline_jobs import DeadCall, InlineJobs, inline
from .recorded_queue import RecordedQueue
from .recorder import RecordedJob

__all__ = ["DeadCall", "InlineJobs", "RecordedJob", "RecordedQueue", "inline"]
