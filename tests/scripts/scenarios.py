"""One call or more of every script, about the jobs alpha and beta, for the test that has each of its commands refused.

A scenario prepares a queue and returns the call. Writes to the keys in `best_effort` may be left undone:
its head says so. A ledger only records added batches, and a second sending shows whether it is right; except for
add_with_options, whose answer about a job that the stream refuses stays the same under its number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pychasqui._redis import scripts
from pychasqui._redis.keys import REGISTRY
from pychasqui._redis.leases import MUST_CLAIM
from pychasqui._wire.envelope import encode_envelope
from pychasqui._wire.member import make_delayed_member
from pychasqui._wire.msgpack import encode_data
from tests.scripts.group import (
    GROUP,
    HOUR_MS,
    KEYS,
    LEDGER,
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

JOBS = ("alpha", "beta")
A_MINUTE_MS = 60_000
Call = Callable[[Group], Any]
MARKERS = (unique_key(""), official_unique_key(""))
INDEXES = (index_key(""),)
OFFICIAL_OF_ALPHA = official_unique_key("alpha")


@dataclass(frozen=True)
class Scenario:
    script: str
    prepare: Callable[[Group], Call]
    title: str = ""
    best_effort: tuple[str, ...] = ()  # keys that begin so
    can_repeat: bool = True  # sent again when nothing is refused any more, it comes to its end
    writes: bool = True
    stands_on: tuple[str, ...] = ()  # keys that begin so: without them it is another call

    def may_lack(self, key: str) -> bool:
        return key.startswith(self.best_effort) if self.best_effort else False

    def __str__(self) -> str:
        return f"{self.script} {self.title}".strip()


def envelope(job: str) -> bytes:
    return encode_envelope(job, encode_data(job), 1_700_000_000_000, 0, None)


def member(job: str) -> bytes:
    return make_delayed_member("mail", envelope(job))


def hold(group: Group, consumer: str = "a", *, marked: bool = False) -> dict[str, bytes]:
    """Both jobs in the stream, read by this consumer; their entries' ids."""
    for job in JOBS:
        entry_id = group.client.xadd(KEYS.stream, {"d": envelope(job), "n": "mail"})
        if marked:
            group.client.set(unique_key(job), entry_id, px=HOUR_MS)
    return dict(zip(JOBS, group.read(consumer, 2), strict=True))


def lose(group: Group, held: dict[str, bytes], job: str) -> None:
    """Another worker has taken its entry over."""
    group.steal(held[job], "another")


def move_officially(group: Group, job: str) -> None:
    """An official promoter has moved the job to the stream, and has left its keys as they were."""
    group.client.set(unique_key(job), "d", px=HOUR_MS)
    group.client.set(index_key(job), member(job), px=HOUR_MS)
    group.client.set(official_unique_key(job), "1", px=HOUR_MS)


def delete_while_pending(group: Group, consumer: str) -> None:
    """One more entry, which is pending for this consumer and long idle, and not in the stream any more."""
    entry_id = group.client.xadd(KEYS.stream, {"d": "deleted"})
    group.read(consumer, 1)
    group.make_idle(HOUR_MS, entry_id)
    group.client.xdel(KEYS.stream, entry_id)


def delay(group: Group, delay_ms: int = -HOUR_MS, *, marker: str = "d") -> None:
    for job in JOBS:
        group.client.zadd(KEYS.delayed, {member(job): group.now_ms + delay_ms})
        group.client.set(index_key(job), member(job), px=HOUR_MS)
        group.client.set(unique_key(job), marker, px=HOUR_MS)


def put_others_beside(group: Group) -> None:
    """Another job of alpha's id is delayed, and one of beta's is in the stream: these two have the keys of the ids."""
    other = make_delayed_member("other", envelope("alpha"))
    group.client.zadd(KEYS.delayed, {other: group.now_ms + HOUR_MS})
    group.client.set(index_key("alpha"), other, px=HOUR_MS)
    entry_id = group.client.xadd(KEYS.stream, {"d": envelope("beta"), "n": "other"})
    group.client.set(unique_key("beta"), entry_id, px=HOUR_MS)


# Done, failed and dead jobs -----------------------------------------------------------------------------------------


def _ack(group: Group) -> Call:
    ids = hold(group).values()
    return lambda by: by.run(scripts.ACK, [KEYS.stream], GROUP, *ids)


