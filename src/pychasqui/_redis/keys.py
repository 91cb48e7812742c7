"""Every key that pychasqui uses. The braces make one queue one slot of a Redis Cluster.

Scripts get these keys in KEYS. Those that are named by the ids of many jobs, and the specs of repeatables that are due,
they spell themselves (lua/lib/job_keys.lua), and touch before their first write; tests/scripts/test_keys.py lists
them.
"""

from __future__ import annotations

from .._core.defaults import GROUP

REGISTRY = "chasqui:queues"  # of all queues of a server; see registry.py


def make_shard_channel_name(channel: str) -> str:
    """Returns the channel that is used in its place in a cluster, where a plain one would reach every node."""
    return channel.replace("}:", "}:shard:", 1)


class Keys:
    """The keys of one queue."""

    def __init__(self, queue: str) -> None:
        self.prefix = f"{{chasqui:{queue}}}"
        self.stream = f"{self.prefix}:stream"
        self.delayed = f"{self.prefix}:delayed"
        self.dead = f"{self.prefix}:dlq"
        self.dead_dropped = f"{self.prefix}:dlq:dropped"  # counts what its bound has pushed out
        self.workers = f"{self.prefix}:workers"  # of the usual group: see workers_of()
        self.events = f"{self.prefix}:events"
        self.due_channel = f"{self.prefix}:due"  # what is published there: in how many ms a job is due
        self.paused = f"{self.prefix}:paused"  # exists while the queue is paused
        self.pause_channel = f"{self.prefix}:pause"  # "pause", "resume" and "cancel" are published there
        self.cancelled = f"{self.prefix}:cancelled"  # notes about jobs of the stream that are to stop
        self.backlog_channel = f"{self.prefix}:backlog"  # a message says that more jobs wait than one worker takes
        self.promoter_lease = f"{self.prefix}:promoter:lock"
        self.repeat = f"{self.prefix}:repeat"  # when each repeatable fires next
        self.repeat_paused = f"{self.prefix}:repeat:paused"  # those that do not fire for now
        self.repeat_channel = f"{self.prefix}:repeat:due"
        self.scheduler_lease = f"{self.prefix}:scheduler:lock"

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        return self.prefix[len("{chasqui:") : -1]

    def delayed_member(self, job_id: str) -> str:
        """Holds the member of the delayed set of a delayed job."""
        return f"{self.prefix}:didx:{job_id}"

    def unique(self, job_id: str) -> str:
        """Is the uniqueness key, which keeps other jobs of this id out and says where the job is.

        It holds an entry's id, or "d" while the job is delayed; with a "w" before it if it keeps others out for a
        window rather than until the job is done.
        """
        return f"{self.prefix}:unique:{job_id}"

    def official_delayed_id(self, job_id: str) -> str:
        """Is what official producers check before they delay a job of this id.

        It is there while a job of ours is delayed, and lasts no longer than theirs do.
        """
        return f"{self.prefix}:dlid:{job_id}"

    def result(self, job_id: str) -> str:
        """Holds what a job's handler returned."""
        return f"{self.prefix}:result:{job_id}"

    def progress(self, job_id: str) -> str:
        """Holds how far a job is, from 0 to 100."""
        return f"{self.prefix}:progress:{job_id}"

    def log(self, job_id: str) -> str:
        """Holds the lines that a job has logged."""
        return f"{self.prefix}:log:{job_id}"

    def worker(self, consumer: str) -> str:
        """Holds what a worker writes about itself with each renewal of its lease."""
        return f"{self.prefix}:worker:{consumer}"

    def name_claim(self, group: str, consumer: str) -> str:
        """Holds which of the processes that start under this name may have it. Lives an hour beyond the start."""
        return f"{self.prefix}:claim:{group}:{consumer}"

    def workers_of(self, group: str) -> str:
        """Holds the end of the lease of each worker of a group, for a week past the last renewal."""
        return self.workers if group == GROUP else f"{self.workers}:{group}"

    def group_reports(self, group: str) -> str:
        """Holds what each worker has reported that it holds while the group is missing. Lives as long as a lease."""
        return f"{self.prefix}:regroup:{group}"

    def repeat_spec(self, key: str) -> str:
        """Holds a repeatable: its spec, how often it has fired, and its jobs' retry override."""
        return f"{self.prefix}:repeat:spec:{key}"

    def ledger(self, producer: str) -> str:
        """Holds a producer's last batches and their answers. Lives as long as an add may be sent again."""
        return f"{self.prefix}:ledger:{producer}"


def make_keys_of_job(keys: Keys, job_id: str) -> tuple[str, str, str]:
    """Returns the keys of one id, in the order in which scripts take them."""
    return keys.unique(job_id), keys.official_delayed_id(job_id), keys.delayed_member(job_id)
