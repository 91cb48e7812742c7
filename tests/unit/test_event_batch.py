"""Events leave as the scripts take them, behind whatever the turn has sent, or are dropped."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import hiredis
import pytest

from pychasqui._redis.broker import Broker
from pychasqui._redis.connection import Connection
from pychasqui._redis.event_batch import EventBatch, send_or_drop_events
from pychasqui._redis.keys import Keys
from pychasqui._redis.scripts import WRITE_COMPLETED, WRITE_EVENTS
from pychasqui._redis.socket import Socket
from pychasqui._wire.event import CompletedEvent, Event
from pychasqui.errors import ConnectionLost, RedisTrouble, ReplyError

FIRST: CompletedEvent = ("job-1", "mail", 1, 1000, 1250, 250_000)
SECOND: CompletedEvent = ("job-2", "mail", 3, "", 1260, 1000)
TIMEOUT = 10.0
KEYS = Keys("q")


class FakeSocket:
    """Keeps the commands that are sent, and the callbacks that wait for their replies."""

    def __init__(self) -> None:
        self.is_congested = False
        self.scripts: set[bytes] = {WRITE_EVENTS.hash, WRITE_COMPLETED.hash}
        self.sent: list[list[bytes]] = []
        self.answers: list[Callable[[Any], None]] = []

    def send(self, packed: bytes, deadline: float, on_reply: Callable[[Any], None]) -> None:
        reader = hiredis.Reader()
        reader.feed(packed)
        self.sent.append(cast(list[bytes], reader.gets()))
        self.answers.append(on_reply)


class EventBatchBench:
    def __init__(self) -> None:
        self.socket = FakeSocket()
        self.written: list[tuple[int, RedisTrouble | None]] = []

    def send(self, *, others: list[Event] | None = None, completed: list[CompletedEvent] | None = None) -> None:
        written = lambda count, trouble: self.written.append((count, trouble))  # noqa: E731
        batch = EventBatch(1000, written, others or [], completed or [], has_results=True)
        send_or_drop_events(cast(Socket, self.socket), KEYS, batch, TIMEOUT)


@pytest.fixture
def bench() -> EventBatchBench:
    return EventBatchBench()


def test_completed_jobs_leave_in_one_call(bench: EventBatchBench) -> None:
    bench.send(completed=[FIRST, SECOND])
    words = b"1000 {chasqui:q}:result: job-1 mail 1 1000 1250 250000 job-2 mail 3".split()
    expected = [b"EVALSHA", WRITE_COMPLETED.hash, b"1", KEYS.events.encode(), *words, b"", b"1260", b"1000"]
    assert bench.socket.sent == [expected]


def test_other_events_leave_first_each_with_its_number_of_words(bench: EventBatchBench) -> None:
    bench.send(others=[Event("drained", at_ms=5), Event("active", "job-1", "mail", at_ms=6)], completed=[FIRST])
    others, completed = bench.socket.sent
    assert others[:5] == [b"EVALSHA", WRITE_EVENTS.hash, b"1", KEYS.events.encode(), b"1000"]
    assert others[5:12] == [b"6", b"e", b"drained", b"id", b"", b"ts", b"5"]
    assert others[12:] == b"8 e active id job-1 ts 6 n mail".split()
    assert completed[1] == WRITE_COMPLETED.hash


def test_an_empty_batch_sends_nothing(bench: EventBatchBench) -> None:
    bench.send()
    assert (bench.socket.sent, bench.written) == ([], [])


def test_a_server_that_is_slow_to_take_what_is_written_gets_no_events(bench: EventBatchBench) -> None:
    bench.socket.is_congested = True
    bench.send(others=[Event("drained")], completed=[FIRST, SECOND])
    assert bench.socket.sent == []
    assert [count for count, _ in bench.written] == [1, 2]
    assert {str(trouble) for _, trouble in bench.written} == {"the server is slow to take what is written"}


@pytest.mark.parametrize("trouble", (ReplyError("OOM command not allowed"), ConnectionLost("cut")))
def test_the_writer_learns_of_each_answer(bench: EventBatchBench, trouble: RedisTrouble) -> None:
    bench.send(others=[Event("drained")], completed=[FIRST, SECOND])
    for answer, reply in zip(bench.socket.answers, (1, trouble), strict=True):
        answer(reply)
    assert bench.written == [(1, None), (2, trouble)]


def test_a_script_that_the_server_has_lost_is_sent_as_text_with_the_next_events(bench: EventBatchBench) -> None:
    for _ in range(2):
        bench.send(completed=[FIRST])
        bench.socket.answers[-1](ReplyError("NOSCRIPT No matching script"))
    assert [words[0] for words in bench.socket.sent] == [b"EVALSHA", b"EVAL"]
    assert [count for count, _ in bench.written] == [1, 1]


def test_events_are_dropped_while_the_connection_is_lost() -> None:
    written: list[tuple[int, str]] = []
    lost = cast(Connection, SimpleNamespace(get_live_socket_or_none=lambda: None))
    batch = EventBatch(1000, lambda count, trouble: written.append((count, str(trouble))), [Event("drained")], [FIRST])
    Broker(lost, Keys("q")).write_or_drop_events(batch)
    assert written == [(2, "the connection is lost")]
