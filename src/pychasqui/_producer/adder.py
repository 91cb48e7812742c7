"""Gathers the adds of one loop turn into numbered batches and sees each of them to its answer.

A batch takes one of a few slots, is sent, and keeps the slot until it is answered or its time is up. Adds that come
while all slots are taken gather in the next batch, so the busier Redis is, the larger the batches grow. Whatever gets
no answer is sent again, in order, under its old number: by it the ledger in Redis knows a second arrival.
A job that travels alone needs no ledger where the server itself remembers numbers.
It never waits past a batch's deadline, and it never guesses: a batch that was sent and not answered is reported as
unknown, one that was never sent as not added.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .._core.limits import ADD_BATCH_BYTES, ADD_BATCH_JOBS, ADD_WINDOW, LEDGER_TTL_MS
from .._core.options import PLAIN, AddOptions
from .._core.pauses import LONGEST_RESEND_PAUSE_S, compute_longer_pause_s
from .._redis.broker import Broker
from .._redis.error_actions import ErrorAction, action_for
from ..errors import AddUnknown, ChasquiError, ConnectionLost, NotRedis, RedisTrouble, ReplyError
from ..metrics import Record
from .add_batch import AddBatch

GATHER_S = 0.05  # how much of its time an add may lose by sharing a batch's deadline
FIRST_PAUSE_S = 0.01
REMEMBERED_S = 50.0  # a server remembers numbers for 100 s by default
DISTRUST_S = 100.0  # after a lost reply: a server remembers the last 100 numbers, and more would push that one out


class Adder:
    """The life of a batch: gathering -> waiting -> sent -> answered, or stuck and sent again."""

    def __init__(
        self,
        broker: Broker,
        *,
        max_stream_len: int,
        timeout_s: float,
        record_metric: Callable[[Record], None] | None = None,
    ) -> None:
        # The ledger lives for longer than anything is sent again.
        self._add_broker = broker.make_add_broker(ledger_ttl_ms=LEDGER_TTL_MS + int(2000 * timeout_s))
        self._record_metric = record_metric
        self._max_stream_len = max_stream_len
        self._timeout_s = timeout_s
        self._trusts_server = not max_stream_len and timeout_s <= REMEMBERED_S
        self._last_number = 0
        self._gathering: AddBatch | None = None
        self._waiting: deque[AddBatch] = deque()
        self._free_slots = list(range(ADD_WINDOW))
        self._sent: set[AddBatch] = set()
        self._stuck: list[AddBatch] = []
        self._resending: asyncio.Task[None] | None = None
        self._refusal: ReplyError | None = None  # the last one after which a batch is sent again
        self._pause_s = 0.0
        self._has_lost_replies = False

    def start_add(
        self, loop: asyncio.AbstractEventLoop, envelope: bytes, name: bytes, job_id: str, options: AddOptions
    ) -> asyncio.Future[str]:
        """Starts to add one job, together with the others of this turn. The answer is NEW, DUPLICATE or REPLACED."""
        if self._gathering is None and options is PLAIN and not (self._sent or self._stuck or self._waiting):
            waiter = self._try_send_alone(loop, envelope, name, job_id)
            if waiter is not None:
                return waiter
        batch, deadline = self._gathering, loop.time() + self._timeout_s
        if batch is None or deadline > batch.deadline + GATHER_S:
            if batch is not None:  # it has been waiting for a slot: who comes now shall not share its deadline
                self._waiting.append(batch)
            batch = self._gathering = AddBatch(deadline, 1, self._max_stream_len)
            loop.call_soon(self._send_waiting_while_slots_are_free)
        waiter = loop.create_future()
        batch.append(envelope, name, job_id, waiter)
        if options is not PLAIN or batch.options is not None:
            batch.set_options_of_last_job(options)
        if len(batch.waiters) >= ADD_BATCH_JOBS or batch.bytes >= ADD_BATCH_BYTES:
            self._waiting.append(batch)
            self._gathering = None
        return waiter

    def _try_send_alone(
        self, loop: asyncio.AbstractEventLoop, envelope: bytes, name: bytes, job_id: str
    ) -> asyncio.Future[str] | None:
        """Sends at once if nothing is on its way: there is nothing to wait for, not even the end of the turn."""
        session = self._add_broker.get_or_make_session_if_connected()
        if session is None:
            return None
        # hot: what the server needs comes first, what we need to remember while it is at work
        self._last_number += 1
        slot, bound = self._free_slots.pop(), self._max_stream_len
        is_sent_by_idmp = self._trusts_server and session.can_use_idmp
        if is_sent_by_idmp:
            session.write_add_by_idmp(self._last_number, envelope, name)
        else:
            session.write_add_of_one(slot, self._last_number, bound, envelope, name)
        batch = AddBatch(loop.time() + self._timeout_s, 1, bound, is_sent_by_idmp=is_sent_by_idmp)
        waiter = loop.create_future()
        batch.append(envelope, name, job_id, waiter)
        batch.assign_number_and_slot(self._last_number, slot)
        self._sent.add(batch)
        session.expect(batch.deadline, partial(self._complete_retry_or_fail_batch, batch))
        return waiter

    def start_add_of_batch(
        self,
        loop: asyncio.AbstractEventLoop,
        envelopes: list[bytes],
        names: list[bytes],
        ids: list[str],
        options: list[AddOptions] | None,
        needed_room: int,
        replicas: int = 0,
    ) -> asyncio.Future[str]:
        """Starts to add a batch that is taken whole, if there is room for `needed_room` jobs (0: without asking).

        The answer is a status for each job.
        """
        batch = AddBatch(loop.time() + self._timeout_s, needed_room, self._max_stream_len if needed_room else 0)
        waiter: asyncio.Future[str] = loop.create_future()
        batch.fill_with_bulk(envelopes, names, ids, options, waiter, replicas)
        self._waiting.append(batch)
        self._send_waiting_while_slots_are_free()
        return waiter

    async def close(self) -> None:
        """Waits for what is on its way, which its deadlines bound, and deletes the ledger.

        Once a reply was lost, bytes that were sent may still be on a line: the ledger stays until its TTL ends it.
        """
        self._send_waiting_while_slots_are_free()
        waiters = [waiter for batch in self._list_unfinished_batches() for waiter in batch.waiters]
        if waiters:
            await asyncio.wait(waiters)
        if self._resending is not None:
            self._resending.cancel()
            await asyncio.wait({self._resending})
        is_needed = self._has_lost_replies or not self._last_number
        if not is_needed and self._add_broker.get_or_make_session_if_connected() is not None:
            with suppress(RedisTrouble):  # its TTL ends it
                await self._add_broker.delete_ledger()

    def _list_unfinished_batches(self) -> list[AddBatch]:
        gathering = [self._gathering] if self._gathering is not None else []
        return [*self._sent, *self._stuck, *self._waiting, *gathering]

    def _send_waiting_while_slots_are_free(self) -> None:
        """Sends what has gathered, as far as slots are free."""
        while self._free_slots and not self._stuck:
            if self._waiting:
                if self._waiting[0].can_be_transaction and self._is_transaction_possible_soon():
                    return
                batch = self._waiting.popleft()
            elif self._gathering is not None:
                batch, self._gathering = self._gathering, None
            else:
                return
            self._last_number += 1
            batch.assign_number_and_slot(self._last_number, self._free_slots.pop())
            self._send_schedule_resend_or_give_up(batch)

    def _is_transaction_possible_soon(self) -> bool:
        """Returns whether large jobs can leave without a script in a moment."""
        session = self._add_broker.get_or_make_session_if_connected()
        return session is not None and session.transactions.is_watch_awaited

    def _send_schedule_resend_or_give_up(self, batch: AddBatch) -> None:
        session = self._add_broker.get_or_make_session_if_connected()
        if session is None:
            self._stuck.append(batch)
            self._start_resending_unless_running()
            return
        if batch.is_sent_by_idmp and not session.can_use_idmp:
            if batch.is_in_doubt:
                gone = ConnectionLost("the server that was asked is gone")
                self._give_up_batch(batch, _to_add_unknown_if_in_doubt(batch, gone))
                return
            batch.switch_to_ledger()
        self._sent.add(batch)
        if batch.is_sent_by_idmp:
            session.write_add_by_idmp(batch.number, batch.envelopes[0], batch.names[0])
        elif batch.can_be_transaction and batch.use_up_transaction_attempt() and session.transactions.is_ready:
            jobs = (batch.envelopes, batch.names)
            session.send_batch_by_transaction(
                batch.slot, batch.number, *jobs, batch.deadline, partial(self._complete_retry_or_fail_batch, batch)
            )
            session.transactions.request_ledger_watch_if_allowed(
                batch.deadline, self._send_waiting_while_slots_are_free
            )
            return
        elif batch.options is None:
            head = (batch.slot, batch.number, batch.max_stream_len, batch.needed_room)
            session.write_add_of_batch(*head, batch.envelopes, batch.names)
        else:
            needed_room = batch.needed_room if batch.is_bulk else 0  # single adds are each for themselves
            head = (batch.slot, batch.number, batch.max_stream_len, needed_room)
            session.write_add_with_options(*head, batch.envelopes, batch.names, batch.ids, batch.options)
        session.expect(batch.deadline, partial(self._complete_retry_or_fail_batch, batch))
        if batch.is_large:
            session.transactions.request_ledger_watch_if_allowed(
                batch.deadline, self._send_waiting_while_slots_are_free
            )

    def _complete_retry_or_fail_batch(self, batch: AddBatch, reply: Any) -> None:
        self._sent.discard(batch)
        if reply is None:  # the transaction did nothing
            self._send_schedule_resend_or_give_up(batch)
            return
        if isinstance(reply, ChasquiError):
            self._retry_or_fail_batch(batch, reply)
            return
        answer = batch.read_reply_or_none(reply)
        if answer is None:
            self._retry_or_fail_batch(batch, NotRedis(f"the server answered an add with {reply!r}"[:200]))
            return
        self._pause_s = 0.0
        self._free_slots.append(batch.slot)
        self._complete_batch(batch, answer)
        if self._gathering is not None or self._waiting:
            self._send_waiting_while_slots_are_free()

    def _complete_batch(self, batch: AddBatch, reply: int | bytes) -> None:
        batch.answer_or_fail_waiters(reply)
        if self._record_metric is not None:
            for record in batch.make_added_records(reply):
                self._record_metric(record)

    # Trouble --------------------------------------------------------------------------------------------------------

    def _retry_or_fail_batch(self, batch: AddBatch, error: ChasquiError) -> None:
        if not isinstance(error, ReplyError):  # a refusal is an answer; whatever else there is, is none
            self._note_lost_reply_and_distrust_server(batch)
        action = action_for(error) if isinstance(error, RedisTrouble) else ErrorAction.FATAL
        if action is ErrorAction.NO_SCRIPT:
            self._add_broker.mark_add_scripts_unloaded()
        if action in (ErrorAction.RETRY, ErrorAction.RECONNECT, ErrorAction.REAUTHENTICATE, ErrorAction.NO_SCRIPT):
            self._refusal = error if isinstance(error, ReplyError) else None
            self._stuck.append(batch)
            self._start_resending_unless_running()
        elif not self._resend_by_ledger_if_idmp_refused(batch, error):
            # A refusal answers only the last sending; an earlier one may have added the jobs.
            self._give_up_batch(batch, _to_add_unknown_if_in_doubt(batch, error))
            self._send_waiting_while_slots_are_free()

    def _note_lost_reply_and_distrust_server(self, batch: AddBatch) -> None:
        """What was sent may still be on a line, and arrive after it was sent again and answered."""
        batch.mark_reply_as_lost()
        self._has_lost_replies = True
        if batch.is_sent_by_idmp and self._trusts_server:
            self._trusts_server = False
            asyncio.get_running_loop().call_later(DISTRUST_S, self._trust_server_again)

    def _trust_server_again(self) -> None:
        self._trusts_server = True

    def _resend_by_ledger_if_idmp_refused(self, batch: AddBatch, error: ChasquiError) -> bool:
        """Sends a single job with the ledger, if the server has only refused XADD with a number: it may not know it."""
        session = self._add_broker.get_or_make_session_if_connected()
        if session is None or not batch.is_sent_by_idmp or batch.is_in_doubt:
            return False
        if not isinstance(error, ReplyError) or error.code != "ERR":
            return False
        session.stop_using_idmp(error)
        batch.switch_to_ledger()
        self._send_schedule_resend_or_give_up(batch)
        return True

    def _give_up_batch(self, batch: AddBatch, error: ChasquiError) -> None:
        if batch.slot >= 0:
            self._free_slots.append(batch.slot)
        batch.fail_waiters(error)

    def _start_resending_unless_running(self) -> None:
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend_until_none_is_stuck(), name="chasqui add again")
            self._resending.add_done_callback(self._fail_batches_if_resending_failed)

    def _fail_batches_if_resending_failed(self, recovery: asyncio.Task[None]) -> None:
        """Answers all adds if the recovery failed, by a defect or because the program has cancelled all tasks."""
        if recovery.cancelled():
            self._fail_batches_not_in_flight(ConnectionLost("the task that sends adds again was cancelled"))
        elif (error := recovery.exception()) is not None:
            self._fail_batches_not_in_flight(RedisTrouble(f"adding again has failed: {error!r}"))

    async def _resend_until_none_is_stuck(self) -> None:
        """Connects, sends again in order and fails what has run out of time, until nothing is stuck."""
        while self._stuck:
            deadline = min(batch.deadline for batch in self._list_unfinished_batches())
            await asyncio.sleep(min(self._pause_s, max(0.0, deadline - asyncio.get_running_loop().time())))
            self._pause_s = compute_longer_pause_s(self._pause_s, FIRST_PAUSE_S, LONGEST_RESEND_PAUSE_S)
            try:
                await self._add_broker.wait_for_connection(
                    min(batch.deadline for batch in self._list_unfinished_batches())
                )
            except ConnectionLost as error:
                self._fail_batches_not_in_flight(error, due_by=asyncio.get_running_loop().time())
            except ChasquiError as error:  # waiting would not help
                self._fail_batches_not_in_flight(error)
            else:
                no_answer = ConnectionLost("the server did not answer in time")
                self._fail_batches_not_in_flight(self._refusal or no_answer, due_by=asyncio.get_running_loop().time())
                self._refusal = None
                again, self._stuck = sorted(self._stuck, key=lambda batch: batch.number), []
                for batch in again:
                    self._send_schedule_resend_or_give_up(batch)
            self._send_waiting_while_slots_are_free()

    def _fail_batches_not_in_flight(self, error: ChasquiError, due_by: float = float("inf")) -> None:
        """Gives up on what is not on its way and has a deadline up to `due_by`."""
        late = [
            batch for batch in self._list_unfinished_batches() if batch not in self._sent and batch.deadline <= due_by
        ]
        for batch in late:
            if batch in self._stuck:
                self._stuck.remove(batch)
            elif batch in self._waiting:
                self._waiting.remove(batch)
            else:
                self._gathering = None
            self._give_up_batch(batch, _to_add_unknown_if_in_doubt(batch, error))


def _to_add_unknown_if_in_doubt(batch: AddBatch, error: ChasquiError) -> ChasquiError:
    if not batch.is_in_doubt:
        return error
    return AddUnknown(f"no answer came to an add that was sent, it may or may not have been made: {error}")
