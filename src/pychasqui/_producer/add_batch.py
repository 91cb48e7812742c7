"""Jobs that are added together, from when they gather until Redis has answered for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from .._core.limits import ID_COST, LARGE_JOB_BYTES, OPTIONS_COST_BYTES
from .._core.options import PLAIN, AddOptions
from .._redis.adding import read_add_statuses_or_none, read_added_count_or_none, read_idmp_added_count_or_none
from .._redis.replies import FULL, NEW
from ..errors import AddUnknown, ChasquiError, QueueFull
from ..metrics import JobsAdded


class AddBatch:
    """Jobs that travel together, and who waits for them."""

    __slots__ = (
        "bytes",
        "can_be_transaction",
        "deadline",
        "envelopes",
        "ids",
        "is_bulk",
        "is_in_doubt",
        "is_large",
        "is_sent_by_idmp",
        "max_stream_len",
        "names",
        "needed_room",
        "number",
        "options",
        "replicas",
        "slot",
        "waiters",
    )

    def __init__(
        self, deadline: float, needed_room: int, max_stream_len: int, *, is_sent_by_idmp: bool = False
    ) -> None:
        self.envelopes: list[bytes] = []
        self.names: list[bytes] = []
        self.ids: list[str] = []
        self.options: list[AddOptions] | None = None  # None: all of them plain
        self.bytes = 0  # of envelopes, and what options cost
        self.waiters: list[asyncio.Future[str]] = []  # one for each job, or a single one for all of them
        self.deadline = deadline
        self.needed_room = needed_room
        self.max_stream_len = max_stream_len
        self.slot = self.number = -1
        self.is_bulk = False
        self.is_large = False  # plain jobs that a transaction adds faster than a script
        self.can_be_transaction = False  # the same, and not sent yet
        self.is_in_doubt = False  # it was sent, and nobody knows whether it has arrived
        self.replicas = 0  # how many must have it before it counts as added
        self.is_sent_by_idmp = is_sent_by_idmp  # a single job that was sent without the ledger

    def append(self, envelope: bytes, name: bytes, job_id: str, waiter: asyncio.Future[str]) -> None:
        self.envelopes.append(envelope)
        self.names.append(name)
        self.ids.append(job_id)
        self.bytes += len(envelope)
        self.waiters.append(waiter)

    def set_options_of_last_job(self, options: AddOptions) -> None:
        """Sets the options of the last job; those before it are plain unless they have some."""
        self.options = self.options or [PLAIN] * (len(self.ids) - 1)
        self.options.append(options)
        self.bytes += OPTIONS_COST_BYTES + ID_COST * len(self.ids[-1])

    def fill_with_bulk(
        self,
        envelopes: list[bytes],
        names: list[bytes],
        ids: list[str],
        options: list[AddOptions] | None,
        waiter: asyncio.Future[str],
        replicas: int,
    ) -> None:
        self.envelopes, self.names, self.ids, self.options = envelopes, names, ids, options
        self.is_bulk, self.replicas = True, replicas
        is_plain = options is None and not replicas and not self.max_stream_len
        self.is_large = self.can_be_transaction = is_plain and len(envelopes[0]) >= LARGE_JOB_BYTES
        self.waiters.append(waiter)

    def assign_number_and_slot(self, batch_number: int, ledger_slot: int) -> None:
        """Sets the number and the slot of the ledger under which the batch is sent."""
        self.number, self.slot = batch_number, ledger_slot

    def switch_to_ledger(self) -> None:
        """From now on the job is sent with the ledger; only for one that was refused by its number."""
        self.is_sent_by_idmp = False

    def use_up_transaction_attempt(self) -> bool:
        """Returns whether the batch may be sent without a script: once, and never again."""
        may, self.can_be_transaction = self.can_be_transaction, False
        return may

    def mark_reply_as_lost(self) -> None:
        """Notes that the batch was sent, and its answer is lost."""
        self.is_in_doubt = True

    def was_taken_whole(self, reply: int | bytes) -> bool:
        """Returns whether Redis has taken every job of the batch, or has it already."""
        statuses = _read_statuses(reply)
        return len(statuses) == len(self.ids) and FULL not in statuses

    def answer_or_fail_waiters(self, reply: int | bytes) -> None:
        """Answers by how many plain jobs were taken, from the front, or by a status for each; others found no room."""
        statuses = _read_statuses(reply)
        if self.is_bulk:
            self._answer_or_fail_waiter_of_bulk(statuses)
            return
        for position, waiter in enumerate(self.waiters):
            self._answer_or_fail_waiter(waiter, statuses[position] if position < len(statuses) else FULL)

    def _answer_or_fail_waiter_of_bulk(self, statuses: str) -> None:
        taken = len(statuses) - statuses.count(FULL)
        if 0 < taken < len(self.ids):  # a stream whose last ids were used up in the middle
            self.fail_waiters(AddUnknown(f"the stream took {taken} of {len(self.ids)} jobs and refused the others"))
        else:
            self._answer_or_fail_waiter(self.waiters[0], statuses if taken else FULL)

    def _answer_or_fail_waiter(self, waiter: asyncio.Future[str], answer: str) -> None:
        if waiter.done():
            return
        try:
            if answer != FULL:
                waiter.set_result(answer)
            else:
                waiter.set_exception(QueueFull(f"the queue holds its max_stream_len of {self.max_stream_len} jobs"))
        except asyncio.InvalidStateError:  # at Ctrl-C asyncio cancels inside a signal handler, so also in between
            return

    def make_added_records(self, reply: int | bytes) -> list[JobsAdded]:
        """Returns records of what is in Redis now that was not before, by name and mode."""
        statuses = _read_statuses(reply)
        if self.options is None:
            plain = Counter(self.names[: len(statuses)])
            return [JobsAdded(count, "now", name.decode()) for name, count in plain.items()]
        new = Counter(
            (name, bool(options.due))
            for status, name, options in zip(statuses, self.names, self.options, strict=True)
            if status == NEW
        )
        return [JobsAdded(count, "delayed" if due else "now", name.decode()) for (name, due), count in new.items()]

    def read_reply_or_none(self, reply: Any) -> int | bytes | None:
        """Returns how many plain jobs were taken, or a status for each job; None if this is no answer to this batch."""
        if self.is_sent_by_idmp:
            return read_idmp_added_count_or_none(reply)
        if self.options is None:
            return read_added_count_or_none(reply, len(self.envelopes))
        return read_add_statuses_or_none(reply, len(self.envelopes))

    def fail_waiters(self, error: ChasquiError) -> None:
        """Each waiter gets an error of its own: a shared one would gather the tracebacks of all of them."""
        for waiter in self.waiters:
            with suppress(asyncio.InvalidStateError):  # it is done or cancelled
                waiter.set_exception(type(error)(*error.args))


def _read_statuses(reply: int | bytes) -> str:
    return NEW * reply if isinstance(reply, int) else reply.decode()