def _finish(group: Group) -> Call:
    held = hold(group, marked=True)
    move_officially(group, "beta")
    return lambda by: by.ack_unique(*((entry_id, job) for job, entry_id in held.items()))


def _store(group: Group) -> Call:
    held = hold(group, marked=True)
    move_officially(group, "beta")
    group.at_once = group.has_msetex
    return lambda by: by.ack_with_result(
        *(Stored(entry_id, job, 1, result=job.encode()) for job, entry_id in held.items())
    )


def _store_one_by_one(group: Group) -> Call:
    """One of them has a result."""
    held = hold(group, marked=True)
    return lambda by: by.ack_with_result(
        *(Stored(entry_id, job, 1, is_stored=int(job == "alpha")) for job, entry_id in held.items())
    )


EVENT = ([b"e", b"failed", b"id", b"somebody"],)


def _reschedule(group: Group) -> Call:
    held = hold(group, marked=True)
    return lambda by: [
        by.reschedule("a", (entry_id, HOUR_MS, member(job)), job_id=job, may_be_unique=1, events=EVENT)
        for job, entry_id in held.items()
    ]


def _reschedule_lost(group: Group) -> Call:
    held = hold(group)
    lose(group, held, "beta")
    return lambda by: by.reschedule("a", *((entry_id, HOUR_MS, member(job)) for job, entry_id in held.items()))


def _reschedule_both(group: Group) -> Call:
    held = hold(group)
    return lambda by: by.reschedule("a", *((entry_id, HOUR_MS, member(job)) for job, entry_id in held.items()))


def _bury(group: Group) -> Call:
    held = hold(group, marked=True)
    move_officially(group, "beta")
    return lambda by: [
        by.bury("a", (entry_id, [b"d", envelope(job)]), job_id=job, events=EVENT) for job, entry_id in held.items()
    ]


def _bury_large(group: Group) -> Call:
    """The letter has what the entry has; the entry of another job was taken over."""
    held = hold(group)
    lose(group, held, "beta")
    return lambda by: by.bury("a", *((entry_id, [b"", b"", b"reason", b"large"]) for entry_id in held.values()))


def _bury_both(group: Group) -> Call:
    held = hold(group)
    group.client.set(KEYS.dead_dropped, 5)
    with group.client.pipeline(transaction=False) as pipeline:
        for _ in range(200):
            pipeline.xadd(KEYS.dead, {"d": "other"})
        pipeline.execute()
    return lambda by: by.bury("a", *((entry_id, [b"d", envelope(job)]) for job, entry_id in held.items()), max_len=10)


def _replay(group: Group) -> Call:
    letters = [(group.client.xadd(KEYS.dead, {"d": envelope(job)}), envelope(job), b"mail") for job in JOBS]
    return lambda by: by.replay(*letters)


# Adds ---------------------------------------------------------------------------------------------------------------


def _add(group: Group) -> Call:
    words = (0, 7, HOUR_MS, 100, 1, 2, 1, "mail", "", *map(envelope, JOBS))
    return lambda by: by.run(scripts.ADD, [KEYS.stream, LEDGER], *words)


def _add_to_a_used_slot(group: Group) -> Call:
    group.client.hset(LEDGER, "0", "6 1")
    return _add(group)


def _add_with_options(group: Group) -> Call:
    """An official worker has run an earlier job of the first id."""
    group.client.set(OFFICIAL_OF_ALPHA, "1", px=A_MINUTE_MS)
    alpha = Wanted("mail", envelope("alpha"), "alpha", only="keep")
    beta = Wanted("mail", envelope("beta"), "beta", due=f"+{HOUR_MS}", only="keep")
    return lambda by: by.add_with_options(alpha, beta, number=7)


def _add_delayed(group: Group) -> Call:
    wanted = [Wanted("mail", envelope(job), job, due=f"+{HOUR_MS}") for job in JOBS]
    return lambda by: by.add_with_options(*wanted, number=7)


def _replace(group: Group) -> Call:
    group.add_with_options(*(Wanted("old", envelope(job), job, only="keep") for job in JOBS))
    wanted = [Wanted("mail", envelope(job), job, due=f"+{HOUR_MS}", only="postpone") for job in JOBS]
    return lambda by: by.add_with_options(*wanted, number=7)


# Delayed jobs -------------------------------------------------------------------------------------------------------


def _promote(group: Group) -> Call:
    delay(group)
    return lambda by: by.promote(events=100)


def _promote_beside_others(group: Group) -> Call:
    delay(group)
    put_others_beside(group)
    return lambda by: by.promote()


