"""Fires due repeatables.

One process leads. It sleeps until the next repeatable is due, by the server's clock, and a message wakes it for one
that is due sooner. Because messages can get lost, and official producers publish nothing, it also looks every tick.
`plan_fires` decides what to fire. The script that fires compares what the decision was based on, so that two processes
that decide about the same window fire it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from .._core import clock
from .._core import ids as _ids
from .._core.fire_plan import GRACE_MS, MAX_FIRES, plan_fires
from .._core.guarded_log import GuardedLogger
from .._core.limits import SCHEDULER_LEASE_MS
from .._core.zones import NoZoneDatabase, UnknownZone
from .._redis.repeatables import MAX_SPEC_BYTES, DueRepeatables, DueSpec, FireDecision, RepeatablesBroker
from .._wire.envelope import encode_envelope, encode_extras
from .._wire.repeatable import decode_spec
from .._wire.retry_override import decode_retry
from ..errors import DecodeError
from ..job import SCHEDULED_AT
from ..metrics import JobsAdded, Record
from .leader import LeaderService
from .living_workers import LivingWorkers
from .outage import Outage
from .shared import OnDeath

log = GuardedLogger("chasqui.scheduler")

BATCH = 250
JOBS_A_CALL = 500
BYTES_A_CALL = 2 * 1024 * 1024
NOTHING_FIRED_PAUSE_S = 0.1  # how long to wait after a look at which nothing that is due could be fired
MAX_DECIDING_S = 0.005  # after this the event loop turns before the next decision: one may take milliseconds
GIVE_WAY_S = 10.0  # how long a process that does not know the zone of a repeatable lets others lead
GIVE_WAY_AGAIN_S = 60.0  # after which a process without a zone database first lets others lead again
LONGEST_GIVE_WAY_AGAIN_S = 3600.0
MAX_GIVEN_WAY = 1000
MAX_LEFT_DUE = 1000  # repeatables that are left due; a look lists that many more
GATHER_S = 0.05  # after this a call is sent with what it has: what is decided must not wait for slow decisions


class SchedulerService(LeaderService):
    title = role = "scheduler"
    what_waits = "repeatables"

    def __init__(
        self,
        repeats: RepeatablesBroker,
        holder: str,
        *,
        on_death: OnDeath,
        living_workers: LivingWorkers | None = None,
        tick_s: float,
        batch: int = BATCH,
        lease_ms: int = SCHEDULER_LEASE_MS,
        record_metric: Callable[[Record], None] | None = None,
    ) -> None:
        outage = Outage("repeatables wait, the scheduler keeps trying", "repeatables are fired again")
        super().__init__(
            repeats,
            outage,
            on_death=on_death,
            living_workers=living_workers or LivingWorkers(),
            record_metric=record_metric,
        )
        self._repeats = repeats
        self._holder = holder
        self._tick_s = tick_s
        self._batch = batch
        self._lease_ms = lease_ms
        self._grace_ms = max(GRACE_MS, int(3000 * tick_s))
        self._given_way: dict[str, int] = {}  # key and score of repeatables whose zone this machine does not know
        self._gives_way = False
        self._left_due: set[str] = set()  # keys of repeatables that wait for a machine with a zone database
        self._gives_way_again_at = 0.0
        self._give_way_again_s = GIVE_WAY_AGAIN_S  # doubles: nobody fires anything while all give way
        self.missed = 0  # how often a repeatable was found that had not been fired in time

    async def _release_leader_lease(self) -> None:
        await self._repeats.release_scheduler_lease_if_held(self._holder)

    async def _try_to_subscribe_to_due_hints(self) -> bool:
        return await self._repeats.try_to_subscribe_to_due_hints(self.apply_due_hint_if_leading)

    async def _do_due_if_leader_and_choose_pause_s(self, *, gets_no_messages: bool) -> float:
        self._next_due, self._gives_way = float("inf"), False
        asked_at = clock.monotonic()
        # What is left due comes first in the list: it must not keep the others out.
        max_due = self._batch + len(self._left_due)
        due = await self._repeats.try_to_lead_and_list_due(self._holder, self._lease_ms, max_due)
        self._note_leader_and_log_changes(due.other)
        if due.other is not None:
            return self._choose_standby_pause_s(due.next_due_ms, self._tick_s)
        self._left_due.intersection_update(one.key for one in due.specs)
        soonest, has_moved = float("inf"), False
        for fires in batch_fires_and_yield_loop_turns(self._plan_due_fires_or_leave_them(due)):
            if fires is None:
                await asyncio.sleep(0)
            elif isinstance(fires, tuple):
                await self._try_to_bury_repeatable(*fires, due.now_ms)
            else:
                moved = await self._repeats.fire_those_unchanged(fires)
                has_moved = has_moved or any(moved)
                self._record_added_jobs(fires, moved)
                soonest = min([soonest, *(one.next_ms for one in fires if one.next_ms is not None)])
        if self._gives_way:
            return await self._release_lease_and_choose_pause_s()
        if due.next_due_ms >= 0:
            soonest = min(soonest, due.now_ms + due.next_due_ms)
        # A message may have announced a sooner one meanwhile.
        next_due = asked_at + (soonest - due.now_ms) / 1000
        if due.specs and not has_moved:  # others were quicker, or it was refused
            next_due = max(next_due, asked_at + NOTHING_FIRED_PAUSE_S)
        self._next_due = min(self._next_due, next_due)
        return self._tick_s

    def _plan_due_fires_or_leave_them(self, due: DueRepeatables) -> Iterator[FireDecision | tuple[DueSpec, str] | None]:
        """Yields what to do about each; for one that cannot be fired, what is wrong with it; None: it is left due."""
        for one in due.specs:
            try:
                yield from _plan_fires_of_spec(one, due.now_ms, self._grace_ms, self._count_missed_fire)
            except DecodeError as error:
                detail = f"repeatable {one.key[:200]!r}: {error}"[:500]
                is_left_due = isinstance(error.__cause__, UnknownZone) and self._try_to_leave_to_others(
                    one, detail, has_database=not isinstance(error.__cause__, NoZoneDatabase)
                )
                yield None if is_left_due else (one, detail)

    def _try_to_leave_to_others(self, due: DueSpec, detail: str, *, has_database: bool) -> bool:
        """Leaves a repeatable whose zone is unknown here as it is, for another worker; False if that is of no use.

        A process that has a zone database lets others lead once for each window. One that has none cannot say that the
        zone does not exist, so it leaves the repeatable due, and lets others lead again and again.
        """
        has_given_way = self._given_way.get(due.key) == due.score
        if self._living_workers.count >= 2 and (
            not has_given_way or (not has_database and clock.monotonic() >= self._gives_way_again_at)
        ):
            self._mark_to_let_another_lead(due, detail)
            return True
        if has_database:
            return False
        if due.key not in self._left_due:
            if len(self._left_due) >= MAX_LEFT_DUE:
                return False  # more would keep all others out of the list
            self._left_due.add(due.key)
            log.error(
                "this machine has no zone database: install tzdata, or start a worker that has it; a repeatable "
                "stays due until then: %.300r",
                detail,
            )
        return True

    def _mark_to_let_another_lead(self, due: DueSpec, detail: str) -> None:
        if len(self._given_way) >= MAX_GIVEN_WAY:
            self._given_way.clear()
        if not self._gives_way:
            self._gives_way_again_at = clock.monotonic() + self._give_way_again_s
            self._give_way_again_s = min(2 * self._give_way_again_s, LONGEST_GIVE_WAY_AGAIN_S)
        self._given_way[due.key], self._gives_way = due.score, True
        log.error("this machine cannot fire a repeatable, and lets another worker lead: %.300r", detail)

    async def _release_lease_and_choose_pause_s(self) -> float:
        self._next_due, self._leads = float("inf"), False
        await self._release_leader_lease()
        return GIVE_WAY_S

    def _record_added_jobs(self, fires: list[FireDecision], were_fired: list[bool]) -> None:
        for one, was_fired in zip(fires, were_fired, strict=True):
            if not was_fired:
                log.debug("repeatable %.200r has changed since it was planned: it is not fired", one.due.key)
            elif one.envelopes and self._record_metric is not None:
                self._record_metric(JobsAdded(len(one.envelopes), "repeat", one.name))

    def _count_missed_fire(self) -> None:
        self.missed += 1

    async def _try_to_bury_repeatable(self, due: DueSpec, detail: str, now_ms: int) -> None:
        refusal = await self._repeats.try_to_bury_repeatable(due, detail, now_ms)
        if refusal is None:
            log.debug("repeatable %.200r has changed since it could not be fired: it stays", due.key)
        elif refusal:
            log.error("a repeatable can neither be fired nor be a dead letter (%.200r): %.300r", refusal, detail)
        else:
            self.buried_count += 1
            log.error("a repeatable cannot be fired and is in the dead letters now: %.300r", detail)


def _plan_fires_of_spec(
    due: DueSpec, now_ms: int, grace_ms: int, on_missed: Callable[[], None]
) -> Iterator[FireDecision]:
    """Decides what to fire: once, or several times in a row if it has many jobs or large ones.

    What is in time may as well follow in the next tick; of what was missed, the policy would then begin from the start.
    """
    if due.size > MAX_SPEC_BYTES:
        raise DecodeError(f"it has {due.size} bytes, {MAX_SPEC_BYTES} are allowed")
    spec = decode_spec(due.spec)
    if due.fired < 0:
        raise DecodeError("its count of fires is no number")
    retry = decode_retry(due.retry) if due.retry else None
    max_fires = max(1, BYTES_A_CALL // max(1, len(spec.payload)))

    def make_decision(due: DueSpec, next_ms: int | None, fires_ms: tuple[int, ...]) -> FireDecision:
        envelopes = [
            encode_envelope(_ids.new_id(), spec.payload, now_ms, 0, retry, encode_extras(**{SCHEDULED_AT: window_ms}))
            for window_ms in fires_ms
        ]
        return FireDecision(due, next_ms, spec.job_name, envelopes)

    score_ms, caught_up = due.score, 0
    plan = plan_fires(spec, due.score, fired_count=due.fired, now_ms=now_ms, grace_ms=grace_ms)
    if plan.has_missed:
        on_missed()
    while True:
        fires_ms = plan.fires_ms
        caught_up += len(fires_ms)
        while len(fires_ms) > max_fires:
            yield make_decision(due, fires_ms[max_fires], fires_ms[:max_fires])
            if not plan.has_missed:
                return
            due, fires_ms = due._replace(score=fires_ms[max_fires]), fires_ms[max_fires:]
        yield make_decision(due, plan.next_ms, fires_ms)
        if not plan.goes_on or plan.next_ms is None:
            break
        due = due._replace(score=plan.next_ms)
        plan = plan_fires(spec, due.score, fired_count=due.fired + caught_up, now_ms=now_ms, caught_up_count=caught_up)
    if plan.has_missed:
        _log_missed_fires(due.key, score_ms, caught_up, plan.given_up)


def _log_missed_fires(key: str, score_ms: int, caught_up_count: int, given_up_count: int) -> None:
    log.warning(
        "repeatable %.200r was not fired in time at %d, its policy makes up for %d", key, score_ms, caught_up_count
    )
    if given_up_count:
        log.warning(
            "repeatable %.200r has missed more than the cap of its policy: %d%s windows are given up",
            key,
            given_up_count,
            " or more" if given_up_count == MAX_FIRES else "",
        )


def batch_fires_and_yield_loop_turns(
    decisions: Iterator[FireDecision | tuple[DueSpec, str] | None],
) -> Iterator[list[FireDecision] | tuple[DueSpec, str] | None]:
    """Gathers fires into calls of a bounded size; passes the others on as they come.

    Yields None when the decisions have taken MAX_DECIDING_S: the event loop is to turn, and the call is filled further.
    """
    # hot: calls that were sent after MAX_DECIDING_S, half full, cost 8 to 32 % of the rate; benchmarks fire
    call: list[FireDecision] = []
    jobs, size, begun = 0, 0, clock.monotonic()
    turned = begun
    for decision in decisions:
        if not isinstance(decision, FireDecision):
            yield decision
            continue
        now = clock.monotonic()
        own_size = len(decision.due.spec) + sum(map(len, decision.envelopes))
        is_full = jobs + len(decision.envelopes) > JOBS_A_CALL or size + own_size > BYTES_A_CALL
        if call and (is_full or now - begun > GATHER_S):
            yield call
            call, jobs, size = [], 0, 0
            begun = turned = clock.monotonic()
        elif now - turned > MAX_DECIDING_S:
            yield None
            turned = clock.monotonic()
        call.append(decision)
        jobs += len(decision.envelopes)
        size += own_size
    if call:
        yield call
