"""Every key that pychasqui uses. The braces make one queue one slot of a Redis Cluster.

Three kinds are spelled by scripts, from the prefix and a job's id. `:didx:<id>` is the job's member of the delayed set.
`:unique:<id>` is the marker that keeps others of its id out and says where it is: an entry's id, "d" for delayed, with
a "w" before it if it does so for a window rather than until it is done. `:dlid:<id>` is what official producers look at
before they delay a job of that id: there is one while a job of ours is delayed, and it lasts no longer than theirs do.
"""

from __future__ import annotations

from .._core.defaults import GROUP


class Keys:
    """The keys of one queue."""

    def __init__(self, queue: str) -> None:
        self.prefix = f"{{chasqui:{queue}}}"
        self.stream = f"{self.prefix}:stream"
        self.delayed = f"{self.prefix}:delayed"
        self.dead = f"{self.prefix}:dlq"
        self.dead_dropped = f"{self.prefix}:dlq:dropped"  # how many its bound has pushed out
        self.workers = f"{self.prefix}:workers"  # of the usual group: see workers_of()
        self.events = f"{self.prefix}:events"
        self.due_channel = f"{self.prefix}:due"  # what is published there: in how many ms a job is due
        self.paused = f"{self.prefix}:paused"  # exists while the queue is paused
        self.pause_channel = f"{self.prefix}:pause"  # "pause" and "resume" are published there
        self.promoter_lease = f"{self.prefix}:promoter:lock"
        self.repeat = f"{self.prefix}:repeat"  # when each repeatable fires next
        self.repeat_paused = f"{self.prefix}:repeat:paused"  # those that do not fire for now
        self.repeat_channel = f"{self.prefix}:repeat:due"
        self.scheduler_lease = f"{self.prefix}:scheduler:lock"

    def index(self, job_id: str) -> str:
        """A delayed job's member of the delayed set."""
        return f"{self.prefix}:didx:{job_id}"

    def marker(self, job_id: str) -> str:
        """Where a job is that is the only one of its id."""
        return f"{self.prefix}:unique:{job_id}"

    def result(self, job_id: str) -> str:
        """What a job's handler returned."""
        return f"{self.prefix}:result:{job_id}"

    def progress(self, job_id: str) -> str:
        """How far a job is, from 0 to 100."""
        return f"{self.prefix}:progress:{job_id}"

    def log(self, job_id: str) -> str:
        """The lines that a job has logged."""
        return f"{self.prefix}:log:{job_id}"

    def worker(self, consumer: str) -> str:
        """What a worker tells of itself with each renewal of its lease."""
        return f"{self.prefix}:worker:{consumer}"

    def workers_of(self, group: str) -> str:
        """Who of a group's workers lives until when; kept a week past the last renewal. A group knows only its own."""
        return self.workers if group == GROUP else f"{self.workers}:{group}"

    def regroup(self, group: str) -> str:
        """What each worker has said it holds while the group is gone. Lives as long as a lease."""
        return f"{self.prefix}:regroup:{group}"

    def repeat_spec(self, key: str) -> str:
        """A repeatable: its spec, how often it was fired, and its jobs' retry override."""
        return f"{self.prefix}:repeat:spec:{key}"

    def ledger(self, producer: str) -> str:
        """What a producer's last batches were and how they ended. Lives as long as an add may be sent again."""
        return f"{self.prefix}:ledger:{producer}"