def _promote_under_another(group: Group) -> Call:
    """Its lease has no end, and gets one."""
    delay(group)
    group.client.set(KEYS.promoter_lease, "another")
    return lambda by: by.promote()


def _promote_junk(group: Group) -> Call:
    group.client.zadd(KEYS.delayed, {member("alpha"): 1, b"\xff\xff\xff\xffbeta": 2})
    return lambda by: by.promote()


def _cancel(group: Group) -> Call:
    delay(group, HOUR_MS)
    group.client.xadd(KEYS.events, {"e": "other"})
    return lambda by: by.move_delayed("cancel", *JOBS)


def _cancel_delayed(group: Group) -> Call:
    delay(group, HOUR_MS)
    group.client.xadd(KEYS.events, {"e": "other"})
    return lambda by: [by.cancel(job) for job in JOBS]


def _cancel_waiting(group: Group) -> Call:
    ids = {job: group.client.xadd(KEYS.stream, {"d": envelope(job), "n": "mail"}) for job in JOBS}
    group.client.set(unique_key("alpha"), ids["alpha"], px=HOUR_MS)
    return lambda by: [by.cancel(job, entry_id) for job, entry_id in ids.items()]


def _cancel_held(group: Group) -> Call:
    hold(group, marked=True)
    return lambda by: [by.cancel(job) for job in JOBS]


def _cancel_lost(group: Group) -> Call:
    hold(group)
    return lambda by: [by.cancel(job, is_lost=True) for job in JOBS]


def _read_cancellations(group: Group) -> Call:
    held = hold(group)
    group.client.hset(
        KEYS.cancelled, mapping={held["alpha"]: "1", "9-9": "1", "id beta": held["beta"], "id old": "5-5"}
    )
    return lambda by: by.read_cancellations()


def _reschedule_beside_others(group: Group) -> Call:
    held = hold(group, marked=True)
    put_others_beside(group)
    return lambda by: [
        by.reschedule("a", (held[job], HOUR_MS, member(job)), job_id=job, may_be_unique=1) for job in JOBS
    ]


def _reschedule_cancelled(group: Group) -> Call:
    held = hold(group)
    group.client.hset(KEYS.cancelled, held["alpha"], "1")
    return lambda by: [by.reschedule("a", (held[job], HOUR_MS, member(job)), job_id=job) for job in JOBS]


def _bury_cancelled(group: Group) -> Call:
    held = hold(group, marked=True)
    group.client.hset(KEYS.cancelled, mapping=dict.fromkeys(held.values(), "1"))
    return lambda by: [by.bury("a", (entry_id, []), job_id=job, events=EVENT) for job, entry_id in held.items()]


def _postpone(group: Group) -> Call:
    delay(group, HOUR_MS)
    return lambda by: by.move_delayed("postpone", *JOBS, delay_ms=5 * HOUR_MS)


def _run_now(group: Group) -> Call:
    delay(group, HOUR_MS)
    return lambda by: by.move_delayed("run", *JOBS)


def _run_beside_others(group: Group) -> Call:
    delay(group, HOUR_MS)
    put_others_beside(group)
    return lambda by: by.move_delayed("run", "beta")


def _purge_delayed_beside_others(group: Group) -> Call:
    delay(group, HOUR_MS)
    put_others_beside(group)
    return lambda by: by.purge_delayed()


def _purge_delayed(group: Group) -> Call:
    delay(group, HOUR_MS)
    group.client.xadd(KEYS.events, {"e": "other"}, id="1-1")  # no id of an entry
    return lambda by: by.purge_delayed()


def _pause_queue(group: Group) -> Call:
    return lambda by: by.pause()


def _purge_waiting(group: Group) -> Call:
    for job in JOBS:
        group.client.set(unique_key(job), group.client.xadd(KEYS.stream, {"d": envelope(job)}), px=HOUR_MS)
    group.client.set(unique_key("alpha"), b"w" + group.stream[0], px=HOUR_MS)
    move_officially(group, "beta")
    group.client.xadd(KEYS.events, {"e": "other"}, id="1-1")  # no id of an entry
    return lambda by: by.purge_waiting()


def _empty_stream(group: Group) -> Call:
    hold(group)
    return lambda by: by.empty_stream()


def _yield(group: Group) -> Call:
    group.client.set(KEYS.promoter_lease, "a", px=HOUR_MS)
    return lambda by: by.release_leader_lease("a")


# Held entries -------------------------------------------------------------------------------------------------------


