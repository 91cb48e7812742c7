"""Every key that pychasqui uses, one function each. The braces make one queue one slot of a Redis Cluster."""

from __future__ import annotations


class Keys:
    """The keys of one queue."""

    def __init__(self, queue: str) -> None:
        self.prefix = f"{{chasqui:{queue}}}"
        self.stream = f"{self.prefix}:stream"

    def ledger(self, producer: str) -> str:
        """What a producer's last batches were and how they ended. Lives as long as an add may be sent again."""
        return f"{self.prefix}:ledger:{producer}"
