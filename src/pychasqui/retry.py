"""How often a failed job runs again, and after which delay: the options of a job and of a worker."""

from __future__ import annotations

from ._core.retry_options import BackoffSpec, RetryOverride, RetryPolicy

__all__ = ["BackoffSpec", "RetryOverride", "RetryPolicy"]