def _keep(group: Group) -> Call:
    held = hold(group)
    group.make_idle(HOUR_MS, *held.values())
    words = [word for entry_id in held.values() for word in (entry_id, 1)]
    return lambda by: by.renew_with_record("a", b"record", *words)


def _hold(group: Group) -> Call:
    held = hold(group)
    group.make_idle(HOUR_MS, *held.values())
    group.client.zadd(KEYS.workers, {"a": 1})
    return lambda by: by.hold_lease("a")


def _claim_name_when_free(group: Group) -> Call:
    """Another process has claimed the name, and has not gone on."""
    group.client.zadd(KEYS.workers, {"a": 1})
    group.client.set(KEYS.name_claim(GROUP, "a"), "another", px=A_MINUTE_MS)
    return lambda by: by.claim_name("a", "token")


def _release(group: Group) -> Call:
    held = hold(group)
    return lambda by: by.release_entries("a", *((entry_id, 0) for entry_id in held.values()))


def _leave(group: Group) -> Call:
    hold(group)
    group.client.zadd(KEYS.workers, {"a": group.now_ms + HOUR_MS})
    return lambda by: by.leave_group("a")


def _leave_with_nothing(group: Group) -> Call:
    group.read("a", 1)
    group.client.zadd(KEYS.workers, {"a": group.now_ms + HOUR_MS})
    return lambda by: by.leave_group("a")


def _takeover(group: Group) -> Call:
    hold(group, "dead")
    group.client.zadd(KEYS.workers, {"dead": 5})
    group.make_idle(HOUR_MS, *group.stream)
    delete_while_pending(group, "dead")
    return lambda by: by.take_over("a", "dead", lease=5)


def _claim_idle(group: Group) -> Call:
    hold(group, "official")
    group.make_idle(HOUR_MS, *group.stream)
    delete_while_pending(group, "official")
    return lambda by: by.claim_idle("a")


def _recount(group: Group) -> Call:
    held = hold(group)
    return lambda by: by.count_delivery("a", *((entry_id, 1) for entry_id in held.values()))


def _orphans(group: Group) -> Call:
    hold(group)
    return lambda by: by.list_pending("a")


def _read(group: Group) -> Call:
    for job in JOBS:
        group.client.xadd(KEYS.stream, {"d": envelope(job)})
    return lambda by: by.read_now_within_bounds("a", count=2)


def _regroup(group: Group) -> Call:
    held = hold(group)
    group.destroy()
    return lambda by: by.rebuild_group("a", dict.fromkeys(held.values(), 1))


def _hand_over(group: Group) -> Call:
    ids = [group.client.xadd(KEYS.stream, {"d": envelope(job)}) for job in JOBS]
    group.destroy()
    group.client.xgroup_create(KEYS.stream, GROUP, ids[-1])
    group.client.hset(REPORTS, mapping={"start": "-", "last": ids[-1]})
    return lambda by: by.rebuild_group("a")


def _claim_held(group: Group) -> Call:
    held = hold(group)
    group.destroy()
    assert group.report("a", held["beta"]) == MUST_CLAIM
    return lambda by: by.claim_held("a", dict.fromkeys(held.values(), 1))


# Repeatables --------------------------------------------------------------------------------------------------------


def _repeat(group: Group, score: int = 1000) -> None:
    for job in JOBS:
        group.client.zadd(KEYS.repeat, {job: score})
        group.client.hset(KEYS.repeat_spec(job), mapping={"spec": f"spec of {job}", "fired": "3"})


def _due_repeatables(group: Group) -> Call:
    """Beside one without a spec, one whose time is none, and one that is paused no more."""
    _repeat(group)
    group.client.zadd(KEYS.repeat, {"without": 5, "odd": 7.5})
    group.client.hset(KEYS.repeat_spec("odd"), "spec", "spec")
    group.client.zadd(KEYS.repeat_paused, {"gone": 1})
    return lambda by: by.due_repeatables()


def _due_repeatables_under_another(group: Group) -> Call:
    _repeat(group)
    group.client.set(KEYS.scheduler_lease, "another")
    return lambda by: by.due_repeatables()


def _fire(group: Group) -> Call:
    _repeat(group)
    fires = [Fire(job, 1000, b"spec of %s" % job.encode(), 9 * HOUR_MS, "mail", [envelope(job)]) for job in JOBS]
    return lambda by: by.fire(*fires)


