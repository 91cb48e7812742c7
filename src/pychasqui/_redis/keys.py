"""Every key that pychasqui uses, one function each. The braces make one queue one slot of a Redis Cluster."""

from __future__ import annotations


class Keys:
    """The keys of one queue."""

    def __init__(self, queue: str) -> None:
        self.prefix = f"{{chasqui:{queue}}}"
        self.stream = f"{self.prefix}:stream"
        self.delayed = f"{self.prefix}:delayed"
        self.dead = f"{self.prefix}:dlq"
        self.dead_dropped = f"{self.prefix}:dlq:dropped"  # how many its bound has pushed out
        self.workers = f"{self.prefix}:workers"  # who lives until when; kept a week past the last renewal
        self.promoter_lease = f"{self.prefix}:promoter:lock"

    def ledger(self, producer: str) -> str:
        """What a producer's last batches were and how they ended. Lives as long as an add may be sent again."""
        return f"{self.prefix}:ledger:{producer}"
