"""The conversation with Redis: one typed method for each thing that the producer and the worker ask of it.

This page has reading, acking, settling and reporting; the parts that it is made of have the rest:

    calls.py     the connection: call(), run_script(), send(), try_to_subscribe(), close()
    leases.py    renew_lease_and_held_entries(), report_held_to_rebuild_group(), leave_group_if_lease_is_same() ...
    pending.py   list_pending_page(), take_over_if_lease_is_same(), release_some_entries() ...
    cancellations.py   cancel(), read_queue_flags(), read_cancellations_and_remove_outdated()
    delayed.py   try_to_lead_and_promote_batch(), cancel_or_move_delayed(), publish_due_hint() ...
    adding.py    a producer's adds, which Broker.make_add_broker() begins

Surfaces of their own, over a Broker: dlq.py, inspector.py, repeatables.py, results.py, events.py.

Every call that writes can be sent again: its docstring or its script says why.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from typing import Any

from .._core.outcome import Buried, Rescheduled
from .._wire.job_log import LINE
from ..errors import ConnectionLost, ReplyError
from . import scripts
from .adding import AddBroker
from .cancellations import CancelCalls
from .command_replies import decode_info_text, find_client_count, read_ackdel_codes, read_group_lag
from .delayed import INDEX_KEPT_MS, DelayedCalls
from .error_actions import is_command_refused
from .event_batch import EventBatch, EventsOnSend, send_or_drop_events
from .failed_jobs import make_bury_arguments, make_reschedule_arguments
from .keys import Keys
from .pending import PendingCalls
from .reading import ReadInFlight, ReadRequest
from .registry import log_if_registration_refused, make_registration_arguments
from .replies import ByteBounds, ClaimedEntry, SettledJobs, read_count, read_new_entries, read_settled_jobs
from .server_checks import SILENCED_BY, Risks, describe_vulnerability_if_known, read_risks
from .socket import OnReply, Socket, pack
from .topology.node_map import compute_slot_of_key

log = logging.getLogger("chasqui.worker")


class AckInFlight:
    """An ack that is on its way; `await` returns once Redis has taken it."""

    __slots__ = ("_finish", "_reply")

    def __init__(self, reply: asyncio.Future[Any], finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._reply = reply
        self._finish = finish

    def __await__(self) -> Generator[Any, None, None]:
        return self._finish().__await__()

    def cancel(self) -> None:
        self._reply.cancel()

    def on_answer(self, function: Callable[[], None]) -> None:
        """Has the function called once Redis has answered, or the answer is lost."""
        self._reply.add_done_callback(lambda _: function())


class Broker(PendingCalls, DelayedCalls, CancelCalls):
    """The conversation about one queue over one connection."""

    def make_broker_for_queue(self, keys: Keys) -> Broker:
        """Returns the conversation about another queue, over the same connection unless another node has the queue."""
        return Broker(self._connection.get_or_make_connection_for_slot(compute_slot_of_key(keys.prefix)), keys)

    def make_add_broker(self, *, ledger_ttl_ms: int) -> AddBroker:
        """Returns a new producer: its numbers and its ledger are its own."""
        return AddBroker(self._connection, self._keys, ledger_ttl_ms=ledger_ttl_ms)

    # Reading --------------------------------------------------------------------------------------------------------

    async def send_read(self, group: str, consumer: str, request: ReadRequest) -> ReadInFlight:
        """Asks for new entries for this consumer; returns with the request on its way.

        If the reply is lost, the entries stay in the consumer's pending list and are found there as orphans.
        """
        count, block_ms = request.max_count, request.block_ms
        # A live server answers at the end of BLOCK. Without an answer some time later, the connection is dead.
        timeout_s = None if block_ms is None else block_ms / 1000 + 2.0
        wait = () if block_ms is None else ("BLOCK", block_ms)
        packed = pack("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *wait, "STREAMS", self._keys.stream, ">")
        socket = await self._connection.get_or_open_socket(self._connection.make_deadline(timeout_s))
        reading = ReadInFlight(socket, request)
        socket.set_max_reply_bytes(request.max_reply_bytes)
        socket.send(packed, self._connection.make_deadline(timeout_s), reading.pass_on_reply)
        socket.flush()  # hot: the server begins while this side is still busy with the last batch
        return reading

    async def read_now_within_bounds(
        self, group: str, consumer: str, count: int, bounds: ByteBounds
    ) -> list[ClaimedEntry]:
        """Reads new entries up to `bounds`, without waiting for any: for queues with large jobs."""
        return read_new_entries(
            await self.run_script(scripts.READ, (self._keys.stream,), (group, consumer, count, *bounds))
        )

    async def may_have_unread_entries(self, group: str) -> bool:
        """Returns whether the stream has entries that no consumer of the group has read. True if nothing is known."""
        lag = read_group_lag(await self.call("XINFO", "GROUPS", self._keys.stream), group.encode())
        return lag is None or lag > 0

    async def try_to_subscribe_to_backlog_hints(self, on_hint: Callable[[], None]) -> bool:
        """Has `on_hint` called when a worker has found more jobs than it can take: see try_to_subscribe()."""
        return await self.try_to_subscribe(self._keys.backlog_channel, lambda _: on_hint())

    def publish_backlog_hint(self) -> None:
        """Publishes to idle workers that jobs are left. The message may be lost: they also look by themselves."""
        self.publish(self._keys.backlog_channel, "")

    async def try_to_unblock_read(self, client_id: int, address: str) -> bool:
        """Makes another connection's blocked read return now, as if its time were up.

        False if that connection leads to another server, if its number is not known, or if this user may not do that.
        """
        if self.server_address != address or not client_id:
            return False
        try:
            await self.call("CLIENT", "UNBLOCK", client_id)
        except ReplyError as error:
            if not is_command_refused(error):
                raise
            return False
        return True

    # Acking and settling --------------------------------------------------------------------------------------------

    def send_ack(
        self, group: str, ids: list[bytes], events: EventsOnSend | None = None
    ) -> asyncio.Future[None] | AckInFlight:
        """Does what ack() does; returns with the ack on its way, and awaiting what it returns gives the end."""
        socket = self._connection.get_live_socket_or_none()
        if socket is None or socket.dialect is None or not socket.dialect.xackdel or socket.is_congested:
            return asyncio.ensure_future(self.ack(group, ids, events))
        reply = self._send_ackdel_and_events(socket, group, ids, events)  # hot: no task, and a turn of the loop earlier
        return AckInFlight(reply, lambda: self._await_ackdel_or_ack_by_script(socket, group, ids, reply))

    async def ack(self, group: str, ids: list[bytes], events: EventsOnSend | None = None) -> None:
        """Finishes entries, and writes events behind that, in the same write.

        An id that is gone already is passed over, so sending it again is harmless.
        """
        socket = await self._wait_for_uncongested_socket()
        assert socket.dialect is not None
        if socket.dialect.xackdel:
            await self._await_ackdel_or_ack_by_script(
                socket, group, ids, self._send_ackdel_and_events(socket, group, ids, events)
            )
        else:
            await self.run_script(scripts.ACK, (self._keys.stream,), (group, *ids), events)

    async def _wait_for_uncongested_socket(self) -> Socket:
        """Waits while the server is slow to take what is written: the events that go with an ack would be dropped."""
        socket = await self._connection.get_or_open_socket(self._connection.make_deadline())
        if socket.is_congested:
            await socket.wait_until_uncongested_or_ended()
        return socket

    def _send_ackdel_and_events(
        self, socket: Socket, group: str, ids: list[bytes], events: EventsOnSend | None
    ) -> asyncio.Future[Any]:
        deadline = self._connection.make_deadline()
        reply = socket.ask(pack(b"XACKDEL", self._keys.stream, group, b"IDS", len(ids), *ids), deadline)
        if events is not None:
            send_or_drop_events(socket, self._keys, events(), deadline)
        return reply

    async def _await_ackdel_or_ack_by_script(
        self, socket: Socket, group: str, ids: list[bytes], reply: asyncio.Future[Any]
    ) -> None:
        try:
            codes = read_ackdel_codes(await reply, len(ids))
        except ReplyError as error:
            _stop_using_xackdel_or_raise(socket, error)
            codes = []
        if codes.count(1) < len(ids):
            # The group is missing or was rebuilt: some are not pending, but they are done and must not come again.
            # They may become pending again meanwhile: the script acks and deletes at once.
            await self.run_script(scripts.ACK, (self._keys.stream,), (group, *ids))

    async def ack_and_release_uniqueness_keys(
        self, group: str, entries: list[tuple[bytes, str]], events: EventsOnSend | None = None
    ) -> None:
        """Does what ack() does for jobs that may be the only ones of their id, each as entry id and job id.

        Harmless to send again.
        """
        arguments = (word for entry in entries for word in entry)
        keys = (self._keys.stream, self._keys.delayed)
        await self._wait_for_uncongested_socket()
        await self.run_script(scripts.ACK_UNIQUE, keys, (group, self._keys.prefix, *arguments), events)

    async def ack_and_store_results(
        self,
        group: str,
        ttl_ms: int,
        ids: list[bytes],
        results: list[tuple[str, bytes]],
        unique: list[tuple[bytes, str]],
        events: EventsOnSend | None = None,
    ) -> int:
        """Acks with results, each with its job's id; `unique` has those that may be the only ones of their id.

        Harmless to send again. Returns how many results could not be stored.
        """
        socket = await self._wait_for_uncongested_socket()
        at_once = socket.dialect is not None and socket.dialect.msetex and socket.dialect.xackdel
        words: list[Any] = [group, self._keys.prefix, ttl_ms, int(at_once), len(ids), len(results), *ids]
        prefix = self._keys.result("")
        for job_id, result in results:
            words += (prefix + job_id, result)
        for entry in unique:
            words += entry
        keys = (self._keys.stream, self._keys.delayed)
        return read_count(await self.run_script(scripts.ACK_WITH_RESULT, keys, tuple(words), events))

    async def reschedule(self, group: str, consumer: str, jobs: list[Rescheduled], events_max_len: int) -> SettledJobs:
        """Moves failed jobs to the delayed set, and writes their events unless events_max_len is 0.

        Only an entry that is still this consumer's, by that delivery, is moved, so a second sending changes nothing.
        """
        regroup, notes = self._keys.group_reports(group), self._keys.cancelled
        keys = (self._keys.stream, self._keys.delayed, self._keys.events, regroup, notes)
        words: list[Any] = [group, consumer, self._keys.prefix, INDEX_KEPT_MS, events_max_len]
        for job in jobs:
            words += make_reschedule_arguments(job, with_events=events_max_len > 0)
        return read_settled_jobs(await self.run_script(scripts.RESCHEDULE, keys, tuple(words)), len(jobs))

    async def bury(
        self, group: str, consumer: str, max_len: int, jobs: list[Buried], events_max_len: int
    ) -> SettledJobs:
        """Moves jobs to the dead letters as reschedule() moves them, and writes their events."""
        keys = (
            self._keys.stream,
            self._keys.dead,
            self._keys.dead_dropped,
            self._keys.events,
            self._keys.delayed,
            self._keys.group_reports(group),
            self._keys.cancelled,
        )
        words: list[Any] = [group, consumer, max_len, self._keys.prefix, events_max_len]
        for job in jobs:
            words += make_bury_arguments(job, with_events=events_max_len > 0)
        return read_settled_jobs(await self.run_script(scripts.BURY, keys, tuple(words)), len(jobs))

    # Reporting ------------------------------------------------------------------------------------------------------

    def write_or_drop_events(self, batch: EventBatch) -> None:
        """Writes events in this turn's write. No caller waits for them: without a connection they are dropped."""
        socket = self._connection.get_live_socket_or_none()
        if socket is None:
            batch.on_written(len(batch.others) + len(batch.completed), ConnectionLost("the connection is lost"))
        else:
            send_or_drop_events(socket, self._keys, batch, self._connection.make_deadline())

    def send_progress(self, job_id: str, percent: int, kept_ms: int, on_reply: OnReply) -> None:
        """Stores how far a job is. No caller waits for it."""
        self.send(("SET", self._keys.progress(job_id), percent, "PX", kept_ms), on_reply)

    def send_log_line(self, job_id: str, line: str, max_lines: int, kept_ms: int, on_each_reply: OnReply) -> None:
        """Adds a line to a job's log. No caller waits for it."""
        key = self._keys.log(job_id)
        self.send(("XADD", key, "MAXLEN", "~", max_lines, "*", LINE, line), on_each_reply)
        self.send(("PEXPIRE", key, kept_ms), on_each_reply)

    async def register_queue_or_log_refusal(self) -> None:
        """Notes in the registry of queues that this one is in use. A refusal is logged. Harmless to send again."""
        try:
            log_if_registration_refused(
                await self.run_script(scripts.REGISTER_QUEUE, (), make_registration_arguments(self._keys))
            )
        except ReplyError as error:
            log_if_registration_refused(error)

    # Pausing and the server -----------------------------------------------------------------------------------------

    async def try_to_subscribe_to_pause_and_cancel_hints(self, on_hint: Callable[[], None]) -> bool:
        """Has `on_hint` called when a message says that the queue is paused or resumed, or a job cancelled.

        See try_to_subscribe().
        """
        return await self.try_to_subscribe(self._keys.pause_channel, lambda _: on_hint())

    async def read_server_risks(self) -> Risks:
        """Returns what this server's settings put at risk, as far as this user may ask."""
        try:
            memory = await self.call("INFO", "memory")
            persistence = await self.call("INFO", "persistence")
        except ReplyError as error:
            return Risks(unknown=f"INFO is refused, so eviction and persistence are unknown: {error}")
        return read_risks(f"{decode_info_text(memory)}\n{decode_info_text(persistence)}")

    def request_client_count(self, on_count: Callable[[int | None], None]) -> None:
        """Asks how many clients are connected to the server. No caller waits; `on_count` gets None if nobody says."""
        self.send(("INFO", "clients"), lambda reply: on_count(find_client_count(reply)))

    def list_capabilities(self) -> dict[str, bool]:
        """Returns which of the newer commands the connected server has, by name; empty while there is no connection."""
        socket = self._connection.get_live_socket_or_none()
        dialect = None if socket is None else socket.dialect
        if dialect is None:
            return {}
        has_resp3 = dialect.protocol >= 3
        return {"XACKDEL": dialect.xackdel, "MSETEX": dialect.msetex, "XADD IDMP": dialect.idmp, "RESP3": has_resp3}

    def describe_known_vulnerability(self) -> str:
        """Returns a sentence about a vulnerability of the connected server's version.

        It is "" if none is known, if there is no connection, and if the environment sets SILENCED_BY.
        """
        socket = self._connection.get_live_socket_or_none()
        dialect = None if socket is None else socket.dialect
        is_silenced = bool(os.environ.get(SILENCED_BY))
        return (
            "" if dialect is None or is_silenced else describe_vulnerability_if_known(dialect.server, dialect.version)
        )


def _stop_using_xackdel_or_raise(socket: Socket, error: ReplyError) -> None:
    """Notes that the server refuses XACKDEL to this user; raises any other error."""
    if not is_command_refused(error) or socket.dialect is None:
        raise error
    log.info("XACKDEL is refused, so a script acks in its place: %s", error)
    socket.set_dialect(replace(socket.dialect, xackdel=False))
