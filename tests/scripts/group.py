"""One queue as its scripts see it: a stream with a group, and the keys around it.

Calls every script by its present text, so that a test runs unchanged against a mutant of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import redis

from pychasqui._core.limits import MAX_REGISTERED, MAX_WORKER_LEASE_MS, REGISTERED_MS
from pychasqui._redis import scripts
from pychasqui._redis.dialect import parse_version
from pychasqui._redis.keys import REGISTRY, Keys, make_keys_of_job
from pychasqui._redis.leases import MUST_CLAIM
from pychasqui._redis.replies import (
    OtherClaim,
    RenewalResult,
    SettledJobs,
    read_other_claim,
    read_renewal_result,
    read_settled_jobs,
)
from pychasqui._wire.entry import make_entry_sort_key

KEYS = Keys("q")
GROUP = "default"
LEASE_MS, KEPT_MS, RECORD_KEPT_MS = 6000, 80_000_000, 12_000
HEIR, RELEASED_IDLE_MS = "released", 86_400_000
LONGEST_MS = 60_000  # another's lease
HOUR_MS = 3_600_000
UNBOUNDED = (2**30, 2**30)  # bytes of a batch, bytes of an entry
EVENTS_MAX_LEN = 1000
REPORTS = KEYS.group_reports(GROUP)
LEDGER, LEDGER_TTL_MS = KEYS.ledger("producer"), 60_000


class Hold(NamedTuple):
    """The owner and the delivery count of a pending entry."""

    owner: str
    deliveries: int


class Taken(NamedTuple):
    id: bytes
    fields: dict[bytes, bytes] | int | None  # the size alone if they are too large
    deliveries: int


class Promoted(NamedTuple):
    leads: int
    promoted: int
    buried_count: int
    next_ms: int
    leader: bytes = b""  # the others only if it is another
    was_cut: int = 0
    overdue_ms: int = 0


class Wanted(NamedTuple):
    """A job as add_with_options takes it."""

    name: str
    envelope: bytes
    id: str
    due: str = ""
    only: str = ""
    window_ms: int = 0
    expires_ms: int = 0


class Stored(NamedTuple):
    """A job that is done, as store takes it."""

    entry_id: bytes
    job_id: str = "job"
    may_be_unique: int = 0
    is_stored: int = 1
    result: bytes = b"result"


class CompletedRun(NamedTuple):
    """A job that has run well, as announce_done takes it."""

    id: str
    name: str = ""
    attempt: int = 1
    started: int | str = ""  # empty: that it is active was written already
    ended: int = 2000
    duration_us: int = 500


class DueReply(NamedTuple):
    leads: int
    now_ms: int
    next_ms: int
    specs: list[tuple[Any, ...]]  # key, score, spec, fired, retry, and its size
    leader: bytes = b""  # the others only if it is another
    was_cut: int = 0
    overdue_ms: int = 0


class Fire(NamedTuple):
    """A repeatable as fire takes it."""

    key: str
    score: int
    spec: bytes
    next_score: int | str
    name: str
    envelopes: list[bytes]


@dataclass
class Group:
    client: Any  # redis-py types replies as everything they could be under any setting
    number: int = 0  # of the last batch that was added on terms
    at_once: bool = False  # whether ack_with_result may use commands of new servers only
    settled: SettledJobs | None = None  # the last answer of reschedule or bury
    looked_at: int = 0  # by the last release_entries
    cancelled_name: str = ""  # of the job that the last cancel has removed
    refusal: str = ""  # the refusal that the last promote, replay or move_delayed met

    def run(self, script: scripts.Script, keys: list[str], *arguments: Any) -> Any:
        return self.client.eval(script.text, len(keys), *keys, *arguments)

    # Calls of workers -----------------------------------------------------------------------------------------------

    def create(self) -> None:
        self.client.xgroup_create(KEYS.stream, GROUP, "0", mkstream=True)

    def add(self, count: int) -> list[bytes]:
        with self.client.pipeline(transaction=False) as pipeline:
            for number in range(count):
                pipeline.xadd(KEYS.stream, {"d": b"job %d" % number, "n": "mail"})
            return list(pipeline.execute())

    def read(self, consumer: str, count: int) -> list[bytes]:
        replies = self.client.xreadgroup(GROUP, consumer, {KEYS.stream: ">"}, count=count)
        return [entry_id for _, entries in replies for entry_id, _ in entries]

    def deliver_to(self, consumer: str, count: int = 1) -> list[bytes]:
        """Fresh entries that this consumer has read."""
        self.add(count)
        return self.read(consumer, count)

    def steal(self, entry_id: bytes, consumer: str) -> None:
        """Another owner and one more delivery, as a takeover does it."""
        self.steal_all([entry_id], consumer)

    def steal_all(self, entry_ids: list[bytes], consumer: str) -> None:
        self.client.xclaim(KEYS.stream, GROUP, consumer, 0, entry_ids)

    def die(self, count: int = 1) -> list[bytes]:
        """Fresh letters, as from jobs that were buried."""
        with self.client.pipeline(transaction=False) as pipeline:
            for number in range(count):
                pipeline.xadd(KEYS.dead, {"d": b"dead %d" % number, "n": "mail", "reason": "unrecoverable"})
            return list(pipeline.execute())

    def lose_and_get_back(self, consumer: str, entry_id: bytes) -> None:
        """Another worker takes the entry over and dies: it is this consumer's again, two deliveries later."""
        self.steal(entry_id, "another")
        self.steal(entry_id, consumer)

    def recreate(self) -> None:
        """The group is destroyed and begins again: all that is in the stream is handed out as if for the first time."""
        self.client.xgroup_destroy(KEYS.stream, GROUP)
        self.create()

    @property
    def has_msetex(self) -> bool:
        server = self.client.info("server")
        return "valkey_version" not in server and parse_version(server["redis_version"]) >= (8, 4)

    @property
    def has_read_rights(self) -> bool:
        """Whether a user may be given the right to read a key alone."""
        server = self.client.info("server")
        return "valkey_version" in server or parse_version(server["redis_version"]) >= (7, 0)

    @property
    def can_ask_for_rights(self) -> bool:
        """Whether a script can ask what its user may do."""
        return self.has_read_rights  # both came with Redis 7.0

    @contextmanager
    def as_user(self, *rules: str) -> Iterator[Group]:
        """The same group, called by a user with these rules only."""
        self.client.execute_command("ACL", "SETUSER", "narrow", "on", ">word", *rules)
        try:
            known = self.client.connection_pool.connection_kwargs
            same = {name: known[name] for name in ("socket_timeout", "retry") if name in known}
            with redis.Redis(unix_socket_path=known["path"], username="narrow", password="word", **same) as narrow:
                yield Group(narrow, at_once=self.at_once)
        finally:
            self.client.execute_command("ACL", "DELUSER", "narrow")

    def destroy(self) -> None:
        self.client.xgroup_destroy(KEYS.stream, GROUP)

    @property
    def exists(self) -> bool:
        return any(group["name"] == GROUP.encode() for group in self.client.xinfo_groups(KEYS.stream))

    @contextmanager
    def full_memory(self) -> Iterator[None]:
        self.client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            self.client.config_set("maxmemory", 0)

    def make_idle(self, idle_ms: int, *entry_ids: bytes) -> None:
        """Sets the idle time of the entries."""
        owners = self.holds
        with self.client.pipeline(transaction=False) as pipeline:
            for entry_id in entry_ids:
                owner = owners[entry_id].owner
                pipeline.xclaim(KEYS.stream, GROUP, owner, 0, [entry_id], idle=idle_ms, justid=True)
            pipeline.execute()

    # The scripts ----------------------------------------------------------------------------------------------------

    # The delivery is the first one, unless another is named.

    def reschedule(
        self,
        consumer: str,
        *jobs: tuple[bytes, int, bytes],
        delivery: int = 1,
        job_id: str = "job",
        may_be_unique: int = 0,
        events: tuple[list[bytes], ...] = (),
    ) -> int:
        """Returns how many were moved; `settled` has the answer for each. The events are each job's."""
        event_words = _rendered(events)
        words = [
            word
            for entry_id, *job in jobs
            for word in (entry_id, delivery, *job, job_id, may_be_unique, len(event_words), *event_words)
        ]
        keys = [KEYS.stream, KEYS.delayed, KEYS.events, REPORTS, KEYS.cancelled]
        head = (GROUP, consumer, KEYS.prefix, KEPT_MS, EVENTS_MAX_LEN)
        self.settled = read_settled_jobs(self.run(scripts.RESCHEDULE, keys, *head, *words), len(jobs))
        return self.settled.answers.count(b"1")

    def bury(
        self,
        consumer: str,
        *jobs: tuple[bytes, list[bytes]],
        delivery: int = 1,
        max_len: int = 0,
        job_id: str = "",
        events: tuple[list[bytes], ...] = (),
    ) -> int:
        """As reschedule."""
        event_words = _rendered(events)
        words = [
            word
            for entry_id, fields in jobs
            for word in (entry_id, delivery, job_id, len(fields), len(event_words), *fields, *event_words)
        ]
        keys = [KEYS.stream, KEYS.dead, KEYS.dead_dropped, KEYS.events, KEYS.delayed, REPORTS, KEYS.cancelled]
        head = (GROUP, consumer, max_len, KEYS.prefix, EVENTS_MAX_LEN)
        self.settled = read_settled_jobs(self.run(scripts.BURY, keys, *head, *words), len(jobs))
        return self.settled.answers.count(b"1")

    def ack_unique(self, *entries: tuple[bytes, str]) -> int:
        words = [word for entry in entries for word in entry]
        acked = self.run(scripts.ACK_UNIQUE, [KEYS.stream, KEYS.delayed], GROUP, KEYS.prefix, *words)
        assert isinstance(acked, int)
        return acked

    def ack_with_result(self, *done: Stored, ttl_ms: int = KEPT_MS) -> int:
        ids = [job.entry_id for job in done]
        results = [(KEYS.result(job.job_id), job.result) for job in done if job.is_stored]
        marked = [(job.entry_id, job.job_id) for job in done if job.may_be_unique]
        head = (GROUP, KEYS.prefix, ttl_ms, int(self.at_once), len(ids), len(results))
        words = [word for pair in (*results, *marked) for word in pair]
        refused = self.run(scripts.ACK_WITH_RESULT, [KEYS.stream, KEYS.delayed], *head, *ids, *words)
        assert isinstance(refused, int)
        return refused

    def write_events(self, *events: Sequence[str | bytes], max_len: int = 1000) -> int:
        words = [word for event in events for word in (len(event), *event)]
        written = self.run(scripts.WRITE_EVENTS, [KEYS.events], max_len, *words)
        assert isinstance(written, int)
        return written

    def write_completed(self, *runs: CompletedRun, max_len: int = 1000, results: str = "") -> int:
        words = [word for run in runs for word in run]
        event_words = self.run(scripts.WRITE_COMPLETED, [KEYS.events], max_len, results, *words)
        assert isinstance(event_words, int)
        return event_words

    def pause(self) -> int:
        reply = self.run(scripts.PAUSE, [KEYS.paused])
        assert isinstance(reply, int)
        return reply

    def purge_waiting(self, count: int = 100, newest: bytes = b"+", *, max_bytes: int = 2**30) -> int:
        keys = [KEYS.stream, KEYS.delayed, KEYS.events]
        removed = self.run(scripts.PURGE_WAITING, keys, count, KEYS.prefix, max_bytes, newest, EVENTS_MAX_LEN)
        assert isinstance(removed, int)
        return removed

    def purge_delayed(self, count: int = 100, *, max_bytes: int = 2**30) -> int:
        keys = [KEYS.delayed, KEYS.stream, KEYS.events]
        removed = self.run(scripts.PURGE_DELAYED, keys, count, KEYS.prefix, max_bytes, EVENTS_MAX_LEN)
        assert isinstance(removed, int)
        return removed

    def empty_stream(self) -> int:
        was_there = self.run(scripts.EMPTY_STREAM, [KEYS.stream])
        assert isinstance(was_there, int)
        return was_there

    def replay(self, *jobs: tuple[bytes, bytes, bytes]) -> int:
        """Each a letter's id, an envelope and a name."""
        words = [word for job in jobs for word in job]
        moved, refusal = self.run(scripts.REPLAY, [KEYS.dead, KEYS.stream], *words)
        self.refusal = refusal.decode()
        assert isinstance(moved, int)
        return moved

    def promote(
        self,
        holder: str = "a",
        *,
        lease_ms: int = 2000,
        batch: int = 100,
        longest_ms: int = LONGEST_MS,
        events: int = 0,
        max_bytes: int = 2**20,
    ) -> Promoted:
        keys = [KEYS.delayed, KEYS.stream, KEYS.promoter_lease, KEYS.dead, KEYS.events]
        words = (holder, lease_ms, batch, longest_ms, events, KEYS.prefix, max_bytes)
        reply = self.run(scripts.PROMOTE, keys, *words)
        if reply[0]:
            self.refusal = reply.pop().decode()
        return Promoted(*reply)

    def add_with_options(
        self,
        *jobs: Wanted,
        number: int | None = None,
        slot: int = 0,
        room: int = 0,
        needed: int = 0,
    ) -> str:
        """A batch of its own, unless a number is named."""
        self.number = self.number + 1 if number is None else number
        keys = [KEYS.stream, LEDGER, KEYS.delayed]
        head = (slot, self.number, LEDGER_TTL_MS, room, needed, KEYS.prefix, KEPT_MS, KEYS.due_channel)
        answers = self.run(scripts.ADD_WITH_OPTIONS, keys, *head, *(word for job in jobs for word in job))
        assert isinstance(answers, bytes)
        return answers.decode()

    def move_delayed(self, action: str, *ids: str, delay_ms: int = 0, max_bytes: int = 2**30) -> list[int]:
        keys = [KEYS.delayed, KEYS.stream, KEYS.events]
        head = (action, delay_ms, KEYS.prefix, KEPT_MS, KEYS.due_channel, max_bytes, EVENTS_MAX_LEN)
        found, refusal = self.run(scripts.MOVE_DELAYED, keys, *head, *ids)
        self.refusal = refusal.decode()
        assert isinstance(found, list)
        return found

    def cancel(
        self, job_id: str, entry_id: bytes | str = "", *, is_lost: bool = False, most_notes: int = 10_000
    ) -> str:
        keys = [KEYS.stream, KEYS.delayed, KEYS.events, KEYS.cancelled, *make_keys_of_job(KEYS, job_id)]
        head = (job_id, entry_id, int(is_lost), KEPT_MS, most_notes, EVENTS_MAX_LEN, KEYS.pause_channel)
        word, name = self.run(scripts.CANCEL, keys, *head)
        self.cancelled_name = name.decode()
        return str(word.decode())

    def read_cancellations(self, max_bytes: int = 2**20, *, most_notes: int = 10_000) -> dict[bytes, bytes]:
        words = self.run(scripts.READ_CANCELLATIONS, [KEYS.stream, KEYS.cancelled], max_bytes, most_notes)
        return dict(zip(words[::2], words[1::2], strict=True))

    @property
    def notes(self) -> dict[bytes, bytes]:
        return dict(self.client.hgetall(KEYS.cancelled))

    # Calls of repeatables -------------------------------------------------------------------------------------------

    def due_repeatables(
        self,
        holder: str = "a",
        *,
        lease_ms: int = 3000,
        batch: int = 100,
        longest_ms: int = LONGEST_MS,
        spec_bytes: int = 2**20,
        all_bytes: int = 2**22,
    ) -> DueReply:
        keys = [KEYS.repeat, KEYS.scheduler_lease, KEYS.repeat_paused]
        arguments = (holder, lease_ms, batch, KEYS.prefix, longest_ms, spec_bytes, all_bytes)
        leads, now_ms, next_ms, *rest = self.run(scripts.DUE_REPEATABLES, keys, *arguments)
        if leads:
            return DueReply(leads, now_ms, next_ms, [tuple(spec) for spec in rest])
        return DueReply(leads, now_ms, next_ms, [], *rest)

    def fire(self, *fires: Fire) -> list[int]:
        words = [word for fire in fires for word in (*fire[:5], len(fire.envelopes), *fire.envelopes)]
        keys = [KEYS.stream, KEYS.repeat, *(KEYS.repeat_spec(fire.key) for fire in fires)]
        moved = self.run(scripts.FIRE, keys, *words)
        assert isinstance(moved, list)
        return moved

    def bury_repeatable(self, *broken: tuple[str, int, bytes, str]) -> int:
        """Each is a key, a score, a spec and an error text."""
        moved, refusal = self.bury_repeatable_by_size(
            *((key, score, len(spec), spec, why) for key, score, spec, why in broken)
        )
        assert refusal == b""
        return moved

    def bury_repeatable_by_size(
        self, *broken: tuple[str, int, int, bytes, str], again_ms: int = 0
    ) -> tuple[int, bytes]:
        """The same with the size of each spec, which may be too large to be seen."""
        words = [word for one in broken for word in one]
        keys = [KEYS.repeat, KEYS.dead, *(KEYS.repeat_spec(one[0]) for one in broken)]
        moved, refusal = self.run(scripts.BURY_REPEATABLE, keys, again_ms, *words)
        return moved, refusal

    def upsert_repeatable(
        self, key: str, score: int, spec: bytes = b"spec", retry: bytes = b"", *, keeps: bool = False
    ) -> int:
        """Upserts over the stored spec. Returns whether it is new."""
        is_there = (key.encode() in self.repeatables) or (key.encode() in self.paused)
        seen = (self.client.hget(KEYS.repeat_spec(key), "spec") or b"") if is_there else b""
        return int(self.upsert_repeatable_after(seen, key, score, spec, retry, keeps=keeps)[0])

    def upsert_repeatable_after(
        self, seen: bytes, key: str, score: int, spec: bytes = b"spec", retry: bytes = b"", *, keeps: bool = False
    ) -> list[Any]:
        keys = [KEYS.repeat, KEYS.repeat_paused, KEYS.repeat_spec(key)]
        arguments = (key, score, spec, retry, KEYS.repeat_channel, self.now_ms, seen, int(keeps))
        stored = self.run(scripts.UPSERT_REPEATABLE, keys, *arguments)
        assert isinstance(stored, list)
        return stored

    def remove_pause_or_resume_repeatable(self, action: str, key: str, score: int = 0) -> int:
        keys = [KEYS.repeat, KEYS.repeat_paused, KEYS.repeat_spec(key)]
        moved = self.run(
            scripts.REMOVE_PAUSE_OR_RESUME_REPEATABLE, keys, action, key, score, KEYS.repeat_channel, self.now_ms
        )
        assert isinstance(moved, int)
        return moved

    def release_leader_lease(self, holder: str) -> int:
        gone = self.run(scripts.RELEASE_LEADER_LEASE, [KEYS.promoter_lease], holder)
        assert isinstance(gone, int)
        return gone

    def register_queue(self, queue: str, *, most_names: int = MAX_REGISTERED) -> bytes:
        answer = self.run(scripts.REGISTER_QUEUE, [], REGISTRY, queue, REGISTERED_MS, most_names)
        assert isinstance(answer, bytes)
        return answer

    def claim_name(self, consumer: str, token: str, *, confirms: bool = False) -> OtherClaim:
        keys = [KEYS.workers, KEYS.name_claim(GROUP, consumer)]
        words = (consumer, token, LEASE_MS, MAX_WORKER_LEASE_MS, int(confirms))
        return read_other_claim(self.run(scripts.CLAIM_NAME, keys, *words))

    def renew_worker_lease(self, consumer: str, *entry_ids: bytes, delivery: int = 1) -> list[bytes]:
        return self.renew_lease_of(consumer, dict.fromkeys(entry_ids, delivery))

    def renew_lease_of(self, consumer: str, held: dict[bytes, int]) -> list[bytes]:
        """By deliveries of their own."""
        words = [word for entry in held.items() for word in entry]
        return self.renew_with_record(consumer, b"", *words).lost

    def renew_with_record(self, consumer: str, record: bytes, *words: bytes | int) -> RenewalResult:
        keys = [KEYS.stream, KEYS.workers, REPORTS, KEYS.worker(consumer), KEYS.paused, KEYS.cancelled]
        head = (GROUP, consumer, LEASE_MS, KEPT_MS, record, RECORD_KEPT_MS)
        return read_renewal_result(self.run(scripts.RENEW_WORKER_LEASE, keys, *head, *words))

    def hold_lease(self, consumer: str, after: bytes = b"", *, least_left_ms: int = LEASE_MS // 2) -> bytes | None:
        """None if the worker renews its lease itself."""
        keys = [KEYS.stream, KEYS.workers, REPORTS]
        last = self.run(scripts.HOLD_LEASE, keys, GROUP, consumer, LEASE_MS, least_left_ms, KEPT_MS, after)
        assert last is None or isinstance(last, bytes)
        return last

    def rebuild_group(self, consumer: str, held: dict[bytes, int] | None = None, *, lease_ms: int = LEASE_MS) -> int:
        """Reports, and claims what is held as soon as the group exists, as a worker does."""
        last = max(held or {}, key=make_entry_sort_key, default=b"")
        state = self.report(consumer, last, lease_ms=lease_ms)
        if state == MUST_CLAIM:
            self.claim_held(consumer, held or {}, lease_ms=lease_ms)
            state = self.report(consumer, last, lease_ms=lease_ms)
        return state

    def report(self, consumer: str, last: bytes = b"", *, lease_ms: int = LEASE_MS) -> int:
        keys = [KEYS.stream, KEYS.workers, REPORTS]
        head = (GROUP, consumer, lease_ms, KEPT_MS, HEIR, RELEASED_IDLE_MS)
        state = self.run(scripts.REBUILD_GROUP, keys, *head, last)
        assert isinstance(state, int)
        return state

    def claim_held(self, consumer: str, held: dict[bytes, int], *, is_last: int = 1, lease_ms: int = LEASE_MS) -> int:
        words = [word for entry in held.items() for word in entry]
        keys = [KEYS.stream, KEYS.workers, REPORTS]
        has_report = self.run(scripts.CLAIM_HELD, keys, GROUP, consumer, lease_ms, KEPT_MS, is_last, *words)
        assert isinstance(has_report, int)
        return has_report

    def release_entries(self, consumer: str, *held: tuple[bytes, int], deadline_ms: int = 2**53) -> int:
        words = [word for entry in held for word in entry]
        keys = [KEYS.stream, KEYS.workers]
        head = (GROUP, consumer, HEIR, RELEASED_IDLE_MS, KEPT_MS, deadline_ms)
        released, self.looked_at = self.run(scripts.RELEASE_ENTRIES, keys, *head, *words)
        assert isinstance(released, int)
        return released

    def leave_group(self, consumer: str, *, lease: float | None = None) -> int:
        """Ends the lease that is stored, unless another is named."""
        keys = [KEYS.stream, KEYS.workers, KEYS.worker(consumer), KEYS.name_claim(GROUP, consumer)]
        known = (self.lease(consumer) or 0.0) if lease is None else lease
        gone = self.run(scripts.LEAVE_GROUP, keys, GROUP, consumer, KEPT_MS, repr(known))
        assert isinstance(gone, int)
        return gone

    def take_over(
        self,
        consumer: str,
        dead: str,
        *,
        lease: float | None = None,
        min_idle_ms: int = 30_000,
        count: int = 100,
        bounds: tuple[int, int] = UNBOUNDED,
    ) -> list[Taken] | None:
        """Judged by the lease that is stored, unless another is named."""
        judged = self.lease(dead) if lease is None else lease
        head = (GROUP, consumer, dead, int(judged or 0), min_idle_ms, count)
        reply = self.run(scripts.TAKE_OVER, [KEYS.stream, KEYS.workers], *head, *bounds)
        return None if reply is None else _taken(reply)

    def claim_idle(
        self, consumer: str, *, min_idle_ms: int = 30_000, count: int = 100, bounds: tuple[int, int] = UNBOUNDED
    ) -> list[Taken]:
        reply = self.run(scripts.CLAIM_IDLE, [KEYS.stream, KEYS.workers], GROUP, consumer, min_idle_ms, count, *bounds)
        return _taken(reply)

    def count_delivery(self, consumer: str, *seen: tuple[bytes, int]) -> int:
        words = [word for entry in seen for word in entry]
        counted = self.run(scripts.COUNT_DELIVERY, [KEYS.stream], GROUP, consumer, *words)
        assert isinstance(counted, int)
        return counted

    def list_pending(
        self,
        consumer: str,
        *,
        start: bytes = b"-",
        last: bytes = b"+",
        count: int = 100,
        bounds: tuple[int, int] = UNBOUNDED,
    ) -> list[Taken]:
        return _taken(self.run(scripts.LIST_PENDING, [KEYS.stream], GROUP, consumer, start, last, count, *bounds))

    def read_now_within_bounds(
        self, consumer: str, *, count: int = 100, bounds: tuple[int, int] = UNBOUNDED
    ) -> list[Taken]:
        reply = self.run(scripts.READ, [KEYS.stream], GROUP, consumer, count, *bounds)
        return _taken([[*entry, 0] for entry in reply])

    # Stored state ---------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    @property
    def now_us(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    def wait_ms(self, milliseconds: int) -> None:
        """Waits until the server's clock has advanced by `milliseconds`."""
        end = self.now_us + 1000 * milliseconds
        while self.now_us < end:
            pass

    @property
    def stream(self) -> list[bytes]:
        return [entry_id for entry_id, _ in self.client.xrange(KEYS.stream)]

    @property
    def envelopes(self) -> list[bytes]:
        return [fields[b"d"] for _, fields in self.client.xrange(KEYS.stream)]

    @property
    def holds(self) -> dict[bytes, Hold]:
        found = self.client.xpending_range(KEYS.stream, GROUP, "-", "+", 100_000)
        return {hold["message_id"]: Hold(hold["consumer"].decode(), hold["times_delivered"]) for hold in found}

    def idle_ms(self, entry_id: bytes) -> int:
        (hold,) = self.client.xpending_range(KEYS.stream, GROUP, entry_id, entry_id, 1)
        return int(hold["time_since_delivered"])

    @property
    def consumers(self) -> set[str]:
        return {consumer["name"].decode() for consumer in self.client.xinfo_consumers(KEYS.stream, GROUP)}

    @property
    def delayed(self) -> dict[bytes, float]:
        return dict(self.client.zrange(KEYS.delayed, 0, -1, withscores=True))

    @property
    def letters(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.client.xrange(KEYS.dead)]

    @property
    def letter_ids(self) -> list[bytes]:
        return [letter_id for letter_id, _ in self.client.xrange(KEYS.dead)]

    @property
    def entries(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.client.xrange(KEYS.stream)]

    @property
    def events(self) -> list[list[bytes]]:
        """Each with its fields and values in their order."""
        return [[word for pair in fields.items() for word in pair] for _, fields in self.client.xrange(KEYS.events)]

    def result(self, job_id: str) -> bytes | None:
        stored = self.client.get(KEYS.result(job_id))
        assert stored is None or isinstance(stored, bytes)
        return stored

    def uniqueness_key(self, job_id: str) -> str | None:
        """The value of the uniqueness key of this id."""
        stored = self.client.get(unique_key(job_id))
        return None if stored is None else stored.decode()

    def index(self, job_id: str) -> bytes | None:
        """The member of the delayed set that this id finds."""
        stored = self.client.get(index_key(job_id))
        assert stored is None or isinstance(stored, bytes)
        return stored

    @property
    def repeatables(self) -> dict[bytes, float]:
        return dict(self.client.zrange(KEYS.repeat, 0, -1, withscores=True))

    @property
    def paused(self) -> dict[bytes, float]:
        return dict(self.client.zrange(KEYS.repeat_paused, 0, -1, withscores=True))

    def spec(self, key: str) -> dict[bytes, bytes]:
        return dict(self.client.hgetall(KEYS.repeat_spec(key)))

    @contextmanager
    def published(self, channel: str) -> Iterator[list[Any]]:
        """The messages published on the channel during the block, numbers as ints; filled at its end."""
        messages: list[Any] = []
        with self.client.pubsub() as pubsub:
            pubsub.subscribe(channel)
            assert pubsub.get_message(timeout=30)["type"] == "subscribe"
            yield messages
            self.client.publish(channel, "end")
            while (message := pubsub.get_message(timeout=30))["data"] != b"end":
                word = message["data"]
                messages.append(int(word) if word.lstrip(b"-").isdigit() else word)

    @property
    def workers(self) -> dict[bytes, float]:
        return dict(self.client.zrange(KEYS.workers, 0, -1, withscores=True))

    def lease(self, consumer: str) -> float | None:
        score = self.client.zscore(KEYS.workers, consumer)
        return None if score is None else float(score)

    def end_lease(self, consumer: str) -> None:
        """As if this worker had been silent for longer than its lease; its entries were delivered before."""
        self.client.zadd(KEYS.workers, {consumer: self.now_ms})
        self.wait_ms(2)

    @property
    def keys(self) -> set[str]:
        return {key.decode() for key in self.client.keys("*")}


def unique_key(job_id: str) -> str:
    return KEYS.unique(job_id)


def official_unique_key(job_id: str) -> str:
    """The key that official producers read."""
    return KEYS.official_delayed_id(job_id)


def index_key(job_id: str) -> str:
    return KEYS.delayed_member(job_id)


def _rendered(events: tuple[list[bytes], ...]) -> list[bytes | int]:
    words: list[bytes | int] = []
    for event in events:
        words += (len(event), *event)
    return words


def _taken(reply: list[Any]) -> list[Taken]:
    return [
        Taken(
            entry_id, dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields, number
        )
        for entry_id, fields, number in reply
    ]


def refused(command: str) -> pytest.RaisesExc[redis.ResponseError]:
    """What a script raises for a user who may not run this command. Redis 7.0 does not name the command."""
    return pytest.raises(redis.ResponseError, match=rf"{command}|can't run this command")
