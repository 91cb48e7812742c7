"""Raw replies become entries."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from pychasqui._redis import command_replies, replies
from pychasqui._redis.broker import Broker
from pychasqui._redis.connection import Connection
from pychasqui._redis.dlq import DlqBroker
from pychasqui._redis.entry_pages import FIRST_PAGE
from pychasqui._redis.events import EventsBroker
from pychasqui._redis.inspector import InspectorBroker
from pychasqui._redis.job_finder import JobFinderBroker, find_entry_in_pages
from pychasqui._redis.keys import Keys
from pychasqui._redis.repeatables import RepeatablesBroker
from pychasqui._redis.replies import read_entries_of_one_stream
from pychasqui._redis.results import ResultsBroker
from pychasqui.errors import RedisTrouble, ReplyError
from tests.support.outcomes import buried, rescheduled

ENTRIES = [[b"1-1", [b"d", b"x", b"n", b"y"]], [b"1-2", [b"d", b"z"]]]


@pytest.mark.parametrize("reply", ([[b"stream", ENTRIES]], {b"stream": ENTRIES}))
def test_both_protocols_give_the_same_entries(reply: Any) -> None:
    assert read_entries_of_one_stream(reply) == ENTRIES


@pytest.mark.parametrize("reply", (None, [], {}, [[b"stream", []]], {b"stream": []}, [[b"stream", None]]))
def test_an_empty_reply_has_no_entries(reply: Any) -> None:
    assert read_entries_of_one_stream(reply) == []


def test_an_entry_deleted_meanwhile_has_no_fields() -> None:
    assert read_entries_of_one_stream([[b"stream", [[b"1-1", None]]]]) == [[b"1-1", None]]


@pytest.mark.parametrize(
    "entry", ([b"1-1", [b"d", b"x"], b"more"], [b"1-1"], [], 7, None, b"ab", {0: b"1-1", 2: []}, [b"1-1", b"text"])
)
def test_a_lone_entry_of_another_shape_is_an_error_reply(entry: object) -> None:
    with pytest.raises(ReplyError):
        read_entries_of_one_stream([[b"stream", [entry]]])


ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**70,
    1.5,
    True,
    b"",
    b"text",
    b"1-1",
    "text",
    [],
    [None],
    [[]],
    [1],
    [1, 2],
    [1, 2, 3],
    [1, 2, 3, 4],
    [1, 2, 3, 4, 5],
    [b"", b"", b""],
    [b"1", b"", 0],
    [b"xxxx", b"", 0],
    [[b"1-1"]],
    [[b"1-1", 5]],
    [[b"1-1", None, b"x"]],
    [[b"1-1", [b"d", b"x"], 1, 2]],
    [b"0", None],
    {},
    {b"a": 1},
    {b"a": 1, b"b": 2},
    [{}],
    [[b"name", b"x"]],
    [[5, [b"d", b"x"]]] * FIRST_PAGE,
    [[b"1-1", [1, 2]]] * FIRST_PAGE,
    ReplyError("ERR not thrown"),
)
READERS = {
    name: read
    for module in (replies, command_replies)
    for name, read in vars(module).items()
    if name.startswith("read_")
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_a_reply_of_any_shape_is_read_or_a_reply_error(read: Callable[..., Any]) -> None:
    wanted = len(inspect.signature(read).parameters)
    refused = 0
    for reply in ODD:
        try:
            read(reply, *[1] * (wanted - 1))
        except ReplyError:
            refused += 1
    assert refused > len(ODD) // 2


class OddConnection:
    """Answers everything with one reply, for a while."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.calls = 0

    async def call(self, *words: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls > 50:
            raise RedisTrouble("it goes on and on")
        return self.reply


class OddBroker(Broker):
    async def run_script(self, *arguments: Any, **options: Any) -> Any:
        return await self._connection.call(*arguments)

    async def find_channel_name_at_server(self, channel: str) -> str:
        return channel


KEYS = Keys("q")
HELD = [(b"1-1", 1)]
BOUNDS = replies.ByteBounds(100, 100)
FAILED, DEAD = rescheduled(b"1-1"), buried(b"1-1")
ASKS: dict[str, Callable[[Broker], Any]] = {
    "reschedule": lambda broker: broker.reschedule("g", "c", [FAILED], 0),
    "bury": lambda broker: broker.bury("g", "c", 0, [DEAD], 0),
    "renew_lease": lambda broker: broker.renew_lease_and_held_entries("g", "c", 1000, HELD),
    "claim_name": lambda broker: broker.try_to_claim_name("g", "c", "token", 1000),
    "report_held": lambda broker: broker.report_held_to_rebuild_group("g", "c", 1000, HELD),
    "without report": lambda broker: broker.find_workers_without_report("g"),
    "release": lambda broker: broker.release_some_entries("g", "c", HELD, 1),
    "leave": lambda broker: broker.leave_group_if_lease_is_same("g", "c", 1.0),
    "lease": lambda broker: broker.read_lease_end_or_zero("g", "c"),
    "is_paused": lambda broker: broker.is_paused(),
    "read_queue_flags": lambda broker: broker.read_queue_flags(),
    "read_cancellations": lambda broker: broker.read_cancellations_and_remove_outdated(),
    "cancel": lambda broker: broker.cancel("id", "", may_be_in_unread_entry=True, events_max_len=5),
    "holders": lambda broker: broker.count_held_entries_by_consumer("g"),
    "leases": lambda broker: broker.read_lease_ends("g"),
    "now_ms": lambda broker: broker.read_server_time_ms(),
    "take_over": lambda broker: broker.take_over_if_lease_is_same("g", "c", b"d", 1.0, 30_000, 10, BOUNDS),
    "claim_idle": lambda broker: broker.claim_idle_without_lease("g", "c", 1000, 10, BOUNDS),
    "pending_page": lambda broker: broker.list_pending_page("g", "c", b"", b"+", 10, BOUNDS),
    "pending_ids": lambda broker: broker.list_pending_id_page("g", "c", b"", b"+", 10),
    "last_pending": lambda broker: broker.read_last_pending_id("g"),
    "read_now_within_bounds": lambda broker: broker.read_now_within_bounds("g", "c", 10, BOUNDS),
    "count_delivery": lambda broker: broker.increment_delivery_counts_if_same("g", "c", HELD),
    "promote": lambda broker: broker.try_to_lead_and_promote_batch("h", 1000, 10, events_max_len=0),
    "backlog": lambda broker: broker.count_delayed_and_read_overdue_ms(),
    "move_delayed": lambda broker: broker.cancel_or_move_delayed("run", ["job"]),
    "due": lambda broker: RepeatablesBroker(broker, KEYS).try_to_lead_and_list_due("h", 1000, 10),
    "page of repeatables": lambda broker: RepeatablesBroker(broker, KEYS).list_soonest_then_paused(10),
    "move": lambda broker: RepeatablesBroker(broker, KEYS).remove_pause_or_resume("pause", "key"),
    "letters": lambda broker: DlqBroker(broker, KEYS).read_page("-", "+", 10),
    "replay": lambda broker: DlqBroker(broker, KEYS).replay([("1-1", b"x", b"")]),
    "counts": lambda broker: InspectorBroker(broker, KEYS, "g").read_counts(),
    "waiting": lambda broker: InspectorBroker(broker, KEYS, "g").read_waiting_page("", 10),
    "active": lambda broker: InspectorBroker(broker, KEYS, "g").read_active_page("", 10),
    "pages": lambda broker: find_entry_in_pages(
        JobFinderBroker(broker, KEYS).read_entry_pages("-", 1000), lambda page: None
    ),
    "entry by time": lambda broker: JobFinderBroker(broker, KEYS).find_entry_created_around(lambda page: None, 1000),
    "newest events": lambda broker: EventsBroker(broker, KEYS).read_newest_events(5),
    "events": lambda broker: EventsBroker(broker, KEYS).read_or_wait_for_events("0-0", 5, 10),
    "log": lambda broker: ResultsBroker(broker, KEYS).read_log_lines_after("job", "", 5),
    "workers": lambda broker: InspectorBroker(broker, KEYS, "g").read_records_of_living_workers(),
}


async def test_an_event_whose_id_is_no_text_is_an_error_reply() -> None:
    broker = OddBroker(cast(Connection, OddConnection([[b"stream", [[5, [b"e", b"active"]]]]])), KEYS)
    with pytest.raises(ReplyError):
        await EventsBroker(broker, KEYS).read_or_wait_for_events("0-0", 5, 10)


@pytest.mark.parametrize("lag", ((), (b"lag", None)))
def test_a_server_that_does_not_say_how_far_a_group_is_behind_gives_none(lag: tuple[Any, ...]) -> None:
    """Redis 6.2 has no such field, and later ones do not know it after some changes of a group."""
    words = [b"name", b"g", b"consumers", 1, b"pending", 0, b"last-delivered-id", b"1-1", *lag]
    assert command_replies.read_group_lag([words], b"g") is None


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())
async def test_a_broker_raises_only_trouble_with_redis_for_any_answer(
    ask: Callable[[Broker], Any],
) -> None:
    for reply in ODD[:-1]:
        with suppress(RedisTrouble):
            async with asyncio.timeout(40):
                await ask(OddBroker(cast(Connection, OddConnection(reply)), KEYS))