def _fire_last(group: Group) -> Call:
    _repeat(group)
    fires = [Fire(job, 1000, b"spec of %s" % job.encode(), "", "mail", [envelope(job)]) for job in JOBS]
    return lambda by: by.fire(*fires)


def _set_aside(group: Group) -> Call:
    _repeat(group)
    specs = [b"spec of %s" % job.encode() for job in JOBS]
    broken = [(job, 1000, len(spec), spec, "wrong") for job, spec in zip(JOBS, specs, strict=True)]
    return lambda by: by.bury_repeatable_by_size(*broken, again_ms=1000)


def _upsert_repeatable(group: Group) -> Call:
    _repeat(group)
    return lambda by: [
        by.upsert_repeatable(job, 9 * HOUR_MS, b"new spec of %s" % job.encode(), b"retry") for job in JOBS
    ]


def _upsert_paused(group: Group) -> Call:
    _repeat(group)
    for job in JOBS:
        group.remove_pause_or_resume_repeatable("pause", job)
    return lambda by: [by.upsert_repeatable(job, 9 * HOUR_MS, b"new spec of %s" % job.encode()) for job in JOBS]


def _upsert_kept(group: Group) -> Call:
    """Official producers have stored what was paused."""
    _repeat(group)
    group.client.zadd(KEYS.repeat_paused, dict.fromkeys(JOBS, 1000))
    return lambda by: [by.upsert_repeatable(job, 1, b"new spec of %s" % job.encode(), keeps=True) for job in JOBS]


def _pause(group: Group) -> Call:
    _repeat(group)
    return lambda by: [by.remove_pause_or_resume_repeatable("pause", job) for job in JOBS]


def _resume(group: Group) -> Call:
    _repeat(group)
    for job in JOBS:
        group.remove_pause_or_resume_repeatable("pause", job)
    return lambda by: [by.remove_pause_or_resume_repeatable("resume", job, 9 * HOUR_MS) for job in JOBS]


def _remove(group: Group) -> Call:
    _repeat(group)
    return lambda by: [by.remove_pause_or_resume_repeatable("remove", job) for job in JOBS]


# Events -------------------------------------------------------------------------------------------------------------


def _write_events(group: Group) -> Call:
    return lambda by: by.write_events(*(["e", "active", "id", job] for job in JOBS))


def _write_completed(group: Group) -> Call:
    group.client.set(KEYS.result("alpha"), b"result")
    return lambda by: by.write_completed(*(CompletedRun(job, started=1) for job in JOBS), results=KEYS.result(""))


def _write_completed_of_names(group: Group) -> Call:
    return lambda by: by.write_completed(*(CompletedRun(job, "mail", started=1) for job in JOBS))


def _write_completed_alone(group: Group) -> Call:
    return lambda by: by.write_completed(*(CompletedRun(job) for job in JOBS))


def _register_queue(group: Group) -> Call:
    return lambda by: by.register_queue("mail")


