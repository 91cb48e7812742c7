"""Of many idle workers a few wait at the server, in turns; the others look from time to time."""

from __future__ import annotations

import heapq
import random

import pytest

from pychasqui._worker import read_turns
from pychasqui._worker.living_workers import LivingWorkers
from pychasqui._worker.read_turns import (
    LONGEST_REST_S,
    MAX_WAITING_READERS,
    MESSAGES_APART_S,
    SHORTEST_REST_S,
    ReadTurns,
)
from pychasqui.errors import ConnectionLost
from tests.support.clock import FakeClock
from tests.support.memory_broker import MemoryBroker

BLOCK_MS = 5000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    monkeypatch.setattr(read_turns, "random", random.Random(7))
    return FakeClock().install(monkeypatch)


class TurnsBench:
    def __init__(self, living: int) -> None:
        self.living_workers = LivingWorkers(living)
        self.broker = MemoryBroker()
        self.broker.add_group("g")
        self.ended_pauses = 0
        self.turns = ReadTurns(self.living_workers, self.broker, "g", BLOCK_MS, on_backlog=self._end_pause)

    def _end_pause(self) -> None:
        self.ended_pauses += 1


class TestFewWorkers:
    async def test_every_read_waits_at_the_server(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=MAX_WAITING_READERS)
        for _ in range(10):
            clock.now += 5
            assert bench.turns.choose_block_ms() == BLOCK_MS
            assert await bench.turns.draw_turn_or_choose_pause_s() == 0.0
        assert bench.broker.calls == []


class TestManyWorkers:
    @pytest.mark.parametrize("living", (20, 100, 1000))
    async def test_about_sixteen_workers_wait_at_the_server_and_the_others_look_seldom(
        self, clock: FakeClock, living: int
    ) -> None:
        """Each has its turn; what is drawn is fixed."""
        began = clock.now
        members = [TurnsBench(living).turns for _ in range(living)]
        due = [(began + number / living, number) for number in range(living)]
        waits_until, had_turns, looks, waiting = [0.0] * living, set[int](), 0, list[int]()
        while due[0][0] < began + 120:
            clock.now, number = heapq.heappop(due)
            block_ms = members[number].choose_block_ms()
            if block_ms is not None:
                waits_until[number] = next_at = clock.now + block_ms / 1000
                had_turns.add(number)
            else:
                looks += 1
                next_at = clock.now + await members[number].draw_turn_or_choose_pause_s()
            heapq.heappush(due, (next_at, number))
            if clock.now > began + 30:
                waiting.append(sum(end > clock.now for end in waits_until))
        assert MAX_WAITING_READERS / 2 < sum(waiting) / len(waiting) <= MAX_WAITING_READERS * 1.25
        assert max(waiting) <= 2 * MAX_WAITING_READERS
        assert len(had_turns) > min(living, 200) / 2
        assert looks / 120 / living < 1 / (0.8 * min(max(SHORTEST_REST_S, 0.02 * (living - 16)), LONGEST_REST_S))

    async def test_a_message_ends_the_pause(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        assert bench.turns.choose_block_ms() is None
        assert LONGEST_REST_S / 2 <= await bench.turns.draw_turn_or_choose_pause_s() <= LONGEST_REST_S * 1.5
        assert bench.broker.on_backlog is not None
        bench.broker.on_backlog()
        assert bench.ended_pauses == 1

    async def test_a_server_without_messages_is_looked_at_all_the_same(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        bench.broker.trouble_of["try_to_subscribe_to_backlog_hints"] = ConnectionLost("away")
        assert await bench.turns.draw_turn_or_choose_pause_s() > 0

    async def test_a_worker_whose_fleet_has_shrunk_waits_at_the_server_again(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        assert bench.turns.choose_block_ms() is None
        bench.living_workers.set_count(count=3)
        assert bench.turns.choose_block_ms() == BLOCK_MS


class TestBacklog:
    async def test_jobs_that_are_left_are_published(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        bench.broker.add_entry(b"d", b"job")
        await bench.turns.publish_backlog_if_any_and_due()
        assert len(bench.broker.asked("publish_backlog_hint")) == 1

    async def test_a_queue_without_jobs_is_not_published(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        await bench.turns.publish_backlog_if_any_and_due()
        assert bench.broker.asked("publish_backlog_hint") == []

    async def test_a_message_of_a_moment_ago_is_not_published_again(self, clock: FakeClock) -> None:
        """Whether by this worker or by another: a message costs the server as much as it has subscribers."""
        bench = TurnsBench(living=1000)
        bench.broker.add_entry(b"d", b"job")
        await bench.turns.draw_turn_or_choose_pause_s()
        assert bench.broker.on_backlog is not None
        bench.broker.on_backlog()
        for _ in range(3):
            await bench.turns.publish_backlog_if_any_and_due()
        assert bench.broker.asked("publish_backlog_hint") == []
        clock.now += MESSAGES_APART_S
        for _ in range(3):
            await bench.turns.publish_backlog_if_any_and_due()
        assert len(bench.broker.asked("publish_backlog_hint")) == 1

    async def test_a_server_that_is_away_is_no_error(self, clock: FakeClock) -> None:
        bench = TurnsBench(living=1000)
        bench.broker.trouble_of["may_have_unread_entries"] = ConnectionLost("away")
        await bench.turns.publish_backlog_if_any_and_due()
        assert bench.broker.asked("publish_backlog_hint") == []
