"""One method per thing that is asked of Redis. Whatever is sent can be sent again: each method says why."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .._core.limits import LEDGER_TTL_MS, MAX_LEASE_MS, MAX_WORKER_LEASE_MS, PROMOTE_BYTES, RELEASED
from ..errors import ChasquiError, ConnectionLost, ReplyError
from . import scripts
from .commands import Buried, NumberedAdd, Rescheduled
from .connection import Connection
from .error_actions import ErrorAction, action_for, is_refused_unheard
from .keys import Keys
from .replies import (
    Bounds,
    Claimed,
    Entry,
    Promotion,
    Settled,
    read_claimed,
    read_codes,
    read_count,
    read_entries,
    read_found,
    read_holders,
    read_holds,
    read_ids,
    read_last_pending,
    read_new,
    read_promotion,
    read_score,
    read_scores,
    read_settled,
    read_time_ms,
)
from .server_checks import SILENCED_BY, Risks, read_holes, read_risks
from .socket import OnReply, Socket, pack

WORKERS_KEPT_MS = 7 * 24 * 3600 * 1000  # the list of workers outlives the last of them, so that its entries are found
INDEX_KEPT_MS = 7 * 24 * 3600 * 1000  # for so long past its due time a job can be found by its id
FIRST_PAUSE_S = 0.05  # before a script is called for a third time
LONGEST_PAUSE_S = 1.0
MAX_HINT_BYTES = 32  # of a message that says in how many ms something is due
FAR_LEASES_A_CALL = 100
RELEASED_IDLE_MS = 24 * 3600 * 1000  # idle enough for every official consumer's claim_min_idle_ms


Also = Callable[[Socket], None]  # what else to send on the same socket, behind it and in the same write


class Broker:
    """The conversation about one queue over one connection."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self.connection = connection
        self._keys = keys
        self.read_bytes = 0  # what the last reply to read() took on the line

    # Adding ---------------------------------------------------------------------------------------------------------

    def add(self, socket: Socket, ledger: str, arguments: tuple[bytes | int, ...]) -> None:
        """Write a numbered batch, as add.lua wants it; the ledger makes sending it again harmless."""
        socket.write(scripts.ADD.pack(socket, (self._keys.stream, ledger), arguments))

    def numbered_add(self, producer: str) -> NumberedAdd:
        """For a server that remembers the numbers itself, as the ledger does."""
        # hot: on an idle machine the script takes 40 us longer
        return NumberedAdd(self._keys.stream, producer)

    def add_with_options(
        self, socket: Socket, ledger: str, head: tuple[int, ...], jobs: list[bytes | str | int]
    ) -> None:
        """The same for a batch of which some jobs are delayed or the only one of their id."""
        keys = (self._keys.stream, ledger, self._keys.delayed)
        arguments = (*head, self._keys.prefix, INDEX_KEPT_MS, self._keys.due_channel, *jobs)
        socket.write(scripts.ADD_WITH_OPTIONS.pack(socket, keys, arguments))

    def forget_add_scripts(self) -> None:
        """The server has lost them (SCRIPT FLUSH, failover)."""
        if (socket := self.connection.live_socket()) is not None:
            scripts.ADD.forget(socket)
            scripts.ADD_WITH_OPTIONS.forget(socket)

    def ledger_of(self, producer: str) -> str:
        return self._keys.ledger(producer)

    async def delete_ledger(self, ledger: str) -> None:
        """Nothing of this producer will be sent again; otherwise its TTL ends it."""
        await self.connection.call("DEL", ledger)

    def confirm(self, socket: Socket, ledger: str, wanted: int, timeout_ms: int, on_reply: OnReply) -> None:
        """Ask how many replicas have everything that was written on this socket, for up to `timeout_ms`.

        WAIT counts from the socket's last write. A batch that the ledger has seen before is not written again on this
        one, so the ledger itself is: replication keeps the order of writes.
        """
        deadline = self.connection.deadline()
        socket.send(pack("HSET", ledger, "replicas", wanted), deadline, _drop_reply)
        socket.send(pack("PEXPIRE", ledger, LEDGER_TTL_MS), deadline, _drop_reply)
        socket.send(pack("WAIT", wanted, timeout_ms), deadline + timeout_ms / 1000, on_reply)

    # Working --------------------------------------------------------------------------------------------------------

    async def read_server_risks(self) -> Risks:
        """What this server's settings put at risk; nothing if it does not tell."""
        try:
            memory = await self.connection.call("INFO", "memory")
            persistence = await self.connection.call("INFO", "persistence")
        except ReplyError:  # a user that may not ask
            return Risks()
        return read_risks(f"{_text(memory)}\n{_text(persistence)}")

    def known_vulnerability(self) -> str:
        """What is known to be wrong with the version of the server that was last connected to."""
        socket = self.connection.live_socket()
        dialect = None if socket is None else socket.dialect
        is_silenced = bool(os.environ.get(SILENCED_BY))
        return "" if dialect is None or is_silenced else read_holes(dialect.server, dialect.version)

    async def read(
        self,
        group: str,
        consumer: str,
        count: int,
        block_ms: int | None,
        on_entries: Callable[[list[Entry]], None],
        held_back: int,
        max_bytes: float = math.inf,
    ) -> asyncio.Future[list[Entry]]:
        """Ask for new entries for this consumer; returns with the request on its way.

        What comes is passed to on_entries at once, but for a batch of `held_back` or more: who gets it as the future's
        result can ask for the next one first. A reply that is larger than `max_bytes` ends the connection with
        ReplyTooLarge before all of it is here. If the reply is lost, the entries stay in the consumer's pending list
        and are found there as orphans.
        """
        # Past BLOCK and a bit the line is dead: a live server answers at its end.
        timeout_s = None if block_ms is None else block_ms / 1000 + 2.0
        wait = () if block_ms is None else ("BLOCK", block_ms)
        packed = pack("XREADGROUP", "GROUP", group, consumer, "COUNT", count, *wait, "STREAMS", self._keys.stream, ">")
        socket = await self.connection.ready(self.connection.deadline(timeout_s))
        deadline = self.connection.deadline(timeout_s)
        arrived: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Any) -> None:
            if isinstance(reply, ChasquiError):
                _fail(arrived, reply)
                return
            self.read_bytes = socket.arriving_bytes
            try:
                entries = read_entries(reply)
                if 0 < len(entries) < held_back:
                    on_entries(entries)  # hot: a turn of the loop before whoever awaits them is awake
            except Exception as error:  # noqa: BLE001  the reader's defect, not the socket's: it is to see it
                _fail(arrived, error)
            else:
                if not arrived.done():
                    arrived.set_result(entries)

        socket.max_reply_bytes = max_bytes
        socket.send(packed, deadline, on_reply)
        socket.flush()  # hot: the server begins while this side is still busy with the last batch
        return arrived

    async def read_within(self, group: str, consumer: str, count: int, bounds: Bounds) -> list[Claimed]:
        """The same by bytes, without waiting for entries, where large ones are about."""
        return read_new(await self.run(scripts.READ, (self._keys.stream,), (group, consumer, count, *bounds)))

    async def unblock(self, client_id: int) -> None:
        """Make another connection's blocked read return now, as if its time were up."""
        await self.connection.call("CLIENT", "UNBLOCK", client_id)

    async def ack(self, group: str, ids: list[bytes], also: Also | None = None) -> None:
        """Finish entries. An id that is gone already is passed over, so sending it again is harmless."""
        socket = await self.connection.ready(self.connection.deadline())
        assert socket.dialect is not None
        if socket.is_congested:
            await socket.uncongested()
        deadline = self.connection.deadline()
        if socket.dialect.xackdel:
            asked = socket.ask(pack(b"XACKDEL", self._keys.stream, group, b"IDS", len(ids), *ids), deadline)
            if also is not None:
                also(socket)
            codes = read_codes(await asked, len(ids))
            if codes.count(1) < len(ids):
                # Not pending, because the group was made anew meanwhile; but done, so it must not come again.
                await self.connection.call(b"XDEL", self._keys.stream, *ids)
        else:
            await self.run(scripts.ACK, (self._keys.stream,), (group, *ids), also)

    async def ack_unique(self, group: str, entries: list[tuple[bytes, str]], also: Also | None = None) -> None:
        """ack() for jobs that may be the only ones of their id: entry id and job id. Harmless to send again."""
        arguments = (word for entry in entries for word in entry)
        keys = (self._keys.stream, self._keys.delayed)
        await self.run(scripts.ACK_UNIQUE, keys, (group, self._keys.prefix, *arguments), also)

    async def ack_with_results(
        self,
        group: str,
        ttl_ms: int,
        ids: list[bytes],
        results: list[tuple[str, bytes]],
        marked: list[tuple[bytes, str]],
        also: Also | None = None,
    ) -> int:
        """ack() with results, each with its job's id; marked as ack_unique() takes them. Harmless to send again.

        Returns how many results could not be stored.
        """
        socket = await self.connection.ready(self.connection.deadline())
        at_once = socket.dialect is not None and socket.dialect.msetex
        prefix = self._keys.result("")
        words: list[Any] = [group, self._keys.prefix, ttl_ms, int(at_once), len(ids), len(results), *ids]
        for job_id, result in results:
            words += (prefix + job_id, result)
        for entry in marked:
            words += entry
        return read_count(
            await self.run(scripts.ACK_WITH_RESULT, (self._keys.stream, self._keys.delayed), tuple(words), also)
        )

    def set_progress(self, job_id: str, percent: int, kept_ms: int, on_reply: OnReply) -> None:
        """How far a job is. Nobody waits for it."""
        self._send(("SET", self._keys.progress(job_id), percent, "PX", kept_ms), on_reply)

    def add_log_line(self, job_id: str, line: str, max_lines: int, kept_ms: int, on_reply: OnReply) -> None:
        """A line of a job's log. Nobody waits for it."""
        key = self._keys.log(job_id)
        self._send(("XADD", key, "MAXLEN", "~", max_lines, "*", "line", line), on_reply)
        self._send(("PEXPIRE", key, kept_ms), on_reply)

    def _send(self, words: tuple[Any, ...], on_reply: OnReply) -> None:
        socket = self.connection.live_socket()
        if socket is None or socket.is_congested:
            on_reply(ConnectionLost("the server does not take it now"))
        else:
            socket.send(pack(*words), self.connection.deadline(), on_reply)

    def announce(self, socket: Socket, kind: str, words: list[str | int], deadline: float, on_reply: OnReply) -> None:
        """Write events, as announce.lua or announce_done.lua takes them."""
        script = scripts.WRITE_COMPLETED if kind == "done" else scripts.WRITE_EVENTS

        def answered(reply: Any) -> None:
            if isinstance(reply, ReplyError) and action_for(reply) is ErrorAction.NO_SCRIPT:
                script.forget(socket)  # these are lost, the next ones are not
            on_reply(reply)

        socket.send(script.pack(socket, (self._keys.events,), tuple(words)), deadline, answered)

    async def reschedule(self, group: str, consumer: str, jobs: list[Rescheduled], events_max_len: int) -> Settled:
        """Move failed jobs to the delayed set, and write their events unless events_max_len is 0.

        Only an entry that is still this consumer's, by that delivery, is moved, so a second sending changes nothing.
        """
        keys = (self._keys.stream, self._keys.delayed, self._keys.events)
        words: list[Any] = [group, consumer, self._keys.prefix, INDEX_KEPT_MS, events_max_len]
        for job in jobs:
            words += job.arguments(with_events=events_max_len > 0)
        return read_settled(await self.run(scripts.RESCHEDULE, keys, tuple(words)), len(jobs))

    async def bury(self, group: str, consumer: str, max_len: int, jobs: list[Buried], events_max_len: int) -> Settled:
        """Move jobs to the dead letters, and write their events unless events_max_len is 0. As reschedule()."""
        keys = (
            self._keys.stream,
            self._keys.dead,
            self._keys.dead_dropped,
            self._keys.events,
            self._keys.delayed,
        )
        words: list[Any] = [group, consumer, max_len, self._keys.prefix, events_max_len]
        for job in jobs:
            words += job.arguments(with_events=events_max_len > 0)
        return read_settled(await self.run(scripts.BURY, keys, tuple(words)), len(jobs))

    # Leases ---------------------------------------------------------------------------------------------------------

    async def renew_lease(self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]) -> list[bytes]:
        """Renew this worker's lease and its hold on entries, each with its delivery; returns those it has lost.

        While the group is gone it fails, and the lease is renewed by rebuild_group().
        """
        keys = (self._keys.stream, self._keys.workers_of(group))
        arguments = (word for entry in held for word in entry)
        return read_ids(
            await self.run(scripts.RENEW_LEASE, keys, (group, consumer, lease_ms, WORKERS_KEPT_MS, *arguments))
        )

    async def rebuild_group(self, group: str, consumer: str, lease_ms: int, held: list[tuple[bytes, int]]) -> bool:
        """Whether the group is there. If not, it is made as soon as every living worker has said what it holds."""
        keys = (self._keys.stream, self._keys.workers_of(group), self._keys.regroup(group))
        head = (group, consumer, lease_ms, WORKERS_KEPT_MS, RELEASED, RELEASED_IDLE_MS)
        arguments = (word for entry in held for word in entry)
        return bool(read_count(await self.run(scripts.REBUILD_GROUP, keys, (*head, *arguments))))

    async def write_worker_record(self, consumer: str, about: bytes, kept_ms: int) -> None:
        """What a worker wants known about itself. Sent twice it says the same."""
        await self.connection.call("SET", self._keys.worker(consumer), about, "PX", kept_ms)

    async def is_paused(self) -> bool:
        return bool(read_count(await self.connection.call("EXISTS", self._keys.paused)))

    async def subscribe_to_pause(self, on_hint: Callable[[], None]) -> bool:
        """Have `on_hint` called when somebody says that the queue is paused or resumed. Messages can be lost."""
        return await self._listen(self._keys.pause_channel, lambda _: on_hint())

    async def release_entries(self, group: str, consumer: str, held: list[tuple[bytes, int]]) -> int:
        """Hand unstarted entries back, each with the number of its earlier deliveries."""
        arguments = [word for entry in held for word in entry]
        keys = (self._keys.stream, self._keys.workers_of(group))
        head = (group, consumer, RELEASED, RELEASED_IDLE_MS, WORKERS_KEPT_MS)
        return read_count(await self.run(scripts.RELEASE_ENTRIES, keys, (*head, *arguments)))

    async def leave_group(self, group: str, consumer: str) -> bool:
        """Whether the consumer's name is gone; if not, the others take over what it holds."""
        await self.connection.call("DEL", self._keys.worker(consumer))
        keys = (self._keys.stream, self._keys.workers_of(group))
        return bool(read_count(await self.run(scripts.LEAVE_GROUP, keys, (group, consumer, WORKERS_KEPT_MS))))

    async def holders(self, group: str) -> dict[bytes, int]:
        """How many entries each consumer holds."""
        return read_holders(await self.connection.call("XPENDING", self._keys.stream, group))

    async def leases(self, group: str) -> dict[bytes, float]:
        """Each worker's lease: the server's time in ms at which it ends, 0 if the worker has left."""
        return dict(
            read_scores(await self.connection.call("ZRANGE", self._keys.workers_of(group), 0, -1, "WITHSCORES"))
        )

    async def lease_of(self, group: str, consumer: str) -> tuple[float, float]:
        """The lease of that worker, and for how many ms it goes on; 0 and less if there is none any more."""
        lease, now_ms = await asyncio.gather(
            self.connection.call("ZSCORE", self._keys.workers_of(group), consumer), self.now_ms()
        )
        ends_ms = read_score(lease)
        return (0.0, 0.0) if ends_ms is None else (ends_ms, ends_ms - now_ms)

    async def cap_leases(self, group: str, lease_ms: int) -> list[bytes]:
        """Let leases that no worker of ours can have taken end in `lease_ms`; returns whose they are.

        Somebody else has written them, and whatever waits for their end would wait for as long as they please.
        """
        workers, now_ms = self._keys.workers_of(group), await self.now_ms()
        far = await self.connection.call(
            "ZRANGEBYSCORE", workers, f"({now_ms + MAX_WORKER_LEASE_MS}", "+inf", "LIMIT", 0, FAR_LEASES_A_CALL
        )
        names = read_ids(far)
        for name in names:
            await self.connection.call("ZADD", workers, "XX", "LT", now_ms + lease_ms, name)
        return names

    async def now_ms(self) -> int:
        """The server's clock, the only one that leases are judged by."""
        return read_time_ms(await self.connection.call("TIME"))

    async def take_over(
        self, group: str, consumer: str, dead: bytes, lease: float, min_idle_ms: int, count: int, bounds: Bounds
    ) -> list[Claimed] | None:
        """Entries of a dead worker; None if its lease has moved, so that it lives after all."""
        keys = (self._keys.stream, self._keys.workers_of(group))
        arguments = (group, consumer, dead, repr(lease), min_idle_ms, count, *bounds)
        reply = await self.run(scripts.TAKE_OVER, keys, arguments)
        return None if reply is None else read_claimed(reply)

    async def claim_idle(
        self, group: str, consumer: str, min_idle_ms: int, count: int, bounds: Bounds
    ) -> list[Claimed]:
        """Entries that consumers without a lease have let lie."""
        keys = (self._keys.stream, self._keys.workers_of(group))
        return read_claimed(await self.run(scripts.CLAIM_IDLE, keys, (group, consumer, min_idle_ms, count, *bounds)))

    async def last_pending_id(self, group: str) -> bytes | None:
        """The last entry that is pending for anybody."""
        return read_last_pending(await self.connection.call("XPENDING", self._keys.stream, group))

    async def list_pending(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int, bounds: Bounds
    ) -> list[Claimed]:
        """A page of what is pending for this consumer, after an entry id; b"" for the first page."""
        start = b"(" + after if after else b"-"
        arguments = (group, consumer, start, last, count, *bounds)
        return read_claimed(await self.run(scripts.LIST_PENDING, (self._keys.stream,), arguments))

    async def list_pending_ids(
        self, group: str, consumer: str, after: bytes, last: bytes, count: int
    ) -> list[tuple[bytes, int]]:
        """The same without what the entries hold: each with how often it was delivered."""
        start = b"(" + after if after else b"-"
        page = await self.connection.call("XPENDING", self._keys.stream, group, start, last, count, consumer)
        return [(hold.entry_id, hold.deliveries) for hold in read_holds(page)]

    async def count_delivery(self, group: str, consumer: str, seen: list[tuple[bytes, int]]) -> None:
        """Count one more delivery of entries of ours, each with the one that was seen."""
        arguments = (word for entry in seen for word in entry)
        await self.run(scripts.COUNT_DELIVERY, (self._keys.stream,), (group, consumer, *arguments))

    # Delayed jobs ---------------------------------------------------------------------------------------------------

    async def promote(self, holder: str, lease_ms: int, batch: int, *, events_max_len: int) -> Promotion:
        """Move due jobs to the stream, up to `batch` of them and PROMOTE_BYTES.

        Sent twice it moves what is due then, each job once.
        """
        keys = (self._keys.delayed, self._keys.stream, self._keys.promoter_lease, self._keys.dead, self._keys.events)
        arguments = (holder, lease_ms, batch, MAX_LEASE_MS, events_max_len, self._keys.prefix, PROMOTE_BYTES)
        return read_promotion(await self.run(scripts.PROMOTE, keys, arguments))

    async def count_delayed(self) -> tuple[int, int]:
        """How many jobs are delayed, and for how many ms the first of them has been due; 0 if it is not."""
        depth, first, now_ms = await asyncio.gather(
            self.connection.call("ZCARD", self._keys.delayed),
            self.connection.call("ZRANGE", self._keys.delayed, 0, 0, "WITHSCORES"),
            self.now_ms(),
        )
        for _, due_ms in read_scores(first):
            return read_count(depth), int(min(max(0, now_ms - due_ms), now_ms))  # a score may be infinite
        return read_count(depth), 0

    async def subscribe_to_due(self, on_due: Callable[[float], None]) -> bool:
        """Have `on_due` called with the seconds until a job is due, if it is the next. False if this cannot be."""
        return await self.subscribe_to_hints(self._keys.due_channel, on_due)

    def publish_due(self, delay_ms: int) -> None:
        """Tell who leads that a job is due in `delay_ms`. Best effort: it looks by itself, too."""
        self._send(("PUBLISH", self._keys.due_channel, delay_ms), _nobody)

    async def subscribe_to_hints(self, channel: str, on_due: Callable[[float], None]) -> bool:
        """Best effort: it ends with the socket, so it is asked for again and again, and a message can be lost."""
        return await self._listen(channel, partial(_pass_on, on_due))

    async def _listen(self, channel: str, on_message: Callable[[bytes], None]) -> bool:
        deadline = self.connection.deadline()
        socket = await self.connection.ready(deadline)
        assert socket.dialect is not None
        if socket.dialect.protocol < 3:  # there a connection that listens can do nothing else
            return False
        return socket.listen(channel, on_message, deadline)

    async def move_delayed(self, what: str, ids: list[str], delay_ms: int = 0) -> list[bool]:
        """Cancel, postpone or run delayed jobs; whether each was there. Sent twice, the second finds nothing to do."""
        head = (what, delay_ms, self._keys.prefix, INDEX_KEPT_MS, self._keys.due_channel)
        keys = (self._keys.delayed, self._keys.stream)
        found = read_found(await self.run(scripts.MOVE_DELAYED, keys, (*head, *ids)))
        if found.refusal:
            raise ReplyError(found.refusal)
        return found.each

    async def release_promoter_lease(self, holder: str) -> None:
        """Let go of the promoter's lease, if it is ours."""
        await self.run(scripts.RELEASE_LEASE, (self._keys.promoter_lease,), (holder,))

    async def run(
        self,
        script: scripts.Script,
        keys: tuple[str | bytes, ...],
        arguments: tuple[Any, ...],
        also: Also | None = None,
    ) -> Any:
        """Call a script. One that the server has lost is sent as text; after a refusal that proves that nothing has
        happened it is called again, with growing pauses, until its time is up."""
        give_up_at, pause_s = self.connection.deadline(), 0.0
        while True:
            socket = await self.connection.ready(give_up_at)
            asked = socket.ask(script.pack(socket, keys, arguments), self.connection.deadline())
            if also is not None:
                also(socket)
            try:
                return await asked
            except ReplyError as error:
                if is_lost := action_for(error) is ErrorAction.NO_SCRIPT:
                    script.forget(socket)
                may_try_again = is_lost or is_refused_unheard(error)
                if not may_try_again or asyncio.get_running_loop().time() >= give_up_at:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


def _text(reply: Any) -> str:
    """INFO's text. Under RESP3 it comes as a verbatim string, of which hiredis leaves the text."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def _drop_reply(reply: Any) -> None:
    """Whatever it is, a later reply on the same socket says what matters."""


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _pass_on(on_due: Callable[[float], None], message: bytes) -> None:
    """Anybody may publish anything."""
    if len(message) < MAX_HINT_BYTES:
        with suppress(ValueError):
            on_due(float(message) / 1000)


def _nobody(reply: object) -> None:
    """Nobody waits for it."""