SCENARIOS = [
    Scenario("ack", _ack),
    Scenario("ack_unique", _finish, best_effort=MARKERS),
    Scenario("ack_with_result", _store, best_effort=(*MARKERS, KEYS.result(""))),
    Scenario("ack_with_result", _store_one_by_one, "one by one", best_effort=(*MARKERS, KEYS.result(""))),
    Scenario("reschedule", _reschedule, best_effort=(*MARKERS, KEYS.events)),
    Scenario("reschedule", _reschedule_both, "both at once"),
    Scenario("reschedule", _reschedule_beside_others, "beside others", best_effort=(*MARKERS, *INDEXES)),
    Scenario("reschedule", _reschedule_lost, "of which one is lost"),
    Scenario("bury", _bury, best_effort=(*MARKERS, KEYS.events)),
    Scenario("bury", _bury_both, "both at once", best_effort=(KEYS.dead_dropped,)),
    Scenario("bury", _bury_large, "a large one beside a lost one"),
    Scenario("reschedule", _reschedule_cancelled, "of which one is cancelled", stands_on=(KEYS.cancelled,)),
    Scenario("bury", _bury_cancelled, "cancelled", best_effort=(*MARKERS, KEYS.events, KEYS.cancelled)),
    Scenario("cancel", _cancel_delayed, "delayed", best_effort=(*MARKERS, *INDEXES, KEYS.events)),
    Scenario("cancel", _cancel_waiting, "waiting", best_effort=MARKERS),
    Scenario("cancel", _cancel_held, "held", stands_on=MARKERS),
    Scenario("cancel", _cancel_lost, "lost"),
    Scenario("read_cancellations", _read_cancellations, best_effort=(KEYS.cancelled,)),
    Scenario("replay", _replay),
    Scenario("add", _add, best_effort=(LEDGER,)),
    Scenario("add", _add_to_a_used_slot, "to a used slot", best_effort=(LEDGER,)),
    Scenario(
        "add_with_options", _add_with_options, best_effort=(LEDGER, official_unique_key("alpha")), can_repeat=False
    ),
    Scenario("add_with_options", _add_delayed, "delaying", best_effort=(LEDGER,)),
    Scenario("add_with_options", _replace, "replacing", best_effort=(LEDGER,), stands_on=MARKERS),
    Scenario("promote", _promote, best_effort=(*MARKERS, *INDEXES, KEYS.events, KEYS.promoter_lease)),
    Scenario("promote", _promote_junk, "and sets aside", best_effort=(KEYS.promoter_lease,)),
    Scenario("promote", _promote_beside_others, "beside others", best_effort=(*MARKERS, *INDEXES, KEYS.promoter_lease)),
    Scenario("promote", _promote_under_another, "under another leader"),
    Scenario("move_delayed", _cancel, "cancelling", best_effort=(*MARKERS, *INDEXES, KEYS.events)),
    Scenario("move_delayed", _postpone, "postponing"),
    Scenario("move_delayed", _run_now, "running", best_effort=(*MARKERS, *INDEXES)),
    Scenario("move_delayed", _run_beside_others, "running beside others", best_effort=(*MARKERS, *INDEXES)),
    Scenario(
        "purge_delayed",
        _purge_delayed_beside_others,
        "beside others",
        best_effort=(*MARKERS, *INDEXES),
        stands_on=(KEYS.stream,),
    ),
    Scenario("purge_delayed", _purge_delayed, best_effort=(*MARKERS, *INDEXES, KEYS.events)),
    Scenario("purge_waiting", _purge_waiting, best_effort=(*MARKERS, KEYS.events)),
    Scenario("pause", _pause_queue),
    Scenario("empty_stream", _empty_stream),
    Scenario("release_leader_lease", _yield),
    Scenario("claim_name", _claim_name_when_free),
    Scenario("renew_worker_lease", _keep, best_effort=(KEYS.worker("a"),)),
    Scenario("hold_lease", _hold, stands_on=(KEYS.workers,)),
    Scenario("release_entries", _release),
    Scenario("leave_group", _leave),
    Scenario("leave_group", _leave_with_nothing, "with nothing"),
    Scenario("take_over", _takeover),
    Scenario("claim_idle", _claim_idle),
    Scenario("read", _read),
    Scenario("count_delivery", _recount),
    Scenario("list_pending", _orphans, writes=False),
    Scenario("rebuild_group", _regroup, best_effort=(REPORTS,)),
    Scenario("rebuild_group", _hand_over, "handing over", best_effort=(REPORTS,), stands_on=(REPORTS,)),
    Scenario("claim_held", _claim_held, stands_on=(REPORTS,)),
    Scenario("due_repeatables", _due_repeatables),
    Scenario("due_repeatables", _due_repeatables_under_another, "under another leader"),
    Scenario("fire", _fire),
    Scenario("fire", _fire_last, "for the last time", best_effort=(KEYS.repeat_spec(""),)),
    Scenario("bury_repeatable", _set_aside, best_effort=(KEYS.repeat_spec(""),)),
    Scenario("upsert_repeatable", _upsert_repeatable),
    Scenario("upsert_repeatable", _upsert_paused, "paused", best_effort=(KEYS.repeat_paused,)),
    Scenario("upsert_repeatable", _upsert_kept, "kept", best_effort=(KEYS.repeat_paused,)),
    Scenario("remove_pause_or_resume_repeatable", _pause, "pausing"),
    Scenario("remove_pause_or_resume_repeatable", _resume, "resuming"),
    Scenario("remove_pause_or_resume_repeatable", _remove, "removing"),
    Scenario("register_queue", _register_queue, best_effort=(REGISTRY,)),
    Scenario("write_events", _write_events, best_effort=(KEYS.events,)),
    Scenario("write_completed", _write_completed, best_effort=(KEYS.events,)),
    Scenario("write_completed", _write_completed_of_names, "of names", best_effort=(KEYS.events,)),
    Scenario("write_completed", _write_completed_alone, "without the start", best_effort=(KEYS.events,)),
]
