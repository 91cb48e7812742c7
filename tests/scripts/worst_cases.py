"""The largest call of each script that the engine sends, in a queue that has grown large.

A worst case prepares what the call needs and returns the call. The bounds are those of the code that sends it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pychasqui._core.defaults import MAX_PAYLOAD_BYTES, READ_COUNT
from pychasqui._core.limits import (
    ACK_BATCH_ALONE,
    ADD_BATCH_BYTES,
    ADD_BATCH_JOBS,
    ENTRY_EXTRA_BYTES,
    ID_COST,
    MAX_ERROR_CHARS,
    MAX_JOB_ID_BYTES,
    MAX_QUEUE_NAME_BYTES,
    MAX_REGISTERED,
    MOVED_BYTES,
    OUTCOME_BATCH,
    OUTCOME_BYTES,
    PAGE_BYTES,
    PROMOTE_BATCH,
    PROMOTE_BATCH_WITH_EVENTS,
    PROMOTE_BYTES,
    RESULT_BATCH_BYTES,
    UNIQUE_COST_BYTES,
)
from pychasqui._core.options import UNIQUE
from pychasqui._core.outcome import FailedRun, Rescheduled
from pychasqui._producer.encoder import JobBatch
from pychasqui._producer.session import MOVED_A_CALL
from pychasqui._redis import scripts
from pychasqui._redis.cancellations import MAX_NOTES
from pychasqui._redis.inspector import PURGED_A_CALL
from pychasqui._redis.keys import REGISTRY
from pychasqui._redis.leases import CLAIMED_A_CALL
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._worker.failed_job_mover import list_first_batches
from pychasqui._worker.release import RELEASED_A_CALL
from pychasqui._worker.scheduler import BYTES_A_CALL, JOBS_A_CALL
from tests.scripts.group import (
    GROUP,
    HOUR_MS,
    KEYS,
    LEDGER,
    LEDGER_TTL_MS,
    REPORTS,
    CompletedRun,
    Fire,
    Group,
    Stored,
    Wanted,
    index_key,
    official_unique_key,
    unique_key,
)

PENDING, WAITING, DELAYED, REPEATABLES, LETTERS, WORKERS = 100_000, 100_000, 100_000, 10_000, 10_000, 1000
BOUNDS = (PAGE_BYTES, MAX_PAYLOAD_BYTES + ENTRY_EXTRA_BYTES)
LARGE = MAX_PAYLOAD_BYTES - 100  # bytes of an envelope
Call = Callable[[], Any]
Case = Callable[[Group], Call]

FILL_STREAM = """for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'd', ARGV[2], 'n', 'mail') end"""
FILL_SET = """for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2] + i, ARGV[3] .. i) end"""


def grow(group: Group) -> None:
    """A queue with PENDING entries of a living worker, WAITING ones behind them, and so on."""
    client = group.client
    fill(group, KEYS.stream, PENDING)
    group.create()
    client.xreadgroup(GROUP, "busy", {KEYS.stream: ">"}, count=PENDING)
    fill(group, KEYS.stream, WAITING)
    fill(group, KEYS.dead, LETTERS)
    fill(group, KEYS.events, 100_000)
    client.eval(
        FILL_SET, 1, KEYS.delayed, DELAYED, group.now_ms + 24 * HOUR_MS, make_delayed_member("mail", b"\x93\xa1a")
    )
    client.eval(FILL_SET, 1, KEYS.repeat, REPEATABLES, group.now_ms + 24 * HOUR_MS, "another ")
    client.zadd(KEYS.workers, {f"worker {number}": group.now_ms + HOUR_MS for number in range(WORKERS)})
    client.zadd(KEYS.workers, {"busy": group.now_ms + HOUR_MS})


def fill(group: Group, stream: str, count: int, envelope: bytes = b"x" * 100) -> None:
    for start in range(0, count, 50_000):
        group.client.eval(FILL_STREAM, 1, stream, min(50_000, count - start), envelope)


def envelope(job_id: str, size: int = 200) -> bytes:
    return encode_envelope(job_id, b"\xc6" + size.to_bytes(4, "big") + b"x" * size, 1, 0, None)


_numbers = itertools.count()


def ids_of(count: int, id_bytes: int) -> list[str]:
    """No other job has had them."""
    return [f"{next(_numbers):0{id_bytes}d}" for _ in range(count)]


def held(group: Group, count: int, consumer: str = "busy") -> list[bytes]:
    """The first entries that are pending for a consumer."""
    some = group.client.xpending_range(KEYS.stream, GROUP, "-", "+", count, consumer)
    return [entry["message_id"] for entry in some]


def make_unique(group: Group, job_id: str, location: str | bytes, member: bytes = b"") -> None:
    group.client.set(unique_key(job_id), location, px=HOUR_MS)
    group.client.set(official_unique_key(job_id), "1", px=HOUR_MS)
    if member:
        group.client.set(index_key(job_id), member, px=HOUR_MS)


# Done, failed and dead jobs -----------------------------------------------------------------------------------------


def ack(group: Group) -> Call:
    ids = held(group, ACK_BATCH_ALONE)
    return lambda: group.run(scripts.ACK, [KEYS.stream], GROUP, *ids)


def acked_jobs(group: Group, most: int, result_bytes: int, id_bytes: int) -> list[tuple[bytes, str]]:
    """As many unique jobs as the acker sends in one call."""
    cost = result_bytes + UNIQUE_COST_BYTES + ID_COST * id_bytes
    count = min(most, RESULT_BATCH_BYTES // cost)
    done = list(zip(held(group, count), ids_of(count, id_bytes), strict=True))
    for entry_id, job_id in done:
        make_unique(group, job_id, entry_id)
    return done


def ack_unique(group: Group, id_bytes: int = 26) -> Call:
    done = acked_jobs(group, OUTCOME_BATCH, 0, id_bytes)
    return lambda: group.ack_unique(*done)


def ack_unique_with_long_ids(group: Group) -> Call:
    return ack_unique(group, MAX_JOB_ID_BYTES)


def ack_with_result(group: Group, id_bytes: int = 26, result: bytes = b"") -> Call:
    done = acked_jobs(group, ACK_BATCH_ALONE, len(result), id_bytes)
    group.at_once = group.has_msetex
    stored = [Stored(entry_id, job_id, 1, result=result) for entry_id, job_id in done]
    return lambda: group.ack_with_result(*stored)


def ack_with_result_of_a_kilobyte(group: Group) -> Call:
    return ack_with_result(group, result=b"x" * 1024)


def ack_with_result_and_long_ids(group: Group) -> Call:
    return ack_with_result(group, MAX_JOB_ID_BYTES)


def ack_with_large_result(group: Group) -> Call:
    (entry_id,) = held(group, 1)
    return lambda: group.ack_with_result(Stored(entry_id, result=b"x" * LARGE))


def failed_jobs(group: Group, id_bytes: int) -> list[tuple[bytes, str, bytes]]:
    """As many as the acker sends in one call: a large one, and OUTCOME_BYTES beside it."""
    run = FailedRun(1, 1, "err", "LookupError", "x" * MAX_ERROR_CHARS)
    jobs = [Rescheduled(b"1-1", 1, 1, b"m" * LARGE, "first", True, "mail", 1, run)]
    for job_id in ids_of(OUTCOME_BATCH, id_bytes):
        size = max(100, OUTCOME_BYTES // OUTCOME_BATCH - ID_COST * id_bytes)
        jobs.append(Rescheduled(b"1-1", 1, 1, b"m" * size, job_id, True, "mail", 1, run))
    alone, batch, *_ = list_first_batches(jobs)
    batch = [*alone, *batch[: OUTCOME_BATCH - 1]]
    failed = []
    for number, (entry_id, job) in enumerate(zip(held(group, len(batch)), batch, strict=True)):
        make_unique(group, job.job_id, entry_id)
        failed.append((entry_id, job.job_id, job.member + b"%d" % number))
    return failed


def reschedule(group: Group, id_bytes: int = 26) -> Call:
    words: list[Any] = []
    for entry_id, job_id, member in failed_jobs(group, id_bytes):
        event = [b"e", b"retry-scheduled", b"id", job_id.encode(), b"ts", b"1"]
        words += [entry_id, 1, 1000, member, job_id, 1, 2 * (len(event) + 1), *(2 * [len(event), *event])]
    keys = [KEYS.stream, KEYS.delayed, KEYS.events, REPORTS, KEYS.cancelled]
    head = (GROUP, "busy", KEYS.prefix, HOUR_MS, 100_000)
    return lambda: group.run(scripts.RESCHEDULE, keys, *head, *words)


def reschedule_long_ids(group: Group) -> Call:
    return reschedule(group, MAX_JOB_ID_BYTES)


def bury(group: Group, id_bytes: int = 26) -> Call:
    """The dead letters are far beyond their bound."""
    words: list[Any] = []
    for entry_id, job_id, envelope in failed_jobs(group, id_bytes):
        event = [b"e", b"dlq", b"id", job_id.encode(), b"ts", b"1"]
        own = [b"d", envelope, b"source_id", entry_id, b"reason", b"retries_exhausted"]
        words += [entry_id, 1, job_id, len(own), 2 * (len(event) + 1), *own, *(2 * [len(event), *event])]
    keys = [KEYS.stream, KEYS.dead, KEYS.dead_dropped, KEYS.events, KEYS.delayed, REPORTS, KEYS.cancelled]
    return lambda: group.run(scripts.BURY, keys, GROUP, "busy", 100, KEYS.prefix, 100_000, *words)


def bury_long_ids(group: Group) -> Call:
    return bury(group, MAX_JOB_ID_BYTES)


def replay(group: Group) -> Call:
    letters = group.client.xrange(KEYS.dead, count=200)
    jobs = [(letter_id, envelope("a", PAGE_BYTES // 200), b"mail") for letter_id, _ in letters]
    return lambda: group.replay(*jobs)


# Adds ---------------------------------------------------------------------------------------------------------------


def add(group: Group) -> Call:
    envelopes = [envelope(f"{n:026d}", ADD_BATCH_BYTES // ADD_BATCH_JOBS) for n in range(ADD_BATCH_JOBS)]
    group.number += 1
    words = (0, group.number, LEDGER_TTL_MS, 0, 1, ADD_BATCH_JOBS, 1, "mail", "", *envelopes)
    return lambda: group.run(scripts.ADD, [KEYS.stream, LEDGER], *words)


def add_with_options(group: Group, id_bytes: int = 26) -> Call:
    """As many as a producer sends in one call; of each there is another one, which has to be looked for."""
    ids = ids_of(ADD_BATCH_JOBS, id_bytes)
    bulk = JobBatch(1, ids, [envelope(job_id, 10) for job_id in ids], [b"mail"] * len(ids), [UNIQUE] * len(ids))
    jobs = [
        Wanted("mail", envelope(job_id, 10), job_id, f"+{HOUR_MS}", "postpone")
        for job_id in bulk.cut_into_batches()[0].ids
    ]
    for job in jobs:
        make_unique(group, job.id, "d")
    return lambda: group.add_with_options(*jobs)


def add_with_options_and_long_ids(group: Group) -> Call:
    return add_with_options(group, MAX_JOB_ID_BYTES)


# Delayed jobs -------------------------------------------------------------------------------------------------------


def delay(group: Group, ids: list[str], size: int, due_ms: int) -> None:
    with group.client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            member = make_delayed_member("mail", envelope(job_id, size))
            pipeline.zadd(KEYS.delayed, {member: due_ms})
            pipeline.set(index_key(job_id), member, px=HOUR_MS)
            pipeline.set(unique_key(job_id), "d", px=HOUR_MS)
        pipeline.execute()


def promote(group: Group) -> Call:
    delay(group, ids_of(PROMOTE_BATCH, 26), PROMOTE_BYTES // PROMOTE_BATCH - 60, 1)
    return lambda: group.promote(batch=PROMOTE_BATCH, max_bytes=PROMOTE_BYTES)


def promote_with_events(group: Group) -> Call:
    size = PROMOTE_BYTES // PROMOTE_BATCH_WITH_EVENTS - 60
    delay(group, ids_of(PROMOTE_BATCH_WITH_EVENTS, 26), size, 1)
    return lambda: group.promote(batch=PROMOTE_BATCH_WITH_EVENTS, max_bytes=PROMOTE_BYTES, events=100_000)


def promote_beside_large_others(group: Group) -> Call:
    """Of each id there is another job, which has the keys of the id: a large one, delayed or in the stream."""
    ids = ids_of(PROMOTE_BATCH, 26)
    delay(group, ids, 100, 1)
    other, entry_id = envelope("a", LARGE), group.client.xadd(KEYS.stream, {"d": envelope("a", LARGE)})
    for number, job_id in enumerate(ids):
        if number % 10 == 0:
            group.client.set(index_key(job_id), other, px=HOUR_MS)
        else:
            group.client.set(unique_key(job_id), entry_id, px=HOUR_MS)
    return lambda: group.promote(batch=PROMOTE_BATCH, max_bytes=PROMOTE_BYTES)


def move_delayed(group: Group, id_bytes: int = 26, size: int = 100, action: str = "run") -> Call:
    ids = ids_of(MOVED_A_CALL, id_bytes)[: max(20, 2 * MOVED_BYTES // (size + ID_COST * id_bytes))]
    delay(group, ids, size, group.now_ms + HOUR_MS)
    return lambda: group.move_delayed(action, *ids, max_bytes=MOVED_BYTES)


def move_delayed_with_long_ids(group: Group) -> Call:
    return move_delayed(group, MAX_JOB_ID_BYTES)


def move_large_delayed(group: Group) -> Call:
    return move_delayed(group, size=LARGE, action="cancel")


def cancel(group: Group) -> Call:
    """A large job with a long id, and some groups that have not received it."""
    (job_id,) = ids_of(1, MAX_JOB_ID_BYTES)
    for _ in range(20):
        group.client.xgroup_create(KEYS.stream, f"another {next(_numbers)}", "$")
    entry_id = group.client.xadd(KEYS.stream, {"d": envelope(job_id, LARGE - MAX_JOB_ID_BYTES), "n": "mail"})
    return lambda: group.cancel(job_id, entry_id)


def cancel_lost(group: Group) -> Call:
    fill(group, KEYS.stream, 1, b"x" * LARGE)
    return lambda: group.cancel("01ARZ3NDEKTSV4RRFFQ69G5FAV", is_lost=True)


def read_notes(group: Group, notes: dict[bytes, bytes]) -> Call:
    group.client.delete(KEYS.cancelled)
    fields = list(notes)
    for start in range(0, len(fields), 1000):
        group.client.hset(KEYS.cancelled, mapping={field: notes[field] for field in fields[start : start + 1000]})
    return lambda: group.read_cancellations(MOVED_BYTES, most_notes=MAX_NOTES)


def read_cancellations(group: Group) -> Call:
    """As many notes as there may be, of entries that are all there."""
    return read_notes(group, dict.fromkeys(held(group, MAX_NOTES), b"1"))


def read_moot_cancellations(group: Group) -> Call:
    return read_notes(group, {b"%d-0" % number: b"1" for number in range(1, MAX_NOTES)})


def read_cancellations_of_long_ids(group: Group) -> Call:
    """Each is as long as cancel lets it be."""
    sizes = [min(MAX_JOB_ID_BYTES, 40 * MAX_NOTES // count - 3) for count in range(1, MAX_NOTES + 1)]
    last = held(group, 1)[0]
    return read_notes(group, {b"id %0*d" % (size, number): last for number, size in enumerate(sizes)})


def read_too_many_cancellations(group: Group) -> Call:
    """Anybody may have written them."""
    return read_notes(group, {b"id %d" % number: b"9999999999999-1" for number in range(20 * MAX_NOTES)})


def reschedule_beside_cancelled(group: Group) -> Call:
    group.client.hset(KEYS.cancelled, mapping={f"id {number}": "1-1" for number in range(MAX_NOTES)})
    return reschedule(group)


def purge_delayed(group: Group, id_bytes: int = 26, size: int = 100) -> Call:
    ids = ids_of(PURGED_A_CALL, id_bytes)[: max(20, 2 * MOVED_BYTES // (size + id_bytes))]
    delay(group, ids, size, 1)
    return lambda: group.purge_delayed(PURGED_A_CALL, max_bytes=MOVED_BYTES)


def purge_delayed_with_long_ids(group: Group) -> Call:
    return purge_delayed(group, MAX_JOB_ID_BYTES)


def purge_large_delayed(group: Group) -> Call:
    return purge_delayed(group, size=LARGE)


def pause(group: Group) -> Call:
    return group.pause


def release_leader_lease(group: Group) -> Call:
    group.client.set(KEYS.promoter_lease, "a", px=HOUR_MS)
    return lambda: group.release_leader_lease("a")


# The stream ---------------------------------------------------------------------------------------------------------


def wait_in_stream(group: Group, envelopes: list[bytes]) -> None:
    """These are the next that would be read."""
    last = group.client.xinfo_stream(KEYS.stream)["last-generated-id"]
    group.client.execute_command("XGROUP", "SETID", KEYS.stream, GROUP, last)
    for one in envelopes:
        group.client.xadd(KEYS.stream, {"d": one})


def purge_waiting(group: Group, id_bytes: int = 26, size: int = 100) -> Call:
    ids = ids_of(PURGED_A_CALL, id_bytes)[: max(20, 2 * MOVED_BYTES // (size + id_bytes))]
    wait_in_stream(group, [envelope(job_id, size) for job_id in ids])
    for job_id in ids:
        make_unique(group, job_id, "d")
    return lambda: group.purge_waiting(PURGED_A_CALL, max_bytes=MOVED_BYTES)


def purge_waiting_with_long_ids(group: Group) -> Call:
    return purge_waiting(group, MAX_JOB_ID_BYTES)


def purge_large_waiting(group: Group) -> Call:
    return purge_waiting(group, size=LARGE)


def read(group: Group) -> Call:
    wait_in_stream(group, [envelope("a", PAGE_BYTES // READ_COUNT)] * READ_COUNT)
    return lambda: group.read_now_within_bounds("a", count=READ_COUNT, bounds=BOUNDS)


def read_large(group: Group) -> Call:
    wait_in_stream(group, [envelope("a", LARGE)] * 5)
    return lambda: group.read_now_within_bounds("a", count=READ_COUNT, bounds=BOUNDS)


def empty_stream(group: Group) -> Call:
    for number in range(990):
        group.client.xgroup_createconsumer(KEYS.stream, GROUP, f"consumer {number}")
    return lambda: group.empty_stream()


# Held entries -------------------------------------------------------------------------------------------------------


def renew_worker_lease(group: Group) -> Call:
    ids = held(group, 500)
    return lambda: group.renew_worker_lease("busy", *ids)


def hold_lease(group: Group) -> Call:
    group.client.zadd(KEYS.workers, {"busy": 1})
    return lambda: group.hold_lease("busy")


def release_entries(group: Group) -> Call:
    ids = held(group, RELEASED_A_CALL)
    return lambda: group.release_entries("busy", *((entry_id, 0) for entry_id in ids))


def count_delivery(group: Group) -> Call:
    some = group.client.xpending_range(KEYS.stream, GROUP, "-", "+", 500, "busy")
    seen = [(entry["message_id"], entry["times_delivered"]) for entry in some]
    return lambda: group.count_delivery("busy", *seen)


def claim_name(group: Group) -> Call:
    return lambda: group.claim_name("busy", "token")


def leave_group(group: Group) -> Call:
    return lambda: group.leave_group("busy")


def list_pending(group: Group) -> Call:
    return lambda: group.list_pending("busy", count=500, bounds=BOUNDS)


def take_over(group: Group) -> Call:
    """All that is pending for the dead worker is fresh."""
    group.client.zadd(KEYS.workers, {"busy": group.now_ms - HOUR_MS})
    return lambda: group.take_over("a", "busy", count=500, bounds=BOUNDS, min_idle_ms=HOUR_MS)


def take_over_page(group: Group) -> Call:
    group.client.zadd(KEYS.workers, {"busy": 0})
    return lambda: group.take_over("a", "busy", count=500, bounds=BOUNDS)


def claim_idle(group: Group) -> Call:
    group.client.zrem(KEYS.workers, "busy")
    return lambda: group.claim_idle("a", count=500, bounds=BOUNDS, min_idle_ms=0)


def claim_fresh(group: Group) -> Call:
    group.client.zrem(KEYS.workers, "busy")
    return lambda: group.claim_idle("a", count=500, bounds=BOUNDS, min_idle_ms=HOUR_MS)


def lose_group(group: Group) -> bytes:
    """The busy worker held all that was pending; the other workers have reported."""
    (last,) = (entry_id for entry_id, _ in group.client.xrevrange(KEYS.stream, count=1))
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    group.client.delete(REPORTS)
    group.client.hset(REPORTS, "until", group.now_ms + HOUR_MS)
    group.client.hset(REPORTS, mapping={f"of worker {number}": "" for number in range(WORKERS)})
    return last


def report(group: Group) -> Call:
    last = lose_group(group)
    return lambda: group.report("busy", last)


def hand_over(group: Group) -> Call:
    """Beside what the living worker holds."""
    last = lose_group(group)
    group.report("busy", last)
    own = [entry_id for entry_id, _ in group.client.xrevrange(KEYS.stream, count=PENDING // 2)]
    for start in range(0, len(own), 5000):
        group.claim_held("busy", dict.fromkeys(own[start : start + 5000], 1), is_last=0)
    group.claim_held("busy", {})
    group.client.hdel(REPORTS, *(f"of worker {number}" for number in range(WORKERS)))
    return lambda: group.report("busy", last)


def claim_held(group: Group) -> Call:
    last = lose_group(group)
    group.report("busy", last)
    ids = [entry_id for entry_id, _ in group.client.xrange(KEYS.stream, count=CLAIMED_A_CALL)]
    return lambda: group.claim_held("busy", dict.fromkeys(ids, 1), is_last=0)


# Repeatables --------------------------------------------------------------------------------------------------------


def due_repeatables(group: Group) -> Call:
    for number in range(250):
        group.client.zadd(KEYS.repeat, {f"due {number}": 1})
        group.client.hset(KEYS.repeat_spec(f"due {number}"), mapping={"spec": b"s" * 8000, "fired": "3"})
    return lambda: group.due_repeatables(batch=250)


def fire(group: Group, count: int = JOBS_A_CALL) -> Call:
    size = BYTES_A_CALL // count // 2
    fires = []
    for number in range(count):
        key, spec = f"due {number}", b"s" * size
        group.client.zadd(KEYS.repeat, {key: 1000})
        group.client.hset(KEYS.repeat_spec(key), mapping={"spec": spec, "fired": "3"})
        fires.append(Fire(key, 1000, spec, 9 * HOUR_MS, "mail", [envelope("a", size)]))
    return lambda: group.fire(*fires)


def fire_large(group: Group) -> Call:
    return fire(group, 2)


def bury_repeatable(group: Group) -> Call:
    spec = b"s" * MAX_PAYLOAD_BYTES
    group.client.zadd(KEYS.repeat, {"due": 1000})
    group.client.hset(KEYS.repeat_spec("due"), mapping={"spec": spec, "fired": "3"})
    return lambda: group.bury_repeatable_by_size(("due", 1000, len(spec), spec, "wrong"), again_ms=1000)


def upsert_repeatable(group: Group) -> Call:
    return lambda: group.upsert_repeatable("another 1", HOUR_MS, b"s" * MAX_PAYLOAD_BYTES, b"retry")


def remove_pause_or_resume_repeatable(group: Group) -> Call:
    group.client.hset(KEYS.repeat_spec("another 2"), mapping={"spec": b"s" * MAX_PAYLOAD_BYTES, "fired": "3"})
    return lambda: group.remove_pause_or_resume_repeatable("remove", "another 2")


# The registry of queues ---------------------------------------------------------------------------------------------


def register_queue(group: Group) -> Call:
    """All names are old, and as long as names can be."""
    group.client.delete(REGISTRY)
    group.client.eval(FILL_SET, 1, REGISTRY, MAX_REGISTERED, 1, "x" * (MAX_QUEUE_NAME_BYTES - 6))
    return lambda: group.register_queue("mail")


# Events -------------------------------------------------------------------------------------------------------------


def write_events(group: Group) -> Call:
    events = [
        ["e", "active", "id", f"{n:026d}", "ts", "1", "n", "mail", "attempt", "1"] for n in range(ACK_BATCH_ALONE)
    ]
    return lambda: group.write_events(*events, max_len=100_000)


def write_completed(group: Group) -> Call:
    runs = [CompletedRun(f"{n:026d}", "mail", started=1) for n in range(ACK_BATCH_ALONE)]
    return lambda: group.write_completed(*runs, max_len=100_000)


WORST_CASES: dict[str, tuple[Case, ...]] = {
    "ack": (ack,),
    "ack_unique": (ack_unique, ack_unique_with_long_ids),
    "ack_with_result": (
        ack_with_result,
        ack_with_result_of_a_kilobyte,
        ack_with_result_and_long_ids,
        ack_with_large_result,
    ),
    "add": (add,),
    "add_with_options": (add_with_options, add_with_options_and_long_ids),
    "bury": (bury, bury_long_ids),
    "bury_repeatable": (bury_repeatable,),
    "cancel": (cancel, cancel_lost),
    "claim_held": (claim_held,),
    "claim_idle": (claim_idle, claim_fresh),
    "claim_name": (claim_name,),
    "count_delivery": (count_delivery,),
    "due_repeatables": (due_repeatables,),
    "empty_stream": (empty_stream,),
    "fire": (fire, fire_large),
    "leave_group": (leave_group,),
    "list_pending": (list_pending,),
    "move_delayed": (move_delayed, move_delayed_with_long_ids, move_large_delayed),
    "remove_pause_or_resume_repeatable": (remove_pause_or_resume_repeatable,),
    "promote": (promote, promote_with_events, promote_beside_large_others),
    "purge_delayed": (purge_delayed, purge_delayed_with_long_ids, purge_large_delayed),
    "purge_waiting": (purge_waiting, purge_waiting_with_long_ids, purge_large_waiting),
    "read": (read, read_large),
    "read_cancellations": (
        read_cancellations,
        read_moot_cancellations,
        read_cancellations_of_long_ids,
        read_too_many_cancellations,
    ),
    "hold_lease": (hold_lease,),
    "register_queue": (register_queue,),
    "rebuild_group": (report, hand_over),
    "release_entries": (release_entries,),
    "pause": (pause,),
    "release_leader_lease": (release_leader_lease,),
    "renew_worker_lease": (renew_worker_lease,),
    "replay": (replay,),
    "reschedule": (reschedule, reschedule_long_ids, reschedule_beside_cancelled),
    "take_over": (take_over, take_over_page),
    "upsert_repeatable": (upsert_repeatable,),
    "write_completed": (write_completed,),
    "write_events": (write_events,),
}


CASES = [(script, case) for script, own in WORST_CASES.items() for case in own]
