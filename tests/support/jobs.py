"""Jobs as a worker holds them, for tests of its parts."""

from __future__ import annotations

from pychasqui._core.delivery import Delivery
from pychasqui._core.retry_options import RetryOverride
from pychasqui._wire.msgpack import encode_data


def job(
    number: int, *, deliveries: int = 0, name: str = "mail", timeout_s: float = 0.0, may_be_unique: bool = False
) -> Delivery:
    """A job whose id, data and entry are of this number."""
    return Delivery(
        f"job-{number}",
        name=name,
        data=number,
        entry_id=b"%d-0" % number,
        earlier_deliveries=deliveries,
        timeout_s=timeout_s,
        may_be_unique=may_be_unique,
    )


def failed_job(attempt: int = 0, retry: RetryOverride | None = None, name: str = "mail") -> Delivery:
    """A job with all that goes on into its next attempt or its dead letter."""
    return Delivery(
        "job-1",
        name=name,
        data=7,
        attempt=attempt,
        created_at_ms=1_700_000_000_000,
        retry=retry,
        payload=encode_data(7),
        entry_id=b"5-1",
    )
